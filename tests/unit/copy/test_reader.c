/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_reader.c: stretches and boxes of tensors into memory, with conversion and checksums.
 */
#include <utime.h>

#include "ckpt_extra.h"
#include "libckpt/base/cast.h"
#include "tests/unit/copy/help.h"
#include "tests/unit/unit.h"

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

/* ---- boxes ---- */

enum { BOX = 24000 }; /* elements of "cube", 20 x 30 x 40 */

static float cube[BOX];

/* 20 x 30 x 40 elements in a file of their own, and one without axes in its first. */
static int setup_box(void **state)
{
    const uint64_t shape[3] = {20, 30, 40};
    uint32_t file;

    if (setup(state) != 0)
        return -1;
    help_noise(cube, sizeof cube, 12);
    help_write(help_join(&dir, "cube"), cube, sizeof cube);
    file = help_input(map, help_join(&dir, "cube"));
    (void)help_source(map, file, 0, sizeof cube);
    help_whole(map, help_tensor(map, "cube", CKPT_F32, 3, shape), 2, 0);
    help_whole(map, help_tensor(map, "scale", CKPT_F32, 0, NULL), 2, 0);
    help_whole(map, help_tensor(map, "packed", CKPT_F4, 3, shape), 2, 0);
    return 0;
}

/* Read a box of the cube, by any strides; every byte of the buffer is what three loops say. */
static void box_is_right(ckpt_reader *r, const uint64_t *start, const uint64_t *count,
                         ckpt_dtype dtype, const int64_t *stride)
{
    static uint8_t got[8 * BOX], want[8 * BOX];
    size_t wide = dtype == CKPT_F64 ? 8 : dtype == CKPT_BF16 ? 2 : 4;
    const int64_t dense[3] = {(int64_t)(count[1] * count[2] * wide), (int64_t)(count[2] * wide),
                              (int64_t)wide};
    const int64_t *by = stride ? stride : dense;
    ckpt_err err = {0};

    memset(got, 0xA5, sizeof got);
    memset(want, 0xA5, sizeof want);
    for (uint64_t i = 0; i < count[0] * count[1] * count[2]; i++) {
        uint64_t x = i / count[2] / count[1], y = i / count[2] % count[1], z = i % count[2];
        float v = cube[((start[0] + x) * 30 + start[1] + y) * 40 + start[2] + z];
        uint8_t *to = want + (int64_t)x * by[0] + (int64_t)y * by[1] + (int64_t)z * by[2];

        if (wide == 4)
            memcpy(to, &v, wide);
        else
            ckpt_cast_find_portable(dtype, CKPT_F32)(to, &v, 1);
    }
    if (ckpt_reader_read_box(r, find("cube"), start, count, dtype, got, stride, &err) != CKPT_OK)
        fail_msg("%s", err.text);
    assert_memory_equal(got, want, sizeof got);
}

static void test_box_dense(void **state)
{
    static const uint64_t box[][2][3] = {{{0, 0, 0}, {20, 30, 40}}, {{3, 0, 0}, {5, 30, 40}},
                                         {{0, 7, 0}, {20, 9, 40}},  {{0, 0, 39}, {20, 30, 1}},
                                         {{19, 29, 39}, {1, 1, 1}}, {{2, 3, 4}, {5, 6, 7}},
                                         {{0, 30, 0}, {20, 0, 40}}, {{20, 0, 0}, {0, 30, 40}}};
    ckpt_reader *r = NULL;
    ckpt_err err = {0};

    (void)state;
    assert_int_equal(ckpt_reader_new(&r, map, &err), CKPT_OK);
    for (size_t i = 0; i < sizeof box / sizeof *box; i++) {
        box_is_right(r, box[i][0], box[i][1], CKPT_DTYPE_NONE, NULL);
        box_is_right(r, box[i][0], box[i][1], CKPT_F64, NULL);
        box_is_right(r, box[i][0], box[i][1], CKPT_BF16, NULL);
    }
    ckpt_reader_free(r);
}

