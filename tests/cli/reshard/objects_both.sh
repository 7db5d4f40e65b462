# SPDX-License-Identifier: Apache-2.0
# One or the other.
ckpt reshard --keep-objects --drop-objects "$FIXTURES"/z1_bf16_w3_groups/ckpt out
