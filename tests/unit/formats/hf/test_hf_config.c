/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_hf_config.c: the dtype in a config.json, and nothing else, changes.
 */
#include "formats/hf/config.h"
#include "tests/unit/unit.h"

/* text becomes wanted; wanted NULL: it is refused. */
static void check(const char *text, const char *wanted)
{
    ckpt_bytes out = {0};
    int rc = ckpt_hf_config_dtype(&out, text, strlen(text), "float16");

    assert_int_equal(rc, wanted ? CKPT_OK : CKPT_EFORMAT);
    if (wanted) {
        assert_int_equal(out.n, strlen(wanted));
        assert_memory_equal(out.at, wanted, out.n);
    }
    ckpt_vec_free(&out);
}

static void test_stated(void **state)
{
    (void)state;
    check("{\n  \"a\": [1, NaN, {\"dtype\": \"x\"}],\n  \"dtype\": \"bfloat16\",\n  \"z\": "
          "1e-05\n}\n",
          "{\n  \"a\": [1, NaN, {\"dtype\": \"x\"}],\n  \"dtype\": \"float16\",\n  \"z\": "
          "1e-05\n}\n");
    check("{\"torch_dtype\":\"bfloat16\"}", "{\"torch_dtype\":\"float16\"}");
    check("{\"torch_dtype\": null, \"dtype\" : \"float32\"}",
          "{\"torch_dtype\": \"float16\", \"dtype\" : \"float16\"}");
}

/* Configurations of parts have a dtype of their own; quantisation and vocabularies do not. */
static void test_parts(void **state)
{
    (void)state;
    check(
        "{\"text_config\": {\"dtype\": \"bfloat16\", \"x_config\": {\"torch_dtype\": null}},"
        " \"quantization_config\": {\"dtype\": \"int8\"}, \"vocabulary_map\": {\"dtype\": 7,"
        " \"torch_dtype\": \"q\"}, \"dtype\": \"bfloat16\"}",
        "{\"text_config\": {\"dtype\": \"float16\", \"x_config\": {\"torch_dtype\": \"float16\"}},"
        " \"quantization_config\": {\"dtype\": \"int8\"}, \"vocabulary_map\": {\"dtype\": 7,"
        " \"torch_dtype\": \"q\"}, \"dtype\": \"float16\"}");
}

static void test_not_stated(void **state)
{
    (void)state;
    check("{\n  \"a\": 1\n}\n", "{\n  \"dtype\": \"float16\",\n  \"a\": 1\n}\n");
    check("{}", "{\n  \"dtype\": \"float16\"\n}");
    check(" { \"t_config\": {\"dtype\": \"bfloat16\"}}",
          " {\n  \"dtype\": \"float16\", \"t_config\": {\"dtype\": \"float16\"}}");
    // words inside strings are no members, and a dtype that is an object is not one name
    check("{\"a\": \"\\\"dtype\\\": \\\"x\\\"\", \"b\": [\"dtype\", \"x\"]}",
          "{\n  \"dtype\": \"float16\",\"a\": \"\\\"dtype\\\": \\\"x\\\"\", \"b\": [\"dtype\", "
          "\"x\"]}");
}

/* Keys mean what Python reads, however they are spelt. */
static void test_spelling(void **state)
{
    (void)state;
    check(
        "{\"d\\u0074ype\":\"bfloat16\",\r\n\"text\\u005fconfig\" : {\"torch_dt\\u0079pe\"\t:null}}",
        "{\"d\\u0074ype\":\"float16\",\r\n\"text\\u005fconfig\" : "
        "{\"torch_dt\\u0079pe\"\t:\"float16\"}}");
    check("{\"dtype\": \"a\", \"dtype\": \"b\"}",
          "{\"dtype\": \"float16\", \"dtype\": \"float16\"}");
    check("{\"xdtype\": \"a\", \"dtyp\\u0165\": \"b\", \"dtype\\n\": \"c\", \"\\u64\": 1}",
          "{\n  \"dtype\": \"float16\",\"xdtype\": \"a\", \"dtyp\\u0165\": \"b\", "
          "\"dtype\\n\": \"c\", \"\\u64\": 1}");
}

/* One dtype for each part. */
static void test_dtype_object(void **state)
{
    (void)state;
    check(
        "{\"dtype\": {\"\": \"bfloat16\", \"vision_config\": {\"x\": null}}, \"a\": \"b\"}",
        "{\"dtype\": {\"\": \"float16\", \"vision_config\": {\"x\": \"float16\"}}, \"a\": \"b\"}");
    check("{\"dtype\": {}}", "{\"dtype\": {}}");
    check("{\"dtype\": 7}", NULL);
    check("{\"dtype\": [\"bfloat16\"]}", NULL);
    check("{\"dtype\": {\"a\": true}}", NULL);
}

