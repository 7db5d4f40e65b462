# SPDX-License-Identifier: Apache-2.0
# Parameters cut over five ranks are whole.
ckpt ls "$FIXTURES"/z3_bf16_w5_odd/ckpt
