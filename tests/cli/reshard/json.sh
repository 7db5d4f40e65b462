# SPDX-License-Identifier: Apache-2.0
# The report for programs.
ckpt reshard --json -w 2 -s 3 "$FIXTURES"/z1_bf16_w3_groups/ckpt out | sed "s/\(\"bytes[a-z_]*\"\): [0-9]*/\1: N/"
