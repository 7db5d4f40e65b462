/* SPDX-License-Identifier: Apache-2.0 */
/*
 * config_classes.c: the table of model classes.
 *
 * Source: the config classes of transformers 5.23 and the code of their models; older spellings
 * (rope_scaling, position_embedding_type, num_labels) as in earlier releases.  Keys that no model
 * uses, or that only change how results are returned, are ignored.
 */
#include "engine/model/config_classes.h"

#define CC_AT(member) offsetof(zt_model_config, member)

/* Sizes without a default of their own become 0 first, and are set later. */
enum { CC_LATER = -1 };

static const zt_config_field bert_fields[] = {
    {"vocab_size", NULL, ZT_CF_SIZE, CC_AT(vocab), 30522},
    {"hidden_size", NULL, ZT_CF_SIZE, CC_AT(hidden), 768},
    {"num_hidden_layers", NULL, ZT_CF_SIZE, CC_AT(layers), 12},
    {"num_attention_heads", NULL, ZT_CF_SIZE, CC_AT(heads), 12},
    {"intermediate_size", NULL, ZT_CF_SIZE, CC_AT(inner), 3072},
    {"max_position_embeddings", NULL, ZT_CF_SIZE, CC_AT(positions), 512},
    {"type_vocab_size", NULL, ZT_CF_SIZE, CC_AT(types), 2},
    {"hidden_dropout_prob", NULL, ZT_CF_RATE, CC_AT(dropout_hidden), 0.1},
    {"attention_probs_dropout_prob", NULL, ZT_CF_RATE, CC_AT(dropout_attention), 0.1},
    {"classifier_dropout", NULL, ZT_CF_RATE, CC_AT(dropout_classifier), CC_LATER},
    {"initializer_range", NULL, ZT_CF_REAL, CC_AT(init_range), 0.02},
    {"layer_norm_eps", NULL, ZT_CF_REAL, CC_AT(norm_eps), 1e-12},
    {"tie_word_embeddings", NULL, ZT_CF_BOOL, CC_AT(tied), 1},
    {NULL, NULL, ZT_CF_SIZE, 0, 0},
};

static const zt_config_field gpt2_fields[] = {
    {"vocab_size", NULL, ZT_CF_SIZE, CC_AT(vocab), 50257},
    {"n_positions", "max_position_embeddings", ZT_CF_SIZE, CC_AT(positions), 1024},
    {"n_embd", "hidden_size", ZT_CF_SIZE, CC_AT(hidden), 768},
    {"n_layer", "num_hidden_layers", ZT_CF_SIZE, CC_AT(layers), 12},
    {"n_head", "num_attention_heads", ZT_CF_SIZE, CC_AT(heads), 12},
    {"n_inner", NULL, ZT_CF_SIZE, CC_AT(inner), CC_LATER},
    {"embd_pdrop", NULL, ZT_CF_RATE, CC_AT(dropout_embed), 0.1},
    {"attn_pdrop", NULL, ZT_CF_RATE, CC_AT(dropout_attention), 0.1},
    {"resid_pdrop", NULL, ZT_CF_RATE, CC_AT(dropout_hidden), 0.1},
    {"initializer_range", NULL, ZT_CF_REAL, CC_AT(init_range), 0.02},
    {"layer_norm_epsilon", NULL, ZT_CF_REAL, CC_AT(norm_eps), 1e-5},
    {"tie_word_embeddings", NULL, ZT_CF_BOOL, CC_AT(tied), 1},
    {"scale_attn_weights", NULL, ZT_CF_BOOL, CC_AT(scale_attention), 1},
    {"scale_attn_by_inverse_layer_idx", NULL, ZT_CF_BOOL, CC_AT(scale_by_layer), 0},
    {NULL, NULL, ZT_CF_SIZE, 0, 0},
};

