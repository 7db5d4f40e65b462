# SPDX-License-Identifier: Apache-2.0
# With optimizer state.
ckpt convert -q --with-optimizer "$FIXTURES"/z2_bf16_w2_aligned/ckpt m.safetensors
ckpt ls -q m.safetensors
