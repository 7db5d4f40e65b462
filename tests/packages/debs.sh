#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Debian packages: built from the source archive without git, without an error of lintian; on a bare Debian 12 README's main job,
# a C program and a Python program; removed, they leave nothing behind.
#
#   debs.sh [--full] BIN     --full: zerotrain too, and the whole demo
set -u
NAME=debs
cd "$(dirname "$0")/../.." || exit 1
full=
[ "${1:-}" != --full ] || { full=1 && shift; }
bin=$(cd "${1:-build/bin}" && pwd)
# another root needs device files, which memory (TMPDIR) often does not allow
mkdir -p build
TMPDIR=$PWD/build
# shellcheck source=tests/packages/help.sh
. tests/packages/help.sh
# debootstrap that was stopped leaves these
trap 'umount "$work/bare/proc" "$work/bare/sys" 2>/dev/null; rm -rf --one-file-system "$work"' EXIT
debian=bookworm
packages="ckpt libckpt0 libckpt-dev python3-ckpt"
needs=libzip4,libcjson1,libdeflate0,libpcre2-8-0,libyaml-0-2,libssl3,python3,gcc,libc6-dev
[ -z "$full" ] || needs=$needs,libdnnl2,libgomp1,libopenmpi3,libunistring2,openmpi-bin,procps

# shellcheck disable=SC1091
[ "$(. /etc/os-release && echo "${VERSION_CODENAME:-}")" = $debian ] || leave "this is not Debian $debian"
have dpkg-buildpackage dh dh_python3 dpkg-deb || leave "$lacking is not installed"
dpkg-checkbuilddeps tools/packaging/debian/control 2>"$log" || leave "$(tail -n 1 "$log")"
version=$("$bin/ckpt" version | awk 'NR == 1 {print $2}')
rm -rf "$work/dist"
# symbols for debuggers cost time, and no test looks at them
verdict "builds" env DEB_BUILD_OPTIONS=noautodbgsym sh tools/packaging/deb.sh "$version" "$work/dist"
[ "$failed" -eq 0 ] || finish
if have lintian; then
    verdict "lintian finds no error" lintian --allow-root --fail-on error build/deb/*.changes
else
    skip "lintian is not installed"
fi

have debootstrap || leave "a bare Debian: debootstrap is not installed"
may_chroot || leave "a bare Debian: another root is not allowed here"
# shellcheck disable=SC2016
mirror=$(apt-get indextargets --format '$(RELEASE) $(COMPONENT) $(REPO_URI)' 'Identifier: Packages' |
    awk -v own=$debian '$1 == own && $2 == "main" {print $3; exit}')
[ -n "$mirror" ] || leave "a bare Debian: apt here has no mirror of $debian"
root=$work/bare
timeout 900 debootstrap --variant=minbase --include=$needs $debian "$root" "$mirror" >"$log" 2>&1 ||
    leave "a bare Debian: $(tail -n 1 "$log")"
chroot "$root" python3 -c 'import sys' >/dev/null 2>&1 || leave "a bare Debian: its programs do not start here"

# the files of all packages but what dpkg, the loader and their logs write
listing() {
    (cd "$root" && find . -path ./var/lib/dpkg -prune -o -path ./var/log -prune -o -path ./var/cache -prune -o \
        -path ./tmp -prune -o -path ./proc -prune -o -path ./dev -prune -o -path ./source -prune -o -print) | sort
}
in_bare() {
    env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C DEBIAN_FRONTEND=noninteractive HOME=/root PYTHONDONTWRITEBYTECODE=1 \
        AUTOPKGTEST_TMP=/tmp OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 chroot "$root" "$@"
}
listing >"$work/before"
mkdir "$root/debs"
for package in $packages ${full:+zerotrain}; do
    cp "$work/dist/$package"_*.deb "$root/debs"
done
verdict "dpkg -i" in_bare sh -c 'dpkg -i /debs/*.deb'
rm -rf "$root/debs"
verdict "dpkg finds all that was installed" in_bare sh -c "test -z \"\$(dpkg --verify $packages)\""
main_job in_bare "$root"
mkdir -p "$root/source/tests/fixtures"
cp -r tools/packaging/debian/tests "$root/source/debian-tests"
cp -r tests/fixtures/hf_trainer_llama_z3_bf16_w2 tests/fixtures/sentiment "$root/source/tests/fixtures"
cp tests/demo.sh "$root/source/tests"
verdict "a C program and a Python program" in_bare sh -c 'cd /source && sh debian-tests/library'
for page in man1/ckpt.1 man1/zero_to_fp32.1 man3/libckpt.3 man7/ckpt-maps.7; do
    verdict "$page" in_bare sh -c "dpkg -L $packages | grep -q /usr/share/man/$page.gz"
done
if [ -n "$full" ]; then
    mount -t proc proc "$root/proc" 2>/dev/null && mounted=1 || mounted=
    verdict "the demo" in_bare sh -c 'cd /source && sh debian-tests/demo'
    [ -z "$mounted" ] || umount "$root/proc"
fi
# shellcheck disable=SC2086
verdict "dpkg --purge" in_bare dpkg --purge $packages ${full:+zerotrain}
listing >"$work/after"
verdict "nothing is left behind" diff "$work/before" "$work/after"
finish
