#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Install the missing Debian packages for building and testing.
#
#   sh tools/deps.sh ckpt | build | demo | check | lint | gpu | fuzz | interop | examples | packages | cross ...
#
# The arguments are names of sets, in any number.  The set report has a browser for the tests of `ckpt report`.
#
# The script prints the names of the packages before it installs them.  It uses sudo if it does not run as root.  If no
# package is missing, it does nothing and prints nothing.  With NO_DEPS=1 it installs nothing and names what is missing.
set -eu

# library for matrix products: oneDNN only on x86_64, because Debian's oneDNN has fast code for that processor only
sgemm=libopenblas-pthread-dev
[ "$(uname -m)" != x86_64 ] || sgemm=libdnnl-dev

# packages for `make ckpt`
ckpt="gcc libc6-dev make libdeflate-dev zlib1g-dev libzip-dev libssl-dev libcjson-dev libpcre2-dev libyaml-dev"

packages=
for set in "$@"; do
    case "$set" in
    ckpt) packages="$packages $ckpt" ;;
    build) packages="$packages $ckpt $sgemm libopenmpi-dev openmpi-bin pkg-config libunistring-dev librandom123-dev" ;;
    demo) packages="$packages" ;;
    check) packages="$packages libfuse3-dev fuse3 pkg-config libcurl4-openssl-dev libcmocka-dev python3 mandoc iproute2 strace" ;;
    lint) packages="$packages clang clang-format cppcheck shellcheck mandoc abigail-tools xz-utils" ;;
    gpu) packages="$packages g++" ;;
    report) packages="$packages chromium" ;;
    fuzz) packages="$packages clang libclang-rt-14-dev lld" ;;
    examples) packages="$packages g++ rustc bindgen golang-go" ;;
    interop) packages="$packages python3-torch python3-venv cmake ninja-build g++" ;;
    packages) packages="$packages binutils dpkg-dev debhelper dh-python fakeroot cmake xz-utils lintian debootstrap meson ninja-build musl-tools" ;;
    cross) packages="$packages gcc-aarch64-linux-gnu qemu-user-static buildah" ;;
    *)
        echo "deps.sh: unknown set '$set' (ckpt build demo check lint gpu fuzz interop examples packages cross)" >&2
        exit 2
        ;;
    esac
done

missing=
for p in $packages; do
    if ! dpkg-query -W -f='${Status}' "$p" 2>/dev/null | grep -q 'ok installed'; then
        missing="$missing $p"
    fi
done
[ -n "$missing" ] || exit 0
if [ -n "${NO_DEPS:-}" ]; then
    echo "NO_DEPS is set, so these Debian packages are not installed:$missing" >&2
    exit 0
fi

if ! command -v apt-get >/dev/null 2>&1; then
    echo "deps.sh: needs these Debian packages or their equivalents:$missing" >&2
    exit 1
fi
as_root=
if [ "$(id -u)" -ne 0 ]; then
    as_root=sudo
fi
echo "installing Debian packages:$missing"
# Wait at most ten minutes for another apt-get, because a machine may update itself after it has started.
tries=0
until out=$($as_root apt-get update -qq 2>&1); do
    case $out in
    *"Could not get lock"*) ;;
    *) tries=120 ;;
    esac
    tries=$((tries + 1))
    if [ "$tries" -ge 120 ]; then
        printf '%s\n' "$out" >&2
        exit 1
    fi
    sleep 5
done
# shellcheck disable=SC2086
DEBIAN_FRONTEND=noninteractive $as_root apt-get install -y -qq --no-install-recommends -o DPkg::Lock::Timeout=600 $missing >/dev/null
