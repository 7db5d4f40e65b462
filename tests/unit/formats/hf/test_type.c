/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_type.c: layers of the model_type that config.json states, and of other types.
 */
#include "formats/hf/whole.h"
#include "libckpt/codec/json/json.h"
#include "tests/unit/unit.h"

#define ATTENTION "self_attn.q_proj self_attn.k_proj self_attn.v_proj self_attn.o_proj "
#define NORMS     "input_layernorm post_attention_layernorm "
#define LLAMA     ATTENTION NORMS "mlp.gate_proj mlp.up_proj mlp.down_proj "
#define BERT_REST                                                                                  \
    "attention.output.dense attention.output.LayerNorm intermediate.dense output.dense "           \
    "output.LayerNorm "
#define BERT "attention.self.query attention.self.key attention.self.value " BERT_REST
#define T5(kind)                                                                                   \
    "layer.0." kind ".q layer.0." kind ".k layer.0." kind ".v layer.0." kind ".o layer.0." kind    \
    ".relative_attention_bias "
#define T5_REST                                                                                    \
    "layer.0.layer_norm layer.1.layer_norm layer.1.DenseReluDense.wi layer.1.DenseReluDense.wo "
#define LFM2_FFN "feed_forward.w1 feed_forward.w2 feed_forward.w3 ffn_norm operator_norm "
#define LFM2_ATTN                                                                                  \
    "self_attn.q_proj self_attn.k_proj self_attn.v_proj self_attn.out_proj self_attn.q_layernorm " \
    "self_attn.k_layernorm "
#define WAV2VEC2                                                                                   \
    "attention.q_proj attention.k_proj attention.v_proj attention.out_proj "                       \
    "feed_forward.intermediate_dense feed_forward.output_dense layer_norm final_layer_norm "

typedef struct type_case {
    const char *type;
    const char *warning; /* a part of it; NULL: none */
    const char *layers[3];
} type_case;

static const type_case cases[] = {
    {"llama", NULL, {LLAMA, LLAMA}},
    {"lfm2", NULL, {LFM2_FFN "conv.conv conv.in_proj conv.out_proj", LFM2_FFN LFM2_ATTN}},
    {"t5", NULL, {T5("SelfAttention") T5_REST T5("EncDecAttention")}},
    {"mt5", NULL, {T5("SelfAttention") T5_REST T5("EncDecAttention")}},
    {"longt5", NULL, {T5("SelfAttention") T5("LocalSelfAttention") T5_REST}},
    {"longt5",
     NULL,
     {T5("SelfAttention") T5("TransientGlobalSelfAttention") T5_REST
      "layer.0.TransientGlobalSelfAttention.global_input_layer_norm"}},
    {"deberta",
     NULL,
     {"attention.self.in_proj attention.self.pos_proj attention.self.pos_q_proj " BERT_REST}},
    {"deberta-v2",
     NULL,
     {"attention.self.query_proj attention.self.key_proj attention.self.value_proj "
      "attention.self.pos_key_proj attention.self.pos_query_proj " BERT_REST}},
    {"wav2vec2",
     NULL,
     {WAV2VEC2 "conv adapter_layer.linear_1 adapter_layer.linear_2 adapter_layer.norm"}},
    {"unispeech-sat",
     NULL,
     {WAV2VEC2 "conv adapter_layer.linear_1 adapter_layer.linear_2 adapter_layer.norm"}},
    {"xmod",
     NULL,
     {BERT "output.adapter_modules.ar_AR.dense1 output.adapter_modules.ar_AR.dense2 "
           "output.adapter_modules.sw_KE.dense1 output.adapter_modules.sw_KE.dense2"}},
    {"granitemoeshared",
     NULL,
     {ATTENTION NORMS "shared_mlp.input_linear shared_mlp.output_linear "
                      "block_sparse_moe.input_linear block_sparse_moe.output_linear"}},
    // one name more
    {"llama", NULL, {LLAMA "self_attn.new_norm"}},
    {"wav2vec2", NULL, {WAV2VEC2 "conv new_layer.linear_1 new_layer.linear_2"}},
    {"bert", NULL, {BERT "attention.self.new_proj"}},
    // a name that all layers lack
    {"qwen3", "1 of 11 names are missing): a part", {LLAMA "self_attn.q_norm"}},
    // other models
    {"gemma3_text", "4 of 13 names are missing", {LLAMA, LLAMA}},
    {"bert", "8 of 8 names are missing", {LLAMA}},
    {"gpt2", "6 of 6 names are missing", {LLAMA}},
    {"llama",
     "3 of 9 names are missing",
     {ATTENTION NORMS "block_sparse_moe.gate block_sparse_moe.experts.0.w1 "
                      "block_sparse_moe.experts.0.w2 block_sparse_moe.experts.0.w3"}},
    {"mixtral", "have no m.layers.0.mlp.", {LLAMA}},
    {"cohere", "have no m.layers.0.post_attention_layernorm.weight", {LLAMA}},
    {"llama", "9 of 9 names are missing", {BERT}},
    {"qwen3", "2 of 11 names are missing", {LLAMA}},
    {"llama",
     "have no m.layers.0.self_attn.q_norm.weight",
     {LLAMA "self_attn.q_norm self_attn.k_norm"}},
    {"mixtral", "have no m.layers.0.x", {ATTENTION NORMS "x1 x2 x3 x4 x5 x6 x7"}},
    {"unheard_of", NULL, {BERT}},
};

