/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_model_config.c: config.json of transformers: defaults, every key that is honoured, every one
 * that is refused, and what cannot be.
 */
#include <math.h>
#include <unistd.h>

#include "engine/model/model.h"
#include "tests/unit/unit.h"

#define BERT    "\"model_type\": \"bert\", \"problem_type\": \"regression\", \"num_labels\": 1"
#define MLM     "\"architectures\": [\"BertForMaskedLM\"]"
#define CLS     "\"architectures\": [\"BertForSequenceClassification\"]"
#define T5      "\"architectures\": [\"T5ForConditionalGeneration\"]"
#define GPT2    "\"model_type\": \"gpt2\""
#define LLAMA   "\"model_type\": \"llama\""
#define QWEN2   "\"model_type\": \"qwen2\""
#define QWEN3   "\"architectures\": [\"Qwen3ForCausalLM\"], \"model_type\": \"qwen3\""
#define OPT     "\"architectures\": [\"OPTForCausalLM\"]"
#define BLOOM   "\"architectures\": [\"BloomForCausalLM\"]"
#define NEOX    "\"architectures\": [\"GPTNeoXForCausalLM\"]"
#define MISTRAL "\"architectures\": [\"MistralForCausalLM\"]"
#define GEMMA2  "\"architectures\": [\"Gemma2ForCausalLM\"]"
#define PHI3    "\"architectures\": [\"Phi3ForCausalLM\"]"
#define GEMMA3  "\"architectures\": [\"Gemma3ForCausalLM\"]"
#define OLMO2   "\"architectures\": [\"Olmo2ForCausalLM\"]"

static ckpt_arena *arena;
static char folder[] = "/tmp/test_model_config_XXXXXX";
static char file[sizeof folder + 16];

static int set_up(void **state)
{
    (void)state;
    arena = ckpt_arena_new(0);
    if (!arena || !mkdtemp(folder))
        return -1;
    (void)snprintf(file, sizeof file, "%s/config.json", folder);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    ckpt_arena_free(arena);
    (void)unlink(file);
    return rmdir(folder);
}

/* Read a file with this text inside braces. */
static int reading(zt_model_config *c, const char *text, ckpt_err *err)
{
    FILE *f = fopen(file, "wb");

    assert_non_null(f);
    assert_true(fprintf(f, "{%s}\n", text) > 0);
    assert_int_equal(fclose(f), 0);
    *err = (ckpt_err){0};
    return zt_model_config_read(c, arena, folder, err);
}

static zt_model_config good(const char *text)
{
    zt_model_config c;
    ckpt_err err;

    if (reading(&c, text, &err) != CKPT_OK)
        fail_msg("%s: %s", text, err.text);
    return c;
}

/* It fails with this code, and the text says this word. */
static void bad(const char *text, int code, const char *word)
{
    zt_model_config c;
    ckpt_err err;
    const int rc = reading(&c, text, &err);

    if (rc != code || !strstr(err.text, word))
        fail_msg("%s: code %d, not %d, or no \"%s\" in \"%s\"", text, rc, code, word, err.text);
}

static void near(float got, double want)
{
    assert_true(got == (float)want);
}

/* ---- defaults ---------------------------------------------------------------------------- */

static void bert_defaults(void **state)
{
    const zt_model_config c = good(CLS);

    (void)state;
    assert_int_equal(c.arch, ZT_BERT_CLASSIFIER);
    assert_string_equal(c.class_name, "BertForSequenceClassification");
    assert_string_equal(c.model_type, "bert");
    assert_true(c.vocab == 30522 && c.positions == 512 && c.hidden == 768 && c.layers == 12);
    assert_true(c.heads == 12 && c.kv_heads == 12 && c.head_width == 64 && c.inner == 3072);
    assert_true(c.types == 2 && c.labels == 2 && !c.multi_label && c.padding == 0);
    assert_true(c.act == ZT_GELU && c.tied && c.attention_bias && c.mlp_bias);
    assert_true(c.scale_attention && !c.scale_by_layer);
    near(c.norm_eps, 1e-12);
    near(c.init_range, 0.02);
    near(c.dropout_embed, 0.1);
    near(c.dropout_attention, 0.1);
    near(c.dropout_hidden, 0.1);
    near(c.dropout_classifier, 0.1);
    assert_non_null(ckpt_value_get(c.json, "architectures"));
}

static void gpt2_defaults(void **state)
{
    const zt_model_config c = good(GPT2);

    (void)state;
    assert_int_equal(c.arch, ZT_GPT2);
    assert_string_equal(c.class_name, "GPT2LMHeadModel");
    assert_true(c.vocab == 50257 && c.positions == 1024 && c.hidden == 768 && c.layers == 12);
    assert_true(c.heads == 12 && c.kv_heads == 12 && c.head_width == 64 && c.inner == 3072);
    assert_true(c.act == ZT_GELU_TANH && c.tied && c.padding == -1 && c.attention_bias);
    assert_true(c.scale_attention && !c.scale_by_layer);
    near(c.norm_eps, 1e-5);
    near(c.dropout_embed, 0.1);
    near(c.dropout_attention, 0.1);
    near(c.dropout_hidden, 0.1);
}

static void t5_defaults(void **state)
{
    const zt_model_config c = good(T5);

    (void)state;
    assert_int_equal(c.arch, ZT_T5);
    assert_int_equal(good("\"model_type\": \"t5\"").arch, ZT_T5);
    assert_true(c.vocab == 32128 && c.hidden == 512 && c.layers == 6 && c.decoder_layers == 6);
    assert_true(c.heads == 8 && c.kv_heads == 8 && c.head_width == 64 && c.inner == 2048);
    assert_true(c.buckets == 32 && c.max_distance == 128 && c.positions == INT32_MAX);
    assert_true(c.act == ZT_RELU && !c.gated && c.tied && c.scale_outputs && c.padding == -1);
    assert_true(c.decoder_pad == 0 && c.decoder_start == 0 && !c.attention_bias && !c.mlp_bias);
    near(c.norm_eps, 1e-6);
    near(c.init_range, 1);
    near(c.dropout_embed, 0.1);
    near(c.dropout_attention, 0.1);
    near(c.dropout_hidden, 0.1);
}

