#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The same source makes the same bytes, in whichever folder, with git or without.
#
#   same.sh [--full] BIN     after debs.sh, whose build is the first of the two; --full: each package, built twice
set -u
NAME=same
cd "$(dirname "$0")/../.." || exit 1
full=
[ "${1:-}" != --full ] || { full=1 && shift; }
bin=$(cd "${1:-build/bin}" && pwd)
# shellcheck source=tests/packages/help.sh
. tests/packages/help.sh

have make tar xz cmp || leave "$lacking is not installed"
version=$("$bin/ckpt" version | awk 'NR == 1 {print $2}')
epoch=$(sh tools/packaging/epoch.sh)
source=ckpt-$version.tar.xz
verdict "make source" sh tools/packaging/source.sh "$version" "$work/a"
mkdir -p "$work/another/folder"
verdict "unpacks" tar -C "$work/another/folder" -xf "$work/a/$source"
second=$work/another/folder/ckpt-$version
verdict "make source, without git" env SOURCE_DATE_EPOCH="$epoch" sh "$second/tools/packaging/source.sh" "$version" "$work/b"
verdict "the same source" cmp "$work/a/$source" "$work/b/$source"
verdict "its time is that of the commit" test "$(sh "$second/tools/packaging/epoch.sh")" = "$epoch"

first=build/deb/ckpt-$version/build/release
if [ -n "$full" ] && have dpkg-buildpackage dh dh_python3 && dpkg-checkbuilddeps tools/packaging/debian/control 2>/dev/null; then
    verdict "make deb" sh tools/packaging/deb.sh "$version" "$work/a"
    verdict "make deb in another folder" sh "$second/tools/packaging/deb.sh" "$version" "$work/b"
    for deb in "$work/a"/*.deb; do
        verdict "${deb##*/}" cmp "$deb" "$work/b/${deb##*/}"
    done
elif [ -f "$first/bin/ckpt" ] && cmp -s "build/deb/$source" "$work/a/$source"; then
    verdict "builds in another folder, without git" make -s -C "$second" RELEASE=1 CUDA=no CC="$(dpkg-architecture -q DEB_HOST_GNU_TYPE)-gcc" ckpt
    for file in bin/ckpt lib/libckpt.a lib/libckpt.so.0; do
        verdict "$file" cmp "$first/$file" "$second/build/release/$file"
    done
else
    skip "programs: debs.sh has built none of this source"
fi
finish
