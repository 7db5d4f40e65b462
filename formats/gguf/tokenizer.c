/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tokenizer.c: writes a model folder's tokenizer as keys of GGUF: its kind and its tokens.
 *
 * Three kinds: SentencePiece (tokenizer.model, or a tokenizer.json made from one), byte-level BPE
 * (tokenizer.json) and WordPiece (tokenizer.json or vocab.txt).  Source: llama.cpp's converter, of
 * 2025.  The regular expression that splits text for BPE (tokenizer.ggml.pre) comes from the layout
 * map, because no file of the folder names it.
 */
#include "formats/gguf/tokenizer.h"
#include "libckpt/access/model_folder.h"

#include <assert.h>
#include <inttypes.h>
#include <string.h>

#include "libckpt/base/number.h"
#include "libckpt/codec/json/json.h"

#define GTK_BYTES   (UINT64_C(256) << 20) /* limit of a file in bytes */
#define GTK_SPACE   "\xe2\x96\x81"        /* the character that represents a blank */
#define GTK_UNUSED  5
#define GTK_USER    4
#define GTK_CONTROL 3

enum { GTK_TOKENS = 1 << 24 /* limit of tokens */ };

/* ---- files ---- */

static int gtk_json(ckpt_gguf_tokenizer_work *w, const char *name, const ckpt_value **out)
{
    ckpt_json_text text = {.max = GTK_BYTES};
    ckpt_value *v = NULL;
    char *bytes = NULL;
    int rc;

    *out = NULL;
    if (!ckpt_listing_has(&w->list, name, false))
        return CKPT_OK;
    text.name = ckpt_path_join(w->scratch->arena, w->list.folder, name);
    rc = text.name ? ckpt_io_slurp(&bytes, &text.n, text.name, GTK_BYTES, w->err)
                   : ckpt_fail_memory(w->err);
    text.at = bytes;
    if (rc == CKPT_OK)
        rc = ckpt_json_parse(&v, w->scratch->arena, &text, w->err);
    ckpt_free(bytes);
    *out = v;
    return rc;
}

/* Read a file into the scratch arena. */
static int gtk_bytes(ckpt_gguf_tokenizer_work *w, const char *name, const char **out, uint64_t *n)
{
    const char *path = ckpt_path_join(w->scratch->arena, w->list.folder, name);
    char *bytes = NULL;

    *n = 0;
    int rc = path ? ckpt_io_slurp(&bytes, n, path, GTK_BYTES, w->err) : ckpt_fail_memory(w->err);

    if (rc == CKPT_OK) {
        *out = ckpt_arena_string(w->scratch->arena, bytes, *n);
        rc = *out ? CKPT_OK : ckpt_fail_memory(w->err);
    }
    ckpt_free(bytes);
    return rc;
}

/* ---- tokens ---- */

/* Rows of the model's token embedding, or 0. */
static uint64_t gtk_rows(const ckpt_map *to)
{
    size_t at = ckpt_map_index(to, "token_embd.weight", strlen("token_embd.weight"));

    return at == SIZE_MAX || to->tensors.at[at]->ndim != 2 ? 0 : to->tensors.at[at]->shape[0];
}

/* Grow the list of tokens so that it has number i. */
static int gtk_grow(ckpt_gguf_tokenizer_work *w, uint64_t i)
{
    if (i >= GTK_TOKENS)
        return ckpt_fail(w->err, CKPT_EFORMAT,
                         "%s: token number %" PRIu64 " is too large: at most %d tokens are written",
                         w->list.folder, i, GTK_TOKENS);
    while (w->token.n <= i) {
        ckpt_gguf_token *t = ckpt_vec_push(&w->token);

        if (!t)
            return ckpt_fail_memory(w->err);
        *t = (ckpt_gguf_token){.score = -10000, .type = GTK_UNUSED};
    }
    return CKPT_OK;
}

