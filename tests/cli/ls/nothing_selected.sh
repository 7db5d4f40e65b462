# SPDX-License-Identifier: Apache-2.0
# A filter that nothing passes.
ckpt ls --include 'nosuch*' "$FIXTURES"/hf_bert_sharded
