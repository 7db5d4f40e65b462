/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_uni_read.c: universal checkpoints as a map: what the folder may look like, what is read of
 * it, and what is found to be wrong.
 *
 * Folders are written by the library itself, then changed; values are compared with the run in
 * memory that they were written from.
 */
#include "tests/unit/formats/universal/help.h"
#include "tests/unit/unit.h"

static int make_as(void **state, const ckpt_target *target)
{
    uni_run *r = calloc(1, sizeof *r);

    uni_make(r, "0.19.8");
    *state = r;
    assert_int_equal(uni_write(r, target), CKPT_OK);
    return 0;
}

/* The form for all stages; the dicts of stages 1 and 2; the flat tensors of stage 3. */
static int make(void **state)
{
    return make_as(state, &(ckpt_target){.tag = "out"});
}

static int make_dicts(void **state)
{
    return make_as(state, &(ckpt_target){.tag = "out", .version = "0.16.4", .stage = 1});
}

static int make_flat(void **state)
{
    return make_as(state, &(ckpt_target){.tag = "out", .version = "0.16.4", .stage = 3});
}

static int unmake(void **state)
{
    uni_free(*state);
    free(*state);
    return 0;
}

/* An open that succeeds. */
static ckpt_map *opened(uni_run *r)
{
    ckpt_map *map = NULL;
    int rc = uni_open(r, &map, true);

    if (rc != CKPT_OK)
        fprintf(stderr, "%s\n", r->err.text);
    assert_int_equal(rc, CKPT_OK);
    return map;
}

/* An open that fails with this code, and says this. */
static void refused(uni_run *r, int code, const char *text)
{
    ckpt_map *map = NULL;

    assert_int_equal(uni_open(r, &map, true), code);
    assert_null(map);
    if (!strstr(r->err.text, text))
        fprintf(stderr, "said: %s\n", r->err.text);
    assert_non_null(strstr(r->err.text, text));
}

static const ckpt_tensor *tensor(const ckpt_map *map, const char *name)
{
    const ckpt_tensor *t = ckpt_map_find(map, name);

    assert_non_null(t);
    return t;
}

/* A tensor of n elements holds floats[at], floats[at + 1] ... of the run. */
static void holds(const uni_run *r, const ckpt_map *map, const char *name, int at, uint64_t n)
{
    ckpt_reader *reader = NULL;
    ckpt_err err = {0};
    float got[16];

    assert_int_equal(tensor(map, name)->n_elems, n);
    assert_int_equal(ckpt_reader_new(&reader, map, &err), CKPT_OK);
    assert_int_equal(ckpt_reader_read(reader, tensor(map, name), 0, n, CKPT_F32, got, &err),
                     CKPT_OK);
    assert_memory_equal(got, r->floats + at, (size_t)n * sizeof *got);
    ckpt_reader_free(reader);
}

static void remove_file(uni_run *r, const char *name)
{
    assert_int_equal(unlink(help_join(&r->dir, name)), 0);
}

/* One file of the folder in another's place. */
static void copy_file(uni_run *r, const char *from, const char *to)
{
    uint64_t n = 0;
    uint8_t *bytes = help_read(help_join(&r->dir, from), &n);

    help_write(help_join(&r->dir, to), bytes, (size_t)n);
    ckpt_free(bytes);
}

/* A file as the converter makes them, {'param': tensor}, of zeros. */
static void tensor_file(uni_run *r, const char *name, ckpt_dtype dtype, uint64_t n)
{
    static const uint8_t zeros[64];
    const ckpt_source source = {
        .kind = CKPT_SOURCE_MEMORY, .n_bytes = sizeof zeros, .memory = (void *)(uintptr_t)zeros};
    const ckpt_tensor like = {.dtype = dtype, .ndim = 1, .shape = &n};
    const ckpt_run_opts opts = {.skip_fsync = true, .force = true, .jobs = 1};
    const ckpt_target target = {.format = "torch", .path = help_join(&r->dir, name)};
    ckpt_map *map = NULL;
    ckpt_tensor *t = NULL;
    uint32_t index = 0;

    assert_int_equal(ckpt_map_create(&map, 0, &r->err), CKPT_OK);
    map->path = "zeros";
    assert_int_equal(ckpt_map_add_source(map, &source, &index, &r->err), CKPT_OK);
    assert_int_equal(ckpt_map_add(map, "param", 5, &like, &t, &r->err), CKPT_OK);
    assert_int_equal(ckpt_map_back_whole(map, t, index, 0, &r->err), CKPT_OK);
    assert_int_equal(ckpt_convert(map, &target, &opts, NULL, &r->err), CKPT_OK);
    ckpt_map_free(map);
}

