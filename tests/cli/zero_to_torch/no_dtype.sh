# SPDX-License-Identifier: Apache-2.0
# The dtype is required.
zero_to_torch "$FIXTURES"/z3_bf16_w5_odd/ckpt out
