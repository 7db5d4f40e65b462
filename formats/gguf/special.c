/* SPDX-License-Identifier: Apache-2.0 */
/*
 * special.c: writes the special tokens, the flags to add them to a text, and the chat template.
 *
 * They are found as in gguf's SpecialVocab: token numbers from the texts in tokenizer_config.json
 * by the added tokens of tokenizer.json, else from config.json; the flags from the post-processor,
 * else from tokenizer_config.json.
 */
#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "formats/gguf/tokenizer.h"

typedef enum gsp_kind { GSP_BOS, GSP_EOS, GSP_UNK, GSP_SEP, GSP_PAD, GSP_MASK, GSP_KINDS } gsp_kind;

static const struct {
    const char *name, *key; /* the name in configurations; the key in GGUF, with its spelling */
} gsp_names[GSP_KINDS] = {
    {"bos", "tokenizer.ggml.bos_token_id"},     {"eos", "tokenizer.ggml.eos_token_id"},
    {"unk", "tokenizer.ggml.unknown_token_id"}, {"sep", "tokenizer.ggml.seperator_token_id"},
    {"pad", "tokenizer.ggml.padding_token_id"}, {"mask", "tokenizer.ggml.mask_token_id"},
};

typedef struct gsp_found {
    ckpt_gguf_tokenizer_work *w;
    const char *text[GSP_KINDS]; /* text of each special token, or NULL */
    const char *cls;
    int8_t add[GSP_KINDS]; /* -1: unknown */
} gsp_found;

/* The text of e.g. "bos_token", which may be an object with content; or NULL. */
static const char *gsp_text(const ckpt_value *config, const char *name)
{
    char key[32];
    const ckpt_value *v;

    (void)snprintf(key, sizeof key, "%s_token", name);
    v = ckpt_value_get(config, key);
    if (v && v->kind == CKPT_V_DICT)
        v = ckpt_value_get(v, "content");
    return v && v->kind == CKPT_V_STR ? v->as.text.at : NULL;
}

static bool gsp_same(const char *a, const char *b)
{
    return a && b && strcmp(a, b) == 0;
}

/* ---- added tokens ---- */

/* The special token in one item of a template, or NULL if the item stands for a text. */
static const char *gsp_piece(const ckpt_value *piece)
{
    const ckpt_value *id = ckpt_value_get(ckpt_value_get(piece, "SpecialToken"), "id");

    return id && id->kind == CKPT_V_STR ? id->as.text.at : NULL;
}

/* Detect a separator between the two texts of a pair: "A [SEP] B". */
static void gsp_pair(gsp_found *f, const ckpt_seq pair, const char *first, const char *last)
{
    uint64_t from = pair.n && first && gsp_same(gsp_piece(pair.at[0]), first) ? 1 : 0;
    uint64_t to =
        pair.n && last && gsp_same(gsp_piece(pair.at[pair.n - 1]), last) ? pair.n - 1 : pair.n;
    bool add = false;

    if (to < from + 3)
        return;
    for (uint64_t i = from + 1; i + 1 < to && i < from + 3; i++) {
        const char *s = gsp_piece(pair.at[i]);
        bool known = gsp_same(s, f->text[GSP_SEP]) || gsp_same(s, f->text[GSP_EOS]);

        // if texts end with a token, the first such token ends text A and separates nothing
        add = add || (known && (i > from + 1 || !last));
    }
    f->add[GSP_SEP] = add;
}

static void gsp_template(gsp_found *f, const ckpt_value *processor)
{
    const ckpt_seq single = ckpt_value_seq(ckpt_value_get(processor, "single"));
    const char *first = single.n > 1 ? gsp_piece(single.at[0]) : NULL;
    const char *last = single.n > 1 ? gsp_piece(single.at[single.n - 1]) : NULL;

    if (first)
        f->add[GSP_BOS] = gsp_same(first, f->text[GSP_BOS]) || gsp_same(first, f->cls);
    if (last) {
        f->text[GSP_EOS] = last;
        f->add[GSP_EOS] = 1;
    }
    gsp_pair(f, ckpt_value_seq(ckpt_value_get(processor, "pair")), first, last);
}

static void gsp_processor(gsp_found *f, const ckpt_value *processor)
{
    const ckpt_value *type = ckpt_value_get(processor, "type");

    if (!type)
        return;
    if (ckpt_value_is(type, "ByteLevel")) {
        f->add[GSP_BOS] = f->add[GSP_BOS] < 0 ? 0 : f->add[GSP_BOS];
        f->add[GSP_EOS] = f->add[GSP_EOS] < 0 ? 0 : f->add[GSP_EOS];
    } else if (ckpt_value_is(type, "RobertaProcessing")) {
        f->add[GSP_BOS] = f->add[GSP_EOS] = f->add[GSP_SEP] = 1;
    } else if (ckpt_value_is(type, "TemplateProcessing")) {
        gsp_template(f, processor);
    }
}

static void gsp_processors(gsp_found *f)
{
    const ckpt_value *all = ckpt_value_get(f->w->tokenizer, "post_processor");
    const ckpt_seq list = ckpt_value_seq(ckpt_value_get(all, "processors"));

    if (!list.n)
        gsp_processor(f, all);
    for (uint64_t i = 0; i < list.n; i++)
        gsp_processor(f, list.at[i]);
}

