# SPDX-License-Identifier: Apache-2.0
# A model and a number.
ckpt mem --params 10 "$FIXTURES"/hf_bert_sharded