/* Any order of axes, with and without room between elements, rows and planes. */
static void test_box_strides(void **state)
{
    static const int order[6][3] = {{0, 1, 2}, {0, 2, 1}, {1, 0, 2},
                                    {1, 2, 0}, {2, 0, 1}, {2, 1, 0}};
    static const uint64_t box[][2][3] = {{{0, 0, 0}, {20, 30, 40}}, {{1, 2, 3}, {4, 28, 37}},
                                         {{5, 0, 0}, {6, 30, 40}},  {{7, 4, 0}, {8, 9, 40}},
                                         {{3, 3, 3}, {1, 1, 9}},    {{0, 0, 17}, {20, 30, 1}}};
    static const ckpt_dtype dtype[3] = {CKPT_DTYPE_NONE, CKPT_F64, CKPT_BF16};
    ckpt_reader *r = NULL;
    ckpt_err err = {0};

    (void)state;
    assert_int_equal(ckpt_reader_new(&r, map, &err), CKPT_OK);
    for (unsigned turn = 0; turn < 6 * 6 * 3 * 4; turn++) {
        const uint64_t *count = box[turn / 6 % 6][1];
        unsigned kind = turn / 36 % 3, gap = turn / 108;
        int64_t stride[3], next = kind == 0 ? 4 : kind == 1 ? 8 : 2, wide = next, end = wide;

        for (unsigned i = 3; i-- > 0;) {
            int k = order[turn % 6][i];
            stride[k] = next + (gap == 3 - i ? 3 : 0);
            next = stride[k] * (int64_t)count[k];
            end += stride[k] * (int64_t)(count[k] - 1);
        }
        if (end <= 8 * BOX)
            box_is_right(r, box[turn / 6 % 6][0], count, dtype[kind], stride);
    }
    // one element has nothing to stride over
    box_is_right(r, (uint64_t[]){3, 3, 3}, (uint64_t[]){1, 1, 9}, CKPT_F32,
                 (int64_t[]){-1, INT64_MIN, 4});
    ckpt_reader_free(r);
}

/* Rows with room between them that are long enough to be read to their places, and longer than the
 * window where they are not; from pieces in any order. */
static void test_box_long(void **state)
{
    static float got[N + 400 * 3];
    static double turned[N];
    const uint64_t start[2] = {100, 0}, count[2] = {200, 1000}, all[2] = {0, 0};
    const uint64_t whole[2] = {400, 1000};
    const int64_t apart[2] = {4012, 4}, across[2] = {8, 3200};
    ckpt_reader *r = NULL;
    ckpt_err err = {0};

    (void)state;
    assert_int_equal(ckpt_reader_new(&r, map, &err), CKPT_OK);
    assert_int_equal(ckpt_reader_read_box(r, find("tied"), start, count, 0, got, apart, &err),
                     CKPT_OK);
    for (uint64_t i = 0; i < 200; i++)
        assert_memory_equal(got + i * 1003, values + ((100 + i) * 1000 + N / 2) % N, 4000);
    assert_int_equal(
        ckpt_reader_read_box(r, find("halves"), all, whole, CKPT_F64, turned, across, &err),
        CKPT_OK);
    for (uint64_t i = 0; i < N; i++) {
        double v = (double)values[(i + N / 2) % N];
        assert_memory_equal(&turned[i % 1000 * 400 + i / 1000], &v, 8);
    }
    ckpt_reader_free(r);
}

