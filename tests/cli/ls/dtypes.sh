# SPDX-License-Identifier: Apache-2.0
# Every dtype safetensors has.
ckpt ls "$FIXTURES"/safetensors_dtypes/model.safetensors
