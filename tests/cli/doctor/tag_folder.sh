# SPDX-License-Identifier: Apache-2.0
# One tag alone.
ckpt doctor "$FIXTURES"/z1_bf16_w2_tags/ckpt/first
