# SPDX-License-Identifier: Apache-2.0
# ZeRO stage 2 to a torch file.
ckpt convert "$FIXTURES"/z2_bf16_w2_aligned/ckpt m.pt
ls
ckpt diff "$FIXTURES"/z2_bf16_w2_aligned/ckpt m.pt
