/* SPDX-License-Identifier: Apache-2.0 */
/* normal.c: normalizes text before it is split: Unicode forms, case, replacements, white space. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <unicase.h>
#include <unictype.h>
#include <uninorm.h>
#include <unistr.h>

#include "engine/config/fields.h"
#include "engine/tokenizer/inside.h"
#include "libckpt/map/map.h"

enum { NRM_DEPTH = 8 /* sequences in each other */ };

/* ---- reading ---- */

static const struct {
    const char *name;
    tz_normal_kind kind;
} nrm_kinds[] = {{"NFC", TZ_NFC},
                 {"NFD", TZ_NFD},
                 {"NFKC", TZ_NFKC},
                 {"NFKD", TZ_NFKD},
                 {"Lowercase", TZ_LOWER},
                 {"Prepend", TZ_PREPEND},
                 {"Replace", TZ_REPLACE},
                 {"Strip", TZ_STRIP},
                 {"StripAccents", TZ_STRIP_ACCENTS},
                 {"Precompiled", TZ_CHARSMAP}};

static int nrm_charsmap(tz_normal *to, const ckpt_value *v, ckpt_err *err)
{
    const ckpt_value *text = ckpt_value_get(v, "precompiled_charsmap");
    ckpt_arena *arena = ckpt_arena_new(0);
    char *bytes = NULL;
    size_t n = 0;
    int rc = arena ? CKPT_OK : ckpt_fail_memory(err);

    if (arena && text && text->kind == CKPT_V_STR)
        bytes = ds_unbase64(arena, text->as.text.at, &n);
    if (rc == CKPT_OK && !bytes)
        rc = ckpt_fail(err, CKPT_EFORMAT,
                       "normalizer Precompiled: precompiled_charsmap is not base64");
    if (rc == CKPT_OK)
        rc = tz_charsmap_new(&to->map, bytes, n, err);
    ckpt_arena_free(arena);
    return rc;
}

static int nrm_text(tz_normal *to, const ckpt_value *v, const char *key, ckpt_err *err)
{
    const ckpt_value *text = ckpt_value_get(v, key);

    if (!text || text->kind != CKPT_V_STR)
        return ckpt_fail(err, CKPT_EFORMAT, "a normalizer has no text '%s'", key);
    to->text = text->as.text;
    return CKPT_OK;
}

static int nrm_one(tz_normals *out, const ckpt_value *v, ckpt_err *err)
{
    const ckpt_value *type = ckpt_value_get(v, "type");
    tz_normal *to = ckpt_vec_push(out);
    size_t i = 0, n = sizeof nrm_kinds / sizeof *nrm_kinds;

    if (!to)
        return ckpt_fail_memory(err);
    while (i < n && !(type && ckpt_value_is(type, nrm_kinds[i].name)))
        i++;
    if (i == n)
        return ckpt_fail(err, CKPT_EUNSUPPORTED, "normalizer %.60s is not supported",
                         tz_said(type));
    to->kind = nrm_kinds[i].kind;
    to->left = tz_flag(v, "strip_left", false);
    to->right = tz_flag(v, "strip_right", false);
    if (to->kind == TZ_CHARSMAP)
        return nrm_charsmap(to, v, err);
    if (to->kind == TZ_PREPEND)
        return nrm_text(to, v, "prepend", err);
    if (to->kind != TZ_REPLACE)
        return CKPT_OK;
    int rc = nrm_text(to, v, "content", err);
    return rc == CKPT_OK ? tz_pattern_read(&to->pattern, ckpt_value_get(v, "pattern"), err) : rc;
}

int tz_normal_read(tz_normals *out, const ckpt_value *v, unsigned depth, ckpt_err *err)
{
    const ckpt_value *type = ckpt_value_get(v, "type");
    const ckpt_seq list = ckpt_value_seq(ckpt_value_get(v, "normalizers"));
    int rc = CKPT_OK;

    if (!v || v->kind == CKPT_V_NONE)
        return CKPT_OK;
    if (!type || !ckpt_value_is(type, "Sequence"))
        return nrm_one(out, v, err);
    if (depth >= NRM_DEPTH)
        return ckpt_fail(err, CKPT_ELIMIT, "normalizers are nested more than %d deep", NRM_DEPTH);
    for (uint64_t i = 0; rc == CKPT_OK && i < list.n; i++)
        rc = tz_normal_read(out, list.at[i], depth + 1, err);
    return rc;
}

void tz_normal_free(tz_normals *all)
{
    for (size_t i = 0; i < all->n; i++) {
        tz_regex_free(all->at[i].pattern.regex);
        tz_charsmap_free(all->at[i].map);
    }
    ckpt_vec_free(all);
}

/* ---- running ---- */

static bool nrm_ascii(const ckpt_bytes *s)
{
    for (size_t i = 0; i < s->n; i++) {
        if (s->at[i] & 0x80)
            return false;
    }
    return true;
}

static bool nrm_form(uninorm_t form, const ckpt_bytes *s, ckpt_bytes *to)
{
    size_t n = 0;
    uint8_t *made;
    bool ok;

    if (nrm_ascii(s)) // most text, which these forms do not change
        return ckpt_bytes_add(to, s->at, s->n);
    made = u8_normalize(form, s->at, s->n, NULL, &n);
    ok = made && ckpt_bytes_add(to, made, n);
    free(made);
    return ok;
}

