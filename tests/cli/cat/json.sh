# SPDX-License-Identifier: Apache-2.0
# JSON.
ckpt cat --json "$FIXTURES"/safetensors_dtypes/model.safetensors float16
ckpt cat --json --range 0:2 "$FIXTURES"/safetensors_dtypes/model.safetensors complex64
ckpt cat --json --range 0:2 "$FIXTURES"/safetensors_dtypes/model.safetensors bool
