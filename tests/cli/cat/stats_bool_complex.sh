# SPDX-License-Identifier: Apache-2.0
# Statistics need real numbers.
ckpt cat --stats "$FIXTURES"/safetensors_dtypes/model.safetensors complex64
