# SPDX-License-Identifier: Apache-2.0
# Two ways at once.
ckpt cat --raw --json "$FIXTURES"/safetensors_dtypes/model.safetensors int16
