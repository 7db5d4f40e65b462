/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_gaps.c: a tensor that one layer lacks, and layers that differ on purpose.
 */
#include "libckpt/base/mem.h"
#include "libckpt/map/gaps.h"
#include "tests/unit/unit.h"

static void add(ckpt_map *map, unsigned layer, const char *key)
{
    const uint64_t shape[] = {4};
    const ckpt_tensor like = {.dtype = CKPT_F32, .ndim = 1, .shape = shape};
    ckpt_tensor *t = NULL;
    char name[128];

    snprintf(name, sizeof name, "m.layers.%u.%s", layer, key);
    assert_int_equal(ckpt_map_add(map, name, strlen(name), &like, &t, NULL), CKPT_OK);
}

/* Layers by letters: a attention, m Mamba, f dense, g dense without up_proj, c a cross attention,
 * n a norm more, q quantized, l an adapter.  Layers are separated by spaces. */
static ckpt_map *make(const char *layers)
{
    static const struct {
        char letter;
        const char *keys[4];
    } parts[] = {
        {'a', {"attn.q_proj.weight", "attn.k_proj.weight", "attn.v_proj.weight"}},
        {'k', {"attn.q_proj.weight", "attn.v_proj.weight"}},
        {'m', {"mamba.in_proj.weight", "mamba.A_log"}},
        {'f', {"mlp.gate_proj.weight", "mlp.up_proj.weight", "mlp.down_proj.weight"}},
        {'g', {"mlp.gate_proj.weight", "mlp.down_proj.weight"}},
        {'q',
         {"mlp.gate_proj.weight_packed", "mlp.up_proj.qweight", "mlp.down_proj.weight",
          "mlp.down_proj.weight_scale"}},
        {'c', {"cross.out.weight"}},
        {'n', {"norm.weight"}},
        {'e',
         {"mlp.experts.0.w1.weight", "mlp.experts.1.w1.weight", "mlp.experts.0.w2.weight",
          "mlp.experts.1.w2.weight"}},
        {'d', {"mlp.experts.0.w1.weight", "mlp.experts.1.w1.weight", "mlp.experts.0.w2.weight"}},
        {'s', {"blocks.0.w.weight", "blocks.1.w.weight"}},
        {'t', {"blocks.0.w.weight"}},
        {'l', {"attn.q_proj.lora_A.weight"}},
    };
    ckpt_map *map = NULL;
    unsigned layer = 0;

    assert_int_equal(ckpt_map_create(&map, 0, NULL), CKPT_OK);
    for (; *layers; layers++) {
        layer += *layers == ' ';
        for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
            for (size_t k = 0; parts[i].letter == *layers && k < 4 && parts[i].keys[k]; k++)
                add(map, layer, parts[i].keys[k]);
        }
    }
    return map;
}

static void lone_gaps(void **state)
{
    static const struct {
        const char *layers;
        int at; /* layer with the gap, or -1 */
        const char *key;
        uint64_t experts;
    } cases[] = {
        {"nf nf nf nf", -1, "", 0},
        {"nf f nf nf", 1, "norm.weight", 0},
        {"nf nf f nf", 2, "norm.weight", 0},
        {"f nf nf nf", -1, "", 0}, // the first layer of some models has no norm
        {"nf nf nf f", -1, "", 0}, // some models use one norm less at the end
        {"nf f nf f nf f", -1, "", 0},
        {"f f f cf f f", -1, "", 0}, // one layer with more
        {"cf f cf cf f cf", -1, "", 0},
        {"af g", 1, "mlp.up_proj.weight", 0}, // two layers suffice for names that need each other
        {"ag mf", -1, "", 0},                 // the layers' other parts differ
        {"ag af", 0, "mlp.up_proj.weight", 0},
        {"af kf", 1, "attn.k_proj.weight", 0},
        {"mf mf mf af mf mf mf af", -1, "", 0},
        {"mf mf mf af mf mg mf af", 5, "mlp.up_proj.weight", 0},
        {"mf mf f mf mf mf", 2, "mamba.in_proj.weight", 0},
        {"af ae ae ae ae", -1, "", 0}, // dense layers before MoE layers
        {"af ae af ae af ae", -1, "", 0},
        {"ae ad ae", 1, "mlp.experts.*.w2.weight", 0},
        {"ad ad ad", 0, "mlp.experts.*.w2.weight", 0},
        {"ae ae", 0, "mlp.experts.*.w1.weight", 3},
        {"ae ae", -1, "", 2},
        {"ae af", -1, "", 2},
        {"af aq af af", -1, "", 0}, // a quantized layer has the same weights
        {"nt s ns nt ns ns", 1, "norm.weight", 0},
        {"s s t s s", -1, "", 0}, // blocks of a layer are no experts
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const ckpt_stack stack = {.prefix = "m.layers", .n_prefix = 8, .experts = cases[i].experts};
        ckpt_map *map = make(cases[i].layers);
        ckpt_gap gap;

        assert_int_equal(ckpt_gap_find(map, &stack, &gap, NULL), CKPT_OK);
        if (gap.found != (cases[i].at >= 0) ||
            (gap.found && ((int)gap.layer != cases[i].at || strcmp(gap.key, cases[i].key) != 0)))
            fail_msg("%s: found %d, layer %d, %s", cases[i].layers, gap.found, (int)gap.layer,
                     gap.key);
        ckpt_map_free(map);
    }
}

