/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_tokenizer.c: tests encoding against numbers that Hugging Face's `tokenizers` gave, and
 * refusals.  tests/interop/tokenizers_equal.py --record made tests/fixtures/tokenizers.
 */
#define _GNU_SOURCE /* mkstemps */
#include <unistd.h>

#include "engine/tokenizer/tokenizer.h"
#include "libckpt/codec/json/json.h"
#include "tests/unit/unit.h"

#define FIXTURES "tests/fixtures/tokenizers/"

static zt_tokenizer *open_ok(const char *path)
{
    zt_tokenizer *t = NULL;
    ckpt_err err = {0};

    if (zt_tokenizer_open(&t, path, &err) != CKPT_OK)
        fail_msg("%s", err.text);
    return t;
}

/* Compare the tokens of all recorded texts. */
static void compare(const char *name)
{
    ckpt_arena *arena = ckpt_arena_new(0);
    ckpt_value *texts = NULL;
    ckpt_err err = {0};
    char path[256], line[1 << 14];
    zt_ids ids = {0};
    zt_tokenizer *t;
    FILE *f;

    assert_int_equal(ckpt_json_read(&texts, arena, FIXTURES "texts.json", 1 << 20, &err), CKPT_OK);
    snprintf(path, sizeof path, FIXTURES "%s%s", name, strchr(name, '.') ? "" : ".json");
    t = open_ok(path);
    snprintf(path, sizeof path, FIXTURES "%.*s.ids", (int)strcspn(name, "."), name);
    f = fopen(path, "r");
    assert_non_null(f);
    for (uint64_t i = 0; i < texts->as.seq.n; i++) {
        char *at = fgets(line, sizeof line, f);

        assert_non_null(at);
        if (*at == '\n') // not recorded
            continue;
        ids.n = 0;
        if (zt_tokenizer_encode(t, texts->as.seq.at[i]->as.text, true, &ids, &err) != CKPT_OK)
            fail_msg("%s", err.text);
        for (size_t k = 0; k < ids.n; k++) {
            int32_t want = (int32_t)strtol(at, &at, 10);

            if (ids.at[k] != want)
                fail_msg("%s, text %d, token %d: %d, not %d", name, (int)i, (int)k, (int)ids.at[k],
                         (int)want);
        }
        assert_string_equal(at, "\n");
    }
    fclose(f);
    ckpt_vec_free(&ids);
    zt_tokenizer_free(t);
    ckpt_arena_free(arena);
}

static void test_recorded(void **state)
{
    (void)state;
    compare("gpt2");
    compare("llama3");
    compare("qwen2");
    compare("llama2");
    compare("mistral");
    compare("unigram");
    compare("spm.model");
}

/* Compare the texts of recorded tokens. */
static void test_decoded(void **state)
{
    ckpt_arena *arena = ckpt_arena_new(0);
    ckpt_value *all = NULL;
    ckpt_err err = {0};
    char path[256];

    (void)state;
    assert_int_equal(ckpt_json_read(&all, arena, FIXTURES "decoded.json", 1 << 20, &err), CKPT_OK);
    assert_int_equal(all->as.map.n, 6);
    for (uint64_t i = 0; i < all->as.map.n; i++) {
        const char *name = all->as.map.at[i].key->as.text.at;
        const ckpt_seq list = ckpt_value_seq(all->as.map.at[i].value);
        zt_tokenizer *t;

        snprintf(path, sizeof path, FIXTURES "%s.json", name);
        t = open_ok(path);
        assert_true(list.n > 0);
        for (uint64_t k = 0; k < list.n; k++) {
            const ckpt_seq given = ckpt_value_seq(ckpt_value_get(list.at[k], "ids"));
            const ckpt_text want = ckpt_value_get(list.at[k], "text")->as.text;
            int32_t ids[4096];
            ckpt_bytes text = {0};

            assert_true(given.n <= 4096);
            for (uint64_t j = 0; j < given.n; j++)
                ids[j] = (int32_t)given.at[j]->as.i;
            if (zt_tokenizer_decode(t, ids, given.n, &text, &err) != CKPT_OK)
                fail_msg("%s", err.text);
            if (text.n != want.n || (text.n && memcmp(text.at, want.at, text.n) != 0))
                fail_msg("%s, row %d: '%.*s', not '%s'", name, (int)k, (int)text.n,
                         (const char *)text.at, want.at);
            ckpt_vec_free(&text);
        }
        zt_tokenizer_free(t);
    }
    ckpt_arena_free(arena);
}

/* Open a BPE tokenizer with one token, "a", and other parts of its file. */
static int open_parts(zt_tokenizer **t, const char *parts, ckpt_err *err)
{
    char path[] = "/tmp/ckpt-tokenizer-XXXXXX";
    FILE *f = fdopen(mkstemp(path), "w");
    int rc;

    assert_non_null(f);
    fprintf(f, "{%s, \"model\": {\"type\": \"BPE\", \"vocab\": {\"a\": 0}, \"merges\": []}}",
            parts);
    fclose(f);
    rc = zt_tokenizer_open(t, path, err);
    remove(path);
    return rc;
}

