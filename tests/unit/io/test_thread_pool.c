/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_thread_pool.c: every item once, the lowest failure wins, and progress that is told now and
 * then.
 */
#include <stdatomic.h>
#include <time.h>

#include "libckpt/io/thread_pool.h"
#include "tests/unit/unit.h"

enum { N_ITEMS = 5000 };

static _Atomic unsigned hits[N_ITEMS];
static _Atomic unsigned busy[64]; /* per worker: inside the function */

typedef struct work {
    uint64_t bad_from; /* items from here on fail */
    unsigned n_workers;
} work;

static int do_item(void *ctx, unsigned worker, uint64_t item, ckpt_err *err)
{
    const work *w = ctx;

    if (worker >= w->n_workers || atomic_fetch_add(&busy[worker], 1) != 0)
        return ckpt_fail(err, CKPT_EUSAGE, "worker %u is used twice", worker);
    atomic_fetch_add(&hits[item], 1);
    atomic_fetch_sub(&busy[worker], 1);
    return item >= w->bad_from ? ckpt_fail(err, CKPT_EIO, "item %u", (unsigned)item) : CKPT_OK;
}

static void test_every_item_once(void **state)
{
    (void)state;
    for (unsigned n = 1; n <= 9; n++) {
        work w = {UINT64_MAX, n};
        ckpt_err err = {0};

        for (unsigned i = 0; i < N_ITEMS; i++)
            hits[i] = 0;
        assert_int_equal(ckpt_crew_run(n, N_ITEMS, do_item, &w, &err), CKPT_OK);
        for (unsigned i = 0; i < N_ITEMS; i++)
            assert_int_equal(hits[i], 1);
        assert_int_equal(ckpt_crew_run(n, 0, do_item, &w, &err), CKPT_OK);
    }
}

static void test_lowest_failure_wins(void **state)
{
    (void)state;
    for (unsigned round = 0; round < 200; round++) {
        work w = {round, 8};
        ckpt_err err = {0};
        char text[32];

        (void)snprintf(text, sizeof text, "item %u", round);
        assert_int_equal(ckpt_crew_run(8, N_ITEMS, do_item, &w, &err), CKPT_EIO);
        assert_string_equal(err.text, text);
    }
}

typedef struct listener {
    unsigned n_calls;
    uint64_t done;
    unsigned stop_at;
} listener;

static int hear(void *ctx, uint64_t done, uint64_t total)
{
    listener *l = ctx;

    assert_true(done >= l->done && done <= total);
    l->done = done;
    return ++l->n_calls == l->stop_at;
}

static void test_progress(void **state)
{
    listener l = {0};
    const ckpt_run_opts opts = {.progress = hear, .progress_ctx = &l};
    ckpt_progress *p = NULL;
    ckpt_err err = {0};
    struct timespec t0, t1;

    (void)state;
    assert_int_equal(ckpt_progress_new(&p, &opts, 1000000, &err), CKPT_OK);
    (void)clock_gettime(CLOCK_MONOTONIC, &t0);
    for (unsigned i = 0; i < 1000000; i++)
        assert_int_equal(ckpt_progress_add(p, 1, &err), CKPT_OK);
    (void)clock_gettime(CLOCK_MONOTONIC, &t1);
    // at most 20 times a second, and once at the beginning
    assert_in_range(l.n_calls, 1, 20 * (unsigned)(t1.tv_sec - t0.tv_sec + 1) + 1);
    // more than promised is not told
    assert_int_equal(ckpt_progress_add(p, 1000, &err), CKPT_OK);
    assert_int_equal(ckpt_progress_end(p, &err), CKPT_OK);
    assert_int_equal(l.done, 1000000);
    // once it has said no, it is not asked again
    l.stop_at = l.n_calls + 1;
    assert_int_equal(ckpt_progress_end(p, &err), CKPT_ECANCELED);
    l.stop_at = 0;
    err = (ckpt_err){0};
    assert_int_equal(ckpt_progress_add(p, 1, &err), CKPT_ECANCELED);
    assert_int_equal(ckpt_progress_end(p, &err), CKPT_ECANCELED);
    ckpt_progress_free(p);
    ckpt_progress_free(NULL);
    // nobody listens
    err = (ckpt_err){0};
    assert_int_equal(ckpt_progress_new(&p, NULL, 10, &err), CKPT_OK);
    assert_int_equal(ckpt_progress_add(p, 5, &err), CKPT_OK);
    assert_int_equal(ckpt_progress_end(p, &err), CKPT_OK);
    ckpt_progress_free(p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_item_once),
        cmocka_unit_test(test_lowest_failure_wins),
        cmocka_unit_test(test_progress),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
