/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_err.c: every public function forgets an earlier failure in its ckpt_err, whether it then
 * fails or succeeds.  The headers say which functions there are.
 */
#include "ckpt_extra.h"
#include "tests/unit/libckpt/help.h"
#include "tests/unit/unit.h"

enum { NAME_ROOM = 64, NAMES = 80, HEADER_ROOM = 1 << 17 };

/* The functions that the tests have called. */
static struct {
    char name[NAMES][NAME_ROOM];
    size_t n;
} failed, worked;

static ckpt_err err;

static void stale(void)
{
    err.code = CKPT_ECANCELED;
    err.sys = 4;
    snprintf(err.text, sizeof err.text, "of an earlier call");
}

/* The name of the function in the text of a call. */
static void note(char name[NAME_ROOM], const char *call)
{
    size_t n = strcspn(call, "(");

    assert_true(n < NAME_ROOM);
    memcpy(name, call, n);
    name[n] = '\0';
}

static void has_failed(const char *call, int rc)
{
    if (rc == CKPT_OK || rc != err.code || strcmp(err.text, "of an earlier call") == 0)
        fail_msg("%s returns %d; err: %d, %s", call, rc, err.code, err.text);
    note(failed.name[failed.n++], call);
}

static void has_worked(const char *call, int rc)
{
    if (rc != CKPT_OK || err.code != CKPT_OK || err.sys != 0 || *err.text)
        fail_msg("%s returns %d; err: %d, %s", call, rc, err.code, err.text);
    note(worked.name[worked.n++], call);
}

#define FAILS(call) (stale(), has_failed(#call, (call)))
#define WORKS(call) (stale(), has_worked(#call, (call)))

/* ---- failures ---- */

static void failures_of_the_core(void **state)
{
    ckpt_map *map = NULL;
    ckpt_plan *plan = NULL;
    ckpt_reader *reader = NULL;

    (void)state;
    FAILS(ckpt_open(&map, NULL, NULL, &err));
    FAILS(ckpt_map_new(&map, NULL, &err));
    FAILS(ckpt_map_put(NULL, NULL, &err));
    FAILS(ckpt_map_put_metadata(NULL, NULL, NULL, &err));
    FAILS(ckpt_target_check(NULL, &err));
    FAILS(ckpt_layout(&map, NULL, NULL, &err));
    FAILS(ckpt_plan_new(&plan, NULL, NULL, NULL, &err));
    FAILS(ckpt_plan_run(NULL, NULL, NULL, &err));
    FAILS(ckpt_convert(NULL, NULL, NULL, NULL, &err));
    FAILS(ckpt_tensor_read(NULL, NULL, CKPT_F32, NULL, &err));
    FAILS(ckpt_reader_new(&reader, NULL, &err));
    FAILS(ckpt_reader_read(NULL, NULL, 0, 1, CKPT_F32, NULL, &err));
    FAILS(ckpt_reader_read_slice(NULL, NULL, NULL, CKPT_F32, NULL, &err));
    FAILS(ckpt_verify(NULL, NULL, NULL, &err));
    FAILS(ckpt_diff(NULL, NULL, NULL, NULL, NULL, &err));
    FAILS(ckpt_doctor(NULL, NULL, &err));
}

