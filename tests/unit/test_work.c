/*
 * test_work.c: single jobs: zeros, memory, ties, packed dtypes, and copies that must agree with
 * their masters.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>

#include "copy_help.h"
#include "libckpt/base/cast.h"

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
    ckpt_err_clear(&err);
    assert_int_equal(help_convert(&dir, tw.from, tw.to, &opts, &report, &err), CKPT_OK);
    assert_int_equal(tw.to->findings.n, 2);
    assert_int_equal(tw.to->findings.at[0].code, CKPT_EMISMATCH);
    assert_int_equal(tw.to->findings.at[1].severity, CKPT_WARNING);
    assert_non_null(strstr(tw.to->findings.at[1].text, "1 NaN and 1 infinite of 100000"));
    assert_int_equal(report.n_compared, 99996);
    twins_free();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_other_sources, setup, teardown),
        cmocka_unit_test_setup_teardown(test_twins, setup, teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
