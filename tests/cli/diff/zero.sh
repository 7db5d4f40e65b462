# SPDX-License-Identifier: Apache-2.0
# A checkpoint and what was made of it.
ckpt convert -q "$FIXTURES"/z3_bf16_w5_odd/ckpt m.safetensors
ckpt diff "$FIXTURES"/z3_bf16_w5_odd/ckpt m.safetensors
