/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_json.c: what the gate lets through and what not, trees from text, text from trees.
 */
#include <math.h>
#include <time.h>

#include "libckpt/codec/json/json.h"
#include "tests/unit/unit.h"

#define MAX_BYTES (UINT64_C(64) << 20)

typedef struct text_case {
    const char *text;
    int code;
} text_case;

static int gate_n(const char *text, uint64_t n)
{
    ckpt_err err = {0};
    ckpt_json_text t = {"test", 0, text, n, MAX_BYTES, false};
    int rc = ckpt_json_gate(&t, NULL, &err);

    assert_int_equal(rc, err.code);
    return rc;
}

static void check_cases(const text_case *c, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        int rc = gate_n(c[i].text, strlen(c[i].text));
        if (rc != c[i].code)
            fail_msg("%s: %d, expected %d", c[i].text, rc, c[i].code);
    }
}

static void gate_accepts(void **state)
{
    static const text_case cases[] = {
        {"{}", 0},
        {"[]", 0},
        {" \t\r\n{ } \n", 0},
        {"null", 0},
        {"true", 0},
        {"false", 0},
        {"0", 0},
        {"-0", 0},
        {"1.5e-3", 0},
        {"1E+5", 0},
        {"0.0", 0},
        {"9007199254740992", 0},
        {"-9007199254740992", 0},
        {"1e308", 0},
        {"1e-400", 0},
        {"0e999999999", 0},
        {"0.0001e311", 0},
        {"\"\"", 0},
        {"\"\\\"\\\\\\/\\b\\f\\n\\r\\t\\u0041\"", 0},
        {"\"\\ud83d\\ude00\"", 0},
        {"\"\\uD83D\\uDE00\"", 0},
        {"\"\x7f\"", 0},
        {"\"\xf0\x9f\x98\x80\"", 0},
        {"{\"a\":{\"a\":1},\"b\":{\"a\":1}}", 0},
        {"[{\"a\":1},{\"a\":1}]", 0},
        {"{\"\":0,\"a\":[1,2,[3]]}", 0},
        {"{\"A\":1,\"a\":2}", 0},
    };

    (void)state;
    check_cases(cases, sizeof cases / sizeof *cases);
}

static void gate_refuses_structure(void **state)
{
    static const text_case cases[] = {
        {"", CKPT_EFORMAT},
        {"  ", CKPT_EFORMAT},
        {"{", CKPT_EFORMAT},
        {"}", CKPT_EFORMAT},
        {"[1,]", CKPT_EFORMAT},
        {"[,1]", CKPT_EFORMAT},
        {"[1 2]", CKPT_EFORMAT},
        {"[1}", CKPT_EFORMAT},
        {"{\"a\":1]", CKPT_EFORMAT},
        {"{\"a\":1,}", CKPT_EFORMAT},
        {"{\"a\" 1}", CKPT_EFORMAT},
        {"{\"a\":}", CKPT_EFORMAT},
        {"{a:1}", CKPT_EFORMAT},
        {"{1:1}", CKPT_EFORMAT},
        {"{'a':1}", CKPT_EFORMAT},
        {"{,}", CKPT_EFORMAT},
        {"{} {}", CKPT_EFORMAT},
        {"{}x", CKPT_EFORMAT},
        {"1 2", CKPT_EFORMAT},
        {"nul", CKPT_EFORMAT},
        {"True", CKPT_EFORMAT},
        {"nulll", CKPT_EFORMAT},
        {"NaN", CKPT_EFORMAT},
        {"Infinity", CKPT_EFORMAT},
        {"-Infinity", CKPT_EFORMAT},
        {"\xef\xbb\xbf{}", CKPT_EFORMAT},
        {"// x\n1", CKPT_EFORMAT},
        {"[1]\f", CKPT_EFORMAT},
        {"{\"a\":1,\"a\":2}", CKPT_EFORMAT},
        {"{\"a\":1,\"\\u0061\":2}", CKPT_EFORMAT},
        {"{\"a\":{\"b\":1,\"c\":[{}],\"b\":2}}", CKPT_EFORMAT},
        {"{\"\":1,\"\":1}", CKPT_EFORMAT},
        {"[{\"x\":1,\"y\":{\"x\":1},\"x\":1}]", CKPT_EFORMAT},
    };

    (void)state;
    check_cases(cases, sizeof cases / sizeof *cases);
    assert_int_equal(gate_n("{}\0", 3), CKPT_EFORMAT);
    assert_int_equal(gate_n("[\0]", 3), CKPT_EFORMAT);
}

