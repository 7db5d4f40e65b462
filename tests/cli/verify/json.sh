# SPDX-License-Identifier: Apache-2.0
# JSON.
ckpt verify --json "$FIXTURES"/z2_bf16_w2_aligned/ckpt
