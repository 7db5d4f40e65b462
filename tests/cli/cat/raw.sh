# SPDX-License-Identifier: Apache-2.0
# Bytes, as they are and converted.
ckpt cat --raw "$FIXTURES"/safetensors_dtypes/model.safetensors int16 | od -An -v -tx1
ckpt cat --raw --dtype bf16 --range 0:3 "$FIXTURES"/safetensors_dtypes/model.safetensors float32 | od -An -v -tx1