/* ---- keys ---- */

/* Find the number of an added token by its text; false if there is none. */
static bool gsp_number_of(const ckpt_gguf_tokenizer_work *w, const char *text, int64_t *out)
{
    const ckpt_seq list = ckpt_value_seq(ckpt_value_get(w->tokenizer, "added_tokens"));

    for (uint64_t i = 0; text && i < list.n; i++) {
        const ckpt_value *content = ckpt_value_get(list.at[i], "content");

        if (content && ckpt_value_is(content, text))
            return ckpt_value_as_int(ckpt_value_get(list.at[i], "id"), out);
    }
    return false;
}

/* Find the number in config.json; of several EOS tokens the first. */
static bool gsp_number_said(const ckpt_gguf_tokenizer_work *w, const char *name, int64_t *out)
{
    char key[32];
    const ckpt_value *v;

    (void)snprintf(key, sizeof key, "%s_token_id", name);
    v = ckpt_value_get(w->hparams, key);
    if (!v || v->kind == CKPT_V_NONE)
        v = ckpt_value_get(ckpt_value_get(w->hparams, "text_config"), key);
    if (v && v->kind == CKPT_V_LIST && v->as.seq.n)
        v = v->as.seq.at[0];
    return v && v->kind == CKPT_V_INT && ckpt_value_as_int(v, out);
}

static int gsp_put_numbers(const gsp_found *f)
{
    ckpt_gguf_tokenizer_work *w = f->w;
    bool done[GSP_KINDS] = {false};
    int64_t number = -1;
    int rc = CKPT_OK;

    for (unsigned pass = 0; pass < 2; pass++) {
        for (unsigned k = 0; rc == CKPT_OK && k < GSP_KINDS; k++) {
            bool found = pass == 0 ? gsp_number_of(w, f->text[k], &number)
                                   : gsp_number_said(w, gsp_names[k].name, &number);

            if (done[k] || !found || number < 0 || (uint64_t)number >= w->token.n)
                continue;
            done[k] = true;
            rc = ckpt_gguf_add_u32(w->to, gsp_names[k].key, (uint64_t)number, w->err);
        }
    }
    return rc;
}

/*
 * Replace the texts that the layout map gives for special tokens by their numbers, unless the
 * model's files give the number. The key of a text that the tokenizer lacks is removed.
 */
static int gsp_put_texts(const gsp_found *f)
{
    ckpt_keys *keys = &f->w->to->keys;
    int64_t number = -1;
    int rc = CKPT_OK;

    for (size_t i = keys->n; rc == CKPT_OK && i-- > 0;) {
        ckpt_key *key = &keys->at[i];
        bool given = false;

        if (!ckpt_gguf_is_token(key))
            continue;
        for (size_t j = i + 1; !given && j < keys->n; j++)
            given = strcmp(keys->at[j].name, key->name) == 0;
        const char *text = key->value->as.text.at;
        if (!given && gsp_number_of(f->w, text, &number) && number >= 0) {
            key->type = CKPT_KEY_U32;
            key->value = ckpt_value_int(f->w->to->arena, number);
            rc = key->value ? CKPT_OK : ckpt_fail_memory(f->w->err);
            continue;
        }
        if (!given)
            rc = ckpt_map_note(f->w->to, CKPT_WARNING, f->w->err,
                               "the tokenizer has no token '%.80s', which tokenizers of this "
                               "architecture have: %.80s is not written",
                               text, key->name);
        memmove(key, key + 1, (--keys->n - i) * sizeof *key);
    }
    return rc;
}

static int gsp_put_added(const gsp_found *f)
{
    static const gsp_kind kinds[] = {GSP_BOS, GSP_EOS, GSP_SEP};
    static const char *const keys[] = {"tokenizer.ggml.add_bos_token",
                                       "tokenizer.ggml.add_eos_token",
                                       "tokenizer.ggml.add_sep_token"};
    int rc = CKPT_OK;

    for (size_t i = 0; rc == CKPT_OK && i < sizeof kinds / sizeof *kinds; i++) {
        // a layout map may state it
        if (f->add[kinds[i]] >= 0 && !ckpt_gguf_key(f->w->to, keys[i]))
            rc = ckpt_gguf_add_bool(f->w->to, keys[i], f->add[kinds[i]] != 0, f->w->err);
    }
    return rc;
}

