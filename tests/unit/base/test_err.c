/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_err.c: failures are kept, cut and cleaned as err.h says; sizes are added without overflow.
 */
#include <errno.h>

#include "libckpt/base/err.h"
#include "tests/unit/unit.h"

static void first_failure_stays(void **state)
{
    ckpt_err err = {0};

    (void)state;
    assert_int_equal(ckpt_fail(&err, CKPT_EFORMAT, "%s: at %d", "a.pt", 7), CKPT_EFORMAT);
    assert_int_equal(ckpt_fail(&err, CKPT_EIO, "later"), CKPT_EFORMAT);
    assert_int_equal(ckpt_fail_sys(&err, CKPT_EIO, EIO, "later"), CKPT_EFORMAT);
    assert_int_equal(ckpt_fail_memory(&err), CKPT_EFORMAT);
    assert_int_equal(err.code, CKPT_EFORMAT);
    assert_int_equal(err.sys, 0);
    assert_string_equal(err.text, "a.pt: at 7");

    err = (ckpt_err){0};
    assert_int_equal(ckpt_fail_memory(&err), CKPT_ELIMIT);
    assert_string_equal(err.text, "out of memory");
}

static void no_struct_is_fine(void **state)
{
    (void)state;
    assert_int_equal(ckpt_fail(NULL, CKPT_EFORMAT, "x"), CKPT_EFORMAT);
    assert_int_equal(ckpt_fail_sys(NULL, CKPT_EIO, ENOSPC, "x"), CKPT_EIO);
    assert_int_equal(ckpt_fail_memory(NULL), CKPT_ELIMIT);
}

static void system_reason_is_never_cut(void **state)
{
    ckpt_err err = {0};
    char name[2000];

    (void)state;
    assert_int_equal(ckpt_fail_sys(&err, CKPT_EIO, ENOSPC, "%s: write", "out.pt"), CKPT_EIO);
    assert_int_equal(err.sys, ENOSPC);
    assert_string_equal(err.text, "out.pt: write: No space left on device");

    memset(name, 'n', sizeof name);
    name[sizeof name - 1] = '\0';
    err = (ckpt_err){0};
    ckpt_fail_sys(&err, CKPT_EIO, ENOSPC, "%s", name);
    assert_non_null(strstr(err.text, "n: No space left on device"));

    err = (ckpt_err){0};
    ckpt_fail_sys(&err, CKPT_EIO, 99999, "x");
    assert_non_null(strstr(err.text, "99999"));
}

/* What a text becomes: the last column is what may reach a terminal. */
static void hostile_bytes_are_replaced(void **state)
{
    static const struct {
        const char *raw, *clean;
    } cases[] = {
        {"plain", "plain"},
        {"\x1b[31mred\x7f\n\t", "?[31mred???"},
        {"gr\xc3\xbc\xc3\x9f \xe2\x82\xac \xf0\x9f\x98\x80",
         "gr\xc3\xbc\xc3\x9f \xe2\x82\xac \xf0\x9f\x98\x80"},
        {"\xc2\x9b"
         "31m",
         "??31m"},                                // a C1 control: CSI
        {"\xc2\xa0", "\xc2\xa0"},                 // the first one after them
        {"\xc0\xaf", "??"},                       // overlong
        {"\xe0\x9f\xbf", "???"},                  // overlong
        {"\xe0\xa0\x80", "\xe0\xa0\x80"},         // the smallest of three bytes
        {"\xf0\x8f\xbf\xbf", "????"},             // overlong
        {"\xed\xa0\x80", "???"},                  // surrogate
        {"\xed\x9f\xbf", "\xed\x9f\xbf"},         // the last one before them
        {"\xf4\x90\x80\x80", "????"},             // above U+10FFFF
        {"\xf4\x8f\xbf\xbf", "\xf4\x8f\xbf\xbf"}, // U+10FFFF
        {"\xff\xfe\x80", "???"},
        {"a\xe2\x82", "a??"}, // cut by the sender, not by us
        {"\xe2\x28\xa1", "?(?"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        ckpt_err err = {0};

        ckpt_fail(&err, CKPT_EFORMAT, "%s", cases[i].raw);
        assert_string_equal(err.text, cases[i].clean);
    }
}

static void long_texts_are_cut_between_characters(void **state)
{
    (void)state;
    // a character of 4 bytes at each position around the end of the room
    for (size_t before = 495; before < 510; before++) {
        ckpt_err err = {0};
        char text[600];
        size_t n;

        memset(text, 'a', before);
        strcpy(text + before, "\xf0\x9f\x98\x80 and more");
        assert_int_equal(ckpt_fail(&err, CKPT_EFORMAT, "%s", text), CKPT_EFORMAT);
        n = strlen(err.text);
        assert_in_range(n, 500, sizeof err.text - 1 > before ? sizeof err.text - 1 : before);
        assert_null(strchr(err.text, '?'));
        assert_memory_equal(err.text, text, n);
    }
}

static void codes_have_texts_and_statuses(void **state)
{
    static const struct {
        int code, status;
    } codes[] = {
        {CKPT_OK, 0},           {CKPT_EDIFFERS, 1}, {CKPT_EUSAGE, 2},      {CKPT_EFORMAT, 3},
        {CKPT_EUNSUPPORTED, 3}, {CKPT_EUNSAFE, 4},  {CKPT_EMISSING, 5},    {CKPT_EMISMATCH, 5},
        {CKPT_ELIMIT, 6},       {CKPT_EIO, 7},      {CKPT_ECANCELED, 130}, {CKPT_EDOUBT, 9},
        {CKPT_EDIGEST, 8},
    };

    (void)state;
    assert_int_equal(sizeof codes / sizeof *codes, -CKPT_ERROR_END_);
    for (size_t i = 0; i < sizeof codes / sizeof *codes; i++) {
        assert_int_equal(codes[i].code, -(int)i);
        assert_int_equal(ckpt_err_status(codes[i].code), codes[i].status);
        assert_string_not_equal(ckpt_err_text(codes[i].code), "unknown error");
    }
    assert_string_equal(ckpt_err_text(CKPT_OK), "success");
    assert_string_equal(ckpt_err_text(12345), "unknown error");
    assert_int_not_equal(ckpt_err_status(12345), 0);
}

static void arithmetic_on_sizes(void **state)
{
    uint64_t out;

    (void)state;
    assert_true(ckpt_add(UINT64_MAX - 1, 1, &out));
    assert_true(out == UINT64_MAX);
    assert_false(ckpt_add(UINT64_MAX, 1, &out));
    assert_true(ckpt_mul(1ull << 32, (1ull << 32) - 1, &out));
    assert_true(out == 0xffffffff00000000u);
    assert_false(ckpt_mul(1ull << 32, 1ull << 32, &out));
    assert_true(ckpt_within(0, 0, 0));
    assert_true(ckpt_within(10, 0, 10));
    assert_true(ckpt_within(3, 7, 10));
    assert_false(ckpt_within(4, 7, 10));
    assert_false(ckpt_within(11, 0, 10));
    assert_false(ckpt_within(UINT64_MAX, 2, 10));
    assert_false(ckpt_within(2, UINT64_MAX, 10));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(first_failure_stays),
        cmocka_unit_test(no_struct_is_fine),
        cmocka_unit_test(system_reason_is_never_cut),
        cmocka_unit_test(hostile_bytes_are_replaced),
        cmocka_unit_test(long_texts_are_cut_between_characters),
        cmocka_unit_test(codes_have_texts_and_statuses),
        cmocka_unit_test(arithmetic_on_sizes),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
