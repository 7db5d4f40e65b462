# SPDX-License-Identifier: Apache-2.0
# Shapes that are not known, or contradict; ranks that cannot share; options without effect.
base="--params 1B --layers 8 --hidden 64 --heads 4 --seq-length 10 --gpus 8"
for words in "--params 1B --seq-length 8" "--params 1B --layers 2 --seq-length 8" "$FIXTURES/z1_bf16_w3_groups/ckpt --seq-length 8" \
    "$FIXTURES/hf_bert_sharded --seq-length 8 --layers 4" "--params 1B --micro-batch 2" "--params 1B --heads 2" \
    "--params 1B --flash-attention" "--params 1B --gpus 2 --interleave 2" "$base --tensor-parallel 8" "$base --tensor-parallel 3" \
    "$base --sequence-parallel" "$base --tensor-parallel 4 --sequence-parallel" "$base --pipeline 3" "$base --pipeline 4 --interleave 4" \
    "$base --pipeline 4 --interleave 2 --accumulation 6" "$base --pipeline 2 --stage 2" "$base --pipeline 2 --largest-layer 5" \
    "--params 1B --layers 8 --hidden 64 --heads 4 --seq-length 4294967296" \
    "--params 1B --layers 2000000000 --hidden 2000000000 --heads 1 --seq-length 2000000000"; do
    ckpt mem $words >out
    echo $?
done
