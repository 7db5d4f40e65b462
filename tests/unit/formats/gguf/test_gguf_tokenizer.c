/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_gguf_tokenizer.c: tokenizers of a model's folder as keys of GGUF, and those refused.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/gguf/model.h"
#include "tests/unit/libckpt/help.h"

#define SPACE "\xe2\x96\x81" /* SentencePiece's sign for a blank */

/* ---- SentencePiece models ---- */

/* A protobuf message. */
typedef struct message {
    char at[4096];
    size_t n;
} message;

static void put(message *m, const void *p, size_t n)
{
    assert_true(m->n + n <= sizeof m->at);
    memcpy(m->at + m->n, p, n);
    m->n += n;
}

static void put_byte(message *m, unsigned b)
{
    put(m, &(uint8_t){(uint8_t)b}, 1);
}

/* A piece with its text (NULL: none), score and type (0: none); all are shorter than 128 bytes. */
static void put_piece(message *m, const char *text, float score, unsigned type)
{
    message piece = {.n = 0};

    if (text) {
        put_byte(&piece, 1 << 3 | 2);
        put_byte(&piece, (unsigned)strlen(text));
        put(&piece, text, strlen(text));
    }
    put_byte(&piece, 2 << 3 | 5);
    put(&piece, &score, sizeof score);
    if (type) {
        put_byte(&piece, 3 << 3 | 0);
        put_byte(&piece, type);
    }
    put_byte(m, 1 << 3 | 2);
    put_byte(m, (unsigned)piece.n);
    put(m, piece.at, piece.n);
}

static int spm(ckpt_gguf_tokens *out, const char *bytes, size_t n)
{
    *out = (ckpt_gguf_tokens){0};
    return ckpt_gguf_spm(out, "tokenizer.model", bytes, n, NULL);
}

static void reads_pieces(void **state)
{
    message m = {.n = 0};
    ckpt_gguf_tokens t;

    (void)state;
    put_piece(&m, "<unk>", 0, 2);
    put(&m, "\x12\x03zzz", 5); // another field, which is skipped
    put_piece(&m, SPACE "the", -1.5f, 0);
    put(&m, "\x18\x96\x01", 3); // a varint of two bytes
    put(&m,
        "\x21"
        "01234567"
        "\x2d"
        "0123",
        14); // fields of 8 and 4 bytes
    put_piece(&m, "<user>", -2, 4);
    put_piece(&m, NULL, -3, 6);
    assert_int_equal(spm(&t, m.at, m.n), CKPT_OK);
    assert_int_equal(t.n, 4);
    assert_int_equal(t.at[0].type, 2);
    assert_int_equal(t.at[1].type, 1); // the default
    assert_int_equal(t.at[1].n, 6);
    assert_memory_equal(t.at[1].text, SPACE "the", 6);
    assert_true(t.at[1].score == -1.5f);
    assert_int_equal(t.at[2].type, 1); // user-defined pieces become normal
    assert_int_equal(t.at[3].type, 6);
    assert_int_equal(t.at[3].n, 0);
    ckpt_vec_free(&t);
}

static void refuses_pieces(void **state)
{
    static const struct {
        const char *bytes;
        size_t n;
    } cases[] = {
        {"", 0},
        {"\x12\x00", 2}, // no piece
        {"\x0a", 1},     // no length
        {"\x0a\x05"
         "abc",
         5},                                                      // shorter than its length
        {"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", 11},     // 2^64 - 1 bytes
        {"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", 12}, // a number beyond 64 bits
        {"\x0b\x00", 2},         // a wire type that protobuf has dropped
        {"\x0f\x00", 2},         // one that it never had
        {"\x0a\x02\x18\x07", 4}, // a type beyond 6
        {"\x0a\x02\x18\x00", 4},
        {"\x0a\x03\x0a\x01\xff", 5}, // not UTF-8
        {"\x0a\x03\x0a\x05"
         "a",
         5},                         // the text is longer than its piece
        {"\x0a\x03\x15\x00\x00", 5}, // a score that is cut
        {"\x09"
         "0123456",
         8},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        ckpt_gguf_tokens t;

        if (spm(&t, cases[i].bytes, cases[i].n) != CKPT_EFORMAT)
            fail_msg("case %zu", i);
        ckpt_vec_free(&t);
    }
}

/* ---- folders ---- */

typedef struct folder {
    char path[FOLDER_PATH];
    ckpt_map *to, *from;
    ckpt_err err;
} folder;

