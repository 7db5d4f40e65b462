/* SPDX-License-Identifier: Apache-2.0 */
/*
 * file.c: reads tokenizer.json.
 *
 * Texts of byte-level tokens are written in GPT-2's alphabet, which has a printable character for
 * each byte.  They are kept as the bytes, so that encoding needs no conversion.
 */
#include <inttypes.h>
#include <string.h>

#include "engine/tokenizer/inside.h"
#include "libckpt/codec/json/json.h"

#define TKF_BYTES (UINT64_C(256) << 20) /* limit of the file */
enum { TKF_DEPTH = 8, TKF_LONGEST = 1 << 16 /* bytes of one token */ };

/* ---- values ---- */

static bool tkf_null(const ckpt_value *v)
{
    return !v || v->kind == CKPT_V_NONE || (v->kind == CKPT_V_STR && v->as.text.n == 0);
}

/* ---- bytes ---- */

/* Copy the text of a token; *out is NULL if a byte-level text has another character. */
static int tkf_text(zt_tokenizer *t, bool bytes, ckpt_text text, tz_token *out, ckpt_err *err)
{
    char *to = text.n <= TKF_LONGEST ? ckpt_arena_string(t->arena, text.at, text.n) : NULL;
    uint32_t n = 0;

    if (text.n > TKF_LONGEST)
        return ckpt_fail(err, CKPT_ELIMIT, "token '%.40s...' has more than %d bytes", text.at,
                         TKF_LONGEST);
    if (!to)
        return ckpt_fail_memory(err);
    out->text = to;
    out->n = (uint32_t)text.n;
    for (uint64_t i = 0; bytes && i < text.n;) {
        uint32_t c;
        int byte;

        i += tz_char(&c, text.at + i);
        byte = tz_byte_of(c);
        if (byte < 0) {
            out->text = NULL;
            return CKPT_OK;
        }
        to[n++] = (char)byte;
    }
    if (bytes) {
        out->n = n;
        to[n] = 0;
    }
    return CKPT_OK;
}

/* ---- vocabulary ---- */

static int tkf_add(zt_tokenizer *t, bool bytes, ckpt_text text, tz_token *token, ckpt_err *err)
{
    int rc = tkf_text(t, bytes, text, token, err);

    const bool same = rc == CKPT_OK && !token->text;
    tz_shown shown = {.text = token->text, .n = token->n, .id = token->id, .bytes = bytes};

    if (same) { // text has another character than those of bytes
        shown.text = ckpt_arena_string(t->arena, text.at, text.n);
        shown.n = (uint32_t)text.n;
        rc = shown.text ? CKPT_OK : ckpt_fail_memory(err);
    }
    if (rc == CKPT_OK)
        rc = tz_show(t, &shown, err);
    if (rc != CKPT_OK)
        return rc;
    if (token->text)
        return tz_vocab_add(&t->vocab, token, err);
    // no text has this token, but its number is taken
    t->vocab.last = token->id > t->vocab.last && token->id < TZ_TOKENS ? token->id : t->vocab.last;
    return CKPT_OK;
}

/* BPE: {"text": number}. */
static int tkf_dict(zt_tokenizer *t, bool bytes, const ckpt_value *vocab, ckpt_err *err)
{
    const ckpt_dict all = ckpt_value_map(vocab);
    int rc = CKPT_OK;

    if (!vocab || vocab->kind != CKPT_V_DICT || all.n == 0)
        return ckpt_fail(err, CKPT_EFORMAT, "the vocabulary is not a dict of tokens");
    for (uint64_t i = 0; rc == CKPT_OK && i < all.n; i++) {
        tz_token token = {0};
        int64_t id = -1;

        if (!ckpt_value_as_int(all.at[i].value, &id) || id < 0 || id >= TZ_TOKENS)
            return ckpt_fail(err, CKPT_EFORMAT, "token '%.80s' has no number from 0 to %d",
                             all.at[i].key->as.text.at, TZ_TOKENS - 1);
        token.id = (int32_t)id;
        rc = tkf_add(t, bytes, all.at[i].key->as.text, &token, err);
    }
    return rc;
}

