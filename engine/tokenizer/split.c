/* SPDX-License-Identifier: Apache-2.0 */
/* split.c: splits normalized text into the words that the model sees (pre-tokenizers). */
#include <assert.h>
#include <string.h>

#include "engine/tokenizer/inside.h"

enum { SP_DEPTH = 8 /* sequences in each other */ };

static const char cut_bytes_pattern[] = "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+"
                                        "| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";

/* ---- reading ---- */

static int cut_behavior(tz_behavior *out, const ckpt_value *v, ckpt_err *err)
{
    static const char *const name[] = {"Removed", "Isolated", "MergedWithPrevious",
                                       "MergedWithNext", "Contiguous"};
    for (unsigned i = 0; i < 5; i++) {
        if (v && ckpt_value_is(v, name[i])) {
            *out = (tz_behavior)i;
            return CKPT_OK;
        }
    }
    return ckpt_fail(err, CKPT_EUNSUPPORTED, "a pre-tokenizer's behavior %.60s is not supported",
                     tz_said(v));
}

static int cut_pattern(tz_split *to, const ckpt_value *v, ckpt_err *err)
{
    int rc = tz_pattern_read(&to->pattern, ckpt_value_get(v, "pattern"), err);

    to->invert = tz_flag(v, "invert", false);
    return rc == CKPT_OK ? cut_behavior(&to->behavior, ckpt_value_get(v, "behavior"), err) : rc;
}

static int cut_metaspace(tz_split *to, const ckpt_value *v, ckpt_err *err)
{
    const ckpt_value *space = ckpt_value_get(v, "replacement");
    const ckpt_value *scheme = ckpt_value_get(v, "prepend_scheme");
    bool always = scheme ? ckpt_value_is(scheme, "always") : tz_flag(v, "add_prefix_space", true);

    to->prefix = always ? TZ_ALWAYS : TZ_NEVER;
    if (scheme && ckpt_value_is(scheme, "first"))
        to->prefix = TZ_FIRST;
    else if (scheme && !always && !ckpt_value_is(scheme, "never"))
        return ckpt_fail(err, CKPT_EUNSUPPORTED, "Metaspace: prepend_scheme %.60s",
                         tz_said(scheme));
    if (!space || space->kind != CKPT_V_STR || space->as.text.n == 0)
        return ckpt_fail(err, CKPT_EFORMAT, "Metaspace: replacement is missing");
    to->space = space->as.text;
    to->cut = tz_flag(v, "split", true);
    to->behavior = TZ_MERGED_WITH_NEXT;
    to->pattern.text = to->space;
    return CKPT_OK;
}

static int cut_byte_level(tz_split *to, const ckpt_value *v, ckpt_err *err)
{
    const ckpt_text pattern = {cut_bytes_pattern, sizeof cut_bytes_pattern - 1};

    to->prefix = tz_flag(v, "add_prefix_space", true) ? TZ_ALWAYS : TZ_NEVER;
    to->cut = tz_flag(v, "use_regex", true);
    to->space = (ckpt_text){" ", 1};
    to->behavior = TZ_ISOLATED;
    return to->cut ? tz_regex_new(&to->pattern.regex, pattern, err) : CKPT_OK;
}

static int cut_one(tz_splits *out, const ckpt_value *v, ckpt_err *err)
{
    static const struct {
        const char *name;
        tz_split_kind kind;
    } kinds[] = {{"Split", TZ_BY_PATTERN},         {"Digits", TZ_BY_DIGITS},
                 {"WhitespaceSplit", TZ_BY_SPACE}, {"Punctuation", TZ_BY_MARK},
                 {"Whitespace", TZ_BY_WORD},       {"Metaspace", TZ_METASPACE},
                 {"ByteLevel", TZ_BYTE_LEVEL}};
    const ckpt_value *type = ckpt_value_get(v, "type");
    size_t i = 0, n = sizeof kinds / sizeof *kinds;
    tz_split *to = ckpt_vec_push(out);

    if (!to)
        return ckpt_fail_memory(err);
    while (i < n && !(type && ckpt_value_is(type, kinds[i].name)))
        i++;
    if (i == n)
        return ckpt_fail(err, CKPT_EUNSUPPORTED, "pre-tokenizer %.60s is not supported",
                         tz_said(type));
    to->kind = kinds[i].kind;
    if (to->kind == TZ_BY_PATTERN)
        return cut_pattern(to, v, err);
    if (to->kind == TZ_METASPACE)
        return cut_metaspace(to, v, err);
    if (to->kind == TZ_BYTE_LEVEL)
        return cut_byte_level(to, v, err);
    if (to->kind == TZ_BY_DIGITS)
        to->behavior = tz_flag(v, "individual_digits", false) ? TZ_ISOLATED : TZ_CONTIGUOUS;
    if (to->kind == TZ_BY_MARK && ckpt_value_get(v, "behavior"))
        return cut_behavior(&to->behavior, ckpt_value_get(v, "behavior"), err);
    if (to->kind == TZ_BY_MARK)
        to->behavior = TZ_ISOLATED;
    to->invert = to->kind == TZ_BY_WORD; // the words stay, white space is removed
    return CKPT_OK;
}

