# SPDX-License-Identifier: Apache-2.0
# Training state is written whole.
ckpt convert --to universal --include "*.weight" "$FIXTURES"/z1_bf16_w3_groups/ckpt out
