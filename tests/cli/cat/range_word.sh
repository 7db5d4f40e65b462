# SPDX-License-Identifier: Apache-2.0
# A range is two numbers.
ckpt cat --range 1-2 "$FIXTURES"/safetensors_dtypes/model.safetensors int32
