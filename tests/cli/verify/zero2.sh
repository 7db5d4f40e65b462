# SPDX-License-Identifier: Apache-2.0
# A sound checkpoint.
ckpt verify "$FIXTURES"/z2_bf16_w2_aligned/ckpt
