# SPDX-License-Identifier: Apache-2.0
# A sound checkpoint.
ckpt verify "$FIXTURES"/z3_bf16_w5_odd/ckpt
