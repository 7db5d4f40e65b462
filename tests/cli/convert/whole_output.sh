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
# no GGUF file either
ckpt convert -q lacks.pt lacks.gguf --config "$llama/config.json" || echo "status $?"
ls lacks.gguf 2>/dev/null
