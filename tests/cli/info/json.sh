# SPDX-License-Identifier: Apache-2.0
# JSON.
ckpt info --json "$FIXTURES"/z3_bf16_w5_odd/ckpt
