# SPDX-License-Identifier: Apache-2.0
# Tensors that an adapter saved whole replace those of the base, under the hub's names too; a tensor is added only where the base cannot have it.
T=$FIXTURES/peft_tied_head
adapter() { # FOLDER MODULE NAME: an adapter that saved one tensor, the embedding's numbers under that name
    mkdir "$1"
    echo "{\"peft_type\": \"LORA\", \"r\": 4, \"lora_alpha\": 8, \"modules_to_save\": [\"$2\"]}" >"$1/adapter_config.json"
    echo "model.embed_tokens.weight base_model.model.$3" >rules
    ckpt convert -q "$T/merged" "$1/adapter_model.safetensors" --include model.embed_tokens.weight --rename rules
}
adapter head lm_head lm_head.weight
adapter gate gate model.layers.0.mlp.gate.weight
adapter score score score.weight
echo "-- GPT-NeoX: lm_head is embed_out in the files"
ckpt convert -q "$T/base" untied --to hf --untie
echo 'lm_head.weight embed_out.weight' >rules
ckpt convert -q untied neox --to hf --rename rules --no-side-files
echo '{"model_type": "gpt_neox", "architectures": ["GPTNeoXForCausalLM"], "tie_word_embeddings": false}' >neox/config.json
ckpt convert -q neox out --to hf --adapter head; ckpt ls out | grep -c embed_out; ckpt ls out | grep -c lm_head
ckpt diff neox out | head -2
echo "-- no table knows the name: refused"
sed -i 's/gpt_neox/persimmon/; s/GPTNeoX/Persimmon/' neox/config.json
ckpt convert -q neox other --to hf --adapter head; echo "status $?"
ckpt convert -q "$T/base" other --to hf --adapter gate; echo "status $?"
[ ! -e other ] || echo "other was written"
echo "-- new heads: of a tied model, and of another class"
ckpt convert -q "$T/base" tied --to hf --adapter head; ckpt ls tied | grep -c lm_head
ckpt convert -q "$T/base" class --to hf --adapter score; ckpt ls class | grep -c score
