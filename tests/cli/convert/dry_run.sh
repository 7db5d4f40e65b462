# SPDX-License-Identifier: Apache-2.0
# The plan; nothing is written.
ckpt convert -n "$FIXTURES"/z1_bf16_w3_groups/ckpt out --to hf --max-shard-size 4KB --memory 64MiB
ls
