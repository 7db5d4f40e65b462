# SPDX-License-Identifier: Apache-2.0
# What was understood.
ckpt info "$FIXTURES"/z2_bf16_w2_aligned/ckpt
