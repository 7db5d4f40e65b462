# SPDX-License-Identifier: Apache-2.0
# Weights have no order to keep.
ckpt convert --to hf --order stored "$FIXTURES"/z1_bf16_w3_groups/ckpt out
