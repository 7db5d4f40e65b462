#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The static program: starts where there is nothing, does README's main job there, says what it cannot do; its archive is whole.
#
#   tarballs.sh [--full] BIN     BIN: this build's programs; --full: as `make tarball` makes it, and for aarch64 under an emulator
set -u
NAME=tarballs
cd "$(dirname "$0")/../.." || exit 1
full=
[ "${1:-}" != --full ] || { full=1 && shift; }
bin=$(cd "${1:-build/bin}" && pwd)
# shellcheck source=tests/packages/help.sh
. tests/packages/help.sh
debian=bookworm
own=amd64
[ "$(uname -m)" != aarch64 ] || own=arm64

# contents ARCHIVE ROOT: what is in it
contents() {
    verdict "its folder is its name" test -d "$2/bin"
    for page in man1/ckpt.1 man1/ckpt-convert.1 man1/zero_to_fp32.1 man7/ckpt-maps.7; do
        verdict "$page" test -s "$2/share/man/$page"
    done
    for shell in bash zsh fish; do
        case "$shell" in
        bash) file=bash-completion/completions/ckpt ;;
        zsh) file=zsh/site-functions/_ckpt ;;
        fish) file=fish/vendor_completions.d/ckpt.fish ;;
        esac
        "$bin/ckpt" completion "$shell" >"$work/completion"
        verdict "completion of $shell" cmp "$work/completion" "$2/share/$file"
    done
    for library in libc6 libdeflate-dev zlib1g-dev libssl-dev libpcre2-dev libyaml-dev libzip cjson; do
        verdict "licence of $library" test -s "$2/share/doc/ckpt/licences/$library.txt"
        verdict "version of $library" grep "^$library [0-9]" "$2/share/doc/ckpt/licences/VERSIONS"
    done
    readelf -dW "$2/bin/ckpt" >"$work/dynamic" 2>&1
    readelf -lW "$2/bin/ckpt" >"$work/program" 2>&1
    verdict "needs no library" status 1 grep NEEDED "$work/dynamic"
    verdict "needs no loader" status 1 grep INTERP "$work/program"
    verdict "its place is not known" grep -q 'FLAGS_1.*PIE' "$work/dynamic"
    verdict "its tables cannot be written" grep -q GNU_RELRO "$work/program"
}

# archive ARCH PREFIX: unpack, look, use; PREFIX is an emulator, or nothing
archive() {
    file=dist/ckpt-$version-linux-$1.tar.xz
    root=$work/root-$1
    mkdir "$root"
    verdict "unpacks" tar -C "$root" --strip-components=1 -xf "$file"
    contents "$file" "$root"
    if [ -n "$2" ]; then
        run_as() {
            program=$1
            shift
            "$emulator" "$root/bin/$program" "$@"
        }
        emulator=$2
        main_job run_as "$root" "$root"
        return
    fi
    main_job "chroot $root" "$root"
    verdict "says that it loads no MPI" status 3 env CKPT_MPI=yes OMPI_COMM_WORLD_SIZE=2 OMPI_COMM_WORLD_RANK=0 \
        chroot "$root" /bin/ckpt formats
    cp "$log" "$work/said"
    verdict "and why" grep 'one static file' "$work/said"
}

have make ar xz tar readelf || leave "$lacking is not installed"
version=$("$bin/ckpt" version | awk 'NR == 1 {print $2}')
if ! may_chroot; then
    skip "an empty root: not allowed here"
elif ! sysroot $debian $own; then
    skip "$why"
elif [ -n "$full" ]; then
    verdict "make tarball" make -s tarball DEBIAN=$debian ARCH=$own
    archive $own ""
else
    # the objects that this build has already, linked anew
    b=${bin%/bin}
    verdict "links" make -s static-program B="$b" DEBIAN=$debian ARCH=$own
    verdict "packs" env SOURCE_DATE_EPOCH=1 sh tools/packaging/tarball.sh "$b/static/ckpt" "$version" $own \
        build/sysroot/$debian-$own/licences dist
    archive $own ""
fi
if [ -z "$full" ] || [ $own != amd64 ]; then
    skip "aarch64: only with FULL=1, on x86-64"
elif ! have aarch64-linux-gnu-gcc qemu-aarch64-static; then
    skip "aarch64: $lacking is not installed"
elif ! sysroot $debian arm64; then
    skip "$why"
else
    verdict "make tarball ARCH=arm64" make -s tarball DEBIAN=$debian ARCH=arm64
    archive arm64 qemu-aarch64-static
fi
finish