static void gate_refuses_numbers(void **state)
{
    static const text_case cases[] = {
        {"01", CKPT_EFORMAT},
        {"-01", CKPT_EFORMAT},
        {"1.", CKPT_EFORMAT},
        {".5", CKPT_EFORMAT},
        {"+1", CKPT_EFORMAT},
        {"-", CKPT_EFORMAT},
        {"1e", CKPT_EFORMAT},
        {"1e+", CKPT_EFORMAT},
        {"0x10", CKPT_EFORMAT},
        {"1e400", CKPT_EFORMAT},
        {"-1e309", CKPT_EFORMAT},
        {"123e307", CKPT_EFORMAT},
        {"0.001e312", CKPT_EFORMAT},
        {"1e99999999999999999999", CKPT_EFORMAT},
        {"0.0000000000000000000000000000000000000000000000000000000000001", CKPT_ELIMIT},
    };

    (void)state;
    check_cases(cases, sizeof cases / sizeof *cases);
}

/* What doubles do not hold is exact, both ways, unless the caller wants no reader to round it. */
static void big_integers(void **state)
{
    static const char text[] = "[9007199254740993,-9007199254740993,9223372036854775807,"
                               "-9223372036854775808,9223372036854775808,-9223372036854775809,"
                               "18446744073709551616,1000000000000000019884624838656,"
                               "-1000000000000000019884624838656,128,1.5]";
    static const ckpt_json_style style = {0};
    ckpt_json_text t = {.name = "test", .at = text, .n = sizeof text - 1, .max = MAX_BYTES};
    ckpt_arena *a = ckpt_arena_new(0);
    ckpt_err err = {0};
    ckpt_bytes out = {0};
    ckpt_value *v = NULL;
    int64_t i = 0;

    (void)state;
    assert_int_equal(ckpt_json_parse(&v, a, &t, &err), CKPT_OK);
    for (size_t k = 0; k < 4; k++)
        assert_int_equal(v->as.seq.at[k]->kind, CKPT_V_INT);
    for (size_t k = 4; k < 9; k++) {
        assert_int_equal(v->as.seq.at[k]->kind, CKPT_V_LONG);
        assert_false(ckpt_value_as_int(v->as.seq.at[k], &i));
    }
    assert_int_equal(v->as.seq.at[0]->as.i, INT64_C(9007199254740993));
    assert_int_equal(v->as.seq.at[9]->as.i, 128);
    assert_int_equal(ckpt_json_write(&out, v, &style, &err), CKPT_OK);
    assert_int_equal(out.n, sizeof text - 1);
    assert_memory_equal(out.at, text, out.n);
    t.narrow = true;
    assert_int_equal(ckpt_json_parse(&v, a, &t, &err), CKPT_EFORMAT);
    assert_non_null(strstr(err.text, "2^53"));
    ckpt_vec_free(&out);
    ckpt_arena_free(a);
}

static void gate_refuses_strings(void **state)
{
    static const text_case cases[] = {
        {"\"", CKPT_EFORMAT},
        {"\"a", CKPT_EFORMAT},
        {"\"\\", CKPT_EFORMAT},
        {"\"\\x41\"", CKPT_EFORMAT},
        {"\"\\u00\"", CKPT_EFORMAT},
        {"\"\\u00g0\"", CKPT_EFORMAT},
        {"\"\\u0000\"", CKPT_EFORMAT},
        {"\"\\ud800\"", CKPT_EFORMAT},
        {"\"\\udc00\"", CKPT_EFORMAT},
        {"\"\\ud800\\u0041\"", CKPT_EFORMAT},
        {"\"\\ud800x\"", CKPT_EFORMAT},
        {"\"\\ud83d\\ud83d\"", CKPT_EFORMAT},
        {"\"a\nb\"", CKPT_EFORMAT},
        {"\"a\tb\"", CKPT_EFORMAT},
        {"\"\x1f\"", CKPT_EFORMAT},
        {"\"\xff\"", CKPT_EFORMAT},
        {"\"\xc0\xaf\"", CKPT_EFORMAT},
        {"\"\xed\xa0\x80\"", CKPT_EFORMAT},
        {"\"\xf4\x90\x80\x80\"", CKPT_EFORMAT},
        {"\"\xe2\x82\"", CKPT_EFORMAT},
        {"{\"\\u0000\":1}", CKPT_EFORMAT},
    };

    (void)state;
    check_cases(cases, sizeof cases / sizeof *cases);
}

/* n times open, then n times close. */
static char *nested(unsigned n, char open, char close)
{
    char *s = ckpt_alloc(2 * (size_t)n + 1);

    assert_non_null(s);
    memset(s, open, n);
    memset(s + n, close, n);
    return s;
}

