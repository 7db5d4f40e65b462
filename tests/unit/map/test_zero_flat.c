/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_zero_flat.c: the layout of stages 1 and 2 against worked examples and against a plain list.
 */
#include "libckpt/base/mem.h"
#include "libckpt/map/zero_flat.h"
#include "tests/unit/unit.h"

/* Lay out without failure. */
static ckpt_zero_flat lay(const uint64_t *numel, const uint64_t *pad, uint64_t n, uint32_t world)
{
    ckpt_zero_flat z;

    assert_int_equal(
        ckpt_zero_flat_new(&z, &(ckpt_zero_sizes){numel, pad, n}, world, 2 * (uint64_t)world, NULL),
        CKPT_OK);
    return z;
}

static void expect_run(const ckpt_zero_flat *z, uint64_t i, uint64_t *cursor, ckpt_zero_run want)
{
    ckpt_zero_run run;

    assert_true(ckpt_zero_flat_next(z, i, cursor, &run));
    assert_int_equal(run.rank, want.rank);
    assert_int_equal(run.first, want.first);
    assert_int_equal(run.count, want.count);
    assert_int_equal(run.at, want.at);
}

static void expect_end(const ckpt_zero_flat *z, uint64_t i, uint64_t cursor)
{
    ckpt_zero_run run;

    assert_false(ckpt_zero_flat_next(z, i, &cursor, &run));
}

/* A measured run: two ranks, e.weight 37x13 and p.weight 13x29 in group 0. */
static void test_two_ranks_group_0(void **state)
{
    const uint64_t numel[] = {37 * 13, 13 * 29};
    ckpt_zero_flat z = lay(numel, NULL, 2, 2);
    uint64_t cursor = 0;

    (void)state;
    assert_int_equal(z.used, 858);
    assert_int_equal(z.total, 860);
    assert_int_equal(z.slice, 430);
    assert_int_equal(ckpt_zero_flat_padding(&z, 0), 0);
    assert_int_equal(ckpt_zero_flat_padding(&z, 1), 2);
    expect_run(&z, 0, &cursor, (ckpt_zero_run){0, 0, 430, 0});
    expect_run(&z, 0, &cursor, (ckpt_zero_run){1, 430, 51, 0}); // the mapping says (51, start 0)
    expect_end(&z, 0, cursor);
    cursor = 0;
    expect_run(&z, 1, &cursor, (ckpt_zero_run){1, 0, 377, 51}); // and (377, start 51)
    expect_end(&z, 1, cursor);
    ckpt_zero_flat_free(&z);
    assert_null(z.start);
}

/* Group 1 of the same run: l.bias 29, n.weight 29, p.bias 13. */
static void test_two_ranks_group_1(void **state)
{
    const uint64_t numel[] = {29, 29, 13};
    ckpt_zero_flat z = lay(numel, NULL, 3, 2);
    uint64_t cursor = 0;

    (void)state;
    assert_int_equal(z.used, 71);
    assert_int_equal(z.total, 72);
    assert_int_equal(z.slice, 36);
    assert_int_equal(ckpt_zero_flat_padding(&z, 1), 1); // rank 1 saves 35
    expect_run(&z, 1, &cursor, (ckpt_zero_run){0, 0, 7, 29});
    expect_run(&z, 1, &cursor, (ckpt_zero_run){1, 7, 22, 0});
    expect_end(&z, 1, cursor);
    ckpt_zero_flat_free(&z);
}

static void test_three_ranks(void **state)
{
    const uint64_t numel[] = {1816};
    ckpt_zero_flat z = lay(numel, NULL, 1, 3);

    (void)state;
    assert_int_equal(z.total, 1818);
    assert_int_equal(z.slice, 606);
    assert_int_equal(ckpt_zero_flat_padding(&z, 0), 0);
    assert_int_equal(ckpt_zero_flat_padding(&z, 1), 0);
    assert_int_equal(ckpt_zero_flat_padding(&z, 2), 2); // saved 606, 606, 604
    assert_int_equal(ckpt_zero_flat_padding(&z, 3), 0); // no such rank
    ckpt_zero_flat_free(&z);
}

