# SPDX-License-Identifier: Apache-2.0
# What was understood.
ckpt info "$FIXTURES"/hf_bert_sharded
