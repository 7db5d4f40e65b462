# SPDX-License-Identifier: Apache-2.0
# Statistics.
ckpt cat --stats "$FIXTURES"/safetensors_dtypes/model.safetensors float32
ckpt cat --stats "$FIXTURES"/safetensors_dtypes/model.safetensors uint8
ckpt cat --stats --json "$FIXTURES"/safetensors_dtypes/model.safetensors bfloat16
