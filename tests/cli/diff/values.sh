# SPDX-License-Identifier: Apache-2.0
# One element.
cp "$FIXTURES"/safetensors_dtypes/model.safetensors m.safetensors
chmod u+w m.safetensors
# the second element of "float32" (offset 2144 + 4) becomes 0
printf '\000\000\000\000' | dd of=m.safetensors bs=1 seek=2148 conv=notrunc 2>/dev/null
ckpt diff "$FIXTURES"/safetensors_dtypes/model.safetensors m.safetensors; echo $?
ckpt diff --tol 30 "$FIXTURES"/safetensors_dtypes/model.safetensors m.safetensors
ckpt diff --json "$FIXTURES"/safetensors_dtypes/model.safetensors m.safetensors
