# SPDX-License-Identifier: Apache-2.0
# Tied weights.
zero_to_fp32 "$FIXTURES"/old0126_z2_fp16_w3/ckpt out --safe_serialization
ckpt ls out
