# SPDX-License-Identifier: Apache-2.0
# Nothing to say.
ckpt verify -q "$FIXTURES"/z3_bf16_w5_odd/ckpt
