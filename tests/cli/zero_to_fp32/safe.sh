# SPDX-License-Identifier: Apache-2.0
# safetensors, in several files.
zero_to_fp32 "$FIXTURES"/z1_bf16_w3_groups/ckpt out --safe_serialization --max_shard_size 4KB
ls out
