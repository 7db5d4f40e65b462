# SPDX-License-Identifier: Apache-2.0
# What travels in an update: one node, several, GPUs alone, times, widths of elements.
lines() { sed -n '/^Data that/,$p'; }
ckpt mem --params 7B --gpus 8 | lines
ckpt mem --params 7e9 --gpus 8 --nodes 4 --link 400 --node-link 50 --accumulation 4 | lines
ckpt mem --params 7000000000 --nodes 4 --node-link 12.5 --dtype fp32 | lines
ckpt mem --params 1.5e9 --num-gpus 2 --dtype bf16 --comm-dtype fp32 | lines
ckpt mem --params 350M | tail -n 2
