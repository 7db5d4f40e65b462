/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_ds_write_release.c: what releases of DeepSpeed write differently: versions, and how each
 * line cuts padding.
 */
#include "formats/deepspeed/write/write.h"
#include "tests/unit/unit.h"

static void test_versions(void **state)
{
    (void)state;
    assert_int_equal(ckpt_dsw_release("0.12.6"), 12006);
    assert_int_equal(ckpt_dsw_release("0.12.6+cu118"), 12006);
    assert_int_equal(ckpt_dsw_release("0.15"), 15000);
    assert_int_equal(ckpt_dsw_release("1.2.3"), 1002003);
    assert_int_equal(ckpt_dsw_release(NULL), 3016);
    assert_int_equal(ckpt_dsw_release("newest"), -1);
    assert_int_equal(ckpt_dsw_release(""), -1);
    assert_int_equal(ckpt_dsw_release("0.1000.1"), -1);
}

/* A group of n elements cut over w ranks, as a part. */
static ckpt_dsw_part part(uint64_t n, uint32_t w)
{
    ckpt_dsw_part p = {.world = w, .n = 1, .intervals = 1};

    assert_int_equal(
        ckpt_zero_flat_new(&p.flat, &(ckpt_zero_sizes){&n, NULL, 1}, w, 2 * (uint64_t)w, NULL),
        CKPT_OK);
    p.slice = p.flat.slice;
    return p;
}

/* Saved length and said padding of a rank under a release. */
static void expect(int release, uint64_t n, uint32_t w, uint32_t rank, uint64_t saved,
                   uint64_t padding)
{
    ckpt_dsw_how how = {.release = release, .stage = 2};
    ckpt_dsw_part p = part(n, w);

    assert_int_equal(ckpt_dsw_saved(&how, &p, rank), saved);
    assert_int_equal(ckpt_dsw_padding(&how, &p, rank), padding);
    ckpt_zero_flat_free(&p.flat);
}

/* Measured: N 858 over 2 ranks, and N 1816 over 3. */
static void test_measured_slices(void **state)
{
    (void)state;
    expect(19008, 858, 2, 0, 430, 0);
    expect(19008, 858, 2, 1, 428, 2);
    expect(19008, 1816, 3, 1, 606, 0);
    expect(19008, 1816, 3, 2, 604, 2);
}

/* N 3 over 8 ranks: F is 16, slices are of 2; since 0.16.4 every rank is cut that padding reaches.
 */
static void test_padding_beyond_one_rank(void **state)
{
    (void)state;
    expect(16004, 3, 8, 0, 2, 0);
    expect(16004, 3, 8, 1, 1, 1);
    expect(16004, 3, 8, 2, 0, 2);
    expect(16004, 3, 8, 7, 0, 2);
    // Before, only the last, by all 13: Python's [:2 - 13] of two elements leaves none.
    expect(16003, 3, 8, 1, 2, 0);
    expect(16003, 3, 8, 7, 0, 13);
    // N 13: padding 3 is one more than the slice, and [:-1] leaves one.
    expect(16003, 13, 8, 6, 2, 0);
    expect(16003, 13, 8, 7, 1, 3);
}

/* 0.6.x cuts what fills up to a multiple of w, not of 2w. */
static void test_padding_before_0_7(void **state)
{
    (void)state;
    expect(6005, 858, 2, 1, 430, 2);
    expect(6005, 857, 2, 1, 429, 3);
    expect(6005, 857, 2, 0, 430, 0);
}

/* BF16_Optimizer keeps its padding. */
static void test_bf16_optimizer(void **state)
{
    ckpt_dsw_how how = {.release = 19008, .stage = 1, .bf16_optimizer = true};
    ckpt_dsw_part p = part(858, 2);

    (void)state;
    assert_int_equal(ckpt_dsw_saved(&how, &p, 1), 430);
    assert_int_equal(ckpt_dsw_padding(&how, &p, 1), 2);
    ckpt_zero_flat_free(&p.flat);
}

/* Experts: ranks e, e + k ... hold lane e. */
static void test_lanes(void **state)
{
    const ckpt_group experts = {.n_lanes = 2}, plain = {.n_lanes = 1}, unset = {0};
    const ckpt_dsw_part p = {.lane = 1, .world = 2};
    const ckpt_dsw_part whole = {.lane = 0, .world = 4};
    uint32_t index = 9;

    (void)state;
    assert_true(ckpt_dsw_holds(&p, &experts, 3, &index));
    assert_int_equal(index, 1);
    assert_false(ckpt_dsw_holds(&p, &experts, 2, &index));
    assert_true(ckpt_dsw_holds(&whole, &plain, 3, &index));
    assert_int_equal(index, 3);
    assert_true(ckpt_dsw_holds(&whole, &unset, 2, &index));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_versions),
        cmocka_unit_test(test_measured_slices),
        cmocka_unit_test(test_padding_beyond_one_rank),
        cmocka_unit_test(test_padding_before_0_7),
        cmocka_unit_test(test_bf16_optimizer),
        cmocka_unit_test(test_lanes),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
