#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The build by Meson beside that by make: sources, flags, installed files.
#
#   meson.sh [--full] BIN     --full: compile and install it, too, and do README's main job with the result
set -u
NAME=meson
cd "$(dirname "$0")/../.." || exit 1
full=
[ "${1:-}" != --full ] || { full=1 && shift; }
bin=$(cd "${1:-build/bin}" && pwd)
# shellcheck source=tests/packages/help.sh
. tests/packages/help.sh
have make python3 meson ninja pkg-config || leave "$lacking is not installed"
verdict "meson setup" meson setup --prefix /usr --libdir lib "$work/build"
[ "$failed" -eq 0 ] || finish
if meson introspect --targets "$work/build" | grep -q '"name": "zerotrain", "id": "[^"]*@exe'; then
    verdict "the same sources, flags and files as by make" python3 tests/packages/meson.py "$work/build"
else
    skip "the comparison with make: the libraries of zerotrain are not installed (tools/deps.sh build)"
fi
[ -n "$full" ] || finish

rm -rf "$work/build"
verdict "meson setup" meson setup --prefix /usr --libdir lib --werror "$work/build"
verdict "ninja" ninja -C "$work/build"
verdict "meson install" meson install -C "$work/build" --destdir "$work/installed"
mkdir "$work/root"
main_job "env PATH=$work/installed/usr/bin:$PATH" "$work/root" "$work/root"
finish
