/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_mem.c: the heap door fails when told to; the arena aligns, zeroes, grows and keeps its
 * limit.
 */
#include <pthread.h>

#include "libckpt/base/mem.h"
#include "tests/unit/unit.h"

static void assert_zeroed(const void *p, size_t n)
{
    const unsigned char *at = p;

    for (size_t i = 0; i < n; i++)
        assert_int_equal(at[i], 0);
}

static void heap_zeroes_and_resizes(void **state)
{
    char *p = ckpt_alloc(1000), *q;

    (void)state;
    assert_non_null(p);
    assert_zeroed(p, 1000);
    memset(p, 'x', 1000);
    q = ckpt_resize(p, 5000);
    assert_non_null(q);
    for (size_t i = 0; i < 1000; i++)
        assert_int_equal(q[i], 'x');
    q = ckpt_resize(q, 0); // still ours to free, never freed behind our back
    assert_non_null(q);
    ckpt_free(q);
    p = ckpt_alloc(0);
    assert_non_null(p);
    ckpt_free(p);
    ckpt_free(NULL);
    assert_null(ckpt_alloc(SIZE_MAX));
}

static void heap_fails_at_the_nth(void **state)
{
    void *p[3];

    (void)state;
    ckpt_alloc_fail_at(3);
    for (int i = 0; i < 3; i++) {
        p[i] = ckpt_alloc(8);
        assert_non_null(p[i]);
    }
    assert_null(ckpt_alloc(8));
    assert_null(ckpt_resize(p[0], 16)); // p[0] is untouched
    assert_null(ckpt_alloc(8));
    ckpt_alloc_fail_at(0);
    assert_null(ckpt_alloc(8));
    ckpt_alloc_fail_at(UINT64_MAX);
    for (int i = 0; i < 3; i++) {
        p[i] = ckpt_resize(p[i], 64);
        assert_non_null(p[i]);
        ckpt_free(p[i]);
    }
}

enum { THREADS = 4, TRIES = 1000, ALLOWED = 1777 };

static void *allocate_many(void *arg)
{
    size_t *won = arg;

    for (int i = 0; i < TRIES; i++) {
        void *p = ckpt_alloc(8);

        *won += p != NULL;
        ckpt_free(p);
    }
    return NULL;
}

static void countdown_is_exact_over_threads(void **state)
{
    pthread_t thread[THREADS];
    size_t won[THREADS] = {0}, sum = 0;

    (void)state;
    ckpt_alloc_fail_at(ALLOWED);
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&thread[i], NULL, allocate_many, &won[i]), 0);
    for (int i = 0; i < THREADS; i++) {
        pthread_join(thread[i], NULL);
        sum += won[i];
    }
    ckpt_alloc_fail_at(UINT64_MAX);
    assert_int_equal(sum, ALLOWED);
}

/* Every pointer is aligned, zeroed and apart from the others: filled ones keep their pattern. */
static void arena_gives_separate_zeroed_memory(void **state)
{
    enum { N = 3000 };
    static unsigned char *p[N];
    ckpt_arena *a = ckpt_arena_new(0);
    uint64_t sum = 0;

    (void)state;
    assert_non_null(a);
    for (size_t i = 0; i < N; i++) {
        size_t n = i * 7919 % 601 + (i % 500 == 0 ? 300000 : 0);

        p[i] = ckpt_arena_alloc(a, n);
        assert_non_null(p[i]);
        assert_int_equal((uintptr_t)p[i] % (n % 16 == 0 ? 16 : 8), 0);
        assert_zeroed(p[i], n);
        memset(p[i], (int)(i % 251) + 1, n);
        sum += n;
    }
    for (size_t i = 0; i < N; i++) {
        size_t n = i * 7919 % 601 + (i % 500 == 0 ? 300000 : 0);

        for (size_t k = 0; k < n; k++)
            assert_int_equal(p[i][k], i % 251 + 1);
    }
    assert_int_equal(ckpt_arena_used(a), sum);
    ckpt_arena_free(a);
    ckpt_arena_free(NULL);
}

static void small_arena_is_one_allocation(void **state)
{
    ckpt_arena *a;

    (void)state;
    ckpt_alloc_fail_at(1);
    a = ckpt_arena_new(0);
    assert_non_null(a);
    for (int i = 0; i < 60; i++)
        assert_non_null(ckpt_arena_alloc(a, 64));
    // the block of 4 KiB cannot hold 8 KiB in all: then, and only then, the heap is asked
    for (int i = 0; i < 60; i++) {
        if (!ckpt_arena_alloc(a, 64)) {
            ckpt_alloc_fail_at(UINT64_MAX);
            assert_non_null(ckpt_arena_alloc(a, 64));
            ckpt_arena_free(a);
            return;
        }
    }
    fail_msg("the second block was never asked for");
}

