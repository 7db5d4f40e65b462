/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_index.c: the hash index: finding, growing, collisions that are refused, failing memory.
 */
#include "libckpt/base/index.h"
#include "tests/unit/unit.h"

/* The things are numbers themselves: number i stands for value i * 3. */
static bool same(const void *ctx, uint32_t number, const void *key)
{
    (void)ctx;
    return number * UINT64_C(3) == *(const uint64_t *)key;
}

static void find_and_grow(void **state)
{
    ckpt_index ix = {0};
    uint64_t key = 0;

    (void)state;
    assert_int_equal(ckpt_index_find(&ix, 1, same, NULL, &key), CKPT_INDEX_NONE);
    for (uint32_t i = 0; i < 100000; i++)
        assert_true(ckpt_index_add(&ix, ckpt_hash_u64(i * UINT64_C(3)), i));
    assert_int_equal(ix.n, 100000);
    for (key = 0; key < 300000; key++) {
        uint32_t at = ckpt_index_find(&ix, ckpt_hash_u64(key), same, NULL, &key);

        assert_int_equal(at, key % 3 == 0 ? key / 3 : CKPT_INDEX_NONE);
    }
    ckpt_index_free(&ix);
    assert_null(ix.at);
}

/* Things made to collide are refused before they cost quadratic time; those that came in are found.
 */
static void collisions(void **state)
{
    ckpt_index ix = {0};
    uint32_t n = 0;
    uint64_t key;

    (void)state;
    while (n < 100000 && ckpt_index_add(&ix, 42, n))
        n++;
    assert_int_equal(n, 1024);
    key = (n - 1) * UINT64_C(3);
    assert_int_equal(ckpt_index_find(&ix, 42, same, NULL, &key), n - 1);
    ckpt_index_free(&ix);
}

static void hashes(void **state)
{
    static const char text[] = "a text longer than eight bytes";

    (void)state;
    assert_int_equal(ckpt_hash_bytes(text, 20, 7), ckpt_hash_bytes(text, 20, 7));
    for (size_t n = 0; n < sizeof text - 1; n++)
        assert_int_not_equal(ckpt_hash_bytes(text, n, 7), ckpt_hash_bytes(text, n + 1, 7));
    assert_int_not_equal(ckpt_hash_bytes(text, 20, 7), ckpt_hash_bytes(text, 20, 8));
    assert_int_not_equal(ckpt_hash_u64(0), ckpt_hash_u64(1));
}

static void no_memory(void **state)
{
    ckpt_index ix = {0};

    (void)state;
    ckpt_alloc_fail_at(0);
    assert_false(ckpt_index_add(&ix, 1, 0));
    ckpt_alloc_fail_at(UINT64_MAX);
    for (uint32_t i = 0; i < 8; i++)
        assert_true(ckpt_index_add(&ix, i, i));
    ckpt_alloc_fail_at(0);
    assert_false(ckpt_index_add(&ix, 8, 8)); // has to grow
    ckpt_alloc_fail_at(UINT64_MAX);
    assert_int_equal(ix.n, 8);
    assert_true(ckpt_index_add(&ix, 8, 8));
    ckpt_index_free(&ix);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(find_and_grow),
        cmocka_unit_test(collisions),
        cmocka_unit_test(hashes),
        cmocka_unit_test(no_memory),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
