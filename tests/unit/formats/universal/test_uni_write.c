/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_uni_write.c: which files a universal checkpoint is made of, what is in them, and what is
 * refused.
 */
#include "tests/unit/formats/universal/help.h"
#include "tests/unit/unit.h"

static int make(void **state)
{
    uni_run *r = calloc(1, sizeof *r);

    uni_make(r, "0.19.8");
    *state = r;
    return 0;
}

static int unmake(void **state)
{
    uni_free(*state);
    free(*state);
    return 0;
}

static bool exists(uni_run *r, const char *name)
{
    return access(help_join(&r->dir, name), F_OK) == 0;
}

/* The tree of one written file. */
static ckpt_map *tree_of(uni_run *r, const char *name)
{
    ckpt_map *map = NULL;

    assert_int_equal(ckpt_format_read(&map, help_join(&r->dir, name), NULL, &r->err), CKPT_OK);
    return map;
}

static int64_t int_of(const ckpt_value *v)
{
    int64_t n = -1;

    assert_true(ckpt_value_as_int(v, &n));
    return n;
}

static void one_folder_serves_all_stages(void **state)
{
    uni_run *r = *state;

    assert_int_equal(uni_write(r, &(ckpt_target){.tag = "out"}), CKPT_OK);
    assert_true(exists(r, "out/mp_rank_00_model_states.pt"));
    assert_true(exists(r, "out/zero_pp_rank_0_mp_rank_00_model_states.pt"));
    assert_true(exists(r, "out/zero/optimizer_state.pt"));
    assert_true(exists(r, "out/zero/c/exp_avg_sq.pt"));
    assert_true(exists(r, "out/zero/b/step.pt"));
    assert_true(exists(r, "out/zero/f/fp32.pt"));
    assert_false(exists(r, "out/zero/f/exp_avg.pt"));
    // DeepSpeed's converter adds whatever the module has beside
    assert_true(exists(r, "out/zero/n/fp32.pt"));
    assert_true(exists(r, "out/zero/tied/fp32.pt"));
    assert_false(exists(r, "out/zero/tied/exp_avg.pt"));
}

static void pointer_names_the_folder(void **state)
{
    uni_run *r = *state;
    char *text = NULL;
    uint64_t n = 0;

    assert_int_equal(ckpt_map_fact(r->map, &r->err, "tag", "%s", "global_step9"), CKPT_OK);
    assert_int_equal(uni_write(r, &(ckpt_target){0}), CKPT_OK);
    assert_true(exists(r, "global_step9_universal/zero/a/fp32.pt"));
    assert_int_equal(ckpt_io_slurp(&text, &n, help_join(&r->dir, "latest_universal"), 100, &r->err),
                     CKPT_OK);
    assert_int_equal(n, strlen("global_step9_universal"));
    assert_memory_equal(text, "global_step9_universal", n);
    ckpt_free(text);
}

static void state_files_are_dicts_of_whole_shapes(void **state)
{
    uni_run *r = *state;

    assert_int_equal(uni_write(r, &(ckpt_target){.tag = "out"}), CKPT_OK);
    ckpt_map *map = tree_of(r, "out/zero/a/exp_avg.pt");
    const ckpt_value *t = ckpt_value_get(map->values, "param");
    assert_int_equal(ckpt_value_map(map->values).n, 1);
    assert_int_equal(t->kind, CKPT_V_TENSOR);
    assert_int_equal(t->as.tensor->ndim, 2);
    assert_int_equal(t->as.tensor->shape[1], 3);
    ckpt_map_free(map);
    map = tree_of(r, "out/zero/a/step.pt");
    assert_int_equal(int_of(map->values), UNI_STEP);
    ckpt_map_free(map);
}