/* A folder of a model with this number of rows in its embedding; 0: none. */
static void open_folder(folder *f, uint64_t rows)
{
    const uint64_t shape[] = {rows, 4};
    const ckpt_tensor like = {.dtype = CKPT_F32, .ndim = 2, .shape = shape};
    ckpt_tensor *t;

    *f = (folder){.to = NULL};
    folder_new(f->path);
    folder_text(f->path, "config.json", "{}");
    assert_int_equal(ckpt_map_create(&f->to, 0, NULL), CKPT_OK);
    assert_int_equal(ckpt_map_create(&f->from, 0, NULL), CKPT_OK);
    f->from->path = f->path;
    if (rows)
        assert_int_equal(ckpt_map_add(f->to, "token_embd.weight", 17, &like, &t, NULL), CKPT_OK);
}

static int run(folder *f)
{
    int rc = ckpt_gguf_tokenizer(f->to, f->from, &f->err);

    assert_int_equal(rc, f->err.code);
    return rc;
}

static void close_folder(folder *f)
{
    ckpt_map_free(f->to);
    ckpt_map_free(f->from);
    folder_remove(f->path);
}

static const ckpt_value *item(const folder *f, const char *key, uint64_t i)
{
    const ckpt_key *k = ckpt_gguf_key(f->to, key);

    assert_non_null(k);
    assert_true(k->list && i < ckpt_value_seq(k->value).n);
    return ckpt_value_seq(k->value).at[i];
}

static void is_token(const folder *f, uint64_t i, const char *text, int type)
{
    const ckpt_value *v = item(f, "tokenizer.ggml.tokens", i);

    if (!ckpt_value_is(v, text))
        fail_msg("token %d is '%s', expected '%s'", (int)i, v->as.text.at, text);
    assert_int_equal(item(f, "tokenizer.ggml.token_type", i)->as.i, type);
}

static bool is_text(const folder *f, const char *key, const char *text)
{
    const ckpt_key *k = ckpt_gguf_key(f->to, key);

    return k && !k->list && ckpt_value_is(k->value, text);
}

#define BPE(vocab, merges)                                                                         \
    "{\"model\": {\"type\": \"BPE\", \"vocab\": {" vocab "}, \"merges\": [" merges "]}}"
#define ABC "\"a\": 0, \"b\": 1, \"ab\": 2"

static void bpe(void **state)
{
    folder f;

    (void)state;
    open_folder(&f, 6);
    folder_text(f.path, "tokenizer.json",
                "{\"added_tokens\": [{\"id\": 3, \"content\": \"<|end|>\"}, "
                "{\"id\": 4, \"content\": \"x" SPACE "y\", \"special\": false}], "
                "\"model\": {\"type\": \"BPE\", \"vocab\": {" ABC "}, \"merges\": [\"a b\"]}}");
    if (run(&f) != CKPT_OK)
        fail_msg("%s", f.err.text);
    assert_true(is_text(&f, "tokenizer.ggml.model", "gpt2"));
    assert_true(is_text(&f, "tokenizer.ggml.pre", "default"));
    is_token(&f, 0, "a", 1);
    is_token(&f, 2, "ab", 1);
    is_token(&f, 3, "<|end|>", 3); // it looks special
    is_token(&f, 4, "x y", 4);     // a user's, with plain blanks
    is_token(&f, 5, "[PAD5]", 5);  // filled up to the model's rows
    assert_true(ckpt_value_is(item(&f, "tokenizer.ggml.merges", 0), "a b"));
    assert_null(ckpt_gguf_key(f.to, "tokenizer.ggml.scores"));
    close_folder(&f);
}

/* Merges as pairs: a blank inside a part becomes another letter. */
static void merges_as_pairs(void **state)
{
    folder f;

    (void)state;
    open_folder(&f, 0);
    folder_text(f.path, "tokenizer.json", BPE("\" \": 0, \"b\": 1, \" b\": 2", "[\" \", \"b\"]"));
    if (run(&f) != CKPT_OK)
        fail_msg("%s", f.err.text);
    assert_true(ckpt_value_is(item(&f, "tokenizer.ggml.merges", 0), "\xc4\xa0 b"));
    close_folder(&f);
}