static void gate_limits(void **state)
{
    ckpt_err err = {0};
    char *s = nested(64, '[', ']');
    ckpt_json_text small = {"test", 0, "[1, 2]", 6, 5, false};

    (void)state;
    assert_int_equal(gate_n(s, 128), CKPT_OK);
    ckpt_free(s);
    s = nested(65, '[', ']');
    assert_int_equal(gate_n(s, 130), CKPT_ELIMIT);
    ckpt_free(s);
    s = nested(100000, '[', ']');
    assert_int_equal(gate_n(s, 100000), CKPT_ELIMIT);
    ckpt_free(s);
    assert_int_equal(ckpt_json_gate(&small, NULL, &err), CKPT_ELIMIT);

    // too many values
    uint64_t n = 2 * (uint64_t)CKPT_JSON_VALUES + 8;
    s = ckpt_alloc(n);
    for (uint64_t i = 0; i < n; i++)
        s[i] = i % 2 ? '0' : ',';
    s[0] = '[';
    s[n - 1] = ']';
    assert_int_equal(gate_n(s, n), CKPT_ELIMIT);
    ckpt_free(s);
}

static void messages_name_place(void **state)
{
    ckpt_err err = {0};
    ckpt_json_text t = {"dir/x.json", 8, "{\"key\": 1, \"key\": 2}", 20, 100, false};

    (void)state;
    assert_int_equal(ckpt_json_gate(&t, NULL, &err), CKPT_EFORMAT);
    assert_non_null(strstr(err.text, "dir/x.json"));
    assert_non_null(strstr(err.text, "offset 19"));
    assert_non_null(strstr(err.text, "\"key\""));
}

/* Many keys take linear time, and the last one's double is still found. */
static void many_keys(void **state)
{
    enum { N = 300000 };
    ckpt_bytes b = {0};
    clock_t start = clock();

    (void)state;
    for (unsigned i = 0; i < N; i++)
        assert_true(ckpt_bytes_printf(&b, "%s\"model.layers.%u.weight\":{\"a\":1,\"b\":2}",
                                      i ? "," : "{", i));
    assert_true(ckpt_bytes_add(&b, "}", 1));
    assert_int_equal(gate_n((char *)b.at, b.n), CKPT_OK);
    b.n--;
    assert_true(ckpt_bytes_printf(&b, ",\"model.layers.%u.weight\":0}", N / 2));
    assert_int_equal(gate_n((char *)b.at, b.n), CKPT_EFORMAT);
    assert_true((double)(clock() - start) / CLOCKS_PER_SEC <
                20); // well under a second without sanitizers
    ckpt_vec_free(&b);
}

static ckpt_value *parse(ckpt_arena *a, const char *text)
{
    ckpt_err err = {0};
    ckpt_value *v = NULL;
    ckpt_json_text t = {"test", 0, text, strlen(text), MAX_BYTES, false};

    if (ckpt_json_parse(&v, a, &t, &err) != CKPT_OK)
        fail_msg("%s", err.text);
    return v;
}

static void tree_from_text(void **state)
{
    ckpt_arena *a = ckpt_arena_new(0);
    ckpt_value *v = parse(a, " {\"i\": 9007199254740992, \"n\": [-3, -0, 3.0, 3e0, 2.5], \"s\": "
                             "\"\\u00e4\\ud83d\\ude00\","
                             "\"t\": true, \"f\": false, \"z\": null, \"e\": {}, \"l\": []} ");
    ckpt_value *n = ckpt_value_get(v, "n");

    (void)state;
    assert_int_equal(v->kind, CKPT_V_DICT);
    assert_int_equal(v->as.map.n, 8);
    assert_true(ckpt_value_is(v->as.map.at[2].key, "s"));
    assert_int_equal(ckpt_value_get(v, "i")->kind, CKPT_V_INT);
    assert_int_equal(ckpt_value_get(v, "i")->as.i, INT64_C(9007199254740992));
    assert_int_equal(n->kind, CKPT_V_LIST);
    assert_int_equal(n->as.seq.n, 5);
    assert_int_equal(n->as.seq.at[0]->kind, CKPT_V_INT);
    assert_int_equal(n->as.seq.at[0]->as.i, -3);
    for (unsigned i = 1; i < 5; i++)
        assert_int_equal(n->as.seq.at[i]->kind, CKPT_V_FLOAT); // -0, 3.0, 3e0, 2.5
    assert_true(n->as.seq.at[4]->as.f == 2.5);
    assert_true(ckpt_value_is(ckpt_value_get(v, "s"), "\xc3\xa4\xf0\x9f\x98\x80"));
    assert_int_equal(ckpt_value_get(v, "t")->as.i, 1);
    assert_int_equal(ckpt_value_get(v, "f")->kind, CKPT_V_BOOL);
    assert_int_equal(ckpt_value_get(v, "z")->kind, CKPT_V_NONE);
    assert_int_equal(ckpt_value_get(v, "e")->as.map.n, 0);
    assert_int_equal(ckpt_value_get(v, "l")->kind, CKPT_V_LIST);
    ckpt_arena_free(a);
}