/* A finding that says this. */
static bool found(const ckpt_map *map, const char *text)
{
    const char *has = NULL;
    int severity = 0, code = 0;

    for (size_t i = 0; ckpt_map_finding_at(map, i, &severity, &code, &has); i++) {
        if (strstr(has, text))
            return true;
    }
    return false;
}

/* ---- all forms ---- */

static void all_values_come_back(void **state)
{
    uni_run *r = *state;
    ckpt_map *map = opened(r);
    ckpt_reader *reader = NULL;
    int64_t number = 0;

    assert_string_equal(ckpt_map_format(map), "universal");
    holds(r, map, "a", 0, 6);
    holds(r, map, "b", 6, 4);
    holds(r, map, "c", 10, 3);
    holds(r, map, "f", 12, 2);
    holds(r, map, "exp_avg/b", 22, 4);
    holds(r, map, "exp_avg_sq/c", 42, 3);
    assert_int_equal(tensor(map, "a")->ndim, 2);
    assert_int_equal(tensor(map, "exp_avg/a")->ndim, 2);
    assert_int_equal(tensor(map, "f")->role, CKPT_ROLE_FROZEN);
    assert_int_equal(tensor(map, "exp_avg/a")->role, CKPT_ROLE_STATE);
    assert_ptr_equal(tensor(map, "tied")->owner, tensor(map, "a"));
    assert_int_equal(ckpt_reader_new(&reader, map, &r->err), CKPT_OK);
    assert_int_equal(
        ckpt_reader_read(reader, tensor(map, "n"), 0, 1, CKPT_DTYPE_NONE, &number, &r->err),
        CKPT_OK);
    // a way through float32 would have rounded it
    assert_true(number == UNI_LONG);
    ckpt_reader_free(reader);
    ckpt_map_free(map);
}

static void state_is_what_was_written(void **state)
{
    uni_run *r = *state;
    ckpt_map *map = opened(r);
    const ckpt_state *s = map->states.at[0];
    int64_t step = 0;

    assert_int_equal(map->states.n, 1);
    assert_int_equal(s->param.n, 3);
    assert_string_equal(s->param.at[1]->name, "b");
    assert_int_equal(s->group.n, 2);
    assert_int_equal(s->group.at[0].n, 2);
    assert_int_equal(s->group.at[1].first, 2);
    assert_int_equal(s->world, 4);
    assert_true(ckpt_value_as_int(ckpt_value_get(s->group.at[1].entry, "step"), &step));
    assert_int_equal(step, UNI_STEP);
    assert_int_equal(ckpt_value_get(s->group.at[0].entry, "exp_avg")->kind, CKPT_V_TENSOR);
    assert_true(ckpt_value_get(s->group.at[0].fields, "weight_decay")->as.f > 0.05);
    assert_non_null(
        ckpt_value_get(ckpt_value_get(s->optim, "optimizer_state_dict"), "loss_scaler"));
    assert_non_null(ckpt_value_get(s->model, "iteration"));
    assert_non_null(ckpt_map_find(map, "step/c"));
    ckpt_map_free(map);
}

static void weights_alone_come_without_moments(void **state)
{
    uni_run *r = *state;
    ckpt_map *map = NULL;

    assert_int_equal(uni_open(r, &map, false), CKPT_OK);
    assert_null(ckpt_map_find(map, "exp_avg/a"));
    assert_int_equal(map->states.n, 0);
    holds(r, map, "a", 0, 6);
    ckpt_map_free(map);
}

/* ---- where it may lie ---- */

static void folder_itself_and_tag_are_taken(void **state)
{
    uni_run *r = *state;
    ckpt_open_opts opts = {.tag = "out"};
    ckpt_map *map = NULL;

    assert_int_equal(ckpt_open(&map, help_join(&r->dir, "out/"), NULL, &r->err), CKPT_OK);
    ckpt_map_free(map);
    assert_int_equal(ckpt_open(&map, r->dir.path, &opts, &r->err), CKPT_OK);
    ckpt_map_free(map);
    assert_int_equal(ckpt_open(&map, help_join(&r->dir, "latest_universal"), NULL, &r->err),
                     CKPT_OK);
    ckpt_map_free(map);
    opts.tag = "other";
    assert_int_equal(ckpt_open(&map, r->dir.path, &opts, &r->err), CKPT_EMISSING);
    assert_non_null(strstr(r->err.text, "found here: out"));
}

static void bad_pointers_are_refused(void **state)
{
    uni_run *r = *state;
    const char *path = help_join(&r->dir, "latest_universal");

    // what a slash behind the converter's output folder leaves
    help_write(path, "", 0);
    refused(r, CKPT_EFORMAT, "empty");
    help_write(path, "../out", 6);
    refused(r, CKPT_EUNSAFE, "plain name");
    help_write(path, "gone\n", 5);
    refused(r, CKPT_EMISSING, "no folder gone");
    help_write(path, "out\n", 4);
    ckpt_map_free(opened(r));
}

