# SPDX-License-Identifier: Apache-2.0
# A caller that closed stdin and stderr: no output takes their numbers, for our messages would go into it.
ckpt convert -q "$FIXTURES"/safetensors_dtypes/model.safetensors m.safetensors --rename /dev/fd/0 <&- 2>&-; echo $?
ckpt convert -q "$FIXTURES"/safetensors_dtypes/model.safetensors n.safetensors --rename /dev/fd/2 <&- 2>&-; echo $?
cmp m.safetensors n.safetensors && echo same
# Lost output still is an error.
ckpt ls m.safetensors >&-; echo $?
