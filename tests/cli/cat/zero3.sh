# SPDX-License-Identifier: Apache-2.0
# A parameter cut over ranks, and a tied one.
ckpt cat "$FIXTURES"/z3_bf16_w5_odd/ckpt bn.weight
ckpt cat "$FIXTURES"/z3_bf16_w5_odd/ckpt out.weight --range 0:3