static void names_with_slashes_are_folders(void **state)
{
    uni_run *r = *state;
    ckpt_map *map = NULL;

    assert_int_equal(mkdir(help_join(&r->dir, "out/zero/deep"), 0777), 0);
    assert_int_equal(mkdir(help_join(&r->dir, "out/zero/deep/er"), 0777), 0);
    copy_file(r, "out/zero/b/fp32.pt", "out/zero/deep/er/fp32.pt");
    remove_file(r, "out/mp_rank_00_model_states.pt");
    remove_file(r, "out/zero_pp_rank_0_mp_rank_00_model_states.pt");
    map = opened(r);
    holds(r, map, "deep/er", 6, 4);
    ckpt_map_free(map);
}

/* ---- what is missing or wrong ---- */

static void without_model_file_values_remain(void **state)
{
    uni_run *r = *state;

    remove_file(r, "out/mp_rank_00_model_states.pt");
    remove_file(r, "out/zero_pp_rank_0_mp_rank_00_model_states.pt");
    ckpt_map *map = opened(r);
    holds(r, map, "a", 0, 6);
    holds(r, map, "exp_avg/a", 16, 6);
    assert_int_equal(map->states.n, 0);
    assert_true(found(map, "no model file"));
    assert_int_equal(tensor(map, "f")->role, CKPT_ROLE_FROZEN);
    ckpt_map_free(map);
}

static void missing_master_is_named(void **state)
{
    uni_run *r = *state;

    remove_file(r, "out/zero/b/fp32.pt");
    refused(r, CKPT_EMISSING, "parameter b");
}

static void missing_moment_is_no_loss_of_weights(void **state)
{
    uni_run *r = *state;

    ckpt_map *map = NULL;

    remove_file(r, "out/zero/b/exp_avg.pt");
    refused(r, CKPT_EMISSING, "zero/b/exp_avg.pt is missing");
    assert_int_equal(uni_open(r, &map, false), CKPT_OK);
    assert_non_null(ckpt_map_find(map, "b"));
    ckpt_map_free(map);
}

static void files_of_other_parameters_do_not_fit(void **state)
{
    uni_run *r = *state;

    copy_file(r, "out/zero/b/exp_avg.pt", "out/zero/a/exp_avg.pt");
    refused(r, CKPT_EMISMATCH, "differs from");
}

static void masters_are_float32(void **state)
{
    uni_run *r = *state;

    tensor_file(r, "out/zero/b/fp32.pt", CKPT_BF16, 4);
    ckpt_map *map = opened(r);
    assert_true(found(map, "1 master weights are not float32"));
    ckpt_map_free(map);
    tensor_file(r, "out/zero/b/fp32.pt", CKPT_I64, 4);
    refused(r, CKPT_EFORMAT, "the tensor is I64");
}

/* Files of buffers and second names are looked at by verify alone: the model file counts. */
static void files_of_what_the_model_holds_are_checked(void **state)
{
    static const char *const names[] = {"out/zero/tied/fp32.pt", "out/zero/n/fp32.pt"};
    uni_run *r = *state;

    for (int i = 0; i < 2; i++) {
        char sane[FILENAME_MAX];
        const ckpt_verify_opts opts = {0};
        snprintf(sane, sizeof sane, "%s", help_join(&r->dir, "sane.pt"));
        copy_file(r, names[i], "sane.pt");
        tensor_file(r, names[i], CKPT_F32, 5);
        ckpt_map_free(opened(r));
        r->err = (ckpt_err){0};
        assert_int_equal(ckpt_verify(r->dir.path, &opts, NULL, &r->err), CKPT_EMISMATCH);
        copy_file(r, "sane.pt", names[i]);
        assert_int_equal(unlink(sane), 0);
        r->err = (ckpt_err){0};
        assert_int_equal(ckpt_verify(r->dir.path, &opts, NULL, &r->err), CKPT_OK);
    }
}

static void mixed_steps_do_not_fit(void **state)
{
    uni_run *r = *state;
    ckpt_target fresh = {.tag = "fresh", .fresh_optimizer = true};

    assert_int_equal(uni_write(r, &fresh), CKPT_OK);
    copy_file(r, "fresh/zero/b/step.pt", "out/zero/b/step.pt");
    help_write(help_join(&r->dir, "latest_universal"), "out", 3);
    refused(r, CKPT_EMISMATCH, "several conversions");
}

