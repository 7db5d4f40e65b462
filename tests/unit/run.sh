#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Run every unit test program of a folder; print what failed and one closing line.
set -u
CKPT_FIXTURES=${CKPT_FIXTURES:-$(pwd)/tests/fixtures}
export CKPT_FIXTURES
if [ -z "${CKPT_SHARED:-}" ] && [ -d ../shared/fixtures ]; then
    CKPT_SHARED=$(cd ../shared && pwd)
    export CKPT_SHARED
fi
passed=0
failed=0
for t in "$1"/test_*; do
    case "$t" in *.d) continue ;; esac
    log=$("$t" 2>&1)
    rc=$?
    if [ $rc -eq 0 ]; then
        n=$(printf '%s\n' "$log" | sed -n 's/.*\[  PASSED  \] \([0-9]*\) test.*/\1/p' | tail -n 1)
        passed=$((passed + ${n:-1}))
    else
        failed=$((failed + 1))
        echo "FAIL $t (exit $rc)"
        printf '%s\n' "$log" | grep -v '^\[ RUN\|^\[       OK' | head -n 40
    fi
done
echo "unit: $passed passed, $failed failed"
[ "$failed" -eq 0 ]
