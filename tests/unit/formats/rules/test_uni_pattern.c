/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_uni_pattern.c: plain patterns are compared as text, equal texts are one pattern, and the
 * limits hold.
 */
#include "formats/rules/pattern.h"
#include "tests/unit/unit.h"

static ckpt_uni_patterns *begin(void)
{
    ckpt_uni_patterns *p = NULL;

    assert_int_equal(ckpt_uni_patterns_new(&p, NULL), CKPT_OK);
    return p;
}

static uint32_t add(ckpt_uni_patterns *p, const char *text)
{
    uint32_t number = UINT32_MAX;
    ckpt_err err = {0};

    if (ckpt_uni_patterns_add(p, text, strlen(text), &number, &err) != CKPT_OK)
        fail_msg("%s: %s", text, err.text);
    return number;
}

static void plain(void **state)
{
    static const struct {
        const char *text, *name; /* name: the only one that matches; NULL: not plain */
    } cases[] = {
        {"^model\\.norm\\.weight$", "model.norm.weight"},
        {"^a$", "a"},
        {"a\\.b$", "a.b"},
        {"^a\\.b", NULL}, // longer names match, too
        {"^a.b$", NULL},
        {"^a\\d$", NULL},
        {"^(a)$", NULL},
        {"^a|b$", NULL},
    };
    ckpt_uni_patterns *p = begin();

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        uint64_t n = 0;
        uint32_t number = add(p, cases[i].text);
        const char *name = ckpt_uni_patterns_exact(p, number, &n);

        assert_int_equal(number, i);
        assert_int_equal(add(p, cases[i].text), i);
        assert_string_equal(ckpt_uni_patterns_text(p, number), cases[i].text);
        if ((name != NULL) != (cases[i].name != NULL))
            fail_msg("%s is %splain", cases[i].text, name ? "" : "not ");
        if (!name)
            continue;
        assert_int_equal(n, strlen(cases[i].name));
        assert_memory_equal(name, cases[i].name, n);
    }
    ckpt_uni_patterns_free(p);
}

static void matches(void **state)
{
    static const struct {
        const char *text, *name;
        bool yes;
    } cases[] = {
        {"^a\\.b$", "a.b", true},     {"^a\\.b$", "a.bc", false}, {"^a\\.b$", "a.", false},
        {"^a\\.b", "a.bc", true},     {"^a\\.b", "axb", false},   {"a.b", "axbc", true},
        {"a.b", "xaxb", false},       {"^a.b$", "a-b", true},     {"^$", "", true},
        {"[0-9]+\\.w", "12.w", true}, {"[0-9]+\\.w", "w", false},
    };
    ckpt_uni_patterns *p = begin();

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        bool yes = !cases[i].yes;

        assert_int_equal(ckpt_uni_patterns_match(p, add(p, cases[i].text), cases[i].name,
                                                 strlen(cases[i].name), &yes, NULL),
                         CKPT_OK);
        if (yes != cases[i].yes)
            fail_msg("%s on %s: %d", cases[i].text, cases[i].name, yes);
    }
    ckpt_uni_patterns_free(p);
}

/* A text of n bytes: `open` repeated, then `close` repeated. */
static void repeat(char *out, size_t n, char open, char close)
{
    memset(out, open, n / 2);
    memset(out + n / 2, close, n - n / 2);
    out[n] = 0;
}

static void limits(void **state)
{
    static char text[5000];
    ckpt_uni_patterns *p = begin();
    uint32_t number;
    bool yes;

    (void)state;
    repeat(text, 4096, 'a', 'a');
    (void)add(p, text);
    repeat(text, 4097, 'a', 'a');
    assert_int_equal(ckpt_uni_patterns_add(p, text, 4097, &number, NULL), CKPT_ELIMIT);
    repeat(text, 200, '(', ')');
    assert_int_not_equal(ckpt_uni_patterns_add(p, text, 200, &number, NULL), CKPT_OK);
    assert_int_equal(ckpt_uni_patterns_add(p, "a(", 2, &number, NULL), CKPT_EUNSUPPORTED);
    // a match that takes exponential time ends with an error
    repeat(text, 60, 'a', 'a');
    text[59] = 'b';
    assert_int_equal(ckpt_uni_patterns_match(p, add(p, "^(a+)+$"), text, 60, &yes, NULL),
                     CKPT_ELIMIT);
    ckpt_uni_patterns_free(p);
    ckpt_uni_patterns_free(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(plain),
        cmocka_unit_test(matches),
        cmocka_unit_test(limits),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