static const zt_config_field opt_fields[] = {
    {"vocab_size", NULL, ZT_CF_SIZE, CC_AT(vocab), 50272},
    {"max_position_embeddings", NULL, ZT_CF_SIZE, CC_AT(positions), 2048},
    {"hidden_size", NULL, ZT_CF_SIZE, CC_AT(hidden), 768},
    {"word_embed_proj_dim", NULL, ZT_CF_SIZE, CC_AT(embed_width), CC_LATER},
    {"num_hidden_layers", NULL, ZT_CF_SIZE, CC_AT(layers), 12},
    {"num_attention_heads", NULL, ZT_CF_SIZE, CC_AT(heads), 12},
    {"ffn_dim", NULL, ZT_CF_SIZE, CC_AT(inner), 3072},
    {"dropout", NULL, ZT_CF_RATE, CC_AT(dropout_hidden), 0.1},
    {"attention_dropout", NULL, ZT_CF_RATE, CC_AT(dropout_attention), 0},
    {"init_std", NULL, ZT_CF_REAL, CC_AT(init_range), 0.02},
    {"tie_word_embeddings", NULL, ZT_CF_BOOL, CC_AT(tied), 1},
    {"enable_bias", NULL, ZT_CF_BOOL, CC_AT(attention_bias), 1},
    {"do_layer_norm_before", NULL, ZT_CF_BOOL, CC_AT(norm_first), 1},
    {NULL, NULL, ZT_CF_SIZE, 0, 0},
};

static const zt_config_field neox_fields[] = {
    {"vocab_size", NULL, ZT_CF_SIZE, CC_AT(vocab), 50432},
    {"hidden_size", NULL, ZT_CF_SIZE, CC_AT(hidden), 6144},
    {"num_hidden_layers", NULL, ZT_CF_SIZE, CC_AT(layers), 44},
    {"num_attention_heads", NULL, ZT_CF_SIZE, CC_AT(heads), 64},
    {"intermediate_size", NULL, ZT_CF_SIZE, CC_AT(inner), 24576},
    {"max_position_embeddings", NULL, ZT_CF_SIZE, CC_AT(positions), 2048},
    {"attention_dropout", NULL, ZT_CF_RATE, CC_AT(dropout_attention), 0},
    {"hidden_dropout", NULL, ZT_CF_RATE, CC_AT(dropout_hidden), 0},
    {"initializer_range", NULL, ZT_CF_REAL, CC_AT(init_range), 0.02},
    {"layer_norm_eps", NULL, ZT_CF_REAL, CC_AT(norm_eps), 1e-5},
    {"tie_word_embeddings", NULL, ZT_CF_BOOL, CC_AT(tied), 0},
    {"use_parallel_residual", NULL, ZT_CF_BOOL, CC_AT(parallel), 1},
    {"attention_bias", NULL, ZT_CF_BOOL, CC_AT(attention_bias), 1},
    {NULL, NULL, ZT_CF_SIZE, 0, 0},
};

static const zt_config_field bloom_fields[] = {
    {"vocab_size", NULL, ZT_CF_SIZE, CC_AT(vocab), 250880},
    {"hidden_size", "n_embed", ZT_CF_SIZE, CC_AT(hidden), 64},
    {"n_layer", "num_hidden_layers", ZT_CF_SIZE, CC_AT(layers), 2},
    {"n_head", "num_attention_heads", ZT_CF_SIZE, CC_AT(heads), 8},
    {"attention_dropout", NULL, ZT_CF_RATE, CC_AT(dropout_attention), 0},
    {"hidden_dropout", NULL, ZT_CF_RATE, CC_AT(dropout_hidden), 0},
    {"initializer_range", NULL, ZT_CF_REAL, CC_AT(init_range), 0.02},
    {"layer_norm_epsilon", NULL, ZT_CF_REAL, CC_AT(norm_eps), 1e-5},
    {"tie_word_embeddings", NULL, ZT_CF_BOOL, CC_AT(tied), 1},
    {NULL, NULL, ZT_CF_SIZE, 0, 0},
};

/* Llama and related models have the same keys, with other defaults. */
#define CC_LLAMA(vocabulary, width, n_layers, n_heads, inner_width, n_positions, are_tied)         \
    {"vocab_size", NULL, ZT_CF_SIZE, CC_AT(vocab), vocabulary},                                    \
        {"hidden_size", NULL, ZT_CF_SIZE, CC_AT(hidden), width},                                   \
        {"num_hidden_layers", NULL, ZT_CF_SIZE, CC_AT(layers), n_layers},                          \
        {"num_attention_heads", NULL, ZT_CF_SIZE, CC_AT(heads), n_heads},                          \
        {"intermediate_size", NULL, ZT_CF_SIZE, CC_AT(inner), inner_width},                        \
        {"max_position_embeddings", NULL, ZT_CF_SIZE, CC_AT(positions), n_positions},              \
        {"attention_dropout", NULL, ZT_CF_RATE, CC_AT(dropout_attention), 0},                      \
        {"initializer_range", NULL, ZT_CF_REAL, CC_AT(init_range), 0.02},                          \
    {                                                                                              \
        "tie_word_embeddings", NULL, ZT_CF_BOOL, CC_AT(tied), are_tied                             \
    }

