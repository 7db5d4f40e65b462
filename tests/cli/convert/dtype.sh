# SPDX-License-Identifier: Apache-2.0
# In bfloat16.
ckpt convert -q --dtype bf16 "$FIXTURES"/hf_bert_sharded m.safetensors
ckpt ls --include '*pooler*' --include '*.cls.*' --include '*LayerNorm.bias' m.safetensors
ckpt diff -q "$FIXTURES"/hf_bert_sharded m.safetensors | wc -l
ckpt diff --ignore-dtype --tol 0.01 "$FIXTURES"/hf_bert_sharded m.safetensors