static void test_refused(void **state)
{
    static const char *const bad[] = {"",         "[]",     "\"dtype\"", "{",     "{\"a\"",
                                      "{\"a\\",   "{]",     "}",         "{} {}", "{\"a\": [}",
                                      "{} \"a\"", "{a: 1}", "1"};

    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        check(bad[i], NULL);
    char deep[200];
    memset(deep, '[', sizeof deep);
    memcpy(deep, "{\"a\":", 5);
    deep[sizeof deep - 1] = '\0';
    check(deep, NULL);
}

/* A member is set to a value; wanted NULL: there is none that was `old`. */
static void check_set(const char *key, const char *old, const char *text, const char *wanted)
{
    const ckpt_hf_member m = {.key = key, .value = "96", .old = old};
    ckpt_bytes out = {0};
    int rc = ckpt_hf_config_set(&out, text, strlen(text), &m);

    assert_int_equal(rc, wanted ? CKPT_OK : CKPT_EMISSING);
    if (wanted) {
        assert_int_equal(out.n, strlen(wanted));
        assert_memory_equal(out.at, wanted, out.n);
    }
    ckpt_vec_free(&out);
}

/* Another member than the dtype: by its old value, or put in where there is none. */
static void test_set(void **state)
{
    (void)state;
    check_set("vocab_size", "84", "{\"vocab_size\": 84, \"x\": {\"vocab_size\": 84}}",
              "{\"vocab_size\": 96, \"x\": {\"vocab_size\": 84}}");
    check_set("vocab_size", "84",
              "{\"text_config\": {\"vocab_size\":84}, \"audio_config\": {\"vocab_size\": 841}}",
              "{\"text_config\": {\"vocab_size\":96}, \"audio_config\": {\"vocab_size\": 841}}");
    check_set("vocab_size", "84", "{\"vocab_size\": 85, \"dtype\": 84}", NULL);
    check_set("tied", NULL, "{\"a\": \"tied\", \"tied\": true}", "{\"a\": \"tied\", \"tied\": 96}");
    check_set("tied", NULL, "{}", "{\n  \"tied\": 96\n}");
    check_set("tied", NULL, "{ \"t_config\": {\"tied\": null}}",
              "{\n  \"tied\": 96, \"t_config\": {\"tied\": 96}}");
    // keys that are longer than other keys of transformers, and have the same end
    check_set("encoder_decoder_position_embedding_count", NULL,
              "{\"decoder_decoder_position_embedding_count\": 1, "
              "\"\\u0065ncoder_decoder_position_embedding_count\": 2}",
              "{\"decoder_decoder_position_embedding_count\": 1, "
              "\"\\u0065ncoder_decoder_position_embedding_count\": 96}");
}

/* A member is left out, in the configurations of parts, too; wanted NULL: the text is refused. */
static void test_drop(void **state)
{
    static const struct {
        const char *text, *wanted;
    } cases[] = {
        {"{\"q\": {\"bits\": 4}, \"a\": 1}", "{\"a\": 1}"},
        {"{\"a\": 1, \"q\": [1, 2]}", "{\"a\": 1}"},
        {"{\"a\": 1, \"q\": null, \"b\": 2}", "{\"a\": 1, \"b\": 2}"},
        {"{\"q\": 1}", "{}"},
        {"{\"text_config\": {\"q\": 1, \"a\": 2}, \"b\": {\"q\": 3}}",
         "{\"text_config\": {\"a\": 2}, \"b\": {\"q\": 3}}"},
        {"{\"a\": \"q\"}", "{\"a\": \"q\"}"},
        {"{}", "{}"},
        {"[]", NULL},
        {"{\"q\": 1", NULL},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        ckpt_bytes out = {0};
        int rc = ckpt_hf_config_drop(&out, cases[i].text, strlen(cases[i].text), "q");

        if (rc != (cases[i].wanted ? CKPT_OK : CKPT_EFORMAT))
            fail_msg("%s: %d", cases[i].text, rc);
        if (cases[i].wanted &&
            (out.n != strlen(cases[i].wanted) || memcmp(out.at, cases[i].wanted, out.n) != 0))
            fail_msg("%s became %.*s", cases[i].text, (int)out.n, (const char *)out.at);
        ckpt_vec_free(&out);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_stated),       cmocka_unit_test(test_parts),
        cmocka_unit_test(test_not_stated),   cmocka_unit_test(test_spelling),
        cmocka_unit_test(test_dtype_object), cmocka_unit_test(test_refused),
        cmocka_unit_test(test_set),          cmocka_unit_test(test_drop),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
