# SPDX-License-Identifier: Apache-2.0
# A tensor is needed.
ckpt cat "$FIXTURES"/safetensors_dtypes/model.safetensors