static void leftovers_of_an_earlier_run_are_left_out(void **state)
{
    uni_run *r = *state;

    assert_int_equal(mkdir(help_join(&r->dir, "out/zero/old"), 0777), 0);
    copy_file(r, "out/zero/b/fp32.pt", "out/zero/old/fp32.pt");
    copy_file(r, "out/zero/b/exp_avg.pt", "out/zero/old/exp_avg.pt");
    ckpt_map *map = opened(r);
    assert_null(ckpt_map_find(map, "old"));
    assert_null(ckpt_map_find(map, "exp_avg/old"));
    assert_true(found(map, "an earlier conversion left them behind"));
    ckpt_map_free(map);
}

static void damaged_files_are_named(void **state)
{
    uni_run *r = *state;

    help_write(help_join(&r->dir, "out/zero/c/exp_avg_sq.pt"), "PK nonsense", 11);
    refused(r, CKPT_EFORMAT, "zero/c/exp_avg_sq.pt");
}

static void collecting_reports_all(void **state)
{
    uni_run *r = *state;
    ckpt_open_opts opts = {.with_optimizer = true, .collect = true};
    ckpt_map *map = NULL;

    help_write(help_join(&r->dir, "out/zero/c/exp_avg_sq.pt"), "PK nonsense", 11);
    copy_file(r, "out/zero/b/exp_avg.pt", "out/zero/a/exp_avg.pt");
    remove_file(r, "out/zero/b/exp_avg.pt");
    assert_int_equal(ckpt_open(&map, r->dir.path, &opts, &r->err), CKPT_OK);
    assert_true(found(map, "zero/c/exp_avg_sq.pt"));
    assert_true(found(map, "differs from"));
    ckpt_map_free(map);
}

static void empty_folder_is_no_checkpoint(void **state)
{
    uni_run *r = *state;

    help_remove(help_join(&r->dir, "out/zero"));
    assert_int_equal(mkdir(help_join(&r->dir, "out/zero"), 0777), 0);
    refused(r, CKPT_EMISSING, "no folder out");
    help_write(help_join(&r->dir, "out/zero/optimizer_state.pt"), "x", 1);
    refused(r, CKPT_EMISSING, "holds no parameters");
}

static void every_failed_allocation_is_a_limit(void **state)
{
    uni_run *r = *state;
    ckpt_map *map = NULL;
    int rc = CKPT_ELIMIT;

    for (uint64_t n = 0; rc != CKPT_OK && n < 100000; n += n < 100 ? 1 : 1 + n / 11) {
        ckpt_alloc_fail_at(n);
        rc = uni_open(r, &map, true);
        ckpt_alloc_fail_at(UINT64_MAX);
        if (rc != CKPT_OK && rc != CKPT_ELIMIT)
            fprintf(stderr, "%d: %s\n", (int)n, r->err.text);
        assert_true(rc == CKPT_OK || rc == CKPT_ELIMIT);
    }
    assert_int_equal(rc, CKPT_OK);
    ckpt_map_free(map);
}

#define EACH_FORM(test)                                                                            \
    cmocka_unit_test_setup_teardown(test, make, unmake),                                           \
        cmocka_unit_test_setup_teardown(test, make_dicts, unmake),                                 \
        cmocka_unit_test_setup_teardown(test, make_flat, unmake)

int main(void)
{
    const struct CMUnitTest tests[] = {
        EACH_FORM(all_values_come_back),
        EACH_FORM(state_is_what_was_written),
        EACH_FORM(weights_alone_come_without_moments),
        cmocka_unit_test_setup_teardown(folder_itself_and_tag_are_taken, make, unmake),
        cmocka_unit_test_setup_teardown(bad_pointers_are_refused, make, unmake),
        cmocka_unit_test_setup_teardown(names_with_slashes_are_folders, make, unmake),
        cmocka_unit_test_setup_teardown(without_model_file_values_remain, make, unmake),
        EACH_FORM(missing_master_is_named),
        cmocka_unit_test_setup_teardown(missing_moment_is_no_loss_of_weights, make, unmake),
        cmocka_unit_test_setup_teardown(masters_are_float32, make, unmake),
        cmocka_unit_test_setup_teardown(files_of_what_the_model_holds_are_checked, make, unmake),
        EACH_FORM(files_of_other_parameters_do_not_fit),
        cmocka_unit_test_setup_teardown(mixed_steps_do_not_fit, make, unmake),
        cmocka_unit_test_setup_teardown(leftovers_of_an_earlier_run_are_left_out, make, unmake),
        cmocka_unit_test_setup_teardown(damaged_files_are_named, make, unmake),
        cmocka_unit_test_setup_teardown(collecting_reports_all, make, unmake),
        cmocka_unit_test_setup_teardown(empty_folder_is_no_checkpoint, make, unmake),
        EACH_FORM(every_failed_allocation_is_a_limit),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
