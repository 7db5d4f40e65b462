/* SPDX-License-Identifier: Apache-2.0 */
/* test_megatron.c: where parameters lie in flat buffers; which rule joins their slices. */
#include "formats/megatron/megatron.h"
#include "tests/unit/unit.h"

enum { N = 15 };

/* As Megatron-Core 0.16 laid out a model of two layers (fixture mcore_llama_dpreshard_dp2). */
static const struct {
    uint64_t n, at;
} recorded[N] = {
    {768, 4416}, {16, 4352},  {256, 4096}, {512, 3584}, {16, 3520},
    {576, 2944}, {288, 2624}, {16, 2560},  {256, 2304}, {512, 1792},
    {16, 1728},  {576, 1152}, {288, 832},  {16, 768},   {768, 0},
};

static void test_recorded_layout(void **state)
{
    (void)state;
    ckpt_meg_param p[N] = {{0}};
    uint64_t size = 5184;

    for (int i = 0; i < N; i++)
        p[i].n = recorded[i].n;
    assert_true(ckpt_meg_layout(p, N, &size, 1));
    for (int i = 0; i < N; i++)
        assert_true(p[i].bucket == 0 && p[i].at == recorded[i].at);
    size = 5248;
    assert_true(!ckpt_meg_layout(p, N, &size, 1));
    size = 5183;
    assert_true(!ckpt_meg_layout(p, N, &size, 1));
}

/* Buckets close where a parameter ends, and the next one begins anew. */
static void test_buckets(void **state)
{
    (void)state;
    ckpt_meg_param p[3] = {{.n = 10}, {.n = 100}, {.n = 5}};
    const uint64_t two[] = {64 + 100, 10}, three[] = {5, 100, 10}, holes[] = {164, 10, 1},
                   huge[] = {UINT64_MAX, 10};

    assert_true(ckpt_meg_layout(p, 3, two, 2));
    assert_true(p[2].bucket == 0 && p[2].at == 0 && p[1].bucket == 0 && p[1].at == 64 &&
                p[0].bucket == 1 && p[0].at == 0);
    assert_true(ckpt_meg_layout(p, 3, three, 3));
    assert_true(p[1].bucket == 1 && p[1].at == 0 && p[0].bucket == 2);
    assert_true(!ckpt_meg_layout(p, 3, holes, 3));
    assert_true(!ckpt_meg_layout(p, 3, huge, 2));
    assert_true(!ckpt_meg_layout(p, 0, two, 2));
    p[1].n = UINT64_MAX;
    assert_true(!ckpt_meg_layout(p, 3, two, 2));
}

/* A map of one layer, stacked or as a rank's file has it. */
static ckpt_map *layer(bool stacked, bool gated)
{
    static const char *const name[][2] = {
        {"decoder.layers.0.mlp.linear_fc1.weight", "decoder.layers.mlp.linear_fc1.weight"},
        {"decoder.layers.0.mlp.linear_fc2.weight", "decoder.layers.mlp.linear_fc2.weight"},
        {"decoder.layers.0.mlp.linear_fc1.bias", "decoder.layers.mlp.linear_fc1.bias"}};
    const uint64_t shape[3][3] = {{1, gated ? 6 : 3, 4}, {1, 4, 3}, {1, gated ? 6 : 3}};
    ckpt_map *map = NULL;
    ckpt_tensor *t;

    assert_true(ckpt_map_create(&map, 0, NULL) == CKPT_OK);
    for (int i = 0; i < 3; i++) {
        ckpt_tensor like = {.dtype = CKPT_F32,
                            .ndim = (i == 2 ? 1 : 2) + (uint32_t)stacked,
                            .shape = &shape[i][!stacked]};
        assert_true(ckpt_map_add(map, name[i][stacked], strlen(name[i][stacked]), &like, &t,
                                 NULL) == CKPT_OK);
    }
    return map;
}

