#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Run unit test programs, as many at a time as there are processors; print what failed and one closing line.
#
#   run.sh PROGRAM...
set -u
CKPT_FIXTURES=${CKPT_FIXTURES:-$(pwd)/tests/fixtures}
export CKPT_FIXTURES
if [ -z "${CKPT_SHARED:-}" ] && [ -d ../shared/fixtures ]; then
    CKPT_SHARED=$(cd ../shared && pwd)
    export CKPT_SHARED
fi
results=$(mktemp -d) || exit 2
trap 'rm -rf "$results"' EXIT
trap 'exit 130' INT TERM
export results

# Each program leaves one file, so that the output of two does not mix: the number of tests that passed, or what failed.
# shellcheck disable=SC2016
printf '%s\n' "$@" | xargs -n 1 -P "$(nproc 2>/dev/null || echo 2)" sh -c '
    at=$results/$(printf %s "$0" | tr / _)
    "$0" >"$at.log" 2>&1
    rc=$?
    if [ $rc -eq 0 ]; then
        sed -n "s/.*\[  PASSED  \] \([0-9]*\) test.*/\1/p" "$at.log" | tail -n 1 >"$at.passed"
        [ -s "$at.passed" ] || echo 1 >"$at.passed"
    else
        { echo "FAIL $0 (exit $rc)" && grep -v "^\[ RUN\|^\[       OK" "$at.log" | head -n 40; } >"$at.failed"
    fi
    rm -f "$at.log"'
for f in "$results"/*.failed; do
    [ ! -f "$f" ] || cat "$f"
done
passed=$(cat "$results"/*.passed 2>/dev/null | awk '{s += $1} END {print s + 0}')
# a program that left nothing has not passed
failed=$(($# - $(find "$results" -name '*.passed' | wc -l)))
echo "unit: $passed passed, $failed failed"
[ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
