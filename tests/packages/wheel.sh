#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The wheel for any Linux: asks for no newer C library than its name says, needs nothing else, works with Debian 11's.
#
#   wheel.sh [--full] BIN     --full: as it is given away, and for aarch64
set -u
NAME=wheel
cd "$(dirname "$0")/../.." || exit 1
full=
[ "${1:-}" != --full ] || { full=1 && shift; }
bin=$(cd "${1:-build/bin}" && pwd)
# shellcheck source=tests/packages/help.sh
. tests/packages/help.sh
debian=bullseye
own=amd64 machine=x86_64
[ "$(uname -m)" != aarch64 ] || own=arm64 machine=aarch64

# made ARCH MACHINE: build it and look at it; its files are in $work/ARCH.  Less optimized where nobody gets it.
made() {
    rm -rf "${work:?}/$1"
    mkdir "$work/$1" "$work/$1.dist"
    if [ -n "$full" ]; then
        verdict "make manylinux ARCH=$1" make -s manylinux ARCH="$1" OUT="$work/$1.dist"
    else
        verdict "make manylinux ARCH=$1" make -s manylinux ARCH="$1" OUT="$work/$1.dist" MANY_B=build/manylinux-test CFLAGS="-O1 -g0"
    fi
    verdict "one wheel" test "$(find "$work/$1.dist" -name "*manylinux_*_$2.whl" | wc -l)" -eq 1
    (cd "$work/$1" && python3 -m zipfile -e "$work/$1.dist"/*.whl . && chmod +x ckpt/bin/ckpt)
    tag=$(basename "$work/$1.dist"/*.whl | sed 's/.*manylinux_2_\([0-9]*\)_.*/\1/')
    verdict "glibc 2.31 is new enough" test "$tag" -le 31
    for file in ckpt libckpt.so.0; do
        readelf -dW "$work/$1/ckpt/bin/$file" | awk '/NEEDED/ {print $NF}' >"$work/needed"
        verdict "$file needs the C library alone" status 1 grep -vE '\[(libc|libm|libpthread|libdl|ld-linux.*)\.so\.[0-9]\]' "$work/needed"
    done
    readelf --dyn-syms -W "$work/$1/ckpt/bin/libckpt.so.0" | awk '$7 != "UND" && $5 == "GLOBAL" {print $8}' >"$work/shown"
    verdict "the library shows its own functions" grep -q '^ckpt_open' "$work/shown"
    verdict "and no other library's" status 1 grep -vE '^(ckpt_|LIBCKPT|Name|$)' "$work/shown"
    verdict "licences" test -s "$work/$1"/libckpt-*.dist-info/licenses/libssl-dev.txt
}

have make readelf python3 || leave "$lacking is not installed"
if sysroot $debian $own; then
    made $own $machine
    verdict "Python opens a checkpoint by it" env PYTHONPATH="$work/$own" python3 -c '
import ckpt, sys
from ckpt import _lib
_lib.lib()
assert sys.argv[2] in open("/proc/self/maps").read()
with ckpt.open(sys.argv[1]) as run:
    assert len(run) == 21' "$fixture" "$work/$own/ckpt/bin/libckpt.so.0"
    verdict "signatures, checked by Debian 11's OpenSSL" sh tests/cli/run.sh "$work/$own/ckpt/bin" tests/cli/sign/package.sh
    if may_chroot; then
        # Debian 11's loader and C library, and nothing else
        root=$work/bare
        mkdir -p "$root/bin"
        cp -a "build/sysroot/$debian-$own"/lib* "$root"
        # its links lead to where the folder was
        find "$root" -type l | while read -r link; do
            to=$(readlink "$link")
            case "$to" in
            "$PWD/build/sysroot/$debian-$own"/*) ln -sfn "${to#"$PWD/build/sysroot/$debian-$own"}" "$link" ;;
            esac
        done
        cp "$work/$own/ckpt/bin/ckpt" "$root/bin"
        for other in zero_to_fp32 zero_to_torch ds_to_universal; do
            ln -s ckpt "$root/bin/$other"
        done
        main_job "chroot $root" "$root"
    else
        skip "Debian 11's C library: another root is not allowed here"
    fi
else
    skip "$why"
fi
if [ -z "$full" ] || [ $own != amd64 ]; then
    skip "aarch64: only with FULL=1, on x86-64"
elif ! have aarch64-linux-gnu-gcc qemu-aarch64-static; then
    skip "aarch64: $lacking is not installed"
elif ! sysroot $debian arm64; then
    skip "$why"
else
    made arm64 aarch64
    foreign() {
        program=$1
        shift
        QEMU_LD_PREFIX=$PWD/build/sysroot/$debian-arm64 qemu-aarch64-static -0 "$program" "$work/arm64/ckpt/bin/ckpt" "$@"
    }
    mkdir "$work/foreign"
    main_job foreign "$work/foreign" "$work/foreign"
fi
finish
