# SPDX-License-Identifier: Apache-2.0
# A run of three tags, the oldest first; `latest` names the second.
ckpt doctor "$FIXTURES"/z1_bf16_w2_tags/ckpt
