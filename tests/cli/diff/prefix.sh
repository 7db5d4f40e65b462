# SPDX-License-Identifier: Apache-2.0
# A model with a head has its base model's names under a prefix; PEFT has another one.
F=$FIXTURES
ckpt convert -q "$F"/hf_bert_sharded b.gguf 2>/dev/null
ckpt diff b.gguf "$F"/hf_bert_sharded; echo "exit status $?"
ckpt diff --exclude 'cls.*' "$F"/hf_bert_sharded b.gguf 2>/dev/null; echo "exit status $?"
printf 'model.* base_model.model.model.*\nlm_head.weight base_model.model.lm_head.weight\n' >rules
ckpt convert -q --rename rules "$F"/map_meta_s1/hf peft.safetensors
ckpt diff peft.safetensors "$F"/map_meta_s1/hf && ckpt diff -q "$F"/map_meta_s1/hf peft.safetensors
ckpt diff --json "$F"/map_meta_s1/hf peft.safetensors | grep prefix
echo "-- names as they are"
ckpt diff --map none peft.safetensors "$F"/map_meta_s1/hf | tail -n 1
ckpt diff --keep-names peft.safetensors "$F"/map_meta_s1/hf 2>/dev/null | tail -n 1
echo "-- one element"
printf '\077' | dd of=peft.safetensors bs=1 seek=$(($(wc -c <peft.safetensors) - 1)) conv=notrunc 2>/dev/null
ckpt diff -q peft.safetensors "$F"/map_meta_s1/hf; echo "exit status $?"
