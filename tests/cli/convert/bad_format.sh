# SPDX-License-Identifier: Apache-2.0
# A format that is none.
ckpt convert -q "$FIXTURES"/z3_bf16_w5_odd/ckpt out --to torch-legacy
