#!/bin/sh
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