/* Unigram: [["text", score], ...], numbered by their place. */
static int tkf_list(zt_tokenizer *t, const ckpt_value *vocab, ckpt_err *err)
{
    const ckpt_seq all = ckpt_value_seq(vocab);
    int rc = all.n > 0 && all.n <= TZ_TOKENS
                 ? CKPT_OK
                 : ckpt_fail(err, CKPT_EFORMAT, "the vocabulary is not a list of pieces");

    for (uint64_t i = 0; rc == CKPT_OK && i < all.n; i++) {
        const ckpt_seq pair = ckpt_value_seq(all.at[i]);
        tz_token token = {.id = (int32_t)i};

        if (pair.n != 2 || pair.at[0]->kind != CKPT_V_STR ||
            (pair.at[1]->kind != CKPT_V_FLOAT && pair.at[1]->kind != CKPT_V_INT))
            return ckpt_fail(err, CKPT_EFORMAT,
                             "piece %" PRIu64 " of the vocabulary is not a text and a score", i);
        token.score =
            pair.at[1]->kind == CKPT_V_FLOAT ? pair.at[1]->as.f : (double)pair.at[1]->as.i;
        rc = tkf_add(t, false, pair.at[0]->as.text, &token, err);
    }
    return rc;
}

/* ---- merges ---- */

/* The two texts of a merge: ["a", "b"] or "a b". */
static bool tkf_pair(const ckpt_value *v, ckpt_text *left, ckpt_text *right)
{
    const ckpt_seq pair = ckpt_value_seq(v);
    const char *blank;

    if (pair.n == 2 && pair.at[0]->kind == CKPT_V_STR && pair.at[1]->kind == CKPT_V_STR) {
        *left = pair.at[0]->as.text;
        *right = pair.at[1]->as.text;
        return true;
    }
    blank = v->kind == CKPT_V_STR ? memchr(v->as.text.at, ' ', v->as.text.n) : NULL;
    if (!blank)
        return false;
    *left = (ckpt_text){v->as.text.at, (uint64_t)(blank - v->as.text.at)};
    *right = (ckpt_text){blank + 1, v->as.text.n - left->n - 1};
    return !memchr(right->at, ' ', right->n);
}

static int tkf_merge(zt_tokenizer *t, bool bytes, const ckpt_value *v, tz_merge *out, ckpt_err *err)
{
    void *mark = ckpt_arena_alloc(t->arena, 1);
    ckpt_text text[2] = {0};
    tz_token part[2] = {0};
    const tz_token *a, *b, *to;
    char *both;

    out->to = -1;
    if (!mark)
        return ckpt_fail_memory(err);
    if (!tkf_pair(v, &text[0], &text[1]))
        return ckpt_fail(err, CKPT_EFORMAT, "a merge is not a pair of tokens");
    for (unsigned i = 0; i < 2; i++) {
        int rc = tkf_text(t, bytes, text[i], &part[i], err);
        if (rc != CKPT_OK)
            return rc;
        if (!part[i].text) // no text has such a token
            return CKPT_OK;
    }
    both = ckpt_arena_alloc(t->arena, (uint64_t)part[0].n + part[1].n + 1);
    if (!both)
        return ckpt_fail_memory(err);
    memcpy(both, part[0].text, part[0].n);
    memcpy(both + part[0].n, part[1].text, part[1].n);
    a = tz_vocab_find(&t->vocab, part[0].text, part[0].n);
    b = tz_vocab_find(&t->vocab, part[1].text, part[1].n);
    to = tz_vocab_find(&t->vocab, both, (size_t)part[0].n + part[1].n);
    if (!a || !b || !to)
        return ckpt_fail(err, CKPT_EFORMAT,
                         "the merge of '%.*s' and '%.*s' needs a token that the vocabulary lacks",
                         (int)(text[0].n < 40 ? text[0].n : 40), text[0].at,
                         (int)(text[1].n < 40 ? text[1].n : 40), text[1].at);
    out->left = a->id;
    out->right = b->id;
    out->to = to->id;
    (void)ckpt_arena_rewind(t->arena, mark, NULL);
    return CKPT_OK;
}

