# SPDX-License-Identifier: Apache-2.0
# Names only.
ckpt ls -q --include '*LayerNorm*' --exclude '*.bias' "$FIXTURES"/hf_bert_sharded