/* Write the template of tokenizer_config.json, or chat_template.jinja. */
static int gsp_put_template(ckpt_gguf_tokenizer_work *w)
{
    const ckpt_value *v = ckpt_value_get(w->config, "chat_template");
    char *text = NULL;
    uint64_t n = 0;
    int rc = CKPT_OK;

    if (v && v->kind == CKPT_V_STR)
        return ckpt_gguf_add_text(w->to, "tokenizer.chat_template", v->as.text.at, w->err);
    if (v && v->kind == CKPT_V_LIST)
        return ckpt_map_note(w->to, CKPT_WARNING, w->err,
                             "tokenizer_config.json has several chat templates: none is written");
    if (!ckpt_listing_has(&w->list, "chat_template.jinja", false))
        return CKPT_OK;
    const char *path = ckpt_path_join(w->scratch->arena, w->list.folder, "chat_template.jinja");
    rc = path ? ckpt_io_slurp(&text, &n, path, UINT64_C(16) << 20, w->err)
              : ckpt_fail_memory(w->err);
    if (rc == CKPT_OK && !ckpt_utf8_ok(text, n))
        rc = ckpt_fail(w->err, CKPT_EFORMAT, "%s: not UTF-8", path);
    if (rc == CKPT_OK)
        rc = ckpt_gguf_add(w->to, "tokenizer.chat_template", CKPT_KEY_STRING, false,
                           ckpt_value_str(w->to->arena, text, n), w->err);
    ckpt_free(text);
    return rc;
}

/* Read a normalizer's effect on case and accents: 1, 0, or -1 if it has none. */
static void gsp_normalizer(const ckpt_value *n, int *lower, int *strip)
{
    const ckpt_value *type = ckpt_value_get(n, "type");
    const ckpt_value *l = ckpt_value_get(n, "lowercase"), *s = ckpt_value_get(n, "strip_accents");

    if (!type)
        return;
    if (ckpt_value_is(type, "Lowercase"))
        *lower = 1;
    if (ckpt_value_is(type, "StripAccents"))
        *strip = 1;
    if (ckpt_value_is(type, "BertNormalizer") && l && l->kind == CKPT_V_BOOL)
        *lower = l->as.i != 0;
    if (ckpt_value_is(type, "BertNormalizer") && s && s->kind == CKPT_V_BOOL)
        *strip = s->as.i != 0;
}

static int gsp_put_normalizer(ckpt_gguf_tokenizer_work *w)
{
    const ckpt_value *all = ckpt_value_get(w->tokenizer, "normalizer");
    const ckpt_seq list = ckpt_value_seq(ckpt_value_get(all, "normalizers"));
    int lower = -1, strip = -1, rc = CKPT_OK;

    gsp_normalizer(all, &lower, &strip);
    for (uint64_t i = 0; i < list.n; i++)
        gsp_normalizer(list.at[i], &lower, &strip);
    if (lower >= 0)
        rc = ckpt_gguf_add_bool(w->to, "tokenizer.ggml.normalizer.lowercase", lower, w->err);
    if (rc == CKPT_OK && strip >= 0)
        rc = ckpt_gguf_add_bool(w->to, "tokenizer.ggml.normalizer.strip_accents", strip, w->err);
    return rc;
}

/* True for the architectures whose byte-level tokenizers keep the flag for a leading blank, too. */
static bool gsp_keeps_prefix(const ckpt_map *to)
{
    static const char *const names[] = {"llama", "granite", "granitemoe", "smollm3"};
    const ckpt_key *arch = ckpt_gguf_key(to, "general.architecture");
    bool is = false;

    for (size_t i = 0; arch && !is && i < sizeof names / sizeof *names; i++)
        is = ckpt_value_is(arch->value, names[i]);
    return is;
}

int ckpt_gguf_special(ckpt_gguf_tokenizer_work *w)
{
    assert(w->to && w->model);
    gsp_found f = {.w = w, .cls = gsp_text(w->config, "cls")};
    const ckpt_value *prefix = ckpt_value_get(w->config, "add_prefix_space");
    char key[32];
    int rc = CKPT_OK;

    for (unsigned k = 0; k < GSP_KINDS; k++) {
        f.text[k] = gsp_text(w->config, gsp_names[k].name);
        f.add[k] = -1;
    }
    if (w->tokenizer) {
        f.text[GSP_BOS] = f.text[GSP_BOS] ? f.text[GSP_BOS] : f.cls;
        f.text[GSP_EOS] = f.text[GSP_EOS] ? f.text[GSP_EOS] : f.text[GSP_SEP];
        gsp_processors(&f);
    }
    for (unsigned k = 0; k < GSP_KINDS; k++) {
        (void)snprintf(key, sizeof key, "add_%s_token", gsp_names[k].name);
        const ckpt_value *v = ckpt_value_get(w->config, key);

        if (f.add[k] < 0 && v && v->kind == CKPT_V_BOOL)
            f.add[k] = v->as.i != 0;
    }
    // a layout map may state it
    if ((w->scores || gsp_keeps_prefix(w->to)) && prefix && prefix->kind == CKPT_V_BOOL &&
        !ckpt_gguf_key(w->to, "tokenizer.ggml.add_space_prefix"))
        rc = ckpt_gguf_add_bool(w->to, "tokenizer.ggml.add_space_prefix", prefix->as.i, w->err);
    if (rc == CKPT_OK)
        rc = gsp_put_numbers(&f);
    if (rc == CKPT_OK)
        rc = gsp_put_texts(&f);
    if (rc == CKPT_OK)
        rc = gsp_put_added(&f);
    if (rc == CKPT_OK)
        rc = gsp_put_template(w);
    return rc == CKPT_OK ? gsp_put_normalizer(w) : rc;
}
