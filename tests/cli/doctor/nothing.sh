# SPDX-License-Identifier: Apache-2.0
# Folders that are no runs.
mkdir empty
ckpt doctor empty; echo $?
ckpt doctor --json nowhere; echo $?
ckpt doctor "$FIXTURES"/z1_bf16_w2_tags/ckpt/latest; echo $?
ckpt doctor "$FIXTURES"/hf_bert_sharded; echo $?