/* T5 1.1 and what differs from file to file. */
static void t5_settings(void **state)
{
    zt_model_config c;

    (void)state;
    c = good(T5 ", \"feed_forward_proj\": \"gated-gelu\", \"tie_word_embeddings\": false,"
                "\"num_decoder_layers\": 2, \"num_layers\": 3, \"d_kv\": 10, \"num_heads\": 3,"
                "\"pad_token_id\": 7, \"is_encoder_decoder\": true");
    assert_true(c.act == ZT_GELU_TANH && c.gated && !c.tied && !c.scale_outputs);
    assert_true(c.layers == 3 && c.decoder_layers == 2 && c.head_width == 10 && c.heads == 3);
    assert_true(c.decoder_pad == 7 && c.decoder_start == 7);
    // as transformers 5 writes it
    c = good(T5 ", \"tie_word_embeddings\": true, \"scale_decoder_outputs\": false,"
                "\"decoder_start_token_id\": 5");
    assert_true(!c.tied && !c.scale_outputs && c.decoder_pad == 0 && c.decoder_start == 5);
    c = good(T5 ", \"feed_forward_proj\": \"gelu\", \"num_decoder_layers\": null");
    assert_true(c.act == ZT_GELU && !c.gated && c.decoder_layers == 6);
    assert_true(good(T5 ", \"feed_forward_proj\": \"gated-silu\"").act == ZT_SILU);
    bad(T5 ", \"feed_forward_proj\": \"gated-\"", CKPT_EUNSUPPORTED, "feed_forward_proj");
    bad(T5 ", \"feed_forward_proj\": \"mish\"", CKPT_EUNSUPPORTED, "mish");
    bad(T5 ", \"feed_forward_proj\": 3", CKPT_EUNSUPPORTED, "feed_forward_proj");
    bad(T5 ", \"decoder_start_token_id\": 32128", CKPT_EFORMAT, "decoder_start_token_id");
    bad(T5 ", \"pad_token_id\": -1", CKPT_EFORMAT, "pad_token_id");
    bad(T5 ", \"relative_attention_num_buckets\": 3", CKPT_EUNSUPPORTED, "num_buckets");
    bad(T5 ", \"relative_attention_max_distance\": 16", CKPT_EUNSUPPORTED, "max_distance");
    bad(T5 ", \"num_layers\": 65537", CKPT_EFORMAT, "too large");
    bad(T5 ", \"num_decoder_layers\": 65537", CKPT_EFORMAT, "too large");
}

static void llama_defaults(void **state)
{
    const zt_model_config c = good(LLAMA);

    (void)state;
    assert_int_equal(c.arch, ZT_LLAMA);
    assert_string_equal(c.class_name, "LlamaForCausalLM");
    assert_true(c.vocab == 32000 && c.positions == 2048 && c.hidden == 4096 && c.layers == 32);
    assert_true(c.heads == 32 && c.kv_heads == 32 && c.head_width == 128 && c.inner == 11008);
    assert_true(c.act == ZT_SILU && !c.tied && c.padding == -1);
    assert_true(!c.attention_bias && !c.mlp_bias && c.scale_attention);
    assert_true(c.rope_theta == 10000 && c.rope_kind == ZT_ROPE_DEFAULT);
    near(c.norm_eps, 1e-6);
    near(c.dropout_attention, 0);
    near(c.dropout_hidden, 0);
}

static void kin_defaults(void **state)
{
    zt_model_config c = good(QWEN2);

    (void)state;
    assert_int_equal(c.arch, ZT_LLAMA);
    assert_string_equal(c.class_name, "Qwen2ForCausalLM");
    assert_true(c.vocab == 151936 && c.hidden == 4096 && c.inner == 22016 && c.positions == 32768);
    assert_true(c.kv_heads == 32 && c.head_width == 128 && c.window == 0 && !c.slides);
    assert_true(c.attention_bias && !c.output_bias && !c.mlp_bias && !c.qk_norm && !c.tied);
    c = good(QWEN3);
    assert_string_equal(c.model_type, "qwen3");
    assert_true(c.hidden == 4096 && c.heads == 32 && c.kv_heads == 32 && c.head_width == 128);
    assert_true(!c.attention_bias && !c.output_bias && c.qk_norm && c.window == 0);
    c = good(MISTRAL ", \"sliding_window\": null");
    assert_string_equal(c.model_type, "mistral");
    assert_true(c.vocab == 32000 && c.inner == 14336 && c.positions == 131072 && c.kv_heads == 8);
    assert_true(!c.attention_bias && !c.qk_norm && c.window == 0 && c.rope_theta == 10000);
    near(c.norm_eps, 1e-6);
}

/* ---- keys -------------------------------------------------------------------------------- */

static void bert_keys(void **state)
{
    zt_model_config c =
        good(MLM ", \"vocab_size\": 61, \"hidden_size\": 24, \"num_hidden_layers\": 3,"
                 "\"num_attention_heads\": 6, \"intermediate_size\": 44, \"hidden_act\": \"relu\","
                 "\"max_position_embeddings\": 16, \"type_vocab_size\": 5, \"pad_token_id\": 7,"
                 "\"hidden_dropout_prob\": 0.25, \"attention_probs_dropout_prob\": 0,"
                 "\"layer_norm_eps\": 1e-6, \"initializer_range\": 0.5,"
                 "\"tie_word_embeddings\": false, \"position_embedding_type\": \"absolute\"");

    (void)state;
    assert_int_equal(c.arch, ZT_BERT_MLM);
    assert_true(c.vocab == 61 && c.hidden == 24 && c.layers == 3 && c.heads == 6);
    assert_true(c.inner == 44 && c.act == ZT_RELU && c.positions == 16 && c.types == 5);
    assert_true(c.padding == 7 && !c.tied && c.head_width == 4);
    near(c.dropout_hidden, 0.25);
    near(c.dropout_embed, 0.25);
    near(c.dropout_classifier, 0.25);
    near(c.dropout_attention, 0);
    near(c.norm_eps, 1e-6);
    near(c.init_range, 0.5);
    c = good(CLS ", \"classifier_dropout\": 0, \"pad_token_id\": null");
    near(c.dropout_classifier, 0);
    near(c.dropout_hidden, 0.1);
    assert_true(c.padding == -1);
    // torch counts a negative row from the end
    assert_true(good(CLS ", \"pad_token_id\": -1").padding == 30521);
}

static void gpt2_keys(void **state)
{
    zt_model_config c =
        good(GPT2 ", \"vocab_size\": 97, \"n_embd\": 20, \"n_head\": 4, \"n_inner\": null,"
                  "\"n_layer\": 2, \"n_positions\": 16, \"activation_function\": \"silu\","
                  "\"resid_pdrop\": 0.5, \"embd_pdrop\": 0.25, \"attn_pdrop\": 1,"
                  "\"scale_attn_weights\": false, \"scale_attn_by_inverse_layer_idx\": true,"
                  "\"layer_norm_epsilon\": 1, \"tie_word_embeddings\": false,"
                  "\"reorder_and_upcast_attn\": true");

    (void)state;
    assert_true(c.vocab == 97 && c.hidden == 20 && c.heads == 4 && c.inner == 80);
    assert_true(c.layers == 2 && c.positions == 16 && c.act == ZT_SILU && c.head_width == 5);
    assert_true(!c.scale_attention && c.scale_by_layer && !c.tied);
    near(c.dropout_hidden, 0.5);
    near(c.dropout_embed, 0.25);
    near(c.dropout_attention, 1);
    near(c.norm_eps, 1);
    assert_true(good(GPT2 ", \"n_inner\": 36").inner == 36);
    // the common names win, as they are set last
    c = good(GPT2 ", \"n_embd\": 20, \"hidden_size\": 24, \"num_attention_heads\": 3,"
                  "\"num_hidden_layers\": 5, \"max_position_embeddings\": 9");
    assert_true(c.hidden == 24 && c.heads == 3 && c.layers == 5 && c.positions == 9);
}

