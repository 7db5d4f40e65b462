# SPDX-License-Identifier: Apache-2.0
# Roles and places.
ckpt ls -l "$FIXTURES"/safetensors_dtypes/model.safetensors