int tz_split_read(tz_splits *out, const ckpt_value *v, unsigned depth, ckpt_err *err)
{
    const ckpt_value *type = ckpt_value_get(v, "type");
    const ckpt_seq list = ckpt_value_seq(ckpt_value_get(v, "pretokenizers"));
    int rc = CKPT_OK;

    if (!v || v->kind == CKPT_V_NONE)
        return CKPT_OK;
    if (!type || !ckpt_value_is(type, "Sequence"))
        return cut_one(out, v, err);
    if (depth >= SP_DEPTH)
        return ckpt_fail(err, CKPT_ELIMIT, "pre-tokenizers are nested more than %d deep", SP_DEPTH);
    for (uint64_t i = 0; rc == CKPT_OK && i < list.n; i++)
        rc = tz_split_read(out, list.at[i], depth + 1, err);
    return rc;
}

void tz_split_free(tz_splits *all)
{
    for (size_t i = 0; i < all->n; i++)
        tz_regex_free(all->at[i].pattern.regex);
    ckpt_vec_free(all);
}

/* ---- matches ---- */

/* The class of a character; 0: it is no part of a match. */
static int cut_class(const tz_split *how, uint32_t c)
{
    if (how->kind == TZ_BY_DIGITS)
        return tz_is_numeric(c);
    if (how->kind == TZ_BY_SPACE)
        return tz_is_space(c);
    if (how->kind == TZ_BY_MARK)
        return tz_is_mark(c);
    return tz_is_space(c) ? 0 : tz_is_word(c) ? 1 : 2;
}

/* Find the next match at or after `from`: a character, or by BY_WORD neighbours of one class. */
static int cut_find(const tz_split *how, ckpt_text s, size_t from, tz_match *m, ckpt_err *err)
{
    uint32_t c;
    int class = 0;

    if (how->kind == TZ_BY_PATTERN || how->kind == TZ_METASPACE || how->kind == TZ_BYTE_LEVEL)
        return tz_pattern_find(&how->pattern, s, from, m, err);
    *m = (tz_match){SIZE_MAX, SIZE_MAX};
    for (size_t len; from < s.n; from += len) {
        len = tz_char(&c, s.at + from);
        class = cut_class(how, c);
        if (!class)
            continue;
        *m = (tz_match){from, from + len};
        break;
    }
    while (how->kind == TZ_BY_WORD && m->to < s.n) {
        size_t len = tz_char(&c, s.at + m->to);
        if (cut_class(how, c) != class)
            break;
        m->to += len;
    }
    return CKPT_OK;
}

/* State of one piece's division: parts that match alternate with parts that do not. */
typedef struct cut_parts {
    const tz_split *how;
    tz_pieces *out;
    size_t first; /* index in out of the first part of this piece */
    bool before;  /* the previous part was a match */
    bool merge;   /* MERGED_WITH_NEXT: the last part waits for its neighbour */
} cut_parts;

/* Append a part, or add it to the last one. */
static bool cut_part(cut_parts *p, size_t at, size_t n, bool match)
{
    const tz_behavior b = p->how->behavior;
    const bool before = p->before, merge = p->merge;
    tz_piece *last = p->out->n > p->first ? &p->out->at[p->out->n - 1] : NULL;
    bool join = false;

    match = match != p->how->invert;
    p->before = match;
    p->merge = false;
    if (b == TZ_REMOVED && match)
        return true;
    if (b == TZ_CONTIGUOUS)
        join = match == before;
    else if (b == TZ_MERGED_WITH_PREVIOUS)
        join = match && !before;
    else if (b == TZ_MERGED_WITH_NEXT) {
        // a match joins the next piece, unless that is a match
        join = merge && !match;
        p->merge = match;
    }
    if (join && last) {
        last->n += n;
        return true;
    }
    if (n == 0)
        return true;
    last = ckpt_vec_push(p->out);
    if (last)
        *last = (tz_piece){at, n};
    return last != NULL;
}

