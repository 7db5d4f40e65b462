#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Processes that meet in a folder, without a launcher: run_store.sh [--some] FOLDER_OF_TEST_PROGRAMS FOLDER_OF_PROGRAMS
# Prints what failed and one closing line.
# --some: of each operation not every variant.
set -u
some=
if [ "${1:-}" = --some ]; then
    some=some
    shift
fi
program=${1:-build/comm}/comm_mpi
bin=${2:-build/bin}
passed=0
failed=0
log=$(mktemp -d)
trap 'rm -rf "$log"' EXIT
unset RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE SLURM_PROCID SLURM_NTASKS ZEROTRAIN_STORE_TIMEOUT

pass() {
    passed=$((passed + 1))
}

fail() {
    failed=$((failed + 1))
    echo "FAIL $1"
    cat "$log"/out.* | grep -v '^PASS' | head -n 20
}

# ranks N COMMAND...: N processes of one run; `status` is the largest exit status, `all` holds every one
ranks() {
    n=$1
    shift
    rm -rf "$log"/out.* "$log"/store
    pids=
    r=0
    while [ "$r" -lt "$n" ]; do
        ZEROTRAIN_STORE=$log/store RANK=$r WORLD_SIZE=$n LOCAL_RANK=$r LOCAL_WORLD_SIZE=$n \
            timeout -k 5 900 "$@" >"$log/out.$r" 2>&1 &
        pids="$pids $!"
        r=$((r + 1))
    done
    status=0
    all=
    for p in $pids; do
        wait "$p"
        rc=$?
        all="$all $rc"
        [ "$rc" -gt "$status" ] && status=$rc
    done
}

for n in 1 3; do
    # shellcheck disable=SC2086
    ranks "$n" "$program" checks $some
    good=$(grep -c '^PASS' "$log/out.0")
    if [ "$status" -eq 0 ] && [ "$good" -ge 50 ] && ! grep -q '^FAIL' "$log"/out.*; then
        passed=$((passed + good))
    else
        fail "operations on $n ranks: status$all, $good passed"
    fi
    # an orderly end leaves an empty folder, for the next run
    if [ -z "$(ls -A "$log/store")" ]; then pass; else fail "left over: $(ls -A "$log/store")"; fi
done