static int gtk_set(ckpt_gguf_tokenizer_work *w, int64_t i, const ckpt_text *text, unsigned type)
{
    int rc = i < 0 ? ckpt_fail(w->err, CKPT_EFORMAT,
                               "%s: token '%.80s': its number is not a whole number from 0 on",
                               w->list.folder, text->at)
                   : gtk_grow(w, (uint64_t)i);

    if (rc == CKPT_OK) {
        w->token.at[i].text = text->at;
        w->token.at[i].n = text->n;
        w->token.at[i].type = (uint8_t)type;
    }
    return rc;
}

/*
 * True for added tokens that are marked as special or look special, because some models do not mark
 * theirs. Phi-3's SentencePiece tokenizer marks all of them.
 */
static bool gtk_is_special(const ckpt_gguf_tokenizer_work *w, const ckpt_value *added,
                           const ckpt_text *text)
{
    const ckpt_value *special = ckpt_value_get(added, "special");
    const ckpt_key *arch = ckpt_gguf_key(w->to, "general.architecture");
    const char *s = text->at;
    size_t n = (size_t)text->n;

    if (special && special->kind == CKPT_V_BOOL && special->as.i)
        return true;
    if (w->scores && arch && ckpt_value_is(arch->value, "phi3"))
        return false;
    return strcmp(s, "<pad>") == 0 || strcmp(s, "<mask>") == 0 || strcmp(s, "<2mass>") == 0 ||
           strcmp(s, "[@BOS@]") == 0 ||
           (n >= 4 && memcmp(s, "<|", 2) == 0 && memcmp(s + n - 2, "|>", 2) == 0) ||
           (n >= 8 && memcmp(s, "<\xef\xbd\x9c", 4) == 0 &&
            memcmp(s + n - 4, "\xef\xbd\x9c>", 4) == 0) ||
           (n >= 9 && memcmp(s, "<unused", 7) == 0 && s[n - 1] == '>');
}

/* Convert the text of a user-defined token, in which blanks are plain blanks. */
static int gtk_user_text(ckpt_gguf_tokenizer_work *w, ckpt_text *text)
{
    char *out = ckpt_arena_array(w->scratch->arena, text->n + 1, 1);
    uint64_t n = 0;

    if (!out)
        return ckpt_fail_memory(w->err);
    for (uint64_t i = 0; i < text->n; i++) {
        bool space = text->n - i >= 3 && memcmp(text->at + i, GTK_SPACE, 3) == 0;

        out[n++] = space ? ' ' : text->at[i];
        i += space ? 2 : 0;
    }
    out[n] = 0;
    *text = (ckpt_text){out, n};
    return CKPT_OK;
}

/* Add one added token. */
static int gtk_add(ckpt_gguf_tokenizer_work *w, const ckpt_value *added, int64_t number)
{
    const ckpt_value *content = ckpt_value_get(added, "content");
    ckpt_text text;
    bool special;
    int rc = CKPT_OK;

    if (!content || content->kind != CKPT_V_STR)
        return ckpt_fail(w->err, CKPT_EFORMAT, "%s: an added token without content",
                         w->list.folder);
    text = content->as.text;
    special = gtk_is_special(w, added, &text);
    if (!special)
        rc = gtk_user_text(w, &text);
    if (rc == CKPT_OK)
        rc = gtk_set(w, number, &text, special ? GTK_CONTROL : GTK_USER);
    if (rc == CKPT_OK)
        w->token.at[number].score = -1000;
    return rc;
}

/* Warn about an added token that replaces another one of the vocabulary. */
static int gtk_contradicts(ckpt_gguf_tokenizer_work *w, const ckpt_value *added, int64_t number)
{
    const ckpt_value *content = ckpt_value_get(added, "content");
    const ckpt_gguf_token *t =
        number >= 0 && (uint64_t)number < w->token.n ? &w->token.at[number] : NULL;

    if (!t || !t->text || !content || content->kind != CKPT_V_STR ||
        (t->n == content->as.text.n && memcmp(t->text, content->as.text.at, (size_t)t->n) == 0))
        return CKPT_OK;
    return ckpt_map_note(w->to, CKPT_WARNING, w->err,
                         "%s/tokenizer.json: the added token '%.80s' takes number %" PRId64
                         ", which the vocabulary gives to '%.80s'",
                         w->list.folder, content->as.text.at, number, t->text);
}

