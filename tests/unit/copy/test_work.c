/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_work.c: single jobs: zeros, memory, ties, packed dtypes, and copies that must agree with
 * their masters.
 */
#include <math.h>

#include "libckpt/base/cast.h"
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

/* Zeros for padding, memory as a source, tied and renamed tensors, an alias in the target, F4. */
static void test_other_sources(void **state)
{
    const uint64_t six[1] = {6}, packed[1] = {12};
    float in[3] = {1, NAN, INFINITY}, got[20] = {9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9};
    const ckpt_axis axis[3] = {{0, 2, 4}, {2, 3, 4}, {5, 1, 4}};
    const ckpt_extent e[3] = {{0, 1, 0, &axis[0]}, {1, 1, 0, &axis[1]}, {0, 1, 8, &axis[2]}};
    const ckpt_source zero = {.kind = CKPT_SOURCE_ZERO, .n_bytes = UINT64_MAX};
    ckpt_map *from = help_memory(in, sizeof in), *to = help_memory(got, sizeof got);
    ckpt_tensor *owner, *tied, *t;
    const ckpt_run_opts opts = {0};
    ckpt_run_report report = {0};
    ckpt_err err = {0};
    uint32_t i;

    (void)state;
    assert_int_equal(ckpt_map_add_source(from, &zero, &i, &err), CKPT_OK);
    owner = help_tensor(from, "owner", CKPT_F32, 1, six);
    help_back(from, owner, e, 3);
    tied = help_tensor(from, "tied", CKPT_F32, 1, six);
    tied->owner = owner;
    help_whole(from, help_tensor(from, "f4", CKPT_F4, 1, packed), 0, 2);
    t = help_tensor(to, "new", CKPT_F32, 1, six);
    t->origin = "tied";
    help_whole(to, t, 0, 4);
    help_tensor(to, "tied", CKPT_F32, 1, six)->owner = t;
    help_whole(to, help_tensor(to, "f4", CKPT_F4, 1, packed), 0, 32);
    assert_int_equal(help_convert(&dir, from, to, &opts, &report, &err), CKPT_OK);
    assert_true(got[0] == 9 && got[7] == 9);
    assert_memory_equal(&got[1], in, 8);
    assert_true(got[3] == 0 && got[4] == 0 && got[5] == 0 && isinf(got[6]));
    assert_memory_equal(&got[8], (const uint8_t *)in + 2, 6);
    assert_int_equal(report.n_tensors, 2);
    assert_int_equal(report.n_nan, 1);
    assert_int_equal(report.n_inf, 1);
    assert_int_equal(report.n_records_no_crc, 0);
    ckpt_map_free(to);
    ckpt_map_free(from);
}

/* ---- copies that must agree ---- */

typedef struct twins {
    ckpt_map *from, *to;
    float master[100000];
    uint16_t copy[100000];
} twins;

static twins tw; // large, so static

/* Masters and their bf16 copies, in memory; what is made of them goes nowhere. */
static void twins_make(void)
{
    const uint64_t shape[2] = {100, 1000};
    const ckpt_source masters = {
        .kind = CKPT_SOURCE_MEMORY, .memory = tw.master, .n_bytes = sizeof tw.master};
    const ckpt_source copies = {
        .kind = CKPT_SOURCE_MEMORY, .memory = tw.copy, .n_bytes = sizeof tw.copy};
    const ckpt_source zero = {.kind = CKPT_SOURCE_ZERO, .n_bytes = UINT64_MAX};
    ckpt_tensor like = {.dtype = CKPT_BF16, .ndim = 2, .shape = shape, .n_elems = 100000},
                *twin = NULL, *t;
    ckpt_err err = {0};
    uint32_t i;

    help_noise(tw.master, sizeof tw.master, 3);
    ckpt_cast_find_portable(CKPT_BF16, CKPT_F32)(tw.copy, tw.master, 100000);
    tw.from = help_map();
    tw.to = help_map();
    assert_int_equal(ckpt_map_add_source(tw.from, &masters, &i, &err), CKPT_OK);
    assert_int_equal(ckpt_map_add_source(tw.from, &copies, &i, &err), CKPT_OK);
    assert_int_equal(ckpt_map_add_source(tw.to, &zero, &i, &err), CKPT_OK);
    assert_int_equal(ckpt_map_add_hidden(tw.from, "w", 1, &like, &twin, &err), CKPT_OK);
    help_whole(tw.from, twin, 1, 0);
    t = help_tensor(tw.from, "w", CKPT_F32, 2, shape);
    help_whole(tw.from, t, 0, 0);
    t->twin = twin;
    help_whole(tw.to, help_tensor(tw.to, "w", CKPT_F32, 2, shape), 0, 0);
}

