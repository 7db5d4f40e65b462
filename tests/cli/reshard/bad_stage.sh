# SPDX-License-Identifier: Apache-2.0
# There are three stages.
ckpt reshard --stage 4 "$FIXTURES"/z1_bf16_w3_groups/ckpt out
