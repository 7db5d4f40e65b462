# SPDX-License-Identifier: Apache-2.0
# A tag that is there is replaced only when asked for, and never by what is made of it.
ckpt reshard -q -w 2 "$FIXTURES"/z1_bf16_w3_groups/ckpt run
ckpt reshard -q -w 4 "$FIXTURES"/z1_bf16_w3_groups/ckpt run; echo $?
ls run/*
ckpt reshard -q -f -w 1 "$FIXTURES"/z1_bf16_w3_groups/ckpt run; echo $?
ls run/*
ckpt reshard -q -f -w 3 run run; echo $?
ls run/*
