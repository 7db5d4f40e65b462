# SPDX-License-Identifier: Apache-2.0
# Of many files, each kind is one line.
ckpt reshard -nq --world 20 --stage 3 "$FIXTURES"/z1_bf16_w3_groups/ckpt out | sed "s/[0-9.]* [KMGT]*B\b/SIZE/g"
