#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Build the Debian packages in a copy of the source, build/deb/ckpt-VERSION, and copy them to OUT.
#
#   deb.sh VERSION OUT
set -eu
version=$1 out=$2
cd "$(dirname "$0")/../.."
epoch=$(sh tools/packaging/epoch.sh)
for tool in dpkg-buildpackage dh dh_python3; do
    command -v "$tool" >/dev/null || {
        echo "deb: $tool is not installed (sh tools/deps.sh packages)" >&2
        exit 3
    }
done
at=build/deb
rm -rf "$at"
mkdir -p "$at" "$out"
SOURCE_DATE_EPOCH=$epoch sh tools/packaging/source.sh "$version" "$at"
tar -C "$at" -xf "$at/ckpt-$version.tar.xz"
cp -r tools/packaging/debian "$at/ckpt-$version/debian"
cat >"$at/ckpt-$version/debian/changelog" <<END
ckpt ($version) unstable; urgency=medium

  * The changes are in CHANGELOG.md.

 -- The ckpt authors <ckpt@packages.invalid>  $(LC_ALL=C date -u -R -d "@$epoch")
END
(cd "$at/ckpt-$version" && env -u MAKEFLAGS -u MAKELEVEL dpkg-buildpackage -b -uc -us "-j${JOBS:-$(nproc)}") >"$at/log" 2>&1 || {
    tail -n 40 "$at/log" >&2
    exit 1
}
cp "$at"/*.deb "$out"
ls "$out"/*.deb
