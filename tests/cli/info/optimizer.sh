# SPDX-License-Identifier: Apache-2.0
# Optimizer state counts when asked for.
ckpt info -a "$FIXTURES"/z2_bf16_w2_aligned/ckpt