/* A tokenizer that can encode alone. */
static void no_text(const char *parts, int code, const char *why)
{
    zt_tokenizer *t = NULL;
    ckpt_bytes text = {0};
    ckpt_err err = {0};

    assert_int_equal(open_parts(&t, parts, &err), CKPT_OK);
    assert_int_equal(zt_tokenizer_decode(t, (int32_t[]){0}, 1, &text, &err), code);
    if (!strstr(err.text, why))
        fail_msg("'%s' lacks '%s'", err.text, why);
    ckpt_vec_free(&text);
    zt_tokenizer_free(t);
}

/* A decoder of an unknown kind is refused only where tokens become text. */
static void test_other_decoder(void **state)
{
    (void)state;
    no_text("\"decoder\": {\"type\": \"CTC\"}", CKPT_EUNSUPPORTED,
            "decoder (CTC) is not supported");
    no_text("\"pre_tokenizer\": {\"type\": \"ByteLevel\"}", CKPT_EUNSUPPORTED,
            "no decoder for its tokens of bytes");
    no_text("\"pre_tokenizer\": {\"type\": \"ByteLevel\"}, \"decoder\": {\"type\": \"Fuse\"}",
            CKPT_EUNSUPPORTED, "decoder (a sequence of steps) is not supported");
}

/* A decoder whose steps double the text n times. */
static char *doubling(int n)
{
    static const char step[] =
        "{\"type\": \"Replace\", \"pattern\": {\"String\": \"a\"}, \"content\": \"aa\"}";
    char *text = malloc((size_t)n * (sizeof step + 1) + 100);
    char *to = text;

    assert_non_null(text);
    to += sprintf(to, "\"decoder\": {\"type\": \"Sequence\", \"decoders\": [");
    for (int i = 0; i < n; i++)
        to += sprintf(to, "%s%s", i ? ", " : "", step);
    sprintf(to, "]}");
    return text;
}

/* A small file cannot make much text of a token. */
static void test_decoder_limits(void **state)
{
    zt_tokenizer *t = NULL;
    ckpt_bytes text = {0};
    ckpt_err err = {0};
    char *parts = doubling(10);

    (void)state;
    assert_int_equal(open_parts(&t, parts, &err), CKPT_OK);
    assert_int_equal(zt_tokenizer_decode(t, (int32_t[]){0}, 1, &text, &err), CKPT_OK);
    assert_int_equal(text.n, 1024);
    ckpt_vec_free(&text);
    zt_tokenizer_free(t);
    free(parts);
    parts = doubling(40);
    no_text(parts, CKPT_ELIMIT, "more than 67108864 bytes");
    free(parts);
    parts = doubling(65);
    t = NULL;
    assert_int_equal(open_parts(&t, parts, &err), CKPT_ELIMIT);
    assert_non_null(strstr(err.text, "more than 64 steps"));
    zt_tokenizer_free(t);
    free(parts);
}

static void test_find(void **state)
{
    zt_tokenizer *t = open_ok(FIXTURES "gpt2.json");
    zt_ids ids = {0};
    ckpt_err err = {0};

    (void)state;
    assert_int_equal(zt_tokenizer_find(t, "<|endoftext|>"), 0);
    assert_int_equal(zt_tokenizer_find(t, "no token"), -1);
    assert_int_equal(zt_tokenizer_encode(t, (ckpt_text){"a\xff", 2}, true, &ids, &err),
                     CKPT_EFORMAT);
    assert_string_equal(err.text, "a text is not UTF-8");
    assert_int_equal(ids.n, 0);
    zt_tokenizer_free(t);
}

/* Expect a tokenizer.json to be refused with a message that contains `why`. */
static void refused(const char *json, int code, const char *why)
{
    char path[] = "/tmp/ckpt-tokenizer-XXXXXX";
    zt_tokenizer *t = NULL;
    ckpt_err err = {0};
    int fd = mkstemp(path);
    FILE *f = fdopen(fd, "w");

    assert_non_null(f);
    for (const char *s = json; *s; s++) // ' for " keeps the tests readable
        fputc(*s == '\'' ? '"' : *s, f);
    fclose(f);
    assert_int_equal(zt_tokenizer_open(&t, path, &err), code);
    if (!strstr(err.text, why))
        fail_msg("'%s' lacks '%s'", err.text, why);
    remove(path);
}

#define BPE "'model': {'type': 'BPE', 'vocab': {'a': 0, 'b': 1, 'ab': 2}, 'merges': "

