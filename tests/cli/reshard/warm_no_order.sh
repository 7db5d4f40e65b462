# SPDX-License-Identifier: Apache-2.0
# safetensors sorts its names, and no config.json says which model this is.
ckpt reshard -q -w 2 -s 2 "$FIXTURES"/safetensors_dtypes/model.safetensors out; echo $?
ls