static void opt_keys(void **state)
{
    zt_model_config c = good(OPT);

    (void)state;
    assert_true(c.arch == ZT_OPT && c.vocab == 50272 && c.hidden == 768 && c.embed_width == 768);
    assert_true(c.layers == 12 && c.heads == 12 && c.inner == 3072 && c.positions == 2048);
    assert_true(c.act == ZT_RELU && c.padding == 1 && c.tied && c.norm_first && c.final_norm);
    assert_true(c.attention_bias && c.output_bias && c.mlp_bias);
    near(c.dropout_hidden, 0.1);
    near(c.dropout_attention, 0);
    near(c.norm_eps, 1e-5);
    c = good(OPT
             ", \"do_layer_norm_before\": false, \"word_embed_proj_dim\": 512, \"dropout\": 0.5,"
             "\"enable_bias\": false, \"activation_function\": \"gelu\", \"init_std\": 0.5,"
             "\"layerdrop\": 0.0, \"ffn_dim\": 8, \"pad_token_id\": null");
    assert_true(!c.norm_first && !c.final_norm && c.embed_width == 512 && c.inner == 8);
    assert_true(!c.attention_bias && !c.output_bias && !c.mlp_bias && c.act == ZT_GELU);
    assert_true(c.padding == -1);
    near(c.dropout_hidden, 0.5);
    near(c.init_range, 0.5);
    assert_true(!good(OPT ", \"_remove_final_layer_norm\": true").final_norm);
    bad(OPT ", \"layerdrop\": 0.1", CKPT_EUNSUPPORTED, "layerdrop");
    bad(OPT ", \"layer_norm_elementwise_affine\": false", CKPT_EUNSUPPORTED,
        "layer_norm_elementwise_affine");
    bad(OPT ", \"_remove_final_layer_norm\": 1", CKPT_EFORMAT, "_remove_final_layer_norm");
}

static void neox_keys(void **state)
{
    zt_model_config c = good(NEOX);

    (void)state;
    assert_true(c.arch == ZT_NEOX && c.vocab == 50432 && c.hidden == 6144 && c.layers == 44);
    assert_true(c.heads == 64 && c.inner == 24576 && c.act == ZT_GELU && !c.tied);
    assert_true(c.parallel && c.fused && c.norm_first && c.attention_bias && c.mlp_bias);
    assert_true(c.rotated == 24 && c.padding == -1); // a quarter of 96
    assert_true(c.rope_theta == 10000);
    c = good(NEOX ", \"hidden_size\": 64, \"num_attention_heads\": 4, \"rotary_pct\": 0.5,"
                  "\"rotary_emb_base\": 500, \"use_parallel_residual\": false,"
                  "\"attention_bias\": false, \"hidden_dropout\": 0.5,"
                  "\"hidden_act\": \"gelu_fast\"");
    assert_true(c.rotated == 8 && !c.parallel && !c.attention_bias && !c.output_bias);
    assert_true(c.rope_theta == 500 && c.act == ZT_GELU_TANH);
    near(c.dropout_hidden, 0.5);
    near(c.dropout_embed, 0.5);
    c = good(NEOX ", \"hidden_size\": 64, \"num_attention_heads\": 4, \"rope_parameters\":"
                  "{\"rope_theta\": 70, \"partial_rotary_factor\": 1.0}");
    assert_true(c.rotated == 16 && c.rope_theta == 70);
    bad(NEOX ", \"rotary_pct\": 0", CKPT_EFORMAT, "rotary_pct");
    bad(NEOX ", \"hidden_size\": 24, \"num_attention_heads\": 4, \"rotary_pct\": 0.5",
        CKPT_EUNSUPPORTED, "rotary_pct");
    bad(NEOX ", \"rope_scaling\": {\"type\": \"dynamic\", \"factor\": 2}", CKPT_EUNSUPPORTED,
        "dynamic");
    bad(NEOX ", \"head_dim\": 8", CKPT_EUNSUPPORTED, "head_dim");
}

static void bloom_keys(void **state)
{
    zt_model_config c = good(BLOOM);

    (void)state;
    assert_true(c.arch == ZT_BLOOM && c.vocab == 250880 && c.hidden == 64 && c.layers == 2);
    assert_true(c.heads == 8 && c.inner == 256 && c.act == ZT_GELU_TANH && c.tied);
    assert_true(c.alibi && c.fused && c.norm_first && !c.parallel && c.rotated == 0);
    c = good(BLOOM ", \"n_embed\": 32, \"num_hidden_layers\": 5, \"num_attention_heads\": 4,"
                   "\"hidden_dropout\": 0.5, \"attention_dropout\": 0.25, \"pretraining_tp\": 4,"
                   "\"slow_but_exact\": false, \"seq_length\": 2048");
    assert_true(c.hidden == 32 && c.layers == 5 && c.heads == 4 && c.inner == 128);
    near(c.dropout_hidden, 0.5);
    near(c.dropout_attention, 0.25);
    bad(BLOOM ", \"apply_residual_connection_post_layernorm\": true", CKPT_EUNSUPPORTED,
        "apply_residual_connection_post_layernorm");
    bad(BLOOM ", \"slow_but_exact\": true", CKPT_EUNSUPPORTED, "slow_but_exact");
}

static void olmo2_keys(void **state)
{
    zt_model_config c = good(OLMO2);

    (void)state;
    assert_true(c.arch == ZT_LLAMA && c.vocab == 50304 && c.hidden == 4096 && c.layers == 32);
    assert_true(c.heads == 32 && c.kv_heads == 32 && c.inner == 11008 && c.positions == 2048);
    assert_true(!c.norm_first && c.norm_branch && c.norm_once && !c.norm_plus_one && !c.tied);
    assert_true(c.qk_norm && c.qk_whole && c.rope_exact && !c.attention_bias && !c.output_bias);
    assert_true(c.padding == 1 && c.act == ZT_SILU && c.rope_theta == 10000 && c.window == 0);
    near(c.norm_eps, 1e-5);
    c = good(OLMO2 ", \"attention_bias\": true, \"num_key_value_heads\": 8, \"head_dim\": 64,"
                   "\"rope_theta\": 5e5, \"rms_norm_eps\": 1e-6, \"pad_token_id\": null");
    assert_true(c.attention_bias && c.output_bias && !c.mlp_bias && c.kv_heads == 8);
    assert_true(c.head_width == 64 && c.rope_theta == 5e5 && c.padding == -1);
    near(c.norm_eps, 1e-6);
    bad(OLMO2 ", \"clip_qkv\": 8.0", CKPT_EUNSUPPORTED, "clip_qkv");
    bad(OLMO2 ", \"rope_scaling\": {\"rope_type\": \"yarn\"}", CKPT_EUNSUPPORTED, "yarn");
}

