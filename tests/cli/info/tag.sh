# SPDX-License-Identifier: Apache-2.0
# Another tag than the latest.
ckpt info "$FIXTURES"/z1_bf16_w2_tags/ckpt | grep -i tag
ckpt info --tag nosuchtag "$FIXTURES"/z1_bf16_w2_tags/ckpt
