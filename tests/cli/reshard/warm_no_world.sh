# SPDX-License-Identifier: Apache-2.0
# Weights alone say neither stage nor world size.
ckpt reshard -q --stage 2 "$FIXTURES"/hf_bert_sharded out