static int gtk_added(ckpt_gguf_tokenizer_work *w)
{
    const ckpt_value *added = ckpt_value_get(w->tokenizer, "added_tokens");
    const ckpt_seq list = ckpt_value_seq(added);
    int rc = !added || added->kind == CKPT_V_LIST || added->kind == CKPT_V_NONE
                 ? CKPT_OK
                 : ckpt_fail(w->err, CKPT_EFORMAT, "%s/tokenizer.json: added_tokens is not a list",
                             w->list.folder);

    for (uint64_t i = 0; rc == CKPT_OK && i < list.n; i++) {
        int64_t number = -1;

        (void)ckpt_value_as_int(ckpt_value_get(list.at[i], "id"), &number);
        rc = gtk_contradicts(w, list.at[i], number);
        if (rc == CKPT_OK)
            rc = gtk_add(w, list.at[i], number);
    }
    return rc;
}

/* Add a vocabulary {"text": number}. */
static int gtk_vocabulary(ckpt_gguf_tokenizer_work *w, const ckpt_value *vocab)
{
    const ckpt_dict all = ckpt_value_map(vocab);
    int rc = vocab && vocab->kind == CKPT_V_DICT && all.n > 0
                 ? CKPT_OK
                 : ckpt_fail(w->err, CKPT_EFORMAT,
                             "%s/tokenizer.json: its vocabulary is not a dict of tokens",
                             w->list.folder);

    for (uint64_t i = 0; rc == CKPT_OK && i < all.n; i++) {
        const ckpt_text *text = &all.at[i].key->as.text;
        int64_t number = -1;

        (void)ckpt_value_as_int(all.at[i].value, &number);
        if (number >= 0 && (uint64_t)number < w->token.n && w->token.at[number].text)
            rc = ckpt_fail(w->err, CKPT_EFORMAT,
                           "%s/tokenizer.json: '%.80s' and '%.80s' have number %" PRId64,
                           w->list.folder, w->token.at[number].text, text->at, number);
        else
            rc = gtk_set(w, number, text, 1);
    }
    return rc;
}

/* ---- kinds ---- */

static int gtk_spm(ckpt_gguf_tokenizer_work *w)
{
    const ckpt_dict decoder = ckpt_value_map(ckpt_value_get(w->config, "added_tokens_decoder"));
    const ckpt_value *file = NULL;
    const char *bytes;
    uint64_t n;
    int rc = gtk_bytes(w, "tokenizer.model", &bytes, &n);

    w->model = "llama";
    w->scores = true;
    if (rc == CKPT_OK)
        rc = ckpt_gguf_spm(&w->token, "tokenizer.model", bytes, n, w->err);
    if (rc == CKPT_OK)
        rc = gtk_json(w, "added_tokens.json", &file);
    const ckpt_dict extra = ckpt_value_map(file);
    for (uint64_t i = 0; rc == CKPT_OK && i < extra.n; i++) {
        int64_t number = -1;

        (void)ckpt_value_as_int(extra.at[i].value, &number);
        rc = gtk_set(w, number, &extra.at[i].key->as.text, GTK_USER);
        if (rc == CKPT_OK)
            w->token.at[number].score = -1000;
    }
    for (uint64_t i = 0; rc == CKPT_OK && i < decoder.n; i++) {
        const ckpt_text key = decoder.at[i].key->as.text;
        int64_t number = -1;

        rc = ckpt_parse_i64(key.at, &number)
                 ? gtk_add(w, decoder.at[i].value, number)
                 : ckpt_fail(w->err, CKPT_EFORMAT,
                             "tokenizer_config.json: token number '%.40s' is not an "
                             "integer",
                             key.at);
    }
    return rc;
}

/* True for "<0x1F>", which represents a byte. */
static bool gtk_is_byte(const ckpt_gguf_token *t)
{
    return t->n == 6 && memcmp(t->text, "<0x", 3) == 0 && t->text[5] == '>';
}

