# SPDX-License-Identifier: Apache-2.0
# The tensors of a model folder in three files.
ckpt ls "$FIXTURES"/hf_bert_sharded