static int tkf_merges(zt_tokenizer *t, bool bytes, const ckpt_value *v, tz_merges *out,
                      ckpt_err *err)
{
    const ckpt_seq all = ckpt_value_seq(v);
    int rc = v && v->kind == CKPT_V_LIST && all.n <= TZ_TOKENS
                 ? CKPT_OK
                 : ckpt_fail(err, CKPT_EFORMAT, "the merges are not a list");

    for (uint64_t i = 0; rc == CKPT_OK && i < all.n; i++) {
        tz_merge m = {.rank = (uint32_t)i}, *to;

        rc = tkf_merge(t, bytes, all.at[i], &m, err);
        if (rc != CKPT_OK || m.to < 0)
            continue;
        to = ckpt_vec_push(out);
        if (!to)
            return ckpt_fail_memory(err);
        *to = m;
    }
    return rc;
}

/* ---- models ---- */

/* Refuse settings of BPE that this code does not have. */
static int tkf_plain(const ckpt_value *model, ckpt_err *err)
{
    static const char *const key[] = {"continuing_subword_prefix", "end_of_word_suffix"};
    const ckpt_value *dropout = ckpt_value_get(model, "dropout");

    for (unsigned i = 0; i < 2; i++) {
        if (!tkf_null(ckpt_value_get(model, key[i])))
            return ckpt_fail(err, CKPT_EUNSUPPORTED, "model BPE: %s is not supported", key[i]);
    }
    if (!tkf_null(dropout) && !(dropout->kind == CKPT_V_FLOAT && dropout->as.f == 0))
        return ckpt_fail(err, CKPT_EUNSUPPORTED, "model BPE: dropout is not supported");
    return CKPT_OK;
}

static int tkf_bpe(zt_tokenizer *t, const ckpt_value *model, bool bytes, ckpt_err *err)
{
    const ckpt_value *unknown = ckpt_value_get(model, "unk_token");
    tz_model_opts o = {.vocab = &t->vocab,
                       .unknown = -1,
                       .byte_fallback = tz_flag(model, "byte_fallback", false),
                       .fuse_unknown = tz_flag(model, "fuse_unk", false),
                       .ignore_merges = tz_flag(model, "ignore_merges", false),
                       .byte_level = bytes};
    tz_merges merges = {0};
    int rc = tkf_plain(model, err);

    if (rc == CKPT_OK)
        rc = tkf_dict(t, bytes, ckpt_value_get(model, "vocab"), err);
    if (rc == CKPT_OK && !tkf_null(unknown)) {
        const char *said = tz_said(unknown);
        const tz_token *token = tz_vocab_find(&t->vocab, said, strlen(said));

        o.unknown = token ? token->id : -1;
        if (!token)
            rc = ckpt_fail(err, CKPT_EFORMAT, "the vocabulary has no unk_token '%.80s'",
                           tz_said(unknown));
    }
    if (rc == CKPT_OK)
        rc = tkf_merges(t, bytes, ckpt_value_get(model, "merges"), &merges, err);
    if (rc == CKPT_OK)
        rc = tz_bpe_new(&t->bpe, &o, &merges, err);
    ckpt_vec_free(&merges);
    return rc;
}