static void test_box_refused(void **state)
{
    static const uint64_t zero[3] = {0, 0, 0}, two[3] = {2, 2, 2}, none[3] = {20, 0, 40};
    static const uint64_t bad[][2][3] = {
        {{0, 0, 0}, {21, 1, 1}},         {{0, 30, 0}, {1, 1, 1}},         {{0, 0, 1}, {1, 1, 40}},
        {{0, UINT64_MAX, 0}, {1, 2, 1}}, {{0, 0, 1}, {1, 1, UINT64_MAX}}, {{21, 0, 0}, {0, 1, 1}}};
    static const int64_t strides[][3] = {{8, 4, 3},         {8, 4, 0},
                                         {8, -4, 4},        {INT64_MIN, 8, 4},
                                         {INT64_MAX, 8, 4}, {INT64_MAX / 2, INT64_MAX / 2, 4}};
    const ckpt_tensor *t = find("cube");
    float x = 7;
    ckpt_reader *r = NULL;

    (void)state;
    assert_int_equal(ckpt_reader_new(&r, map, NULL), CKPT_OK);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_int_equal(ckpt_reader_read_box(r, t, bad[i][0], bad[i][1], 0, &x, NULL, NULL),
                         CKPT_EUSAGE);
    for (size_t i = 0; i < sizeof strides / sizeof *strides; i++)
        assert_int_equal(ckpt_reader_read_box(r, t, zero, two, 0, &x, strides[i], NULL),
                         CKPT_EUSAGE);
    // an element of the dtype that is asked for
    assert_int_equal(
        ckpt_reader_read_box(r, t, zero, two, CKPT_F64, &x, (int64_t[]){16, 8, 4}, NULL),
        CKPT_EUSAGE);
    assert_int_equal(ckpt_reader_read_box(r, t, zero, none, 0, NULL, strides[0], NULL), CKPT_OK);
    assert_int_equal(ckpt_reader_read_box(r, t, zero, two, 0, NULL, NULL, NULL), CKPT_EUSAGE);
    assert_int_equal(ckpt_reader_read_box(r, t, NULL, two, 0, &x, NULL, NULL), CKPT_EUSAGE);
    assert_int_equal(ckpt_reader_read_box(r, t, zero, NULL, 0, &x, NULL, NULL), CKPT_EUSAGE);
    assert_int_equal(ckpt_reader_read_box(r, NULL, zero, two, 0, &x, NULL, NULL), CKPT_EUSAGE);
    assert_int_equal(ckpt_reader_read_box(NULL, t, zero, two, 0, &x, NULL, NULL), CKPT_EUSAGE);
    assert_int_equal(ckpt_reader_read_box(r, t, zero, two, CKPT_BOOL, &x, NULL, NULL),
                     CKPT_EUNSUPPORTED);
    assert_int_equal(ckpt_reader_read_box(r, find("packed"), zero, two, 0, &x, NULL, NULL),
                     CKPT_EUNSUPPORTED);
    assert_true(x >= 7 && x <= 7);
    assert_int_equal(ckpt_reader_read_box(r, find("scale"), NULL, NULL, 0, &x, NULL, NULL),
                     CKPT_OK);
    assert_memory_equal(&x, cube, 4);
    assert_int_equal(ckpt_reader_read_box(r, find("scale"), NULL, NULL, 0, NULL, NULL, NULL),
                     CKPT_EUSAGE);
    ckpt_reader_free(r);
}

/* More bytes than there are: of dense elements too, of a tensor that no file could hold. */
static void test_box_overflow(void **state)
{
    const uint64_t huge[2] = {UINT64_C(1) << 30, UINT64_C(1) << 31}, zero[2] = {0, 0};
    ckpt_tensor t = *find("cube");
    ckpt_reader *r = NULL;
    ckpt_err err = {0};
    float x;

    (void)state;
    t.ndim = 2;
    t.shape = (uint64_t *)(uintptr_t)huge;
    t.n_elems = UINT64_C(1) << 61;
    assert_int_equal(ckpt_reader_new(&r, map, &err), CKPT_OK);
    assert_int_equal(ckpt_reader_read_box(r, &t, zero, huge, 0, &x, NULL, &err), CKPT_EUSAGE);
    assert_non_null(strstr(err.text, "is too large for a buffer"));
    err = (ckpt_err){0};
    assert_int_equal(
        ckpt_reader_read_box(r, &t, zero, huge, 0, &x, (int64_t[]){4, INT64_MAX}, &err),
        CKPT_EUSAGE);
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
        if (rc == CKPT_OK)
            rc = ckpt_reader_read_box(r, find("halves"), (uint64_t[]){1, 1}, (uint64_t[]){2, 2},
                                      CKPT_F32, got, (int64_t[]){4, 8}, &err);
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
        cmocka_unit_test_setup_teardown(test_box_dense, setup_box, teardown),
        cmocka_unit_test_setup_teardown(test_box_strides, setup_box, teardown),
        cmocka_unit_test_setup_teardown(test_box_long, setup_box, teardown),
        cmocka_unit_test_setup_teardown(test_box_refused, setup_box, teardown),
        cmocka_unit_test_setup_teardown(test_box_overflow, setup_box, teardown),
        cmocka_unit_test_setup_teardown(test_memory_failures, setup, teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
