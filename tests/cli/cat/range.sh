# SPDX-License-Identifier: Apache-2.0
# A part, flat.
ckpt cat --range 4:3 "$FIXTURES"/safetensors_dtypes/model.safetensors int32
ckpt cat -q --range 16: "$FIXTURES"/safetensors_dtypes/model.safetensors int32
ckpt cat -q --range :2 "$FIXTURES"/safetensors_dtypes/model.safetensors int32
