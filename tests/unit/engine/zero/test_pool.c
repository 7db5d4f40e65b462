/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_pool.c: compares the offsets of the first-fit allocator with those of a table of 64-byte
 * cells, and checks that a dry run finds the size that later runs need.
 */
#include "engine/zero/pool.h"
#include "tests/unit/unit.h"

enum { CELLS = 256, SPANS = 24, STEPS = 4000 };

/* The oracle: the owner of each cell. */
static int owner[CELLS];

static uint64_t seed;

static uint64_t draw(uint64_t below)
{
    seed = seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (seed >> 33) % below;
}

/* The first cell of `n` free ones, or -1. */
static int first_fit(int n)
{
    for (int at = 0; at + n <= CELLS; at++) {
        int free_cells = 0;

        while (free_cells < n && !owner[at + free_cells])
            free_cells++;
        if (free_cells == n)
            return at;
    }
    return -1;
}

static void fill(int at, int n, int with)
{
    for (int i = at; i < at + n; i++)
        owner[i] = with;
}

static void test_against_cells(void **state)
{
    struct {
        int at, n;
    } taken[SPANS];
    int n_taken = 0;
    zr_pool p;

    (void)state;
    seed = 5;
    memset(owner, 0, sizeof owner);
    assert_int_equal(zr_pool_new(&p, SPANS, NULL), CKPT_OK);
    p.limit = CELLS * 64;
    for (int i = 0; i < STEPS; i++) {
        if (n_taken == SPANS || (n_taken > 0 && draw(2) == 0)) {
            int k = (int)draw((uint64_t)n_taken);
            zr_pool_give(&p, (uint64_t)taken[k].at * 64);
            fill(taken[k].at, taken[k].n, 0);
            taken[k] = taken[--n_taken];
            continue;
        }
        uint64_t bytes = draw(40 * 64);
        int n = bytes == 0 ? 1 : (int)((bytes + 63) / 64), at = first_fit(n);
        uint64_t got = zr_pool_take(&p, bytes);
        if (at < 0) {
            assert_true(got == UINT64_MAX);
            continue;
        }
        assert_int_equal(got, (uint64_t)at * 64);
        fill(at, n, 1);
        taken[n_taken].at = at;
        taken[n_taken++].n = n;
        assert_int_equal(p.n, n_taken);
    }
    zr_pool_free(&p);
}

static void test_sizes(void **state)
{
    zr_pool p;

    (void)state;
    assert_int_equal(zr_pool_new(&p, 3, NULL), CKPT_OK);
    assert_int_equal(zr_pool_take(&p, 0), 0); // takes a cell, so offsets stay distinct
    assert_int_equal(zr_pool_take(&p, 64), 64);
    assert_int_equal(zr_pool_take(&p, 65), 128);
    assert_int_equal(p.peak, 256);
    assert_true(zr_pool_take(&p, 1) == UINT64_MAX); // no room for a fourth span
    zr_pool_give(&p, 64);
    assert_int_equal(zr_pool_take(&p, 64), 64); // the gap fits exactly
    zr_pool_give(&p, 64);
    assert_int_equal(zr_pool_take(&p, 65), 256); // too large for the gap
    assert_int_equal(p.peak, 384);
    zr_pool_free(&p);
    assert_null(p.span);
}

static void test_limit(void **state)
{
    zr_pool p;

    (void)state;
    assert_int_equal(zr_pool_new(&p, 4, NULL), CKPT_OK);
    p.limit = 128;
    assert_true(zr_pool_take(&p, 129) == UINT64_MAX);
    assert_int_equal(zr_pool_take(&p, 64), 0);
    assert_true(zr_pool_take(&p, 65) == UINT64_MAX);
    assert_int_equal(zr_pool_take(&p, 64), 64);
    assert_int_equal(p.peak, 128); // failed takes do not count
    p.limit = 0;
    assert_true(zr_pool_take(&p, 1) == UINT64_MAX);
    zr_pool_free(&p);
}

/* The same order of takes and gives fits into the peak of its dry run. */
static void test_dry_run(void **state)
{
    uint64_t at[2][40];
    zr_pool p;

    (void)state;
    assert_int_equal(zr_pool_new(&p, 40, NULL), CKPT_OK);
    for (unsigned run = 0; run < 2; run++) {
        seed = 11;
        for (unsigned i = 0; i < 40; i++) {
            at[run][i] = zr_pool_take(&p, draw(1000));
            assert_true(at[run][i] != UINT64_MAX);
            if (i % 3 == 2)
                zr_pool_give(&p, at[run][i - 1]);
        }
        for (unsigned i = 0; i < 40; i++) {
            if (i % 3 != 1 || i + 1 == 40)
                zr_pool_give(&p, at[run][i]);
        }
        assert_int_equal(p.n, 0);
        p.limit = p.peak;
    }
    assert_memory_equal(at[0], at[1], sizeof at[0]);
    zr_pool_free(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_against_cells),
        cmocka_unit_test(test_sizes),
        cmocka_unit_test(test_limit),
        cmocka_unit_test(test_dry_run),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
