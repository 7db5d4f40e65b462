# SPDX-License-Identifier: Apache-2.0
# An earlier output is replaced; what it leaves over is named.
zero_to_fp32 -q "$FIXTURES"/z1_bf16_w3_groups/ckpt out --max_shard_size 4KB
zero_to_fp32 -q "$FIXTURES"/z1_bf16_w3_groups/ckpt out
ls out
