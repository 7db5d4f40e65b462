# A universal checkpoint, and a ZeRO checkpoint of another shape made from it: every weight and moment stays what it is.
ckpt convert -q --to universal "$FIXTURES"/z1_bf16_w3_groups/ckpt run
ls run
ckpt diff --with-optimizer "$FIXTURES"/z1_bf16_w3_groups/ckpt run
ckpt reshard -q -w 2 -s 3 run back
ckpt diff --with-optimizer "$FIXTURES"/z1_bf16_w3_groups/ckpt back
