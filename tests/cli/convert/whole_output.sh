# SPDX-License-Identifier: Apache-2.0
# No model folder appears that lacks a tensor of one layer, whatever the source; the caller may select tensors on purpose.
# lacks SOURCE MAP GLOB: the source without one tensor, under the source's own names
lacks() {
    ckpt convert -q "$1" whole.safetensors --map "$2" && ckpt convert -q whole.safetensors lacks.safetensors --map none --force --exclude "$3"
    rm -f whole.safetensors
}
try() {
    ckpt convert -q "$@" --to hf || echo "status $?"
    ls out 2>/dev/null
    rm -rf out
}
gemma=$FIXTURES/map_mcore_gemma3/hf
for name in 1.self_attention.linear_proj.post_layernorm.weight 0.self_attention.linear_qkv.weight 1.mlp.linear_fc1.weight; do
    lacks "$gemma" hf:megatron "*.$name"
    try lacks.safetensors out --map megatron:hf --config "$gemma/config.json"
done
# without a configuration it is a warning
lacks "$gemma" hf:megatron '*.1.mlp.linear_fc2.weight'
try lacks.safetensors out --map megatron:hf
lacks "$FIXTURES/torchtune/llama" hf:torchtune layers.0.mlp.w2.weight
try lacks.safetensors out --map torchtune:hf --config "$FIXTURES/torchtune/llama/config.json"
lacks "$FIXTURES/map_mcore_gptoss/hf" hf:megatron '*.1.*softmax_offset'
try lacks.safetensors out --map megatron:hf --config "$FIXTURES/map_mcore_gptoss/hf/config.json"
# a torch file, and a run of DCP
llama=$FIXTURES/map_meta_s1/hf
ckpt convert -q "$llama" lacks.pt --exclude '*.1.input_layernorm.weight'
try lacks.pt out --config "$llama/config.json"
ckpt convert -q lacks.pt dcp --to dcp && try dcp out --config "$llama/config.json"
# selected on purpose, also of a model with a tied head
try "$llama" out --exclude '*.1.input_layernorm.weight'
try "$llama" out --include '*.1.*'
tied=$FIXTURES/hf_trainer_llama_z3_bf16_w2/ckpt
ckpt convert -q "$tied" tied --to hf && ckpt ls -q --include '*lm_head*' --include '*embed*' tied
try tied out --exclude model.embed_tokens.weight
try tied out --exclude lm_head.weight
try "$tied" out --exclude model.embed_tokens.weight
try "$tied" out --exclude lm_head.weight --untie
# no GGUF file either
ckpt convert -q lacks.pt lacks.gguf --config "$llama/config.json" || echo "status $?"
ls lacks.gguf 2>/dev/null
# a draft head of EAGLE has layers of its type, and by design no norms; Megatron's last norm is no such part
python3 - <<'END'
import json, os, struct

os.mkdir('eagle')
shapes = {'embed_tokens.weight': [8, 4], 'fc.weight': [4, 8], 'layers.0.self_attn.q_proj.weight': [4, 4], 'layers.0.self_attn.k_proj.weight': [4, 4],
          'layers.0.self_attn.v_proj.weight': [4, 4], 'layers.0.self_attn.o_proj.weight': [4, 4], 'layers.0.mlp.gate_proj.weight': [6, 4],
          'layers.0.mlp.up_proj.weight': [6, 4], 'layers.0.mlp.down_proj.weight': [4, 6], 'layers.0.post_attention_layernorm.weight': [4]}
head, at = {}, 0
for name, shape in shapes.items():
    n = 4 * shape[0] * (shape[1] if len(shape) > 1 else 1)
    head[name] = {'dtype': 'F32', 'shape': shape, 'data_offsets': [at, at + n]}
    at += n
text = json.dumps(head).encode()
open('eagle/model.safetensors', 'wb').write(struct.pack('<Q', len(text)) + text + bytes(at))
json.dump({'model_type': 'llama', 'architectures': ['LlamaForCausalLM'], 'num_hidden_layers': 1, 'hidden_size': 4, 'num_attention_heads': 2,
           'num_key_value_heads': 2, 'intermediate_size': 6, 'vocab_size': 8}, open('eagle/config.json', 'w'))
END
try eagle out
ckpt convert -q "$gemma" last.pt --exclude model.norm.weight
for to in megatron megatron-legacy; do
    ckpt convert -q last.pt no --to $to --config "$gemma/config.json"; echo "$to: status $?"
done
