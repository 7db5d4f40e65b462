# SPDX-License-Identifier: Apache-2.0
# The list is not there.
ckpt reshard --order names "$FIXTURES"/hf_bert_sharded out
