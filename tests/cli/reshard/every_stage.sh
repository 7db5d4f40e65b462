# SPDX-License-Identifier: Apache-2.0
# Every stage becomes every other; weights and moments stay what they are, bit for bit.
for f in z1_bf16_w3_groups z2_bf16_w2_aligned z3_bf16_w5_odd old0126_z2_fp16_w3; do
    for s in 1 2 3; do
        ckpt reshard -q --world 4 --stage $s "$FIXTURES"/$f/ckpt $f.$s || echo "$f $s: $?"
        ckpt verify $f.$s | sed "s/.*: \([0-9]* tensors\),.*/\1/"
        ckpt diff --with-optimizer "$FIXTURES"/$f/ckpt $f.$s
    done
done
