# SPDX-License-Identifier: Apache-2.0
# ZeRO stage 3 to one file; the format is in the name.
ckpt convert "$FIXTURES"/z3_bf16_w5_odd/ckpt m.safetensors
ls
ckpt ls m.safetensors