static void test_rules(void **state)
{
    (void)state;
    ckpt_slice_rule rule;

    for (int k = 0; k < 4; k++) {
        bool stacked = k & 1, gated = k & 2;
        ckpt_map *map = layer(stacked, gated);
        ckpt_slice_kind kind = gated ? CKPT_SLICE_SUB : CKPT_SLICE_CAT;
        for (int i = 0; i < 3; i++) {
            assert_true(ckpt_meg_rule(&rule, map, map->tensors.at[i]->name, stacked));
            assert_true(rule.kind == (i == 1 ? CKPT_SLICE_CAT : kind) && rule.axis == (i == 1));
        }
        assert_true(!ckpt_meg_rule(&rule, map, "decoder.layers.1.mlp.linear_fc1.weight", 0));
        assert_true(!ckpt_meg_rule(&rule, map, "decoder.layers.0.mixer.in_proj.weight", 0));
        assert_true(ckpt_meg_rule(&rule, map, "decoder.final_layernorm.weight", 0) &&
                    rule.kind == CKPT_SLICE_SAME);
        // of GPT-OSS: one offset for each head
        assert_true(ckpt_meg_rule(&rule, map,
                                  "decoder.layers.0.self_attention.core_attention.softmax_offset",
                                  stacked) &&
                    rule.kind == CKPT_SLICE_CAT && rule.axis == 0);
        assert_true(ckpt_meg_rule(&rule, map, "decoder.layers.0.mlp.router.bias", 0) &&
                    rule.kind == CKPT_SLICE_SAME);
        ckpt_map_free(map);
    }
}

static void test_names(void **state)
{
    (void)state;
    assert_true(ckpt_meg_stacked("decoder.layers.mlp.linear_fc1.weight") == 1);
    assert_true(ckpt_meg_stacked("decoder.layers.3.mlp.linear_fc1.weight") == 0);
    assert_true(ckpt_meg_stacked("decoder.layers.mlp.experts.experts.linear_fc1.weight") == 2);
    assert_true(ckpt_meg_stacked("layers.norm.weight") == 1 && ckpt_meg_stacked("layers.0.x") == 0);
    assert_true(ckpt_meg_stacked("output_layer.weight") == 0);
    assert_true(ckpt_meg_is_iter("iter_0000003") && ckpt_meg_is_iter("iter_12345678"));
    assert_true(!ckpt_meg_is_iter("iter_") && !ckpt_meg_is_iter("iter_3x") &&
                !ckpt_meg_is_iter("iter_1234567890123456789"));
    assert_true(ckpt_meg_is_expert("decoder.layers.mlp.experts.experts.linear_fc1.weight") &&
                !ckpt_meg_is_expert("decoder.layers.mlp.shared_experts.linear_fc1.weight"));
}

/* Norms that Transformer Engine may fuse have two names; all others have one. */
static void test_second_names(void **state)
{
    static const char *const pair[][2] = {
        {"decoder.layers.0.pre_mlp_layernorm.weight",
         "decoder.layers.0.mlp.linear_fc1.layer_norm_weight"},
        {"decoder.layers.self_attention.q_layernorm.weight",
         "decoder.layers.self_attention.linear_q_up_proj.layer_norm_weight"},
        {"decoder.layers.7.self_attention.kv_layernorm.bias",
         "decoder.layers.7.self_attention.linear_kv_up_proj.layer_norm_bias"}};
    ckpt_arena *arena = ckpt_arena_new(0);
    const char *out;

    (void)state;
    for (size_t i = 0; i < sizeof pair / sizeof *pair; i++) {
        for (size_t k = 0; k < 2; k++) {
            assert_true(ckpt_meg_second(&out, arena, pair[i][k]));
            assert_string_equal(out, pair[i][1 - k]);
        }
    }
    assert_true(ckpt_meg_second(&out, arena, "decoder.layers.0.input_layernorm.weight"));
    assert_null(out);
    assert_true(ckpt_meg_second(&out, arena, "decoder.layers.0.self_attention.k_layernorm.weight"));
    assert_null(out);
    ckpt_arena_free(arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_recorded_layout), cmocka_unit_test(test_buckets),
        cmocka_unit_test(test_rules),           cmocka_unit_test(test_names),
        cmocka_unit_test(test_second_names),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