static const zt_config_field llama_fields[] = {
    CC_LLAMA(32000, 4096, 32, 32, 11008, 2048, 0),
    {"rms_norm_eps", NULL, ZT_CF_REAL, CC_AT(norm_eps), 1e-6},
    {"num_key_value_heads", NULL, ZT_CF_SIZE, CC_AT(kv_heads), CC_LATER},
    {"head_dim", NULL, ZT_CF_SIZE, CC_AT(head_width), CC_LATER},
    {"attention_bias", NULL, ZT_CF_BOOL, CC_AT(attention_bias), 0},
    {"mlp_bias", NULL, ZT_CF_BOOL, CC_AT(mlp_bias), 0},
    {NULL, NULL, ZT_CF_SIZE, 0, 0},
};

static const zt_config_field qwen2_fields[] = {
    CC_LLAMA(151936, 4096, 32, 32, 22016, 32768, 0),
    {"rms_norm_eps", NULL, ZT_CF_REAL, CC_AT(norm_eps), 1e-6},
    {"num_key_value_heads", NULL, ZT_CF_HEADS, CC_AT(kv_heads), 32},
    {"head_dim", NULL, ZT_CF_SIZE, CC_AT(head_width), CC_LATER},
    {NULL, NULL, ZT_CF_SIZE, 0, 0},
};

static const zt_config_field qwen3_fields[] = {
    CC_LLAMA(151936, 4096, 32, 32, 22016, 32768, 0),
    {"rms_norm_eps", NULL, ZT_CF_REAL, CC_AT(norm_eps), 1e-6},
    {"num_key_value_heads", NULL, ZT_CF_HEADS, CC_AT(kv_heads), 32},
    {"head_dim", NULL, ZT_CF_SIZE, CC_AT(head_width), 128},
    {"attention_bias", NULL, ZT_CF_BOOL, CC_AT(attention_bias), 0},
    {NULL, NULL, ZT_CF_SIZE, 0, 0},
};

static const zt_config_field mistral_fields[] = {
    CC_LLAMA(32000, 4096, 32, 32, 14336, 131072, 0),
    {"rms_norm_eps", NULL, ZT_CF_REAL, CC_AT(norm_eps), 1e-6},
    {"num_key_value_heads", NULL, ZT_CF_HEADS, CC_AT(kv_heads), 8},
    {"head_dim", NULL, ZT_CF_SIZE, CC_AT(head_width), CC_LATER},
    {NULL, NULL, ZT_CF_SIZE, 0, 0},
};

static const zt_config_field olmo2_fields[] = {
    CC_LLAMA(50304, 4096, 32, 32, 11008, 2048, 0),
    {"rms_norm_eps", NULL, ZT_CF_REAL, CC_AT(norm_eps), 1e-5},
    {"num_key_value_heads", NULL, ZT_CF_SIZE, CC_AT(kv_heads), CC_LATER},
    {"head_dim", NULL, ZT_CF_SIZE, CC_AT(head_width), CC_LATER},
    {"attention_bias", NULL, ZT_CF_BOOL, CC_AT(attention_bias), 0},
    {NULL, NULL, ZT_CF_SIZE, 0, 0},
};

/* Keys of all Gemma models, after those of Llama. */
#define CC_GEMMA(capped_scores, capped_logits)                                                     \
    {"rms_norm_eps", NULL, ZT_CF_REAL, CC_AT(norm_eps), 1e-6},                                     \
        {"num_key_value_heads", NULL, ZT_CF_SIZE, CC_AT(kv_heads), 4},                             \
        {"head_dim", NULL, ZT_CF_SIZE, CC_AT(head_width), 256},                                    \
        {"attention_bias", NULL, ZT_CF_BOOL, CC_AT(attention_bias), 0},                            \
        {"query_pre_attn_scalar", NULL, ZT_CF_ABOVE, CC_AT(score_width), 256},                     \
        {"attn_logit_softcapping", NULL, ZT_CF_CAP, CC_AT(score_cap), capped_scores},              \
    {                                                                                              \
        "final_logit_softcapping", NULL, ZT_CF_CAP, CC_AT(logit_cap), capped_logits                \
    }

