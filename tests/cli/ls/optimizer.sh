# SPDX-License-Identifier: Apache-2.0
# Optimizer state as tensors.
ckpt ls --all -q "$FIXTURES"/z1_bf16_w3_groups/ckpt
