# SPDX-License-Identifier: Apache-2.0
# The first thousand of more, and all.
ckpt cat "$FIXTURES"/hf_bert_sharded bert.embeddings.word_embeddings.weight | tail -2
ckpt cat --all -q "$FIXTURES"/hf_bert_sharded bert.embeddings.word_embeddings.weight | wc -l
