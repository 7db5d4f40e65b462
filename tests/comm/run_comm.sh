#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The communicator of several processes under mpirun: run_comm.sh [--some] [PROGRAM]
# --some: fewer numbers of ranks, and of each operation not every variant.
# Prints what failed and one closing line.  Without mpirun, or built without MPI, nothing is run.
set -u
some=
if [ "${1:-}" = --some ]; then
    some=some
    shift
fi
program=${1:-build/comm/comm_mpi}
passed=0
failed=0
log=$(mktemp)
trap 'rm -f "$log"' EXIT

OMPI_ALLOW_RUN_AS_ROOT=1
OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
export OMPI_ALLOW_RUN_AS_ROOT OMPI_ALLOW_RUN_AS_ROOT_CONFIRM
# see tools/zerotrain/launch.c
export PMIX_MCA_gds="${PMIX_MCA_gds:-hash}"
unset ZT_COMM_SHARED

finish() {
    echo "comm: $passed passed, $failed failed"
    [ "$failed" -eq 0 ]
    exit
}

pass() {
    passed=$((passed + 1))
}

fail() {
    failed=$((failed + 1))
    echo "FAIL $1"
    grep -v '^PASS' "$log" | head -n 20
}

if ! command -v mpirun >/dev/null 2>&1; then
    echo "skipped: no mpirun"
    finish
fi
"$program" refuse >"$log" 2>&1
if [ $? -eq 77 ]; then
    echo "skipped: built without MPI"
    finish
fi

# run RANKS ARGUMENTS...: the exit status is mpirun's; 124 when it hangs, which no load of the machine makes it do
run() {
    n=$1
    shift
    timeout -k 5 900 mpirun --oversubscribe --bind-to none -n "$n" "$@" >"$log" 2>&1
}

# checks RANKS LABEL [staged]: every operation against sums formed by the test itself
checks() {
    # shellcheck disable=SC2086
    run "$1" "$program" "${3:-checks}" $some
    rc=$?
    good=$(grep -c '^PASS' "$log")
    bad=$(grep -c '^FAIL' "$log")
    passed=$((passed + good))
    if [ "$rc" -ne 0 ] || [ "$bad" -ne 0 ] || [ "$good" -lt 50 ]; then
        fail "$2 on $1 ranks: status $rc, $good passed, $bad failed"
    fi
}

# ends LABEL RANKS TEXT STATUS ARGUMENTS...: the job ends, with the text and the status (any: not zero, nor that of a hang).
# Through shared memory the first rank to tell is the only one; without it a rank may tell before the first has ended it.
ends() {
    label=$1
    n=$2
    text=$3
    status=$4
    shift 4
    run "$n" "$@"
    rc=$?
    if [ "$status" = any ] && [ "$rc" -ne 0 ] && [ "$rc" -ne 124 ]; then
        status=$rc
    fi
    told=$(grep -c "$text" "$log")
    if [ "$rc" != "$status" ] || [ "$told" -lt 1 ] || { [ "$told" -gt 1 ] && [ "$ZT_COMM_SHARED" = 1 ]; }; then
        fail "$label on $n ranks: status $rc"
    else
        pass
    fi
}

for shared in 1 0; do
    ZT_COMM_SHARED=$shared
    export ZT_COMM_SHARED
    counts="1 2 3 4"
    if [ "$shared" -eq 0 ]; then
        counts="2 3" # slower, and nothing new on one and four
    fi
    if [ -n "$some" ]; then
        counts=$((2 + shared))
    fi
    for n in $counts; do
        checks "$n" "checks (shared memory: $shared)"
    done
    ends "one rank aborts" 3 "^rank 2 on .*: the test's own trouble" 9 "$program" abort 2
    ends "all ranks abort" 3 "^rank . on .*: the test's own trouble" 9 "$program" abort
    ends "one rank fails, all agree" 4 "^rank . on .*: rank 3 misses its file" 5 "$program" agree 3
    # mpirun is there to notice as well: either names the rank
    run 3 "$program" kill 1
    rc=$?
    if [ "$rc" -ne 0 ] && [ "$rc" -ne 124 ] && grep -q 'rank 1' "$log"; then
        pass
    else
        fail "a killed rank under mpirun: status $rc"
    fi
    # behind a shell, the launcher sees no process end: the ranks themselves notice
    # shellcheck disable=SC2016
    for victim in 0 1; do
        ends "a killed rank behind a shell" 3 "^rank . on .*: rank $victim on .* has ended" any \
            sh -c '"$0" kill "$1"; rc=$?; [ $rc -ne 137 ] || sleep 1000; exit $rc' "$program" $victim
    done
done
ZT_COMM_SHARED=1
# where /dev/shm has no room for what is shared, messages do
if unshare -m true 2>/dev/null; then
    timeout -k 5 900 unshare -m sh -c 'mount -t tmpfs -o size=8m tmpfs /dev/shm && exec "$@"' - \
        mpirun --oversubscribe --bind-to none -n 4 "$program" checks some >"$log" 2>&1
    rc=$?
    if [ "$rc" -eq 0 ] && [ "$(grep -c '^PASS' "$log")" -ge 50 ]; then pass; else fail "a small /dev/shm: status $rc"; fi
fi
# through the host, in one piece and in many
for ZT_STAGE_BYTES in 16777216 16384; do
    export ZT_STAGE_BYTES
    checks 2 "staged in $ZT_STAGE_BYTES bytes" staged
done
unset ZT_STAGE_BYTES
ends "a rank leaves early" 3 "^rank . on .*: .*rank 2 is in free" any "$program" leave 2
run 3 "$program" differ
rc=$?
if [ $rc -eq 0 ] && [ "$(grep -c 'all ranks must make the same calls' "$log")" -eq 3 ]; then
    pass
else
    fail "different calls: status $rc"
fi
finish