static void gemma2_keys(void **state)
{
    zt_model_config c = good(GEMMA2);

    (void)state;
    assert_true(c.arch == ZT_LLAMA && c.vocab == 256000 && c.hidden == 2304 && c.layers == 26);
    assert_true(c.heads == 8 && c.kv_heads == 4 && c.head_width == 256 && c.inner == 9216);
    assert_true(c.norm_first && c.norm_branch && c.norm_once && c.norm_plus_one && c.tied);
    assert_true(c.act == ZT_GELU_TANH && c.embed_scaled && !c.qk_norm && c.padding == 0);
    assert_true(c.score_width == 256 && c.score_cap == 50 && c.logit_cap == 30 && !c.rope_exact);
    assert_true(c.window == 4096 && c.slides[0] && !c.slides[1] && c.slides[24] && !c.slides[25]);
    c = good(GEMMA2 ", \"attn_logit_softcapping\": null, \"final_logit_softcapping\": null,"
                    "\"hidden_act\": \"gelu\", \"hidden_activation\": \"silu\","
                    "\"query_pre_attn_scalar\": 144, \"attention_bias\": true,"
                    "\"num_hidden_layers\": 2, \"sliding_window\": 7,"
                    "\"layer_types\": [\"full_attention\", \"sliding_attention\"]");
    assert_true(c.score_cap == 0 && c.logit_cap == 0 && c.score_width == 144);
    assert_true(c.act == ZT_SILU && c.attention_bias && c.output_bias && c.window == 7);
    assert_true(!c.slides[0] && c.slides[1]);
    bad(GEMMA2 ", \"sliding_window\": null", CKPT_EFORMAT, "sliding_window is null");
    c = good(GEMMA2 ", \"sliding_window\": null, \"num_hidden_layers\": 1,"
                    "\"layer_types\": [\"full_attention\"]");
    assert_true(c.window == 0 && !c.slides);
    bad(GEMMA2 ", \"attn_logit_softcapping\": 0", CKPT_EFORMAT, "attn_logit_softcapping");
    bad(GEMMA2 ", \"final_logit_softcapping\": -1", CKPT_EFORMAT, "final_logit_softcapping");
    bad(GEMMA2 ", \"query_pre_attn_scalar\": 0", CKPT_EFORMAT, "query_pre_attn_scalar");
    bad(GEMMA2 ", \"query_pre_attn_scalar\": null", CKPT_EFORMAT, "query_pre_attn_scalar");
    bad(GEMMA2 ", \"use_bidirectional_attention\": true", CKPT_EUNSUPPORTED, "bidirectional");
}

static void gemma3_keys(void **state)
{
    zt_model_config c = good(GEMMA3);

    (void)state;
    assert_true(c.arch == ZT_LLAMA && c.vocab == 262208 && c.hidden == 2304 && c.layers == 26);
    assert_true(c.norm_branch && c.norm_plus_one && c.embed_scaled && c.tied && c.qk_norm);
    assert_true(!c.qk_whole && c.score_cap == 0 && c.logit_cap == 0 && c.score_width == 256);
    assert_true(c.window == 4096 && c.slides[0] && c.slides[4] && !c.slides[5] && !c.slides[23]);
    assert_true(c.rope_theta == 1e6 && c.rope_local == 1e4 && c.rope_kind == ZT_ROPE_DEFAULT);
    // files before release 5
    c = good(GEMMA3 ", \"sliding_window\": 512, \"sliding_window_pattern\": 3, \"rope_theta\": 5e5,"
                    "\"rope_local_base_freq\": 7000, \"final_logit_softcapping\": 20,"
                    "\"rope_scaling\": {\"rope_type\": \"linear\", \"factor\": 8.0}");
    assert_true(c.window == 512 && c.slides[0] && !c.slides[2] && c.logit_cap == 20);
    assert_true(c.rope_theta == 5e5 && c.rope_local == 7000 && c.rope_kind == ZT_ROPE_LINEAR);
    c = good(GEMMA3 ", \"rope_theta\": 3, \"rope_parameters\": {\"full_attention\": {\"rope_type\":"
                    "\"linear\", \"factor\": 2, \"rope_theta\": 9e5}, \"sliding_attention\":"
                    "{\"rope_type\": \"default\", \"rope_theta\": 800}}");
    assert_true(c.rope_theta == 9e5 && c.rope_local == 800 && c.rope_factor == 2);
    bad(GEMMA3 ", \"sliding_window\": null", CKPT_EFORMAT, "sliding_window is null");
    bad(GEMMA3 ", \"attn_logit_softcapping\": 50.0", CKPT_EUNSUPPORTED, "attn_logit_softcapping");
    bad(GEMMA3 ", \"use_bidirectional_attention\": true", CKPT_EUNSUPPORTED, "bidirectional");
    bad(GEMMA3 ", \"rope_parameters\": {\"rope_theta\": 5e5}", CKPT_EUNSUPPORTED, "full_attention");
    bad(GEMMA3 ", \"rope_parameters\": {\"sliding_attention\": {\"rope_type\": \"linear\"}}",
        CKPT_EUNSUPPORTED, "sliding_attention is linear");
    bad(GEMMA3 ", \"rope_parameters\": {\"full_attention\": {\"rope_type\": \"yarn\"}}",
        CKPT_EUNSUPPORTED, "yarn");
    // transformers ignores type in rope_scaling, but reads it in rope_parameters
    bad(GEMMA3 ", \"rope_scaling\": {\"type\": \"linear\", \"factor\": 8.0}", CKPT_EUNSUPPORTED,
        "type linear");
    bad(GEMMA3 ", \"rope_scaling\": {\"type\": \"default\", \"rope_type\": \"linear\","
               "\"factor\": 8.0}",
        CKPT_EUNSUPPORTED, "type default");
    c = good(GEMMA3 ", \"rope_scaling\": {\"type\": \"linear\", \"rope_type\": \"linear\","
                    "\"factor\": 8.0}");
    assert_true(c.rope_kind == ZT_ROPE_LINEAR && c.rope_factor == 8);
    c = good(GEMMA3 ", \"rope_parameters\": {\"full_attention\": {\"type\": \"linear\","
                    "\"factor\": 8.0}}");
    assert_true(c.rope_kind == ZT_ROPE_LINEAR && c.rope_factor == 8);
    bad(GEMMA3 ", \"rope_local_base_freq\": 0", CKPT_EFORMAT, "rope_local_base_freq");
    bad(GEMMA3 ", \"sliding_window_pattern\": 0", CKPT_EFORMAT, "sliding_window_pattern");
    bad("\"architectures\": [\"Gemma3ForConditionalGeneration\"], \"model_type\": \"gemma3\"",
        CKPT_EUNSUPPORTED, "Gemma3ForConditionalGeneration");
}