static void add(ckpt_map *map, const char *name)
{
    static const uint64_t shape[] = {4, 4};
    const ckpt_tensor like = {.dtype = CKPT_F32, .ndim = 2, .shape = shape};
    ckpt_tensor *t = NULL;

    assert_int_equal(ckpt_map_add(map, name, strlen(name), &like, &t, NULL), CKPT_OK);
}

/* Check layers of these names; more: a further tensor, or NULL. */
static void check(const type_case *c, const char *more)
{
    ckpt_map *map = NULL;
    ckpt_value *config = NULL;
    char text[128];

    assert_int_equal(ckpt_map_create(&map, 0, NULL), CKPT_OK);
    map->collect = true;
    for (size_t i = 0; i < 3 && c->layers[i]; i++) {
        for (const char *s = c->layers[i]; *s; s += strcspn(s, " "), s += strspn(s, " ")) {
            (void)snprintf(text, sizeof text, "m.layers.%zu.%.*s.weight", i, (int)strcspn(s, " "),
                           s);
            add(map, text);
        }
    }
    if (more)
        add(map, more);
    int n = snprintf(text, sizeof text, "{\"model_type\": \"%s\"}", c->type);
    const ckpt_json_text json = {
        .at = text, .n = (size_t)n, .name = "config.json", .max = sizeof text};
    assert_int_equal(ckpt_json_parse(&config, map->arena, &json, NULL), CKPT_OK);
    assert_int_equal(ckpt_hf_type(map, config, "x", NULL), CKPT_OK);
    const bool warned = map->findings.n == 1;
    if (warned != (c->warning && !more) ||
        (warned && !strstr(map->findings.at[0].text, c->warning)))
        fail_msg("%s: %s", c->type, warned ? map->findings.at[0].text : "no warning");
    ckpt_map_free(map);
}

static void test_layers(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        check(&cases[i], NULL);
}

/* Quantized layers have other names, and config.json may not say that they are quantized. */
static void test_quantized(void **state)
{
    static const type_case layers = {"gpt2", "missing", {LLAMA}};

    (void)state;
    check(&layers, NULL);
    check(&layers, "m.layers.0.q.qweight");
    check(&layers, "m.layers.0.q.weight_packed");
    check(&layers, "m.layers.0.q.SCB");
    check(&layers, "m.layers.0.experts.gate_up_proj_blocks");
}

int main(void)
{
    static const struct CMUnitTest tests[] = {cmocka_unit_test(test_layers),
                                              cmocka_unit_test(test_quantized)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
