/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_single_values.c: single values of an optimizer, and the moments that are tensors instead.
 */
#include <stdio.h>
#include <time.h>

#include "formats/training/single_values.h"
#include "libckpt/map/map.h"
#include "tests/unit/unit.h"

enum { MANY = 30000 };

static ckpt_tensor *add(ckpt_map *map, const char *name)
{
    static const uint64_t row[] = {4};
    const ckpt_tensor like = {.dtype = CKPT_F32, .ndim = 1, .shape = row};
    ckpt_tensor *t = NULL;

    assert_int_equal(ckpt_map_add(map, name, strlen(name), &like, &t, NULL), CKPT_OK);
    return t;
}

/* A parameter of the last group. */
static void add_param(ckpt_map *map, ckpt_state *state, const char *name)
{
    ckpt_tensor **slot = ckpt_vec_push(&state->param);

    assert_non_null(slot);
    *slot = add(map, name);
    state->group.at[state->group.n - 1].n++;
}

static void add_group(ckpt_state *state)
{
    ckpt_group *g = ckpt_vec_push(&state->group);

    assert_non_null(g);
    *g = (ckpt_group){.first = state->param.n};
}

static ckpt_state *begin(ckpt_map **map, const char *prefix)
{
    ckpt_state *state;

    assert_int_equal(ckpt_map_create(map, 0, NULL), CKPT_OK);
    assert_int_equal(ckpt_state_new(&state, *map, prefix, NULL), CKPT_OK);
    add_group(state);
    return state;
}

static bool single(const ckpt_map *map, const ckpt_train_moments *m, size_t group, const char *key)
{
    const ckpt_pair p = {.key = ckpt_value_cstr(map->arena, key),
                         .value = ckpt_value_int(map->arena, 3)};

    return ckpt_train_is_single(m, group, &p);
}

/* A kind counts for the group of the parameter that has it, whichever parameter that is. */
static void kinds_of_groups(void **unused)
{
    ckpt_map *map;
    ckpt_state *state = begin(&map, "");
    ckpt_train_moments m = {0};

    (void)unused;
    add_param(map, state, "v");
    add_param(map, state, "w");
    add_group(state);
    add_param(map, state, "a/b");
    (void)add(map, "exp_avg/w");
    (void)add(map, "max/norm/a/b");
    (void)add(map, "sum/b");
    (void)add(map, "w/other");
    // both groups have this parameter
    add_group(state);
    state->group.at[2].first = 1;
    state->group.at[2].n = 1;
    assert_int_equal(ckpt_train_moments_find(&m, map, state, NULL), CKPT_OK);
    assert_false(single(map, &m, 0, "exp_avg"));
    assert_true(single(map, &m, 1, "exp_avg"));
    assert_false(single(map, &m, 2, "exp_avg"));
    assert_false(single(map, &m, 1, "max/norm"));
    assert_true(single(map, &m, 0, "max/norm"));
    assert_true(single(map, &m, 1, "sum"));
    assert_true(single(map, &m, 0, "exp"));
    assert_true(single(map, &m, 0, "mu_product"));
    ckpt_train_moments_free(&m);
    ckpt_map_free(map);
}

/* The tensors of another model-parallel rank are not this one's. */
static void prefix_of_a_rank(void **unused)
{
    ckpt_map *map;
    ckpt_state *state = begin(&map, "mp_rank_01/");
    ckpt_train_moments m = {0};

    (void)unused;
    add_param(map, state, "mp_rank_01/w");
    (void)add(map, "mp_rank_01/exp_avg/w");
    (void)add(map, "mp_rank_00/sum/w");
    assert_int_equal(ckpt_train_moments_find(&m, map, state, NULL), CKPT_OK);
    assert_false(single(map, &m, 0, "exp_avg"));
    assert_true(single(map, &m, 0, "sum"));
    ckpt_train_moments_free(&m);
    ckpt_map_free(map);
}

/* A tensor with more than one element stands for moments, even if the map has none. */
static void flat_moment(void **unused)
{
    ckpt_map *map;
    ckpt_state *state = begin(&map, "");
    ckpt_train_moments m = {0};
    const uint64_t four[] = {4}, one[] = {1};
    ckpt_tensor_value t = {.dtype = CKPT_F32, .ndim = 1, .shape = four};
    ckpt_value *v, *key;

    (void)unused;
    (void)state;
    v = ckpt_value_new(map->arena, CKPT_V_TENSOR);
    key = ckpt_value_cstr(map->arena, "momentum");
    assert_non_null(v);
    v->as.tensor = &t;
    assert_int_equal(ckpt_train_moments_find(&m, map, state, NULL), CKPT_OK);
    assert_false(ckpt_train_is_single(&m, 0, &(ckpt_pair){.key = key, .value = v}));
    t.shape = one;
    assert_true(ckpt_train_is_single(&m, 0, &(ckpt_pair){.key = key, .value = v}));
    key = ckpt_value_int(map->arena, 1);
    assert_false(ckpt_train_is_single(&m, 0, &(ckpt_pair){.key = key, .value = v}));
    ckpt_train_moments_free(&m);
    ckpt_map_free(map);
}

/* The questions of all parameters of a large group together cost milliseconds. */
static void many_parameters(void **unused)
{
    ckpt_map *map;
    ckpt_state *state = begin(&map, "");
    ckpt_train_moments m = {0};
    char name[32];
    clock_t start;

    (void)unused;
    for (int i = 0; i < MANY; i++) {
        (void)snprintf(name, sizeof name, "w%d", i);
        add_param(map, state, name);
    }
    start = clock();
    assert_int_equal(ckpt_train_moments_find(&m, map, state, NULL), CKPT_OK);
    for (int i = 0; i < MANY; i++)
        assert_true(single(map, &m, 0, "mu_product"));
    // looking up each parameter for each of them took a minute
    assert_true(clock() - start < 5 * CLOCKS_PER_SEC);
    ckpt_train_moments_free(&m);
    ckpt_map_free(map);
}

/* Without a state nothing is a moment. */
static void no_state(void **unused)
{
    ckpt_map *map;
    ckpt_train_moments m = {0};

    (void)unused;
    assert_int_equal(ckpt_map_create(&map, 0, NULL), CKPT_OK);
    assert_int_equal(ckpt_train_moments_find(&m, map, NULL, NULL), CKPT_OK);
    assert_true(single(map, &m, 0, "exp_avg"));
    ckpt_train_moments_free(&m);
    ckpt_map_free(map);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(kinds_of_groups), cmocka_unit_test(prefix_of_a_rank),
        cmocka_unit_test(flat_moment), cmocka_unit_test(many_parameters),
        cmocka_unit_test(no_state)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