/* Fewer elements than ranks: the last ranks are padding from end to end. */
static void test_ranks_of_padding(void **state)
{
    const uint64_t numel[] = {3, 0, 2};
    ckpt_zero_flat z = lay(numel, NULL, 3, 8);
    uint64_t cursor = 0;
    const uint64_t padding[] = {0, 0, 1, 2, 2, 2, 2, 2};

    (void)state;
    assert_int_equal(z.total, 16);
    assert_int_equal(z.slice, 2);
    for (uint32_t r = 0; r < 8; r++)
        assert_int_equal(ckpt_zero_flat_padding(&z, r), padding[r]);
    expect_end(&z, 1, 0); // a parameter without elements has no run
    expect_run(&z, 2, &cursor, (ckpt_zero_run){1, 0, 1, 1});
    expect_run(&z, 2, &cursor, (ckpt_zero_run){2, 1, 1, 0});
    expect_end(&z, 2, cursor);
    expect_end(&z, 3, 0); // no such parameter
    ckpt_zero_flat_free(&z);
}

static void test_alignment_paddings(void **state)
{
    const uint64_t numel[] = {5, 9, 4};
    const uint64_t pad[] = {3, 7, 0}; // 16-bit model: each starts at a multiple of 8
    ckpt_zero_flat z = lay(numel, pad, 3, 2);
    uint64_t cursor = 0;

    (void)state;
    assert_int_equal(z.start[1], 8);
    assert_int_equal(z.start[2], 24);
    assert_int_equal(z.used, 28);
    assert_int_equal(z.slice, 14);
    expect_run(&z, 1, &cursor, (ckpt_zero_run){0, 0, 6, 8});
    expect_run(&z, 1, &cursor, (ckpt_zero_run){1, 6, 3, 0});
    ckpt_zero_flat_free(&z);
}

/* Groups without elements, or without parameters, have empty slices and nothing to divide by. */
static void test_empty_groups(void **state)
{
    const uint64_t numel[] = {0, 0};
    ckpt_zero_flat z = lay(numel, NULL, 2, 4);

    (void)state;
    assert_int_equal(z.total, 0);
    assert_int_equal(z.slice, 0);
    expect_end(&z, 0, 0);
    assert_int_equal(ckpt_zero_flat_padding(&z, 3), 0);
    ckpt_zero_flat_free(&z);
    z = lay(NULL, NULL, 0, 4);
    expect_end(&z, 0, 0);
    ckpt_zero_flat_free(&z);
    ckpt_zero_flat_free(NULL);
}

/* Releases up to 0.5.1 align to w, not to 2w. */
static void test_old_alignment(void **state)
{
    const uint64_t numel[] = {7};
    ckpt_zero_flat z;

    (void)state;
    assert_int_equal(ckpt_zero_flat_new(&z, &(ckpt_zero_sizes){numel, NULL, 1}, 3, 3, NULL),
                     CKPT_OK);
    assert_int_equal(z.total, 9);
    assert_int_equal(z.slice, 3);
    ckpt_zero_flat_free(&z);
}

static void test_refused(void **state)
{
    const uint64_t numel[] = {UINT64_MAX - 5, 4};
    const uint64_t pad[] = {0, 2};
    ckpt_zero_flat z;
    ckpt_err err = {0};

    (void)state;
    assert_int_equal(ckpt_zero_flat_new(&z, &(ckpt_zero_sizes){numel, NULL, 1}, 0, 2, &err),
                     CKPT_EFORMAT);
    assert_true(strlen(err.text) > 0);
    assert_int_equal(ckpt_zero_flat_new(&z, &(ckpt_zero_sizes){numel, NULL, 1}, 2, 0, NULL),
                     CKPT_EFORMAT);
    assert_int_equal(ckpt_zero_flat_new(&z, &(ckpt_zero_sizes){numel, NULL, 1}, 2, 3, NULL),
                     CKPT_EFORMAT);
    assert_int_equal(ckpt_zero_flat_new(&z, &(ckpt_zero_sizes){numel, NULL, 2}, 1, 1, NULL),
                     CKPT_OK); // just fits
    ckpt_zero_flat_free(&z);
    assert_int_equal(ckpt_zero_flat_new(&z, &(ckpt_zero_sizes){numel, pad, 2}, 1, 1, NULL),
                     CKPT_EFORMAT);
    assert_int_equal(ckpt_zero_flat_new(&z, &(ckpt_zero_sizes){numel, NULL, 2}, 3, 6, NULL),
                     CKPT_EFORMAT);
    assert_null(z.start);
    assert_int_equal(
        ckpt_zero_flat_new(&z, &(ckpt_zero_sizes){numel, NULL, UINT64_MAX / 4}, 1, 1, NULL),
        CKPT_ELIMIT);
}

