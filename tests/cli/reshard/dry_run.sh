# SPDX-License-Identifier: Apache-2.0
# The plan: every file, what will change, what the disk must have; nothing is written.
ckpt reshard -n -w 2 -s 2 "$FIXTURES"/z1_bf16_w3_groups/ckpt out | sed "s/[0-9.]* [KMGT]*B\b/SIZE/g"
ls
