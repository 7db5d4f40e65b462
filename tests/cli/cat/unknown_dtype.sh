# SPDX-License-Identifier: Apache-2.0
# A dtype that is none.
ckpt cat --dtype float12 "$FIXTURES"/safetensors_dtypes/model.safetensors int16
