/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_dcp_layout.c: the roles of a distributed checkpoint's items, and the names of layouts.
 */
#include <string.h>

#include "formats/dcp/dcp.h"
#include "tests/unit/unit.h"

enum { LAYOUT_KEYS = 8 };

/* Add an item with the path "a/b/c". */
static void add(ckpt_dcp_metadata *m, ckpt_arena *arena, const char *path)
{
    ckpt_dcp_item *item = ckpt_vec_push(&m->item);
    ckpt_value *keys = ckpt_value_new(arena, CKPT_V_TUPLE);
    const char *end;

    assert_non_null(item);
    for (const char *at = path; *at; at = *end ? end + 1 : end) {
        end = at + strcspn(at, "/");
        const char *key = ckpt_arena_string(arena, at, (size_t)(end - at));
        assert_true(ckpt_seq_add(arena, &keys->as.seq, ckpt_value_cstr(arena, key)));
    }
    *item = (ckpt_dcp_item){.name = {path, strlen(path)},
                            .path = keys,
                            .is_tensor = !strstr(path, "param_groups"),
                            .dtype = CKPT_F32};
}

static void a_state_dict_above_the_optimizer(void **state)
{
    ckpt_arena *arena = ckpt_arena_new(0);
    ckpt_dcp_metadata m = {0};
    ckpt_dcp_role role[LAYOUT_KEYS];

    (void)state;
    add(&m, arena, "state/net/model/w");
    add(&m, arena, "state/opt/main/state/w/exp_avg");
    add(&m, arena, "state/opt/main/param_groups/0/lr");
    add(&m, arena, "state/ema/w");
    assert_int_equal(ckpt_dcp_roles(role, &m, arena, NULL), CKPT_OK);
    assert_int_equal(role[0].what, CKPT_DCP_WEIGHT);
    assert_true(role[0].trained);
    assert_string_equal(role[0].name, "w");
    assert_int_equal(role[1].what, CKPT_DCP_MOMENT);
    assert_string_equal(role[1].name, "w");
    assert_string_equal(role[1].key, "exp_avg");
    assert_int_equal(role[2].what, CKPT_DCP_SETTING);
    assert_int_equal(role[3].what, CKPT_DCP_OTHER);
    ckpt_vec_free(&m.item);
    ckpt_arena_free(arena);
}

/* Averaged weights at the root, beside the weights, are a copy and no part of the model. */
static void averages_beside_the_weights(void **state)
{
    static const char *const paths[] = {
        "w", "v", "ema.w", "ema.v", "optim/state/w/exp_avg", "optim/param_groups/0/lr"};
    ckpt_arena *arena = ckpt_arena_new(0);
    ckpt_dcp_metadata m = {0};
    ckpt_dcp_role role[LAYOUT_KEYS];
    const uint64_t shape[] = {4};

    (void)state;
    for (unsigned with = 0; with < 2; with++) {
        unsigned n = with ? 6 : 4;
        m.item.n = 0;
        for (unsigned i = 0; i < n; i++) {
            add(&m, arena, paths[i]);
            m.item.at[i].ndim = 1;
            m.item.at[i].shape = shape;
        }
        assert_int_equal(ckpt_dcp_roles(role, &m, arena, NULL), CKPT_OK);
        assert_int_equal(role[0].what, CKPT_DCP_WEIGHT);
        assert_int_equal(role[1].what, CKPT_DCP_WEIGHT);
        assert_int_equal(role[2].what, CKPT_DCP_OTHER);
        assert_int_equal(role[3].what, CKPT_DCP_OTHER);
        assert_string_equal(role[2].name, "ema.w");
    }
    ckpt_vec_free(&m.item);
    ckpt_arena_free(arena);
}

/* Only the model, or only the optimizer, is wrapped: the weights get the optimizer's names. */
static void wrappers_on_one_side(void **state)
{
    static const char *const models[] = {"model/module.w", "model/w", "model/_orig_mod.w",
                                         "model/w"};
    static const char *const moments[] = {"optim/state/w/exp_avg", "optim/state/module.w/exp_avg",
                                          "optim/state/module.w/exp_avg",
                                          "optim/state/_orig_mod.w/exp_avg"};
    static const char *const names[] = {"w", "module.w", "module.w", "_orig_mod.w"};
    ckpt_arena *arena = ckpt_arena_new(0);
    ckpt_dcp_metadata m = {0};
    ckpt_dcp_role role[LAYOUT_KEYS];

    (void)state;
    for (unsigned i = 0; i < 4; i++) {
        m.item.n = 0;
        add(&m, arena, models[i]);
        add(&m, arena, moments[i]);
        add(&m, arena, "optim/param_groups/0/lr");
        add(&m, arena, "other/x");
        assert_int_equal(ckpt_dcp_roles(role, &m, arena, NULL), CKPT_OK);
        assert_int_equal(role[0].what, CKPT_DCP_WEIGHT);
        assert_true(role[0].trained);
        assert_string_equal(role[0].name, names[i]);
        assert_int_equal(role[3].what, CKPT_DCP_OTHER);
    }
    ckpt_vec_free(&m.item);
    ckpt_arena_free(arena);
}

/* A module of the model that is called "module" is not a wrapper if both names are there. */
static void a_module_called_module(void **state)
{
    ckpt_arena *arena = ckpt_arena_new(0);
    ckpt_dcp_metadata m = {0};
    ckpt_dcp_role role[LAYOUT_KEYS];

    (void)state;
    add(&m, arena, "model/module.w");
    add(&m, arena, "model/w");
    add(&m, arena, "optim/state/w/exp_avg");
    add(&m, arena, "optim/param_groups/0/lr");
    assert_int_equal(ckpt_dcp_roles(role, &m, arena, NULL), CKPT_OK);
    assert_string_equal(role[0].name, "module.w");
    assert_false(role[0].trained);
    assert_string_equal(role[1].name, "w");
    assert_true(role[1].trained);
    ckpt_vec_free(&m.item);
    ckpt_arena_free(arena);
}

static void layouts_by_name(void **state)
{
    const ckpt_dcp_layout *layout = NULL;
    ckpt_err err = {0};

    (void)state;
    assert_int_equal(ckpt_dcp_layout_find(&layout, NULL, &err), CKPT_OK);
    assert_non_null(layout);
    const ckpt_dcp_layout *torch = layout;
    assert_int_equal(ckpt_dcp_layout_find(&layout, torch->name, &err), CKPT_OK);
    assert_ptr_equal(layout, torch);
    assert_int_equal(ckpt_dcp_layout_find(&layout, "torchtitan", &err), CKPT_OK);
    assert_true(layout != torch);
    assert_int_equal(ckpt_dcp_layout_find(&layout, "", &err), CKPT_EUSAGE);
    err = (ckpt_err){0};
    assert_int_equal(ckpt_dcp_layout_find(&layout, "torchtita", &err), CKPT_EUSAGE);
    assert_non_null(strstr(err.text, "torchtita"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_state_dict_above_the_optimizer),
        cmocka_unit_test(averages_beside_the_weights),
        cmocka_unit_test(wrappers_on_one_side),
        cmocka_unit_test(a_module_called_module),
        cmocka_unit_test(layouts_by_name),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