static void refuses_json(void **state)
{
    static const struct {
        uint64_t rows;
        const char *text;
        int code;
    } cases[] = {
        {0, BPE(ABC, "\"a b\""), CKPT_OK},
        {3, BPE(ABC, "\"a b\""), CKPT_OK},
        {2, BPE(ABC, "\"a b\""), CKPT_EFORMAT}, // more tokens than rows
        {0, "[]", CKPT_EFORMAT},
        {0, "{", CKPT_EFORMAT},
        {0, BPE("", "\"a b\""), CKPT_EFORMAT},
        {0, BPE("\"a\": 0, \"b\": 0", "\"a b\""), CKPT_EFORMAT}, // a number twice
        {0, BPE("\"a\": -1", "\"a b\""), CKPT_EFORMAT},
        {0, BPE("\"a\": 1.5", "\"a b\""), CKPT_EFORMAT},
        {0, BPE("\"a\": \"0\"", "\"a b\""), CKPT_EFORMAT},
        {0, BPE("\"a\": 16777216", "\"a b\""), CKPT_EFORMAT}, // too many tokens
        {0, BPE("\"a\": 9223372036854775807", "\"a b\""), CKPT_EFORMAT},
        {0, BPE(ABC, ""), CKPT_EFORMAT},
        {0, BPE(ABC, "\"ab\""), CKPT_EFORMAT},
        {0, BPE(ABC, "\"a b c\""), CKPT_EFORMAT},
        {0, BPE(ABC, "\" b\""), CKPT_EFORMAT},
        {0, BPE(ABC, "\"a \""), CKPT_EFORMAT},
        {0, BPE(ABC, "\"a c\""), CKPT_EFORMAT}, // unknown: a part, the whole
        {0, BPE(ABC, "\"b a\""), CKPT_EFORMAT},
        {0, BPE(ABC, "[\"a\"]"), CKPT_EFORMAT},
        {0, BPE(ABC, "[\"a\", \"b\", \"a\"]"), CKPT_EFORMAT},
        {0, BPE(ABC, "[\"a\", 1]"), CKPT_EFORMAT},
        {0, BPE(ABC, "[\"\", \"b\"]"), CKPT_EFORMAT},
        {0, BPE(ABC, "1"), CKPT_EFORMAT},
        {0, "{\"model\": {\"type\": \"Unigram\"}}", CKPT_EUNSUPPORTED},
        {0, "{\"model\": {\"type\": 1}}", CKPT_EUNSUPPORTED},
        {0, "{\"model\": {\"type\": \"WordPiece\", \"vocab\": {\"a\": 0}}}", CKPT_EFORMAT},
        {0, "{\"model\": {\"type\": \"WordPiece\", \"vocab\": {\"[UNK]\": 0}}}", CKPT_OK},
        {0, "{\"added_tokens\": {}, \"model\": {\"type\": \"BPE\", \"vocab\": {\"a\": 0}}}",
         CKPT_EFORMAT},
        {0,
         "{\"added_tokens\": [{\"id\": 1}], \"model\": {\"type\": \"BPE\", \"vocab\": "
         "{\"a\": 0}}}",
         CKPT_EFORMAT},
        {0,
         "{\"added_tokens\": [{\"content\": \"a\"}], \"model\": {\"type\": \"BPE\", "
         "\"vocab\": {\"a\": 0}}}",
         CKPT_EFORMAT},
        {0, "{}", CKPT_OK}, // no tokenizer
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        folder f;

        open_folder(&f, cases[i].rows);
        folder_text(f.path, "tokenizer.json", cases[i].text);
        if (run(&f) != cases[i].code)
            fail_msg("%s: %d (%s)", cases[i].text, f.err.code, f.err.text);
        close_folder(&f);
    }
}

/* A model with more rows than a file may have tokens. */
static void refuses_rows(void **state)
{
    folder f;

    (void)state;
    open_folder(&f, (UINT64_C(1) << 24) + 1);
    folder_text(f.path, "tokenizer.json", BPE(ABC, "\"a b\""));
    assert_int_equal(run(&f), CKPT_EFORMAT);
    close_folder(&f);
}