static int tkf_unigram(zt_tokenizer *t, const ckpt_value *model, ckpt_err *err)
{
    const ckpt_value *unknown = ckpt_value_get(model, "unk_id");
    tz_model_opts o = {.vocab = &t->vocab,
                       .byte_fallback = tz_flag(model, "byte_fallback", false),
                       .fuse_unknown = true};
    int64_t id = -1;
    int rc = tkf_list(t, ckpt_value_get(model, "vocab"), err);

    if (rc == CKPT_OK && !tkf_null(unknown) &&
        (!ckpt_value_as_int(unknown, &id) || id < 0 || id > t->vocab.last))
        rc = ckpt_fail(err, CKPT_EFORMAT, "unk_id is not the number of a piece");
    o.unknown = (int32_t)id;
    return rc == CKPT_OK ? tz_unigram_new(&t->unigram, &o, err) : rc;
}

/* Read the model; its texts are bytes if the last pre-tokenizer is ByteLevel. */
static int tkf_model(zt_tokenizer *t, const ckpt_value *model, ckpt_err *err)
{
    const ckpt_value *type = ckpt_value_get(model, "type");
    const size_t n = t->split.n;
    const bool bytes = n > 0 && t->split.at[n - 1].kind == TZ_BYTE_LEVEL;
    const bool bpe = type ? ckpt_value_is(type, "BPE") : ckpt_value_get(model, "merges") != NULL;

    t->byte_level = bytes;
    for (size_t i = 0; i < n; i++) {
        if (t->split.at[i].kind == TZ_BYTE_LEVEL && (i + 1 < n || !bpe))
            return ckpt_fail(err, CKPT_EUNSUPPORTED,
                             "pre-tokenizer ByteLevel is supported as the last one, before BPE");
    }
    if (bpe)
        return tkf_bpe(t, model, bytes, err);
    if (type && ckpt_value_is(type, "Unigram"))
        return tkf_unigram(t, model, err);
    return ckpt_fail(err, CKPT_EUNSUPPORTED,
                     "model %.60s is not supported: expected BPE or Unigram", tz_said(type));
}

/* ---- added tokens ---- */

/* Check the number of an added token against the vocabulary. */
static int tkf_agrees(const zt_tokenizer *t, ckpt_text text, int64_t id, ckpt_err *err)
{
    const tz_token *have = tz_vocab_find(&t->vocab, text.at, text.n);

    for (uint64_t i = 0; have && i < text.n; i++) {
        if (text.at[i] < 33 || text.at[i] > 126) // maybe another text in the alphabet of bytes
            have = NULL;
    }
    if (id < 0 || id >= TZ_TOKENS || (have && have->id != id))
        return ckpt_fail(err, CKPT_EFORMAT,
                         "the added token '%.80s' has number %" PRId64
                         ", which contradicts the vocabulary",
                         text.at, id);
    return CKPT_OK;
}

static int tkf_added_one(zt_tokenizer *t, const ckpt_value *v, ckpt_err *err)
{
    const ckpt_value *content = ckpt_value_get(v, "content");
    const bool normal = tz_flag(v, "normalized", false);
    tz_token token = {.id = (int32_t)t->added.n};
    ckpt_bytes text = {0}, spare = {0};
    tz_added *to = ckpt_vec_push(&t->added);
    tz_shown shown = {.added = true, .special = tz_flag(v, "special", false)};
    int64_t id = -1;
    int rc = to ? CKPT_OK : ckpt_fail_memory(err);

    if (rc == CKPT_OK && (!content || content->kind != CKPT_V_STR || content->as.text.n == 0))
        rc = ckpt_fail(err, CKPT_EFORMAT, "an added token has no content");
    if (rc != CKPT_OK)
        return rc;
    (void)ckpt_value_as_int(ckpt_value_get(v, "id"), &id);
    rc = tkf_agrees(t, content->as.text, id, err);
    *to = (tz_added){(int32_t)id, tz_flag(v, "single_word", false), tz_flag(v, "lstrip", false),
                     tz_flag(v, "rstrip", false)};
    shown.id = (int32_t)id;
    shown.n = (uint32_t)content->as.text.n;
    shown.text = rc == CKPT_OK ? ckpt_arena_string(t->arena, content->as.text.at, shown.n) : NULL;
    if (rc == CKPT_OK)
        rc = shown.text ? tz_show(t, &shown, err) : ckpt_fail_memory(err);
    if (rc == CKPT_OK && !ckpt_bytes_add(&text, content->as.text.at, content->as.text.n))
        rc = ckpt_fail_memory(err);
    if (rc == CKPT_OK && normal)
        rc = tz_normal_run(&t->normalizer, &text, &spare, err);
    if (rc == CKPT_OK && text.n > 0)
        rc = tkf_text(t, false, (ckpt_text){(const char *)text.at, text.n}, &token, err);
    if (rc == CKPT_OK && text.n > 0)
        rc = tz_vocab_add(normal ? &t->normal : &t->raw, &token, err);
    ckpt_vec_free(&text);
    ckpt_vec_free(&spare);
    return rc;
}

