#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Pack the source into OUT/ckpt-VERSION.tar.xz, from which `make` works without git.  Each run makes the same bytes.
#
#   source.sh VERSION OUT
set -eu
LC_ALL=C
export LC_ALL
version=$1 out=$2
cd "$(dirname "$0")/../.."
epoch=$(sh tools/packaging/epoch.sh)
mkdir -p "$out"
# existing files that git tracks; without git all files except build products
{
    { [ -e .git ] && git ls-files 2>/dev/null; } ||
        find . \( -name 'build' -o -name 'build-*' -o -path ./dist -o -path ./tools/python/dist -o -name .git -o -name __pycache__ \) -prune -o \
            ! -type d ! -name '*.o' ! -name '*.tmp' -print
} | sed 's|^\./||' | sort | while IFS= read -r file; do
    [ ! -e "$file" ] && [ ! -L "$file" ] || printf '%s\n' "$file"
done >"$out/files.tmp"
tar -c --no-recursion --format=gnu --owner=0 --group=0 --numeric-owner --mode=u+rw,go+r,go-w --mtime="@$epoch" \
    --transform="flags=r;s|^|ckpt-$version/|" -T "$out/files.tmp" | xz -T1 -6 >"$out/source.tmp"
rm "$out/files.tmp"
mv "$out/source.tmp" "$out/ckpt-$version.tar.xz"
echo "$out/ckpt-$version.tar.xz"
