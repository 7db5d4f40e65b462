/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_hjson.c: HJSON as the hjson package of Python reads it, JSON exactly, and what is refused.
 *
 * What is expected was measured with the package; the three differences are named where they come.
 */
#include <math.h>
#include <unistd.h>

#include "engine/config/config.h"
#include "tests/unit/unit.h"

/* A tree as one line: floats as %a, strings in quotes. */
static void show(const ckpt_value *v, char *out, size_t room)
{
    size_t n;

    out[0] = '\0';
    if (v->kind == CKPT_V_NONE) {
        (void)snprintf(out, room, "null");
    } else if (v->kind == CKPT_V_BOOL) {
        (void)snprintf(out, room, v->as.i ? "true" : "false");
    } else if (v->kind == CKPT_V_INT) {
        (void)snprintf(out, room, "%lld", (long long)v->as.i);
    } else if (v->kind == CKPT_V_FLOAT) {
        (void)snprintf(out, room, "f%.17g", v->as.f);
    } else if (v->kind == CKPT_V_STR) {
        assert_int_equal(strlen(v->as.text.at), v->as.text.n);
        (void)snprintf(out, room, "'%s'", v->as.text.at);
    }
    if (v->kind == CKPT_V_LIST) {
        n = (size_t)snprintf(out, room, "[");
        for (uint64_t i = 0; i < v->as.seq.n; i++) {
            show(v->as.seq.at[i], out + n, room - n);
            n += strlen(out + n);
            n += (size_t)snprintf(out + n, room - n, ",");
        }
        (void)snprintf(out + n, room - n, "]");
    }
    if (v->kind == CKPT_V_DICT) {
        n = (size_t)snprintf(out, room, "{");
        for (uint64_t i = 0; i < v->as.map.n; i++) {
            assert_int_equal(v->as.map.at[i].key->kind, CKPT_V_STR);
            assert_int_equal(v->as.map.at[i].key->mark, 0);
            n += (size_t)snprintf(out + n, room - n, "%s:", v->as.map.at[i].key->as.text.at);
            show(v->as.map.at[i].value, out + n, room - n);
            n += strlen(out + n);
            n += (size_t)snprintf(out + n, room - n, ",");
        }
        (void)snprintf(out + n, room - n, "}");
    }
}

typedef struct hj_case {
    const char *text, *tree; /* tree NULL: refused */
} hj_case;

static void check(const hj_case *c, size_t n)
{
    static char got[65536];

    for (size_t i = 0; i < n; i++) {
        ckpt_arena *arena = ckpt_arena_new(0);
        ckpt_value *v = NULL;
        ckpt_err err = {0};
        int rc = zt_hjson_parse(&v, arena, c[i].text, strlen(c[i].text), "t", &err);

        assert_int_equal(rc, err.code);
        if (!c[i].tree) {
            if (rc != CKPT_EFORMAT || v || strstr(err.text, "t: line ") != err.text)
                fail_msg("%s: accepted, or refused oddly: %s", c[i].text, err.text);
        } else {
            if (rc != CKPT_OK)
                fail_msg("%s: %s", c[i].text, err.text);
            show(v, got, sizeof got);
            assert_string_equal(got, c[i].tree);
        }
        ckpt_arena_free(arena);
    }
}

#define CHECK(cases) check(cases, sizeof(cases) / sizeof((cases)[0]))

