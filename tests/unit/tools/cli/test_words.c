/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_words.c: checks which words are numbers, sizes, counts, dtypes and weighted paths, up to the
 * limits of their fields.
 */
#include <sys/stat.h>
#include <unistd.h>

#include "tests/unit/libckpt/help.h"
#include "tests/unit/unit.h"
#include "tools/cli/words.h"

typedef struct word_case {
    const char *word;
    uint64_t value;
} word_case;

static void accepts(cli_kind kind, const word_case *cases, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        uint64_t x = 77;

        if (!word_store(&x, kind, cases[i].word))
            fail_msg("'%s' is refused", cases[i].word);
        if (x != cases[i].value)
            fail_msg("'%s' gives %ju", cases[i].word, (uintmax_t)x);
    }
}

static void refuses(cli_kind kind, const char *const *words, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        uint64_t room = 0;

        if (word_store(&room, kind, words[i]))
            fail_msg("'%s' is accepted", words[i]);
    }
}

#define ACCEPTS(kind, ...)                                                                         \
    accepts(kind, (const word_case[]){__VA_ARGS__},                                                \
            sizeof((const word_case[]){__VA_ARGS__}) / sizeof(word_case))
#define REFUSES(kind, ...)                                                                         \
    refuses(kind, (const char *const[]){__VA_ARGS__},                                              \
            sizeof((const char *const[]){__VA_ARGS__}) / sizeof(char *))

static void test_counts(void **state)
{
    unsigned n = 0;

    (void)state;
    assert_true(word_store(&n, CLI_COUNT, "2147483647"));
    assert_int_equal(n, 2147483647);
    REFUSES(CLI_COUNT, "", "0", "-1", "+1", " 1", "1 ", "1.0", "1e3", "0x1", "2147483648",
            "18446744073709551617");
    ACCEPTS(CLI_COUNT64, {"1", 1}, {"18446744073709551615", UINT64_MAX});
    REFUSES(CLI_COUNT64, "0", "-1", "18446744073709551616", "1K", "");
}

static void test_many(void **state)
{
    (void)state;
    ACCEPTS(CLI_MANY, {"1", 1}, {"7B", 7000000000u}, {"7b", 7000000000u}, {"7e9", 7000000000u},
            {"7E9", 7000000000u}, {"1.5K", 1500}, {"0.001k", 1}, {"1t", 1000000000000u},
            {"12e0", 12}, {"1.000001M", 1000001}, {"2m", 2000000});
    REFUSES(CLI_MANY, "0", "0K", "1.5", "1.0005K", "1.e3", ".5", "1e13", "1e", "1e-3", "1KB", "1KK",
            "K", "-1K", "1.0000001M", "18446744073709551615K", "99999999999T", "7 B");
}

static void test_sizes(void **state)
{
    (void)state;
    ACCEPTS(CLI_SIZE, {"0", 0}, {"1000000", 1000000}, {"1K", 1000}, {"1kb", 1000}, {"1KiB", 1024},
            {"1.5GiB", 1610612736u}, {"4G", 4000000000u}, {"2TB", 2000000000000u},
            {"1TiB", 1099511627776u}, {"500MB", 500000000}, {"5MiB", 5242880}, {"0.5k", 500},
            {"1000000B", 1000000}, {"16777214TiB", UINT64_C(16777214) << 40});
    // a size without a unit is probably meant in another one; half a byte is not a size
    REFUSES(CLI_SIZE, "5", "999999", "1.5", "1.5B", "", "K", "-1K", "1 K", "1KBB", "1Ki", "1PB",
            "1,5G", "1e9", "16777215TiB", "18446744073709551616");
}

static void test_integers(void **state)
{
    int64_t x = 0;

    (void)state;
    assert_true(word_store(&x, CLI_INTEGER, "-9223372036854775808"));
    assert_true(x == INT64_MIN);
    assert_true(word_store(&x, CLI_INTEGER, "+9223372036854775807"));
    assert_true(x == INT64_MAX);
    REFUSES(CLI_INTEGER, "9223372036854775808", "-9223372036854775809", "", "-", "+", "--1", "-+1",
            "1.0", " 1");
    ACCEPTS(CLI_WHOLE, {"0", 0}, {"9223372036854775807", INT64_MAX}, {"-0", 0});
    REFUSES(CLI_WHOLE, "-1", "9223372036854775808");
}

