# SPDX-License-Identifier: Apache-2.0
# A sound checkpoint.
ckpt verify "$FIXTURES"/hf_bert_sharded
