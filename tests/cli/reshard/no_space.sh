# SPDX-License-Identifier: Apache-2.0
# No room: the folder that is there stays, and nothing half-written takes its name.
ckpt reshard -q -w 2 "$FIXTURES"/z1_bf16_w3_groups/ckpt out
(
    ulimit -f 8
    ckpt reshard -q -w 4 -f "$FIXTURES"/z1_bf16_w3_groups/ckpt out 2>message
    echo $?
)
sed "s/reserve [0-9]*/reserve N/" message
ls out/*
ckpt verify -q out && echo whole
