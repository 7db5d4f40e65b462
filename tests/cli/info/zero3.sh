# SPDX-License-Identifier: Apache-2.0
# What was understood.
ckpt info "$FIXTURES"/z3_bf16_w5_odd/ckpt
