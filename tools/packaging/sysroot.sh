#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Unpack the files for linking ckpt, from any Debian release and architecture, into a folder: headers, the C library, static
# libraries, and their licences.  The script needs no root rights and changes no other files of this machine.
#
#   sysroot.sh RELEASE ARCHITECTURE FOLDER       sysroot.sh bullseye arm64 build/sysroot/bullseye-arm64
#
# Packages come from the mirror of this machine's apt, and apt checks their signatures and checksums.  The script builds libzip
# and cJSON from Debian's patched sources, because Debian has no static libraries of them.
#
# Exit status  0: the folder is complete; 3: a program or file is missing (named on stderr); 4: a download failed
set -eu
release=$1 arch=$2 out=$3

# lacks REASON: exit because a program or file is missing
lacks() {
    echo "sysroot: $1" >&2
    exit 3
}

case "$arch" in
amd64) triplet=x86_64-linux-gnu ;;
arm64) triplet=aarch64-linux-gnu ;;
*)
    echo "sysroot: no architecture '$arch' (amd64 arm64)" >&2
    exit 2
    ;;
esac
[ ! -e "$out/complete" ] || exit 0
keys=/usr/share/keyrings/debian-archive-keyring.gpg
[ -e "$keys" ] || lacks "no $keys: this is not Debian"
for tool in apt-get dpkg-deb dpkg-source cmake "$triplet-gcc" "$triplet-ar"; do
    command -v "$tool" >/dev/null || lacks "$tool is not installed (sh tools/deps.sh packages)"
done

rm -rf "$out"
mkdir -p "$out"
out=$(cd "$out" && pwd)
apt=$out/.apt
mkdir -p "$apt/lists/partial" "$apt/cache/archives/partial" "$apt/debs" "$apt/src"
: >"$apt/status"

# the mirrors of this machine's release and of its security updates
# shellcheck disable=SC1091
own=$(. /etc/os-release && echo "${VERSION_CODENAME:-}")
# shellcheck disable=SC2016
apt-get indextargets --format '$(RELEASE) $(COMPONENT) $(REPO_URI)' 'Identifier: Packages' |
    awk -v own="$own" '$2 == "main" && !seen[$1]++ && ($1 == own || $1 == own "-security") {print substr($1, length(own) + 1) " " $3}' |
    sort >"$apt/mirrors"
[ -s "$apt/mirrors" ] || lacks "apt here has no source of Debian's main packages"
# Packages are from the requested release, and sources from this machine's release, because that still gets security updates.
while read -r part uri; do
    case "$part" in
    -security) ;;
    *) uri=$part part= ;;
    esac
    echo "deb [signed-by=$keys] $uri $release$part main"
    echo "deb-src [signed-by=$keys] $uri $own$part main"
done <"$apt/mirrors" >"$apt/sources.list"

