# SPDX-License-Identifier: Apache-2.0
# A folder with only a config.json, or that file: the parameters that transformers gives such a model; unknown families
# are named, and lost weights are not taken for a model without any.
config() { mkdir -p "$1" && printf '%s\n' "$2" >"$1/config.json"; }
config llama '{"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 4096, "num_hidden_layers": 32,
    "num_attention_heads": 32, "num_key_value_heads": 8, "intermediate_size": 14336, "vocab_size": 128256,
    "rope_parameters": {"rope_type": "yarn", "factor": 4.0}}'
config qwen2 '{"model_type": "qwen2", "hidden_size": 896, "num_hidden_layers": 24, "num_attention_heads": 14,
    "num_key_value_heads": 2, "intermediate_size": 4864, "vocab_size": 151936, "tie_word_embeddings": true}'
config gpt2 '{"architectures": ["GPT2LMHeadModel"], "model_type": "gpt2"}'
config bert '{"architectures": ["BertForMaskedLM"], "model_type": "bert"}'
# T0_3B, and its body alone, which is the model of transformers' documentation
sizes='"model_type": "t5", "d_model": 2048, "d_ff": 5120, "num_layers": 24, "num_heads": 32,
    "feed_forward_proj": "gated-gelu", "tie_word_embeddings": false'
config T0_3B "{\"architectures\": [\"T5ForConditionalGeneration\"], $sizes}"
config T0_3B_body "{\"architectures\": [\"T5Model\"], $sizes}"
config t5-small '{"architectures": ["T5ForConditionalGeneration"], "model_type": "t5"}'
touch gpt2/tokenizer.json gpt2/README.md gpt2/LICENSE
for m in llama llama/config.json qwen2 gpt2 bert T0_3B T0_3B_body t5-small; do
    ckpt mem --json $m | grep -e params -e largest
done
ckpt mem --gpus 2 --stage 3 T0_3B_body
ckpt mem --stage 2 --seq-length 128 gpt2 | grep -e SW -e activations
config mixtral '{"architectures": ["MixtralForCausalLM"], "model_type": "mixtral"}'
config mt5 '{"model_type": "mt5"}'
config broken '{"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": "wide"}'
config lost '{"architectures": ["GPT2LMHeadModel"], "model_type": "gpt2"}'
printf '{"weight_map": {"wte.weight": "model-00001-of-00001.safetensors"}}\n' >lost/model.safetensors.index.json
printf '{"a": 1}\n' >other.json
for m in mixtral mt5 broken lost other.json; do
    ckpt mem --stage 2 $m
    echo "status $?"
done