static void layers_of_other_kinds_are_not_compared(void **state)
{
    static const uint32_t kind[] = {0, 0, 0, 3, 0, 0};
    ckpt_stack stack = {.prefix = "m.layers", .n_prefix = 8, .kind = kind, .n_kind = 6};
    ckpt_map *map = make("nf nf nf f nf nf");
    ckpt_gap gap;

    (void)state;
    assert_int_equal(ckpt_gap_find(map, &stack, &gap, NULL), CKPT_OK);
    assert_false(gap.found);
    stack.n_kind = 0;
    assert_int_equal(ckpt_gap_find(map, &stack, &gap, NULL), CKPT_OK);
    assert_true(gap.found);
    assert_int_equal(gap.layer, 3);
    ckpt_map_free(map);
}

static void layers_of_a_uniform_model_are_equal(void **state)
{
    static const struct {
        const char *layers;
        int at; /* layer with the gap, or -1 */
        const char *key;
    } cases[] = {
        {"naf naf naf", -1, ""},
        {"naf af", 1, "norm.weight"},
        {"af naf", 0, "norm.weight"},
        {"nf na", 1, "mlp.gate_proj.weight"},
        {"naf naq naf", -1, ""},
        {"naf nafl", -1, ""}, // an adapter of one layer
        {"ne ne", -1, ""},
        {"ne n", 1, "mlp.experts.*.w1.weight"},
    };
    const ckpt_stack stack = {.prefix = "m.layers", .n_prefix = 8, .uniform = true};

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        ckpt_map *map = make(cases[i].layers);
        ckpt_gap gap;

        assert_int_equal(ckpt_gap_find(map, &stack, &gap, NULL), CKPT_OK);
        if (gap.found != (cases[i].at >= 0) ||
            (gap.found && ((int)gap.layer != cases[i].at || strcmp(gap.key, cases[i].key) != 0)))
            fail_msg("%s: found %d, layer %d, %s", cases[i].layers, gap.found, (int)gap.layer,
                     gap.key);
        ckpt_map_free(map);
    }
}

static void layers_of_one_kind_are_equal(void **state)
{
    static const uint32_t kind[] = {0, 0, 2, 0};
    static const struct {
        const char *layers;
        int at; /* layer with the gap, or -1 */
        const char *key;
    } cases[] = {
        {"nm nm na nm", -1, ""},
        {"m nm na nm", 0, "norm.weight"},
        {"nm nm a nm", -1, ""}, // the only layer of its kind
        {"na nm na nm", 1, "attn.q_proj.weight"},
        {"nm nm na na", 3, "mamba.in_proj.weight"},
    };
    const ckpt_stack stack = {
        .prefix = "m.layers", .n_prefix = 8, .kind = kind, .n_kind = 4, .uniform = true};

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        ckpt_map *map = make(cases[i].layers);
        ckpt_gap gap;

        assert_int_equal(ckpt_gap_find(map, &stack, &gap, NULL), CKPT_OK);
        if (gap.found != (cases[i].at >= 0) ||
            (gap.found && ((int)gap.layer != cases[i].at || strcmp(gap.key, cases[i].key) != 0)))
            fail_msg("%s: found %d, layer %d, %s", cases[i].layers, gap.found, (int)gap.layer,
                     gap.key);
        ckpt_map_free(map);
    }
}

static void names_of_the_type_are_needed(void **state)
{
    static const struct {
        const char *layers;
        int at; /* layer with the gap, or -1 */
        const char *key;
        const char *needed;
    } cases[] = {
        {"na na", -1, "", "norm attn.q_proj"},
        {"nam af", 1, "norm", "norm attn.q_proj"},
        {"a a", 0, "norm", "norm attn.q_proj"},
        {"k", -1, "", NULL},
        {"l l", -1, "", "attn.q_proj"}, // inside of an adapter
        {"m", -1, "", "mamba.A_log"},
        {"m", -1, "", "mamba.A_log norm attn.q_proj"}, // another kind of layer
        {"e", -1, "", "mlp.experts.#.w2"},
        {"e", 0, "mlp.experts.#.w3", "mlp.experts.#.w2 mlp.experts.#.w3"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *const needed[] = {cases[i].needed, cases[i].needed};
        const ckpt_stack stack = {.prefix = "m.layers",
                                  .n_prefix = 8,
                                  .needed = needed,
                                  .n_needed = cases[i].needed ? 2 : 0};
        ckpt_map *map = make(cases[i].layers);
        ckpt_gap gap;

        assert_int_equal(ckpt_gap_find(map, &stack, &gap, NULL), CKPT_OK);
        if (gap.found != (cases[i].at >= 0) ||
            (gap.found && ((int)gap.layer != cases[i].at || strcmp(gap.key, cases[i].key) != 0)))
            fail_msg("%s: found %d, layer %d, %s", cases[i].layers, gap.found, (int)gap.layer,
                     gap.key);
        ckpt_map_free(map);
    }
}

static void memory_fails(void **state)
{
    const ckpt_stack stack = {.prefix = "m.layers", .n_prefix = 8};
    ckpt_map *map = make("nf nf nf f nf nf");
    ckpt_gap gap;
    int rc = CKPT_ELIMIT;

    (void)state;
    for (uint64_t i = 1; rc != CKPT_OK; i++) {
        assert_true(i < 20);
        ckpt_alloc_fail_at(i);
        rc = ckpt_gap_find(map, &stack, &gap, NULL);
        ckpt_alloc_fail_at(0);
        assert_true(rc == CKPT_OK || rc == CKPT_ELIMIT);
    }
    ckpt_map_free(map);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lone_gaps),
        cmocka_unit_test(layers_of_other_kinds_are_not_compared),
        cmocka_unit_test(layers_of_a_uniform_model_are_equal),
        cmocka_unit_test(layers_of_one_kind_are_equal),
        cmocka_unit_test(names_of_the_type_are_needed),
        cmocka_unit_test(memory_fails),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
