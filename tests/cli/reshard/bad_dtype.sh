# SPDX-License-Identifier: Apache-2.0
# No run trains in float64.
ckpt reshard --dtype fp64 "$FIXTURES"/z1_bf16_w3_groups/ckpt out
