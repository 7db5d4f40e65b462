# SPDX-License-Identifier: Apache-2.0
# No axes, and no elements.
ckpt cat "$FIXTURES"/safetensors_dtypes/model.safetensors scalar
ckpt cat "$FIXTURES"/safetensors_dtypes/model.safetensors empty
ckpt cat -q "$FIXTURES"/safetensors_dtypes/model.safetensors scalar
ckpt cat --stats "$FIXTURES"/safetensors_dtypes/model.safetensors empty
