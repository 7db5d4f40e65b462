# SPDX-License-Identifier: Apache-2.0
# The same folder, and another format of it.
ckpt diff "$FIXTURES"/hf_bert_sharded "$FIXTURES"/hf_bert_sharded
ckpt convert -q "$FIXTURES"/hf_bert_sharded m.pt
ckpt diff "$FIXTURES"/hf_bert_sharded m.pt
