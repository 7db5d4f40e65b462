# SPDX-License-Identifier: Apache-2.0
# Fields of config.json that GGUF does not express: a warning names them, and a value that llama.cpp contradicts is refused.
cat > with.py <<'PY'
import json, sys

with open(sys.argv[1] + '/config.json') as f:
    config = json.load(f)
for arg in sys.argv[2:]:
    name, value = arg.split('=', 1)
    config[name] = json.loads(value)
    if value == '"absent"':
        del config[name]
with open('config.json', 'w') as f:
    json.dump(config, f)
PY
try() { # FOLDER NAME=VALUE ...: convert the folder with fields changed
    python3 with.py "$@" && rm -rf in out.gguf && cp -R "$1" in && cp config.json in && ckpt convert -q in out.gguf 2>&1 | grep -v 'has no tokenizer'
    ls out.gguf 2> /dev/null
}
llama() { try "$FIXTURES"/gguf_llama_deep/hf "$@"; }
moe() { try "$FIXTURES"/lora_packed/base "$@"; }
gpt2() { try "$FIXTURES"/peft_gpt2_conv1d/base "$@"; }
echo '# nothing to say'
llama
llama hidden_act='"swish"' sliding_window=8 tie_word_embeddings=false attention_dropout=0.5 output_attentions=true some_new_field=null
moe norm_topk_prob=true
moe norm_topk_prob=true vision_config='{"depth": 3, "deepstack_visual_indexes": [0]}'
gpt2
echo '# fields without a place'
llama attention_multiplier=0.5 logits_scaling=8 attn_pattern='[1, 2]' other='{"a": 1}'
llama model_type='"mistral"' sliding_window=16
llama rope_parameters='{"rope_theta": 50000.0, "rope_type": "dynamic", "factor": 2.0}'
llama rope_parameters='{"rope_theta": 50000.0, "rope_type": "yarn", "factor": 2.0, "beta_fast": 16, "attention_factor": 1.5, "truncate": false}'
ckpt convert -q out.gguf back --to hf 2> /dev/null && grep -A4 rope_scaling back/config.json
llama partial_rotary_factor=0.5
echo '# MistralConfig has a window, if the field is absent'
llama model_type='"mistral"' sliding_window='"absent"' max_position_embeddings=8192
llama model_type='"mistral"' sliding_window='"absent"' max_position_embeddings=4096
llama model_type='"mistral"' sliding_window=null max_position_embeddings=8192
echo '# transformers takes all values from rope_scaling'
llama rope_parameters='{"rope_type": "default", "rope_theta": 50000.0}' rope_scaling='{"type": "linear", "factor": 2.0}' rope_theta=20000.0
ckpt tree out.gguf 2> /dev/null | grep rope
llama rope_parameters='{"rope_type": "linear", "rope_theta": 50000.0, "factor": 4.0}' rope_scaling='{}' rope_theta=50000.0
ckpt tree out.gguf 2> /dev/null | grep rope
gpt2 activation_function='"gelu"'
ckpt convert -q --strict --force in strict.gguf 2> /dev/null || echo "strict: $?"
llama auto_map='{"AutoModel": "modeling_other.Model"}'
echo '# no causal mask'
llama is_causal=false && ckpt tree out.gguf 2> /dev/null | grep causal
gpt2 is_causal=false && ckpt convert -q out.gguf noncausal --to hf 2> /dev/null && grep -o "\"is_causal\": [a-z]*" noncausal/config.json
echo '# contradicted by what llama.cpp computes'
llama rope_theta=10000
llama hidden_act='"gelu"'
llama rope_scaling='{"type": "longrope", "factor": 4}'
moe norm_topk_prob=false
moe norm_topk_prob='"absent"'
moe norm_topk_prob=true mlp_only_layers='[1]'
gpt2 scale_attn_by_inverse_layer_idx=true
echo '# the caller says that it is another model'
moe norm_topk_prob=true && python3 with.py "$FIXTURES"/lora_packed/base norm_topk_prob=true &&
    ckpt convert -q --config config.json "$FIXTURES"/lora_packed/base other.gguf 2>&1 | grep -v 'has no tokenizer'
ls other.gguf