static void optimizer_state_has_both_forms(void **state)
{
    uni_run *r = *state;

    assert_int_equal(uni_write(r, &(ckpt_target){.tag = "out"}), CKPT_OK);
    ckpt_map *map = tree_of(r, "out/zero/optimizer_state.pt");
    ckpt_seq groups = ckpt_value_seq(ckpt_value_get(map->values, "param_groups"));
    const ckpt_value *inner = ckpt_value_get(map->values, "optimizer_state_dict");
    ckpt_seq part = ckpt_value_seq(ckpt_value_get(inner, "param_groups"));
    ckpt_dict steps = ckpt_value_map(ckpt_value_get(inner, "state"));

    assert_int_equal(groups.n, 2);
    assert_true(ckpt_value_get(groups.at[0], "weight_decay")->as.f > 0.05);
    assert_int_equal(int_of(ckpt_value_seq(ckpt_value_get(groups.at[1], "params")).at[0]), 1);
    // stage 3 gives group 0's to all: what differs must not be there, the learning rate must
    assert_null(ckpt_value_get(part.at[0], "weight_decay"));
    assert_non_null(ckpt_value_get(part.at[0], "lr"));
    assert_int_equal(int_of(ckpt_value_get(steps.at[0].value, "step")), UNI_STEP);
    assert_int_equal(ckpt_value_get(map->values, "loss_scaler")->kind, CKPT_V_OBJECT);
    assert_non_null(ckpt_value_get(map->values, "clip_grad"));
    assert_true(ckpt_value_is(ckpt_value_get(map->values, "ds_version"), "0.19.8"));
    assert_null(ckpt_value_get(map->values, "base_optimizer_state"));
    ckpt_map_free(map);
}

static void model_files_keep_what_the_run_had(void **state)
{
    uni_run *r = *state;

    assert_int_equal(uni_write(r, &(ckpt_target){.tag = "out"}), CKPT_OK);
    ckpt_map *whole = tree_of(r, "out/mp_rank_00_model_states.pt");
    ckpt_map *parts = tree_of(r, "out/zero_pp_rank_0_mp_rank_00_model_states.pt");
    const ckpt_value *a = ckpt_value_get(ckpt_value_get(whole->values, "module"), "a");
    const ckpt_value *none = ckpt_value_get(ckpt_value_get(parts->values, "module"), "a");
    const ckpt_value *n = ckpt_value_get(ckpt_value_get(parts->values, "module"), "n");

    assert_int_equal(int_of(ckpt_value_get(whole->values, "iteration")), 1234);
    assert_int_equal(int_of(ckpt_value_get(whole->values, "global_steps")), 9);
    assert_int_equal(int_of(ckpt_value_get(whole->values, "skipped_steps")), 0);
    assert_int_equal(a->as.tensor->dtype, CKPT_BF16);
    assert_int_equal(a->as.tensor->shape[0], 2);
    assert_int_equal(none->as.tensor->shape[0], 0);
    assert_int_equal(n->as.tensor->dtype, CKPT_I64);
    assert_true(
        ckpt_value_is(ckpt_value_get(ckpt_value_get(whole->values, "shared_params"), "tied"), "a"));
    assert_int_equal(ckpt_value_seq(ckpt_value_get(whole->values, "param_shapes")).n, 2);
    assert_non_null(ckpt_value_get(ckpt_value_get(parts->values, "universal_checkpoint_info"),
                                   "universal_checkpoint_version"));
    ckpt_map_free(whole);
    ckpt_map_free(parts);
}

/* ---- older releases ---- */

static void stage_three_before_0_19_3_is_flat(void **state)
{
    uni_run *r = *state;

    assert_int_equal(uni_write(r, &(ckpt_target){.tag = "out", .version = "0.16.4", .stage = 3}),
                     CKPT_OK);
    assert_false(exists(r, "out/mp_rank_00_model_states.pt"));
    assert_true(exists(r, "out/zero_pp_rank_0_mp_rank_00_model_states.pt"));
    ckpt_map *map = tree_of(r, "out/zero/a/fp32.pt");
    assert_int_equal(map->values->kind, CKPT_V_TENSOR);
    assert_int_equal(map->values->as.tensor->ndim, 1);
    assert_int_equal(map->values->as.tensor->shape[0], 6);
    ckpt_map_free(map);
    map = tree_of(r, "out/zero/optimizer_state.pt");
    assert_true(ckpt_value_is(ckpt_value_get(map->values, "ds_version"), "0.16.4"));
    ckpt_map_free(map);
}

