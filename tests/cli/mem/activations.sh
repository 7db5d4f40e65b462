# SPDX-License-Identifier: Apache-2.0
# Activations of a model by its config.json, of a run by its shapes, of a number by options; two kinds of attention.
lines() { sed -n '/^Activations/,/^$/p'; }
ckpt mem "$FIXTURES"/hf_bert_sharded --seq-length 128 | lines
ckpt mem "$FIXTURES"/z1_bf16_w3_groups/ckpt --seq-length 128 --heads 2 | lines
ckpt mem --params 175B --layers 96 --hidden 12288 --heads 96 --seq-length 2048 --flash-attention --micro-batch 2 | lines
ckpt mem --params 175B --layers 96 --hidden 12288 --heads 96 --seq-length 2048 --json --dtype fp32 | sed -n '/"activations"/,$p'