/* Add a SentencePiece model from tokenizer.json; scores fall with the number of the token. */
static int gtk_spm_json(ckpt_gguf_tokenizer_work *w, const ckpt_value *model)
{
    const ckpt_value *unknown = ckpt_value_get(model, "unk_token");
    int rc = gtk_vocabulary(w, ckpt_value_get(model, "vocab"));

    w->model = "llama";
    w->scores = true;
    for (size_t i = 0; rc == CKPT_OK && i < w->token.n; i++) {
        ckpt_gguf_token *t = &w->token.at[i];

        if (t->text && gtk_is_byte(t))
            t->type = 6;
        t->score = t->text ? -(float)i : t->score;
    }
    if (rc == CKPT_OK)
        rc = gtk_added(w);
    for (size_t i = 0; rc == CKPT_OK && i < w->token.n; i++) {
        ckpt_gguf_token *t = &w->token.at[i];

        t->score = t->text ? -(float)i : t->score;
        if (t->text && unknown && ckpt_value_is(unknown, t->text))
            t->type = 2;
    }
    return rc;
}

static int gtk_bpe(ckpt_gguf_tokenizer_work *w, const ckpt_value *model)
{
    int rc = gtk_vocabulary(w, ckpt_value_get(model, "vocab"));

    w->model = "gpt2";
    w->bpe = model;
    return rc == CKPT_OK ? gtk_added(w) : rc;
}

/* Convert WordPiece texts: words get a leading blank character, and continuations lose their
 * "##". */
static int gtk_phantom(ckpt_gguf_tokenizer_work *w)
{
    for (size_t i = 0; i < w->token.n; i++) {
        ckpt_gguf_token *t = &w->token.at[i];

        if (t->type == GTK_CONTROL || !t->text)
            continue;
        if (t->n >= 2 && memcmp(t->text, "##", 2) == 0) {
            t->text += 2;
            t->n -= 2;
            continue;
        }
        char *out = ckpt_arena_array(w->scratch->arena, t->n + 4, 1);
        if (!out)
            return ckpt_fail_memory(w->err);
        memcpy(out, GTK_SPACE, 3);
        memcpy(out + 3, t->text, (size_t)t->n);
        out[t->n + 3] = 0;
        t->text = out;
        t->n += 3;
    }
    return CKPT_OK;
}

/* Add a vocabulary with one word per line. */
static int gtk_lines(ckpt_gguf_tokenizer_work *w)
{
    const char *s, *end;
    uint64_t n;
    int64_t i = 0;
    int rc = gtk_bytes(w, "vocab.txt", &s, &n);

    for (end = s + n; rc == CKPT_OK && s < end; i++) {
        const char *stop = memchr(s, '\n', (size_t)(end - s));
        ckpt_text text = {s, (uint64_t)((stop ? stop : end) - s)};

        if (text.n && s[text.n - 1] == '\r')
            text.n--;
        bool mark = text.n > 2 && s[0] == '[' && s[text.n - 1] == ']' && s[text.n - 2] >= 'A';
        rc = ckpt_utf8_ok(text.at, text.n)
                 ? gtk_set(w, i, &text, mark ? GTK_CONTROL : 1)
                 : ckpt_fail(w->err, CKPT_EFORMAT, "vocab.txt: line %" PRId64 " is not UTF-8",
                             i + 1);
        s = stop ? stop + 1 : end;
    }
    return rc;
}

/* Check that the token for unknown words is in the vocabulary. */
static int gtk_unknown(const ckpt_gguf_tokenizer_work *w, const ckpt_value *said)
{
    const char *name = said && said->kind == CKPT_V_STR ? said->as.text.at : "[UNK]";

    for (size_t i = 0; i < w->token.n; i++) {
        if (w->token.at[i].text && w->token.at[i].n == strlen(name) &&
            memcmp(w->token.at[i].text, name, strlen(name)) == 0)
            return CKPT_OK;
    }
    return ckpt_fail(w->err, CKPT_EFORMAT,
                     "%s: the vocabulary has no '%.80s', which stands for unknown words",
                     w->list.folder, name);
}

static int gtk_word_piece(ckpt_gguf_tokenizer_work *w, const ckpt_value *model)
{
    int rc = model ? gtk_vocabulary(w, ckpt_value_get(model, "vocab")) : gtk_lines(w);

    w->model = "bert";
    if (rc == CKPT_OK)
        rc = gtk_unknown(w, ckpt_value_get(model, "unk_token"));
    if (rc == CKPT_OK)
        rc = gtk_added(w);
    return rc == CKPT_OK ? gtk_phantom(w) : rc;
}

