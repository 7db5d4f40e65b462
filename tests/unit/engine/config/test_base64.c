/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_base64.c: decodes the vectors of RFC 4648, all bytes in both alphabets, and refuses texts
 * that are not base64.
 */
#include "engine/config/fields.h"
#include "tests/unit/unit.h"

static ckpt_arena *arena;

static void decodes(const char *text, const void *bytes, size_t n)
{
    size_t got = 99;
    const char *out = ds_unbase64(arena, text, &got);

    if (!out)
        fail_msg("'%s' is refused", text);
    assert_int_equal(got, n);
    assert_memory_equal(out, bytes, n);
}

static void test_vectors(void **state)
{
    (void)state;
    decodes("Zg==", "f", 1);
    decodes("Zm8=", "fo", 2);
    decodes("Zm9v", "foo", 3);
    decodes("Zm9vYg==", "foob", 4);
    decodes("Zm9vYmE=", "fooba", 5);
    decodes("Zm9vYmFy", "foobar", 6);
    decodes("+/+/", "\xfb\xff\xbf", 3);
    decodes("-_-_", "\xfb\xff\xbf", 3);
    decodes("-/+_", "\xfb\xff\xbf", 3);
}

/* Encode by the definition: six bits at a time. */
static void encode(char *out, const uint8_t *bytes, size_t n, const char *digits)
{
    for (size_t i = 0; i < n; i += 3) {
        uint32_t word = (uint32_t)bytes[i] << 16;

        word |= i + 1 < n ? (uint32_t)bytes[i + 1] << 8 : 0;
        word |= i + 2 < n ? bytes[i + 2] : 0;
        for (unsigned k = 0; k < 4; k++)
            *out++ = i + k > n ? '=' : digits[word >> (18 - 6 * k) & 63];
    }
    *out = 0;
}

static void test_all_bytes(void **state)
{
    static const char letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";
    char digits[2][65], text[400];
    uint8_t bytes[258];

    (void)state;
    (void)snprintf(digits[0], sizeof digits[0], "%s+/", letters);
    (void)snprintf(digits[1], sizeof digits[1], "%s-_", letters);
    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = (uint8_t)(i * 7);
    for (size_t n = 1; n <= sizeof bytes; n++) {
        encode(text, bytes, n, digits[n % 2]);
        decodes(text, bytes, n);
    }
}

static void test_refused(void **state)
{
    static const char *const bad[] = {
        "",     "Z",    "Zg",   "Zg=",   "Zm9vY", "Zg===",        "====",       "Z===",
        "=Zg=", "Zg=a", "Zm 9", "Zm9\n", "Zm9.",  "Zm9vZg==Zm9v", "\xc3\xa9==", " Zg=="};
    size_t n = 0;

    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        if (ds_unbase64(arena, bad[i], &n))
            fail_msg("'%s' is accepted", bad[i]);
    }
}

static int setup(void **state)
{
    (void)state;
    arena = ckpt_arena_new(0);
    return arena ? 0 : -1;
}

static int teardown(void **state)
{
    (void)state;
    ckpt_arena_free(arena);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_vectors),
        cmocka_unit_test(test_all_bytes),
        cmocka_unit_test(test_refused),
    };

    return cmocka_run_group_tests(tests, setup, teardown);
}
