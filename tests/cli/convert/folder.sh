# SPDX-License-Identifier: Apache-2.0
# A model folder in several files, with its index.
ckpt convert "$FIXTURES"/z1_bf16_w3_groups/ckpt out --to hf --max-shard-size 4KB
ls out
cat out/model.safetensors.index.json