static void failures_of_the_rest(void **state)
{
    ckpt_map *map = NULL;
    ckpt_remap *rules = NULL;
    ckpt_view *view = NULL;
    ckpt_manifest *manifest = NULL;
    uint64_t n = 0;
    bool yes = false;

    (void)state;
    FAILS(ckpt_output_check(NULL, &err));
    FAILS(ckpt_open_input(&map, NULL, NULL, NULL, &err));
    FAILS(ckpt_map_check(NULL, &err));
    FAILS(ckpt_map_warm_start(NULL, NULL, &err));
    FAILS(ckpt_tree_print(NULL, NULL, NULL, NULL, &err));
    FAILS(ckpt_reader_read_box(NULL, NULL, NULL, NULL, CKPT_F32, NULL, NULL, &err));
    FAILS(ckpt_view_new(&view, NULL, NULL, NULL, &err));
    FAILS(ckpt_diff_values(NULL, NULL, NULL, NULL, &err));
    FAILS(ckpt_view_open(&map, NULL, NULL, &err));
    FAILS(ckpt_manifest_make(&manifest, NULL, NULL, &err));
    FAILS(ckpt_manifest_read(&manifest, NULL, &err));
    FAILS(ckpt_manifest_find(&manifest, NULL, NULL, &err));
    FAILS(ckpt_manifest_write(NULL, NULL, &err));
    FAILS(ckpt_manifest_remove(NULL, &err));
    FAILS(ckpt_manifest_check_place(NULL, NULL, &err));
    FAILS(ckpt_manifest_diff(NULL, NULL, NULL, NULL, &err));
    FAILS(ckpt_manifest_check(NULL, NULL, NULL, NULL, NULL, &err));
    FAILS(ckpt_hub_check(NULL, NULL, NULL, NULL, NULL, &err));
    FAILS(ckpt_hashes_new(NULL, &err));
    FAILS(ckpt_view_read(NULL, 0, NULL, 1, 0, &err));
    FAILS(ckpt_view_prefetch(NULL, 0, 1, 0, &err));
    FAILS(ckpt_view_stream(NULL, 0, NULL, NULL, &err));
    FAILS(ckpt_clean(NULL, NULL, &err));
    FAILS(ckpt_sign(NULL, NULL, NULL, &err));
    FAILS(ckpt_signature_check(NULL, NULL, NULL, &err));
    FAILS(ckpt_attest_write(NULL, NULL, &err));
    FAILS(ckpt_attest_check_place(NULL, false, &err));
    FAILS(ckpt_attest_read(NULL, NULL, &err));
    FAILS(ckpt_attest_check(NULL, NULL, NULL, NULL, NULL, &err));
    assert_null(ckpt_attest_option_at(NULL, 0));
    ckpt_attest_free(NULL);
    FAILS(ckpt_map_select(NULL, NULL, &err));
    FAILS(ckpt_map_keep_model(NULL, NULL, &err));
    FAILS(ckpt_map_take_weights(NULL, NULL, &err));
    FAILS(ckpt_map_set_model_folder(NULL, NULL, &err));
    FAILS(ckpt_remap_new(&rules, NULL, NULL, &err));
    assert_false(ckpt_remap_rule_at(NULL, 0, NULL));
    FAILS(ckpt_remap_matches(NULL, NULL, NULL, &yes, &err));
    FAILS(ckpt_map_remap(NULL, NULL, NULL, &err));
    FAILS(ckpt_map_dequantize(NULL, true, &err));
    FAILS(ckpt_map_repack(NULL, true, &err));
    FAILS(ckpt_map_dequantize_moments(NULL, &n, &err));
    FAILS(ckpt_map_quantize(NULL, NULL, &err));
    FAILS(ckpt_map_resize_vocab(NULL, NULL, &err));
    FAILS(ckpt_map_tie(NULL, NULL, &err));
    FAILS(ckpt_map_untie(NULL, &err));
    FAILS(ckpt_map_merge_adapter(NULL, NULL, &err));
    FAILS(ckpt_map_keep_adapter(NULL, NULL, &err));
    FAILS(ckpt_map_adapter_keys(NULL, NULL, &err));
    FAILS(ckpt_map_lora_names(NULL, "kohya", &err));
    FAILS(ckpt_map_adapter_config(NULL, &err));
    FAILS(ckpt_merge_open(&map, NULL, &err));
    FAILS(ckpt_adapters_open(&map, NULL, &err));
    FAILS(ckpt_map_extract_lora(NULL, NULL, NULL, &err));
    FAILS(ckpt_merge_paths(NULL, NULL, NULL, &err));
    FAILS(ckpt_team_join(NULL, 0, &err));
    FAILS(ckpt_team_hostfile(NULL, &err));
}

/* ---- successes ---- */

