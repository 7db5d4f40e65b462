/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_torch_state.c: the names that a distributed checkpoint's model and its optimizer have.
 */
#include "formats/training/torch_state.h"
#include "libckpt/map/map.h"
#include "tests/unit/unit.h"

static const uint64_t row[] = {4};

static ckpt_tensor *add(ckpt_map *map, const char *name, uint32_t role)
{
    const ckpt_tensor like = {.dtype = CKPT_F32, .ndim = 1, .shape = row, .role = role};
    ckpt_tensor *t = NULL;

    assert_int_equal(ckpt_map_add(map, name, strlen(name), &like, &t, NULL), CKPT_OK);
    return t;
}

/* A map whose optimizer has one group, with one parameter of this name. */
static ckpt_map *begin(const char *param)
{
    ckpt_map *map;

    assert_int_equal(ckpt_map_create(&map, 0, NULL), CKPT_OK);
    map->path = "run";
    ckpt_arena *a = map->arena;
    ckpt_value *root = ckpt_value_new(a, CKPT_V_DICT), *optim = ckpt_value_new(a, CKPT_V_DICT),
               *groups = ckpt_value_new(a, CKPT_V_LIST), *group = ckpt_value_new(a, CKPT_V_DICT),
               *params = ckpt_value_new(a, CKPT_V_LIST);
    assert_true(ckpt_seq_add(a, &params->as.seq, ckpt_value_cstr(a, param)));
    assert_true(ckpt_dict_add_cstr(a, &group->as.map, "lr", ckpt_value_float(a, 0.5)));
    assert_true(ckpt_dict_add_cstr(a, &group->as.map, "params", params));
    assert_true(ckpt_seq_add(a, &groups->as.seq, group));
    assert_true(ckpt_dict_add_cstr(a, &optim->as.map, "param_groups", groups));
    assert_true(ckpt_dict_add_cstr(a, &root->as.map, "optim", optim));
    map->values = root;
    return map;
}

/* The model has a wrapper's word, the optimizer has not: the weight gets the optimizer's name. */
static void a_wrapped_model(void **state)
{
    ckpt_map *map = begin("a.w");
    const ckpt_tensor *t = add(map, "module.a._orig_mod.w", CKPT_ROLE_WEIGHT);

    (void)state;
    (void)add(map, "exp_avg/a.w", CKPT_ROLE_STATE);
    assert_int_equal(ckpt_train_torch_state(map, CKPT_TRAIN_BY_MODEL, false, NULL), CKPT_OK);
    assert_null(map->no_state);
    assert_string_equal(t->name, "a.w");
    assert_int_equal(map->states.n, 1);
    assert_ptr_equal(map->states.at[0]->param.at[0], t);
    ckpt_map_free(map);
}

static void a_wrapped_optimizer(void **state)
{
    ckpt_map *map = begin("module.w");
    const ckpt_tensor *t = add(map, "w", CKPT_ROLE_WEIGHT);

    (void)state;
    (void)add(map, "exp_avg/module.w", CKPT_ROLE_STATE);
    assert_int_equal(ckpt_train_torch_state(map, CKPT_TRAIN_BY_MODEL, false, NULL), CKPT_OK);
    assert_null(map->no_state);
    assert_string_equal(t->name, "module.w");
    ckpt_map_free(map);
}

/* Buffers and frozen weights, which the optimizer does not name, keep the names of their module. */
static void untrained_tensors(void **state)
{
    ckpt_map *map = begin("bn.w");
    const ckpt_tensor *mean = add(map, "module.bn.running_mean", CKPT_ROLE_BUFFER);

    (void)state;
    (void)add(map, "module.bn.w", CKPT_ROLE_WEIGHT);
    (void)add(map, "exp_avg/bn.w", CKPT_ROLE_STATE);
    assert_int_equal(ckpt_train_torch_state(map, CKPT_TRAIN_BY_MODEL, false, NULL), CKPT_OK);
    assert_string_equal(mean->name, "bn.running_mean");
    ckpt_map_free(map);

    map = begin("module.w");
    mean = add(map, "running_mean", CKPT_ROLE_BUFFER);
    (void)add(map, "w", CKPT_ROLE_WEIGHT);
    (void)add(map, "exp_avg/module.w", CKPT_ROLE_STATE);
    assert_int_equal(ckpt_train_torch_state(map, CKPT_TRAIN_BY_MODEL, false, NULL), CKPT_OK);
    assert_string_equal(mean->name, "module.running_mean");
    ckpt_map_free(map);
}

