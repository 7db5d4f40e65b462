# SPDX-License-Identifier: Apache-2.0
# Values that are compared by bits are told apart one by one, and have no distance.
cp "$FIXTURES"/safetensors_dtypes/model.safetensors m.safetensors
chmod u+w m.safetensors
# the last byte of "float4_e2m1fn_x2" (two elements) and the last of "int8"
printf '\377' | dd of=m.safetensors bs=1 seek=2613 conv=notrunc 2>/dev/null
printf '\125' | dd of=m.safetensors bs=1 seek=2583 conv=notrunc 2>/dev/null
ckpt diff "$FIXTURES"/safetensors_dtypes/model.safetensors m.safetensors
ckpt diff --include int8 --json "$FIXTURES"/safetensors_dtypes/model.safetensors m.safetensors
