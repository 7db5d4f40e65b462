# SPDX-License-Identifier: Apache-2.0
# No run has no rank.
ckpt reshard --world 0 "$FIXTURES"/z1_bf16_w3_groups/ckpt out
