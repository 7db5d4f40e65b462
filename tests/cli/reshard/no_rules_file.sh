# SPDX-License-Identifier: Apache-2.0
# The rules are not there.
ckpt reshard --slice-rules rules "$FIXTURES"/z1_bf16_w3_groups/ckpt out