static void large_things_do_not_waste_the_block(void **state)
{
    ckpt_arena *a = ckpt_arena_new(0);
    char *one, *two;

    (void)state;
    assert_non_null(a);
    one = ckpt_arena_alloc(a, 16);
    assert_non_null(ckpt_arena_alloc(a, 10u << 20));
    two = ckpt_arena_alloc(a, 16);
    assert_ptr_equal(two, one + 16);
    ckpt_arena_free(a);
}

static void arena_limit_holds(void **state)
{
    static const uint64_t limits[] = {1, 100, 4096, 5000, 100000, 3u << 20};

    (void)state;
    for (size_t i = 0; i < sizeof limits / sizeof *limits; i++) {
        ckpt_arena *a = ckpt_arena_new(limits[i]);

        assert_non_null(a);
        assert_null(ckpt_arena_alloc(a, limits[i] + 1));
        assert_null(ckpt_arena_alloc(a, UINT64_MAX));
        assert_null(ckpt_arena_alloc(a, UINT64_MAX - 20));
        while (ckpt_arena_alloc(a, 48))
            assert_true(ckpt_arena_used(a) <= limits[i]);
        // full, but not much too early: headers and rounding cost less than a third
        assert_true(ckpt_arena_used(a) + 48 > limits[i] - limits[i] / 3);
        ckpt_arena_free(a);
    }
}

static void arena_survives_failed_allocation(void **state)
{
    ckpt_arena *a;
    unsigned got = 0;

    (void)state;
    ckpt_alloc_fail_at(0);
    assert_null(ckpt_arena_new(0));
    ckpt_alloc_fail_at(3);
    a = ckpt_arena_new(0);
    assert_non_null(a);
    while (ckpt_arena_alloc(a, 100))
        got++;
    ckpt_alloc_fail_at(UINT64_MAX);
    assert_in_range(got, 100, 1000);
    assert_non_null(ckpt_arena_alloc(a, 100));
    ckpt_arena_free(a);
}

static void arena_copies(void **state)
{
    ckpt_arena *a = ckpt_arena_new(1 << 20);
    static const uint32_t words[3] = {1, 2, 3};

    (void)state;
    assert_non_null(a);
    assert_memory_equal(ckpt_arena_copy(a, words, sizeof words), words, sizeof words);
    assert_non_null(ckpt_arena_copy(a, NULL, 0));
    assert_string_equal(ckpt_arena_string(a, "abcdef", 3), "abc");
    assert_string_equal(ckpt_arena_string(a, NULL, 0), "");
    assert_memory_equal(ckpt_arena_string(a, "a\0b", 3), "a\0b", 4);
    assert_string_equal(ckpt_arena_printf(a, "%s.%d", "layer", 12), "layer.12");
    assert_string_equal(ckpt_arena_printf(a, "%s", ""), "");
    assert_null(ckpt_arena_printf(a, "%1048576d", 1));
    assert_non_null(ckpt_arena_array(a, 100, 8));
    assert_non_null(ckpt_arena_array(a, 0, 8));
    assert_null(ckpt_arena_array(a, 1ull << 62, 8));
    assert_null(ckpt_arena_array(a, UINT64_MAX, UINT64_MAX));
    assert_null(ckpt_arena_string(a, "x", UINT64_MAX));
    ckpt_arena_free(a);
}

/* What goes is zeroed and handed out again; what lies below the floor never goes. */
static void arena_rewinds(void **state)
{
    ckpt_arena *a = ckpt_arena_new(0);
    unsigned char *p = ckpt_arena_alloc(a, 24), *q = ckpt_arena_alloc(a, 100), *far;
    const void *floor;

    (void)state;
    assert_non_null(p);
    memset(q, 7, 100);
    assert_true(ckpt_arena_rewind(a, q, p));
    assert_true(ckpt_arena_used(a) <= 24);
    assert_ptr_equal(ckpt_arena_alloc(a, 100), q);
    assert_zeroed(q, 100);
    floor = ckpt_arena_top(a);
    assert_false(ckpt_arena_rewind(a, q, floor));
    far = ckpt_arena_alloc(a, 40);
    assert_true(ckpt_arena_rewind(a, far, floor));
    for (int i = 0; i < 1000; i++) // another block is in use then
        assert_non_null(ckpt_arena_alloc(a, 100));
    assert_false(ckpt_arena_rewind(a, q, p));
    ckpt_arena_free(a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(heap_zeroes_and_resizes),
        cmocka_unit_test(heap_fails_at_the_nth),
        cmocka_unit_test(countdown_is_exact_over_threads),
        cmocka_unit_test(arena_gives_separate_zeroed_memory),
        cmocka_unit_test(arena_rewinds),
        cmocka_unit_test(small_arena_is_one_allocation),
        cmocka_unit_test(large_things_do_not_waste_the_block),
        cmocka_unit_test(arena_limit_holds),
        cmocka_unit_test(arena_survives_failed_allocation),
        cmocka_unit_test(arena_copies),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
