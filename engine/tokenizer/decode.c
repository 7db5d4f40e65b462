/* SPDX-License-Identifier: Apache-2.0 */
/*
 * decode.c: converts tokens to text: the texts of the tokens, without special ones, pass through
 * the steps of tokenizer.json's decoder, which are those of `tokenizers`.
 */
#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "engine/tokenizer/inside.h"
#include "libckpt/map/map.h"

enum { DEC_DEPTH = 8, DEC_STEPS = 64 };
#define DEC_BYTES (UINT64_C(64) << 20) /* limit of a text */

static const char dec_lost[] = "\xef\xbf\xbd"; /* U+FFFD */

/* ---- texts of tokens ---- */

int tz_show(zt_tokenizer *t, const tz_shown *one, ckpt_err *err)
{
    tz_shown *to = ckpt_vec_push(&t->shown);

    if (!to)
        return ckpt_fail_memory(err);
    *to = *one;
    return CKPT_OK;
}

/* By number; of equal ones the added token first, because it hides that of the vocabulary. */
static int dec_order(const void *a, const void *b)
{
    const tz_shown *x = a, *y = b;

    return x->id != y->id ? (x->id > y->id) - (x->id < y->id)
                          : (x->added < y->added) - (x->added > y->added);
}

void tz_show_sort(zt_tokenizer *t)
{
    if (t->shown.n > 0)
        qsort(t->shown.at, t->shown.n, sizeof *t->shown.at, dec_order);
}