static void stages_one_and_two_before_0_19_3_are_dicts(void **state)
{
    uni_run *r = *state;

    assert_int_equal(uni_write(r, &(ckpt_target){.tag = "out", .version = "0.16.4"}), CKPT_OK);
    assert_true(exists(r, "out/mp_rank_00_model_states.pt"));
    assert_false(exists(r, "out/zero_pp_rank_0_mp_rank_00_model_states.pt"));
    ckpt_map *map = tree_of(r, "out/zero/a/fp32.pt");
    assert_int_equal(map->values->kind, CKPT_V_DICT);
    ckpt_map_free(map);
    map = tree_of(r, "out/zero/optimizer_state.pt");
    assert_null(ckpt_value_get(map->values, "optimizer_state_dict"));
    ckpt_map_free(map);
}

static void fresh_optimizer_has_no_past(void **state)
{
    uni_run *r = *state;
    ckpt_map *map = NULL;
    ckpt_reader *reader = NULL;
    float got[6];

    assert_int_equal(uni_write(r, &(ckpt_target){.tag = "out", .fresh_optimizer = true}), CKPT_OK);
    assert_int_equal(uni_open(r, &map, true), CKPT_OK);
    assert_int_equal(ckpt_reader_new(&reader, map, &r->err), CKPT_OK);
    assert_int_equal(
        ckpt_reader_read(reader, ckpt_map_find(map, "exp_avg/a"), 0, 6, CKPT_F32, got, &r->err),
        CKPT_OK);
    for (int i = 0; i < 6; i++)
        assert_true(got[i] < 0.1f && got[i] > -0.1f);
    assert_int_equal(
        ckpt_reader_read(reader, ckpt_map_find(map, "step/b"), 0, 1, CKPT_F32, got, &r->err),
        CKPT_OK);
    assert_true(got[0] < 0.5f);
    assert_int_equal(
        ckpt_reader_read(reader, ckpt_map_find(map, "a"), 0, 6, CKPT_F32, got, &r->err), CKPT_OK);
    assert_true(got[1] > 1.2f && got[1] < 1.3f);
    ckpt_reader_free(reader);
    ckpt_map_free(map);
}

/* ---- what is refused ---- */

static void unsafe_names_are_refused(void **state)
{
    static const char *const bad[] = {"../a", "x/y", "..", "optimizer_state.pt"};
    uni_run *r = *state;

    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        r->state->param.at[2]->name = bad[i];
        assert_int_equal(ckpt_map_reindex(r->map, &r->err), CKPT_OK);
        assert_int_equal(uni_write(r, &(ckpt_target){.tag = "out"}), CKPT_EUNSAFE);
        assert_non_null(strstr(r->err.text, "cannot be the name of a folder"));
        assert_int_equal(help_count(r->dir.path), 0);
    }
}

static void unsafe_tag_is_refused(void **state)
{
    assert_int_equal(uni_write(*state, &(ckpt_target){.tag = "../out"}), CKPT_EUSAGE);
}

static ckpt_value *unknown_object(uni_run *r)
{
    ckpt_value *v = uni_new(r, CKPT_V_OBJECT), *cls = uni_new(r, CKPT_V_GLOBAL);

    cls->as.global.module = (ckpt_text){"my.package", 10};
    cls->as.global.name = (ckpt_text){"Thing", 5};
    v->as.object = ckpt_arena_alloc(r->map->arena, sizeof *v->as.object);
    *v->as.object =
        (ckpt_object){.form = CKPT_BY_NEWOBJ, .cls = cls, .args = uni_new(r, CKPT_V_TUPLE)};
    return v;
}

