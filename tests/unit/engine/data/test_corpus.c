/* SPDX-License-Identifier: Apache-2.0 */
/* test_corpus.c: tests text for language models: joined text, records, labels, refusals. */
#include <sys/stat.h>
#include <unistd.h>

#include "engine/data/data.h"
#include "engine/tokenizer/tokenizer.h"
#include "tests/unit/unit.h"

#define CHATML                                                                                     \
    "{%- for message in messages %}\\n    {{- '<|im_start|>' + message.role }}\\n{%- endfor %}"

static bool packing; /* option of open_text */
static char folder[] = "/tmp/ckpt-corpus-XXXXXX";
static const zt_model_config model = {
    .arch = ZT_GPT2, .class_name = "GPT2LMHeadModel", .vocab = 500, .positions = 4096};

static const char *file(const char *name, const char *text)
{
    static char path[512];
    FILE *f;

    snprintf(path, sizeof path, "%s/%s", folder, name);
    f = fopen(path, "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
    return path;
}

/* Copy a recorded tokenizer into the folder, and write its settings. */
static void tokenizer(const char *name, const char *config)
{
    char from[256];
    char *text = calloc(1, 1 << 20);
    FILE *f;

    snprintf(from, sizeof from, "tests/fixtures/tokenizers/%s.json", name);
    f = fopen(from, "r");
    assert_non_null(f);
    assert_non_null(text);
    assert_true(fread(text, 1, (1 << 20) - 1, f) > 0);
    fclose(f);
    file("tokenizer.json", text);
    file("tokenizer_config.json", config);
    free(text);
}

static int open_text(zt_data **out, const char *name, const char *text, uint64_t seq, ckpt_err *err)
{
    static char vocab[512], path[512];
    zt_data_opts o = {.path = path,
                      .vocab = vocab,
                      .seq = seq,
                      .micro_batch = 2,
                      .world = 1,
                      .evaluate = true,
                      .packing = packing,
                      .model = &model};

    snprintf(vocab, sizeof vocab, "%s/tokenizer.json", folder);
    snprintf(path, sizeof path, "%s", file(name, text));
    *out = NULL;
    return zt_data_open(out, &o, err);
}

static zt_data *open_ok(const char *name, const char *text, uint64_t seq)
{
    zt_data *d;
    ckpt_err err = {0};

    if (open_text(&d, name, text, seq, &err) != CKPT_OK)
        fail_msg("%s", err.text);
    return d;
}

static void refused(const char *name, const char *text, int code, const char *why)
{
    zt_data *d;
    ckpt_err err = {0};

    assert_int_equal(open_text(&d, name, text, 16, &err), code);
    if (!strstr(err.text, why))
        fail_msg("'%s' lacks '%s'", err.text, why);
}

/* Append the tokens of a text. */
static void encode(zt_ids *ids, const char *text, bool special)
{
    char path[512];
    zt_tokenizer *t = NULL;
    ckpt_err err = {0};

    snprintf(path, sizeof path, "%s/tokenizer.json", folder);
    assert_int_equal(zt_tokenizer_open(&t, path, &err), CKPT_OK);
    assert_int_equal(zt_tokenizer_encode(t, (ckpt_text){text, strlen(text)}, special, ids, &err),
                     CKPT_OK);
    zt_tokenizer_free(t);
}

static void put(zt_ids *ids, int32_t id)
{
    *ckpt_vec_push(ids) = id;
}

/* Compare samples of joined text with tokens. */
static void same(zt_data *d, const zt_ids *want, uint64_t seq)
{
    zt_batch b;
    ckpt_err err = {0};

    assert_int_equal(zt_data_count(d), want->n / seq);
    for (uint64_t i = 0; i < want->n / seq; i += 2) {
        assert_int_equal(zt_data_batch(d, i / 2, &b, &err), CKPT_OK);
        assert_int_equal(b.seq, seq);
        assert_null(b.attention_mask);
        assert_memory_equal(b.input_ids, want->at + i * seq, b.batch * seq * 4);
        assert_memory_equal(b.labels, want->at + i * seq, b.batch * seq * 4);
    }
}

static void test_lines(void **state)
{
    zt_data *d;
    zt_ids want = {0};

    (void)state;
    tokenizer("llama3", "{\"eos_token\": {\"content\": \"<|endoftext|>\"}}");
    d = open_ok("a.txt", "\xef\xbb\xbfThe quick fox.\r\n\n  x == 12345\nlast", 5);
    // each line has the begin token of the post-processor; the end token is at the end alone;
    // a byte order mark is no part of the text
    encode(&want, "The quick fox.\n", true);
    encode(&want, "\n", true);
    encode(&want, "  x == 12345\n", true);
    encode(&want, "last", true);
    encode(&want, "<|endoftext|>", false);
    same(d, &want, 5);
    zt_data_free(d);
    want.n = 0;
    d = open_ok("a.jsonl",
                "\xef\xbb\xbf{\"text\": \"The quick\\nfox.\"}\n\n{\"text\": \"b\", \"id\": 1}\r\n",
                3);
    encode(&want, "The quick\nfox.", true);
    encode(&want, "<|endoftext|>", false);
    encode(&want, "b", true);
    encode(&want, "<|endoftext|>", false);
    same(d, &want, 3);
    zt_data_free(d);
    ckpt_vec_free(&want);
}

/* Text that is longer than the buffers of lines and tokens. */
static void test_long(void **state)
{
    const size_t n = 300000;
    char *text = calloc(1, n + 1);
    zt_data *d;
    zt_ids want = {0};

    (void)state;
    assert_non_null(text);
    for (size_t i = 0; i < n; i++)
        text[i] = i % 100003 == 100002 ? '\n' : "the quick brown 12 "[i % 19];
    tokenizer("gpt2", "{\"eos_token\": \"<|endoftext|>\"}");
    d = open_ok("a.txt", text, 64);
    for (char *at = text, *end; *at; at = end) {
        const char *stop = strchr(at, '\n');
        char keep;
        end = stop ? at + (stop - at) + 1 : at + strlen(at);
        keep = *end;
        *end = 0;
        encode(&want, at, true);
        *end = keep;
    }
    put(&want, 0);
    same(d, &want, 64);
    zt_data_free(d);
    ckpt_vec_free(&want);
    free(text);
}

/* Expect one record whose tokens are those of `text`, with labels for those of `answer`. */
static void answer(zt_data *d, uint64_t row, const zt_ids *want, size_t from, size_t to)
{
    zt_batch b;
    ckpt_err err = {0};

    assert_int_equal(zt_data_batch(d, 0, &b, &err), CKPT_OK);
    for (size_t i = 0; i < b.seq; i++) {
        const size_t at = row * b.seq + i;

        assert_int_equal(b.attention_mask[at], i < want->n);
        assert_int_equal(b.input_ids[at], i < want->n ? want->at[i] : 0);
        assert_int_equal(b.labels[at], i >= from && i < to ? want->at[i] : ZT_IGNORE);
    }
}

static void test_instructions(void **state)
{
    static const char asked[] =
        "Below is an instruction that describes a task, paired with an input that provides further "
        "context. Write a response that appropriately completes the request.\n\n### "
        "Instruction:\nAdd.\n\n### Input:\n1 2\n\n### Response:";
    static const char bare[] =
        "Below is an instruction that describes a task. Write a response that appropriately "
        "completes the request.\n\n### Instruction:\nSay é.\n\n### Response:";
    zt_data *d;
    zt_ids want = {0};
    size_t from;

    (void)state;
    tokenizer("llama3", "{\"eos_token\": \"<|endoftext|>\"}");
    d = open_ok("a.jsonl",
                "{\"instruction\": \"Add.\", \"input\": \"1 2\", \"output\": \"3\"}\n"
                "{\"instruction\": \"Say é.\", \"input\": \"\", \"output\": \" é\"}\n",
                400);
    assert_int_equal(zt_data_count(d), 2);
    encode(&want, asked, true);
    from = want.n;
    encode(&want, "3", false);
    encode(&want, "<|endoftext|>", false);
    answer(d, 0, &want, from, want.n);
    want.n = 0;
    encode(&want, bare, true);
    from = want.n;
    encode(&want, " é", false);
    encode(&want, "<|endoftext|>", false);
    answer(d, 1, &want, from, want.n);
    zt_data_free(d);
    ckpt_vec_free(&want);
}

/* The same records joined: no padding, and labels of answers only. */
static void test_packing(void **state)
{
    static const char text[] = "{\"instruction\": \"Add.\", \"output\": \"3\"}\n"
                               "{\"instruction\": \"Say.\", \"output\": \"é\"}\n";
    zt_data *one, *all;
    zt_batch a, b;
    ckpt_err err = {0};
    int32_t *ids = calloc(1000, 4), *labels = calloc(1000, 4);
    size_t n = 0;

    (void)state;
    assert_true(ids && labels);
    tokenizer("llama3", "{\"eos_token\": {\"content\": \"<|endoftext|>\"}}");
    one = open_ok("a.jsonl", text, 400);
    assert_int_equal(zt_data_batch(one, 0, &a, &err), CKPT_OK);
    for (size_t i = 0; i < a.batch * a.seq; i++) {
        ids[n] = a.input_ids[i];
        labels[n] = a.labels[i];
        n += a.attention_mask[i] != 0;
    }
    packing = true;
    all = open_ok("a.jsonl", text, n / 2);
    packing = false;
    assert_int_equal(zt_data_count(all), 2);
    assert_int_equal(zt_data_batch(all, 0, &b, &err), CKPT_OK);
    assert_null(b.attention_mask);
    assert_memory_equal(b.input_ids, ids, n / 2 * 8);
    assert_memory_equal(b.labels, labels, n / 2 * 8);
    zt_data_free(one);
    zt_data_free(all);
    free(ids);
    free(labels);
}

static void test_messages(void **state)
{
    zt_data *d;
    zt_ids want = {0};
    size_t from;

    (void)state;
    tokenizer("qwen2",
              "{\"eos_token\": \"<|im_end|>\", \"chat_template\": \"{% for message in messages %}"
              "{{'<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + "
              "'\\n'}}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}"
              "{% endif %}\"}");
    d = open_ok("a.jsonl",
                "{\"messages\": [{\"role\": \"user\", \"content\": \"Hi\"}, {\"role\": "
                "\"assistant\", \"content\": \"Hello you\"}]}\n",
                200);
    encode(&want, "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n", false);
    from = want.n;
    encode(&want, "Hello you<|im_end|>", false);
    encode(&want, "\n", false);
    answer(d, 0, &want, from, want.n - 1);
    zt_data_free(d);
    ckpt_vec_free(&want);
}

static void test_refused(void **state)
{
    (void)state;
    tokenizer("gpt2", "{\"eos_token\": \"<|endoftext|>\"}");
    refused("a.txt", "a", CKPT_EFORMAT, "its 2 tokens do not fill a sample of 16");
    refused("a.txt", "", CKPT_EFORMAT, "its 0 tokens");
    refused("a.txt", "ok\nbad \xff\n", CKPT_EFORMAT, "a.txt: line 2: a text is not UTF-8");
    refused("a.jsonl", "[1]\n", CKPT_EFORMAT, "line 1: expected an object with \"text\"");
    refused("a.jsonl", "{\"text\": 1}\n", CKPT_EFORMAT, "line 1: expected an object");
    refused("a.jsonl", "{\"text\": \"x\"\n", CKPT_EFORMAT, "line 1: ");
    refused("a.jsonl", "{\"text\": \"x\"}\n{\"instruction\": \"x\", \"output\": \"y\"}\n",
            CKPT_EFORMAT, "line 2: records with \"text\" and with answers");
    refused("a.jsonl", "{\"instruction\": \"x\", \"output\": \"y\"}\n", CKPT_EFORMAT,
            "no record has an answer within --seq 16");
    refused("a.jsonl", "{\"messages\": []}\n", CKPT_EUNSUPPORTED, "need a chat template");
    tokenizer("gpt2", "{\"eos_token\": \"<|endoftext|>\", \"chat_template\": \"" CHATML "\"}");
    refused("a.jsonl", "{\"messages\": []}\n", CKPT_EUNSUPPORTED, "is not one of those");
    tokenizer("gpt2", "{}");
    refused("a.txt", "a", CKPT_EMISSING, "does not name the token that ends a text");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_lines),    cmocka_unit_test(test_long),
        cmocka_unit_test(test_messages), cmocka_unit_test(test_instructions),
        cmocka_unit_test(test_packing),  cmocka_unit_test(test_refused),
    };

    assert_non_null(mkdtemp(folder));
    return cmocka_run_group_tests(tests, NULL, NULL);
}