/* The text of a token; NULL: none has the number. */
static const tz_shown *dec_find(const zt_tokenizer *t, int32_t id)
{
    size_t lo = 0, hi = t->shown.n;

    while (lo < hi) {
        const size_t mid = lo + (hi - lo) / 2;

        if (t->shown.at[mid].id < id)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo < t->shown.n && t->shown.at[lo].id == id ? &t->shown.at[lo] : NULL;
}

/* ---- reading ---- */

/* Read the settings of one step. */
static int dec_step(tz_step *s, const ckpt_value *v, const char *type, ckpt_err *err)
{
    static const char *const name[] = {"ByteLevel", "Metaspace", "ByteFallback", "Fuse",
                                       "Strip",     "Replace",   "WordPiece"};
    const bool words = strcmp(type, "WordPiece") == 0, spaces = strcmp(type, "Metaspace") == 0;
    const ckpt_value *text = ckpt_value_get(v, spaces  ? "replacement"
                                               : words ? "prefix"
                                                       : "content");
    const ckpt_value *scheme = ckpt_value_get(v, "prepend_scheme");
    int64_t start = 0, stop = 0;

    s->kind = TZ_STEP_OTHER;
    for (unsigned i = 0; i < TZ_STEP_OTHER; i++)
        s->kind = strcmp(type, name[i]) == 0 ? (tz_step_kind)i : s->kind;
    s->text = text && text->kind == CKPT_V_STR ? text->as.text : (ckpt_text){"", 0};
    (void)ckpt_value_as_int(ckpt_value_get(v, "start"), &start);
    (void)ckpt_value_as_int(ckpt_value_get(v, "stop"), &stop);
    s->start = start > 0 ? (uint64_t)start : 0;
    s->stop = stop > 0 ? (uint64_t)stop : 0;
    s->flag = words    ? tz_flag(v, "cleanup", true)
              : scheme ? !ckpt_value_is(scheme, "never")
                       : tz_flag(v, "add_prefix_space", true);
    if (s->kind == TZ_STEP_OTHER)
        s->text = (ckpt_text){type, strlen(type)};
    return s->kind == TZ_REPLACE_TEXT
               ? tz_pattern_read(&s->pattern, ckpt_value_get(v, "pattern"), err)
               : CKPT_OK;
}

int tz_decoder_read(tz_steps *out, const ckpt_value *v, unsigned depth, ckpt_err *err)
{
    const ckpt_value *type = ckpt_value_get(v, "type");
    const ckpt_seq list = ckpt_value_seq(ckpt_value_get(v, "decoders"));
    int rc = CKPT_OK;

    if (!v || v->kind == CKPT_V_NONE)
        return CKPT_OK;
    if (!type || type->kind != CKPT_V_STR)
        return ckpt_fail(err, CKPT_EFORMAT, "the decoder has no type");
    if (ckpt_value_is(type, "Sequence") && depth < DEC_DEPTH) {
        for (uint64_t i = 0; rc == CKPT_OK && i < list.n; i++)
            rc = tz_decoder_read(out, list.at[i], depth + 1, err);
        return rc;
    }
    if (out->n >= DEC_STEPS)
        return ckpt_fail(err, CKPT_ELIMIT, "the decoder has more than %d steps", DEC_STEPS);
    tz_step *s = ckpt_vec_push(out);

    return s ? dec_step(s, v, type->as.text.at, err) : ckpt_fail_memory(err);
}

void tz_decoder_free(tz_steps *all)
{
    for (size_t i = 0; i < all->n; i++)
        tz_regex_free(all->at[i].pattern.regex);
    ckpt_vec_free(all);
}

/* ---- texts under way ---- */

/* Pieces of text, one after the other. */
typedef struct dec_texts {
    ckpt_bytes text;
    tz_pieces piece;
    bool full; /* the text reached its limit */
} dec_texts;

/* Report why a text could not grow. */
static int dec_fail(const dec_texts *d, ckpt_err *err)
{
    return d->full ? ckpt_fail(err, CKPT_ELIMIT,
                               "the tokenizer's decoder makes more than %" PRIu64
                               " bytes of text of the tokens",
                               DEC_BYTES)
                   : ckpt_fail_memory(err);
}

/* Begin a piece; false: no memory. */
static bool dec_open(dec_texts *d)
{
    tz_piece *p = ckpt_vec_push(&d->piece);

    if (p)
        *p = (tz_piece){d->text.n, 0};
    return p != NULL;
}

/* Append to the last piece. */
static bool dec_put(dec_texts *d, const void *s, size_t n)
{
    d->full = n > DEC_BYTES - d->text.n;
    if (d->full)
        return false;
    d->piece.at[d->piece.n - 1].n += n;
    return n == 0 || ckpt_bytes_add(&d->text, s, n);
}

static ckpt_text dec_at(const dec_texts *d, size_t i)
{
    // without text there is no memory
    const char *text = d->text.at ? (const char *)d->text.at : "";

    return (ckpt_text){text + d->piece.at[i].at, d->piece.at[i].n};
}

/* Append bytes as text, with U+FFFD for each longest part that begins no character. */
static bool dec_lossy(dec_texts *to, const uint8_t *s, size_t n)
{
    bool ok = true;

    for (size_t i = 0; ok && i < n;) {
        const uint8_t c = s[i];
        const unsigned more = c < 0x80   ? 0
                              : c < 0xc2 ? 9
                              : c < 0xe0 ? 1
                              : c < 0xf0 ? 2
                              : c < 0xf5 ? 3
                                         : 9;
        unsigned k = 1;

        for (; more < 9 && k <= more && i + k < n; k++) {
            const uint8_t b = s[i + k];
            const uint8_t low = k > 1 ? 0x80 : c == 0xe0 ? 0xa0 : c == 0xf0 ? 0x90 : 0x80;
            const uint8_t high = k > 1 ? 0xbf : c == 0xed ? 0x9f : c == 0xf4 ? 0x8f : 0xbf;

            if (b < low || b > high)
                break;
        }
        ok = k == more + 1 ? dec_put(to, s + i, k) : dec_put(to, dec_lost, 3);
        i += k;
    }
    return ok;
}

/* ---- steps ---- */

/* Join the bytes of all tokens.  Characters outside the alphabet of bytes are kept. */
static bool dec_bytes(const dec_texts *from, const tz_shown *const *token, dec_texts *to)
{
    dec_texts raw = {0};
    bool ok = dec_open(&raw) && dec_open(to);

    for (size_t i = 0; ok && i < from->piece.n; i++) {
        const ckpt_text s = dec_at(from, i);
        const size_t before = raw.text.n;
        bool all = !token[i]->bytes;

        for (size_t k = 0; ok && all && k < s.n;) {
            uint32_t c;
            int byte;

            k += tz_char(&c, s.at + k);
            byte = tz_byte_of(c);
            all = byte >= 0;
            ok = !all || dec_put(&raw, &(uint8_t){(uint8_t)byte}, 1);
        }
        if (!all) { // it is bytes already, or has another character
            raw.text.n = before;
            ok = ok && dec_put(&raw, s.at, s.n);
        }
    }
    ok = ok && dec_lossy(to, raw.text.at, raw.text.n);
    ckpt_vec_free(&raw.text);
    ckpt_vec_free(&raw.piece);
    return ok;
}

/* The byte of a token "<0xAB>"; -1: another token. */
static int dec_byte(ckpt_text s)
{
    static const char digit[] = "0123456789abcdef";
    int value = 0;

    if (s.n != 6 || memcmp(s.at, "<0x", 3) != 0 || s.at[5] != '>')
        return -1;
    for (int i = 3; i < 5; i++) {
        const char c = s.at[i] >= 'A' && s.at[i] <= 'F' ? (char)(s.at[i] + 32) : s.at[i];
        const char *at = c ? strchr(digit, c) : NULL;

        if (!at)
            return -1;
        value = 16 * value + (int)(at - digit);
    }
    return value;
}

/* Make characters of tokens of bytes; bytes that make none become one U+FFFD each. */
static bool dec_fallback(const dec_texts *from, dec_texts *to)
{
    ckpt_bytes run = {0};
    bool ok = true;

    for (size_t i = 0; ok && i <= from->piece.n; i++) {
        const ckpt_text s = i < from->piece.n ? dec_at(from, i) : (ckpt_text){"", 0};
        const int byte = dec_byte(s);

        if (byte >= 0) {
            ok = ckpt_bytes_add(&run, &(uint8_t){(uint8_t)byte}, 1);
            continue;
        }
        if (run.n > 0 && ckpt_utf8_ok((const char *)run.at, run.n)) {
            ok = dec_open(to) && dec_put(to, run.at, run.n);
        } else {
            for (size_t k = 0; ok && k < run.n; k++)
                ok = dec_open(to) && dec_put(to, dec_lost, 3);
        }
        run.n = 0;
        if (ok && i < from->piece.n)
            ok = dec_open(to) && dec_put(to, s.at, s.n);
    }
    ckpt_vec_free(&run);
    return ok;
}

/* Blanks for the character of Metaspace, none at the begin. */
static bool dec_metaspace(const tz_step *step, ckpt_text s, bool first, dec_texts *to)
{
    bool ok = true;

    for (size_t k = 0; ok && k < s.n;) {
        uint32_t c;
        const size_t n = tz_char(&c, s.at + k);

        if (n == step->text.n && memcmp(s.at + k, step->text.at, n) == 0)
            ok = (first && step->flag) || dec_put(to, " ", 1);
        else
            ok = dec_put(to, s.at + k, n);
        k += n;
    }
    return ok;
}

/* Remove up to `start` and `stop` times the character from the ends. */
static bool dec_strip(const tz_step *step, ckpt_text s, dec_texts *to)
{
    const size_t n = step->text.n;

    for (uint64_t k = 0;
         n > 0 && k < step->start && s.n >= n && memcmp(s.at, step->text.at, n) == 0; k++) {
        s.at += n;
        s.n -= n;
    }
    for (uint64_t k = 0;
         n > 0 && k < step->stop && s.n >= n && memcmp(s.at + s.n - n, step->text.at, n) == 0; k++)
        s.n -= n;
    return dec_put(to, s.at, s.n);
}

static int dec_replace(const tz_step *step, ckpt_text s, dec_texts *to, ckpt_err *err)
{
    size_t done = 0;

    while (done < s.n) {
        tz_match m = {s.n, SIZE_MAX};
        int rc = tz_pattern_find(&step->pattern, s, done, &m, err);

        if (rc != CKPT_OK)
            return rc;
        if (m.to == SIZE_MAX || m.to <= m.from)
            break;
        if (!dec_put(to, s.at + done, m.from - done) || !dec_put(to, step->text.at, step->text.n))
            return dec_fail(to, err);
        done = m.to;
    }
    return dec_put(to, s.at + done, s.n - done) ? CKPT_OK : dec_fail(to, err);
}

/* Replace one text by another, which is not longer, from offset `from` on. */
static void dec_swap(ckpt_bytes *text, size_t from, const char *what, const char *by)
{
    const size_t n = strlen(what), m = strlen(by);
    size_t to = from;

    for (size_t i = from; i < text->n;) {
        if (text->n - i >= n && memcmp(text->at + i, what, n) == 0) {
            memcpy(text->at + to, by, m);
            to += m;
            i += n;
        } else {
            text->at[to++] = text->at[i++];
        }
    }
    text->n = to;
}

/* WordPiece: a blank before each word, and with `cleanup` none before marks. */
static bool dec_word(const tz_step *step, ckpt_text s, bool first, dec_texts *to)
{
    static const char *const swap[][2] = {{" .", "."},     {" ?", "?"},           {" !", "!"},
                                          {" ,", ","},     {" ' ", "'"},          {" n't", "n't"},
                                          {" 'm", "'m"},   {" do not", " don't"}, {" 's", "'s"},
                                          {" 've", "'ve"}, {" 're", "'re"}};
    const size_t n = step->text.n, at = to->text.n;
    const bool part = !first && s.n >= n && memcmp(s.at, step->text.at, n) == 0;
    bool ok = first || part || dec_put(to, " ", 1);

    if (part)
        s = (ckpt_text){s.at + n, s.n - n};
    ok = ok && dec_put(to, s.at, s.n);
    for (size_t i = 0; ok && step->flag && i < sizeof swap / sizeof *swap; i++)
        dec_swap(&to->text, at, swap[i][0], swap[i][1]);
    to->piece.at[to->piece.n - 1].n = to->text.n - at;
    return ok;
}

/* Run one step over every piece by itself. */
static int dec_each(const tz_step *step, const dec_texts *from, dec_texts *to, ckpt_err *err)
{
    const bool fuse = step->kind == TZ_FUSE;
    bool ok = !fuse || dec_open(to);
    int rc = CKPT_OK;

    for (size_t i = 0; ok && rc == CKPT_OK && i < from->piece.n; i++) {
        const ckpt_text s = dec_at(from, i);

        ok = fuse || dec_open(to);
        if (!ok)
            break;
        if (step->kind == TZ_REPLACE_TEXT)
            rc = dec_replace(step, s, to, err);
        else if (step->kind == TZ_METASPACES)
            ok = dec_metaspace(step, s, i == 0, to);
        else if (step->kind == TZ_STRIP_CHAR)
            ok = dec_strip(step, s, to);
        else if (step->kind == TZ_WORDPIECES)
            ok = dec_word(step, s, i == 0, to);
        else
            ok = dec_put(to, s.at, s.n);
    }
    return rc == CKPT_OK && !ok ? dec_fail(to, err) : rc;
}

static int dec_run(const zt_tokenizer *t, const tz_shown *const *token, dec_texts *d, ckpt_err *err)
{
    int rc = CKPT_OK;

    if (t->byte_level && t->decoder.n == 0)
        return ckpt_fail(err, CKPT_EUNSUPPORTED,
                         "the tokenizer has no decoder for its tokens of bytes, so they cannot "
                         "become text; use --json to write their numbers");
    for (size_t i = 0; rc == CKPT_OK && i < t->decoder.n; i++) {
        const tz_step *step = &t->decoder.at[i];
        dec_texts to = {0};

        if (step->kind == TZ_STEP_OTHER || (t->byte_level && step->kind != TZ_BYTES) ||
            (step->kind == TZ_BYTES && i > 0))
            rc = ckpt_fail(err, CKPT_EUNSUPPORTED,
                           "the tokenizer's decoder (%.60s) is not supported, so tokens cannot "
                           "become text; use --json to write their numbers",
                           step->kind == TZ_STEP_OTHER ? step->text.at : "a sequence of steps");
        else if (step->kind == TZ_BYTES)
            rc = dec_bytes(d, token, &to) ? CKPT_OK : dec_fail(&to, err);
        else if (step->kind == TZ_FALLBACK)
            rc = dec_fallback(d, &to) ? CKPT_OK : dec_fail(&to, err);
        else
            rc = dec_each(step, d, &to, err);
        ckpt_vec_free(&d->text);
        ckpt_vec_free(&d->piece);
        *d = to;
    }
    return rc;
}

int zt_tokenizer_decode(const zt_tokenizer *t, const int32_t *ids, size_t n, ckpt_bytes *out,
                        ckpt_err *err)
{
    assert(t && out && (ids || n == 0));
    const tz_shown **token = ckpt_alloc((n + 1) * sizeof *token);
    dec_texts d = {0};
    size_t n_tokens = 0;
    bool ok = token != NULL;
    int rc;

    for (size_t i = 0; ok && i < n; i++) {
        const tz_shown *s = dec_find(t, ids[i]);

        if (!s || s->special)
            continue;
        token[n_tokens++] = s;
        ok = dec_open(&d) && dec_put(&d, s->text, s->n);
    }
    rc = ok ? dec_run(t, token, &d, err) : dec_fail(&d, err);
    for (size_t i = 0; rc == CKPT_OK && i < d.piece.n; i++) {
        const ckpt_text s = dec_at(&d, i);

        if ((t->decoder.n == 0 && i > 0 && !ckpt_bytes_add(out, " ", 1)) ||
            (s.n > 0 && !ckpt_bytes_add(out, s.at, s.n)))
            rc = ckpt_fail_memory(err);
    }
    ckpt_free((void *)token);
    ckpt_vec_free(&d.text);
    ckpt_vec_free(&d.piece);
    return rc;
}
