# SPDX-License-Identifier: Apache-2.0
# Folders of other things are no targets.
: >out
ckpt reshard -q -w 2 "$FIXTURES"/z1_bf16_w3_groups/ckpt out
