# SPDX-License-Identifier: Apache-2.0
# A universal checkpoint, and ZeRO checkpoints of every shape made from it: every weight and moment stays what it is.
ckpt convert -q --to universal "$FIXTURES"/z1_bf16_w3_groups/ckpt run
ls run
ckpt diff --with-optimizer "$FIXTURES"/z1_bf16_w3_groups/ckpt run
for s in 1 2 3; do
    ckpt reshard -q -w 2 -s $s run back$s
    ckpt verify -q back$s
    ckpt diff --with-optimizer "$FIXTURES"/z1_bf16_w3_groups/ckpt back$s
done
ckpt convert -q --to universal back3 again
for s in 1 3; do
    ckpt reshard -q -w 3 -s $s again last$s
    ckpt diff --with-optimizer back1 last$s
done
