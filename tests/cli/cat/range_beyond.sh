# SPDX-License-Identifier: Apache-2.0
# A range that is not there.
ckpt cat --range 17:2 "$FIXTURES"/safetensors_dtypes/model.safetensors int32
