/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_ranked.c: values that each rank has for itself: of which partition they are, and what is
 * said of those that a target loses.
 */
#include "libckpt/map/map.h"
#include "libckpt/map/state.h"
#include "tests/unit/unit.h"

enum { WORLD = 2 };

/* A state of two groups, of tensors "a" (4 elements), "b" (4) and "c" (5). */
static ckpt_map *make(void)
{
    ckpt_map *map = NULL;
    ckpt_state *s = NULL;

    assert_int_equal(ckpt_map_create(&map, 0, NULL), CKPT_OK);
    map->path = "run";
    assert_int_equal(ckpt_state_new(&s, map, "", NULL), CKPT_OK);
    s->world = WORLD;
    for (unsigned i = 0; i < 3; i++) {
        const uint64_t n = i == 2 ? 5 : 4;
        const ckpt_tensor like = {.dtype = CKPT_F32, .ndim = 1, .shape = &n};
        ckpt_tensor *t = NULL;

        assert_int_equal(ckpt_map_add(map, &"abc"[i], 1, &like, &t, NULL), CKPT_OK);
        *ckpt_vec_push(&s->param) = t;
    }
    *ckpt_vec_push(&s->group) = (ckpt_group){.n = 2, .n_lanes = 1};
    *ckpt_vec_push(&s->group) = (ckpt_group){.first = 2, .n = 1, .n_lanes = 1};
    return map;
}

static ckpt_ranked *add(ckpt_map *map, size_t g, const char *key, bool in_entry)
{
    ckpt_state *s = map->states.at[0];
    ckpt_value *k = ckpt_value_cstr(map->arena, key);
    ckpt_ranked *r = ckpt_ranked_add(map->arena, &s->group.at[g].ranked, k, in_entry);

    assert_non_null(r);
    r->at = ckpt_arena_array(map->arena, WORLD, sizeof(ckpt_value *));
    assert_non_null(r->at);
    return r;
}

static void one_for_each_key(void **state)
{
    ckpt_map *map = make();
    ckpt_group *g = &map->states.at[0]->group.at[0];
    ckpt_ranked *d = add(map, 0, "d", false), *entry = add(map, 0, "d", true);

    (void)state;
    assert_ptr_not_equal(d, entry);
    assert_ptr_equal(add(map, 0, "d", false), d);
    assert_ptr_equal(ckpt_ranked_get(g, ckpt_value_cstr(map->arena, "d"), false), d);
    assert_ptr_equal(ckpt_ranked_get(g, ckpt_value_cstr(map->arena, "d"), true), entry);
    assert_null(ckpt_ranked_get(g, ckpt_value_cstr(map->arena, "e"), true));
    assert_null(ckpt_ranked_get(g, ckpt_value_new(map->arena, CKPT_V_NONE), true));
    ckpt_map_free(map);
}

/* Names, sizes and order make a partition; without values nothing has to stay. */
static void partitions(void **state)
{
    ckpt_map *map = make();
    ckpt_state *s = map->states.at[0];
    ckpt_tensor *a = s->param.at[0], *b = s->param.at[1];

    (void)state;
    assert_true(ckpt_ranked_stay(s));
    (void)add(map, 0, "d", false);
    assert_false(ckpt_ranked_stay(s)); // of no partition that is known
    s->group.at[0].cut = ckpt_ranked_cut(s, &s->group.at[0]);
    assert_true(ckpt_ranked_stay(s));
    s->param.at[0] = b;
    s->param.at[1] = a;
    assert_false(ckpt_ranked_stay(s));
    s->param.at[0] = a;
    s->param.at[1] = b;
    s->group.at[0].n = 1;
    assert_false(ckpt_ranked_stay(s));
    s->group.at[0].n = 2;
    b->n_elems = 3;
    assert_false(ckpt_ranked_stay(s));
    ckpt_map_free(map);
}

/* What is said of a target; NULL: nothing. */
static const char *lost(ckpt_map *from, bool keeps, bool fresh)
{
    static char text[400];
    ckpt_map *to = NULL;
    size_t n;

    assert_int_equal(ckpt_map_create(&to, 0, NULL), CKPT_OK);
    to->claim.keeps_ranked = keeps;
    to->claim.fresh = fresh;
    assert_int_equal(ckpt_ranked_lost(to, from, NULL), CKPT_OK);
    n = to->findings.n;
    assert_true(n < 2);
    if (n > 0) {
        assert_int_equal(to->findings.at[0].severity, CKPT_WARNING);
        strncpy(text, to->findings.at[0].text, sizeof text - 1);
    }
    ckpt_map_free(to);
    return n > 0 ? text : NULL;
}

static void what_is_lost(void **state)
{
    ckpt_map *map = make();
    ckpt_ranked *rms;

    (void)state;
    assert_null(lost(map, false, false));
    (void)add(map, 0, "d", false);
    (void)add(map, 0, "d_hat", false);
    rms = add(map, 1, "RMS", true);
    assert_non_null(strstr(lost(map, false, false),
                           "d, d_hat of parameter group 0; RMS of parameter group 1: each"));
    assert_null(lost(map, true, false));
    assert_null(strstr(lost(map, false, true), "RMS")); // begins anew
    rms->at = NULL;                                     // differs within a rank, too
    assert_non_null(strstr(lost(map, true, false), "RMS of parameter group 1: each"));
    assert_null(strstr(lost(map, true, false), "d_hat"));
    // a state of one model-parallel rank has its own
    rms->model = true;
    assert_null(lost(map, true, false));
    map->states.at[0]->joined = true;
    assert_non_null(lost(map, true, false));
    ckpt_map_free(map);
}

/* Values of the training program belong to ranks, not to partitions. */
static void client_values(void **state)
{
    static const char *const key[] = {"rng", "a", "b", "c", "d", "e", "f", "g", "sampler"};
    ckpt_map *from = make(), *to = NULL;
    ckpt_state *s = from->states.at[0];
    ckpt_value *values[4] = {NULL};
    ckpt_ranked *r;

    (void)state;
    for (size_t i = 0; i < sizeof key / sizeof *key; i++) {
        r = ckpt_ranked_add(from->arena, &s->client, ckpt_value_cstr(from->arena, key[i]), false);
        assert_non_null(r);
        r->at = values;
    }
    assert_non_null(strstr(lost(from, true, true), "rng, a, b, c, d, e, f, g and 1 more: the"));
    assert_int_equal(ckpt_map_create(&to, 0, NULL), CKPT_OK);
    to->claim.keeps_client = true;
    assert_int_equal(ckpt_ranked_lost(to, from, NULL), CKPT_OK);
    assert_int_equal(to->findings.n, 0);
    s->client->at = NULL; // the writer has no place for these
    assert_int_equal(ckpt_ranked_lost(to, from, NULL), CKPT_OK);
    assert_int_equal(to->findings.n, 1);
    assert_int_equal(strncmp(to->findings.at[0].text, "rng: the ranks", 14), 0);
    ckpt_map_free(to);
    ckpt_map_free(from);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_for_each_key),
        cmocka_unit_test(partitions),
        cmocka_unit_test(what_is_lost),
        cmocka_unit_test(client_values),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
