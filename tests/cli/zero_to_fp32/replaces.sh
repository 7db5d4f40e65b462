# SPDX-License-Identifier: Apache-2.0
# An earlier output is replaced with all of its shards; what is of the other kind stays, and is named where loaders prefer it.
zero_to_fp32 -q "$FIXTURES"/z1_bf16_w3_groups/ckpt out --max_shard_size 4KB
zero_to_fp32 -q "$FIXTURES"/z1_bf16_w3_groups/ckpt out
ls out
echo other >out/model.safetensors
zero_to_fp32 -q "$FIXTURES"/z1_bf16_w3_groups/ckpt out
ls out
