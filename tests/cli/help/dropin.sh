# SPDX-License-Identifier: Apache-2.0
# A drop-in by its own name, with .py and as a verb shows the same help.
zero_to_fp32 --help >a
ln -s "$CKPT/ckpt" zero_to_fp32.py
./zero_to_fp32.py --help >b
ckpt zero_to_fp32 --help >c
cmp a b && cmp a c && cat a