static int no_bytes(void *ctx, const void *bytes, uint64_t n, ckpt_err *e)
{
    (void)ctx;
    (void)bytes;
    (void)e;
    return n == UINT64_MAX ? CKPT_EIO : CKPT_OK;
}

static int no_path(void *ctx, const char *path)
{
    (void)ctx;
    return *path == '\0';
}

/* Read the map in every way. */
static void reading_works(const ckpt_map *map)
{
    const ckpt_tensor *t = ckpt_map_tensor_at(map, 0);
    const uint64_t start[] = {0, 0}, count[] = {2, 2};
    const ckpt_slice part[] = {{.count = 2}, {.count = 2}};
    ckpt_reader *reader = NULL;
    float x[16];

    WORKS(ckpt_map_check(map, &err));
    WORKS(ckpt_tensor_read(map, t, CKPT_F32, x, &err));
    WORKS(ckpt_reader_new(&reader, map, &err));
    WORKS(ckpt_reader_read(reader, t, 0, 4, CKPT_F32, x, &err));
    WORKS(ckpt_reader_read_slice(reader, t, part, CKPT_F32, x, &err));
    WORKS(ckpt_reader_read_box(reader, t, start, count, CKPT_F32, x, NULL, &err));
    ckpt_reader_free(reader);
}

/* Lay the map out, and read and write its file. */
static void writing_works(const ckpt_map *map, const char *path)
{
    const ckpt_target target = {.format = "safetensors", .path = path};
    ckpt_map *to = NULL, *inside = NULL;
    ckpt_plan *plan = NULL;
    ckpt_view *view = NULL;
    char byte;

    WORKS(ckpt_output_check(path, &err));
    WORKS(ckpt_target_check(&target, &err));
    WORKS(ckpt_layout(&to, map, &target, &err));
    WORKS(ckpt_view_new(&view, map, to, NULL, &err));
    WORKS(ckpt_view_stream(view, 0, no_bytes, NULL, &err));
    WORKS(ckpt_view_read(view, 0, &byte, 1, 0, &err));
    WORKS(ckpt_view_prefetch(view, 0, 1, 1, &err));
    WORKS(ckpt_view_open(&inside, view, NULL, &err));
    ckpt_map_free(inside);
    ckpt_view_free(view);
    ckpt_map_free(to);
    WORKS(ckpt_layout(&to, map, &target, &err));
    WORKS(ckpt_plan_new(&plan, map, to, NULL, &err));
    WORKS(ckpt_plan_run(plan, NULL, NULL, &err));
    ckpt_plan_free(plan);
    ckpt_map_free(to);
    WORKS(ckpt_convert(map, &target, &(ckpt_run_opts){.force = true}, NULL, &err));
    WORKS(ckpt_verify(path, NULL, NULL, &err));
}

/* Change the map in every way for which two matrices are enough. */
static void changing_works(ckpt_map *map, const char *path)
{
    const char *const names[] = {"b.weight", NULL};
    const ckpt_target zero = {
        .format = "zero", .path = path, .stage = 1, .world = 1, .order_text = "*\n"};
    ckpt_remap *rules = NULL;
    uint64_t n = 0;
    bool yes = false;

    WORKS(ckpt_map_tie(map, "a.weight=b.weight", &err));
    WORKS(ckpt_map_untie(map, &err));
    WORKS(ckpt_map_set_model_folder(map, path, &err));
    WORKS(ckpt_map_select(map, NULL, &err));
    WORKS(ckpt_map_keep_model(map, NULL, &err));
    WORKS(ckpt_remap_new(&rules, "t", "a.weight c.weight\nothers stay\n", &err));
    WORKS(ckpt_remap_matches(map, rules, NULL, &yes, &err));
    WORKS(ckpt_map_remap(map, rules, NULL, &err));
    WORKS(ckpt_map_resize_vocab(map, &(ckpt_vocab_opts){.rows = 6, .tensors = names}, &err));
    WORKS(ckpt_map_dequantize(map, true, &err));
    WORKS(ckpt_map_repack(map, true, &err));
    WORKS(ckpt_map_dequantize_moments(map, &n, &err));
    WORKS(ckpt_map_warm_start(map, &zero, &err));
    WORKS(ckpt_map_quantize(map, &(ckpt_quantize){.form = "fp8-channel"}, &err));
    ckpt_remap_free(rules);
}