#define LONG                                                                                       \
    "{\"rope_type\": \"longrope\", \"short_factor\": [1, 1.5, 2], \"long_factor\": [2, 3, 9.5]"

static void phi3_keys(void **state)
{
    static const char small[] = PHI3 ", \"hidden_size\": 16, \"num_attention_heads\": 2,"
                                     "\"partial_rotary_factor\": 0.75";
    char text[600];
    zt_model_config c = good(PHI3);

    (void)state;
    assert_true(c.arch == ZT_LLAMA && c.vocab == 32064 && c.hidden == 3072 && c.layers == 32);
    assert_true(c.heads == 32 && c.kv_heads == 32 && c.head_width == 96 && c.inner == 8192);
    assert_true(c.fused && c.norm_first && !c.norm_branch && !c.norm_once && !c.tied && !c.qk_norm);
    assert_true(c.rotated == 96 && c.padding == 32000 && c.window == 0 && !c.slides);
    assert_true(c.rope_kind == ZT_ROPE_DEFAULT && c.act == ZT_SILU && !c.attention_bias);
    near(c.norm_eps, 1e-5);
    c = good(PHI3 ", \"sliding_window\": 2047, \"resid_pdrop\": 0.25, \"embd_pdrop\": 0.0,"
                  "\"attention_bias\": false, \"pad_token_id\": null");
    assert_true(c.window == 2047 && c.slides[0] && c.slides[31] && c.padding == -1);
    near(c.dropout_hidden, 0.25);
    (void)snprintf(text, sizeof text,
                   "%s, \"max_position_embeddings\": 65536, \"rope_scaling\": %s}", small, LONG);
    c = good(text);
    assert_true(c.rotated == 6 && c.rope_kind == ZT_ROPE_LONG && c.rope_old == 4096);
    assert_true(c.rope_short[2] == 2 && c.rope_long[2] == 9.5);
    near((float)c.rope_factor, sqrt(1 + log(16.0) / log(4096.0)));
    (void)snprintf(text, sizeof text,
                   "%s, \"original_max_position_embeddings\": 8, \"rope_scaling\":"
                   "{\"type\": \"su\", \"short_factor\": [1, 1, 1], \"long_factor\": [1, 1, 1],"
                   "\"attention_factor\": 1.25}",
                   small);
    c = good(text);
    assert_true(c.rope_kind == ZT_ROPE_LONG && c.rope_old == 8 && c.rope_factor == 1.25);
    (void)snprintf(text, sizeof text, PHI3 ", \"rope_scaling\": %s}", LONG);
    bad(text, CKPT_EFORMAT, "short_factor");
    (void)snprintf(text, sizeof text,
                   "%s, \"original_max_position_embeddings\": 1, \"rope_scaling\": %s}", small,
                   LONG);
    bad(text, CKPT_EFORMAT, "original_max");
    bad(PHI3 ", \"rope_scaling\": {\"type\": \"yarn\"}", CKPT_EUNSUPPORTED, "yarn");
    bad(PHI3 ", \"rope_scaling\": {\"type\": \"linear\", \"factor\": 2}", CKPT_EUNSUPPORTED,
        "linear");
    bad(PHI3 ", \"embd_pdrop\": 0.1", CKPT_EUNSUPPORTED, "embd_pdrop");
    bad(PHI3 ", \"attention_bias\": true", CKPT_EUNSUPPORTED, "attention_bias");
    bad(PHI3 ", \"lm_head_bias\": true", CKPT_EUNSUPPORTED, "lm_head_bias");
    bad(PHI3 ", \"partial_rotary_factor\": 0", CKPT_EFORMAT, "partial_rotary_factor");
}

static void llama_keys(void **state)
{
    const zt_model_config c =
        good(LLAMA ", \"vocab_size\": 89, \"hidden_size\": 24, \"intermediate_size\": 40,"
                   "\"num_hidden_layers\": 2, \"num_attention_heads\": 6,"
                   "\"num_key_value_heads\": 3, \"head_dim\": 8, \"rms_norm_eps\": 1e-5,"
                   "\"attention_bias\": true, \"mlp_bias\": true, \"tie_word_embeddings\": true,"
                   "\"attention_dropout\": 0.5, \"pad_token_id\": 3, \"pretraining_tp\": 1,"
                   "\"hidden_act\": \"swish\", \"max_position_embeddings\": 64");

    (void)state;
    assert_true(c.vocab == 89 && c.hidden == 24 && c.inner == 40 && c.layers == 2);
    assert_true(c.heads == 6 && c.kv_heads == 3 && c.head_width == 8 && c.positions == 64);
    assert_true(c.attention_bias && c.mlp_bias && c.tied && c.padding == 3 && c.act == ZT_SILU);
    near(c.norm_eps, 1e-5);
    near(c.dropout_attention, 0.5);
    near(good(LLAMA ", \"attention_dropout\": null").dropout_attention, 0);
}

static void activations(void **state)
{
    static const struct {
        const char *name;
        zt_act act;
    } cases[] = {{"gelu", ZT_GELU},
                 {"gelu_new", ZT_GELU_TANH},
                 {"gelu_pytorch_tanh", ZT_GELU_TANH},
                 {"gelu_fast", ZT_GELU_TANH},
                 {"relu", ZT_RELU},
                 {"tanh", ZT_TANH},
                 {"silu", ZT_SILU},
                 {"swish", ZT_SILU}};

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[200];

        (void)snprintf(text, sizeof text, CLS ", \"hidden_act\": \"%s\"", cases[i].name);
        assert_int_equal(good(text).act, cases[i].act);
    }
    bad(CLS ", \"hidden_act\": \"quick_gelu\"", CKPT_EUNSUPPORTED, "quick_gelu");
    bad(CLS ", \"hidden_act\": null", CKPT_EUNSUPPORTED, "hidden_act");
    bad(GPT2 ", \"activation_function\": \"mish\"", CKPT_EUNSUPPORTED, "activation_function");
    assert_int_equal(good(LLAMA ", \"hidden_act\": \"gelu\"").act, ZT_GELU);
    bad(LLAMA ", \"hidden_act\": \"mish\"", CKPT_EUNSUPPORTED, "silu");
}

static void labels(void **state)
{
    (void)state;
    assert_true(good(CLS ", \"id2label\": {\"0\": \"a\", \"1\": \"b\", \"2\": \"c\"}").labels == 3);
    assert_true(good(CLS ", \"num_labels\": 5").labels == 5);
    assert_true(good(CLS ", \"num_labels\": 5, \"id2label\": {\"0\": \"a\"}").labels == 1);
    assert_true(good(CLS ", \"id2label\": null").labels == 2);
    assert_true(!good(CLS ", \"problem_type\": \"single_label_classification\"").multi_label);
    assert_true(good(CLS ", \"problem_type\": \"multi_label_classification\"").multi_label);
    assert_true(good(CLS ", \"problem_type\": \"regression\", \"num_labels\": 1").labels == 1);
    bad(CLS ", \"problem_type\": \"regression\"", CKPT_EUNSUPPORTED, "2 labels");
    bad(CLS ", \"problem_type\": \"single_label_classification\", \"num_labels\": 1", CKPT_EFORMAT,
        "problem_type");
    bad(CLS ", \"problem_type\": \"ranking\"", CKPT_EFORMAT, "ranking");
    bad(CLS ", \"id2label\": {}", CKPT_EFORMAT, "id2label");
    bad(CLS ", \"id2label\": [1]", CKPT_EFORMAT, "id2label");
    bad(CLS ", \"num_labels\": 0", CKPT_EFORMAT, "num_labels");
}

