# What was understood.
ckpt info "$FIXTURES"/hf_bert_sharded
