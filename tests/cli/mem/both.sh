# A model and a number.
ckpt mem --params 10 "$FIXTURES"/hf_bert_sharded
