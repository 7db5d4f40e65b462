# A filter that nothing passes.
ckpt ls --include 'nosuch*' "$FIXTURES"/hf_bert_sharded