static void json_is_exact(void **state)
{
    static const hj_case cases[] = {
        {"{}", "{}"},
        {" [ ] ", "[]"},
        {"{\"a\": [1, -2, 0], \"b\": {\"c\": null}}", "{a:[1,-2,0,],b:{c:null,},}"},
        {"[true, false, null]", "[true,false,null,]"},
        // 1.0 and 1e3 are floats, as in JSON; the package makes integers of them
        {"[1.0, 1e3, 1E-2, -0.5e+1, 0.1]", "[f1,f1000,f0.01,f-5,f0.10000000000000001,]"},
        {"[9223372036854775807, -9223372036854775808]",
         "[9223372036854775807,-9223372036854775808,]"},
        {"[9223372036854775808, 12345678901234567890123]",
         "[f9.2233720368547758e+18,f1.2345678901234568e+22,]"},
        // the package reads on to the end of the line
        {"{\"a\": NaN, \"b\": Infinity, \"c\": -Infinity}", "{a:fnan,b:finf,c:f-inf,}"},
        {"[\"\\\"\\\\\\/\\t\", \"\\u0041\\u00e9\", \"\\ud83d\\ude00\"]",
         "['\"\\/\t','A\xc3\xa9','\xf0\x9f\x98\x80',]"},
        {"\"alone\"", "'alone'"},
        {"12", "12"},
        {" true // yes", "true"},
        {"\xef\xbb\xbf{\"a\": 1}", "{a:1,}"},
        {"{\"\": 1}", "{:1,}"},
        {"{\"a\":1,\"b\":[{\"a\":2},{\"a\":3}]}", "{a:1,b:[{a:2,},{a:3,},],}"},
    };

    (void)state;
    CHECK(cases);
}

static void hjson_is_read(void **state)
{
    static const hj_case cases[] = {
        {"", "{}"},
        {"# only a comment", "{}"},
        {"a: 1", "{a:1,}"},
        {"a: 1\nb: 2,\nc: [1,]\n", "{a:1,b:2,c:[1,],}"},
        {"{\"a\": 8, // x\n # y\n \"f\": {\"e\": false,},\n}", "{a:8,f:{e:false,},}"},
        {"{/* x */ \"a\": 8 /* y\n */, b: 1}", "{a:8,b:1,}"},
        {"{a: 8\n b: 10}", "{a:8,b:10,}"},
        {"{a : 1}", "{a:1,}"},
        {"{a\n: 1}", "{a:1,}"},
        {"{\"a\":\"x\" \"b\":2}", "{a:'x',b:2,}"},
        {"{a: b c, d\n e: 5 # x\n}", "{a:'b c, d',e:5,}"},
        {"{b: 01\nd: truex\ne: true # c\nf: null,g:false}",
         "{b:'01',d:'truex',e:true,f:null,g:false,}"},
        {"{a: -0\nb: .5\nc: +5\nd: 1.\ne: 1e5x\n}", "{a:0,b:'.5',c:'+5',d:'1.',e:'1e5x',}"},
        {"[1,2\n3 4\n5]", "[1,2,'3 4',5,]"},
        {"{a: http://x/y\n}", "{a:'http://x/y',}"},
        {"{a://c\n1}", "{a:1,}"},
        {"{a: x /* c */\n b: 2}", "{a:'x /* c */',b:2,}"},
        {"{'a': 1, 'b': 'x\\ny'}", "{a:1,b:'x\ny',}"},
        {"'q\"q'", "'q\"q'"},
        {"{a: x\rb: 2}", "{a:'x',b:2,}"},
        {"{a: 1 // c\rb: 2}", "{a:1,b:2,}"},
        {"[\n\"a\"\n\"b\"\n]", "['a','b',]"},
        {"a:b:c\n", "{a:'b:c',}"},
        {"{\n  x:\n    '''\n    one\n      two\n\n    three\n    '''\n}",
         "{x:'one\n  two\n\nthree',}"},
        {"x: '''a\n  b'''", "{x:'a\nb',}"},
        {"{a: '''x''y'''}", "{a:'x''y',}"}, // the package fails over a name of its own here
    };

    (void)state;
    CHECK(cases);
}

