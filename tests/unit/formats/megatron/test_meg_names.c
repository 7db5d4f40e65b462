/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_meg_names.c: names of Megatron's folders, ranks and iterations; items of a torch_dist
 * checkpoint; the optimizer's groups by their properties.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "formats/megatron/legacy.h"

/* ---- folders ---- */

static void numbers_of_ranks(void **state)
{
    static const struct {
        const char *name;
        unsigned n;
        uint32_t number[3];
    } cases[] = {
        {"mp_rank_00", 1, {0}},
        {"mp_rank_07_001", 2, {7, 1}},
        {"mp_rank_01_002_003", 3, {1, 2, 3}},
        {"mp_rank_999999", 1, {999999}},
        {"mp_rank_0000001", 0, {0}},
        {"mp_rank_", 0, {0}},
        {"mp_rank_0_", 0, {0}},
        {"mp_rank_0__1", 0, {0}},
        {"mp_rank_0_1_2_3", 0, {0}},
        {"mp_rank_-1", 0, {0}},
        {"mp_rank_0x", 0, {0}},
        {"mp_rank_0 ", 0, {0}},
        {"xmp_rank_0", 0, {0}},
        {"", 0, {0}},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        uint32_t number[3] = {9, 9, 9};
        unsigned n = ckpt_meg_numbers(cases[i].name, number);

        if (n != cases[i].n)
            fail_msg("'%s' has %u numbers", cases[i].name, n);
        for (unsigned k = 0; k < n; k++)
            assert_int_equal(number[k], cases[i].number[k]);
    }
}

/* The tracker's text and the folder's name turn into each other. */
static void iterations(void **state)
{
    static const struct {
        const char *text, *folder;
    } cases[] = {
        {"0", "iter_0000000"},
        {"3", "iter_0000003"},
        {"1234567", "iter_1234567"},
        {"12345678", "iter_12345678"},
        {"999999999999999999", "iter_999999999999999999"},
        {"release", "release"},
    };
    static const char *const bad_text[] = {
        "", "-1", "1.5", " 3", "3\n", "Release", "releases", "0x3", "1000000000000000000"};
    static const char *const bad_folder[] = {"",        "iter_",      "iter_x",
                                             "iter_-1", "iter_3.tmp", "iter3",
                                             "3",       "released",   "iter_1000000000000000000"};
    char out[CKPT_RUN_NAME];

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_true(ckpt_meg_folder(out, cases[i].text));
        assert_string_equal(out, cases[i].folder);
        assert_true(ckpt_meg_text(out, cases[i].folder));
        assert_string_equal(out, cases[i].text);
    }
    assert_true(ckpt_meg_text(out, "iter_003"));
    assert_string_equal(out, "3");
    for (size_t i = 0; i < sizeof bad_text / sizeof *bad_text; i++) {
        if (ckpt_meg_folder(out, bad_text[i]))
            fail_msg("'%s' names a folder", bad_text[i]);
    }
    for (size_t i = 0; i < sizeof bad_folder / sizeof *bad_folder; i++) {
        if (ckpt_meg_text(out, bad_folder[i]))
            fail_msg("'%s' is taken for an iteration", bad_folder[i]);
    }
}

/* One entry in a folder of this name: 1: torch_dist, 2: a file for each rank, 4: a tag. */
static unsigned marks(const char *folder, const char *name, bool is_dir)
{
    const ckpt_entry entry[] = {{name, is_dir, 1}};
    const ckpt_listing list = {.folder = folder, .entry = entry, .n = 1};

    return (ckpt_meg_is_dist(&list) ? 1u : 0) | (ckpt_meg_is_legacy(&list) ? 2u : 0) |
           (ckpt_meg_is_tag(&list) ? 4u : 0);
}

static void folders(void **state)
{
    (void)state;
    assert_int_equal(marks("run/iter_0000003", "common.pt", false), 5);
    assert_int_equal(marks("run/iter_0000003", "common.pt", true), 0);
    assert_int_equal(marks("run/x", "mp_rank_00", true), 6);
    assert_int_equal(marks("run/x", "mp_rank_00", false), 0);
    // a save that did not finish
    assert_int_equal(marks("run/iter_0000003", "__0_0.distcp", false), 4);
    assert_int_equal(marks("iter_0000003", "__0_0.distcp", false), 4);
    assert_int_equal(marks("run/x", "__0_0.distcp", false), 0);
    assert_int_equal(marks("run/iter_0000003", ".distcp", true), 0);
    assert_int_equal(marks("run/iter_0000003", "metadata.json", false), 0);
}

