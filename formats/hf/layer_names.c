/* SPDX-License-Identifier: Apache-2.0 */
/*
 * layer_names.c: lists the weights in the layers of each model type.
 *
 * tests/interop/layer_table.py generates this file from the models of transformers 5.23: edit the
 * script, not this file.
 */
#include "formats/hf/layer_names.h"

#include <stddef.h>

// clang-format off
const ckpt_hf_layer_names ckpt_hf_layers[] = {
    {"apertus",
     "attention_layernorm feedforward_layernorm mlp.down_proj mlp.up_proj self_attn.k_norm "
     "self_attn.k_proj self_attn.o_proj self_attn.q_norm self_attn.q_proj self_attn.v_proj",
     ""},
    {"arcee jais2",
     "input_layernorm mlp.down_proj mlp.up_proj post_attention_layernorm self_attn.k_proj "
     "self_attn.o_proj self_attn.q_proj self_attn.v_proj",
     ""},
    {"aria_text",
     "input_layernorm mlp.router mlp.shared_experts.down_proj mlp.shared_experts.gate_proj "
     "mlp.shared_experts.up_proj post_attention_layernorm self_attn.k_proj "
     "self_attn.o_proj self_attn.q_proj self_attn.v_proj",
     "mlp.experts.fc1 mlp.experts.fc2"},
    {"axk1",
     "input_layernorm post_attention_layernorm self_attn.kv_a_layernorm "
     "self_attn.kv_a_proj_with_mqa self_attn.kv_b_proj self_attn.o_proj "
     "self_attn.q_a_layernorm self_attn.q_a_proj self_attn.q_b_proj",
     "mlp.down_proj mlp.experts.#.down_proj mlp.experts.#.gate_proj mlp.experts.#.up_proj "
     "mlp.gate mlp.gate_proj mlp.post_mlp_layernorm mlp.shared_experts.down_proj "
     "mlp.shared_experts.gate_proj mlp.shared_experts.up_proj mlp.up_proj "
     "post_mlp_layernorm"},
    {"axk2",
     "input_layernorm.norm self_attn.indexer.k_norm self_attn.indexer.weights_proj "
     "self_attn.indexer.wk self_attn.indexer.wq_b self_attn.kv_a_layernorm "
     "self_attn.kv_a_proj_with_mqa self_attn.kv_b_proj self_attn.o_proj "
     "self_attn.q_a_layernorm self_attn.q_a_proj",
     "input_layernorm.W_down input_layernorm.W_up input_layernorm.mlp.fc1 "
     "input_layernorm.mlp.fc2 mlp.down_proj mlp.experts.#.down_proj "
     "mlp.experts.#.gate_proj mlp.experts.#.up_proj mlp.gate mlp.gate_proj "
     "mlp.shared_experts.down_proj mlp.shared_experts.gate_proj mlp.shared_experts.up_proj "
     "mlp.up_proj post_attention_layernorm post_attention_layernorm.W_down "
     "post_attention_layernorm.W_up post_attention_layernorm.mlp.fc1 "
     "post_attention_layernorm.mlp.fc2 post_attention_layernorm.norm self_attn.q_b_proj "
     "self_attn.q_gate_proj"},
    {"bailing_hybrid",
     "input_layernorm post_attention_layernorm",
     "attention.b_proj attention.dense attention.f_proj attention.g_proj "
     "attention.k_conv1d attention.k_proj attention.kv_a_layernorm "
     "attention.kv_a_proj_with_mqa attention.kv_b_proj attention.o_norm attention.q_conv1d "
     "attention.q_proj attention.v_conv1d attention.v_proj mlp.down_proj "
     "mlp.experts.#.down_proj mlp.experts.#.gate_proj mlp.experts.#.up_proj mlp.gate "
     "mlp.gate_proj mlp.shared_experts.down_proj mlp.shared_experts.gate_proj "
     "mlp.shared_experts.up_proj mlp.up_proj self_attn.b_proj self_attn.conv1d "
     "self_attn.forget_gate.f_proj self_attn.g_proj self_attn.k_proj "
     "self_attn.kv_a_layernorm self_attn.kv_a_proj_with_mqa self_attn.kv_b_proj "
     "self_attn.o_norm self_attn.o_proj self_attn.q_proj self_attn.v_proj"},
    {"bart blenderbot blenderbot-small marian mbart mvp pegasus plbart trocr",
     "encoder_attn.k_proj encoder_attn.out_proj encoder_attn.q_proj encoder_attn.v_proj "
     "encoder_attn_layer_norm fc1 fc2 final_layer_norm self_attn.k_proj self_attn.out_proj "
     "self_attn.q_proj self_attn.v_proj self_attn_layer_norm",
     ""},
    {"beam",
     "input_layernorm post_attention_layernorm post_feedforward_layernorm "
     "pre_feedforward_layernorm self_attn.gate_proj self_attn.k_norm self_attn.k_proj "
     "self_attn.o_proj self_attn.q_norm self_attn.q_proj self_attn.v_proj",
     "mlp.down_proj mlp.experts.#.down_proj mlp.experts.#.gate_proj mlp.experts.#.up_proj "
     "mlp.gate mlp.gate_proj mlp.up_proj"},
    {"bert big_bird camembert data2vec-text electra ernie ibert layoutlm mra rembert "
     "roberta roc_bert roformer splinter tapas visual_bert xlm-roberta",
     "attention.output.LayerNorm attention.output.dense attention.self.key "
     "attention.self.query attention.self.value intermediate.dense output.LayerNorm "
     "output.dense",
     ""},
    {"bigbird_pegasus",
     "encoder_attn.k_proj encoder_attn.out_proj encoder_attn.q_proj encoder_attn.v_proj "
     "encoder_attn_layer_norm fc1 fc2 final_layer_norm self_attn.k_proj self_attn.out_proj "
     "self_attn.q_proj self_attn.v_proj self_attn_layer_norm",
     "self_attn.output self_attn.self.key self_attn.self.query self_attn.self.value"},
    {"biogpt",
     "fc1 fc2 final_layer_norm self_attn.k_proj self_attn.out_proj self_attn.q_proj "
     "self_attn.v_proj self_attn_layer_norm",
     ""},
    {"bitnet",
     "input_layernorm mlp.down_proj mlp.ffn_sub_norm mlp.gate_proj mlp.up_proj "
     "post_attention_layernorm self_attn.attn_sub_norm self_attn.k_proj self_attn.o_proj "
     "self_attn.q_proj self_attn.v_proj",
     ""},
    {"bloom",
     "input_layernorm mlp.dense_4h_to_h mlp.dense_h_to_4h post_attention_layernorm "
     "self_attention.dense self_attention.query_key_value",
     ""},
    {"codegen",
     "attn.out_proj attn.qkv_proj ln_1 mlp.fc_in mlp.fc_out",
     ""},
    {"cohere",
     "input_layernorm mlp.down_proj mlp.gate_proj mlp.up_proj self_attn.k_proj "
     "self_attn.o_proj self_attn.q_proj self_attn.v_proj",
     "self_attn.k_norm self_attn.q_norm"},
    {"cohere2",
     "input_layernorm mlp.down_proj mlp.gate_proj mlp.up_proj self_attn.k_proj "
     "self_attn.o_proj self_attn.q_proj self_attn.v_proj",
     ""},
    {"cohere2_moe",
     "input_layernorm mlp.gate self_attn.k_proj self_attn.o_proj self_attn.q_proj "
     "self_attn.v_proj",
     "mlp.experts.#.down_proj mlp.experts.#.gate_proj mlp.experts.#.up_proj "
     "mlp.shared_experts.down_proj mlp.shared_experts.gate_proj mlp.shared_experts.up_proj"},
    {"convbert",
     "attention.output.LayerNorm attention.output.dense attention.self.conv_kernel_layer "
     "attention.self.conv_out_layer attention.self.key "
     "attention.self.key_conv_attn_layer.depthwise "
     "attention.self.key_conv_attn_layer.pointwise attention.self.query "
     "attention.self.value intermediate.dense output.LayerNorm output.dense",
     ""},
    {"cpmant",
     "ffn.ffn.w_in.w_0 ffn.ffn.w_in.w_1 ffn.ffn.w_out ffn.layernorm_before_ffn "
     "self_att.layernorm_before_attention self_att.self_attention.attention_out "
     "self_att.self_attention.project_k self_att.self_attention.project_q "
     "self_att.self_attention.project_v",
     ""},
    {"ctrl",
     "ffn.# layernorm1 layernorm2 multi_head_attention.Wk multi_head_attention.Wq "
     "multi_head_attention.Wv multi_head_attention.dense",
     ""},
    {"cwm diffllama ernie4_5 eurobert gemma granite granite_swa helium internlm3 "
     "iquestcoder llama ministral ministral3 mistral seed_oss smollm3 ultrabert",
     "input_layernorm mlp.down_proj mlp.gate_proj mlp.up_proj post_attention_layernorm "
     "self_attn.k_proj self_attn.o_proj self_attn.q_proj self_attn.v_proj",
     ""},
    {"deberta",
     "attention.output.LayerNorm attention.output.dense attention.self.in_proj "
     "intermediate.dense output.LayerNorm output.dense",
     "attention.self.pos_proj attention.self.pos_q_proj"},
    {"deberta-v2",
     "attention.output.LayerNorm attention.output.dense attention.self.key_proj "
     "attention.self.query_proj attention.self.value_proj intermediate.dense "
     "output.LayerNorm output.dense",
     "attention.self.pos_key_proj attention.self.pos_query_proj"},
    {"deepseek_v2 deepseek_v3 glm4_moe_lite",
     "input_layernorm post_attention_layernorm self_attn.kv_a_layernorm "
     "self_attn.kv_a_proj_with_mqa self_attn.kv_b_proj self_attn.o_proj",
     "mlp.down_proj mlp.experts.#.down_proj mlp.experts.#.gate_proj mlp.experts.#.up_proj "
     "mlp.gate mlp.gate_proj mlp.shared_experts.down_proj mlp.shared_experts.gate_proj "
     "mlp.shared_experts.up_proj mlp.up_proj self_attn.q_a_layernorm self_attn.q_a_proj "
     "self_attn.q_b_proj self_attn.q_proj"},
    {"deepseek_v32 glm_moe_dsa",
     "input_layernorm post_attention_layernorm self_attn.indexer.k_norm "
     "self_attn.indexer.weights_proj self_attn.indexer.wk self_attn.indexer.wq_b "
     "self_attn.kv_a_layernorm self_attn.kv_a_proj_with_mqa self_attn.kv_b_proj "
     "self_attn.o_proj self_attn.q_a_layernorm self_attn.q_a_proj self_attn.q_b_proj",
     "mlp.down_proj mlp.experts.#.down_proj mlp.experts.#.gate_proj mlp.experts.#.up_proj "
     "mlp.gate mlp.gate_proj mlp.shared_experts.down_proj mlp.shared_experts.gate_proj "
     "mlp.shared_experts.up_proj mlp.up_proj"},
    {"distilbert",
     "attention.k_lin attention.out_lin attention.q_lin attention.v_lin ffn.lin1 ffn.lin2 "
     "output_layer_norm sa_layer_norm",
     ""},
    {"doge",
     "input_layernorm mlp.down_proj mlp.gate_proj mlp.up_proj post_attention_layernorm "
     "self_attn.dt_proj self_attn.k_norm self_attn.k_proj self_attn.o_proj "
     "self_attn.q_norm self_attn.q_proj self_attn.v_proj",
     "mlp.down_embed mlp.router_gate mlp.up_embed"},
    {"dots1 exaone_moe",
     "input_layernorm post_attention_layernorm self_attn.k_norm self_attn.k_proj "
     "self_attn.o_proj self_attn.q_norm self_attn.q_proj self_attn.v_proj",
     "mlp.down_proj mlp.experts.#.down_proj mlp.experts.#.gate_proj mlp.experts.#.up_proj "
     "mlp.gate mlp.gate_proj mlp.shared_experts.down_proj mlp.shared_experts.gate_proj "
     "mlp.shared_experts.up_proj mlp.up_proj"},
    {"dots3_note_text",
     "input_layernorm post_attention_layernorm self_attn.g_proj "
     "self_attn.k_rope_only_layernorm self_attn.kv_a_layernorm "
     "self_attn.kv_a_proj_with_mqa self_attn.kv_b_proj self_attn.o_proj "
     "self_attn.q_a_layernorm self_attn.q_a_proj self_attn.q_b_proj",
     "mlp.down_proj mlp.experts.#.down_proj mlp.experts.#.gate_proj mlp.experts.#.up_proj "
     "mlp.gate mlp.gate_proj mlp.shared_experts.down_proj mlp.shared_experts.gate_proj "
     "mlp.shared_experts.up_proj mlp.up_proj self_attn.indexer.k_norm "
     "self_attn.indexer.weights_proj self_attn.indexer.wk self_attn.indexer.wq_b"},
    {"ernie4_5_moe",
     "input_layernorm post_attention_layernorm self_attn.k_proj self_attn.o_proj "
     "self_attn.q_proj self_attn.v_proj",
     "mlp.down_proj mlp.experts.#.down_proj mlp.experts.#.gate_proj mlp.experts.#.up_proj "
     "mlp.gate mlp.gate_proj mlp.shared_experts.down_proj mlp.shared_experts.gate_proj "
     "mlp.shared_experts.up_proj mlp.up_proj"},
    {"esmc qwen3",
     "input_layernorm mlp.down_proj mlp.gate_proj mlp.up_proj post_attention_layernorm "
     "self_attn.k_norm self_attn.k_proj self_attn.o_proj self_attn.q_norm self_attn.q_proj "
     "self_attn.v_proj",
     ""},
    {"exaone4 olmo2 olmo3",
     "mlp.down_proj mlp.gate_proj mlp.up_proj post_attention_layernorm "
     "post_feedforward_layernorm self_attn.k_norm self_attn.k_proj self_attn.o_proj "
     "self_attn.q_norm self_attn.q_proj self_attn.v_proj",
     ""},
    {"falcon",
     "mlp.dense_4h_to_h mlp.dense_h_to_4h self_attention.dense "
     "self_attention.query_key_value",
     "input_layernorm ln_attn ln_mlp post_attention_layernorm"},
    {"falcon_h1",
     "feed_forward.down_proj feed_forward.gate_proj feed_forward.up_proj input_layernorm "
     "mamba.conv1d mamba.in_proj mamba.out_proj pre_ff_layernorm self_attn.k_proj "
     "self_attn.o_proj self_attn.q_proj self_attn.v_proj",
     "mamba.norm"},
    {"falcon_mamba mamba",
     "mixer.conv1d mixer.dt_proj mixer.in_proj mixer.out_proj mixer.x_proj norm",
     ""},
    {"flaubert xlm",
     "k_lin lin1 lin2 out_lin q_lin v_lin",
     ""},
    {"flex_olmo",
     "mlp.gate post_attention_layernorm post_feedforward_layernorm self_attn.k_norm "
     "self_attn.k_proj self_attn.o_proj self_attn.q_norm self_attn.q_proj self_attn.v_proj",
     "mlp.experts.#.down_proj mlp.experts.#.gate_proj mlp.experts.#.up_proj"},
    {"flint",
     "input_layernorm post_attention_layernorm self_attn.k_norm self_attn.k_proj "
     "self_attn.o_proj self_attn.q_norm self_attn.q_proj self_attn.v_proj",
     "mlp.down_proj mlp.experts.#.down_proj mlp.experts.#.gate_proj mlp.experts.#.up_proj "
     "mlp.gate mlp.gate_proj mlp.shared_expert.down_proj mlp.shared_expert.gate_proj "
     "mlp.shared_expert.up_proj mlp.up_proj"},
    {"fnet",
     "fourier.output.LayerNorm intermediate.dense output.LayerNorm output.dense",
     ""},
    {"fsmt m2m_100 speech_to_text whisper xglm",
     "fc1 fc2 final_layer_norm self_attn.k_proj self_attn.out_proj self_attn.q_proj "
     "self_attn.v_proj self_attn_layer_norm",
     "encoder_attn.k_proj encoder_attn.out_proj encoder_attn.q_proj encoder_attn.v_proj "
     "encoder_attn_layer_norm"},
    {"funnel",
     "#.attention.k_head #.attention.layer_norm #.attention.post_proj #.attention.q_head "
     "#.attention.v_head #.ffn.layer_norm #.ffn.linear_1 #.ffn.linear_2",
     "attention.k_head attention.layer_norm attention.post_proj attention.q_head "
     "attention.v_head ffn.layer_norm ffn.linear_1 ffn.linear_2"},
    {"gemma2",
     "input_layernorm mlp.down_proj mlp.gate_proj mlp.up_proj post_attention_layernorm "
     "post_feedforward_layernorm pre_feedforward_layernorm self_attn.k_proj "
     "self_attn.o_proj self_attn.q_proj self_attn.v_proj",
     ""},
    {"gemma3_text gemma4_unified_text",
     "input_layernorm mlp.down_proj mlp.gate_proj mlp.up_proj post_attention_layernorm "
     "post_feedforward_layernorm pre_feedforward_layernorm self_attn.k_norm "
     "self_attn.k_proj self_attn.o_proj self_attn.q_norm self_attn.q_proj self_attn.v_proj",
     ""},
    {"gemma4_text",
     "input_layernorm mlp.down_proj mlp.gate_proj mlp.up_proj post_attention_layernorm "
     "post_feedforward_layernorm pre_feedforward_layernorm self_attn.k_norm "
     "self_attn.k_proj self_attn.o_proj self_attn.q_norm self_attn.q_proj self_attn.v_proj",
     "per_layer_input_gate per_layer_projection post_per_layer_input_norm"},
    {"glm",
     "input_layernorm mlp.down_proj mlp.gate_up_proj post_attention_layernorm "
     "self_attn.k_proj self_attn.o_proj self_attn.q_proj self_attn.v_proj",
     ""},
    {"glm4",
     "input_layernorm mlp.down_proj mlp.gate_up_proj post_attention_layernorm "
     "post_mlp_layernorm post_self_attn_layernorm self_attn.k_proj self_attn.o_proj "
     "self_attn.q_proj self_attn.v_proj",
     ""},
    {"glm4_moe",
     "input_layernorm post_attention_layernorm self_attn.k_proj self_attn.o_proj "
     "self_attn.q_proj self_attn.v_proj",
     "mlp.down_proj mlp.experts.#.down_proj mlp.experts.#.gate_proj mlp.experts.#.up_proj "
     "mlp.gate mlp.gate_proj mlp.shared_experts.down_proj mlp.shared_experts.gate_proj "
     "mlp.shared_experts.up_proj mlp.up_proj self_attn.k_norm self_attn.q_norm"},
    {"gpt-sw3 gpt2",
     "attn.c_attn attn.c_proj ln_1 ln_2 mlp.c_fc mlp.c_proj",
     "crossattention.c_attn crossattention.c_proj crossattention.q_attn ln_cross_attn"},
    {"gpt_bigcode openai-gpt",
     "attn.c_attn attn.c_proj ln_1 ln_2 mlp.c_fc mlp.c_proj",
     ""},
    {"gpt_neo",
     "attn.attention.k_proj attn.attention.out_proj attn.attention.q_proj "
     "attn.attention.v_proj ln_1 ln_2 mlp.c_fc mlp.c_proj",
     ""},
    {"gpt_neox gpt_neox_japanese",
     "attention.dense attention.query_key_value input_layernorm mlp.dense_4h_to_h "
     "mlp.dense_h_to_4h post_attention_layernorm",
     ""},
    {"gpt_oss",
     "input_layernorm mlp.router post_attention_layernorm self_attn.k_proj "
     "self_attn.o_proj self_attn.q_proj self_attn.v_proj",
     ""},
    {"gptj",
     "attn.k_proj attn.out_proj attn.q_proj attn.v_proj ln_1 mlp.fc_in mlp.fc_out",
     ""},
    {"granitemoe",
     "input_layernorm post_attention_layernorm self_attn.k_proj self_attn.o_proj "
     "self_attn.q_proj self_attn.v_proj",
     "block_sparse_moe.input_linear block_sparse_moe.output_linear block_sparse_moe.router "
     "block_sparse_moe.router.layer"},
    {"granitemoe_swa",
     "block_sparse_moe.router input_layernorm post_attention_layernorm self_attn.k_proj "
     "self_attn.o_proj self_attn.q_proj self_attn.v_proj",
     ""},
    {"granitemoeshared",
     "input_layernorm post_attention_layernorm self_attn.k_proj self_attn.o_proj "
     "self_attn.q_proj self_attn.v_proj",
     "block_sparse_moe.input_linear block_sparse_moe.output_linear block_sparse_moe.router "
     "block_sparse_moe.router.layer shared_mlp.input_linear shared_mlp.output_linear"},
    {"gte",
     "mlp.down_proj",
     "attention.o_proj attention.qkv_proj attn_ln mlp.gate_proj mlp.up_gate_proj "
     "mlp.up_proj mlp_ln post_attention_layernorm post_mlp_layernorm self_attn.k_proj "
     "self_attn.o_proj self_attn.q_proj self_attn.v_proj"},
    {"hiera",
     "layers.#.attn.proj layers.#.attn.qkv layers.#.layernorm_after "
     "layers.#.layernorm_before layers.#.mlp.fc1 layers.#.mlp.fc2 layers.#.proj",
     ""},
    {"higgs_audio_v2",
     "audio_input_layernorm audio_mlp.down_proj audio_mlp.gate_proj audio_mlp.up_proj "
     "audio_post_attention_layernorm input_layernorm mlp.down_proj mlp.gate_proj "
     "mlp.up_proj post_attention_layernorm self_attn.k_proj self_attn.o_proj "
     "self_attn.q_proj self_attn.v_proj",
     ""},
    {"hrm_text",
     "mlp.down_proj",
     "attn.gqkv_proj attn.o_proj mlp.gate_proj mlp.gate_up_proj mlp.up_proj "
     "self_attn.gate_proj self_attn.k_proj self_attn.o_proj self_attn.q_proj "
     "self_attn.v_proj"},
    {"hunyuan_v1_dense",
     "input_layernorm mlp.down_proj mlp.gate_proj mlp.up_proj post_attention_layernorm "
     "self_attn.k_proj self_attn.key_layernorm self_attn.o_proj self_attn.q_proj "
     "self_attn.query_layernorm self_attn.v_proj",
     ""},
    {"hunyuan_v1_moe",
     "input_layernorm mlp.gate.wg mlp.shared_mlp.down_proj mlp.shared_mlp.gate_proj "
     "mlp.shared_mlp.up_proj post_attention_layernorm self_attn.k_proj "
     "self_attn.key_layernorm self_attn.o_proj self_attn.q_proj self_attn.query_layernorm "
     "self_attn.v_proj",
     "mlp.experts.#.down_proj mlp.experts.#.gate_proj mlp.experts.#.up_proj"},
    {"hy_v3",
     "input_layernorm post_attention_layernorm self_attn.k_norm self_attn.k_proj "
     "self_attn.o_proj self_attn.q_norm self_attn.q_proj self_attn.v_proj",
     "mlp.down_proj mlp.experts.#.down_proj mlp.experts.#.gate_proj mlp.experts.#.up_proj "
     "mlp.gate mlp.gate_proj mlp.router.gate mlp.shared_experts.down_proj "
     "mlp.shared_experts.gate_proj mlp.shared_experts.up_proj mlp.shared_mlp.down_proj "
     "mlp.shared_mlp.gate_proj mlp.shared_mlp.up_proj mlp.up_proj"},
    {"hy_v4",
     "input_layernorm post_attention_layernorm self_attn.kv_a_layernorm "
     "self_attn.kv_a_proj_with_mqa self_attn.kv_b_proj self_attn.o_proj "
     "self_attn.q_a_layernorm self_attn.q_a_proj self_attn.q_b_proj",
     "mlp.down_proj mlp.gate mlp.gate_proj mlp.linear_gate mlp.shared_experts.down_proj "
     "mlp.shared_experts.gate_proj mlp.shared_experts.linear_gate "
     "mlp.shared_experts.up_proj mlp.up_proj self_attn.gate_proj self_attn.indexer.k_norm "
     "self_attn.indexer.weights_proj self_attn.indexer.wk self_attn.indexer.wq_b "
     "self_attn.linear_gate"},
    {"hyperclovax",
     "input_layernorm mlp.down_proj mlp.gate_proj mlp.up_proj post_attention_layernorm "
     "self_attn.k_proj self_attn.o_proj self_attn.q_proj self_attn.v_proj",
     "post_norm1 post_norm2"},
    {"inkling2_text",
     "mlp.gate",
     "attn.attn_sink_proj attn.gate_attn attn.k_sconv attn.v_sconv attn.wk_dv attn.wo_ud "
     "attn.wq_du attn.wr_du attn.wv_dv attn_norm attn_sconv input_layernorm "
     "k_input_layernorm k_input_norm mlp_norm mlp_sconv post_attention_convolution.conv1d "
     "post_attention_layernorm post_mlp_convolution.conv1d q_input_layernorm q_input_norm "
     "self_attn.gate_proj self_attn.k_proj self_attn.k_sconv.conv1d "
     "self_attn.k_sconv.weight_proj self_attn.o_proj self_attn.q_proj self_attn.r_proj "
     "self_attn.sink_proj self_attn.v_proj self_attn.v_sconv.conv1d "
     "self_attn.v_sconv.weight_proj v_input_layernorm v_input_norm"},
    {"inkling_text",
     "attn_sconv.conv1d input_layernorm mlp.gate mlp_sconv.conv1d post_attention_layernorm "
     "self_attn.k_norm self_attn.k_proj self_attn.k_sconv.conv1d self_attn.o_proj "
     "self_attn.q_norm self_attn.q_proj self_attn.r_proj self_attn.v_proj "
     "self_attn.v_sconv.conv1d",
     ""},
    {"jamba",
     "feed_forward.down_proj feed_forward.gate_proj feed_forward.up_proj input_layernorm "
     "mamba.b_layernorm mamba.c_layernorm mamba.conv1d mamba.dt_layernorm mamba.dt_proj "
     "mamba.in_proj mamba.out_proj mamba.x_proj pre_ff_layernorm",
     "feed_forward.experts.#.down_proj feed_forward.experts.#.gate_proj "
     "feed_forward.experts.#.up_proj feed_forward.router self_attn.k_proj self_attn.o_proj "
     "self_attn.q_proj self_attn.v_proj"},
    {"jetmoe",
     "input_layernorm mlp.input_linear mlp.output_linear mlp.router.layer "
     "post_attention_layernorm self_attention.experts.input_linear "
     "self_attention.experts.output_linear self_attention.experts.router.layer "
     "self_attention.kv_proj",
     ""},
    {"jina_embeddings_v3",
     "mlp.fc1 mlp.fc2",
     "mixer.Wqkv mixer.out_proj norm1 norm2 post_attention_layernorm post_mlp_layernorm "
     "self_attn.k_proj self_attn.o_proj self_attn.q_proj self_attn.v_proj"},
    {"kimi_linear",
     "input_layernorm post_attention_layernorm self_attn.o_proj self_attn.q_proj",
     "block_sparse_moe.down_proj block_sparse_moe.experts.#.w1 "
     "block_sparse_moe.experts.#.w2 block_sparse_moe.experts.#.w3 block_sparse_moe.gate "
     "block_sparse_moe.gate_proj block_sparse_moe.shared_experts.down_proj "
     "block_sparse_moe.shared_experts.gate_proj block_sparse_moe.shared_experts.up_proj "
     "block_sparse_moe.up_proj mlp.down_proj mlp.gate mlp.gate_proj "
     "mlp.shared_experts.down_proj mlp.shared_experts.gate_proj mlp.shared_experts.up_proj "
     "mlp.up_proj self_attn.b_proj self_attn.conv1d self_attn.f_a_proj self_attn.f_b_proj "
     "self_attn.forget_gate.f_a_proj self_attn.forget_gate.f_b_proj self_attn.g_a_proj "
     "self_attn.g_b_proj self_attn.k_conv1d self_attn.k_proj self_attn.kv_a_layernorm "
     "self_attn.kv_a_proj_with_mqa self_attn.kv_b_proj self_attn.o_norm "
     "self_attn.q_a_layernorm self_attn.q_a_proj self_attn.q_b_proj self_attn.q_conv1d "
     "self_attn.v_conv1d self_attn.v_proj"},
    {"kolibri1",
     "input_layernorm mlp.gate mlp.shared_experts.down_proj mlp.shared_experts.gate_proj "
     "mlp.shared_experts.up_proj post_attention_layernorm self_attn.k_norm "
     "self_attn.k_proj self_attn.o_proj self_attn.q_norm self_attn.q_proj self_attn.v_proj",
     "mlp.experts.#.down_proj mlp.experts.#.gate_proj mlp.experts.#.up_proj post_attn_norm "
     "post_ffn_norm post_mlp_layernorm post_self_attn_layernorm"},
    {"laguna",
     "input_layernorm post_attention_layernorm self_attn.g_proj self_attn.k_norm "
     "self_attn.k_proj self_attn.o_proj self_attn.q_norm self_attn.q_proj self_attn.v_proj",
     "mlp.down_proj mlp.experts.#.down_proj mlp.experts.#.gate_proj mlp.experts.#.up_proj "
     "mlp.gate mlp.gate_proj mlp.shared_expert.down_proj mlp.shared_expert.gate_proj "
     "mlp.shared_expert.up_proj mlp.shared_experts.down_proj mlp.shared_experts.gate_proj "
     "mlp.shared_experts.up_proj mlp.up_proj"},
    {"led",
     "fc1 fc2 final_layer_norm self_attn.longformer_self_attn.key "
     "self_attn.longformer_self_attn.key_global self_attn.longformer_self_attn.query "
     "self_attn.longformer_self_attn.query_global self_attn.longformer_self_attn.value "
     "self_attn.longformer_self_attn.value_global self_attn.output self_attn_layer_norm",
     "encoder_attn.k_proj encoder_attn.out_proj encoder_attn.q_proj encoder_attn.v_proj "
     "encoder_attn_layer_norm self_attn.k_proj self_attn.out_proj self_attn.q_proj "
     "self_attn.v_proj"},
    {"lfm2",
     "feed_forward.w1 feed_forward.w2 feed_forward.w3 ffn_norm operator_norm "
     "self_attn.k_layernorm self_attn.k_proj self_attn.out_proj self_attn.q_layernorm "
     "self_attn.q_proj self_attn.v_proj",
     "conv.conv conv.in_proj conv.out_proj"},
    {"lfm2_moe",
     "feed_forward.gate ffn_norm operator_norm",
     "conv.conv conv.in_proj conv.out_proj feed_forward.experts.#.w1 "
     "feed_forward.experts.#.w2 feed_forward.experts.#.w3 feed_forward.w1 feed_forward.w2 "
     "feed_forward.w3 self_attn.k_layernorm self_attn.k_proj self_attn.out_proj "
     "self_attn.q_layernorm self_attn.q_proj self_attn.v_proj"},
    {"lfm3",
     "feed_forward.w1 feed_forward.w2 feed_forward.w3 ffn_norm operator_norm",
     "conv.conv conv.in_proj conv.out_proj post_ffn_norm post_operator_norm "
     "self_attn.g_proj self_attn.gate_proj self_attn.k_norm self_attn.k_proj "
     "self_attn.o_proj self_attn.q_norm self_attn.q_proj self_attn.v_proj"},
    {"llama4_text",
     "input_layernorm post_attention_layernorm self_attn.k_proj self_attn.o_proj "
     "self_attn.q_proj self_attn.v_proj",
     "feed_forward.down_proj feed_forward.gate_proj feed_forward.router "
     "feed_forward.shared_expert.down_proj feed_forward.shared_expert.gate_proj "
     "feed_forward.shared_expert.up_proj feed_forward.up_proj"},
    {"longformer",
     "attention.output.LayerNorm attention.output.dense attention.self.key "
     "attention.self.key_global attention.self.query attention.self.query_global "
     "attention.self.value attention.self.value_global intermediate.dense output.LayerNorm "
     "output.dense",
     ""},
    {"longt5",
     "layer.#.DenseReluDense.wo layer.#.layer_norm",
     "layer.#.DenseReluDense.wi layer.#.DenseReluDense.wi_0 layer.#.DenseReluDense.wi_1 "
     "layer.#.EncDecAttention.k layer.#.EncDecAttention.o layer.#.EncDecAttention.q "
     "layer.#.EncDecAttention.v layer.#.LocalSelfAttention.k layer.#.LocalSelfAttention.o "
     "layer.#.LocalSelfAttention.q layer.#.LocalSelfAttention.relative_attention_bias "
     "layer.#.LocalSelfAttention.v layer.#.SelfAttention.k layer.#.SelfAttention.o "
     "layer.#.SelfAttention.q layer.#.SelfAttention.relative_attention_bias "
     "layer.#.SelfAttention.v layer.#.TransientGlobalSelfAttention.global_input_layer_norm "
     "layer.#.TransientGlobalSelfAttention.global_relative_attention_bias "
     "layer.#.TransientGlobalSelfAttention.k layer.#.TransientGlobalSelfAttention.o "
     "layer.#.TransientGlobalSelfAttention.q "
     "layer.#.TransientGlobalSelfAttention.relative_attention_bias "
     "layer.#.TransientGlobalSelfAttention.v"},
    {"luke",
     "attention.output.LayerNorm attention.output.dense attention.self.key "
     "attention.self.query attention.self.value intermediate.dense output.LayerNorm "
     "output.dense",
     "attention.self.e2e_query attention.self.e2w_query attention.self.w2e_query"},
    {"lxmert",
     "attention.output.LayerNorm attention.output.dense attention.self.key "
     "attention.self.query attention.self.value intermediate.dense output.LayerNorm "
     "output.dense",
     "lang_inter.dense lang_output.LayerNorm lang_output.dense "
     "lang_self_att.output.LayerNorm lang_self_att.output.dense lang_self_att.self.key "
     "lang_self_att.self.query lang_self_att.self.value visn_inter.dense "
     "visn_output.LayerNorm visn_output.dense visn_self_att.output.LayerNorm "
     "visn_self_att.output.dense visn_self_att.self.key visn_self_att.self.query "
     "visn_self_att.self.value visual_attention.att.key visual_attention.att.query "
     "visual_attention.att.value visual_attention.output.LayerNorm "
     "visual_attention.output.dense"},
    {"mamba2",
     "mixer.conv1d mixer.in_proj mixer.norm mixer.out_proj norm",
     ""},
    {"megatron-bert",
     "attention.ln attention.output.dense attention.self.key attention.self.query "
     "attention.self.value intermediate.dense ln output.dense",
     ""},
    {"mellum olmoe",
     "input_layernorm mlp.gate post_attention_layernorm self_attn.k_norm self_attn.k_proj "
     "self_attn.o_proj self_attn.q_norm self_attn.q_proj self_attn.v_proj",
     "mlp.experts.#.down_proj mlp.experts.#.gate_proj mlp.experts.#.up_proj"},
    {"mimo_v2_flash",
     "input_layernorm post_attention_layernorm self_attn.k_proj self_attn.o_proj "
     "self_attn.q_proj self_attn.v_proj",
     "mlp.down_proj mlp.experts.#.down_proj mlp.experts.#.gate_proj mlp.experts.#.up_proj "
     "mlp.gate mlp.gate_proj mlp.up_proj"},
    {"minicpm3 youtu",
     "input_layernorm mlp.down_proj mlp.gate_proj mlp.up_proj post_attention_layernorm "
     "self_attn.kv_a_layernorm self_attn.kv_a_proj_with_mqa self_attn.kv_b_proj "
     "self_attn.o_proj",
     "self_attn.q_a_layernorm self_attn.q_a_proj self_attn.q_b_proj self_attn.q_proj"},
    {"minimax",
     "input_layernorm post_attention_layernorm",
     "block_sparse_moe.experts.#.w1 block_sparse_moe.experts.#.w2 "
     "block_sparse_moe.experts.#.w3 block_sparse_moe.gate mlp.gate self_attn.k_proj "
     "self_attn.norm self_attn.o_proj self_attn.out_proj self_attn.output_gate "
     "self_attn.q_proj self_attn.qkv_proj self_attn.v_proj"},
    {"minimax_m2",
     "input_layernorm post_attention_layernorm self_attn.k_norm self_attn.k_proj "
     "self_attn.o_proj self_attn.q_norm self_attn.q_proj self_attn.v_proj",
     "block_sparse_moe.experts.#.w1 block_sparse_moe.experts.#.w2 "
     "block_sparse_moe.experts.#.w3 block_sparse_moe.gate mlp.gate"},
    {"minimax_m3_vl_text",
     "input_layernorm mlp.gate mlp.shared_experts.down_proj "
     "mlp.shared_experts.gate_up_proj post_attention_layernorm self_attn.k_norm "
     "self_attn.k_proj self_attn.o_proj self_attn.q_norm self_attn.q_proj self_attn.v_proj",
     ""},
    {"mistral4",
     "input_layernorm post_attention_layernorm self_attn.kv_a_layernorm "
     "self_attn.kv_a_proj_with_mqa self_attn.kv_b_proj self_attn.o_proj",
     "mlp.down_proj mlp.gate mlp.gate_proj mlp.shared_experts.down_proj "
     "mlp.shared_experts.gate_proj mlp.shared_experts.up_proj mlp.up_proj "
     "self_attn.q_a_layernorm self_attn.q_a_proj self_attn.q_b_proj self_attn.q_proj"},
    {"mixtral",
     "input_layernorm post_attention_layernorm self_attn.k_proj self_attn.o_proj "
     "self_attn.q_proj self_attn.v_proj",
     "block_sparse_moe.experts.#.w1 block_sparse_moe.experts.#.w2 "
     "block_sparse_moe.experts.#.w3 block_sparse_moe.gate mlp.gate"},
    {"mobilebert",
     "attention.output.LayerNorm attention.output.dense attention.self.key "
     "attention.self.query attention.self.value intermediate.dense output.LayerNorm "
     "output.dense",
     "bottleneck.attention.LayerNorm bottleneck.attention.dense bottleneck.input.LayerNorm "
     "bottleneck.input.dense ffn.#.intermediate.dense ffn.#.output.LayerNorm "
     "ffn.#.output.dense output.bottleneck.LayerNorm output.bottleneck.dense"},
    {"modernbert",
     "attn.Wo attn.Wqkv attn_norm mlp.Wi mlp.Wo mlp_norm",
     ""},
    {"modernbert-decoder",
     "attn.Wo attn.k_proj attn.q_proj attn.v_proj attn_norm mlp.Wi mlp.Wo mlp_norm",
     ""},
    {"moonshine",
     "input_layernorm mlp.fc1 mlp.fc2 post_attention_layernorm self_attn.k_proj "
     "self_attn.o_proj self_attn.q_proj self_attn.v_proj",
     "encoder_attn.k_proj encoder_attn.o_proj encoder_attn.q_proj encoder_attn.v_proj "
     "final_layernorm"},
    {"mpnet",
     "attention.LayerNorm attention.attn.k attention.attn.o attention.attn.q "
     "attention.attn.v intermediate.dense output.LayerNorm output.dense",
     ""},
    {"mt5 pop2piano t5 umt5",
     "layer.#.DenseReluDense.wo layer.#.SelfAttention.k layer.#.SelfAttention.o "
     "layer.#.SelfAttention.q layer.#.SelfAttention.relative_attention_bias "
     "layer.#.SelfAttention.v layer.#.layer_norm",
     "layer.#.DenseReluDense.wi layer.#.DenseReluDense.wi_0 layer.#.DenseReluDense.wi_1 "
     "layer.#.EncDecAttention.k layer.#.EncDecAttention.o layer.#.EncDecAttention.q "
     "layer.#.EncDecAttention.relative_attention_bias layer.#.EncDecAttention.v"},
    {"nanochat",
     "mlp.fc1 mlp.fc2 self_attn.k_proj self_attn.o_proj self_attn.q_proj self_attn.v_proj",
     ""},
    {"nemotron_h",
     "norm",
     "mixer.conv1d mixer.down_proj mixer.experts.#.down_proj mixer.experts.#.up_proj "
     "mixer.fc1_latent_proj mixer.fc2_latent_proj mixer.gate mixer.in_proj mixer.k_proj "
     "mixer.norm mixer.o_proj mixer.out_proj mixer.q_proj mixer.shared_experts.down_proj "
     "mixer.shared_experts.up_proj mixer.up_proj mixer.v_proj"},
    {"neomme",
     "mlp.down_proj mlp.up_proj self_attn.k_proj self_attn.output_projection.gate_proj "
     "self_attn.output_projection.o_proj self_attn.q_proj self_attn.v_proj",
     ""},
    {"nllb-moe",
     "ff_layer_norm ffn.fc1 ffn.fc2 self_attn.k_proj self_attn.out_proj self_attn.q_proj "
     "self_attn.v_proj self_attn_layer_norm",
     "cross_attention.k_proj cross_attention.out_proj cross_attention.q_proj "
     "cross_attention.v_proj cross_attention_layer_norm"},
    {"nystromformer",
     "attention.output.LayerNorm attention.output.dense attention.self.conv "
     "attention.self.key attention.self.query attention.self.value intermediate.dense "
     "output.LayerNorm output.dense",
     ""},
    {"olmo",
     "mlp.down_proj mlp.gate_proj mlp.up_proj self_attn.k_proj self_attn.o_proj "
     "self_attn.q_proj self_attn.v_proj",
     ""},
    {"olmo_hybrid",
     "linear_attn.a_proj linear_attn.b_proj linear_attn.g_proj linear_attn.k_proj "
     "linear_attn.o_norm linear_attn.o_proj linear_attn.q_proj linear_attn.v_proj "
     "mlp.down_proj mlp.gate_proj mlp.up_proj post_feedforward_layernorm self_attn.k_norm "
     "self_attn.k_proj self_attn.o_proj self_attn.q_norm self_attn.q_proj self_attn.v_proj",
     "attention_layer_norm feedforward_layer_norm input_layernorm linear_attn.conv1d "
     "linear_attn.k_conv1d linear_attn.q_conv1d linear_attn.v_conv1d "
     "post_attention_layernorm"},
    {"opt",
     "fc1 fc2 self_attn.k_proj self_attn.out_proj self_attn.q_proj self_attn.v_proj",
     "final_layer_norm self_attn_layer_norm"},
    {"pegasus_x",
     "fc1 fc2 final_layer_norm self_attn.k_proj self_attn.out_proj self_attn.q_proj "
     "self_attn.v_proj self_attn_layer_norm",
     "encoder_attn.k_proj encoder_attn.out_proj encoder_attn.q_proj encoder_attn.v_proj "
     "encoder_attn_layer_norm global_self_attn_layer_norm"},
    {"persimmon",
     "input_layernorm mlp.dense_4h_to_h mlp.dense_h_to_4h post_attention_layernorm "
     "self_attn.dense self_attn.query_key_value",
     "self_attn.k_layernorm self_attn.q_layernorm"},
    {"phi",
     "input_layernorm mlp.fc1 mlp.fc2 self_attn.dense self_attn.k_proj self_attn.q_proj "
     "self_attn.v_proj",
     "self_attn.k_layernorm self_attn.q_layernorm"},
    {"phi3",
     "input_layernorm mlp.down_proj mlp.gate_up_proj post_attention_layernorm "
     "self_attn.o_proj self_attn.qkv_proj",
     ""},
    {"phimoe",
     "input_layernorm post_attention_layernorm self_attn.k_proj self_attn.o_proj "
     "self_attn.q_proj self_attn.v_proj",
     "block_sparse_moe.experts.#.w1 block_sparse_moe.experts.#.w2 "
     "block_sparse_moe.experts.#.w3 block_sparse_moe.gate mlp.router"},
    {"prophetnet",
     "feed_forward.intermediate feed_forward.output feed_forward_layer_norm "
     "self_attn.key_proj self_attn.out_proj self_attn.query_proj "
     "self_attn.relative_pos_embeddings self_attn.value_proj self_attn_layer_norm",
     "cross_attn.key_proj cross_attn.out_proj cross_attn.query_proj cross_attn.value_proj "
     "cross_attn_layer_norm"},
    {"qwen2",
     "input_layernorm mlp.down_proj mlp.gate_proj mlp.up_proj post_attention_layernorm "
     "self_attn.k_proj self_attn.o_proj self_attn.q_proj self_attn.v_proj",
     "linear_attn.conv1d linear_attn.in_proj_a linear_attn.in_proj_b "
     "linear_attn.in_proj_qkv linear_attn.in_proj_z linear_attn.norm linear_attn.out_proj "
     "self_attn.k_norm self_attn.q_norm"},
    {"qwen2_moe",
     "input_layernorm post_attention_layernorm self_attn.k_proj self_attn.o_proj "
     "self_attn.q_proj self_attn.v_proj",
     "mlp.down_proj mlp.experts.#.down_proj mlp.experts.#.gate_proj mlp.experts.#.up_proj "
     "mlp.gate mlp.gate_proj mlp.shared_expert.down_proj mlp.shared_expert.gate_proj "
     "mlp.shared_expert.up_proj mlp.shared_expert_gate mlp.up_proj"},
    {"qwen3_5_moe_text",
     "input_layernorm mlp.gate mlp.shared_expert.down_proj mlp.shared_expert.gate_proj "
     "mlp.shared_expert.up_proj mlp.shared_expert_gate post_attention_layernorm",
     "linear_attn.conv1d linear_attn.in_proj_a linear_attn.in_proj_b "
     "linear_attn.in_proj_qkv linear_attn.in_proj_z linear_attn.norm linear_attn.out_proj "
     "mlp.experts.#.down_proj mlp.experts.#.gate_proj mlp.experts.#.up_proj "
     "self_attn.k_norm self_attn.k_proj self_attn.o_proj self_attn.q_norm self_attn.q_proj "
     "self_attn.v_proj"},
    {"qwen3_5_text",
     "input_layernorm mlp.down_proj mlp.gate_proj mlp.up_proj post_attention_layernorm",
     "linear_attn.conv1d linear_attn.in_proj_a linear_attn.in_proj_b "
     "linear_attn.in_proj_qkv linear_attn.in_proj_z linear_attn.norm linear_attn.out_proj "
     "self_attn.k_norm self_attn.k_proj self_attn.o_proj self_attn.q_norm self_attn.q_proj "
     "self_attn.v_proj"},
    {"qwen3_moe",
     "input_layernorm post_attention_layernorm self_attn.k_norm self_attn.k_proj "
     "self_attn.o_proj self_attn.q_norm self_attn.q_proj self_attn.v_proj",
     "mlp.down_proj mlp.experts.#.down_proj mlp.experts.#.gate_proj mlp.experts.#.up_proj "
     "mlp.gate mlp.gate_proj mlp.up_proj"},
    {"qwen3_next",
     "input_layernorm post_attention_layernorm",
     "linear_attn.conv1d linear_attn.in_proj_ba linear_attn.in_proj_qkvz linear_attn.norm "
     "linear_attn.out_proj mlp.down_proj mlp.experts.#.down_proj mlp.experts.#.gate_proj "
     "mlp.experts.#.up_proj mlp.gate mlp.gate_proj mlp.shared_expert.down_proj "
     "mlp.shared_expert.gate_proj mlp.shared_expert.up_proj mlp.shared_expert_gate "
     "mlp.up_proj self_attn.k_norm self_attn.k_proj self_attn.o_proj self_attn.q_norm "
     "self_attn.q_proj self_attn.v_proj"},
    {"recurrent_gemma",
     "channel_pre_norm mlp_block.down_proj mlp_block.gate_proj mlp_block.up_proj "
     "temporal_pre_norm",
     "temporal_block.conv_1d temporal_block.k_proj temporal_block.linear_out "
     "temporal_block.linear_x temporal_block.linear_y temporal_block.o_proj "
     "temporal_block.q_proj temporal_block.v_proj"},
    {"reformer",
     "attention.layer_norm attention.output.dense attention.self_attention.value "
     "feed_forward.dense.dense feed_forward.layer_norm feed_forward.output.dense",
     "attention.self_attention.key attention.self_attention.query "
     "attention.self_attention.query_key"},
    {"roberta-prelayernorm",
     "attention.LayerNorm attention.output.dense attention.self.key attention.self.query "
     "attention.self.value intermediate.LayerNorm intermediate.dense output.dense",
     ""},
    {"rwkv",
     "attention.key attention.output attention.receptance attention.value feed_forward.key "
     "feed_forward.receptance feed_forward.value ln1 ln2 pre_ln",
     ""},
    {"solar_open",
     "input_layernorm mlp.gate mlp.shared_experts.down_proj mlp.shared_experts.gate_proj "
     "mlp.shared_experts.up_proj post_attention_layernorm self_attn.k_proj "
     "self_attn.o_proj self_attn.q_proj self_attn.v_proj",
     "mlp.experts.#.down_proj mlp.experts.#.gate_proj mlp.experts.#.up_proj"},
    {"squeezebert",
     "attention.key attention.query attention.value intermediate.conv1d output.conv1d "
     "output.layernorm post_attention.conv1d post_attention.layernorm",
     ""},
    {"stablelm",
     "input_layernorm mlp.down_proj mlp.gate_proj mlp.up_proj self_attn.k_proj "
     "self_attn.o_proj self_attn.q_proj self_attn.v_proj",
     "post_attention_layernorm self_attn.k_layernorm.norms.# self_attn.q_layernorm.norms.#"},
    {"starcoder2",
     "input_layernorm mlp.c_fc mlp.c_proj post_attention_layernorm self_attn.k_proj "
     "self_attn.o_proj self_attn.q_proj self_attn.v_proj",
     ""},
    {"udop",
     "layer.#.DenseReluDense.wo layer.#.SelfAttention.k layer.#.SelfAttention.o "
     "layer.#.SelfAttention.q layer.#.SelfAttention.relative_attention_bias "
     "layer.#.SelfAttention.v layer.#.layer_norm relative_attention_bias",
     "layer.#.DenseReluDense.wi layer.#.DenseReluDense.wi_0 layer.#.DenseReluDense.wi_1 "
     "layer.#.EncDecAttention.k layer.#.EncDecAttention.o layer.#.EncDecAttention.q "
     "layer.#.EncDecAttention.v"},
    {"unispeech",
     "attention.k_proj attention.out_proj attention.q_proj attention.v_proj conv "
     "feed_forward.intermediate_dense feed_forward.output_dense final_layer_norm "
     "layer_norm",
     ""},
    {"unispeech-sat wav2vec2",
     "attention.k_proj attention.out_proj attention.q_proj attention.v_proj conv "
     "feed_forward.intermediate_dense feed_forward.output_dense final_layer_norm "
     "layer_norm",
     "adapter_layer.linear_1 adapter_layer.linear_2 adapter_layer.norm kernel"},
    {"vaultgemma",
     "input_layernorm mlp.down_proj mlp.gate_proj mlp.up_proj pre_feedforward_layernorm "
     "self_attn.k_proj self_attn.o_proj self_attn.q_proj self_attn.v_proj",
     ""},
    {"videomae",
     "attention.attention.key attention.attention.query attention.attention.value "
     "attention.output.dense intermediate.dense layernorm_after layernorm_before "
     "output.dense",
     ""},
    {"vit_mae",
     "layernorm_after layernorm_before",
     "attention.attention.key attention.attention.query attention.attention.value "
     "attention.k_proj attention.o_proj attention.output.dense attention.q_proj "
     "attention.v_proj intermediate.dense mlp.fc1 mlp.fc2 output.dense"},
    {"wav2vec2-conformer",
     "conv conv_module.batch_norm conv_module.depthwise_conv conv_module.layer_norm "
     "conv_module.pointwise_conv1 conv_module.pointwise_conv2 ffn1.intermediate_dense "
     "ffn1.output_dense ffn1_layer_norm ffn2.intermediate_dense ffn2.output_dense "
     "ffn2_layer_norm final_layer_norm layer_norm self_attn.linear_k self_attn.linear_out "
     "self_attn.linear_q self_attn.linear_v self_attn_layer_norm",
     "kernel self_attn.linear_pos"},
    {"xlm-roberta-xl",
     "LayerNorm attention.output.dense attention.self.key attention.self.query "
     "attention.self.value attention.self_attn_layer_norm intermediate.dense output.dense",
     ""},
    {"xlstm",
     "ffn.proj_down ffn.proj_up ffn.proj_up_gate mlstm_layer.fgate_preact "
     "mlstm_layer.igate_preact mlstm_layer.k mlstm_layer.multihead_norm "
     "mlstm_layer.ogate_preact mlstm_layer.out_proj mlstm_layer.q mlstm_layer.v norm_ffn "
     "norm_mlstm",
     ""},
    {"yoso",
     "attention.output.LayerNorm attention.output.dense attention.self.key "
     "attention.self.query attention.self.value intermediate.dense output.LayerNorm "
     "output.dense",
     "attention.self.conv"},
    {"zaya",
     "input_layernorm mlp.gate.down_proj mlp.gate.router_mlp.fc1 mlp.gate.router_mlp.fc2 "
     "mlp.gate.router_mlp.norm mlp.gate.router_mlp.out_proj post_attention_layernorm "
     "self_attn.o_proj self_attn.qkv_proj.conv_qk_depthwise "
     "self_attn.qkv_proj.conv_qk_grouped self_attn.qkv_proj.k_proj "
     "self_attn.qkv_proj.q_proj self_attn.qkv_proj.v_proj_current "
     "self_attn.qkv_proj.v_proj_delayed",
     ""},
    {NULL, NULL, NULL},
};