/* Append a character in lower case: without regard to its neighbours, as `tokenizers` does. */
static bool nrm_lower(uint32_t c, ckpt_bytes *to)
{
    uint8_t bytes[6];
    int n;

    if (c == 0x130) // the one character whose lower case is two
        return ckpt_bytes_add(to, "i\xcc\x87", 3);
    n = u8_uctomb(bytes, uc_tolower(c), sizeof bytes);
    return n > 0 && ckpt_bytes_add(to, bytes, (size_t)n);
}

/* Append the characters of s: in lower case, or without marks. */
static bool nrm_each(tz_normal_kind kind, const ckpt_bytes *s, ckpt_bytes *to)
{
    bool ok = true;

    for (size_t i = 0, len; ok && i < s->n; i += len) {
        uint32_t c;

        len = tz_char(&c, (const char *)s->at + i);
        if (kind == TZ_LOWER)
            ok = nrm_lower(c, to);
        else if (!uc_is_general_category_withtable(c, UC_CATEGORY_MASK_M))
            ok = ckpt_bytes_add(to, s->at + i, len);
    }
    return ok;
}

static bool nrm_strip(const tz_normal *how, const ckpt_bytes *s, ckpt_bytes *to)
{
    size_t from = 0, end = s->n, len;
    uint32_t c;

    while (how->left && from < end) {
        len = tz_char(&c, (const char *)s->at + from);
        if (!tz_is_space(c))
            break;
        from += len;
    }
    while (how->right && end > from) {
        size_t at = end - 1;
        while (at > from && (s->at[at] & 0xc0) == 0x80)
            at--;
        (void)tz_char(&c, (const char *)s->at + at);
        if (!tz_is_space(c))
            break;
        end = at;
    }
    return ckpt_bytes_add(to, s->at + from, end - from);
}

static int nrm_replace(const tz_normal *how, const ckpt_bytes *s, ckpt_bytes *to, ckpt_err *err)
{
    const ckpt_text text = {(const char *)s->at, s->n};
    size_t done = 0, from = 0;
    bool ok = true;

    while (ok && from <= s->n) {
        tz_match m;
        int rc = tz_pattern_find(&how->pattern, text, from, &m, err);

        if (rc != CKPT_OK)
            return rc;
        if (m.to == SIZE_MAX)
            break;
        ok = ckpt_bytes_add(to, s->at + done, m.from - done) &&
             ckpt_bytes_add(to, how->text.at, how->text.n);
        done = m.to;
        from = m.to;
        if (m.to == m.from) { // nothing was matched: go on after the next character
            uint32_t c;
            from += from < s->n ? tz_char(&c, text.at + from) : 1;
        }
    }
    ok = ok && ckpt_bytes_add(to, s->at + done, s->n - done);
    return ok ? CKPT_OK : ckpt_fail_memory(err);
}

static int nrm_run(const tz_normal *how, const ckpt_bytes *s, ckpt_bytes *to, ckpt_err *err)
{
    bool ok = true;

    switch (how->kind) {
    case TZ_NFC:
        ok = nrm_form(UNINORM_NFC, s, to);
        break;
    case TZ_NFD:
        ok = nrm_form(UNINORM_NFD, s, to);
        break;
    case TZ_NFKC:
        ok = nrm_form(UNINORM_NFKC, s, to);
        break;
    case TZ_NFKD:
        ok = nrm_form(UNINORM_NFKD, s, to);
        break;
    case TZ_PREPEND:
        ok = ckpt_bytes_add(to, how->text.at, how->text.n) && ckpt_bytes_add(to, s->at, s->n);
        break;
    case TZ_REPLACE:
        return nrm_replace(how, s, to, err);
    case TZ_STRIP:
        ok = nrm_strip(how, s, to);
        break;
    case TZ_CHARSMAP:
        ok = tz_charsmap_run(how->map, to, s->at, s->n);
        break;
    case TZ_LOWER:
    case TZ_STRIP_ACCENTS:
        ok = nrm_each(how->kind, s, to);
    }
    return ok ? CKPT_OK : ckpt_fail_memory(err);
}

int tz_normal_run(const tz_normals *all, ckpt_bytes *text, ckpt_bytes *spare, ckpt_err *err)
{
    assert(all && text && spare && text != spare);
    int rc = CKPT_OK;

    for (size_t i = 0; rc == CKPT_OK && i < all->n && text->n > 0; i++) {
        ckpt_bytes old = *text;

        spare->n = 0;
        rc = nrm_run(&all->at[i], text, spare, err);
        *text = *spare;
        *spare = old;
        if (rc == CKPT_OK && all->at[i].kind == TZ_CHARSMAP && text->n > 0 &&
            !ckpt_utf8_ok((const char *)text->at, text->n))
            rc = ckpt_fail(err, CKPT_EFORMAT,
                           "the tokenizer's table of characters (precompiled_charsmap) makes text "
                           "that is not UTF-8");
        if (rc == CKPT_OK && text->n > 2 * ZT_TEXT_BYTES)
            rc = ckpt_fail(err, CKPT_ELIMIT, "a normalized text has more than %llu bytes",
                           (unsigned long long)(2 * ZT_TEXT_BYTES));
    }
    return rc;
}
