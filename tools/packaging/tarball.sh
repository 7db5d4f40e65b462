#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Pack a static ckpt into an archive: the program under its four names, manual pages, completions, licences of all its parts.
#
#   SOURCE_DATE_EPOCH=N tarball.sh PROGRAM VERSION ARCHITECTURE LICENCES OUT
set -eu
LC_ALL=C
export LC_ALL
program=$1 version=$2 arch=$3 licences=$4 out=$5
case "$arch" in
arm64) machine=aarch64 ;;
*) machine=x86_64 ;;
esac
# a program for another processor needs an emulator, because it prints its own completions
run=
[ "$(uname -m)" = "$machine" ] || run=qemu-$machine-static
[ -z "$run" ] || command -v "$run" >/dev/null || {
    echo "tarball: $run is not installed (sh tools/deps.sh packages)" >&2
    exit 3
}
name=ckpt-$version-linux-$arch
mkdir -p "$out"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
at=$work/$name
install -d "$at/bin" "$at/share/man/man1" "$at/share/man/man5" "$at/share/man/man7" "$at/share/bash-completion/completions" \
    "$at/share/zsh/site-functions" "$at/share/fish/vendor_completions.d" "$at/share/doc/ckpt"
"$machine-linux-gnu-strip" -o "$at/bin/ckpt" "$program"
for other in zero_to_fp32 zero_to_torch ds_to_universal; do
    ln -s ckpt "$at/bin/$other"
    ln -s ckpt "$at/share/bash-completion/completions/$other"
    ln -s ckpt.fish "$at/share/fish/vendor_completions.d/$other.fish"
    cp "man/$other.1" "$at/share/man/man1"
done
cp man/ckpt*.1 "$at/share/man/man1"
cp man/ckpt*.5 "$at/share/man/man5"
cp man/ckpt*.7 "$at/share/man/man7"
$run "$at/bin/ckpt" completion bash >"$at/share/bash-completion/completions/ckpt"
$run "$at/bin/ckpt" completion zsh >"$at/share/zsh/site-functions/_ckpt"
$run "$at/bin/ckpt" completion fish >"$at/share/fish/vendor_completions.d/ckpt.fish"
cp LICENSE NOTICE README.md CHANGELOG.md SECURITY.md "$at/share/doc/ckpt"
cp -r "$licences" "$at/share/doc/ckpt/licences"
tar -C "$work" -c --sort=name --format=gnu --owner=0 --group=0 --numeric-owner --mode=u+rw,go+r,go-w --mtime="@$SOURCE_DATE_EPOCH" "$name" |
    xz -T1 -6 >"$out/$name.tmp"
mv "$out/$name.tmp" "$out/$name.tar.xz"
echo "$out/$name.tar.xz"