# own_apt COMMAND...: run apt-get with a separate state folder, so that this machine's apt does not change
own_apt() {
    apt-get -q -q -o APT::Architecture="$arch" -o APT::Architectures="$arch" -o APT::Sandbox::User=root \
        -o Dir::State="$apt" -o Dir::State::lists="$apt/lists" -o Dir::State::status="$apt/status" -o Dir::Cache="$apt/cache" \
        -o Dir::Etc::SourceList="$apt/sources.list" -o Dir::Etc::SourceParts=/dev/null -o Dir::Etc::Preferences=/dev/null \
        -o Dir::Etc::PreferencesParts=/dev/null -o Acquire::Languages=none -o Acquire::Retries=3 -o Acquire::Check-Valid-Until=false \
        -o Acquire::http::Timeout=30 "$@"
}
failed() {
    echo "sysroot: $release $arch: $1" >&2
    exit 4
}
packages() {
    own_apt update && (cd "$apt/debs" && own_apt download libc6 libc6-dev linux-libc-dev libcrypt-dev libdeflate-dev zlib1g-dev libssl-dev \
        libpcre2-dev libyaml-dev)
}
echo "sysroot: Debian $release, $arch" >&2
if ! packages >"$apt/log" 2>&1; then
    # the mirrors of an unsupported release may have no security updates any more: try without them
    sed -i "/^deb .* $release-security main\$/d" "$apt/sources.list"
    rm -f "$apt"/debs/*
    packages >"$apt/log" 2>&1 || {
        cat "$apt/log" >&2
        failed "its packages cannot be had"
    }
fi
(cd "$apt/src" && own_apt source libzip cjson) >"$apt/log" 2>&1 || {
    cat "$apt/log" >&2
    failed "sources cannot be had"
}

for deb in "$apt"/debs/*.deb; do
    dpkg-deb -x "$deb" "$out"
    dpkg-deb -f "$deb" Package Version | awk '{printf "%s%s", $2, NR % 2 ? " " : "\n"}' >>"$apt/packages"
done
# Make absolute links point into the folder.  Remove broken links to shared libraries, because they would hide the static ones.
find "$out/usr" "$out"/lib* -type l | while read -r link; do
    to=$(readlink "$link")
    case "$to" in
    /*) ln -sfn "$out$to" "$link" ;;
    esac
    [ -e "$link" ] || rm "$link"
done

lib=$out/usr/lib/$triplet
cc="$triplet-gcc --sysroot=$out"
# -B, -L: cmake's test programs must be linked with libraries of the folder too
flags="-B$lib/ -L$lib -O2 -fPIC -fstack-protector-strong -D_FORTIFY_SOURCE=2 -ffile-prefix-map=$apt/src=."
# without other compressions, because checkpoints use only deflate
cmake -S "$apt"/src/libzip-*/ -B "$apt/libzip" -DCMAKE_SYSTEM_NAME=Linux -DCMAKE_C_COMPILER="$triplet-gcc" \
    -DCMAKE_SYSROOT="$out" -DCMAKE_C_FLAGS="$flags" -DCMAKE_BUILD_TYPE=None -DBUILD_SHARED_LIBS=OFF -DENABLE_COMMONCRYPTO=OFF \
    -DENABLE_GNUTLS=OFF -DENABLE_MBEDTLS=OFF -DENABLE_OPENSSL=OFF -DENABLE_BZIP2=OFF -DENABLE_LZMA=OFF -DENABLE_ZSTD=OFF \
    -DBUILD_TOOLS=OFF -DBUILD_REGRESS=OFF -DBUILD_EXAMPLES=OFF -DBUILD_DOC=OFF -DZLIB_LIBRARY="$lib/libz.a" \
    -DZLIB_INCLUDE_DIR="$out/usr/include" >"$apt/log" 2>&1 && cmake --build "$apt/libzip" --target zip >>"$apt/log" 2>&1 || {
    tail -n 40 "$apt/log" >&2
    exit 1
}
cp "$apt/libzip/lib/libzip.a" "$lib"
cp "$apt"/src/libzip-*/lib/zip.h "$apt/libzip/zipconf.h" "$out/usr/include"
mkdir -p "$out/usr/include/cjson"
# shellcheck disable=SC2086
(cd "$apt"/src/cjson-*/ && $cc $flags -c -o "$apt/cJSON.o" cJSON.c && cp cJSON.h "$out/usr/include/cjson")
"$triplet-ar" rcsD "$lib/libcjson.a" "$apt/cJSON.o"
for name in libzip cjson; do
    mkdir -p "$out/usr/share/doc/$name"
    cp "$apt"/src/"$name"-*/debian/copyright "$out/usr/share/doc/$name"
    (cd "$apt"/src/"$name"-*/ && dpkg-parsechangelog -S Version | sed "s/^/$name /") >>"$apt/packages"
done
# versions and licences of the libraries that the programs contain
mkdir "$out/licences"
sort "$apt/packages" | grep -E '^(libc6|libdeflate-dev|zlib1g-dev|libssl-dev|libpcre2-dev|libyaml-dev|libzip|cjson) ' >"$out/licences/VERSIONS"
while read -r name _; do
    cp -L "$out/usr/share/doc/$name/copyright" "$out/licences/$name.txt"
done <"$out/licences/VERSIONS"
rm -rf "$apt"
: >"$out/complete"
