/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_vec.c: vectors grow, stay as they were when memory is gone, and refuse impossible sizes.
 */
#include "libckpt/base/vec.h"
#include "tests/unit/unit.h"

typedef struct triple {
    uint64_t a;
    uint32_t b;
    char c;
} triple;

CKPT_VEC(triples, triple);

static void push_grows_and_zeroes(void **state)
{
    triples v = {0};

    (void)state;
    for (uint32_t i = 0; i < 10000; i++) {
        triple *t = ckpt_vec_push(&v);

        assert_non_null(t);
        assert_ptr_equal(t, &v.at[i]);
        assert_true(t->a == 0 && t->b == 0 && t->c == 0);
        *t = (triple){.a = i, .b = ~i, .c = 'x'};
    }
    assert_int_equal(v.n, 10000);
    assert_true(v.room < 20001);
    for (uint32_t i = 0; i < 10000; i++)
        assert_true(v.at[i].a == i && v.at[i].b == ~i && v.at[i].c == 'x');
    v.n = 5; // popped elements come back zeroed
    assert_int_equal(ckpt_vec_push(&v)->c, 0);
    ckpt_vec_free(&v);
    assert_null(v.at);
    assert_int_equal(v.n + v.room, 0);
    ckpt_vec_free(&v);
}

static void push_without_memory_changes_nothing(void **state)
{
    triples v = {0};

    (void)state;
    ckpt_alloc_fail_at(0);
    assert_null(ckpt_vec_push(&v));
    assert_null(v.at);
    assert_int_equal(v.n, 0);
    ckpt_alloc_fail_at(2);
    while (ckpt_vec_push(&v))
        v.at[v.n - 1].a = v.n;
    assert_int_equal(v.n, v.room);
    assert_in_range(v.n, 2, 1000);
    for (size_t i = 0; i < v.n; i++)
        assert_int_equal(v.at[i].a, i + 1);
    ckpt_alloc_fail_at(UINT64_MAX);
    assert_non_null(ckpt_vec_push(&v));
    ckpt_vec_free(&v);
}

static void bytes_append(void **state)
{
    ckpt_bytes b = {0};
    size_t n = 0;

    (void)state;
    assert_true(ckpt_bytes_add(&b, NULL, 0));
    for (int i = 0; i < 300; i++) {
        assert_true(ckpt_bytes_add(&b, "abcdefghij", 10));
        assert_true(ckpt_bytes_printf(&b, "%d,", i));
        assert_true(ckpt_bytes_add(&b, NULL, 3));
    }
    for (int i = 0; i < 300; i++) {
        char want[32];
        int len = snprintf(want, sizeof want, "abcdefghij%d,", i);

        assert_memory_equal(b.at + n, want, (size_t)len);
        n += (size_t)len;
        assert_memory_equal(b.at + n, "\0\0\0", 3);
        n += 3;
    }
    assert_int_equal(b.n, n);
    assert_true(ckpt_bytes_printf(&b, "%s", ""));
    assert_int_equal(b.n, n);
    ckpt_vec_free(&b);
}

static void bytes_refuse_what_cannot_be(void **state)
{
    ckpt_bytes b = {0};

    (void)state;
    assert_true(ckpt_bytes_add(&b, "abc", 3));
    assert_false(ckpt_bytes_add(&b, NULL, SIZE_MAX));
    assert_false(ckpt_bytes_add(&b, NULL, SIZE_MAX - 3));
    ckpt_alloc_fail_at(0);
    assert_false(ckpt_bytes_add(&b, NULL, 100000));
    assert_false(ckpt_bytes_printf(&b, "%100000d", 1));
    ckpt_alloc_fail_at(UINT64_MAX);
    assert_int_equal(b.n, 3);
    assert_memory_equal(b.at, "abc", 3);
    ckpt_vec_free(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(push_grows_and_zeroes),
        cmocka_unit_test(push_without_memory_changes_nothing),
        cmocka_unit_test(bytes_append),
        cmocka_unit_test(bytes_refuse_what_cannot_be),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
