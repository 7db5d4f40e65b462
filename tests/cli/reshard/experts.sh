# SPDX-License-Identifier: Apache-2.0
# A mixture of experts through FSDP and back: each expert is a parameter, its file is made again.
for form in dcp fsdp-ranks; do
    ckpt reshard -q --to $form --world 3 --to-tag x "$FIXTURES/moe_ep2_z2_w2/ckpt" $form
    ckpt reshard -q --world 4 --stage 1 $form/x zero-$form
    ls zero-$form/*
    ckpt diff -q --with-optimizer "$FIXTURES/moe_ep2_z2_w2/ckpt" zero-$form && echo same
    ckpt verify -q zero-$form && echo sound
done
ckpt reshard -q --world 3 dcp/x odd || echo "status $?"
ckpt reshard -q --world 2 --stage 3 dcp/x odd || echo "status $?"
# without ZeRO every expert-parallel rank has files of its own
ckpt reshard -q --to dcp --to-tag x "$FIXTURES/moe_ep2_z0_w2/ckpt" from0
ckpt reshard -q --world 2 --stage 2 from0/x zero-from0
ckpt diff -q --with-optimizer "$FIXTURES/moe_ep2_z0_w2/ckpt" zero-from0 && echo same
