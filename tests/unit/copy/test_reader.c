/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_reader.c: stretches of tensors into memory, with conversion and checksums.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <utime.h>

#include "ckpt.h"
#include "libckpt/base/cast.h"
#include "tests/unit/copy/help.h"

enum { N = 400000 };

static help_dir dir;
static float values[N];
static ckpt_map *map;

/* A tensor of N elements in two halves: the second one first in the file; its transposed view; a
 * damaged record. */
static int setup(void **state)
{
    const uint64_t shape[2] = {400, 1000}, turned[2] = {1000, 400}, few[1] = {10};
    const ckpt_axis half[2] = {{0, N / 2, 4}, {N / 2, N / 2, 4}};
    const ckpt_extent e[2] = {{0, 1, N * 2, &half[0]}, {0, 1, 0, &half[1]}};
    const ckpt_axis rows[2] = {{0, 1000, 4}, {0, 400, 4000}};
    const ckpt_extent view = {0, 2, 0, rows};
    ckpt_tensor *t;
    uint32_t file;

    (void)state;
    help_dir_make(&dir);
    help_noise(values, sizeof values, 11);
    help_write(help_join(&dir, "f"), values, sizeof values);
    map = help_map();
    file = help_input(map, help_join(&dir, "f"));
    (void)help_source(map, file, 0, sizeof values);
    help_crc(map, 0, values, sizeof values);
    (void)help_source(map, file, 0, 100);
    map->sources.at[1].has_crc = 1;
    t = help_tensor(map, "halves", CKPT_F32, 2, shape);
    help_back(map, t, e, 2);
    help_tensor(map, "tied", CKPT_F32, 2, shape)->owner = t;
    help_back(map, help_tensor(map, "turned", CKPT_F32, 2, turned), &view, 1);
    help_whole(map, help_tensor(map, "bad", CKPT_F32, 1, few), 1, 0);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    ckpt_map_free(map);
    help_remove(dir.path);
    return 0;
}

static const ckpt_tensor *find(const char *name)
{
    return map->tensors.at[ckpt_map_index(map, name, strlen(name))];
}

static void test_stretches(void **state)
{
    static const uint64_t stretch[][2] = {{0, N},         {0, 1},       {N - 1, 1},
                                          {N / 2 - 3, 6}, {77, 250001}, {N, 0}};
    static float got[N];
    ckpt_reader *r = NULL;
    ckpt_err err = {0};

    (void)state;
    assert_int_equal(ckpt_reader_new(&r, map, &err), CKPT_OK);
    for (size_t i = 0; i < sizeof stretch / sizeof *stretch; i++) {
        uint64_t first = stretch[i][0], n = stretch[i][1];

        memset(got, 0, sizeof got);
        assert_int_equal(ckpt_reader_read(r, find(i % 2 ? "tied" : "halves"), first, n,
                                          CKPT_DTYPE_NONE, got, &err),
                         CKPT_OK);
        for (uint64_t k = 0; k < n; k++)
            assert_memory_equal(&got[k], &values[(first + k + N / 2) % N], 4);
        memset(got, 0, sizeof got);
        assert_int_equal(ckpt_reader_read(r, find("turned"), first, n, CKPT_F32, got, &err),
                         CKPT_OK);
        for (uint64_t k = 0; k < n; k++)
            assert_memory_equal(&got[k], &values[(first + k) % 400 * 1000 + (first + k) / 400], 4);
    }
    ckpt_reader_free(r);
    ckpt_reader_free(NULL);
}

static void test_conversion(void **state)
{
    static double wide[N];
    static uint16_t half[N];
    ckpt_reader *r = NULL;
    ckpt_err err = {0};

    (void)state;
    assert_int_equal(ckpt_reader_new(&r, map, &err), CKPT_OK);
    assert_int_equal(ckpt_reader_read(r, find("halves"), 5, N - 5, CKPT_F64, wide, &err), CKPT_OK);
    assert_int_equal(ckpt_reader_read(r, find("halves"), 5, N - 5, CKPT_BF16, half, &err), CKPT_OK);
    for (uint64_t k = 0; k < N - 5; k++) {
        float v = values[(5 + k + N / 2) % N];
        uint16_t bf16;

        ckpt_cast_find_portable(CKPT_BF16, CKPT_F32)(&bf16, &v, 1);
        assert_true(wide[k] >= (double)v && wide[k] <= (double)v);
        assert_int_equal(half[k], bf16);
    }
    assert_int_equal(ckpt_reader_read(r, find("halves"), 0, 1, CKPT_BOOL, half, &err),
                     CKPT_EUNSUPPORTED);
    ckpt_reader_free(r);
}

