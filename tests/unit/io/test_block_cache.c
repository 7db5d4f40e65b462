/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Blocks of a view: found by job, given up in the order of their last use, never while in use,
 * and never beyond the room unless all are in use.
 */
#include "libckpt/base/mem.h"
#include "libckpt/io/block_cache.h"
#include "tests/unit/unit.h"

/* Takes a block as a view does, with memory for it. */
static ckpt_block *made(ckpt_blocks *b, uint64_t job, uint64_t n)
{
    ckpt_block *one = ckpt_blocks_take(b, job, n);

    if (!one)
        return NULL;
    assert_true(one->making && one->n_users == 1 && one->n == n && one->job == job);
    if (!one->bytes)
        one->bytes = ckpt_alloc(n);
    assert_non_null(one->bytes);
    one->making = false;
    return one;
}

static void find_and_use(void **state)
{
    ckpt_blocks b = {0};
    ckpt_block *one;

    (void)state;
    assert_int_equal(ckpt_blocks_init(&b, 4, 10, 400, NULL), CKPT_OK);
    assert_null(ckpt_blocks_find(&b, 3));
    one = made(&b, 3, 100);
    assert_ptr_equal(ckpt_blocks_find(&b, 3), one);
    ckpt_blocks_use(&b, one);
    ckpt_blocks_give_back(&b, one);
    ckpt_blocks_give_back(&b, one);
    assert_ptr_equal(ckpt_blocks_find(&b, 3), one);
    assert_int_equal(b.n_kept, 100);
    ckpt_blocks_free(&b);
}

static void oldest_goes(void **state)
{
    ckpt_blocks b = {0};

    (void)state;
    // room for three of 100
    assert_int_equal(ckpt_blocks_init(&b, 8, 20, 300, NULL), CKPT_OK);
    for (uint64_t j = 0; j < 3; j++)
        ckpt_blocks_give_back(&b, made(&b, j, 100));
    // job 0 is used once more: now 1 is the oldest
    ckpt_blocks_use(&b, ckpt_blocks_find(&b, 0));
    ckpt_blocks_give_back(&b, ckpt_blocks_find(&b, 0));
    ckpt_blocks_give_back(&b, made(&b, 3, 100));
    assert_null(ckpt_blocks_find(&b, 1));
    assert_non_null(ckpt_blocks_find(&b, 0));
    assert_non_null(ckpt_blocks_find(&b, 2));
    assert_int_equal(b.n_kept, 300);
    // another size: two of them go
    ckpt_blocks_give_back(&b, made(&b, 4, 150));
    assert_null(ckpt_blocks_find(&b, 2));
    assert_null(ckpt_blocks_find(&b, 0));
    assert_non_null(ckpt_blocks_find(&b, 3));
    assert_int_equal(b.n_kept, 250);
    ckpt_blocks_free(&b);
}

static void used_ones_stay(void **state)
{
    ckpt_blocks b = {0};
    ckpt_block *one[3];

    (void)state;
    assert_int_equal(ckpt_blocks_init(&b, 3, 20, 100, NULL), CKPT_OK);
    // each user gets one, also beyond the room
    for (uint64_t j = 0; j < 3; j++)
        assert_non_null(one[j] = made(&b, j, 100));
    assert_int_equal(b.n_kept, 300);
    assert_null(ckpt_blocks_take(&b, 3, 100));
    ckpt_blocks_give_back(&b, one[1]);
    assert_non_null(one[1] = made(&b, 3, 10));
    assert_null(ckpt_blocks_find(&b, 1));
    assert_non_null(ckpt_blocks_find(&b, 0));
    assert_int_equal(b.n_kept, 210);
    for (size_t i = 0; i < 3; i++)
        ckpt_blocks_give_back(&b, one[i]);
    ckpt_blocks_free(&b);
}

static void bytes_are_used_again(void **state)
{
    ckpt_blocks b = {0};
    const uint8_t *bytes;
    ckpt_block *one;

    (void)state;
    assert_int_equal(ckpt_blocks_init(&b, 1, 4, 100, NULL), CKPT_OK);
    one = made(&b, 0, 100);
    bytes = one->bytes;
    ckpt_blocks_give_back(&b, one);
    one = ckpt_blocks_take(&b, 1, 100);
    assert_ptr_equal(one->bytes, bytes);
    assert_null(ckpt_blocks_find(&b, 0));
    // what could not be made is free again
    ckpt_blocks_drop(&b, one);
    assert_null(ckpt_blocks_find(&b, 1));
    assert_int_equal(b.n_kept, 0);
    assert_non_null(one = made(&b, 2, 7));
    ckpt_blocks_give_back(&b, one);
    ckpt_blocks_forget(&b);
    assert_null(ckpt_blocks_find(&b, 2));
    assert_int_equal(b.n_kept, 0);
    ckpt_blocks_free(&b);
}

