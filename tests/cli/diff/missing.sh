# A path that does not exist.
ckpt diff "$FIXTURES"/hf_bert_sharded nowhere