/* BPE with byte_fallback was made from SentencePiece: scores fall, and bytes have their own type. */
static void spm_as_json(void **state)
{
    folder f;

    (void)state;
    open_folder(&f, 0);
    folder_text(f.path, "tokenizer.json",
                "{\"added_tokens\": [{\"id\": 3, \"content\": \"</s>\", \"special\": true}], "
                "\"model\": {\"type\": \"BPE\", \"byte_fallback\": true, \"unk_token\": \"<unk>\", "
                "\"vocab\": {\"<unk>\": 0, \"<0x1F>\": 1, \"a\": 2}, \"merges\": []}}");
    if (run(&f) != CKPT_OK)
        fail_msg("%s", f.err.text);
    assert_true(is_text(&f, "tokenizer.ggml.model", "llama"));
    is_token(&f, 0, "<unk>", 2);
    is_token(&f, 1, "<0x1F>", 6);
    is_token(&f, 2, "a", 1);
    is_token(&f, 3, "</s>", 3);
    for (unsigned i = 0; i < 4; i++)
        assert_true(item(&f, "tokenizer.ggml.scores", i)->as.f == -(double)i);
    close_folder(&f);
}

/* A SentencePiece model with tokens added beside it; those beyond the model's rows are left out. */
static void spm_with_added(void **state)
{
    message m = {.n = 0};
    folder f;

    (void)state;
    put_piece(&m, "<unk>", 0, 2);
    put_piece(&m, "a", -1, 1);
    for (uint64_t rows = 0; rows <= 5; rows++) {
        open_folder(&f, rows);
        folder_write(folder_at(f.path, "tokenizer.model"), m.at, m.n);
        folder_text(f.path, "added_tokens.json", "{\"<user>\": 2}");
        folder_text(f.path, "tokenizer_config.json",
                    "{\"added_tokens_decoder\": {\"3\": {\"content\": \"<|x|>\"}}}");
        if (run(&f) != CKPT_OK)
            fail_msg("%s", f.err.text);
        uint64_t n = ckpt_value_seq(ckpt_gguf_key(f.to, "tokenizer.ggml.tokens")->value).n;
        assert_int_equal(n, rows ? rows : 4);
        is_token(&f, 0, "<unk>", 2);
        if (n > 2)
            is_token(&f, 2, "<user>", 4);
        if (n > 3)
            is_token(&f, 3, "<|x|>", 3);
        if (n > 2)
            assert_true(item(&f, "tokenizer.ggml.scores", 2)->as.f == -1000);
        close_folder(&f);
    }
    open_folder(&f, 0);
    folder_write(folder_at(f.path, "tokenizer.model"), m.at, m.n);
    folder_text(f.path, "tokenizer_config.json",
                "{\"added_tokens_decoder\": {\"3x\": {\"content\": \"a\"}}}");
    assert_int_equal(run(&f), CKPT_EFORMAT);
    close_folder(&f);
}

/* vocab.txt: a word a line, with the line ends of Unix or of Windows. */
static void words(void **state)
{
    static const char *const texts[] = {"[PAD]\n[UNK]\nhi\n##ng\n[unused1]\n",
                                        "[PAD]\r\n[UNK]\r\nhi\r\n##ng\r\n[unused1]\r\n",
                                        "[PAD]\n[UNK]\nhi\n##ng\n[unused1]"};

    (void)state;
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        folder f;

        open_folder(&f, 0);
        folder_text(f.path, "vocab.txt", texts[i]);
        if (run(&f) != CKPT_OK)
            fail_msg("%s", f.err.text);
        assert_true(is_text(&f, "tokenizer.ggml.model", "bert"));
        is_token(&f, 0, "[PAD]", 3);
        is_token(&f, 1, "[UNK]", 3);
        is_token(&f, 2, SPACE "hi", 1);
        is_token(&f, 3, "ng", 1);
        assert_int_equal(ckpt_value_seq(ckpt_gguf_key(f.to, "tokenizer.ggml.tokens")->value).n, 5);
        close_folder(&f);
    }
}

static void refuses_words(void **state)
{
    static const char *const texts[] = {"", "hi\n", "[UNK]\n\xff\n", "[UNK] \n"};

    (void)state;
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        folder f;

        open_folder(&f, 0);
        folder_text(f.path, "vocab.txt", texts[i]);
        if (run(&f) != CKPT_EFORMAT)
            fail_msg("case %zu: %d", i, f.err.code);
        close_folder(&f);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_pieces), cmocka_unit_test(refuses_pieces),
        cmocka_unit_test(bpe),          cmocka_unit_test(merges_as_pairs),
        cmocka_unit_test(refuses_json), cmocka_unit_test(refuses_rows),
        cmocka_unit_test(spm_as_json),  cmocka_unit_test(spm_with_added),
        cmocka_unit_test(words),        cmocka_unit_test(refuses_words),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
