# SPDX-License-Identifier: Apache-2.0
# Tensor parallel ranks and pipelines: states, activations, what travels, idle shares.
gpt3="--params 175B --layers 96 --hidden 12288 --heads 96 --seq-length 2048 --gpus 8"
ckpt mem $gpt3 --nodes 16 --tensor-parallel 8 --pipeline 8 --accumulation 64 --link 300 --node-link 25
ckpt mem $gpt3 --nodes 16 --tensor-parallel 8 --pipeline 8 --accumulation 64 --interleave 3 --sequence-parallel --json | sed -n '/"ranks"/,$p'
ckpt mem --params 175B --gpus 8 --tensor-parallel 8 | tail -n 7
