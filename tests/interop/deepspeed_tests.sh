#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# DeepSpeed's own tests of its converters, with our programs in the converters' place.
#
#   deepspeed_tests.sh DIR [BUILD_BIN]
#
# DIR is a checkout of DeepSpeed with its tests (DIR/tests/unit); the DeepSpeed that runs is the one of the interop environment
# (tests/interop/run.sh --install), which also needs pytest, of a release before 8.  Its tests take the processor and gloo here.
# PACKAGE=tools/python takes the functions of the Python package there.  SELECT is an expression for pytest's -k; LOG a file that gets all that pytest says.  Ends with "N passed, N failed"; a run in
# which no test called our programs is a failure.
set -u
here=$(cd "$(dirname "$0")" && pwd)
dir=$(cd "${1:?usage: deepspeed_tests.sh DIR [BUILD_BIN]}" && pwd) || exit 2
bin=$(cd "${2:-build/bin}" && pwd) || exit 2
venv=${CKPT_INTEROP_VENV:-${XDG_CACHE_HOME:-$HOME/.cache}/ckpt-interop}
[ -d "$dir/tests/unit" ] || { echo "deepspeed_tests: $dir has no tests/unit" >&2; exit 2; }
"$venv/bin/python" -c 'import pytest, deepspeed' || exit 2

[ -z "${PACKAGE:-}" ] || CKPT_PACKAGE=$(cd "$PACKAGE" && pwd) || exit 2
export CKPT_PACKAGE CKPT_LIBRARY=$bin/../lib/libckpt.so.0 CKPT_PROGRAM=$bin/ckpt
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# Only the tests: beside them the checkout's own deepspeed folder would be imported.
cp -r "$dir/tests" "$work/tests"
cd "$work/tests" || exit 2
tests=$(find unit -name test_zero.py -path '*zero*' | head -n 1)
: >"$work/calls"
export CKPT_BIN=$bin CKPT_CALLS=$work/calls PYTHONPATH=$here/deepspeed_tests DS_ACCELERATOR=cpu GLOO_SOCKET_IFNAME=lo
export OMP_NUM_THREADS=1 LOCAL_SIZE=4 DS_UNITTEST_TIMEOUT=600

passed=0 failed=0
# check NAME ARGUMENTS...: one file's tests; every case is counted
check() {
    local name=$1 p f e
    shift
    "$venv/bin/python" -m pytest -q -p no:cacheprovider --tb=short -rs ${SELECT:+-k "$SELECT"} "$@" >"$work/log" 2>&1
    sed -i 's/\x1b\[[0-9;]*m//g' "$work/log"
    [ -z "${LOG:-}" ] || cat "$work/log" >>"$LOG"
    p=$(sed -n 's/.*[^0-9]\([0-9][0-9]*\) passed.*/\1/p' "$work/log" | tail -n 1)
    f=$(sed -n 's/.*[^0-9]*\b\([0-9][0-9]*\) failed.*/\1/p' "$work/log" | tail -n 1)
    e=$(sed -n 's/.*[^0-9]*\b\([0-9][0-9]*\) error.*/\1/p' "$work/log" | tail -n 1)
    echo "$name: ${p:-0} passed, $((${f:-0} + ${e:-0})) failed$(sed -n 's/.*[^0-9]\([0-9][0-9]* skipped\).*/, \1/p' "$work/log" | tail -n 1)"
    [ "$((${f:-0} + ${e:-0}))" -eq 0 ] && [ "${p:-0}" -gt 0 ] || tail -n 40 "$work/log"
    passed=$((passed + ${p:-0}))
    failed=$((failed + ${f:-0} + ${e:-0}))
    [ "$((${p:-0} + ${f:-0} + ${e:-0}))" -gt 0 ] || failed=$((failed + 1))
}
check convert unit/checkpoint/test_convert_checkpoint.py
check shared_weights unit/checkpoint/test_shared_weights.py
check zero_to_fp32 "$tests::TestZeroToFP32"
check universal unit/checkpoint/test_universal_checkpoint.py
echo "calls of our programs: $(sort "$work/calls" | uniq -c | tr -s ' \n' ' ')"
[ -s "$work/calls" ] || failed=$((failed + 1))
echo "deepspeed_tests: $passed passed, $failed failed"
[ "$failed" -eq 0 ]
