# SPDX-License-Identifier: Apache-2.0
# Another dtype.
ckpt convert -q --dtype bf16 --include '*LayerNorm.weight' "$FIXTURES"/hf_bert_sharded m.safetensors
ckpt diff --include '*LayerNorm.weight' "$FIXTURES"/hf_bert_sharded m.safetensors >out; echo $?; tail -1 out
ckpt diff --ignore-dtype --tol 1e-2 --include '*LayerNorm.weight' "$FIXTURES"/hf_bert_sharded m.safetensors