/* ---- items ---- */

typedef struct items {
    ckpt_dcp_item item[8];
    ckpt_dcp_role role[8];
    uint64_t shape[8][2];
    size_t n;
} items;

static void add(items *s, const char *name, uint64_t rows, uint32_t ndim)
{
    ckpt_dcp_item *i = &s->item[s->n];

    s->shape[s->n][0] = rows;
    s->shape[s->n][1] = 4;
    *i = (ckpt_dcp_item){.name = {name, strlen(name)},
                         .is_tensor = ndim > 0,
                         .ndim = ndim,
                         .shape = s->shape[s->n++]};
}

static void roles(void **state)
{
    ckpt_arena *arena = ckpt_arena_new(0);
    items s = {.n = 0};

    (void)state;
    add(&s, "a.weight", 3, 2);
    add(&s, "b.weight", 3, 2);
    add(&s, "optimizer.state.exp_avg.a.weight", 3, 2);
    add(&s, "chained_1.optimizer.state.exp_avg_sq.a.weight", 3, 2);
    add(&s, "optimizer.state.exp_avg.b.weight", 5, 2); // another shape: a flat buffer
    add(&s, "optimizer.state.exp_avg.c.weight", 3, 2); // no such weight
    add(&s, "optimizer.state.a", 3, 2);                // no kind
    add(&s, "a._extra_state/shard_0", 0, 0);
    const ckpt_dcp_metadata m = {.item = {s.item, s.n, s.n}};
    assert_int_equal(ckpt_meg_roles(s.role, &m, arena, NULL), CKPT_OK);
    static const ckpt_dcp_what want[] = {CKPT_DCP_WEIGHT, CKPT_DCP_WEIGHT, CKPT_DCP_MOMENT,
                                         CKPT_DCP_MOMENT, CKPT_DCP_FLAT,   CKPT_DCP_FLAT,
                                         CKPT_DCP_FLAT,   CKPT_DCP_OTHER};
    for (size_t i = 0; i < s.n; i++) {
        if (s.role[i].what != want[i])
            fail_msg("%s: %d", s.item[i].name.at, (int)s.role[i].what);
    }
    assert_true(s.role[0].trained && !s.role[1].trained);
    assert_string_equal(s.role[2].name, "a.weight");
    assert_string_equal(s.role[2].key, "exp_avg");
    assert_string_equal(s.role[3].name, "a.weight");
    assert_string_equal(s.role[3].key, "exp_avg_sq");
    ckpt_arena_free(arena);
}

/* A kind of any length is either cut out whole or not taken for one. */
static void long_kinds(void **state)
{
    (void)state;
    for (size_t n = 1; n < 100; n++) {
        ckpt_arena *arena = ckpt_arena_new(0);
        char name[200] = "optimizer.state.";
        items s = {.n = 0};

        memset(name + strlen(name), 'k', n);
        strcat(name, ".w");
        add(&s, "w", 3, 1);
        add(&s, name, 3, 1);
        const ckpt_dcp_metadata m = {.item = {s.item, s.n, s.n}};
        assert_int_equal(ckpt_meg_roles(s.role, &m, arena, NULL), CKPT_OK);
        if (s.role[1].what == CKPT_DCP_MOMENT)
            assert_int_equal(strlen(s.role[1].key), n);
        assert_true(n > 63 || s.role[1].what == CKPT_DCP_MOMENT);
        ckpt_arena_free(arena);
    }
}

/* ---- groups ---- */

static ckpt_meg_groups groups_of(const ckpt_meg_group *g, size_t n)
{
    ckpt_meg_groups all = {0};

    for (size_t i = 0; i < n; i++) {
        ckpt_meg_group *slot = ckpt_vec_push(&all);

        assert_non_null(slot);
        *slot = g[i];
    }
    return all;
}

#define FC1    "decoder.layers.mlp.linear_fc1."
#define EXPERT "decoder.layers.mlp.experts.experts.linear_fc1.weight"

