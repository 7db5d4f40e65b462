/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_yaml.c: configurations in YAML: kinds of scalars, and what is no configuration.
 */
#include <time.h>

#include "libckpt/codec/yaml/yaml.h"
#include "tests/unit/unit.h"

static int parse(ckpt_value **out, ckpt_arena *a, const char *text, size_t n, ckpt_err *err)
{
    // a copy of exactly n bytes, so that the sanitizers see every step beyond
    char *copy = malloc(n > 0 ? n : 1);

    assert_non_null(copy);
    memcpy(copy, text, n);
    int rc = ckpt_yaml_parse(out, a, "m.yaml", copy, n, err);
    free(copy);
    return rc;
}

static void scalars(void **state)
{
    static const struct {
        const char *text;
        ckpt_value_kind kind;
    } cases[] = {
        {"null", CKPT_V_NONE},   {"~", CKPT_V_NONE},      {"", CKPT_V_NONE},
        {"true", CKPT_V_BOOL},   {"False", CKPT_V_BOOL},  {"12", CKPT_V_INT},
        {"-3", CKPT_V_INT},      {"0.5", CKPT_V_FLOAT},   {"1e-3", CKPT_V_FLOAT},
        {".5", CKPT_V_FLOAT},    {"'12'", CKPT_V_STR},    {"\"true\"", CKPT_V_STR},
        {"a b", CKPT_V_STR},     {"1.2.3", CKPT_V_STR},   {"org/m-7B", CKPT_V_STR},
        {"[1, 2]", CKPT_V_LIST}, {"{a: 1}", CKPT_V_DICT}, {"\n- 1\n- 2", CKPT_V_LIST},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        ckpt_arena *a = ckpt_arena_new(UINT64_C(1) << 26);
        ckpt_value *v = NULL;
        ckpt_err err = {0};
        char text[64] = "key: ";

        strcat(text, cases[i].text);
        if (parse(&v, a, text, strlen(text), &err) != CKPT_OK)
            fail_msg("%s: %s", text, err.text);
        const ckpt_value *one = ckpt_value_get(v, "key");
        assert_non_null(one);
        if (one->kind != cases[i].kind)
            fail_msg("%s: kind %d", text, (int)one->kind);
        ckpt_arena_free(a);
    }
}

static void refused(void **state)
{
    static const struct {
        const char *text;
        int rc;
    } cases[] = {
        {"a: [1, 2", CKPT_EFORMAT},
        {"a: 1\na: 2", CKPT_EFORMAT},
        {"[1]: 2", CKPT_EFORMAT},
        {"a: 1\n---\nb: 2", CKPT_EFORMAT},
        {"a: &x 1\nb: *x", CKPT_EUNSUPPORTED},
        {"a: \x01", CKPT_EFORMAT},
        {"a: \"\xff\"", CKPT_EFORMAT},
    };
    static char deep[4096];

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        ckpt_arena *a = ckpt_arena_new(UINT64_C(1) << 26);
        ckpt_value *v = NULL;
        ckpt_err err = {0};
        int rc = parse(&v, a, cases[i].text, strlen(cases[i].text), &err);

        if (rc != cases[i].rc)
            fail_msg("%s: %d: %s", cases[i].text, rc, err.text);
        assert_non_null(strstr(err.text, "m.yaml"));
        ckpt_arena_free(a);
    }
    memset(deep, '[', sizeof deep);
    ckpt_arena *a = ckpt_arena_new(UINT64_C(1) << 26);
    ckpt_value *v = NULL;
    ckpt_err err = {0};
    assert_int_equal(parse(&v, a, deep, sizeof deep, &err), CKPT_ELIMIT);
    ckpt_arena_free(a);
}

/* Many keys take time in proportion: two by two they would take minutes. */
static void many_keys(void **state)
{
    enum { N = 300000 };
    ckpt_arena *a = ckpt_arena_new(UINT64_C(1) << 29);
    char *text = malloc(N * 16), *p = text;
    ckpt_value *v = NULL;
    ckpt_err err = {0};
    (void)state;

    assert_non_null(text);
    for (unsigned i = 0; i < N; i++)
        p += sprintf(p, "k%u: 1\n", i);
    clock_t start = clock();
    assert_int_equal(parse(&v, a, text, (size_t)(p - text), &err), CKPT_OK);
    assert_true((double)(clock() - start) / CLOCKS_PER_SEC < 10);
    assert_int_equal(v->as.map.n, N);
    // and one that is there twice is found among them
    (void)sprintf(p, "k7: 2\n");
    assert_int_equal(parse(&v, a, text, strlen(text), &err), CKPT_EFORMAT);
    assert_non_null(strstr(err.text, "a key appears twice in one mapping"));
    free(text);
    ckpt_arena_free(a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(scalars),
        cmocka_unit_test(refused),
        cmocka_unit_test(many_keys),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