static void twins_free(void)
{
    ckpt_map_free(tw.to);
    ckpt_map_free(tw.from);
}

static void test_twins(void **state)
{
    const ckpt_run_opts opts = {.jobs = 3, .memory = 300000};
    ckpt_run_report report = {0};
    ckpt_err err = {0};

    (void)state;
    twins_make();
    assert_int_equal(help_convert(&dir, tw.from, tw.to, &opts, &report, &err), CKPT_OK);
    assert_int_equal(report.n_compared, 100000);
    assert_int_equal(report.n_written, 0);
    // what is not finite proves nothing, whatever the copy says
    tw.master[5] = NAN;
    tw.copy[5] = 0x7fff;
    tw.master[6] = -INFINITY;
    tw.copy[6] = 0;
    assert_int_equal(help_convert(&dir, tw.from, tw.to, &opts, &report, &err), CKPT_OK);
    assert_int_equal(report.n_compared, 99998);
    assert_int_equal(report.n_nan, 1);
    assert_int_equal(report.n_inf, 1);
    // one bit, late in the tensor
    tw.master[77777] = 1.5f;
    tw.copy[77777] = 0x3fc1;
    assert_int_equal(help_convert(&dir, tw.from, tw.to, &opts, &report, &err), CKPT_EMISMATCH);
    assert_non_null(strstr(err.text, "tensor w: element 77777: master value 1.5 rounds to 1.5"));
    assert_non_null(strstr(err.text, "1.5078125"));
    // collected: one finding for the tensor, however many elements differ
    tw.copy[10] ^= 1;
    tw.to->collect = true;
    tw.to->findings.n = 0;
    err = (ckpt_err){0};
    assert_int_equal(help_convert(&dir, tw.from, tw.to, &opts, &report, &err), CKPT_OK);
    assert_int_equal(tw.to->findings.n, 2);
    assert_int_equal(tw.to->findings.at[0].code, CKPT_EMISMATCH);
    assert_int_equal(tw.to->findings.at[1].severity, CKPT_WARNING);
    assert_non_null(strstr(tw.to->findings.at[1].text, "1 NaN and 1 infinite of 100000"));
    assert_int_equal(report.n_compared, 99996);
    twins_free();
}

/* ---- chains ---- */

enum { CHAIN = 50000 };

/* One more tensor backed by n_bytes of memory; the first is in the list, as "w". */
static ckpt_tensor *slot(ckpt_map *map, ckpt_dtype d, void *memory, uint64_t n_bytes, bool listed)
{
    const uint64_t shape[2] = {CHAIN / 100, 100};
    const ckpt_source s = {.kind = CKPT_SOURCE_MEMORY, .memory = memory, .n_bytes = n_bytes};
    const ckpt_tensor like = {.dtype = d, .ndim = 2, .shape = shape, .n_elems = CHAIN};
    ckpt_tensor *t = NULL;
    ckpt_err err = {0};
    uint32_t i = 0;

    assert_int_equal(ckpt_map_add_source(map, &s, &i, &err), CKPT_OK);
    if (listed)
        assert_int_equal(ckpt_map_add(map, "w", 1, &like, &t, &err), CKPT_OK);
    else
        assert_int_equal(ckpt_map_add_hidden(map, "w", 1, &like, &t, &err), CKPT_OK);
    help_whole(map, t, i, 0);
    return t;
}

