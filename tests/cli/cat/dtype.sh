# SPDX-License-Identifier: Apache-2.0
# Converted first.
ckpt cat --dtype fp16 "$FIXTURES"/safetensors_dtypes/model.safetensors float32
ckpt cat --dtype fp32 "$FIXTURES"/safetensors_dtypes/model.safetensors bfloat16