static void rope(void **state)
{
    static const char llama3[] = "\"rope_type\": \"llama3\", \"factor\": 8.0,"
                                 "\"low_freq_factor\": 1.0, \"high_freq_factor\": 4.0";
    char text[500];
    zt_model_config c;

    (void)state;
    (void)snprintf(text, sizeof text,
                   LLAMA ", \"rope_parameters\": {%s, \"rope_theta\": 5e5,"
                         "\"original_max_position_embeddings\": 16}",
                   llama3);
    c = good(text);
    assert_true(c.rope_kind == ZT_ROPE_LLAMA3 && c.rope_theta == 5e5 && c.rope_old == 16);
    assert_true(c.rope_factor == 8 && c.rope_low == 1 && c.rope_high == 4);
    // files before release 5; the original length is max_position_embeddings when it is not said
    (void)snprintf(text, sizeof text, LLAMA ", \"rope_scaling\": {%s}, \"rope_theta\": 20000",
                   llama3);
    c = good(text);
    assert_true(c.rope_kind == ZT_ROPE_LLAMA3 && c.rope_theta == 20000 && c.rope_old == 2048);
    c = good(LLAMA ", \"rope_scaling\": null, \"rope_theta\": 7");
    assert_true(c.rope_kind == ZT_ROPE_DEFAULT && c.rope_theta == 7);
    c = good(LLAMA ", \"rope_scaling\": {\"type\": \"default\"}, \"rope_theta\": 7,"
                   "\"rope_parameters\": {\"rope_theta\": 8}");
    assert_true(c.rope_theta == 7);
    c = good(LLAMA ", \"rope_theta\": 7, \"rope_parameters\": {\"rope_theta\": 8}");
    assert_true(c.rope_theta == 8);
    c = good(LLAMA ", \"rope_scaling\": {\"type\": \"linear\", \"factor\": 2}");
    assert_true(c.rope_kind == ZT_ROPE_LINEAR && c.rope_factor == 2);
    bad(LLAMA ", \"rope_scaling\": {\"type\": \"linear\"}", CKPT_EFORMAT, "linear needs factor");
    bad(LLAMA ", \"rope_scaling\": {\"type\": \"longrope\"}", CKPT_EUNSUPPORTED, "longrope");
    bad(LLAMA ", \"rope_parameters\": {\"rope_type\": \"yarn\"}", CKPT_EUNSUPPORTED, "yarn");
    bad(LLAMA ", \"rope_parameters\": {\"full_attention\": {\"rope_type\": \"default\"}}",
        CKPT_EUNSUPPORTED, "layer to layer");
    bad(LLAMA ", \"rope_parameters\": 3", CKPT_EFORMAT, "rope_parameters");
    bad(LLAMA ", \"rope_parameters\": {\"rope_type\": \"llama3\", \"factor\": 8}", CKPT_EFORMAT,
        "low_freq_factor");
    bad(LLAMA ", \"rope_parameters\": {\"rope_type\": \"llama3\", \"factor\": -8}", CKPT_EFORMAT,
        "factor");
    bad(LLAMA ", \"rope_parameters\": {\"rope_type\": \"llama3\", \"factor\": 8,"
              "\"low_freq_factor\": 4, \"high_freq_factor\": 4}",
        CKPT_EFORMAT, "high_freq_factor");
    bad(LLAMA ", \"rope_theta\": 0", CKPT_EFORMAT, "rope_theta");
    bad(LLAMA ", \"rope_theta\": \"1e4\"", CKPT_EFORMAT, "rope_theta");
    bad(LLAMA ", \"partial_rotary_factor\": 0.5", CKPT_EUNSUPPORTED, "partial_rotary_factor");
    bad(LLAMA ", \"rope_parameters\": {\"partial_rotary_factor\": 0.5}", CKPT_EUNSUPPORTED,
        "partial_rotary_factor");
}

static void kin_keys(void **state)
{
    zt_model_config c =
        good(QWEN3 ", \"hidden_size\": 30, \"num_attention_heads\": 4, \"head_dim\": 8,"
                   "\"num_key_value_heads\": null, \"attention_bias\": true,"
                   "\"tie_word_embeddings\": true, \"rope_theta\": 5e6");

    (void)state;
    // heads of a width of their own need not add up to the hidden size
    assert_true(c.hidden == 30 && c.heads == 4 && c.kv_heads == 4 && c.head_width == 8 && c.tied);
    assert_true(c.attention_bias && c.output_bias && c.rope_theta == 5e6);
    bad(LLAMA ", \"hidden_size\": 30, \"num_attention_heads\": 4, \"head_dim\": 8", CKPT_EFORMAT,
        "hidden size 30");
    // Qwen2 has no such key: its model does not ask
    c = good(QWEN2 ", \"attention_bias\": false, \"mlp_bias\": true");
    assert_true(c.attention_bias && !c.output_bias && !c.mlp_bias);
    c = good(MISTRAL ", \"sliding_window\": null, \"num_key_value_heads\": null");
    assert_true(c.kv_heads == 32);
    bad(QWEN3 ", \"head_dim\": null", CKPT_EFORMAT, "head_dim");
    bad(QWEN3 ", \"num_key_value_heads\": 0", CKPT_EFORMAT, "num_key_value_heads");
    bad(QWEN2 ", \"rope_scaling\": {\"type\": \"yarn\", \"factor\": 4}", CKPT_EUNSUPPORTED, "yarn");
    bad("\"architectures\": [\"Qwen3ForCausalLM\"], \"model_type\": \"qwen2\"", CKPT_EFORMAT,
        "qwen2");
}

