#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The main job on a real checkpoint: a transformers Trainer folder with DeepSpeed ZeRO-3 shards becomes weights that load anywhere.
#
#   demo.sh BUILD_FOLDER
set -eu
bin=$1/bin
out=$1/demo
ckpt=tests/fixtures/hf_trainer_llama_z3_bf16_w2/ckpt
rm -rf "$out"
mkdir -p "$out"

show() {
    printf '\n$ %s\n' "$*"
    "$@"
}

echo "A small Llama, trained with DeepSpeed ZeRO-3 by two ranks; its checkpoint folder:"
(cd "$ckpt" && find . -type f | sort | sed 's|^\./|    |')
show "$bin/ckpt" info "$ckpt"
show "$bin/zero_to_fp32" "$ckpt" "$out/fp32" --safe_serialization
show "$bin/ckpt" convert "$ckpt" "$out/bf16" --to hf --dtype bf16
show "$bin/ckpt" verify "$ckpt"
show "$bin/ckpt" diff "$out/fp32" "$ckpt"
show "$bin/ckpt" ls "$out/bf16"
echo
echo "One bit of a shard flipped, as a bad disk would:"
cp -r "$ckpt" "$out/rotten"
chmod -R u+w "$out/rotten"
shard=$out/rotten/global_step4/bf16_zero_pp_rank_1_mp_rank_00_optim_states.pt
# byte 20000 lies in the fp32 weights of rank 1
byte=$(od -An -tu1 -j20000 -N1 "$shard" | tr -d ' ')
printf "$(printf '\\%03o' $((byte ^ 1)))" | dd of="$shard" bs=1 seek=20000 conv=notrunc 2>/dev/null
printf '\n$ %s\n' "$bin/zero_to_fp32 $out/rotten $out/wrong"
if "$bin/zero_to_fp32" "$out/rotten" "$out/wrong"; then
    echo "the damage went unnoticed" >&2
    exit 1
fi
[ ! -e "$out/wrong" ] && echo "(exit status 3, nothing written)"

echo
echo "Training: a classifier of Chinese sentences in six classes, ZeRO-3 on two ranks, a checkpoint every 40 updates; killed after the 85th:"
data=tests/fixtures/sentiment
run=$out/sentiment
# mpirun refuses to run as root, and more ranks than processors, unless told otherwise
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
mpirun="mpirun --oversubscribe --bind-to none"
args="--deepspeed_config $data/ds_config.json --model $data --vocab $data/vocab.txt --seq 40 --threads 1"
printf '\n$ %s\n' "$mpirun -n 2 zerotrain $args --data $data/train.tsv --dropout --max-steps 120 --save-every 40 --save $run"
# shellcheck disable=SC2086
$mpirun -n 2 "$bin/zerotrain" $args --data $data/train.tsv --dropout --max-steps 120 --save-every 40 --save "$run" \
    --metrics "$out/metrics.jsonl" 2>"$out/train.log" &
pid=$!
while ! grep -q '"step": 85,' "$out/metrics.jsonl" 2>/dev/null && kill -0 $pid 2>/dev/null; do
    sleep 0.05
done
pkill -9 -P $pid || true
wait $pid || true
grep -a '^step\|^Bert' "$out/train.log"
echo "(killed with SIGKILL)"
show "$bin/ckpt" doctor "$run"
printf '\n$ %s\n' "$mpirun -n 3 zerotrain $args --data $data/train.tsv --dropout --max-steps 120 --load $run --save $run"
# shellcheck disable=SC2086
$mpirun -n 3 "$bin/zerotrain" $args --data $data/train.tsv --dropout --max-steps 120 --load "$run" --save "$run" 2>&1
show "$bin/zero_to_fp32" "$run" "$out/classifier" --safe_serialization
# shellcheck disable=SC2086
show "$bin/zerotrain" $args --init "$out/classifier" --eval-data $data/eval.tsv --evaluate --quiet