static void test_refused(void **state)
{
    (void)state;
    refused("[", CKPT_EFORMAT, "JSON");
    refused("{}", CKPT_EUNSUPPORTED, "model without a type is not supported");
    refused("{'model': {'type': 'WordLevel'}}", CKPT_EUNSUPPORTED, "model WordLevel");
    refused("{'normalizer': {'type': 'Nmt'}, " BPE "[]}}", CKPT_EUNSUPPORTED, "normalizer Nmt");
    refused("{'pre_tokenizer': {'type': 'UnicodeScripts'}, " BPE "[]}}", CKPT_EUNSUPPORTED,
            "pre-tokenizer UnicodeScripts");
    refused("{'post_processor': {'type': 'Odd'}, " BPE "[]}}", CKPT_EUNSUPPORTED,
            "post-processor Odd");
    refused("{'pre_tokenizer': {'type': 'Split', 'pattern': {'Regex': '(('}, "
            "'behavior': 'Isolated'}, " BPE "[]}}",
            CKPT_EUNSUPPORTED, "the regular expression '((' is refused");
    refused("{" BPE "['a b', 'ab c']}}", CKPT_EFORMAT, "'ab' and 'c' needs a token");
    refused("{" BPE "[['a']]}}", CKPT_EFORMAT, "not a pair");
    refused("{" BPE "[], 'dropout': 0.1}}", CKPT_EUNSUPPORTED, "dropout");
    refused("{'model': {'type': 'BPE', 'vocab': {'a': -1}, 'merges': []}}", CKPT_EFORMAT,
            "'a' has no number");
    refused("{'added_tokens': [{'id': 5, 'content': 'a'}], " BPE "[]}}", CKPT_EFORMAT,
            "contradicts the vocabulary");
    refused("{'model': {'type': 'Unigram', 'unk_id': 7, 'vocab': [['a', -1.0]]}}", CKPT_EFORMAT,
            "unk_id");
    refused("{'model': {'type': 'Unigram', 'vocab': [['a']]}}", CKPT_EFORMAT, "piece 0");
    refused("{'normalizer': {'type': 'Precompiled', 'precompiled_charsmap': 'AAAA'}, " BPE "[]}}",
            CKPT_EFORMAT, "damaged");
}

/* Expect a tokenizer.model to be refused. */
static void refused_model(const char *bytes, size_t n, int code, const char *why)
{
    char path[] = "/tmp/ckpt-tokenizer-XXXXXX.model";
    zt_tokenizer *t = NULL;
    ckpt_err err = {0};
    int fd = mkstemps(path, 6);

    assert_true(fd >= 0 && write(fd, bytes, n) == (ssize_t)n && close(fd) == 0);
    assert_int_equal(zt_tokenizer_open(&t, path, &err), code);
    if (!strstr(err.text, why))
        fail_msg("'%s' lacks '%s'", err.text, why);
    remove(path);
}

static void test_refused_model(void **state)
{
    (void)state;
    refused_model("", 0, CKPT_EFORMAT, "damaged");
    refused_model("\x0a\x05x", 3, CKPT_EFORMAT, "damaged");
    refused_model("\x0a\x02\x0a\x00", 4, CKPT_EFORMAT, "piece 0 is damaged");
    refused_model("\x0a\x03\x0a\x01x\x0a\x03\x0a\x01x", 10, CKPT_EFORMAT, "is there twice");
    // a word model; white space as a suffix
    refused_model("\x0a\x03\x0a\x01x\x12\x02\x18\x03", 9, CKPT_EUNSUPPORTED, "of kind 3");
    refused_model("\x0a\x03\x0a\x01x\x12\x03\xc0\x01\x01", 10, CKPT_EUNSUPPORTED, "suffix");
    refused_model("\x0a\x03\x0a\x01x\x12\x03\xc0\x02\x05", 10, CKPT_EFORMAT, "unknown piece");
}

/* One word of many symbols: the heap, in less than quadratic time. */
static void test_long_word(void **state)
{
    const size_t n = 1 << 18;
    char *text = malloc(n + 1);
    zt_tokenizer *t = open_ok(FIXTURES "llama2.json");
    zt_ids ids = {0};
    ckpt_err err = {0};

    (void)state;
    assert_non_null(text);
    for (size_t i = 0; i < n; i++)
        text[i] = "the quick brown "[i % 16];
    assert_int_equal(zt_tokenizer_encode(t, (ckpt_text){text, n}, false, &ids, &err), CKPT_OK);
    assert_true(ids.n > n / 16 && ids.n < n);
    ckpt_vec_free(&ids);
    zt_tokenizer_free(t);
    free(text);
}

/* A table of characters that writes "\xf0" for "A": the steps after it expect UTF-8. */
static void test_broken_table(void **state)
{
    zt_tokenizer *t = open_ok(FIXTURES "hostile_charsmap.json");
    zt_ids ids = {0};
    ckpt_err err = {0};

    (void)state;
    assert_int_equal(zt_tokenizer_encode(t, (ckpt_text){"A", 1}, false, &ids, &err), CKPT_EFORMAT);
    assert_non_null(strstr(err.text, "table of characters"));
    ckpt_vec_free(&ids);
    zt_tokenizer_free(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_recorded),      cmocka_unit_test(test_decoded),
        cmocka_unit_test(test_other_decoder), cmocka_unit_test(test_decoder_limits),
        cmocka_unit_test(test_find),          cmocka_unit_test(test_refused),
        cmocka_unit_test(test_refused_model), cmocka_unit_test(test_long_word),
        cmocka_unit_test(test_broken_table),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
