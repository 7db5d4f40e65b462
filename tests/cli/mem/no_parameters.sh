# SPDX-License-Identifier: Apache-2.0
# A file without parameters.
printf "\2\0\0\0\0\0\0\0{}" >empty.safetensors
ckpt mem empty.safetensors