static void assigns_groups(void **state)
{
    static const ckpt_meg_group g[] = {{.decays = true},
                                       {.decays = false},
                                       {.decays = true, .expert = true},
                                       {.decays = true, .decoupled = true}};
    static const struct {
        const char *name;
        uint32_t ndim;
        size_t want[4]; /* with the first 1, 2, 3, 4 groups */
    } cases[] = {
        // one axis of the own ones, and biases, do not decay; stacked layers add an axis
        {FC1 "weight", 3, {0, 0, 0, 0}},
        {FC1 "bias", 2, {1, 1, 1, 1}},
        {FC1 "layer_norm_weight", 2, {1, 1, 1, 1}},
        {"decoder.layers.0.mlp.linear_fc1.weight", 2, {0, 0, 0, 0}},
        {"decoder.final_layernorm.weight", 1, {1, 1, 1, 1}},
        {EXPERT, 4, {0, 0, 2, 2}},
        {"embedding.word_embeddings.weight", 2, {0, 0, 0, 3}},
        {"output_layer.weight", 2, {0, 0, 0, 3}},
        {"x.bias", 2, {1, 1, 1, 1}},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        for (size_t n = 1; n <= 4; n++) {
            ckpt_meg_groups all = groups_of(g, n);
            size_t at = ckpt_meg_group_of(&all, cases[i].name, cases[i].ndim);
            size_t want = cases[i].want[n - 1];

            if (at != (want < n ? want : n))
                fail_msg("%s of %zu groups: %zu", cases[i].name, n, at);
            ckpt_vec_free(&all);
        }
    }
}

/* Two groups with the same properties leave a doubt; none with the right ones is no group. */
static void leaves_doubts(void **state)
{
    static const ckpt_meg_group twice[] = {{.decays = true}, {.decays = true}},
                                norms[] = {{.decays = true, .norms_decay = true},
                                           {.decays = false, .norms_decay = true}};
    ckpt_meg_groups all = groups_of(twice, 2), none = {0};

    (void)state;
    assert_int_equal(ckpt_meg_group_of(&all, FC1 "weight", 3), 2);
    assert_int_equal(ckpt_meg_group_of(&none, FC1 "weight", 3), 0);
    ckpt_vec_free(&all);
    all = groups_of(norms, 2);
    assert_int_equal(ckpt_meg_group_of(&all, "decoder.layers.0.q_layernorm.weight", 1), 0);
    assert_int_equal(ckpt_meg_group_of(&all, "decoder.layers.0.input_layernorm.weight", 1), 1);
    ckpt_vec_free(&all);
}

static void reads_groups(void **state)
{
    static const struct {
        double step;
        bool has;
    } cases[] = {{7, true}, {0, true}, {-1, false}, {1e15, false}, {1e300, false}};

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        ckpt_map *map = NULL;
        ckpt_err err = {0};
        assert_int_equal(ckpt_map_create(&map, 0, NULL), CKPT_OK);
        map->path = "x";
        const ckpt_meg_job job = {.map = map, .err = &err};
        ckpt_value *list = ckpt_value_new(map->arena, CKPT_V_LIST),
                   *g = ckpt_value_new(map->arena, CKPT_V_DICT);
        ckpt_meg_groups all = {0};

        assert_true(
            ckpt_dict_add_cstr(map->arena, &g->as.map, "wd_mult", ckpt_value_float(map->arena, 0)));
        assert_true(ckpt_dict_add_cstr(map->arena, &g->as.map, "step",
                                       ckpt_value_float(map->arena, cases[i].step)));
        assert_true(ckpt_seq_add(map->arena, &list->as.seq, g));
        assert_int_equal(ckpt_meg_groups_add(&all, &job, list, NULL), CKPT_OK);
        assert_int_equal(all.n, 1);
        assert_false(all.at[0].decays);
        assert_int_equal(all.at[0].has_step, cases[i].has);
        assert_int_equal(all.at[0].step, cases[i].has ? (int64_t)cases[i].step : 0);
        // not dicts, and no list
        list->as.seq.at[0] = ckpt_value_int(map->arena, 1);
        assert_int_equal(ckpt_meg_groups_add(&all, &job, list, NULL), CKPT_EFORMAT);
        err = (ckpt_err){0};
        assert_int_equal(ckpt_meg_groups_add(&all, &job, g, NULL), CKPT_EFORMAT);
        err = (ckpt_err){0};
        assert_int_equal(ckpt_meg_groups_add(&all, &job, NULL, NULL), CKPT_EFORMAT);
        ckpt_vec_free(&all);
        ckpt_map_free(map);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(numbers_of_ranks), cmocka_unit_test(iterations),
        cmocka_unit_test(folders),          cmocka_unit_test(roles),
        cmocka_unit_test(long_kinds),       cmocka_unit_test(assigns_groups),
        cmocka_unit_test(leaves_doubts),    cmocka_unit_test(reads_groups),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
