# SPDX-License-Identifier: Apache-2.0
# The source is not overwritten, even with --force.
cp "$FIXTURES"/safetensors_dtypes/model.safetensors m.safetensors
ckpt convert -q --force m.safetensors m.safetensors; echo $?
cmp "$FIXTURES"/safetensors_dtypes/model.safetensors m.safetensors && echo kept
