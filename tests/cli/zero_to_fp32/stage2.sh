# SPDX-License-Identifier: Apache-2.0
# Stage 2.
zero_to_fp32 "$FIXTURES"/z2_bf16_w2_aligned/ckpt out -q
ls out
ckpt diff out "$FIXTURES"/z2_bf16_w2_aligned/ckpt
