/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_number.c: numbers of texts: limits, malformed texts, other locales, and printing.
 */
#include <locale.h>
#include <math.h>

#include "libckpt/base/number.h"
#include "tests/unit/unit.h"

static void unsigned_limits(void **state)
{
    static const char *const bad[] = {"",
                                      " 1",
                                      "1 ",
                                      "-1",
                                      "+1",
                                      "0x1",
                                      "1.0",
                                      "1e3",
                                      "1_0",
                                      "x",
                                      "18446744073709551616",
                                      "99999999999999999999"};
    uint64_t n = 7;

    (void)state;
    assert_true(ckpt_parse_u64("0", &n));
    assert_int_equal(n, 0);
    assert_true(ckpt_parse_u64("007", &n));
    assert_int_equal(n, 7);
    assert_true(ckpt_parse_u64("18446744073709551615", &n));
    assert_true(n == UINT64_MAX);
    n = 7;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_false(ckpt_parse_u64(bad[i], &n));
        assert_int_equal(n, 7);
    }
}

static void signed_limits(void **state)
{
    static const char *const bad[] = {"",
                                      "-",
                                      "+",
                                      "+-1",
                                      "- 1",
                                      " 1",
                                      "1-",
                                      "--",
                                      "1e0x",
                                      "9223372036854775808",
                                      "-9223372036854775809"};
    int64_t n = 7;

    (void)state;
    assert_true(ckpt_parse_i64("-0", &n));
    assert_int_equal(n, 0);
    assert_true(ckpt_parse_i64("+12", &n));
    assert_int_equal(n, 12);
    assert_true(ckpt_parse_i64("9223372036854775807", &n));
    assert_true(n == INT64_MAX);
    assert_true(ckpt_parse_i64("-9223372036854775808", &n));
    assert_true(n == INT64_MIN);
    n = 7;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_false(ckpt_parse_i64(bad[i], &n));
        assert_int_equal(n, 7);
    }
}

static void real_numbers(void **state)
{
    static const struct {
        const char *text;
        double is;
    } good[] = {{"0", 0},           {"1.5", 1.5},
                {"-2", -2},         {"+.5", .5},
                {"5.", 5},          {"1e3", 1000},
                {"10", 10},         {"1E-2", .01},
                {"1e+2", 100},      {"00.25", .25},
                {"5e-324", 5e-324}, {"0e9", 0},
                {"1e-999", 0},      {"1.7976931348623157e308", 1.7976931348623157e308}};
    static const char *const bad[] = {"",    ".",  "-",   "e1",  "1e",    "1e+", " 1",  "1 ",
                                      "0x1", "0x", "inf", "nan", "1.2.3", "1,5", "--1", "infinity"};
    double x;

    (void)state;
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        x = 7;
        assert_true(ckpt_parse_f64(good[i].text, &x));
        assert_memory_equal(&x, &good[i].is, sizeof x);
    }
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        x = 7;
        assert_false(ckpt_parse_f64(bad[i], &x));
        assert_true(x >= 7 && x <= 7);
    }
    assert_false(ckpt_parse_f64("1e999", &x));
    assert_true(isinf(x) && x > 0);
    assert_false(ckpt_parse_f64("-1e999", &x));
    assert_true(isinf(x) && x < 0);
}

/* The longest number at the start, and the text after it. */
static void prefixes(void **state)
{
    uint64_t n = 0;
    double x = 0;

    (void)state;
    assert_string_equal(ckpt_scan_u64("12.weight", &n), ".weight");
    assert_int_equal(n, 12);
    assert_null(ckpt_scan_u64("weight", &n));
    assert_null(ckpt_scan_u64("99999999999999999999.weight", &n));
    assert_int_equal(n, 12);
    assert_string_equal(ckpt_scan_f64("1.5e", &x), "e");
    assert_true(x >= 1.5 && x <= 1.5);
    assert_string_equal(ckpt_scan_f64("0x10", &x), "x10");
    assert_true(x >= 0 && x <= 0);
    assert_string_equal(ckpt_scan_f64("10x", &x), "x");
    assert_true(x >= 10 && x <= 10);
    assert_null(ckpt_scan_f64("1e400*2", &x));
}

static void shortest(void **state)
{
    char text[CKPT_NUMBER_TEXT];

    (void)state;
    assert_string_equal(ckpt_print_f64(text, .1, 1), "0.1");
    assert_string_equal(ckpt_print_f64(text, .1 + .2, 1), "0.30000000000000004");
    assert_string_equal(ckpt_print_f64(text, 1e22, 15), "1e+22");
    assert_string_equal(ckpt_print_f64(text, 123456, 1), "123456");
    assert_string_equal(ckpt_print_f64(text, -0.0, 1), "-0");
    assert_string_equal(ckpt_print_f64(text, -1.7976931348623157e308, 1),
                        "-1.7976931348623157e+308");
    assert_string_equal(ckpt_print_f64(text, -(double)INFINITY, 1), "-inf");
    assert_string_equal(ckpt_print_f64(text, copysign((double)NAN, -1), 1), "nan");
    assert_string_equal(ckpt_print_f32(text, .1f, 1), "0.1");
    assert_string_equal(ckpt_print_f32(text, 16777217.f, 6), "16777216");
}

/* A locale with a decimal comma changes nothing (skipped where none is installed). */
static void other_locale(void **state)
{
    static const char *const names[] = {"de_DE.UTF-8", "de_DE.utf8", "fr_FR.UTF-8", "de_DE"};
    char text[CKPT_NUMBER_TEXT];
    const char *set = NULL;
    double x = 0;

    (void)state;
    for (size_t i = 0; !set && i < sizeof names / sizeof *names; i++)
        set = setlocale(LC_ALL, names[i]);
    if (!set)
        skip();
    assert_true(ckpt_parse_f64("1.5", &x));
    assert_true(x >= 1.5 && x <= 1.5);
    assert_false(ckpt_parse_f64("1,5", &x));
    assert_string_equal(ckpt_print_f64(text, 2.5, 1), "2.5");
    (void)snprintf(text, sizeof text, "%.1f", 2.5);
    assert_string_equal(text, "2,5");
    (void)setlocale(LC_ALL, "C");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(unsigned_limits), cmocka_unit_test(signed_limits),
        cmocka_unit_test(real_numbers),    cmocka_unit_test(prefixes),
        cmocka_unit_test(shortest),        cmocka_unit_test(other_locale),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