static void test_reals(void **state)
{
    double x = 0;

    (void)state;
    assert_true(word_store(&x, CLI_REAL, "-1.5e-3") && x < -0.00149 && x > -0.00151);
    assert_true(word_store(&x, CLI_REAL, ".5") && x > 0.49 && x < 0.51);
    assert_true(word_store(&x, CLI_NUMBER, "1E+2") && x > 99 && x < 101);
    REFUSES(CLI_REAL, "", "nan", "inf", "-inf", "1e999", "0x10", "1.5x", "1,5", " 1", "1 ", "e",
            "--1", "1e", "infinity");
    REFUSES(CLI_NUMBER, "-1", "-1e-9");
}

static void test_texts(void **state)
{
    const char *text = NULL;
    bool flag = false;
    ckpt_dtype dtype = CKPT_DTYPE_NONE;

    (void)state;
    assert_true(word_store(&flag, CLI_FLAG, NULL) && flag);
    assert_true(word_store(&text, CLI_TEXT, "x"));
    assert_string_equal(text, "x");
    assert_true(word_store(&text, CLI_OUTPUT, "-"));
    assert_false(word_store(&text, CLI_RESULT, "-"));
    assert_true(word_store(&text, CLI_RESULT, "./-"));
    assert_true(word_store(&dtype, CLI_DTYPE, "bf16") && dtype == CKPT_BF16);
    assert_false(word_store(&dtype, CLI_DTYPE, "bf17"));
    assert_true(word_store(&text, CLI_DTYPES, "q4_k_m")); // a mixture that a format offers
    assert_true(word_store(&text, CLI_DTYPES, "bf16:*,fp32:*.bias"));
    assert_false(word_store(&text, CLI_DTYPES, "q4_k_x"));
    assert_true(word_store(&text, CLI_FORMAT, "nothing")); // the writer's error lists the formats
    assert_string_equal(text, "nothing");
    for (int kind = CLI_FLAG; kind <= CLI_STATE; kind++)
        assert_true(strlen(word_expected((cli_kind)kind)) > 0);
}

static void test_weights(void **state)
{
    char path[16], folder[FOLDER_PATH];
    double w = 0;

    (void)state;
    assert_true(word_weighted(path, sizeof path, "a:0.5", &w));
    assert_string_equal(path, "a");
    assert_true(w > 0.49 && w < 0.51);
    assert_true(word_weighted(path, sizeof path, "a:b:-2", &w));
    assert_string_equal(path, "a:b");
    assert_true(w < -1.9);
    // what is not a number belongs to the path
    assert_true(word_weighted(path, sizeof path, "a:b", &w));
    assert_string_equal(path, "a:b");
    assert_true(w > 0.9 && w < 1.1);
    assert_true(word_weighted(path, sizeof path, "a:", &w));
    assert_string_equal(path, "a:");
    assert_false(word_weighted(path, sizeof path, ":2", &w));
    assert_false(word_weighted(path, sizeof path, "", &w));
    assert_true(word_weighted(path, sizeof path, "123456789012345:1", &w)); // 15 bytes fit
    assert_false(word_weighted(path, sizeof path, "1234567890123456:1", &w));
    // a file of that name exists
    folder_new(folder);
    folder_text(folder, "f:2", "x");
    assert_int_equal(chdir(folder), 0);
    assert_true(word_weighted(path, sizeof path, "f:2", &w));
    assert_string_equal(path, "f:2");
    assert_true(w > 0.9 && w < 1.1);
    assert_int_equal(chdir("/"), 0);
    folder_remove(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_counts),   cmocka_unit_test(test_many),  cmocka_unit_test(test_sizes),
        cmocka_unit_test(test_integers), cmocka_unit_test(test_reals), cmocka_unit_test(test_texts),
        cmocka_unit_test(test_weights),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
