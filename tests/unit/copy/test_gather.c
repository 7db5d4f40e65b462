/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_gather.c: strided, split, swapped and lazily negated tensors, read by a conversion into
 * memory.
 */
#include "tests/unit/copy/help.h"
#include "tests/unit/unit.h"

static help_dir dir;

static int setup(void **state)
{
    (void)state;
    help_dir_make(&dir);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    help_remove(dir.path);
    return 0;
}

static uint64_t seed = 99;

static uint64_t draw(uint64_t below)
{
    seed = seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (seed >> 33) % below;
}

/* One file of noise with a CRC, as source 0 of a new map. */
static ckpt_map *noise_map(uint8_t *bytes, size_t n)
{
    ckpt_map *map = help_map();

    help_noise(bytes, n, draw(1000));
    help_write(help_join(&dir, "noise"), bytes, n);
    (void)help_source(map, help_input(map, help_join(&dir, "noise")), 0, n);
    help_crc(map, 0, bytes, n);
    return map;
}

/* Views of random shape, permuted, with gaps and broadcasts, against their definition. */
static void test_views(void **state)
{
    enum { SIZE = 3000000 };
    uint8_t *bytes = ckpt_alloc(SIZE), *got = ckpt_alloc(SIZE * 2);

    (void)state;
    for (unsigned round = 0; round < 150; round++) {
        ckpt_map *from = noise_map(bytes, SIZE), *to;
        uint64_t shape[3] = {1 + draw(60), 1 + draw(60), 1 + draw(round % 10 == 0 ? 900 : 30)},
                 n_elems;
        uint64_t item = round % 3 == 0 ? 2 : 4, at = item * draw(10), reach = at + item, k = 0;
        ckpt_dtype dtype = item == 2 ? CKPT_F16 : CKPT_F32;
        ckpt_axis axis[3];
        ckpt_extent e = {0, 3, 0, axis};
        ckpt_run_opts opts = {.jobs = 1 + (unsigned)draw(3), .memory = draw(2) ? 0 : 600000};
        ckpt_run_report report = {0};
        ckpt_err err = {0};
        int64_t stride[3];
        int64_t gap = (int64_t)(item * (1 + draw(draw(4) == 0 ? 3000 : 3)));
        unsigned turn = (unsigned)draw(3);

        // strides of a dense tensor with gaps, dealt out to the axes in some order; sometimes a
        // broadcast
        for (unsigned i = 0; i < 3; i++) {
            unsigned a = (i + turn) % 3;

            stride[a] = draw(12) == 0 ? 0 : gap;
            gap *= (int64_t)shape[a];
            if (reach + (shape[a] - 1) * (uint64_t)stride[a] > SIZE)
                shape[a] = 1;
            reach += (shape[a] - 1) * (uint64_t)stride[a];
        }
        for (unsigned i = 0; i < 3; i++)
            axis[i] = (ckpt_axis){0, shape[i], stride[i]};
        e.at = at;
        n_elems = shape[0] * shape[1] * shape[2];
        help_back(from, help_tensor(from, "v", dtype, 3, shape), &e, 1);
        to = help_memory(got, n_elems * item);
        help_whole(to, help_tensor(to, "v", dtype, 3, shape), 0, 0);
        assert_int_equal(help_convert(&dir, from, to, &opts, &report, &err), CKPT_OK);
        for (uint64_t i = 0; i < shape[0]; i++) {
            for (uint64_t j = 0; j < shape[1] * shape[2]; j++, k++) {
                const uint8_t *p = bytes + at + i * (uint64_t)stride[0] +
                                   j / shape[2] * (uint64_t)stride[1] +
                                   j % shape[2] * (uint64_t)stride[2];

                if (memcmp(got + k * item, p, item) != 0)
                    fail_msg("round %u: element %d differs", round, (int)k);
            }
        }
        assert_int_equal(report.n_records_checked, 1);
        assert_int_equal(to->sources.at[0].crc, ckpt_crc32(0, got, n_elems * item));
        ckpt_map_free(to);
        ckpt_map_free(from);
    }
    ckpt_free(got);
    ckpt_free(bytes);
}

