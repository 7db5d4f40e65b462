/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_expert_ranks.c: groups of experts are divided among expert-parallel ranks by the experts'
 * numbers, and joined again.
 */
#include "formats/training/expert_ranks.h"
#include "libckpt/map/map.h"
#include "tests/unit/unit.h"

#define E "h.deepspeed_experts."

enum { MOST = 8 };

/* A state with one group, whose fields are those of DeepSpeed's expert groups. */
typedef struct sample {
    ckpt_map *map;
    ckpt_state *state;
} sample;

static sample begin(const char *group, bool moe, const char *const *names)
{
    static const uint64_t shape[] = {4};
    const ckpt_tensor like = {.dtype = CKPT_F32, .ndim = 1, .shape = shape};
    sample s = {0};

    assert_int_equal(ckpt_map_create(&s.map, 0, NULL), CKPT_OK);
    assert_int_equal(ckpt_state_new(&s.state, s.map, "", NULL), CKPT_OK);
    ckpt_group *g = ckpt_vec_push(&s.state->group);
    assert_non_null(g);
    g->n_lanes = 1;
    for (size_t i = 0; i < MOST && names[i]; i++) {
        ckpt_tensor **slot = ckpt_vec_push(&s.state->param);
        assert_non_null(slot);
        assert_int_equal(ckpt_map_add(s.map, names[i], strlen(names[i]), &like, slot, NULL),
                         CKPT_OK);
        g->n++;
    }
    g->fields = ckpt_value_new(s.map->arena, CKPT_V_DICT);
    assert_true(ckpt_dict_add_cstr(s.map->arena, &g->fields->as.map, "name",
                                   ckpt_value_str(s.map->arena, group, strlen(group))));
    assert_true(ckpt_dict_add_cstr(s.map->arena, &g->fields->as.map, "moe",
                                   ckpt_value_bool(s.map->arena, moe)));
    return s;
}

static void divides(void **unused)
{
    static const struct {
        const char *group;
        bool moe;
        const char *names[MOST], *sorted[MOST];
        uint32_t lanes; /* 1: not divided; 0: refused */
    } cases[] = {
        {"ep_size_2", true, {E "0.w", E "1.w"}, {E "0.w", E "1.w"}, 2},
        // each rank has two experts; a list in the module's order is sorted by rank
        {"ep_size_2",
         true,
         {E "0.a", E "0.b", E "1.a", E "1.b", E "2.a", E "2.b", E "3.a", E "3.b"},
         {E "0.a", E "0.b", E "1.a", E "1.b", E "2.a", E "2.b", E "3.a", E "3.b"},
         2},
        {"ep_size_2",
         true,
         {E "0.a", E "1.a", E "2.a", E "3.a", "x" E "0.a", "x" E "1.a", "x" E "2.a", "x" E "3.a"},
         {E "0.a", E "1.a", "x" E "0.a", "x" E "1.a", E "2.a", E "3.a", "x" E "2.a", "x" E "3.a"},
         2},
        {"ep_size_2", true, {E "1.w", E "0.w"}, {E "0.w", E "1.w"}, 2},
        // groups that are not divided
        {"ep_size_2", false, {E "0.w", E "1.w"}, {E "0.w", E "1.w"}, 1},
        {"ep_size_1", true, {E "0.w", E "1.w"}, {E "0.w", E "1.w"}, 1},
        {"ep_size_", true, {E "0.w", E "1.w"}, {E "0.w", E "1.w"}, 1},
        {"ep_size_2x", true, {E "0.w", E "1.w"}, {E "0.w", E "1.w"}, 1},
        {"ep_size_9999999", true, {E "0.w", E "1.w"}, {E "0.w", E "1.w"}, 1},
        {"other", true, {E "0.w", E "1.w"}, {E "0.w", E "1.w"}, 1},
        {"ep_size_2", true, {NULL}, {NULL}, 1},
        // parameters that do not fit their ranks
        {"ep_size_2", true, {E "0.w", E "1.w", E "2.w"}, {NULL}, 0},
        {"ep_size_2", true, {E "0.w", E "1.v"}, {NULL}, 0},
        {"ep_size_2", true, {"plain.w", "plain.v"}, {NULL}, 0},
        {"ep_size_2", true, {E "1.w", E "2.w"}, {NULL}, 0},
    };

    (void)unused;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        sample s = begin(cases[i].group, cases[i].moe, cases[i].names);
        const ckpt_group *g = &s.state->group.at[0];
        const ckpt_state *joined = NULL;
        const char *odd = NULL;
        size_t n = g->n;

        assert_int_equal(ckpt_train_lanes_cut(s.state, &odd, NULL), CKPT_OK);
        if ((odd != NULL) != (cases[i].lanes == 0))
            fail_msg("case %zu: %s", i, odd ? odd : "not refused");
        if (odd)
            assert_string_equal(odd, cases[i].group);
        for (size_t k = 0; cases[i].lanes && k < n; k++)
            assert_string_equal(s.state->param.at[k]->name, cases[i].sorted[k]);
        if (cases[i].lanes) {
            assert_int_equal(g->n_lanes, cases[i].lanes);
            assert_int_equal(g->n, n / cases[i].lanes);
            assert_int_equal(ckpt_train_lanes_join(&joined, s.state, s.map->arena, NULL), CKPT_OK);
            assert_int_equal(joined == s.state, cases[i].lanes == 1);
            assert_int_equal(joined->group.at[0].n, n);
            assert_int_equal(joined->group.at[0].n_lanes, 1);
            // the state itself stays divided
            assert_int_equal(g->n_lanes, cases[i].lanes);
        }
        ckpt_map_free(s.map);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(divides)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