static void the_rest_is_refused(void **state)
{
    static const hj_case cases[] = {
        {"{", NULL},
        {"{\"a\":1", NULL},
        {"[1", NULL},
        {"[1 2]", NULL},
        {"{,}", NULL},
        {"[,]", NULL},
        {"[1,,2]", NULL},
        {"a: 1,\n,b:2", NULL},
        {"{a:}", NULL},
        {"{\"a\":\n}", NULL},
        {"{a b: 1}", NULL},
        {"{: 1}", NULL},
        {"{a:1}}", NULL},
        {"{\"k\":1} x", NULL},
        {"\"x", NULL},
        {"\"\\x\"", NULL},
        {"\"a\nb\"", NULL},
        {"{a:\"tab\there\"}", NULL},
        {"\"\\u12\"", NULL},
        {"\"\\ud800\"", NULL},
        {"\"\\ud800\\u0041\"", NULL},
        {"/* no end", NULL},
        {"foo", NULL},
        {"foo bar\nbaz", NULL},
        {"{a: '''x", NULL},
        {"{a: b}", NULL},
        {"\xff", NULL},
        {"{a: \"\xc3\"}", NULL},
        {"{a: \"\xed\xa0\x80\"}", NULL},
        {"{a: \"\xc0\x80\"}", NULL},
        {"]", NULL},
    };

    (void)state;
    CHECK(cases);
}

static int parse(const char *text, ckpt_err *err)
{
    ckpt_arena *arena = ckpt_arena_new(0);
    ckpt_value *v;
    int rc;

    memset(err, 0, sizeof *err);
    rc = zt_hjson_parse(&v, arena, text, strlen(text), "t", err);
    ckpt_arena_free(arena);
    return rc;
}

static void a_key_comes_once(void **state)
{
    ckpt_err err;

    (void)state;
    assert_int_equal(parse("{\"a\": 1,\n\"b\": 2,\n\"a\": 3}", &err), CKPT_EFORMAT);
    assert_non_null(strstr(err.text, "line 3"));
    assert_non_null(strstr(err.text, "\"a\""));
    assert_int_equal(parse("{x: {b: 1\n'\\u0062': 2}}", &err), CKPT_EFORMAT);
    assert_int_equal(parse("b: 1\nb: 2", &err), CKPT_EFORMAT);
    assert_int_equal(parse("{x: {b: 1}, y: {b: 1}}", &err), CKPT_OK);
}

static void nesting_is_bounded(void **state)
{
    char text[300];
    ckpt_err err;

    (void)state;
    memset(text, '[', 64);
    memset(text + 64, ']', 64);
    text[128] = '\0';
    assert_int_equal(parse(text, &err), CKPT_OK);
    memset(text, '[', 65);
    memset(text + 65, ']', 65);
    text[130] = '\0';
    assert_int_equal(parse(text, &err), CKPT_ELIMIT);
    memset(text, '[', 299);
    text[299] = '\0';
    assert_int_equal(parse(text, &err), CKPT_ELIMIT);
}

/* Text with a NUL, which C strings cannot hold, and more than the limit. */
static void lengths_are_checked(void **state)
{
    ckpt_arena *arena = ckpt_arena_new(0);
    ckpt_value *v;
    ckpt_err err = {0};
    size_t n = ((size_t)16 << 20) + 1;
    char *big = malloc(n);

    (void)state;
    assert_non_null(big);
    assert_int_equal(zt_hjson_parse(&v, arena, "{a:\0}", 5, "t", &err), CKPT_EFORMAT);
    err = (ckpt_err){0};
    assert_int_equal(zt_hjson_parse(&v, arena, "\"\\u0000\"", 8, "t", &err), CKPT_OK);
    assert_int_equal(v->as.text.n, 1);
    memset(big, ' ', n);
    assert_int_equal(zt_hjson_parse(&v, arena, big, n - 1, "t", &err), CKPT_OK);
    assert_int_equal(zt_hjson_parse(&v, arena, big, n, "t", &err), CKPT_ELIMIT);
    free(big);
    ckpt_arena_free(arena);
}