static void test_allocation_failure(void **state)
{
    const uint64_t numel[] = {5, 6};
    ckpt_zero_flat z;

    (void)state;
    for (uint64_t n = 0; n < 3; n++) {
        ckpt_alloc_fail_at(n);
        assert_int_equal(ckpt_zero_flat_new(&z, &(ckpt_zero_sizes){numel, NULL, 2}, 2, 4, NULL),
                         CKPT_ELIMIT);
        assert_null(z.start);
    }
    ckpt_alloc_fail_at(3);
    assert_int_equal(ckpt_zero_flat_new(&z, &(ckpt_zero_sizes){numel, NULL, 2}, 2, 4, NULL),
                     CKPT_OK);
    ckpt_alloc_fail_at(UINT64_MAX);
    ckpt_zero_flat_free(&z);
}

/* ---- against a plain list of elements ---- */

enum { N_PARAMS = 6, MAX_WORLD = 7 };

static uint64_t seed = 11;

static uint64_t draw(uint64_t below)
{
    seed = seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (seed >> 33) % below;
}

/* Concatenate labels, pad, cut; then each run must find its labels in the slice it names. */
static void test_against_list(void **state)
{
    (void)state;
    for (unsigned round = 0; round < 2000; round++) {
        uint64_t numel[N_PARAMS], pad[N_PARAMS], flat[N_PARAMS * 30] = {0}, n = 0;
        uint32_t world = 1 + (uint32_t)draw(MAX_WORLD);
        bool padded = draw(2) == 0;
        uint64_t covered = 0;
        ckpt_zero_flat z;

        for (uint64_t i = 0; i < N_PARAMS; i++) {
            numel[i] = draw(20);
            pad[i] = draw(4);
            for (uint64_t e = 0; e < numel[i]; e++)
                flat[n++] = 1000 * (i + 1) + e;
            n += padded ? pad[i] : 0;
        }
        z = lay(numel, padded ? pad : NULL, N_PARAMS, world);
        assert_int_equal(z.used, n);
        assert_true(z.total >= n && z.total < n + 2 * world && z.total % (2 * world) == 0);
        for (uint64_t i = 0; i < N_PARAMS; i++) {
            ckpt_zero_run run;
            uint64_t next = 0;

            for (uint64_t cursor = 0; ckpt_zero_flat_next(&z, i, &cursor, &run);) {
                assert_int_equal(run.first, next);
                assert_true(run.count > 0 && run.at + run.count <= z.slice && run.rank < world);
                for (uint64_t e = 0; e < run.count; e++)
                    assert_int_equal(flat[run.rank * z.slice + run.at + e],
                                     1000 * (i + 1) + run.first + e);
                next += run.count;
            }
            assert_int_equal(next, numel[i]);
            covered += next;
        }
        assert_true(covered <= n);
        for (uint32_t r = 0; r < world; r++)
            n += ckpt_zero_flat_padding(&z, r);
        assert_int_equal(n, z.total); // what is cut off is exactly the padding
        ckpt_zero_flat_free(&z);
    }
}