/* Read the tokenizer; the files and its type decide the kind. */
static int gtk_read(ckpt_gguf_tokenizer_work *w)
{
    const ckpt_value *model = ckpt_value_get(w->tokenizer, "model");
    const ckpt_value *type = ckpt_value_get(model, "type");
    const ckpt_value *fallback = ckpt_value_get(model, "byte_fallback");

    if (ckpt_listing_has(&w->list, "tokenizer.model", false))
        return gtk_spm(w);
    if (type && ckpt_value_is(type, "BPE"))
        return fallback && fallback->kind == CKPT_V_BOOL && fallback->as.i ? gtk_spm_json(w, model)
                                                                           : gtk_bpe(w, model);
    if (type && ckpt_value_is(type, "WordPiece"))
        return gtk_word_piece(w, model);
    if (type)
        return ckpt_fail(w->err, CKPT_EUNSUPPORTED,
                         "%s/tokenizer.json: a tokenizer of type %.40s cannot be written to GGUF; "
                         "--no-side-files leaves it out",
                         w->list.folder, type->kind == CKPT_V_STR ? type->as.text.at : "?");
    if (ckpt_listing_has(&w->list, "vocab.txt", false))
        return gtk_word_piece(w, NULL);
    return CKPT_OK;
}

/* ---- keys ---- */

/* Fill up to the model's number of rows, because llama.cpp compares the numbers. */
static int gtk_fill(ckpt_gguf_tokenizer_work *w)
{
    uint64_t rows = gtk_rows(w->to);
    int rc = CKPT_OK;

    // llama.cpp's converter drops SentencePiece tokens without a row
    if (rows && w->token.n > rows && w->scores) {
        rc = ckpt_map_note(w->to, CKPT_WARNING, w->err,
                           "tokens from number %" PRIu64 " on are left out: the model has no "
                           "rows for them",
                           rows);
        if (rc != CKPT_OK)
            return rc;
        w->token.n = (size_t)rows;
    }
    if (rows && w->token.n > rows)
        return ckpt_fail(w->err, CKPT_EFORMAT,
                         "%s: the tokenizer has %zu tokens, but the model only %" PRIu64
                         ": it belongs to another model; --no-side-files leaves it out",
                         w->list.folder, w->token.n, rows);
    if (rows > w->token.n)
        rc = gtk_grow(w, rows - 1);
    for (size_t i = 0; rc == CKPT_OK && i < w->token.n; i++) {
        ckpt_gguf_token *t = &w->token.at[i];

        if (t->text)
            continue;
        t->text = ckpt_arena_printf(w->scratch->arena, "[PAD%zu]", i);
        if (!t->text)
            return ckpt_fail_memory(w->err);
        t->n = strlen(t->text);
    }
    return rc;
}

/* Make a list with room for n values. */
static ckpt_value *gtk_list(ckpt_map *to, uint64_t n)
{
    ckpt_value *v = ckpt_value_new(to->arena, CKPT_V_LIST);

    if (v)
        v->as.seq = (ckpt_seq){.at = ckpt_arena_array(to->arena, n, sizeof(ckpt_value *)), .n = n};
    return v && v->as.seq.at ? v : NULL;
}

