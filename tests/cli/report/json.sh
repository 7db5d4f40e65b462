# SPDX-License-Identifier: Apache-2.0
# What was written, as JSON.
ckpt report --json "$FIXTURES"/z3_bf16_w5_odd/ckpt -o a.html | sed 's/"bytes": [0-9]*/"bytes": N/'