/* Between the largest double and 1e309 only the parser's result tells. */
static void tree_without_infinity(void **state)
{
    ckpt_arena *a = ckpt_arena_new(0);
    ckpt_err err = {0};
    ckpt_value *v = NULL;
    ckpt_json_text t = {"test", 0, "[1.7e308, 1.8e308]", 18, 100, false};

    (void)state;
    assert_int_equal(ckpt_json_parse(&v, a, &t, &err), CKPT_EFORMAT);
    assert_null(v);
    ckpt_arena_free(a);
}

static void deepest_tree(void **state)
{
    ckpt_arena *a = ckpt_arena_new(0);
    char *s = nested(64, '[', ']');
    const ckpt_value *v = parse(a, s);
    unsigned depth = 1;

    (void)state;
    for (; v->as.seq.n == 1; depth++)
        v = v->as.seq.at[0];
    assert_int_equal(depth, 64);
    ckpt_free(s);
    ckpt_arena_free(a);
}

static void check_write(const char *in, unsigned indent, bool sort, bool ascii,
                        const char *expected)
{
    ckpt_json_style style = {.indent = indent, .sort_keys = sort, .ascii = ascii};
    ckpt_arena *a = ckpt_arena_new(0);
    ckpt_bytes out = {0};
    ckpt_err err = {0};

    assert_int_equal(ckpt_json_write(&out, parse(a, in), &style, &err), CKPT_OK);
    assert_true(ckpt_bytes_add(&out, "", 1));
    assert_string_equal((char *)out.at, expected);
    ckpt_vec_free(&out);
    ckpt_arena_free(a);
}

/* Expected texts are what Python 3.11's json.dumps gives. */
static void text_from_tree(void **state)
{
    (void)state;
    check_write("{\"b\": [1, 2.0, null], \"a\": {}, \"c\": [], \"d\": {\"x\": true}}", 0, true,
                true, "{\"a\":{},\"b\":[1,2.0,null],\"c\":[],\"d\":{\"x\":true}}");
    check_write(
        "{\"metadata\": {\"total_size\": 40}, \"weight_map\": {\"w2\": \"b\", \"w10\": \"a\"}}", 2,
        true, true,
        "{\n  \"metadata\": {\n    \"total_size\": 40\n  },\n  \"weight_map\": {\n    \"w10\": "
        "\"a\",\n"
        "    \"w2\": \"b\"\n  }\n}");
    check_write("[[], [1, [2]], {\"k\": []}]", 2, false, true,
                "[\n  [],\n  [\n    1,\n    [\n      2\n    ]\n  ],\n  {\n    \"k\": []\n  }\n]");
    check_write("\"\\u00e4\\ud83d\\ude00/\\\"\\\\\\b\\f\\n\\r\\t\\u0001\\u007f\"", 0, false, true,
                "\"\\u00e4\\ud83d\\ude00/\\\"\\\\\\b\\f\\n\\r\\t\\u0001\\u007f\"");
    check_write("\"\\u00e4\\u20ac\\ud83d\\ude00/\\u001f\\u007f\"", 0, false, false,
                "\"\xc3\xa4\xe2\x82\xac\xf0\x9f\x98\x80/\\u001f\x7f\"");
    check_write("{\"\\u20ac\": 1, \"\\ud83d\\ude00\": 2, \"\\uffff\": 3, \"a\": 4, \"\": 5}", 0,
                true, false,
                "{\"\":5,\"a\":4,\"\xe2\x82\xac\":1,\"\xef\xbf\xbf\":3,\"\xf0\x9f\x98\x80\":2}");
    check_write("[0.1, -0.0, 1e16, 1e15, 123456789.125, 1e-4, 1e-5, 1.5e300, 5e-324, "
                "1.7976931348623157e308, 100.0]",
                0, false, true,
                "[0.1,-0.0,1e+16,1000000000000000.0,123456789.125,0.0001,1e-05,1.5e+300,5e-324,"
                "1.7976931348623157e+308,100.0]");
}

