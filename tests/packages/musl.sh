#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A static ckpt with musl instead of glibc: it builds without a change, and does README's main job.
#
#   musl.sh [--full] BIN     without --full the test is skipped, because it builds eight libraries
#
# Debian has musl, but no library that is linked with it.  The libraries are built from Debian's source packages, in a folder
# of their own: nothing is installed.  The static program loads no plugin, so MPI, FUSE and libcurl are not needed.
set -u
NAME=musl
cd "$(dirname "$0")/../.." || exit 1
full=
[ "${1:-}" != --full ] || { full=1 && shift; }
bin=$(cd "${1:-build/bin}" && pwd)
# shellcheck source=tests/packages/help.sh
. tests/packages/help.sh

[ -n "$full" ] || leave "builds libraries for some minutes (FULL=1)"
have musl-gcc dpkg-source cmake || leave "$lacking is not installed (Debian packages musl-tools, dpkg-dev, cmake)"
root=$work/musl
source=$work/source
mkdir -p "$root/include" "$root/lib" "$source/lists/partial"
flags="-O1 -fPIC -isystem $root/include"

# The kernel's headers belong to no C library; musl-gcc does not look into the folder that has glibc's headers, too.
kernel=$(dirname "$(find /usr/include -path '*/asm/unistd.h' | head -n 1)")
for folder in /usr/include/linux /usr/include/asm-generic "$kernel"; do
    ln -s "$folder" "$root/include/"
done

# fetch PACKAGE...: the sources, without a change of this machine's lists of packages
fetch() {
    # shellcheck disable=SC1091
    release=$(. /etc/os-release && echo "$VERSION_CODENAME")
    echo "deb-src http://deb.debian.org/debian $release main" >"$source/sources.list"
    apt() {
        apt-get -qq -o Dir::Etc::sourcelist="$source/sources.list" -o Dir::Etc::sourceparts=/dev/null -o Dir::Cache::pkgcache= \
            -o Dir::Cache::srcpkgcache= -o Dir::State::lists="$source/lists" -o APT::Sandbox::User= "$@"
    }
    apt update && (cd "$source" && apt source "$@")
}

# configured FOLDER TARGETS ARGUMENT...: a library with a configure script
configured() {
    (
        cd "$source/$1"-*/ && targets=$2 && shift 2 || exit 1
        # shellcheck disable=SC2086
        CC=musl-gcc CFLAGS=$flags LDFLAGS=-L$root/lib ./"${CONFIGURE:-configure}" --prefix="$root" "$@" && make -s -j2 $targets
    )
}

# made FOLDER ARGUMENT...: a library with CMake
made() {
    (
        cd "$source/$1"-*/ && shift || exit 1
        cmake -S . -B musl -DCMAKE_C_COMPILER=musl-gcc -DCMAKE_C_FLAGS="$flags" -DCMAKE_INSTALL_PREFIX="$root" \
            -DCMAKE_INSTALL_LIBDIR=lib -DCMAKE_PREFIX_PATH="$root" -DCMAKE_FIND_USE_CMAKE_SYSTEM_PATH=no \
            -DBUILD_SHARED_LIBS=OFF "$@" && make -s -C musl -j2 install
    )
}

# OpenSSL without everything that can be left out: ckpt computes SHA-256, and signs by elliptic curves
crypto() {
    CONFIGURE=Configure configured openssl "build_generated libcrypto.a" linux-"$(uname -m)" no-asm no-shared no-tests no-engine \
        no-dso no-async no-dh no-dsa no-cms no-ct no-ocsp no-ts no-srp no-idea no-camellia no-aria no-sm2 no-sm3 no-sm4 \
        no-seed no-bf no-cast no-des no-rc2 no-rc4 no-md4 no-mdc2 no-whirlpool no-rmd160 no-blake2 no-poly1305 no-chacha \
        no-siphash no-scrypt no-gost no-legacy no-cmp &&
        cp "$source"/openssl-*/libcrypto.a "$root/lib/" && cp -R "$source"/openssl-*/include/openssl "$root/include/"
}

fetch zlib libdeflate libzip cjson pcre2 libyaml openssl >"$log" 2>&1 || leave "Debian's sources cannot be read: $(tail -n 1 "$log")"
verdict "zlib builds" configured zlib install --static
verdict "libdeflate builds" sh -c "cd $source/libdeflate-*/ && make -s -j2 CC=musl-gcc CFLAGS='$flags' PREFIX=$root \
    DISABLE_SHARED=1 libdeflate.a && cp libdeflate.a $root/lib/ && cp libdeflate.h $root/include/"
verdict "libyaml builds" made libyaml -DBUILD_TESTING=OFF
verdict "pcre2 builds" configured pcre2 install --disable-shared
verdict "cjson builds" made cjson -DENABLE_CJSON_TEST=Off -DBUILD_SHARED_AND_STATIC_LIBS=Off
verdict "libzip builds" made libzip -DENABLE_COMMONCRYPTO=OFF -DENABLE_GNUTLS=OFF -DENABLE_MBEDTLS=OFF -DENABLE_OPENSSL=OFF \
    -DENABLE_BZIP2=OFF -DENABLE_LZMA=OFF -DENABLE_ZSTD=OFF -DBUILD_TOOLS=OFF -DBUILD_REGRESS=OFF -DBUILD_EXAMPLES=OFF -DBUILD_DOC=OFF
verdict "OpenSSL builds" crypto
[ "$failed" -eq 0 ] || finish
# musl-gcc of Debian 12 knows -static, but not -static-pie, which the Makefile's static program has
objects="obj/tools/main.o obj/libckpt/base/none/plugin.o obj/tools.a obj/models.a lib/libckpt.a"
program() {
    # shellcheck disable=SC2046,SC2086
    set -- $(printf "$work/build/%s " $objects)
    mkdir -p "$work/build/bin"
    make -s -j2 CC="musl-gcc -isystem $root/include" B="$work/build" CUDA=no REMOTE=no MOUNT=no CFLAGS=-O1 "$@" &&
        musl-gcc -static -o "$work/build/bin/ckpt" "$@" -L"$root/lib" -lzip -ldeflate -lz -lcrypto -lcjson -lpcre2-8 -lyaml -lm
}
verdict "ckpt builds" program
[ "$failed" -eq 0 ] || finish
ln -s ckpt "$work/build/bin/zero_to_fp32"
readelf -dW "$work/build/bin/ckpt" >"$work/dynamic" 2>&1
verdict "needs no library" status 1 grep NEEDED "$work/dynamic"
run_musl() {
    program=$1
    shift
    "$work/build/bin/$program" "$@"
}
mkdir "$work/data"
main_job run_musl "$work/data" "$work/data"
finish
