# SPDX-License-Identifier: Apache-2.0
# Optimizer state by its name.
ckpt cat "$FIXTURES"/z2_bf16_w2_aligned/ckpt exp_avg/bn.weight --range 0:4
ckpt cat "$FIXTURES"/z2_bf16_w2_aligned/ckpt exp_avg_sq/conv.weight --stats