/* Accepted or refused, the code and the struct agree. */
static void parse_any(const char *text)
{
    ckpt_err err;
    int rc = parse(text, &err);

    assert_int_equal(rc, err.code);
    assert_true(rc == CKPT_OK || rc == CKPT_EFORMAT);
}

/* Strings of several lines, as many as there is room for, all on one line: not quadratic. */
static void many_on_one_line(void **state)
{
    enum { N = 300000, EACH = 8 };
    char *text = malloc((size_t)N * EACH + 3);
    ckpt_err err;

    (void)state;
    assert_non_null(text);
    text[0] = '[';
    for (size_t i = 0; i < N; i++)
        memcpy(text + 1 + i * EACH, "'''a''',", EACH);
    memcpy(text + 1 + (size_t)N * EACH, "]", 2);
    assert_int_equal(parse(text, &err), CKPT_OK);
    free(text);
}

/* Every prefix of a text, and every single byte of it changed, ends with an answer. */
static void damage_is_survived(void **state)
{
    static const char text[] =
        "{a: [1, 2.5e3, \"x\\u00e9\\n\"], 'b': '''\n  q\n  ''', /* c */ # d\n"
        " c: true // e\n d: quote less\n}";
    char copy[sizeof text];
    ckpt_err err;

    (void)state;
    assert_int_equal(parse(text, &err), CKPT_OK);
    for (size_t n = 0; n < sizeof text - 1; n++) {
        memcpy(copy, text, n);
        copy[n] = '\0';
        parse_any(copy);
    }
    for (size_t i = 0; i < sizeof text - 1; i++) {
        for (int c = 1; c < 256; c++) {
            memcpy(copy, text, sizeof text);
            copy[i] = (char)(unsigned char)c;
            parse_any(copy);
        }
    }
}

static void memory_runs_out(void **state)
{
    static const char text[] = "{a: [1, 2.5, \"x\", null, true], b: {c: d\n}, 'e': '''f'''}";
    uint64_t n = 0;
    int rc = CKPT_ELIMIT;

    (void)state;
    for (; rc != CKPT_OK; n++) {
        ckpt_arena *arena = ckpt_arena_new(0);
        ckpt_value *v;
        ckpt_err err = {0};

        ckpt_alloc_fail_at(n);
        rc = zt_hjson_parse(&v, arena, text, sizeof text - 1, "t", &err);
        ckpt_alloc_fail_at(UINT64_MAX);
        assert_true(rc == CKPT_OK || (rc == CKPT_ELIMIT && !v));
        ckpt_arena_free(arena);
        assert_true(n < 100);
    }
    assert_true(n > 2);
}

static void files_are_read(void **state)
{
    char path[] = "/tmp/zt_hjson_XXXXXX";
    ckpt_arena *arena = ckpt_arena_new(0);
    int fd = mkstemp(path);
    ckpt_value *v;
    ckpt_err err = {0};

    (void)state;
    assert_true(fd >= 0);
    assert_int_equal(write(fd, "a: 1 # x\n", 9), 9);
    assert_int_equal(close(fd), 0);
    assert_int_equal(zt_hjson_read(&v, arena, path, &err), CKPT_OK);
    assert_int_equal(ckpt_value_get(v, "a")->as.i, 1);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(zt_hjson_read(&v, arena, path, &err), CKPT_EMISSING);
    assert_non_null(strstr(err.text, path));
    err = (ckpt_err){0};
    assert_int_equal(zt_hjson_read(&v, arena, "/tmp", &err), CKPT_EIO);
    ckpt_arena_free(arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(json_is_exact),       cmocka_unit_test(hjson_is_read),
        cmocka_unit_test(the_rest_is_refused), cmocka_unit_test(a_key_comes_once),
        cmocka_unit_test(nesting_is_bounded),  cmocka_unit_test(lengths_are_checked),
        cmocka_unit_test(many_on_one_line),    cmocka_unit_test(damage_is_survived),
        cmocka_unit_test(memory_runs_out),     cmocka_unit_test(files_are_read),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
