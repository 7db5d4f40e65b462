# SPDX-License-Identifier: Apache-2.0
# A name cannot drive the terminal.
# one tensor of one byte, named ESC [ 2 J
header='{"\u001b[2J":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}'
# 61 bytes of header, 8 of length in front, one of data
printf '\075\000\000\000\000\000\000\000' >t.safetensors
printf '%s' "$header" >>t.safetensors
printf 'x' >>t.safetensors
ckpt ls t.safetensors
ckpt ls -q t.safetensors
ckpt ls --json t.safetensors
