/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_names.c: what may be a name, text, or a part of a path.
 */
#include "libckpt/map/map.h"
#include "tests/unit/unit.h"

/* The bytes of one code point, without looking at whether it is allowed. */
static unsigned encode(uint32_t c, char *out)
{
    if (c < 0x80) {
        out[0] = (char)c;
        return 1;
    }
    if (c < 0x800) {
        out[0] = (char)(0xC0 | (c >> 6));
        out[1] = (char)(0x80 | (c & 0x3F));
        return 2;
    }
    if (c < 0x10000) {
        out[0] = (char)(0xE0 | (c >> 12));
        out[1] = (char)(0x80 | ((c >> 6) & 0x3F));
        out[2] = (char)(0x80 | (c & 0x3F));
        return 3;
    }
    out[0] = (char)(0xF0 | (c >> 18));
    out[1] = (char)(0x80 | ((c >> 12) & 0x3F));
    out[2] = (char)(0x80 | ((c >> 6) & 0x3F));
    out[3] = (char)(0x80 | (c & 0x3F));
    return 4;
}

static void test_utf8_every_code_point(void **state)
{
    (void)state;
    for (uint32_t c = 0; c < 0x120000; c++) {
        char s[4];
        unsigned n = encode(c, s);
        bool good = c < 0xD800 || (c > 0xDFFF && c <= 0x10FFFF);

        if (ckpt_utf8_ok(s, n) != good)
            fail_msg("U+%04X", (unsigned)c);
        // Cut short it is never well formed.
        if (n > 1 && ckpt_utf8_ok(s, n - 1))
            fail_msg("U+%04X cut", (unsigned)c);
    }
}

/* All sequences of two bytes, and those of three and four that begin at the edges of the table. */
static void test_utf8_malformed(void **state)
{
    static const char *const bad[] = {
        "\x80",
        "\xBF",
        "\xC0\x80",
        "\xC1\xBF",
        "\xE0\x80\x80",
        "\xE0\x9F\xBF",
        "\xED\xA0\x80",
        "\xED\xBF\xBF",
        "\xF0\x80\x80\x80",
        "\xF0\x8F\xBF\xBF",
        "\xF4\x90\x80\x80",
        "\xF5\x80\x80\x80",
        "\xFF",
        "\xFE",
        "a\xC3",
        "\xC3(",
        "\xE2\x82(",
        "\xF0\x9F\x98(",
        "\xE2(\xA1",
    };
    unsigned good = 0;

    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        if (ckpt_utf8_ok(bad[i], strlen(bad[i])))
            fail_msg("case %zu", i);
    }
    for (unsigned a = 0; a < 256; a++) {
        for (unsigned b = 0; b < 256; b++) {
            char s[2] = {(char)a, (char)b};

            good += ckpt_utf8_ok(s, 2);
        }
    }
    // Two ASCII characters, or one of the 30 leading bytes with one of the 64 that may follow.
    assert_int_equal(good, 128 * 128 + 30 * 64);
    assert_true(ckpt_utf8_ok("", 0));
    assert_true(ckpt_utf8_ok("a\0b", 3));
    assert_true(ckpt_utf8_ok("gr\xC3\xBC\xC3\x9F \xF0\x9F\x98\x80", 11));
}

static void test_tensor_names(void **state)
{
    static char longest[64 * 1024 + 1];

    (void)state;
    memset(longest, 'x', sizeof longest);
    assert_true(ckpt_name_ok("model.layers.0.weight", 21));
    assert_true(ckpt_name_ok("", 0));                  // the root of a file that holds one tensor
    assert_true(ckpt_name_ok("../../etc/passwd", 16)); // a name, not a path
    assert_false(ckpt_name_ok("a\0b", 3));
    assert_false(ckpt_name_ok("\xFF", 1));
    assert_true(ckpt_name_ok(longest, sizeof longest - 1));
    assert_false(ckpt_name_ok(longest, sizeof longest));
    assert_false(ckpt_name_ok("x", UINT64_MAX)); // refused by its length alone
}

static void test_path_parts(void **state)
{
    static char longest[256];

    (void)state;
    memset(longest, 'x', sizeof longest);
    assert_true(ckpt_path_part_ok("global_step10", 13));
    assert_true(ckpt_path_part_ok("...", 3));
    assert_true(ckpt_path_part_ok(".hidden", 7));
    assert_true(ckpt_path_part_ok("..x", 3));
    assert_false(ckpt_path_part_ok("", 0));
    assert_false(ckpt_path_part_ok(".", 1));
    assert_false(ckpt_path_part_ok("..", 2));
    assert_false(ckpt_path_part_ok("a/b", 3));
    assert_false(ckpt_path_part_ok("/", 1));
    assert_false(ckpt_path_part_ok("a\\b", 3));
    assert_false(ckpt_path_part_ok("a\0b", 3));
    assert_true(ckpt_path_part_ok(longest, 255));
    assert_false(ckpt_path_part_ok(longest, 256));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_utf8_every_code_point),
        cmocka_unit_test(test_utf8_malformed),
        cmocka_unit_test(test_tensor_names),
        cmocka_unit_test(test_path_parts),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