/* What is forgotten while somebody reads it is not found again, and goes with its last user. */
static void forgotten_in_use(void **state)
{
    ckpt_blocks b = {0};
    ckpt_block *old, *new;

    (void)state;
    assert_int_equal(ckpt_blocks_init(&b, 3, 4, 1000, NULL), CKPT_OK);
    old = made(&b, 1, 100);
    ckpt_blocks_use(&b, old);
    ckpt_blocks_forget(&b);
    assert_null(ckpt_blocks_find(&b, 1));
    assert_non_null(new = made(&b, 1, 100));
    assert_ptr_not_equal(new, old);
    ckpt_blocks_give_back(&b, old);
    ckpt_blocks_forget(&b);
    ckpt_blocks_give_back(&b, old);
    assert_int_equal(b.n_kept, 100);
    ckpt_blocks_give_back(&b, new);
    assert_int_equal(b.n_kept, 0);
    assert_null(ckpt_blocks_find(&b, 1));
    // one that could not be made, too
    new = made(&b, 2, 10);
    ckpt_blocks_forget(&b);
    old = made(&b, 2, 10);
    ckpt_blocks_drop(&b, new);
    assert_ptr_equal(ckpt_blocks_find(&b, 2), old);
    ckpt_blocks_give_back(&b, old);
    ckpt_blocks_free(&b);
}

/* Any order of calls against a plain model of it: what is in use is there, and the sums are right. */
static void any_order(void **state)
{
    enum { JOBS = 40, BLOCKS = 6, STEPS = 20000 };
    unsigned users[JOBS] = {0};
    ckpt_blocks b = {0};
    bool quiet;

    (void)state;
    srand(7);
    assert_int_equal(ckpt_blocks_init(&b, BLOCKS, JOBS, 500, NULL), CKPT_OK);
    for (int s = 0; s < STEPS; s++) {
        uint64_t j = (uint64_t)rand() % JOBS, kept = 0, used = 0;
        ckpt_block *one = ckpt_blocks_find(&b, j);

        assert_true(one || users[j] == 0);
        if (users[j] > 0 && rand() % 2) {
            users[j]--;
            ckpt_blocks_give_back(&b, one);
        } else if (one) {
            users[j]++;
            ckpt_blocks_use(&b, one);
        } else if (made(&b, j, 50 * (j % 3 + 1))) {
            users[j]++;
        }
        quiet = true;
        for (uint64_t k = 0; k < JOBS; k++)
            quiet = quiet && users[k] == 0;
        if (quiet && rand() % 5 == 0)
            ckpt_blocks_forget(&b);
        for (uint64_t k = 0; k < JOBS; k++) {
            const ckpt_block *at = ckpt_blocks_find(&b, k);

            kept += at ? at->n : 0;
            used += at && at->n_users > 0;
            assert_int_equal(at ? at->n_users : 0, users[k]);
        }
        assert_int_equal(kept, b.n_kept);
        assert_true(used <= BLOCKS);
    }
    ckpt_blocks_free(&b);
}

static void no_memory(void **state)
{
    (void)state;
    for (uint64_t n = 0; n < 2; n++) {
        ckpt_blocks b = {0};
        ckpt_err err = {0};

        ckpt_alloc_fail_at(n);
        assert_int_equal(ckpt_blocks_init(&b, 4, 10, 400, &err), CKPT_ELIMIT);
        ckpt_alloc_fail_at(UINT64_MAX);
        ckpt_blocks_free(&b);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(find_and_use),     cmocka_unit_test(oldest_goes),
        cmocka_unit_test(used_ones_stay),   cmocka_unit_test(bytes_are_used_again),
        cmocka_unit_test(any_order),        cmocka_unit_test(no_memory),
        cmocka_unit_test(forgotten_in_use),
    };

    return cmocka_run_group_tests_name("blocks", tests, NULL, NULL);
}
