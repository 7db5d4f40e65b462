# SPDX-License-Identifier: Apache-2.0
# A path that does not exist.
ckpt diff "$FIXTURES"/hf_bert_sharded nowhere
