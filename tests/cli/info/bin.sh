# What was understood.
ckpt info "$FIXTURES"/old_hf_bert_bin
