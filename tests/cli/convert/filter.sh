# SPDX-License-Identifier: Apache-2.0
# Some names only.
ckpt convert --include '*attention*' --exclude '*.bias' "$FIXTURES"/hf_bert_sharded m.pt
ckpt ls -q m.pt