static const zt_config_field gemma2_fields[] = {
    CC_LLAMA(256000, 2304, 26, 8, 9216, 8192, 1),
    CC_GEMMA(50, 30),
    {NULL, NULL, ZT_CF_SIZE, 0, 0},
};

static const zt_config_field gemma3_fields[] = {
    CC_LLAMA(262208, 2304, 26, 8, 9216, 131072, 1),
    CC_GEMMA(0, 0),
    {NULL, NULL, ZT_CF_SIZE, 0, 0},
};

static const zt_config_field phi3_fields[] = {
    CC_LLAMA(32064, 3072, 32, 32, 8192, 4096, 0),
    {"rms_norm_eps", NULL, ZT_CF_REAL, CC_AT(norm_eps), 1e-5},
    {"num_key_value_heads", NULL, ZT_CF_SIZE, CC_AT(kv_heads), CC_LATER},
    {"head_dim", NULL, ZT_CF_SIZE, CC_AT(head_width), CC_LATER},
    {"resid_pdrop", NULL, ZT_CF_RATE, CC_AT(dropout_hidden), 0},
    {NULL, NULL, ZT_CF_SIZE, 0, 0},
};

static const zt_config_field t5_fields[] = {
    {"vocab_size", NULL, ZT_CF_SIZE, CC_AT(vocab), 32128},
    {"d_model", "hidden_size", ZT_CF_SIZE, CC_AT(hidden), 512},
    {"d_kv", "head_dim", ZT_CF_SIZE, CC_AT(head_width), 64},
    {"d_ff", NULL, ZT_CF_SIZE, CC_AT(inner), 2048},
    {"num_layers", NULL, ZT_CF_SIZE, CC_AT(layers), 6},
    {"num_decoder_layers", NULL, ZT_CF_SIZE, CC_AT(decoder_layers), CC_LATER},
    {"num_heads", "num_attention_heads", ZT_CF_SIZE, CC_AT(heads), 8},
    {"relative_attention_num_buckets", NULL, ZT_CF_SIZE, CC_AT(buckets), 32},
    {"relative_attention_max_distance", NULL, ZT_CF_SIZE, CC_AT(max_distance), 128},
    {"dropout_rate", NULL, ZT_CF_RATE, CC_AT(dropout_hidden), 0.1},
    {"layer_norm_epsilon", NULL, ZT_CF_REAL, CC_AT(norm_eps), 1e-6},
    {"initializer_factor", NULL, ZT_CF_REAL, CC_AT(init_range), 1},
    {"tie_word_embeddings", NULL, ZT_CF_BOOL, CC_AT(tied), 1},
    {"scale_decoder_outputs", NULL, ZT_CF_BOOL, CC_AT(scale_outputs), 1},
    {NULL, NULL, ZT_CF_SIZE, 0, 0},
};

/* Refused for models of one stack. */
const zt_config_refusal zt_config_stack_refusals[] = {
    {"is_encoder_decoder", NULL, "of models with an encoder and a decoder only T5 is supported"},
    {"add_cross_attention", NULL, "cross-attention is not supported"},
    {NULL, NULL, NULL},
};

const zt_config_refusal zt_config_common_refusals[] = {
    {"quantization_config", NULL, "quantized weights cannot be trained here"},
    {"per_layer_config", NULL, "layers that differ from each other are not supported"},
    {"pruned_heads", NULL, "pruned heads are not supported"},
    {NULL, NULL, NULL},
};

static const zt_config_refusal bert_refusals[] = {
    {"is_decoder", NULL, "BERT is supported as an encoder only"},
    {"position_embedding_type", "absolute", "only absolute positions are supported"},
    {"embedding_size", NULL, "embeddings of another width than hidden_size are not supported"},
    {NULL, NULL, NULL},
};

static const zt_config_refusal opt_refusals[] = {
    {"layerdrop", NULL, "leaving out layers at random is not supported"},
    {NULL, NULL, NULL},
};