/* What is not cut: parameters whole, with every rank whose slice they touch, one after another. */
static void test_whole(void **state)
{
    const uint64_t numel[] = {1073, 481, 0, 377};
    const uint64_t pad[] = {7, 7, 0, 7};
    ckpt_zero_flat z = lay(numel, NULL, 4, 2);
    ckpt_zero_run run = {0};
    uint32_t cursor = 0;

    (void)state;
    // A measured run: rank 0 has out.weight, rank 1 all three.
    assert_int_equal(ckpt_zero_whole_size(&z, 0), 1073);
    assert_int_equal(ckpt_zero_whole_size(&z, 1), 1931);
    assert_int_equal(ckpt_zero_whole_size(&z, 2), 0);
    for (uint32_t r = 0; r < 2; r++) {
        assert_true(ckpt_zero_whole_next(&z, 0, &cursor, &run));
        assert_true(run.rank == r && run.first == 0 && run.count == 1073 && run.at == 0);
    }
    assert_false(ckpt_zero_whole_next(&z, 0, &cursor, &run));
    cursor = 0;
    assert_false(ckpt_zero_whole_next(&z, 2, &cursor, &run));
    assert_true(ckpt_zero_whole_next(&z, 3, &cursor, &run));
    assert_true(run.rank == 1 && run.count == 377 && run.at == 1073 + 481);
    assert_false(ckpt_zero_whole_next(&z, 3, &cursor, &run));
    ckpt_zero_flat_free(&z);
    z = lay(numel, pad, 4, 2); // pads are not kept
    assert_int_equal(ckpt_zero_whole_size(&z, 0) + ckpt_zero_whole_size(&z, 1), 1073 + 1931);
    ckpt_zero_flat_free(&z);
    z = lay(numel + 3, NULL, 1, 500); // slices of 2: the last ranks have nothing
    assert_int_equal(ckpt_zero_whole_size(&z, 188), 377);
    assert_int_equal(ckpt_zero_whole_size(&z, 189), 0);
    ckpt_zero_flat_free(&z);
}

/* Against a plain list: a rank keeps what touches its slice, in order. */
static void test_whole_against_list(void **state)
{
    (void)state;
    for (unsigned round = 0; round < 500; round++) {
        uint64_t numel[N_PARAMS], pad[N_PARAMS];
        uint32_t world = 1 + (uint32_t)draw(MAX_WORLD), cursor[N_PARAMS] = {0};
        bool padded = draw(2) == 0;
        ckpt_zero_flat z;

        for (uint64_t i = 0; i < N_PARAMS; i++) {
            numel[i] = draw(20);
            pad[i] = draw(4);
        }
        z = lay(numel, padded ? pad : NULL, N_PARAMS, world);
        for (uint32_t r = 0; r < world; r++) {
            uint64_t at = 0;

            for (uint64_t i = 0; i < N_PARAMS; i++) {
                ckpt_zero_run cut = {0}, run = {0};
                bool touches = false;

                for (uint64_t c = 0; ckpt_zero_flat_next(&z, i, &c, &cut);)
                    touches = touches || cut.rank == r;
                if (!touches)
                    continue;
                assert_true(ckpt_zero_whole_next(&z, i, &cursor[i], &run));
                assert_true(run.rank == r && run.count == numel[i] && run.at == at);
                at += numel[i];
            }
            assert_int_equal(ckpt_zero_whole_size(&z, r), at);
        }
        ckpt_zero_flat_free(&z);
    }
}

static void test_round_robin(void **state)
{
    const uint64_t three[] = {0, 3, 6, 1, 4, 2, 5};
    uint64_t out[7];

    (void)state;
    ckpt_zero_round_robin(7, 3, out);
    assert_memory_equal(out, three, sizeof three);
    ckpt_zero_round_robin(7, 1, out);
    for (uint64_t i = 0; i < 7; i++)
        assert_int_equal(out[i], i);
    ckpt_zero_round_robin(7, UINT32_MAX, out); // more ranks than parameters: as they are
    for (uint64_t i = 0; i < 7; i++)
        assert_int_equal(out[i], i);
    ckpt_zero_round_robin(0, 3, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_two_ranks_group_0),
        cmocka_unit_test(test_two_ranks_group_1),
        cmocka_unit_test(test_three_ranks),
        cmocka_unit_test(test_ranks_of_padding),
        cmocka_unit_test(test_alignment_paddings),
        cmocka_unit_test(test_empty_groups),
        cmocka_unit_test(test_old_alignment),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_allocation_failure),
        cmocka_unit_test(test_against_list),
        cmocka_unit_test(test_whole),
        cmocka_unit_test(test_whole_against_list),
        cmocka_unit_test(test_round_robin),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