/* Masters of three ranks that must be equal, and a 16-bit copy of each. */
static void test_chain_of_twins(void **state)
{
    static float master[3][CHAIN], got[CHAIN];
    static uint16_t copy[3][CHAIN];
    const ckpt_run_opts opts = {.jobs = 2, .memory = 300000};
    ckpt_run_report report = {0};
    ckpt_map *from = help_map(), *to = help_map();
    ckpt_tensor *tail;
    ckpt_err err = {0};

    (void)state;
    for (unsigned i = 0; i < 3; i++) {
        help_noise(master[i], sizeof master[i], 5);
        ckpt_cast_find_portable(CKPT_F16, CKPT_F32)(copy[i], master[i], CHAIN);
    }
    tail = slot(from, CKPT_F32, master[0], sizeof master[0], true);
    for (unsigned i = 1; i < 3; i++) {
        tail->twin = slot(from, CKPT_F32, master[i], sizeof master[i], false);
        tail = (ckpt_tensor *)(uintptr_t)tail->twin;
    }
    for (unsigned i = 0; i < 3; i++) {
        tail->twin = slot(from, CKPT_F16, copy[i], sizeof copy[i], false);
        tail = (ckpt_tensor *)(uintptr_t)tail->twin;
    }
    (void)slot(to, CKPT_F32, got, sizeof got, true);
    assert_int_equal(help_convert(&dir, from, to, &opts, &report, &err), CKPT_OK);
    assert_int_equal(report.n_compared, 5 * CHAIN);
    assert_int_equal(report.n_read, 3 * sizeof master[0] + 3 * sizeof copy[0]);
    assert_memory_equal(got, master[0], sizeof got);
    // NaN in all masters is no difference, whatever its bits; in one of them it is
    master[0][7] = master[1][7] = master[2][7] = NAN;
    memcpy(&master[2][7], "\x01\x00\xc0\x7f", 4);
    assert_int_equal(help_convert(&dir, from, to, &opts, &report, &err), CKPT_OK);
    // not counted: the NaN of other bits, and the three 16-bit copies, to which a NaN proves
    // nothing
    assert_int_equal(report.n_compared, 5 * CHAIN - 4);
    master[2][7] = 1;
    assert_int_equal(help_convert(&dir, from, to, &opts, &report, &err), CKPT_EMISMATCH);
    assert_non_null(strstr(err.text, "tensor w: element 7 is 1, but nan in another copy"));
    master[0][7] = master[1][7] = 1;
    ckpt_cast_find_portable(CKPT_F16, CKPT_F32)(&copy[0][7], &master[0][7], 1);
    copy[1][7] = copy[2][7] = copy[0][7];
    // the last of the chain, in its last element
    copy[2][CHAIN - 1] ^= 1;
    err = (ckpt_err){0};
    assert_int_equal(help_convert(&dir, from, to, &opts, &report, &err), CKPT_EMISMATCH);
    assert_non_null(strstr(err.text, "tensor w: element 49999: master value"));
    assert_non_null(strstr(err.text, "F16 copy"));
    ckpt_map_free(to);
    ckpt_map_free(from);
}

/* Integers are compared as well, byte by byte. */
static void test_integer_twins(void **state)
{
    static int64_t a[CHAIN], b[CHAIN], got[CHAIN];
    const ckpt_run_opts opts = {.jobs = 1, .memory = 300000};
    ckpt_run_report report = {0};
    ckpt_map *from = help_map(), *to = help_map();
    ckpt_err err = {0};

    (void)state;
    for (int64_t i = 0; i < CHAIN; i++)
        a[i] = b[i] = i * 0x10001;
    slot(from, CKPT_I64, a, sizeof a, true)->twin = slot(from, CKPT_I64, b, sizeof b, false);
    (void)slot(to, CKPT_I64, got, sizeof got, true);
    assert_int_equal(help_convert(&dir, from, to, &opts, &report, &err), CKPT_OK);
    assert_int_equal(report.n_compared, CHAIN);
    b[3]++;
    assert_int_equal(help_convert(&dir, from, to, &opts, &report, &err), CKPT_EMISMATCH);
    assert_non_null(strstr(err.text, "element 3 is 0x0000000000030004"));
    ckpt_map_free(to);
    ckpt_map_free(from);
}