static int gtk_put_tokens(ckpt_gguf_tokenizer_work *w)
{
    ckpt_map *to = w->to;
    ckpt_value *text = gtk_list(to, w->token.n), *score = gtk_list(to, w->token.n);
    ckpt_value *type = gtk_list(to, w->token.n);
    bool ok = text && score && type;
    int rc;

    for (size_t i = 0; ok && i < w->token.n; i++) {
        const ckpt_gguf_token *t = &w->token.at[i];

        text->as.seq.at[i] = ckpt_value_str(to->arena, t->text, t->n);
        type->as.seq.at[i] = ckpt_value_int(to->arena, t->type);
        if (w->scores)
            score->as.seq.at[i] = ckpt_value_float(to->arena, (double)t->score);
        ok = text->as.seq.at[i] && type->as.seq.at[i] && (!w->scores || score->as.seq.at[i]);
    }
    if (!ok)
        return ckpt_fail_memory(w->err);
    rc = ckpt_gguf_add(to, "tokenizer.ggml.tokens", CKPT_KEY_STRING, true, text, w->err);
    if (rc == CKPT_OK && w->scores)
        rc = ckpt_gguf_add(to, "tokenizer.ggml.scores", CKPT_KEY_F32, true, score, w->err);
    if (rc == CKPT_OK)
        rc = ckpt_gguf_add(to, "tokenizer.ggml.token_type", CKPT_KEY_I32, true, type, w->err);
    return rc;
}

/* Write the kind.  `pre` comes from the layout map for BPE; other kinds have a fixed value. */
static int gtk_put_kind(ckpt_gguf_tokenizer_work *w)
{
    bool bpe = strcmp(w->model, "gpt2") == 0;
    int rc = ckpt_gguf_add_text(w->to, "tokenizer.ggml.model", w->model, w->err);

    for (size_t i = 0; i < w->to->keys.n; i++) {
        ckpt_key *k = &w->to->keys.at[i];

        if (strcmp(k->name, "tokenizer.ggml.pre") != 0)
            continue;
        if (bpe)
            return rc;
        memmove(k, k + 1, (w->to->keys.n - i - 1) * sizeof *k);
        w->to->keys.n--;
    }
    if (rc == CKPT_OK && bpe)
        rc =
            ckpt_map_note(w->to, CKPT_WARNING, w->err,
                          "the layout map does not say how the tokenizer splits text "
                          "(tokenizer.ggml.pre): llama.cpp takes its default, which may give other "
                          "tokens");
    return rc == CKPT_OK ? ckpt_gguf_add_text(w->to, "tokenizer.ggml.pre", "default", w->err) : rc;
}

static int gtk_put(ckpt_gguf_tokenizer_work *w)
{
    int rc = gtk_fill(w);

    if (rc == CKPT_OK)
        rc = gtk_put_kind(w);
    if (rc == CKPT_OK)
        rc = gtk_put_tokens(w);
    if (rc == CKPT_OK && w->bpe)
        rc = ckpt_gguf_merges(w);
    return rc == CKPT_OK ? ckpt_gguf_special(w) : rc;
}

int ckpt_gguf_tokenizer(ckpt_map *to, const ckpt_map *from, ckpt_err *err)
{
    assert(to && from);
    ckpt_gguf_tokenizer_work w = {.to = to, .err = err};
    int rc = ckpt_map_create(&w.scratch, UINT64_C(4) << 30, err);

    if (rc == CKPT_OK)
        rc = ckpt_model_folder_list(&w.list, w.scratch, from, err);
    if (rc == CKPT_OK)
        rc = gtk_json(&w, "tokenizer.json", &w.tokenizer);
    if (rc == CKPT_OK && w.tokenizer && w.tokenizer->kind != CKPT_V_DICT)
        rc = ckpt_fail(err, CKPT_EFORMAT, "%s/tokenizer.json: not a JSON object", w.list.folder);
    if (rc == CKPT_OK)
        rc = gtk_json(&w, "tokenizer_config.json", &w.config);
    if (rc == CKPT_OK)
        rc = gtk_json(&w, "config.json", &w.hparams);
    if (rc == CKPT_OK)
        rc = gtk_json(&w, "generation_config.json", &w.generation);
    if (rc == CKPT_OK)
        rc = ckpt_gguf_sampling(&w);
    if (rc == CKPT_OK)
        rc = gtk_read(&w);
    if (rc == CKPT_OK && !w.model)
        rc = ckpt_map_note(to, CKPT_WARNING, err,
                           "%s has no tokenizer (tokenizer.model, tokenizer.json, vocab.txt): "
                           "without one, llama.cpp accepts only token numbers as input",
                           w.list.folder);
    else if (rc == CKPT_OK)
        rc = gtk_put(&w);
    ckpt_vec_free(&w.token);
    ckpt_map_free(w.scratch);
    return rc;
}
