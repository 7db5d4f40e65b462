# SPDX-License-Identifier: Apache-2.0
# The document.
ckpt doctor --json "$FIXTURES"/z3_bf16_w5_odd/ckpt