static int tkf_added(zt_tokenizer *t, const ckpt_value *v, ckpt_err *err)
{
    const ckpt_seq all = ckpt_value_seq(v);
    int rc = CKPT_OK;

    if (all.n > TZ_TOKENS)
        return ckpt_fail(err, CKPT_ELIMIT, "more than %d added tokens", TZ_TOKENS);
    for (uint64_t i = 0; rc == CKPT_OK && i < all.n; i++)
        rc = tkf_added_one(t, all.at[i], err);
    if (rc == CKPT_OK)
        rc = tz_sorted_make(&t->raws, t->raw.token.at, t->raw.token.n, err);
    if (rc == CKPT_OK)
        rc = tz_sorted_make(&t->normals, t->normal.token.at, t->normal.token.n, err);
    return rc;
}

/* ---- the post-processor ---- */

static int tkf_put(zt_ids *to, const ckpt_value *v, ckpt_err *err)
{
    int64_t id = -1;
    int32_t *at;

    if (!ckpt_value_as_int(v, &id) || id < 0 || id >= TZ_TOKENS)
        return ckpt_fail(err, CKPT_EFORMAT, "the post-processor adds a token without a number");
    at = ckpt_vec_push(to);
    if (!at)
        return ckpt_fail_memory(err);
    *at = (int32_t)id;
    return CKPT_OK;
}

static int tkf_template(zt_tokenizer *t, const ckpt_value *v, ckpt_err *err)
{
    const ckpt_seq single = ckpt_value_seq(ckpt_value_get(v, "single"));
    const ckpt_value *special = ckpt_value_get(v, "special_tokens");
    bool passed = false;
    int rc = CKPT_OK;

    for (uint64_t i = 0; rc == CKPT_OK && i < single.n; i++) {
        const ckpt_value *name = ckpt_value_get(ckpt_value_get(single.at[i], "SpecialToken"), "id");
        ckpt_seq ids;

        if (ckpt_value_get(single.at[i], "Sequence")) {
            passed = true;
            continue;
        }
        ids = ckpt_value_seq(ckpt_value_get(
            name && name->kind == CKPT_V_STR ? ckpt_value_get(special, name->as.text.at) : NULL,
            "ids"));
        if (ids.n == 0)
            return ckpt_fail(err, CKPT_EFORMAT,
                             "the post-processor's template has token '%.80s' "
                             "without a number",
                             tz_said(name));
        for (uint64_t k = 0; rc == CKPT_OK && k < ids.n; k++)
            rc = tkf_put(passed ? &t->after : &t->before, ids.at[k], err);
    }
    if (rc == CKPT_OK && !passed)
        rc = ckpt_fail(err, CKPT_EFORMAT, "the post-processor's template has no text");
    return rc;
}

