/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_layout.c: target maps: dtypes, order, ties, files; and a conversion that comes back equal.
 */
#include "libckpt/include/ckpt.h"
#include "libckpt/map/map.h"
#include "tests/unit/unit.h"

static char dir[] = "/tmp/test_layout_XXXXXX";

static int setup(void **state)
{
    (void)state;
    return mkdtemp(dir) ? 0 : -1;
}

static int teardown(void **state)
{
    char command[64];

    (void)state;
    snprintf(command, sizeof command, "rm -rf %s", dir);
    return system(command);
}

static ckpt_tensor *add(ckpt_map *map, const char *name, ckpt_dtype dtype, uint64_t n, uint64_t at)
{
    const ckpt_tensor like = {.dtype = dtype, .ndim = 1, .shape = &n};
    ckpt_tensor *t = NULL;

    assert_int_equal(ckpt_map_add(map, name, strlen(name), &like, &t, NULL), CKPT_OK);
    assert_int_equal(ckpt_map_back_whole(map, t, 0, at, NULL), CKPT_OK);
    return t;
}

/* An alias before its owner, a buffer with an export dtype, an integer, an empty tensor. */
static ckpt_map *make(void)
{
    static float bytes[16] = {1, 2, 3, 4, 5, 6, 7, 8};
    const ckpt_source source = {.kind = CKPT_SOURCE_MEMORY, .n_bytes = 64, .memory = bytes};
    ckpt_map *map = NULL;
    uint32_t at;

    assert_int_equal(ckpt_map_create(&map, 0, NULL), CKPT_OK);
    map->path = "test";
    assert_int_equal(ckpt_map_add_source(map, &source, &at, NULL), CKPT_OK);
    ckpt_tensor *head = add(map, "head", CKPT_F32, 4, 0);
    ckpt_tensor *w = add(map, "w", CKPT_F32, 4, 0);
    head->owner = w;
    add(map, "buffer", CKPT_BF16, 4, 16)->export_dtype = CKPT_F32;
    add(map, "count", CKPT_I64, 1, 24);
    add(map, "empty", CKPT_F32, 0, 0);
    return map;
}

static const char *path(const char *name)
{
    static char p[256];

    snprintf(p, sizeof p, "%s/%s", dir, name);
    return p;
}

static void dtypes_of_a_target(void **state)
{
    ckpt_map *from = make(), *to = NULL;
    ckpt_target target = {.format = "safetensors", .path = path("x.safetensors")};

    (void)state;
    assert_int_equal(ckpt_layout(&to, from, &target, NULL), CKPT_OK);
    assert_int_equal(ckpt_map_find(to, "buffer")->dtype, CKPT_F32);
    assert_int_equal(ckpt_map_find(to, "w")->dtype, CKPT_F32);
    assert_int_equal(ckpt_map_find(to, "count")->dtype, CKPT_I64);
    assert_ptr_equal(ckpt_map_find(to, "head")->owner, ckpt_map_find(to, "w"));
    ckpt_map_free(to);
    target.dtype = CKPT_F16;
    assert_int_equal(ckpt_layout(&to, from, &target, NULL), CKPT_OK);
    assert_int_equal(ckpt_map_find(to, "buffer")->dtype, CKPT_F16);
    assert_int_equal(ckpt_map_find(to, "head")->dtype, CKPT_F16);
    assert_int_equal(ckpt_map_find(to, "count")->dtype, CKPT_I64);
    ckpt_map_free(to);
    ckpt_map_free(from);
}

static void targets_that_make_no_sense(void **state)
{
    static const ckpt_target bad[] = {
        {.format = "nonsense", .path = "x"},  {.format = "torch-legacy", .path = "x.pt"},
        {.format = "deepspeed", .path = "x"}, {.format = "torch", .path = "x/"},
        {.format = "torch", .path = ".."},
    };
    ckpt_map *from = make(), *to = NULL;

    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        ckpt_err err = {0};
        assert_int_equal(ckpt_layout(&to, from, &bad[i], &err), CKPT_EUSAGE);
        assert_null(to);
        assert_true(strlen(err.text) > 10);
    }
    ckpt_map_free(from);
}

/* Each format written, read again and compared by value. */
static void what_is_written_reads_back_equal(void **state)
{
    static const char *const format[] = {"torch", "safetensors", "hf", "hf-bin"};
    const ckpt_diff_opts any = {.ignore_dtype = true};
    const ckpt_run_opts run = {.skip_fsync = true};

    (void)state;
    for (int i = 0; i < 4; i++) {
        const ckpt_target target = {
            .format = format[i], .path = path(format[i]), .max_shard_size = i < 2 ? 0 : 20};
        ckpt_run_report report = {0};
        ckpt_map *from = make(), *back = NULL;
        ckpt_err err = {0};
        int rc = ckpt_convert(from, &target, &run, &report, &err);
        if (rc == CKPT_OK)
            rc = ckpt_open(&back, target.path, NULL, &err);
        if (rc == CKPT_OK)
            rc = ckpt_diff(from, back, &any, NULL, NULL, &err);
        if (rc != CKPT_OK)
            fail_msg("%s: %s", format[i], err.text);
        assert_int_equal(ckpt_map_tensor_count(back), 5);
        assert_non_null(ckpt_map_find(back, "head")->owner ? ckpt_map_find(back, "head")->owner
                                                           : ckpt_map_find(back, "w")->owner);
        assert_int_equal(report.n_elems, 9);
        ckpt_map_free(back);
        ckpt_map_free(from);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(dtypes_of_a_target),
        cmocka_unit_test(targets_that_make_no_sense),
        cmocka_unit_test(what_is_written_reads_back_equal),
    };

    return cmocka_run_group_tests(tests, setup, teardown);
}