static void successes(void **state)
{
    static const float x[16] = {1, 2, 3};
    const uint64_t shape[] = {4, 4};
    ckpt_array a = {.name = "a.weight", .dtype = CKPT_F32, .ndim = 2, .shape = shape, .data = x};
    char folder[FOLDER_PATH], path[FOLDER_PATH];
    ckpt_map *map = NULL, *again = NULL;

    (void)state;
    folder_new(folder);
    folder_join(path, folder, "m.safetensors");
    WORKS(ckpt_prepare(0, &err));
    WORKS(ckpt_team_same("a", "b", &err));
    WORKS(ckpt_team_spread(NULL, 0, &err));
    WORKS(ckpt_map_new(&map, "memory", &err));
    WORKS(ckpt_map_put(map, &a, &err));
    a.name = "b.weight";
    WORKS(ckpt_map_put(map, &a, &err));
    WORKS(ckpt_map_put_metadata(map, "key", "text", &err));
    reading_works(map);
    writing_works(map, path);
    WORKS(ckpt_open(&again, path, NULL, &err));
    WORKS(ckpt_diff(map, again, NULL, NULL, NULL, &err));
    WORKS(ckpt_diff_values(map, again, NULL, NULL, &err));
    ckpt_map_free(again);
    const ckpt_merge_model models[] = {{.path = path, .weight = 1}, {.path = path, .weight = 1}};
    const ckpt_merge merge = {.method = "linear", .models = models, .n_models = 2};
    WORKS(ckpt_merge_paths(&merge, no_path, NULL, &err));
    WORKS(ckpt_merge_open(&again, &merge, &err));
    ckpt_map_free(again);
    changing_works(map, folder);
    ckpt_map_free(map);
    WORKS(ckpt_clean(folder, NULL, &err));
    folder_remove(folder);
}

/* ---- the headers ---- */

static bool is_called(const char *name, size_t n)
{
    for (size_t i = 0; i < failed.n; i++) {
        if (strlen(failed.name[i]) == n && memcmp(failed.name[i], name, n) == 0)
            return true;
    }
    for (size_t i = 0; i < worked.n; i++) {
        if (strlen(worked.name[i]) == n && memcmp(worked.name[i], name, n) == 0)
            return true;
    }
    return false;
}

/* Each function of a header that takes a ckpt_err was called; their number. */
static size_t header_is_called(const char *path)
{
    static char text[HEADER_ROOM];
    size_t n = folder_read(path, text, sizeof text - 1), count = 0;

    assert_true(n < sizeof text - 1);
    text[n] = '\0';
    for (char *at = text; (at = strstr(at, "\nCKPT_API int ")) != NULL; at++) {
        const char *name = at + strlen("\nCKPT_API int ");
        size_t len = strcspn(name, "(");
        const char *end = strstr(name, ");"), *has = strstr(name, "ckpt_err *err");

        // ckpt_team_leave reads err
        if (!has || !end || has > end || strncmp(name, "ckpt_team_leave(", len + 1) == 0)
            continue;
        if (!is_called(name, len))
            fail_msg("%s: %.*s is not called by this test", path, (int)len, name);
        count++;
    }
    return count;
}

static void every_function_is_called(void **state)
{
    size_t n = 0;

    (void)state;
    n += header_is_called("libckpt/include/ckpt.h");
    n += header_is_called("libckpt/include/ckpt_extra.h");
    n += header_is_called("libckpt/include/ckpt_shape.h");
    n += header_is_called("libckpt/include/ckpt_team.h");
    assert_true(n > 40);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(failures_of_the_core),
        cmocka_unit_test(failures_of_the_rest),
        cmocka_unit_test(successes),
        cmocka_unit_test(every_function_is_called),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
