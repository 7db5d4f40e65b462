# SPDX-License-Identifier: Apache-2.0
# An embedding that was trained whole takes a tied head along: that is said, and --untie keeps the head as it was.
T=$FIXTURES/peft_tied_head
mkdir adapter
echo '{"peft_type": "LORA", "r": 4, "lora_alpha": 8, "modules_to_save": ["embed_tokens"]}' > adapter/adapter_config.json
echo 'model.embed_tokens.weight base_model.model.model.embed_tokens.weight' > rules
ckpt convert -q "$T/merged" adapter/adapter_model.safetensors --include model.embed_tokens.weight --rename rules
ckpt convert -q "$T/base" merged --to hf --adapter adapter
ckpt ls merged | grep -c lm_head
ckpt convert -q "$T/base" untied --to hf --adapter adapter --untie
ckpt diff "$T/base" untied | sed -n 1,3p
