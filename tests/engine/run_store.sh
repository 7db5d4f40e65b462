#!/bin/sh
# Processes that meet in a folder, without a launcher: run_store.sh FOLDER_OF_TEST_PROGRAMS FOLDER_OF_PROGRAMS
# Prints what failed and one closing line.
set -u
program=${1:-build/engine}/comm_mpi
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
            timeout -k 5 120 "$@" >"$log/out.$r" 2>&1 &
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
    ranks "$n" "$program" checks
    good=$(grep -c '^PASS' "$log/out.0")
    if [ "$status" -eq 0 ] && [ "$good" -ge 100 ] && ! grep -q '^FAIL' "$log"/out.*; then
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
if ZEROTRAIN_STORE=$log/late ZEROTRAIN_STORE_TIMEOUT=2 RANK=0 WORLD_SIZE=2 timeout 20 "$program" checks 2>&1 | grep -q 'rank 1: nothing came'; then pass; else fail "a rank that does not come"; fi

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
