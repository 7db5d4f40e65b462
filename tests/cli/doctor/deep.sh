# SPDX-License-Identifier: Apache-2.0
# Everything is read.
ckpt doctor --deep "$FIXTURES"/z1_bf16_w2_tags/ckpt
