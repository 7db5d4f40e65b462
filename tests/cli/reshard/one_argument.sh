# SPDX-License-Identifier: Apache-2.0
# A target is needed.
ckpt reshard "$FIXTURES"/z1_bf16_w3_groups/ckpt