/* Lists, and what is in them, on one line each; dicts as the indent has them. */
static void lists_on_a_line(void **state)
{
    static const ckpt_json_style style = {.indent = 2, .flat_lists = true};
    ckpt_arena *a = ckpt_arena_new(0);
    ckpt_bytes out = {0};
    ckpt_err err = {0};

    (void)state;
    assert_int_equal(
        ckpt_json_write(&out,
                        parse(a, "{\"b\": [1, [2, {\"x\": [], \"y\": 3}]], \"c\": {\"d\": 4}}"),
                        &style, &err),
        CKPT_OK);
    assert_true(ckpt_bytes_add(&out, "", 1));
    assert_string_equal(
        (char *)out.at,
        "{\n  \"b\": [1, [2, {\"x\": [], \"y\": 3}]],\n  \"c\": {\n    \"d\": 4\n  }\n}");
    ckpt_vec_free(&out);
    ckpt_arena_free(a);
}

static void text_refused(void **state)
{
    static const ckpt_json_style style = {.sort_keys = true};
    ckpt_arena *a = ckpt_arena_new(0);
    ckpt_value *list = ckpt_value_new(a, CKPT_V_LIST), *dict = ckpt_value_new(a, CKPT_V_DICT);
    ckpt_bytes out = {0};
    ckpt_err err = {0};

    (void)state;
    assert_int_equal(ckpt_json_write(&out, ckpt_value_float(a, (double)INFINITY), &style, &err),
                     CKPT_EUNSUPPORTED);
    err = (ckpt_err){0};
    assert_int_equal(ckpt_json_write(&out, ckpt_value_new(a, CKPT_V_BYTES), &style, &err),
                     CKPT_EUNSUPPORTED);
    err = (ckpt_err){0};
    assert_int_equal(ckpt_json_write(&out, ckpt_value_str(a, "\xff", 1), &style, &err),
                     CKPT_EUNSUPPORTED);
    assert_true(ckpt_dict_add(a, &dict->as.map, ckpt_value_int(a, 1), ckpt_value_int(a, 1)));
    err = (ckpt_err){0};
    assert_int_equal(ckpt_json_write(&out, dict, &style, &err), CKPT_EUNSUPPORTED);
    // a cycle ends at the depth limit, with sorted copies freed
    ckpt_value *self = ckpt_value_new(a, CKPT_V_DICT);
    assert_true(ckpt_dict_add_cstr(a, &self->as.map, "again", list));
    assert_true(ckpt_seq_add(a, &list->as.seq, self));
    err = (ckpt_err){0};
    assert_int_equal(ckpt_json_write(&out, self, &style, &err), CKPT_ELIMIT);
    ckpt_vec_free(&out);
    ckpt_arena_free(a);
}

/* Every allocation fails once; each failure is clean. */
static void memory_runs_out(void **state)
{
    static const ckpt_json_style style = {.indent = 2, .sort_keys = true};
    static const char text[] =
        "{\"a\": [1, 2.5, \"x\\u00e4\"], \"b\": {\"c\": null, \"d\": [[], {}]}}";
    ckpt_json_text t = {"test", 0, text, sizeof text - 1, 1000, false};
    int rc = CKPT_ELIMIT;

    (void)state;
    for (uint64_t n = 0; rc != CKPT_OK; n++) {
        ckpt_arena *a = ckpt_arena_new(0);
        ckpt_value *v = NULL;
        ckpt_bytes out = {0};
        ckpt_err err = {0};
        ckpt_alloc_fail_at(n);
        rc = ckpt_json_parse(&v, a, &t, &err);
        if (rc == CKPT_OK)
            rc = ckpt_json_write(&out, v, &style, &err);
        ckpt_alloc_fail_at(UINT64_MAX);
        assert_true(rc == CKPT_OK || rc == CKPT_ELIMIT);
        assert_int_equal(err.code, rc);
        assert_true(n < 1000);
        ckpt_vec_free(&out);
        ckpt_arena_free(a);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gate_accepts),         cmocka_unit_test(gate_refuses_structure),
        cmocka_unit_test(gate_refuses_numbers), cmocka_unit_test(big_integers),
        cmocka_unit_test(gate_refuses_strings), cmocka_unit_test(gate_limits),
        cmocka_unit_test(messages_name_place),  cmocka_unit_test(many_keys),
        cmocka_unit_test(tree_from_text),       cmocka_unit_test(tree_without_infinity),
        cmocka_unit_test(deepest_tree),         cmocka_unit_test(text_from_tree),
        cmocka_unit_test(lists_on_a_line),      cmocka_unit_test(text_refused),
        cmocka_unit_test(memory_runs_out),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
