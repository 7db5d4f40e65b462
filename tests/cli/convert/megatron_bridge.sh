# SPDX-License-Identifier: Apache-2.0
# Megatron-Bridge's own saves of GPT-OSS, Gemma 2 and 3, and DeepSeek-V3: their run_config.yaml has no arguments, and other names.
# The fields are those that Megatron-Bridge's bridges (August 2026) make of each config.json here.
# bridge FIXTURE [SETTING...]: a save of the model with these fields, from the standard input, and a changed or added line for each SETTING
bridge() {
    hf=$FIXTURES/$1/hf
    shift
    rm -rf run back
    ckpt convert -q "$hf" run --to megatron --make-vocab-size-divisible-by 8 2>/dev/null
    rm run/release/common.pt
    { printf 'model:\n  gated_linear_unit: true\n' && sed 's/^/  /'; } >run/release/run_config.yaml
    for setting in "$@"; do
        sed -i "/^  ${setting%%:*}:/d" run/release/run_config.yaml
        printf '  %s\n' "$setting" >>run/release/run_config.yaml
    done
    ckpt convert -q run back --to hf && ckpt diff "$hf" back && ls back | grep -v model
}
# what the written configuration says otherwise than the model's own
differs() {
    "${PYTHON:-python3}" - "$hf/config.json" back/config.json <<'EOF'
import json, sys
own, made = ({k: v for k, v in json.load(open(p)).items()} for p in sys.argv[1:])
for key in sorted(made):
    if key not in own or own[key] != made[key]:
        print(key, made[key])
EOF
}
gpt_oss() {
    bridge map_mcore_gptoss "$@" <<'EOF'
activation_func: {_call_: false, _target_: megatron.core.fusions.fused_bias_geglu.quick_gelu}
activation_func_clamp_value: 7.0
add_bias_linear: true
add_qkv_bias: true
ffn_hidden_size: 12
glu_linear_offset: 1.0
hidden_size: 16
kv_channels: 4
layernorm_epsilon: 1.0e-05
moe_ffn_hidden_size: 12
moe_router_topk: 2
normalization: RMSNorm
num_attention_heads: 4
num_layers: 2
num_moe_experts: 3
num_query_groups: 2
position_embedding_type: yarn
rotary_base: 150000.0
rotary_percent: 1.0
seq_length: 32
share_embeddings_and_output_weights: false
softmax_scale: null
softmax_type: learnable
vocab_size: 41
window_attn_skip_freq: 2
window_size: [3, 0]
yarn_beta_fast: 32.0
yarn_beta_slow: 1.0
yarn_correction_range_round_to_int: false
yarn_mscale: null
yarn_mscale_all_dim: null
yarn_original_max_position_embeddings: 8
yarn_rotary_scaling_factor: 4.0
EOF
}
gemma3() {
    bridge map_mcore_gemma3 "$@" <<'EOF'
activation_func: {_call_: false, _target_: megatron.core.activations.fast_gelu}
ffn_hidden_size: 12
hidden_size: 16
interleaved_attn_pattern: [1, 1]
is_vision_language: false
kv_channels: 4
layernorm_epsilon: 1.0e-06
layernorm_zero_centered_gamma: true
num_attention_heads: 4
num_layers: 2
num_query_groups: 2
position_embedding_type: rope
qk_layernorm: true
rope_scaling: false
rope_scaling_factor: 4.0
rotary_base: [10000.0, 1000000.0]
seq_length: 32
share_embeddings_and_output_weights: true
softmax_scale: 0.4082482904638631
vocab_size: 41
window_size: 4
EOF
}
deepseek() {
    bridge map_mcore_deepseek3 "$@" <<'EOF'
activation_func: silu
beta_fast: 32
beta_slow: 1
ffn_hidden_size: 12
hidden_size: 16
kv_channels: 4
kv_lora_rank: 8
layernorm_epsilon: 1.0e-06
moe_ffn_hidden_size: 8
moe_layer_freq: [0, 1, 1]
moe_router_dtype: fp32
moe_router_enable_expert_bias: true
moe_router_group_topk: 1
moe_router_num_groups: 2
moe_router_pre_softmax: true
moe_router_score_function: sigmoid
moe_router_topk: 2
moe_router_topk_scaling_factor: 2.5
moe_shared_expert_intermediate_size: 8
mscale: 1.0
mscale_all_dim: 1.0
mtp_num_layers: null
multi_latent_attention: true
num_attention_heads: 2
num_layers: 3
num_moe_experts: 4
num_query_groups: 2
original_max_position_embeddings: 8
q_lora_rank: 6
qk_head_dim: 6
qk_layernorm: true
qk_pos_emb_head_dim: 4
rope_type: yarn
rotary_base: 10000.0
rotary_scaling_factor: 4.0
seq_length: 32
share_embeddings_and_output_weights: false
v_head_dim: 5
vocab_size: 41
EOF
}
for model in gpt_oss gemma3 deepseek; do
    $model && differs
done
# the function's name alone, as BridgeGPTModelConfig has it; a scale whose scalar is no integer; another activation
gemma3 'activation_func: gelu_pytorch_tanh' 'softmax_scale: 0.3' && differs | grep scalar
gemma3 'activation_func: {_target_: torch.nn.functional.relu}' || ls back
gpt_oss 'activation_func: quick_gelu' && differs | grep -c rope
# no stretch is one by 1
deepseek "rotary_scaling_factor: 1.0" "mscale_all_dim: 1.0" && grep -c rope_scaling back/config.json
# what the map does not carry is still named
gpt_oss 'qk_l2_norm: true' 'rotary_percent: 0.5' | tail -1
