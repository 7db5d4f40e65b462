/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_zero_param.c: the layout of stage 3 against worked examples and against plain lists.
 */
#include "libckpt/map/zero_param.h"
#include "tests/unit/unit.h"

/* A measured run on three ranks: 481 -> 161, 377 -> 126; 29 -> 10, 13 -> 5. */
static void test_partitions(void **state)
{
    (void)state;
    assert_int_equal(ckpt_zero_partition(481, 3), 161);
    assert_int_equal(ckpt_zero_partition(377, 3), 126);
    assert_int_equal(ckpt_zero_partition(29, 3), 10);
    assert_int_equal(ckpt_zero_partition(13, 3), 5);
    assert_int_equal(3 * ckpt_zero_partition(29, 3) + ckpt_zero_partition(13, 3), 35);
    assert_int_equal(ckpt_zero_partition(12, 3), 4);
    assert_int_equal(ckpt_zero_partition(2, 3), 1);
    assert_int_equal(ckpt_zero_partition(0, 3), 0);
    assert_int_equal(ckpt_zero_partition(UINT64_MAX, 1), UINT64_MAX);
    assert_int_equal(ckpt_zero_partition(UINT64_MAX, 2), UINT64_C(1) << 63);
    assert_int_equal(ckpt_zero_partition(7, 0), 0);
}

/* The runs cover a parameter once, each where the rank's partition begins. */
static void test_runs(void **state)
{
    (void)state;
    for (uint64_t numel = 0; numel < 60; numel++) {
        for (uint32_t world = 1; world < 12; world++) {
            uint64_t part = (numel + world - 1) / world;
            uint64_t next = 0, n_runs = 0;
            ckpt_zero_run run;

            for (uint64_t cursor = 0; ckpt_zero_param_next(numel, world, &cursor, &run);) {
                assert_int_equal(run.rank, n_runs);
                assert_int_equal(run.first, run.rank * part);
                assert_int_equal(run.first, next);
                assert_int_equal(run.at, 0);
                assert_true(run.rank < world && run.count > 0 && run.count <= part);
                next += run.count;
                n_runs++;
                assert_int_equal(cursor, next);
            }
            assert_int_equal(next, numel);
        }
    }
}

/* Ranks behind the last element hold padding only: they have no run. */
static void test_ranks_of_padding(void **state)
{
    ckpt_zero_run run;
    uint64_t cursor = 0;

    (void)state;
    // 9 elements over 8 ranks: 2 each, so five ranks have some.
    for (unsigned r = 0; r < 5; r++)
        assert_true(ckpt_zero_param_next(9, 8, &cursor, &run));
    assert_int_equal(run.rank, 4);
    assert_int_equal(run.count, 1);
    assert_false(ckpt_zero_param_next(9, 8, &cursor, &run));
    cursor = 0;
    assert_false(ckpt_zero_param_next(9, 0, &cursor, &run));
    assert_false(ckpt_zero_param_next(0, 4, &cursor, &run));
}

/* A cursor in the middle of a partition goes on from there. */
static void test_cursor_inside(void **state)
{
    ckpt_zero_run run;
    uint64_t cursor = 7;

    (void)state;
    assert_true(ckpt_zero_param_next(20, 4, &cursor, &run)); // partitions of 5
    assert_int_equal(run.rank, 1);
    assert_int_equal(run.first, 7);
    assert_int_equal(run.at, 2);
    assert_int_equal(run.count, 3);
}

static void expect_groups(const uint64_t *numel, uint64_t n, uint64_t size, const uint32_t *want,
                          uint32_t want_next)
{
    uint32_t group[8], next = 5;

    assert_true(n <= 8);
    ckpt_zero_sub_groups(numel, n, 3, size, group, &next);
    for (uint64_t i = 0; i < n; i++)
        assert_int_equal(group[i], 5 + want[i]);
    assert_int_equal(next, 5 + want_next);
}

static void test_sub_groups(void **state)
{
    // Partitions on three ranks: 161, 126, 10, 10, 10, 5.
    const uint64_t numel[] = {481, 377, 29, 29, 29, 13};
    const uint32_t one[] = {0, 0, 0, 0, 0, 0};
    const uint32_t each[] = {0, 1, 2, 3, 4, 5};
    const uint32_t some[] = {0, 1, 1, 1, 2, 2};
    const uint32_t exact[] = {0, 0, 1, 1, 1, 1};
    const uint64_t empty_last[] = {30, 0};
    const uint32_t empty_group[] = {0, 1};

    (void)state;
    expect_groups(numel, 6, 1000000000, one, 1);
    expect_groups(numel, 6, 322, one, 1); // reached by the last parameter: no empty group follows
    expect_groups(numel, 6, 1, each, 6);
    expect_groups(numel, 6, 0, each, 6);
    expect_groups(numel, 6, 140, some, 3);  // closed after the parameter that makes it 146
    expect_groups(numel, 6, 287, exact, 2); // >=, not >
    expect_groups(empty_last, 2, 10, empty_group, 2);
    expect_groups(numel, 0, 140, NULL, 0);
}

/* Sums that do not fit 64 bits count as full. */
static void test_sub_groups_overflow(void **state)
{
    const uint64_t numel[] = {UINT64_MAX - 1, 7, 3};
    uint32_t group[3], next = 0;

    (void)state;
    ckpt_zero_sub_groups(numel, 3, 1, UINT64_MAX, group, &next);
    assert_int_equal(group[0], 0);
    assert_int_equal(group[1], 0);
    assert_int_equal(group[2], 1);
    assert_int_equal(next, 2);
}

/* Parameter groups one after another share the numbering: sub-groups never cross them. */
static void test_sub_groups_continue(void **state)
{
    const uint64_t first[] = {90, 90}, second[] = {30};
    uint32_t group[3], next = 0;

    (void)state;
    ckpt_zero_sub_groups(first, 2, 3, 100, group, &next);
    ckpt_zero_sub_groups(second, 1, 3, 100, group + 2, &next);
    assert_int_equal(group[0], 0);
    assert_int_equal(group[1], 0);
    assert_int_equal(group[2], 1);
    assert_int_equal(next, 2);
}

/* Gather by the runs what each rank stored: flat groups concatenated, padding poisoned. */
static void test_inverse(void **state)
{
    enum { N = 5, W = 4 };
    const uint64_t numel[N] = {17, 4, 1, 30, 8};
    uint64_t flat[W][64], at[N], n = 0;

    (void)state;
    for (unsigned i = 0; i < N; i++) {
        uint64_t p = (numel[i] + W - 1) / W;

        at[i] = n;
        for (unsigned r = 0; r < W; r++) {
            for (uint64_t e = 0; e < p; e++)
                flat[r][n + e] = r * p + e < numel[i] ? 100 * i + r * p + e : 999999;
        }
        n += p;
    }
    assert_true(n <= 64);
    for (unsigned i = 0; i < N; i++) {
        ckpt_zero_run run;
        uint64_t next = 0;

        for (uint64_t cursor = 0; ckpt_zero_param_next(numel[i], W, &cursor, &run);) {
            for (uint64_t e = 0; e < run.count; e++)
                assert_int_equal(flat[run.rank][at[i] + run.at + e], 100 * i + next++);
        }
        assert_int_equal(next, numel[i]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_partitions),          cmocka_unit_test(test_runs),
        cmocka_unit_test(test_ranks_of_padding),    cmocka_unit_test(test_cursor_inside),
        cmocka_unit_test(test_sub_groups),          cmocka_unit_test(test_sub_groups_overflow),
        cmocka_unit_test(test_sub_groups_continue), cmocka_unit_test(test_inverse),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
