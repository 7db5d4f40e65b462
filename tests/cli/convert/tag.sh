# SPDX-License-Identifier: Apache-2.0
# Another tag.
ckpt convert -q --tag nosuch "$FIXTURES"/z1_bf16_w2_tags/ckpt m.pt
