#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The image of tools/packaging/Containerfile, of the static program that tarballs.sh has made, does README's main job.
#
#   container.sh [--full] BIN
set -u
NAME=container
cd "$(dirname "$0")/../.." || exit 1
[ "${1:-}" != --full ] || shift
bin=$(cd "${1:-build/bin}" && pwd)
# shellcheck source=tests/packages/help.sh
. tests/packages/help.sh

have buildah || leave "$lacking is not installed"
archive=$(ls -t dist/ckpt-*-linux-"$(dpkg --print-architecture)".tar.xz 2>/dev/null | head -n 1)
[ -n "$archive" ] || leave "no static program was made (make tarball)"
# storage of its own: nothing of this machine's is read or written
store="--root $work/store --runroot $work/run --storage-driver vfs"
buildah() {
    # shellcheck disable=SC2086
    command buildah $store "$@"
}
buildah from scratch >"$log" 2>&1 || leave "buildah does not work here: $(tail -n 1 "$log")"
mkdir "$work/image"
tar -C "$work/image" --strip-components=1 -xf "$archive"
verdict "builds" buildah bud -q --isolation chroot -t ckpt -f tools/packaging/Containerfile "$work/image"
holder=$(buildah from ckpt 2>"$log") || leave "buildah cannot use the image: $(tail -n 1 "$log")"
verdict "ckpt is what it runs" sh -c "command buildah $store inspect ckpt | grep -q /bin/ckpt"
buildah run --isolation chroot "$holder" ckpt formats >/dev/null 2>"$log" || leave "buildah starts nothing here: $(tail -n 1 "$log")"
mkdir "$work/data"
in_image() {
    buildah run --isolation chroot -v "$work/data:/data" "$holder" "$@"
}
main_job in_image "$work/data" /data
buildah rm -a >/dev/null 2>&1
finish
