# SPDX-License-Identifier: Apache-2.0
# The plan for programs.
ckpt reshard -nq --json -w 2 "$FIXTURES"/z1_bf16_w3_groups/ckpt out | sed "s/\(\"bytes[a-z_]*\"\): [0-9]*/\1: N/"