static void windows(void **state)
{
    zt_model_config c =
        good(MISTRAL ", \"sliding_window\": 7, \"num_hidden_layers\": 2,"
                     "\"layer_types\": [\"sliding_attention\", \"sliding_attention\"]");

    (void)state;
    assert_true(c.window == 7 && c.slides[0] && c.slides[1]);
    c = good(MISTRAL);
    assert_true(c.window == 4096 && c.slides[31]);
    c = good(QWEN3
             ", \"use_sliding_window\": true, \"sliding_window\": 9, \"max_window_layers\": 30");
    assert_true(c.window == 9 && !c.slides[29] && c.slides[30] && c.slides[31]);
    c = good(QWEN2 ", \"use_sliding_window\": true, \"num_hidden_layers\": 2,"
                   "\"layer_types\": [\"sliding_attention\", \"full_attention\"]");
    assert_true(c.window == 4096 && c.slides[0] && !c.slides[1]);
    // off, whatever else is said
    assert_true(good(QWEN2 ", \"sliding_window\": 7, \"max_window_layers\": 0").window == 0);
    assert_true(good(QWEN3 ", \"use_sliding_window\": true, \"sliding_window\": null").window == 0);
    assert_true(good(QWEN2 ", \"use_sliding_window\": true, \"num_hidden_layers\": 28").window ==
                0);
    assert_true(good(QWEN3 ", \"num_hidden_layers\": 2, \"layer_types\": [\"full_attention\","
                           "\"full_attention\"]")
                    .window == 0);
    bad(QWEN3 ", \"num_hidden_layers\": 2, \"layer_types\": [\"full_attention\"]", CKPT_EFORMAT,
        "layer_types");
    bad(QWEN3 ", \"num_hidden_layers\": 1, \"layer_types\": [\"chunked_attention\"]",
        CKPT_EUNSUPPORTED, "chunked_attention");
    bad(QWEN3 ", \"num_hidden_layers\": 1, \"layer_types\": [\"sliding_attention\"]", CKPT_EFORMAT,
        "use_sliding_window");
    bad(MISTRAL ", \"num_hidden_layers\": 1, \"layer_types\": [\"full_attention\"]",
        CKPT_EUNSUPPORTED, "layer 0");
    bad(MISTRAL ", \"sliding_window\": 0", CKPT_EFORMAT, "sliding_window");
    bad(QWEN2 ", \"use_sliding_window\": 1", CKPT_EFORMAT, "use_sliding_window");
    bad(QWEN2 ", \"max_window_layers\": -1", CKPT_EFORMAT, "max_window_layers");
}

static void refused(void **state)
{
    (void)state;
    bad(CLS ", \"is_decoder\": true", CKPT_EUNSUPPORTED, "is_decoder");
    bad(CLS ", \"add_cross_attention\": true", CKPT_EUNSUPPORTED, "add_cross_attention");
    bad(GPT2 ", \"add_cross_attention\": true", CKPT_EUNSUPPORTED, "add_cross_attention");
    bad(MLM ", \"position_embedding_type\": \"relative_key\"", CKPT_EUNSUPPORTED, "relative_key");
    bad(CLS ", \"embedding_size\": 128", CKPT_EUNSUPPORTED, "embedding_size");
    bad(LLAMA ", \"is_encoder_decoder\": true", CKPT_EUNSUPPORTED, "is_encoder_decoder");
    bad(LLAMA ", \"quantization_config\": {\"bits\": 4}", CKPT_EUNSUPPORTED, "quantization_config");
    bad(LLAMA ", \"per_layer_config\": {\"0\": {\"head_dim\": 8}}", CKPT_EUNSUPPORTED, "layers");
    bad(CLS ", \"pruned_heads\": {\"0\": [1]}", CKPT_EUNSUPPORTED, "pruned_heads");
    bad(LLAMA ", \"pretraining_tp\": 2", CKPT_EUNSUPPORTED, "pretraining_tp");
    bad(LLAMA ", \"pretraining_tp\": \"2\"", CKPT_EFORMAT, "pretraining_tp");
    // switched off, they are fine
    (void)good(CLS ", \"is_decoder\": false, \"add_cross_attention\": false, \"pruned_heads\": {},"
                   "\"quantization_config\": null, \"is_encoder_decoder\": false");
    (void)good(LLAMA ", \"pretraining_tp\": null");
}

static void architectures(void **state)
{
    (void)state;
    // files that name no class
    assert_int_equal(good(BERT).arch, ZT_BERT_CLASSIFIER);
    assert_int_equal(good("\"model_type\": \"bert\"").arch, ZT_BERT_MLM);
    assert_int_equal(good("\"model_type\": \"bert\", \"architectures\": null,"
                          "\"id2label\": {\"0\": \"a\", \"1\": \"b\"}")
                         .arch,
                     ZT_BERT_MLM);
    assert_int_equal(good("\"model_type\": \"bert\", \"architectures\": [],"
                          "\"id2label\": {\"0\": \"a\"}")
                         .arch,
                     ZT_BERT_CLASSIFIER);
    assert_int_equal(good("\"architectures\": [\"GPT2LMHeadModel\"]").arch, ZT_GPT2);
    assert_int_equal(good("\"architectures\": [\"Other\", \"LlamaForCausalLM\"]").arch, ZT_LLAMA);
    bad("\"architectures\": [\"BertModel\"], \"model_type\": \"bert\"", CKPT_EUNSUPPORTED,
        "BertModel");
    bad("\"model_type\": \"mt5\"", CKPT_EUNSUPPORTED, "mt5");
    bad("\"architectures\": [\"T5Model\"]", CKPT_EUNSUPPORTED, "T5Model");
    bad("", CKPT_EUNSUPPORTED, "model_type");
    bad(MLM ", \"model_type\": \"gpt2\"", CKPT_EFORMAT, "gpt2");
    bad("\"architectures\": \"BertForMaskedLM\"", CKPT_EFORMAT, "architectures");
    bad("\"architectures\": [3]", CKPT_EUNSUPPORTED, "not a name");
    bad("\"model_type\": 3", CKPT_EFORMAT, "model_type");
}

static void wrong_values(void **state)
{
    (void)state;
    bad(CLS ", \"hidden_size\": \"768\"", CKPT_EFORMAT, "hidden_size");
    bad(CLS ", \"hidden_size\": null", CKPT_EFORMAT, "hidden_size");
    bad(CLS ", \"hidden_size\": 768.5", CKPT_EFORMAT, "768.5");
    bad(CLS ", \"hidden_size\": true", CKPT_EFORMAT, "hidden_size");
    bad(CLS ", \"num_hidden_layers\": 0", CKPT_EFORMAT, "num_hidden_layers");
    bad(CLS ", \"vocab_size\": -5", CKPT_EFORMAT, "vocab_size");
    bad(CLS ", \"vocab_size\": 2147483648", CKPT_EFORMAT, "vocab_size");
    bad(CLS ", \"vocab_size\": 9007199254740992", CKPT_EFORMAT, "vocab_size");
    bad(CLS ", \"hidden_dropout_prob\": 1.5", CKPT_EFORMAT, "hidden_dropout_prob");
    bad(CLS ", \"hidden_dropout_prob\": -0.1", CKPT_EFORMAT, "hidden_dropout_prob");
    bad(CLS ", \"hidden_dropout_prob\": NaN", CKPT_EFORMAT, "expected a value");
    bad(CLS ", \"layer_norm_eps\": Infinity", CKPT_EFORMAT, "expected a value");
    bad(CLS ", \"tie_word_embeddings\": 1", CKPT_EFORMAT, "tie_word_embeddings");
    bad(CLS ", \"pad_token_id\": 30522", CKPT_EFORMAT, "pad_token_id");
    bad(CLS ", \"pad_token_id\": -30523", CKPT_EFORMAT, "pad_token_id");
    bad(CLS ", \"pad_token_id\": \"0\"", CKPT_EFORMAT, "pad_token_id");
    bad(CLS ", \"hidden_size\": 770", CKPT_EFORMAT, "attention heads");
    bad(LLAMA ", \"num_key_value_heads\": 5", CKPT_EFORMAT, "num_key_value_heads");
    bad(LLAMA ", \"num_key_value_heads\": 64", CKPT_EFORMAT, "num_key_value_heads");
    bad(LLAMA ", \"head_dim\": 7", CKPT_EFORMAT, "head_dim");
    bad(LLAMA ", \"hidden_size\": 4100", CKPT_EFORMAT, "attention heads");
    bad(LLAMA ", \"num_hidden_layers\": 65537", CKPT_EFORMAT, "too large");
    bad(LLAMA ", \"hidden_size\": 1073741824, \"head_dim\": 1073741824", CKPT_EFORMAT, "too large");
    bad(LLAMA ", \"num_attention_heads\": 2147483647, \"hidden_size\": 2147483647,"
              "\"head_dim\": 2147483646, \"num_hidden_layers\": 65536",
        CKPT_EFORMAT, "too large");
}

