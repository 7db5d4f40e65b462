# SPDX-License-Identifier: Apache-2.0
# A name that is not there.
printf "bert.pooler.dense.weight\nnothing\n" >names
ckpt reshard -q -w 2 -s 2 --order names "$FIXTURES"/hf_bert_sharded run