/* Divide one piece of w->text. */
static int cut_divide(const tz_split *how, tz_work *w, tz_piece piece, ckpt_err *err)
{
    const ckpt_text s = {(const char *)w->text.at + piece.at, piece.n};
    cut_parts parts = {.how = how, .out = &w->next, .first = w->next.n};
    size_t done = 0, from = 0;
    bool ok = true;

    while (ok && from <= s.n) {
        tz_match m;
        int rc = cut_find(how, s, from, &m, err);

        if (rc != CKPT_OK)
            return rc;
        if (m.to == SIZE_MAX)
            break;
        if (m.from > done)
            ok = cut_part(&parts, piece.at + done, m.from - done, false);
        ok = ok && cut_part(&parts, piece.at + m.from, m.to - m.from, true);
        done = m.to;
        from = m.to;
        if (m.to == m.from) { // nothing was matched: go on after the next character
            uint32_t c;
            from += from < s.n ? tz_char(&c, s.at + from) : 1;
        }
    }
    if (done < s.n)
        ok = ok && cut_part(&parts, piece.at + done, s.n - done, false);
    return ok ? CKPT_OK : ckpt_fail_memory(err);
}

/* ---- changes of the text ---- */

/* Append one piece with its blanks replaced, and with a blank before it if it has none. */
static bool cut_rewrite(const tz_split *how, const tz_work *w, size_t i, ckpt_bytes *to)
{
    const uint8_t *s = w->text.at + w->piece.at[i].at;
    const size_t n = w->piece.at[i].n, start = to->n;
    const ckpt_text space = how->space;
    const bool meta = how->kind == TZ_METASPACE;
    bool begins = n >= space.n && memcmp(s, space.at, space.n) == 0, ok = true;

    begins = begins || (meta && s[0] == ' ');
    if (!begins && (how->prefix == TZ_ALWAYS || (how->prefix == TZ_FIRST && w->first && i == 0)))
        ok = ckpt_bytes_add(to, space.at, space.n);
    for (size_t at = 0, run; ok && at < n; at += run) {
        const uint8_t *blank = meta ? memchr(s + at, ' ', n - at) : NULL;

        run = blank ? (size_t)(blank - s) - at : n - at;
        ok = ckpt_bytes_add(to, s + at, run);
        if (ok && blank)
            ok = ckpt_bytes_add(to, space.at, space.n);
        run += blank != NULL;
    }
    w->piece.at[i].at = start;
    w->piece.at[i].n = to->n - start;
    return ok;
}

/* Rewrite all pieces into the spare text, which becomes the text. */
static int cut_change(const tz_split *how, tz_work *w, ckpt_err *err)
{
    ckpt_bytes old = w->text;

    if (how->kind == TZ_BYTE_LEVEL && how->prefix == TZ_NEVER)
        return CKPT_OK;
    w->spare.n = 0;
    for (size_t i = 0; i < w->piece.n; i++) {
        if (!cut_rewrite(how, w, i, &w->spare))
            return ckpt_fail_memory(err);
    }
    w->text = w->spare;
    w->spare = old;
    return CKPT_OK;
}

int tz_split_run(const tz_splits *all, tz_work *w, ckpt_err *err)
{
    assert(all && w);
    int rc = CKPT_OK;

    for (size_t k = 0; rc == CKPT_OK && k < all->n; k++) {
        const tz_split *how = &all->at[k];
        const bool changes = how->kind == TZ_METASPACE || how->kind == TZ_BYTE_LEVEL;
        tz_pieces old = w->piece;

        if (changes)
            rc = cut_change(how, w, err);
        if (changes && !how->cut)
            continue;
        w->next.n = 0;
        for (size_t i = 0; rc == CKPT_OK && i < w->piece.n; i++)
            rc = cut_divide(how, w, w->piece.at[i], err);
        w->piece = w->next;
        w->next = old;
    }
    return rc;
}