/* More than wrappers differs. */
static void other_names(void **state)
{
    ckpt_map *map = begin("w");
    const ckpt_tensor *t = add(map, "model.w", CKPT_ROLE_WEIGHT);

    (void)state;
    (void)add(map, "exp_avg/w", CKPT_ROLE_STATE);
    assert_int_equal(ckpt_train_torch_state(map, CKPT_TRAIN_BY_MODEL, false, NULL), CKPT_OK);
    assert_non_null(map->no_state);
    assert_non_null(strstr(map->no_state, "names of the optimizer's parameters differ"));
    assert_string_equal(t->name, "model.w");
    ckpt_map_free(map);
}

/* State of a parameter that no group has would be lost. */
static void state_without_a_group(void **state)
{
    ckpt_map *map = begin("w");

    (void)state;
    (void)add(map, "w", CKPT_ROLE_WEIGHT);
    (void)add(map, "v", CKPT_ROLE_FROZEN);
    (void)add(map, "exp_avg/w", CKPT_ROLE_STATE);
    (void)add(map, "exp_avg/v", CKPT_ROLE_STATE);
    assert_int_equal(ckpt_train_torch_state(map, CKPT_TRAIN_BY_MODEL, false, NULL), CKPT_OK);
    assert_non_null(map->no_state);
    assert_non_null(strstr(map->no_state, "none of its groups: v"));
    assert_int_equal(map->states.n, 0);
    ckpt_map_free(map);
}

/* Moments of bitsandbytes are named in the refusal. */
static void moments_of_bitsandbytes(void **state)
{
    ckpt_map *map = begin("w");

    (void)state;
    (void)add(map, "w", CKPT_ROLE_WEIGHT);
    (void)add(map, "state1/w", CKPT_ROLE_STATE);
    (void)add(map, "qmap1/w", CKPT_ROLE_STATE);
    assert_int_equal(ckpt_train_torch_state(map, CKPT_TRAIN_BY_MODEL, false, NULL), CKPT_OK);
    assert_non_null(map->no_state);
    assert_non_null(strstr(map->no_state, "bitsandbytes"));
    ckpt_map_free(map);
}

/* apex's FusedAdam (capturable) counts a group's steps in an integer tensor with one element. */
static void a_step_count_in_a_tensor(void **state)
{
    static int32_t step[1] = {7};
    static const uint64_t one[] = {1};
    ckpt_map *map = begin("w");
    const ckpt_source source = {.kind = CKPT_SOURCE_MEMORY, .n_bytes = 4, .memory = step};
    ckpt_storage storage = {.dtype = CKPT_I32, .n_elems = 1, .n_bytes = 4};
    ckpt_tensor_value tensor = {.dtype = CKPT_I32, .ndim = 1, .shape = one, .storage = &storage};
    ckpt_value *group = ckpt_value_seq(
                            ckpt_value_get(ckpt_value_get(map->values, "optim"), "param_groups"))
                            .at[0],
               *v = ckpt_value_new(map->arena, CKPT_V_TENSOR);
    int64_t n = 0;

    (void)state;
    assert_int_equal(ckpt_map_add_source(map, &source, &storage.source, NULL), CKPT_OK);
    v->as.tensor = &tensor;
    assert_true(ckpt_dict_add_cstr(map->arena, &group->as.map, "step", v));
    (void)add(map, "w", CKPT_ROLE_WEIGHT);
    (void)add(map, "exp_avg/w", CKPT_ROLE_STATE);
    assert_int_equal(ckpt_train_torch_state(map, CKPT_TRAIN_BY_MODEL, false, NULL), CKPT_OK);
    assert_null(map->no_state);
    assert_true(
        ckpt_value_as_int(ckpt_value_get(map->states.at[0]->group.at[0].fields, "step"), &n));
    assert_int_equal(n, 7);
    ckpt_map_free(map);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_wrapped_model),          cmocka_unit_test(a_wrapped_optimizer),
        cmocka_unit_test(untrained_tensors),        cmocka_unit_test(other_names),
        cmocka_unit_test(state_without_a_group),    cmocka_unit_test(moments_of_bitsandbytes),
        cmocka_unit_test(a_step_count_in_a_tensor),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