static void test_refusals(void **state)
{
    float got[10];
    ckpt_reader *r = NULL;
    ckpt_err err = {0};
    const struct utimbuf past = {1000, 1000};

    (void)state;
    assert_int_equal(ckpt_reader_new(&r, map, &err), CKPT_OK);
    assert_int_equal(ckpt_reader_read(r, find("halves"), N - 3, 4, CKPT_F32, got, &err),
                     CKPT_EUSAGE);
    err = (ckpt_err){0};
    assert_int_equal(ckpt_reader_read(r, find("halves"), UINT64_MAX, 2, CKPT_F32, got, &err),
                     CKPT_EUSAGE);
    err = (ckpt_err){0};
    // the record's CRC does not hold: not one byte of it, now or later
    for (unsigned i = 0; i < 2; i++) {
        err = (ckpt_err){0};
        assert_int_equal(ckpt_reader_read(r, find("bad"), 3, 1, CKPT_F32, got, &err), CKPT_EFORMAT);
        assert_non_null(strstr(err.text, "CRC-32"));
    }
    err = (ckpt_err){0};
    assert_int_equal(ckpt_reader_read(r, find("halves"), 0, 10, CKPT_F32, got, &err), CKPT_OK);
    // touched between two reads
    assert_int_equal(utime(map->files.at[0].path, &past), 0);
    assert_int_equal(ckpt_reader_read(r, find("halves"), 0, 10, CKPT_F32, got, &err), CKPT_EIO);
    ckpt_reader_free(r);
}

/* A record that turned bad since its tensor was mapped, although another one of the file is fine.
 */
static void test_checked_once(void **state)
{
    float got[10];
    ckpt_reader *r = NULL;
    ckpt_err err = {0};

    (void)state;
    assert_int_equal(ckpt_reader_new(&r, map, &err), CKPT_OK);
    assert_int_equal(ckpt_reader_read(r, find("halves"), 0, 10, CKPT_F32, got, &err), CKPT_OK);
    // remembered: a CRC that would not hold any more is not looked at again
    map->sources.at[0].crc ^= 1;
    assert_int_equal(ckpt_reader_read(r, find("halves"), 10, 10, CKPT_F32, got, &err), CKPT_OK);
    ckpt_reader_free(r);
    assert_int_equal(ckpt_reader_new(&r, map, &err), CKPT_OK);
    assert_int_equal(ckpt_reader_read(r, find("halves"), 10, 10, CKPT_F32, got, &err),
                     CKPT_EFORMAT);
    ckpt_reader_free(r);
}

/* A tensor with addends reads as their mean, in any stretch and dtype. */
static void test_means(void **state)
{
    static const uint64_t stretch[][2] = {{0, N}, {12345, 300001}, {N - 1, 1}, {3, 0}};
    static float got[N];
    static double wide[N];
    ckpt_tensor like = *find("halves"), *mean = NULL, *second = NULL, *third = NULL;
    ckpt_reader *r = NULL;
    ckpt_err err = {0};

    (void)state;
    assert_int_equal(ckpt_map_add(map, "mean", 4, &like, &mean, &err), CKPT_OK);
    assert_int_equal(ckpt_map_add_hidden(map, "2", 1, &like, &second, &err), CKPT_OK);
    assert_int_equal(ckpt_map_add_hidden(map, "3", 1, &like, &third, &err), CKPT_OK);
    help_back(map, mean, like.extent, like.n_extents);
    help_whole(map, second, 0, 0);
    help_whole(map, third, 0, 0);
    mean->addend = second;
    second->addend = third;
    assert_int_equal(ckpt_reader_new(&r, map, &err), CKPT_OK);
    for (size_t i = 0; i < sizeof stretch / sizeof *stretch; i++) {
        uint64_t first = stretch[i][0], n = stretch[i][1];

        assert_int_equal(ckpt_reader_read(r, mean, first, n, CKPT_F32, got, &err), CKPT_OK);
        assert_int_equal(ckpt_reader_read(r, mean, first, n, CKPT_F64, wide, &err), CKPT_OK);
        for (uint64_t k = 0; k < n; k++) {
            uint64_t at = first + k;
            float want = (0 + values[(at + N / 2) % N] + values[at] + values[at]) / 3;

            assert_memory_equal(&got[k], &want, 4);
            assert_true(wide[k] >= (double)want && wide[k] <= (double)want);
        }
    }
    third->dtype = CKPT_I32;
    assert_int_equal(ckpt_reader_read(r, mean, 0, 1, CKPT_F32, got, &err), CKPT_EUSAGE);
    assert_non_null(strstr(err.text, "of I32"));
    ckpt_reader_free(r);
}

static void test_memory_failures(void **state)
{
    static float got[N];

    (void)state;
    for (unsigned i = 0;; i++) {
        ckpt_reader *r = NULL;
        ckpt_err err = {0};
        double wide[3];
        int rc;

        ckpt_alloc_fail_at(i);
        rc = ckpt_reader_new(&r, map, &err);
        if (rc == CKPT_OK)
            rc = ckpt_reader_read(r, find("turned"), 0, N, CKPT_F32, got, &err);
        if (rc == CKPT_OK)
            rc = ckpt_reader_read(r, find("halves"), 0, 3, CKPT_F64, wide, &err);
        ckpt_alloc_fail_at(UINT64_MAX);
        ckpt_reader_free(r);
        if (rc == CKPT_OK)
            break;
        assert_int_equal(rc, CKPT_ELIMIT);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_stretches, setup, teardown),
        cmocka_unit_test_setup_teardown(test_conversion, setup, teardown),
        cmocka_unit_test_setup_teardown(test_refusals, setup, teardown),
        cmocka_unit_test_setup_teardown(test_checked_once, setup, teardown),
        cmocka_unit_test_setup_teardown(test_means, setup, teardown),
        cmocka_unit_test_setup_teardown(test_memory_failures, setup, teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
