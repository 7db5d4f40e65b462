# SPDX-License-Identifier: Apache-2.0
# Exact sizes.
ckpt ls --bytes --include '*.weight' "$FIXTURES"/hf_bert_sharded