static int tkf_post(zt_tokenizer *t, const ckpt_value *v, unsigned depth, ckpt_err *err)
{
    const ckpt_value *type = ckpt_value_get(v, "type");
    const ckpt_seq list = ckpt_value_seq(ckpt_value_get(v, "processors"));
    int rc = CKPT_OK;

    if (tkf_null(v) || (type && ckpt_value_is(type, "ByteLevel")))
        return CKPT_OK;
    if (type && ckpt_value_is(type, "Sequence") && depth < TKF_DEPTH) {
        for (uint64_t i = 0; rc == CKPT_OK && i < list.n; i++)
            rc = tkf_post(t, list.at[i], depth + 1, err);
        return rc;
    }
    if (t->before.n || t->after.n)
        return ckpt_fail(err, CKPT_EUNSUPPORTED, "two post-processors add tokens");
    if (type && ckpt_value_is(type, "TemplateProcessing"))
        return tkf_template(t, v, err);
    if (type &&
        (ckpt_value_is(type, "BertProcessing") || ckpt_value_is(type, "RobertaProcessing"))) {
        const ckpt_seq cls = ckpt_value_seq(ckpt_value_get(v, "cls"));
        const ckpt_seq sep = ckpt_value_seq(ckpt_value_get(v, "sep"));

        rc = tkf_put(&t->before, cls.n == 2 ? cls.at[1] : NULL, err);
        return rc == CKPT_OK ? tkf_put(&t->after, sep.n == 2 ? sep.at[1] : NULL, err) : rc;
    }
    return ckpt_fail(err, CKPT_EUNSUPPORTED, "post-processor %.60s is not supported",
                     tz_said(type));
}

/* ---- the file ---- */

/* Copy a small part of the file's tree, whose texts must outlive the tree. */
static int tkf_own(zt_tokenizer *t, const ckpt_value *v, ckpt_value **out, ckpt_err *err)
{
    const ckpt_json_style style = {0};
    ckpt_bytes bytes = {0};
    int rc = v ? ckpt_json_write(&bytes, v, &style, err) : CKPT_OK;
    const ckpt_json_text text = {
        .name = "tokenizer.json", .at = (const char *)bytes.at, .n = bytes.n, .max = TKF_BYTES};

    *out = NULL;
    if (rc == CKPT_OK && v)
        rc = ckpt_json_parse(out, t->arena, &text, err);
    ckpt_vec_free(&bytes);
    return rc;
}

static int tkf_parts(zt_tokenizer *t, const ckpt_value *all, ckpt_err *err)
{
    ckpt_value *normal = NULL, *split = NULL, *decoder = NULL;
    int rc = tkf_own(t, ckpt_value_get(all, "normalizer"), &normal, err);

    if (rc == CKPT_OK)
        rc = tkf_own(t, ckpt_value_get(all, "pre_tokenizer"), &split, err);
    if (rc == CKPT_OK)
        rc = tkf_own(t, ckpt_value_get(all, "decoder"), &decoder, err);
    if (rc == CKPT_OK)
        rc = tz_decoder_read(&t->decoder, decoder, 0, err);
    if (rc == CKPT_OK)
        rc = tz_normal_read(&t->normalizer, normal, 0, err);
    if (rc == CKPT_OK)
        rc = tz_split_read(&t->split, split, 0, err);
    if (rc == CKPT_OK)
        rc = tkf_model(t, ckpt_value_get(all, "model"), err);
    if (rc == CKPT_OK)
        rc = tkf_added(t, ckpt_value_get(all, "added_tokens"), err);
    return rc == CKPT_OK ? tkf_post(t, ckpt_value_get(all, "post_processor"), 0, err) : rc;
}

int tz_file_read(zt_tokenizer *t, const char *path, ckpt_err *err)
{
    ckpt_arena *scratch = ckpt_arena_new(UINT64_C(4) << 30);
    ckpt_value *all = NULL;
    ckpt_err why = {0};
    int rc = scratch ? ckpt_json_read(&all, scratch, path, TKF_BYTES, err) : ckpt_fail_memory(err);

    if (rc == CKPT_OK) {
        rc = tkf_parts(t, all, &why);
        if (rc != CKPT_OK)
            rc = ckpt_fail(err, rc, "%s: %s", path, why.text);
    }
    ckpt_arena_free(scratch);
    return rc;
}