/* A damaged byte in a gap of a strided view still spoils the record. */
static void test_views_are_checked(void **state)
{
    const uint64_t shape[2] = {100, 100};
    const ckpt_axis axis[2] = {{0, 100, 4}, {0, 100, 800}};
    const ckpt_extent e = {0, 2, 0, axis};
    uint8_t *bytes = ckpt_alloc(80000);
    ckpt_map *from = noise_map(bytes, 80000), *to = help_map();
    const ckpt_run_opts opts = {.jobs = 2};
    ckpt_err err = {0};

    (void)state;
    from->sources.at[0].crc ^= 1;
    help_back(from, help_tensor(from, "v", CKPT_F32, 2, shape), &e, 1);
    help_whole(to, help_tensor(to, "v", CKPT_F32, 2, shape),
               help_source(to, help_output(to, "o", 40000), 0, 40000), 0);
    assert_int_equal(help_convert(&dir, from, to, &opts, NULL, &err), CKPT_EFORMAT);
    assert_int_equal(help_count(help_join(&dir, "out")), -1);
    ckpt_map_free(to);
    ckpt_map_free(from);
    ckpt_free(bytes);
}

/* Columns dealt out to two sources and put together again; then dealt out to two files. */
static void test_tensor_parallel_boxes(void **state)
{
    enum { ROWS = 300, COLS = 700, LEFT = 260 };
    static float bytes[ROWS * COLS], got[ROWS * COLS];
    const uint64_t shape[2] = {ROWS, COLS};
    const ckpt_axis left[2] = {{0, ROWS, LEFT * 4}, {0, LEFT, 4}};
    const ckpt_axis right[2] = {{0, ROWS, (COLS - LEFT) * 4}, {LEFT, COLS - LEFT, 4}};

    (void)state;
    for (unsigned round = 0; round < 4; round++) {
        const ckpt_extent split[2] = {{0, 2, 0, left}, {0, 2, ROWS * LEFT * 4, right}};
        ckpt_map *from = noise_map((uint8_t *)bytes, sizeof bytes),
                 *to = help_memory(got, sizeof got);
        const ckpt_run_opts opts = {.jobs = 1 + round, .memory = round % 2 ? 0 : 100000};
        ckpt_tensor *a = help_tensor(from, "w", CKPT_F32, 2, shape),
                    *b = help_tensor(to, "w", CKPT_F32, 2, shape);
        ckpt_run_report report = {0};
        ckpt_err err = {0};
        bool join = round < 2;

        help_back(join ? from : to, join ? a : b, split, 2);
        help_whole(join ? to : from, join ? b : a, 0, 0);
        assert_int_equal(help_convert(&dir, from, to, &opts, &report, &err), CKPT_OK);
        assert_int_equal(report.n_records_checked, 1);
        for (unsigned i = 0; i < ROWS; i++) {
            for (unsigned j = 0; j < COLS; j++) {
                unsigned cut = j < LEFT ? i * LEFT + j : ROWS * LEFT + i * (COLS - LEFT) + j - LEFT;
                unsigned whole = i * COLS + j;

                assert_memory_equal(&got[join ? whole : cut], &bytes[join ? cut : whole], 4);
            }
        }
        ckpt_map_free(to);
        ckpt_map_free(from);
    }
}

/* Big-endian bytes, negated and conjugated values. */
static void test_lazy_bits_and_byte_order(void **state)
{
    const uint64_t shape[1] = {4};
    const uint8_t big[32] = {0x3f, 0x80, 0,    0,    0x40, 0,    0,    0, 0x40, 0x40, 0,
                             0,    0x40, 0x80, 0,    0,    0x40, 0xa0, 0, 0,    0x40, 0xc0,
                             0,    0,    0x40, 0xe0, 0,    0,    0x41, 0, 0,    0};
    static const float expect[8] = {-1, 2, -3, 4, -5, 6, -7, 8};
    float got[8];
    ckpt_map *from = help_map(), *to = help_memory(got, sizeof got);
    const ckpt_run_opts opts = {0};
    ckpt_err err = {0};
    ckpt_tensor *t;

    (void)state;
    help_write(help_join(&dir, "big"), big, sizeof big);
    (void)help_source(from, help_input(from, help_join(&dir, "big")), 0, sizeof big);
    help_crc(from, 0, big, sizeof big);
    from->sources.at[0].swap = 4;
    t = help_tensor(from, "c", CKPT_C64, 1, shape);
    t->flags = CKPT_TENSOR_CONJ | CKPT_TENSOR_NEG;
    help_whole(from, t, 0, 0);
    help_whole(to, help_tensor(to, "c", CKPT_C64, 1, shape), 0, 0);
    assert_int_equal(help_convert(&dir, from, to, &opts, NULL, &err), CKPT_OK);
    assert_memory_equal(got, expect, sizeof got);
    ckpt_map_free(to);
    ckpt_map_free(from);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_views, setup, teardown),
        cmocka_unit_test_setup_teardown(test_views_are_checked, setup, teardown),
        cmocka_unit_test_setup_teardown(test_tensor_parallel_boxes, setup, teardown),
        cmocka_unit_test_setup_teardown(test_lazy_bits_and_byte_order, setup, teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
