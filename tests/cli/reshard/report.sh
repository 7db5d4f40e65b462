# SPDX-License-Identifier: Apache-2.0
# What was proved, and what was changed.
ckpt reshard -w 2 -s 3 "$FIXTURES"/z1_bf16_w3_groups/ckpt out
cat out/latest
echo
ls out out/*
