# SPDX-License-Identifier: Apache-2.0
# A name that says nothing.
ckpt convert "$FIXTURES"/z3_bf16_w5_odd/ckpt out