/* The path of the file, a folder without one, and what is no object. */
static void files(void **state)
{
    zt_model_config c;
    ckpt_err err = {0};
    FILE *f;

    (void)state;
    (void)good(GPT2);
    assert_int_equal(zt_model_config_read(&c, arena, file, &err), CKPT_OK);
    assert_int_equal(zt_model_config_read(&c, arena, "tests", &err), CKPT_EMISSING);
    assert_non_null(strstr(err.text, "tests/config.json"));
    err = (ckpt_err){0};
    assert_int_equal(zt_model_config_read(&c, arena, "tests/no such file", &err), CKPT_EMISSING);
    f = fopen(file, "wb");
    assert_non_null(f);
    assert_true(fputs("[1, 2]", f) >= 0);
    assert_int_equal(fclose(f), 0);
    err = (ckpt_err){0};
    assert_int_equal(zt_model_config_read(&c, arena, file, &err), CKPT_EFORMAT);
}

/* What tells parameters alone: other settings of the file may be any, sizes may not. */
static void sizes(void **state)
{
    static const char *const odd[] = {LLAMA ", \"rope_scaling\": {\"rope_type\": \"yarn\"}",
                                      LLAMA ", \"hidden_act\": \"mish\"",
                                      QWEN2 ", \"layer_types\": [\"linear_attention\"]",
                                      GPT2 ", \"activation_function\": \"quick_gelu\""};
    zt_model_config c;
    zt_model *m = NULL;
    ckpt_err err;

    (void)state;
    for (size_t i = 0; i < sizeof odd / sizeof *odd; i++) {
        assert_int_not_equal(reading(&c, odd[i], &err), CKPT_OK);
        err = (ckpt_err){0};
        assert_int_equal(zt_model_config_sizes(&c, arena, folder, &err), CKPT_OK);
    }
    // GPT-2 as OpenAI has it: no device is needed to list parameters
    assert_int_equal(zt_model_new(&m, NULL, CKPT_F32, &c, NULL, &err), CKPT_OK);
    assert_int_equal(zt_model_count(m, false), 124439808);
    zt_model_free(m);
    assert_int_not_equal(reading(&c, GPT2 ", \"n_embd\": 0", &err), CKPT_OK);
    err = (ckpt_err){0};
    assert_int_equal(zt_model_config_sizes(&c, arena, file, &err), CKPT_EFORMAT);
}

/* Files that transformers wrote. */
static void real_files(void **state)
{
    static const struct {
        const char *path;
        zt_arch arch;
        uint64_t hidden, labels;
    } cases[] = {{"hf_bert_sharded", ZT_BERT_MLM, 16, 0},
                 {"old_hf_bert_bin", ZT_BERT_MLM, 16, 0},
                 {"hf_trainer_llama_z3_bf16_w2/ckpt", ZT_LLAMA, 12, 0}};
    zt_model_config c;
    ckpt_err err = {0};

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char path[200];

        (void)snprintf(path, sizeof path, "tests/fixtures/%s", cases[i].path);
        assert_int_equal(zt_model_config_read(&c, arena, path, &err), CKPT_OK);
        assert_int_equal(c.arch, cases[i].arch);
        assert_true(c.hidden == cases[i].hidden && c.labels == cases[i].labels);
    }
}

/* The models of the golden runs, where they are at hand: their files name no class. */
static void golden_files(void **state)
{
    static const struct {
        const char *name;
        zt_arch arch;
        uint64_t hidden, labels;
    } cases[] = {
        {"bert", ZT_BERT_CLASSIFIER, 24, 6}, {"gpt2", ZT_GPT2, 20, 0}, {"llama", ZT_LLAMA, 24, 0}};
    const char *shared = getenv("CKPT_SHARED");
    zt_model_config c;
    ckpt_err err = {0};

    (void)state;
    for (size_t i = 0; shared && i < sizeof cases / sizeof *cases; i++) {
        char path[500];

        (void)snprintf(path, sizeof path, "%s/golden/run_model_%s.json", shared, cases[i].name);
        assert_int_equal(zt_model_config_read(&c, arena, path, &err), CKPT_OK);
        assert_int_equal(c.arch, cases[i].arch);
        assert_true(c.hidden == cases[i].hidden && c.labels == cases[i].labels);
        assert_true(c.dropout_hidden == 0 && c.dropout_attention == 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bert_defaults),  cmocka_unit_test(gpt2_defaults),
        cmocka_unit_test(t5_defaults),    cmocka_unit_test(t5_settings),
        cmocka_unit_test(llama_defaults), cmocka_unit_test(kin_defaults),
        cmocka_unit_test(kin_keys),       cmocka_unit_test(windows),
        cmocka_unit_test(bert_keys),      cmocka_unit_test(gpt2_keys),
        cmocka_unit_test(opt_keys),       cmocka_unit_test(neox_keys),
        cmocka_unit_test(bloom_keys),     cmocka_unit_test(llama_keys),
        cmocka_unit_test(olmo2_keys),     cmocka_unit_test(gemma2_keys),
        cmocka_unit_test(gemma3_keys),    cmocka_unit_test(phi3_keys),
        cmocka_unit_test(activations),    cmocka_unit_test(labels),
        cmocka_unit_test(rope),           cmocka_unit_test(refused),
        cmocka_unit_test(architectures),  cmocka_unit_test(wrong_values),
        cmocka_unit_test(files),          cmocka_unit_test(real_files),
        cmocka_unit_test(golden_files),   cmocka_unit_test(sizes),
    };

    return cmocka_run_group_tests(tests, set_up, tear_down);
}
