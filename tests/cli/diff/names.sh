# SPDX-License-Identifier: Apache-2.0
# Names on one side only.
ckpt convert -q --exclude '*LayerNorm*' "$FIXTURES"/hf_bert_sharded a.pt
ckpt convert -q --exclude '*.bias' "$FIXTURES"/hf_bert_sharded b.pt
ckpt diff a.pt b.pt | tail -4
ckpt diff -q a.pt b.pt >names; echo $?; wc -l <names