ranks 3 "$program" abort 2
if [ "$status" -ne 0 ] && [ "$(cat "$log"/out.* | grep -c "rank 2 on .*: the test's own trouble")" -ge 1 ]; then pass; else fail "one rank aborts: status$all"; fi

ranks 3 "$program" kill 1
if [ "$status" -ne 0 ] && cat "$log"/out.* | grep -q 'rank 1 on .* has ended unexpectedly'; then pass; else fail "a killed rank: status$all"; fi

ranks 3 "$program" differ
if [ "$(cat "$log"/out.* | grep -c 'all ranks must make the same calls')" -ge 2 ]; then pass; else fail "different calls: status$all"; fi

# a folder of another run is told, not taken
mkdir -p "$log/used"
: >"$log/used/rank.0"
if ZEROTRAIN_STORE=$log/used RANK=0 WORLD_SIZE=2 "$program" checks 2>&1 | grep -q 'empty folder'; then pass; else fail "a used folder"; fi
if ZEROTRAIN_STORE=$log/new WORLD_SIZE=2 "$program" checks 2>&1 | grep -q 'RANK and WORLD_SIZE'; then pass; else fail "no RANK"; fi
if ZEROTRAIN_STORE=$log/late ZEROTRAIN_STORE_TIMEOUT=2 RANK=0 WORLD_SIZE=2 timeout 300 "$program" checks 2>&1 | grep -q 'rank 1: nothing came'; then pass; else fail "a rank that does not come"; fi

# What another process may put into the folder: told in words within seconds, never waited for, never believed.
# lie NAME WORDS COMMAND...: rank 0 of two, after COMMAND has made the other rank's files
lie() {
    name=$1
    words=$2
    shift 2
    rm -rf "$log/lie" "$log"/out.*
    mkdir -p "$log/lie"
    (cd "$log/lie" && "$@")
    ZEROTRAIN_STORE=$log/lie ZEROTRAIN_STORE_TIMEOUT=3 RANK=0 WORLD_SIZE=2 timeout -k 5 300 "$program" checks >"$log/out.0" 2>&1
    rc=$?
    if [ "$rc" -lt 124 ] && grep -q "$words" "$log/out.0" && ! grep -q '^PASS' "$log/out.0"; then pass; else fail "$name: exit $rc"; fi
}
# mate RANK WORLD: the file of rank 1, whose process is this shell (st_mate: pid, start, host[256], rank, world)
mate() {
    python3 -c 'import struct, sys; open("rank.1", "wb").write(struct.pack("<qQ256sqq", int(sys.argv[3]), 0, b"elsewhere", int(sys.argv[1]), int(sys.argv[2])))' "$1" "$2" "${3:-1}"
}
# op KIND N BYTES: what rank 1 brings to the first meeting
op() {
    mate 1 2
    python3 -c 'import struct, sys; k, n, b = map(int, sys.argv[1:]); open("op.1.1", "wb").write(struct.pack("<4Q", k, 0, n, 0)[:b] + b"x" * max(0, b - 32))' "$@"
}
# the same call, but nothing after its head
echo_of_rank_0() {
    mate 1 2
    while [ ! -e op.1.0 ]; do sleep 0.05; done && head -c 32 op.1.0 >.t && mv .t op.1.1 &
}
short_mate() {
    printf 'x' >rank.1
}
unread() {
    mate 1 2
    mkfifo op.1.1
}
linked() {
    mate 1 2
    ln -s /dev/zero op.1.1
}
folded() {
    mate 1 2
    mkdir op.1.1
}
gave_up() {
    mate 1 2
    { printf '\033[2J\nmy' && head -c 100000 /dev/zero | tr '\0' 'y'; } >abort
}
lie 'a pipe instead of a rank' 'rank.1' mkfifo rank.1
lie 'a link instead of a rank' 'rank.1' ln -s /dev/zero rank.1
lie 'a rank of one byte' 'rank.1: the file ends too early' short_mate
lie 'a rank of another number' 'rank 1 is one of' mate 7 2
lie 'a rank of another run' 'rank 1 is one of 9000000000000000000 ranks' mate 1 9000000000000000000
lie 'a process of no number' 'nothing came' mate 1 2 -1
lie 'a meeting of one byte' 'op.1.1: the file ends too early' op 1 1 1
lie 'a meeting without its elements' 'file ends too early' echo_of_rank_0
lie 'a meeting that is no call' 'all ranks must make the same calls' op 18446744073709551615 18446744073709551615 32
lie 'a pipe instead of a meeting' 'op.1.1' unread
lie 'a link instead of a meeting' 'op.1.1' linked
lie 'a folder instead of a meeting' 'op.1.1' folded
lie 'a long farewell that would clear the screen' '?\[2J?myyyy' gave_up
for n in 0 -1 2x 65537 99999999999999999999 ''; do
    if ZEROTRAIN_STORE=$log/count RANK=0 WORLD_SIZE=$n timeout 300 "$program" checks 2>&1 | grep -q 'RANK and WORLD_SIZE'; then pass; else fail "WORLD_SIZE='$n'"; fi
done

# a whole run: its losses are those of the same ranks under one process each
S=tests/fixtures/sentiment
cat >"$log/ds.json" <<'JSON'
{"train_batch_size": 16, "optimizer": {"type": "AdamW", "params": {"lr": 1e-3}}, "zero_optimization": {"stage": 2}}
JSON
train() {
    "$@" "$bin/zerotrain" --deepspeed_config "$log/ds.json" --model "$S" --data "$S/train.tsv" --seq 16 --threads 1 --max-steps 3 \
        --quiet --metrics "$log/metrics"
}
ranks 2 "$bin/zerotrain" --deepspeed_config "$log/ds.json" --model "$S" --data "$S/train.tsv" --seq 16 --threads 1 --max-steps 3 \
    --quiet --metrics "$log/metrics"
sed 's/, "seconds.*//' "$log/metrics" >"$log/two" 2>/dev/null
if command -v mpirun >/dev/null 2>&1; then
    OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 train mpirun --oversubscribe --bind-to none -n 2 >"$log/out.0" 2>&1
    sed 's/, "seconds.*//' "$log/metrics" >"$log/mpi"
    if [ "$status" -eq 0 ] && [ "$(wc -l <"$log/two")" -eq 3 ] && cmp -s "$log/two" "$log/mpi"; then pass; else fail "training: status$all"; fi
elif [ "$status" -eq 0 ] && [ "$(wc -l <"$log/two")" -eq 3 ]; then
    pass
else
    fail "training: status$all"
fi
echo "store: $passed passed, $failed failed"
[ "$failed" -eq 0 ]
