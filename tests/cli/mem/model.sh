# SPDX-License-Identifier: Apache-2.0
# A model folder, a ZeRO run and its weights alone: the same counts, tied weights once.
ckpt mem "$FIXTURES"/hf_bert_sharded
for p in hf_trainer_llama_z3_bf16_w2/ckpt hf_trainer_llama_z3_bf16_w2/ckpt/model.safetensors z1_bf16_w3_groups/ckpt; do
    ckpt mem --json "$FIXTURES"/$p | grep -e params -e largest
done