static void unknown_objects_are_asked_about(void **state)
{
    uni_run *r = *state;

    uni_put(r, r->state->model, "mine", unknown_object(r));
    assert_int_equal(uni_write(r, &(ckpt_target){.tag = "out"}), CKPT_EUNSAFE);
    assert_non_null(strstr(r->err.text, "my.package.Thing"));
    assert_int_equal(uni_write(r, &(ckpt_target){.tag = "kept", .keep_objects = true}), CKPT_OK);
    ckpt_map *map = tree_of(r, "kept/mp_rank_00_model_states.pt");
    assert_int_equal(ckpt_value_get(map->values, "mine")->kind, CKPT_V_OBJECT);
    ckpt_map_free(map);
    assert_int_equal(uni_write(r, &(ckpt_target){.tag = "dropped", .drop_objects = true}), CKPT_OK);
    map = tree_of(r, "dropped/mp_rank_00_model_states.pt");
    const ckpt_value *left = ckpt_value_get(map->values, "mine");
    assert_true(!left || left->kind == CKPT_V_NONE);
    assert_int_equal(int_of(ckpt_value_get(map->values, "iteration")), 1234);
    ckpt_map_free(map);
}

static void sources_that_do_not_fit_are_refused(void **state)
{
    uni_run *r = *state;
    ckpt_state *more = NULL;

    r->state->group.at[1].n_lanes = 2;
    assert_int_equal(uni_write(r, &(ckpt_target){.tag = "out"}), CKPT_EUNSUPPORTED);
    r->state->group.at[1].n_lanes = 1;
    assert_int_equal(uni_write(r, &(ckpt_target){.tag = "out", .version = "nonsense"}),
                     CKPT_EUSAGE);
    assert_int_equal(ckpt_state_new(&more, r->map, "mp_rank_01/", &r->err), CKPT_OK);
    assert_int_equal(uni_write(r, &(ckpt_target){.tag = "out"}), CKPT_EUNSUPPORTED);
    ckpt_state_free(more);
    r->map->states.n = 0;
    assert_int_equal(uni_write(r, &(ckpt_target){.tag = "out"}), CKPT_EUNSUPPORTED);
    r->map->states.n = 1;
}

/* ---- memory ---- */

static void every_failed_allocation_is_a_limit(void **state)
{
    uni_run *r = *state;
    ckpt_target target = {.format = "universal", .path = r->dir.path, .tag = "out"};
    ckpt_map *to = NULL;
    int rc = CKPT_ELIMIT;

    for (uint64_t n = 0; rc != CKPT_OK && n < 100000; n += n < 50 ? 1 : 1 + n / 7) {
        r->err = (ckpt_err){0};
        ckpt_alloc_fail_at(n);
        rc = ckpt_layout(&to, r->map, &target, &r->err);
        ckpt_alloc_fail_at(UINT64_MAX);
        assert_true(rc == CKPT_OK || rc == CKPT_ELIMIT);
    }
    assert_int_equal(rc, CKPT_OK);
    ckpt_map_free(to);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(one_folder_serves_all_stages, make, unmake),
        cmocka_unit_test_setup_teardown(pointer_names_the_folder, make, unmake),
        cmocka_unit_test_setup_teardown(state_files_are_dicts_of_whole_shapes, make, unmake),
        cmocka_unit_test_setup_teardown(optimizer_state_has_both_forms, make, unmake),
        cmocka_unit_test_setup_teardown(model_files_keep_what_the_run_had, make, unmake),
        cmocka_unit_test_setup_teardown(stage_three_before_0_19_3_is_flat, make, unmake),
        cmocka_unit_test_setup_teardown(stages_one_and_two_before_0_19_3_are_dicts, make, unmake),
        cmocka_unit_test_setup_teardown(fresh_optimizer_has_no_past, make, unmake),
        cmocka_unit_test_setup_teardown(unsafe_names_are_refused, make, unmake),
        cmocka_unit_test_setup_teardown(unsafe_tag_is_refused, make, unmake),
        cmocka_unit_test_setup_teardown(unknown_objects_are_asked_about, make, unmake),
        cmocka_unit_test_setup_teardown(sources_that_do_not_fit_are_refused, make, unmake),
        cmocka_unit_test_setup_teardown(every_failed_allocation_is_a_limit, make, unmake),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
