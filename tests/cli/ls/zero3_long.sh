# SPDX-License-Identifier: Apache-2.0
# Where the pieces are.
ckpt ls -l "$FIXTURES"/z3_bf16_w5_odd/ckpt
