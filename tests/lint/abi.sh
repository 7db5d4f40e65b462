#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The library still is what programs were linked with: compared, by abidiff, with the dump of the last release's.
#
#   abi.sh [--update] [LIBRARY]     default: build/lib/libckpt.so.0; --update writes the dump, for a release
#
# New functions are no change for a program.  A function that is gone fails always.  Other types (a member more, another
# parameter) are told before the first release, and fail after it: CHANGELOG.md says which it is.
# Exit status  0; 1: programs would break; 77: skipped, with the reason
set -u
cd "$(dirname "$0")/../.." || exit 1
update=
[ "${1:-}" != --update ] || { update=1 && shift; }
library=${1:-build/lib/libckpt.so.0}
dump=tests/lint/abi/libckpt.so.0.xml.xz
headers=$(ls libckpt/include/*.h)
skip() {
    echo "abi: skipped: $1"
    exit 77
}
command -v abidiff >/dev/null && command -v abidw >/dev/null || skip "abidiff is not installed (abigail-tools)"
command -v xz >/dev/null || skip "xz is not installed"
[ "$(uname -m)" = x86_64 ] || skip "the dump is of x86-64"
readelf -SW "$library" 2>/dev/null | grep -q '\.debug_info' || skip "$library was built without -g"

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# Types outside the public headers are private; the places of types tell which those are.  --drop-private-types would make the dump
# smaller, but libabigail 2.2 does not return from it.
dw=""
diff=""
for header in $headers; do
    dw="$dw --hf $header"
    diff="$diff --hf1 $header --hf2 $header"
done
if [ -n "$update" ]; then
    # shellcheck disable=SC2086
    abidw $dw --no-corpus-path --no-comp-dir-path --no-elf-needed --no-parameter-names \
        --out-file "$work/dump" "$library" && xz -9 -T1 <"$work/dump" >"$dump"
    exit
fi
xz -dc "$dump" >"$work/dump" || exit 1
# shellcheck disable=SC2086
abidiff --no-added-syms $diff "$work/dump" "$library" >"$work/report" 2>&1
rc=$?
if [ $((rc & 3)) -ne 0 ]; then
    cat "$work/report"
    echo "abi: abidiff failed"
    exit 1
elif [ $((rc & 8)) -ne 0 ]; then
    cat "$work/report"
    echo "abi: programs that were linked with the library would not start, or break"
    exit 1
elif [ "$rc" -ne 0 ]; then
    head -n 60 "$work/report"
    if grep -q ', not yet released$' CHANGELOG.md && [ "$(grep -c '^## ' CHANGELOG.md)" -eq 1 ]; then
        echo "abi: types have changed; there is no release yet that had the old ones"
        exit 0
    fi
    echo "abi: types have changed: programs would break; a new soname, or members that callers need not know, prevent it"
    exit 1
fi
echo "abi: as in the dump, or more"
