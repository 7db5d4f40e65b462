# SPDX-License-Identifier: Apache-2.0
# A checkpoint has its order.
echo out.weight > names
ckpt reshard -q -w 2 --order names "$FIXTURES"/z1_bf16_w3_groups/ckpt out
