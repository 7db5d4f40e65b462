# SPDX-License-Identifier: Apache-2.0
# Another precision: the 16-bit copies are made anew from the masters.
ckpt reshard -q --dtype fp16 "$FIXTURES"/z1_bf16_w3_groups/ckpt run
ls run/*
ckpt verify run | sed "s/ok: [0-9.]* KB/ok: SIZE/"
ckpt diff --with-optimizer "$FIXTURES"/z1_bf16_w3_groups/ckpt run