static const zt_config_refusal neox_refusals[] = {
    {"head_dim", NULL,
     "heads of another width than hidden_size / num_attention_heads are not "
     "supported"},
    {NULL, NULL, NULL},
};

static const zt_config_refusal olmo2_refusals[] = {
    {"clip_qkv", NULL, "limits of q, k and v are not supported"},
    {NULL, NULL, NULL},
};

static const zt_config_refusal gemma_refusals[] = {
    {"use_bidirectional_attention", NULL, "attention to later tokens is not supported"},
    {NULL, NULL, NULL},
};

static const zt_config_refusal gemma3_refusals[] = {
    {"use_bidirectional_attention", NULL, "attention to later tokens is not supported"},
    {"attn_logit_softcapping", NULL, "transformers does not cap the scores of Gemma 3"},
    {NULL, NULL, NULL},
};

/* Keys of Microsoft's own code that transformers does not follow. */
static const zt_config_refusal phi3_refusals[] = {
    {"embd_pdrop", NULL, "dropout of embeddings is not supported, and transformers has none"},
    {"attention_bias", NULL, "biases are not supported"},
    {"mlp_bias", NULL, "biases are not supported"},
    {"lm_head_bias", NULL, "biases are not supported"},
    {NULL, NULL, NULL},
};

static const zt_config_refusal bloom_refusals[] = {
    {"apply_residual_connection_post_layernorm", NULL,
     "residuals that start from a norm are not supported"},
    {"slow_but_exact", NULL, "adding up the parts of pretraining_tp is not supported"},
    {NULL, NULL, NULL},
};

static const zt_config_refusal t5_refusals[] = {
    {"num_hidden_layers", NULL, "T5 has num_layers and num_decoder_layers instead"},
    {NULL, NULL, NULL},
};

static const zt_config_refusal no_refusals[] = {
    {NULL, NULL, NULL},
};

const zt_config_class zt_config_classes[ZT_CONFIG_CLASSES] = {
    {"BertForSequenceClassification", "bert", ZT_BERT_CLASSIFIER, bert_fields, bert_refusals,
     ZT_WINDOW_NONE},
    {"BertForMaskedLM", "bert", ZT_BERT_MLM, bert_fields, bert_refusals, ZT_WINDOW_NONE},
    {"GPT2LMHeadModel", "gpt2", ZT_GPT2, gpt2_fields, no_refusals, ZT_WINDOW_NONE},
    {"T5ForConditionalGeneration", "t5", ZT_T5, t5_fields, t5_refusals, ZT_WINDOW_NONE},
    {ZT_CONFIG_T5_BODY, "t5", ZT_T5, t5_fields, t5_refusals, ZT_WINDOW_NONE},
    {"LlamaForCausalLM", "llama", ZT_LLAMA, llama_fields, no_refusals, ZT_WINDOW_NONE},
    {"Qwen2ForCausalLM", "qwen2", ZT_LLAMA, qwen2_fields, no_refusals, ZT_WINDOW_UPPER},
    {"Qwen3ForCausalLM", "qwen3", ZT_LLAMA, qwen3_fields, no_refusals, ZT_WINDOW_UPPER},
    {"MistralForCausalLM", "mistral", ZT_LLAMA, mistral_fields, no_refusals, ZT_WINDOW_ALL},
    {"Olmo2ForCausalLM", "olmo2", ZT_LLAMA, olmo2_fields, olmo2_refusals, ZT_WINDOW_NONE},
    {"Gemma2ForCausalLM", "gemma2", ZT_LLAMA, gemma2_fields, gemma_refusals, ZT_WINDOW_PATTERN},
    {"Gemma3ForCausalLM", "gemma3_text", ZT_LLAMA, gemma3_fields, gemma3_refusals,
     ZT_WINDOW_PATTERN},
    {"Phi3ForCausalLM", "phi3", ZT_LLAMA, phi3_fields, phi3_refusals, ZT_WINDOW_GIVEN},
    {"OPTForCausalLM", "opt", ZT_OPT, opt_fields, opt_refusals, ZT_WINDOW_NONE},
    {"GPTNeoXForCausalLM", "gpt_neox", ZT_NEOX, neox_fields, neox_refusals, ZT_WINDOW_NONE},
    {"BloomForCausalLM", "bloom", ZT_BLOOM, bloom_fields, bloom_refusals, ZT_WINDOW_NONE},
};
