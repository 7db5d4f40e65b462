# SPDX-License-Identifier: Apache-2.0
# Configuration goes along, unless it is not wanted.
ckpt convert -q "$FIXTURES"/hf_bert_sharded a --to hf
ls a
ckpt convert -q --no-side-files "$FIXTURES"/hf_bert_sharded b --to hf
ls b
