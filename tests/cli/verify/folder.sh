# A sound checkpoint.
ckpt verify "$FIXTURES"/hf_bert_sharded
