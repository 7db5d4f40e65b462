/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_masters.c: float32 masters beside the 16-bit parameters of a distributed checkpoint.
 */
#include "formats/training/masters.h"
#include "libckpt/map/map.h"
#include "tests/unit/unit.h"

static const uint64_t row[] = {4}, pair[] = {2, 2};

static ckpt_tensor *add(ckpt_map *map, const char *name, ckpt_dtype dtype, uint32_t role)
{
    const ckpt_tensor like = {.dtype = dtype, .ndim = 1, .shape = row, .role = role};
    ckpt_tensor *t = NULL;

    assert_int_equal(ckpt_map_add(map, name, strlen(name), &like, &t, NULL), CKPT_OK);
    return t;
}

/* A map with a parameter "w" that the state trains. */
static ckpt_state *begin(ckpt_map **map, ckpt_dtype dtype)
{
    ckpt_state *state;

    assert_int_equal(ckpt_map_create(map, 0, NULL), CKPT_OK);
    assert_int_equal(ckpt_state_new(&state, *map, "", NULL), CKPT_OK);
    ckpt_tensor **slot = ckpt_vec_push(&state->param);
    assert_non_null(slot);
    *slot = add(*map, "w", dtype, CKPT_ROLE_WEIGHT);
    return state;
}

static void state_of_a_parameter(void **unused)
{
    ckpt_map *map;
    ckpt_state *state = begin(&map, CKPT_BF16);
    const ckpt_tensor *master = add(map, "master_param/w", CKPT_F32, CKPT_ROLE_STATE);
    const ckpt_tensor *moment = add(map, "exp_avg/w", CKPT_F32, CKPT_ROLE_STATE);

    (void)unused;
    assert_int_equal(ckpt_train_masters(map, state, false, NULL), CKPT_OK);
    assert_string_equal(state->masters, "master_param");
    assert_non_null(master->twin);
    assert_int_equal(master->twin->dtype, CKPT_BF16);
    assert_null(moment->twin);
    ckpt_map_free(map);
}

static void beside_the_model(void **unused)
{
    ckpt_map *map;
    ckpt_state *state = begin(&map, CKPT_F16);
    const ckpt_tensor *master = add(map, "app.model_fp32.w", CKPT_F32, CKPT_ROLE_OTHER);
    const ckpt_tensor *average = add(map, "ema.w", CKPT_F32, CKPT_ROLE_OTHER);

    (void)unused;
    assert_int_equal(ckpt_train_masters(map, state, false, NULL), CKPT_OK);
    assert_string_equal(state->masters, "app.model_fp32");
    assert_non_null(master->twin);
    assert_null(average->twin);
    ckpt_map_free(map);
}

/* Without the comparison the masters are still known. */
static void ignored_copies(void **unused)
{
    ckpt_map *map;
    ckpt_state *state = begin(&map, CKPT_BF16);
    const ckpt_tensor *master = add(map, "master/w", CKPT_F32, CKPT_ROLE_STATE);

    (void)unused;
    assert_int_equal(ckpt_train_masters(map, state, true, NULL), CKPT_OK);
    assert_string_equal(state->masters, "master");
    assert_null(master->twin);
    assert_true(map->effects & CKPT_USED_COPIES);
    ckpt_map_free(map);
}

/* Float32 parameters are their own masters, and another shape is of something else. */
static void no_masters(void **unused)
{
    ckpt_map *map;
    ckpt_state *state = begin(&map, CKPT_F32);
    ckpt_tensor *t = add(map, "master/w", CKPT_F32, CKPT_ROLE_STATE);

    (void)unused;
    assert_int_equal(ckpt_train_masters(map, state, false, NULL), CKPT_OK);
    assert_null(state->masters);
    assert_null(t->twin);
    ckpt_map_free(map);

    // moments in float32, and averaged weights
    state = begin(&map, CKPT_BF16);
    t = add(map, "exp_avg_fp32/w", CKPT_F32, CKPT_ROLE_STATE);
    (void)add(map, "ema_fp32.w", CKPT_F32, CKPT_ROLE_OTHER);
    assert_int_equal(ckpt_train_masters(map, state, false, NULL), CKPT_OK);
    assert_null(state->masters);
    assert_null(t->twin);
    ckpt_map_free(map);

    state = begin(&map, CKPT_BF16);
    t = add(map, "master/w", CKPT_F32, CKPT_ROLE_STATE);
    t->ndim = 2;
    t->shape = pair;
    assert_int_equal(ckpt_train_masters(map, state, false, NULL), CKPT_OK);
    assert_null(state->masters);
    assert_null(t->twin);
    ckpt_map_free(map);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(state_of_a_parameter),
        cmocka_unit_test(beside_the_model),
        cmocka_unit_test(ignored_copies),
        cmocka_unit_test(no_masters),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
