# SPDX-License-Identifier: Apache-2.0
# What is not finite is counted, said, and written as it is.
# two floats: NaN and infinity
header='{"w":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}'
{ printf '\066\0\0\0\0\0\0\0'; printf '%s' "$header"; printf '\0\0\300\177\0\0\200\177'; } >t.safetensors
ckpt convert t.safetensors m.pt
ckpt cat m.pt w
ckpt cat --stats m.pt w
ckpt cat --json m.pt w
ckpt verify t.safetensors
