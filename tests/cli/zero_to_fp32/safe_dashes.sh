# SPDX-License-Identifier: Apache-2.0
# The same with dashes.
zero_to_fp32 -q "$FIXTURES"/z1_bf16_w3_groups/ckpt out --safe-serialization --max-shard-size=4KB
ls out
