# SPDX-License-Identifier: Apache-2.0
# What was understood.
ckpt info "$FIXTURES"/old_hf_bert_bin