/* Means as torch takes them: 0 + x0 + x1 ..., then divided; here of 1 to 4 slices. */
static void test_means(void **state)
{
    static float part[4][CHAIN], got[CHAIN];
    static uint16_t half[4][CHAIN], got_half[CHAIN];
    const ckpt_run_opts opts = {.jobs = 2, .memory = 200000};

    (void)state;
    for (unsigned i = 0; i < 4; i++) {
        help_noise(part[i], sizeof part[i], 31 + i);
        part[i][0] = -0.0f;
        ckpt_cast_find_portable(CKPT_BF16, CKPT_F32)(half[i], part[i], CHAIN);
    }
    for (unsigned n = 2; n <= 4; n++) {
        ckpt_map *from = help_map(), *to = help_map(), *from16 = help_map(), *to16 = help_map();
        ckpt_tensor *tail = slot(from, CKPT_F32, part[0], sizeof part[0], true),
                    *tail16 = slot(from16, CKPT_BF16, half[0], sizeof half[0], true);
        ckpt_run_report report = {0};
        ckpt_err err = {0};

        for (unsigned i = 1; i < n; i++) {
            tail->addend = slot(from, CKPT_F32, part[i], sizeof part[i], false);
            tail = (ckpt_tensor *)(uintptr_t)tail->addend;
            // each slice has its own copy, which is not that of the mean
            tail->twin = slot(from, CKPT_BF16, half[i], sizeof half[i], false);
            tail16->addend = slot(from16, CKPT_BF16, half[i], sizeof half[i], false);
            tail16 = (ckpt_tensor *)(uintptr_t)tail16->addend;
        }
        (void)slot(to, CKPT_F32, got, sizeof got, true);
        (void)slot(to16, CKPT_BF16, got_half, sizeof got_half, true);
        assert_int_equal(help_convert(&dir, from, to, &opts, &report, &err), CKPT_OK);
        assert_int_equal(report.n_compared, (n - 1) * CHAIN);
        assert_int_equal(report.n_elems, CHAIN);
        assert_int_equal(help_convert(&dir, from16, to16, &opts, &report, &err), CKPT_OK);
        for (unsigned k = 0; k < CHAIN; k++) {
            float sum = 0, wide = 0, x;
            uint16_t want;

            for (unsigned i = 0; i < n; i++) {
                uint32_t bits = (uint32_t)half[i][k] << 16;

                sum += part[i][k];
                memcpy(&x, &bits, 4);
                wide += x;
            }
            sum /= (float)n;
            wide /= (float)n;
            ckpt_cast_find_portable(CKPT_BF16, CKPT_F32)(&want, &wide, 1);
            assert_memory_equal(&got[k], &sum, 4);
            assert_int_equal(got_half[k], want);
        }
        assert_false(signbit(got[0]));
        ckpt_map_free(to);
        ckpt_map_free(from);
        ckpt_map_free(to16);
        ckpt_map_free(from16);
    }
}

/* F64 means stay F64; a slice whose copy differs is told; values of the mean are what is counted.
 */
static void test_means_checked(void **state)
{
    static double part[3][CHAIN], got[CHAIN];
    static float copy[CHAIN];
    const ckpt_run_opts opts = {.jobs = 1, .memory = 300000};
    ckpt_run_report report = {0};
    ckpt_map *from = help_map(), *to = help_map();
    ckpt_tensor *a, *b;
    ckpt_err err = {0};

    (void)state;
    for (unsigned k = 0; k < CHAIN; k++) {
        part[0][k] = 1.0 / (k + 1);
        part[1][k] = 0.1 * k;
        part[2][k] = -1e-9 * k;
        copy[k] = (float)part[1][k];
    }
    part[2][9] = (double)INFINITY;
    a = slot(from, CKPT_F64, part[0], sizeof part[0], true);
    a->addend = b = slot(from, CKPT_F64, part[1], sizeof part[1], false);
    b->twin = slot(from, CKPT_F32, copy, sizeof copy, false);
    b->addend = slot(from, CKPT_F64, part[2], sizeof part[2], false);
    (void)slot(to, CKPT_F64, got, sizeof got, true);
    assert_int_equal(help_convert(&dir, from, to, &opts, &report, &err), CKPT_OK);
    for (unsigned k = 0; k < CHAIN; k++) {
        double want = (0 + part[0][k] + part[1][k] + part[2][k]) / 3;

        assert_memory_equal(&got[k], &want, 8);
    }
    assert_int_equal(report.n_inf, 1);
    assert_int_equal(report.n_compared, CHAIN);
    copy[5] += 1;
    assert_int_equal(help_convert(&dir, from, to, &opts, &report, &err), CKPT_EMISMATCH);
    assert_non_null(strstr(err.text, "tensor w: element 5: master value 0.5 rounds to 0.5"));
    ckpt_map_free(to);
    ckpt_map_free(from);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_other_sources, setup, teardown),
        cmocka_unit_test_setup_teardown(test_twins, setup, teardown),
        cmocka_unit_test_setup_teardown(test_chain_of_twins, setup, teardown),
        cmocka_unit_test_setup_teardown(test_integer_twins, setup, teardown),
        cmocka_unit_test_setup_teardown(test_means, setup, teardown),
        cmocka_unit_test_setup_teardown(test_means_checked, setup, teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
