# SPDX-License-Identifier: Apache-2.0
# The same as .bin files.
ckpt convert "$FIXTURES"/z1_bf16_w3_groups/ckpt out --to hf-bin --max_shard_size 4KB
ls out
ckpt diff out "$FIXTURES"/z1_bf16_w3_groups/ckpt
