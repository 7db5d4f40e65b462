# Exact sizes.
ckpt ls --bytes --include '*.weight' "$FIXTURES"/hf_bert_sharded
