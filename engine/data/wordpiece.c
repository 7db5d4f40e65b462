/* SPDX-License-Identifier: Apache-2.0 */
/*
 * wordpiece.c: implements BERT's tokenizer, which splits text into words, and words into the
 * longest pieces of a vocabulary.
 *
 * As in transformers' BertTokenizer: control characters are removed, CJK characters are words of
 * their own, (uncased) accents are removed and letters lowered; words end at white space and at
 * punctuation.  A word is then split, from its beginning, into the longest pieces in the
 * vocabulary, all but the first written with "##".  A word that cannot be split in this way, or is
 * longer than 100 characters, is [UNK].  The tables of Unicode are those of libunistring.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unicase.h>
#include <unictype.h>
#include <uninorm.h>
#include <unistr.h>

#include "engine/data/source.h"
#include "libckpt/base/digest.h"
#include "libckpt/base/index.h"

#define WP_LONGEST 100 /* characters of a word */

struct zt_wordpiece {
    char *text;   /* the file, with NUL after each line */
    uint32_t *at; /* offset of each line in text */
    uint32_t n;
    ckpt_index pieces; /* finds the lines by their text */
    bool lower_case;
    uint32_t sum; /* CRC-32 of the file and lower_case */
    int32_t unknown, cls, sep, pad;
};

/* ---- vocabulary ---- */

static bool wp_same(const void *ctx, uint32_t line, const void *key)
{
    const zt_wordpiece *w = ctx;
    const ckpt_text *piece = key;
    const char *have = w->text + w->at[line];

    return strncmp(have, piece->at, piece->n) == 0 && !have[piece->n];
}

/* Find the number of a piece; -1: unknown. */
static int32_t wp_find(const zt_wordpiece *w, const char *s, size_t n)
{
    const ckpt_text piece = {s, n};
    uint32_t line = ckpt_index_find(&w->pieces, ckpt_hash_bytes(s, n, 0), wp_same, w, &piece);

    return line != CKPT_INDEX_NONE ? (int32_t)line : -1;
}

static int wp_index(zt_wordpiece *w, size_t size, ckpt_err *err)
{
    uint32_t line = 0;

    for (size_t i = 0; i < size; i++)
        w->n += w->text[i] == '\n';
    w->n += size && w->text[size - 1] != '\n';
    w->at = ckpt_alloc((size_t)w->n * sizeof *w->at + 1);
    if (!w->at)
        return ckpt_fail_memory(err);
    for (size_t i = 0; i < size; line++) {
        size_t n = strcspn(w->text + i, "\n"), end = i + n;
        n -= n && w->text[i + n - 1] == '\r';
        w->text[i + n] = w->text[end] = 0;
        w->at[line] = (uint32_t)i;
        i = end + 1;
    }
    // for equal lines the last one counts, as in transformers
    while (line-- > 0) {
        const char *piece = w->text + w->at[line];
        size_t n = strlen(piece);
        if (wp_find(w, piece, n) < 0 &&
            !ckpt_index_add(&w->pieces, ckpt_hash_bytes(piece, n, 0), line))
            return ckpt_fail_memory(err);
    }
    return CKPT_OK;
}

static int wp_load(zt_wordpiece *w, const char *path, ckpt_err *err)
{
    static const char *const need[] = {"[UNK]", "[CLS]", "[SEP]", "[PAD]"};
    int32_t *to[] = {&w->unknown, &w->cls, &w->sep, &w->pad};
    size_t size = 0;
    int rc = zt_data_slurp(&w->text, &size, path, UINT64_C(64) << 20, err);

    if (rc == CKPT_OK && (u8_check((const uint8_t *)w->text, size) || memchr(w->text, 0, size)))
        rc = ckpt_fail(err, CKPT_EFORMAT, "%s: is not UTF-8 text", path);
    if (rc == CKPT_OK) {
        w->sum = ckpt_crc32(w->lower_case ? 1 : 0, w->text, size);
        rc = wp_index(w, size, err);
    }
    for (int i = 0; rc == CKPT_OK && i < 4; i++) {
        *to[i] = wp_find(w, need[i], strlen(need[i]));
        if (*to[i] < 0)
            rc = ckpt_fail(err, CKPT_EFORMAT, "%s: lacks %s: is it a vocabulary of BERT?", path,
                           need[i]);
    }
    return rc;
}

int zt_wordpiece_read(zt_wordpiece **out, const char *vocab_path, bool lower_case, ckpt_err *err)
{
    zt_wordpiece *w = ckpt_alloc(sizeof *w);
    int rc;

    if (!w)
        return ckpt_fail_memory(err);
    w->lower_case = lower_case;
    rc = wp_load(w, vocab_path, err);
    if (rc == CKPT_OK)
        *out = w;
    else
        zt_wordpiece_free(w);
    return rc;
}

void zt_wordpiece_free(zt_wordpiece *w)
{
    if (!w)
        return;
    ckpt_free(w->text);
    ckpt_free(w->at);
    ckpt_index_free(&w->pieces);
    ckpt_free(w);
}

uint32_t zt_wordpiece_size(const zt_wordpiece *w)
{
    return w->n;
}

uint32_t zt_wordpiece_sum(const zt_wordpiece *w)
{
    return w->sum;
}

/* ---- characters ---- */

/*
 * True for the blocks that BERT treats as Chinese characters (all CJK ideographs; no kana, no
 * hangul).
 */
static bool wp_is_cjk(ucs4_t c)
{
    return (c >= 0x4e00 && c <= 0x9fff) || (c >= 0x3400 && c <= 0x4dbf) ||
           (c >= 0x20000 && c <= 0x2a6df) || (c >= 0x2a700 && c <= 0x2b73f) ||
           (c >= 0x2b740 && c <= 0x2b81f) || (c >= 0x2b920 && c <= 0x2ceaf) ||
           (c >= 0xf900 && c <= 0xfaff) || (c >= 0x2f800 && c <= 0x2fa1f);
}

static bool wp_is_space(ucs4_t c)
{
    return c == ' ' || c == '\t' || c == '\n' || c == '\r' || uc_is_property_white_space(c);
}

static bool wp_is_control(ucs4_t c)
{
    return c == 0 || c == 0xfffd || uc_is_general_category_withtable(c, UC_CATEGORY_MASK_C);
}

/* True for Unicode punctuation, and for printing ASCII characters that are neither letter nor
 * digit. */
static bool wp_is_mark(ucs4_t c)
{
    return (c >= 33 && c <= 47) || (c >= 58 && c <= 64) || (c >= 91 && c <= 96) ||
           (c >= 123 && c <= 126) || uc_is_general_category_withtable(c, UC_CATEGORY_MASK_P);
}

/* ---- words ---- */

typedef struct wp_out {
    const zt_wordpiece *w;
    int32_t *id;
    uint64_t n, max;
} wp_out;

static void wp_put(wp_out *o, int32_t id)
{
    if (o->n < o->max)
        o->id[o->n++] = id;
}

/* Append the pieces of one word of n bytes and n_chars characters. */
static void wp_word(wp_out *o, const uint8_t *word, size_t n, size_t n_chars)
{
    char piece[WP_LONGEST * 6 + 8] = "##";
    uint64_t first = o->n;

    if (n_chars > WP_LONGEST) {
        wp_put(o, o->w->unknown);
        return;
    }
    for (size_t at = 0; at < n;) {
        size_t end = n;
        int32_t id = -1;
        while (end > at) {
            memcpy(piece + 2, word + at, end - at);
            id = wp_find(o->w, piece + (at ? 0 : 2), end - at + (at ? 2 : 0));
            if (id >= 0)
                break;
            for (end--; end > at && (word[end] & 0xc0) == 0x80; end--)
                ;
        }
        if (id < 0) {
            o->n = first;
            wp_put(o, o->w->unknown);
            return;
        }
        wp_put(o, id);
        at = end;
    }
}

/*
 * Split cleaned text into words at white space, and around characters that are words of their own.
 */
static void wp_words(wp_out *o, const uint8_t *s, size_t n)
{
    size_t start = 0, chars = 0, len;

    for (size_t i = 0; i < n; i += len) {
        ucs4_t c;
        bool alone;
        len = (size_t)u8_mbtouc(&c, s + i, n - i);
        alone = wp_is_mark(c) || wp_is_cjk(c);
        if (!alone && !wp_is_space(c)) {
            chars++;
            continue;
        }
        if (chars)
            wp_word(o, s + start, i - start, chars);
        if (alone)
            wp_word(o, s + i, len, 1);
        start = i + len;
        chars = 0;
    }
    if (chars)
        wp_word(o, s + start, n - start, chars);
}

/* Remove control characters in place (and accents); returns the new length. */
static size_t wp_clean(uint8_t *s, size_t n, bool accents)
{
    size_t to = 0, len;

    for (size_t i = 0; i < n; i += len) {
        ucs4_t c;
        len = (size_t)u8_mbtouc(&c, s + i, n - i);
        if ((wp_is_control(c) && !wp_is_space(c)) ||
            (accents && uc_is_general_category_withtable(c, UC_CATEGORY_MASK_Mn)))
            continue;
        memmove(s + to, s + i, len);
        to += len;
    }
    return to;
}

/* Lower each character on its own, as the tokenizers library does (no final sigma).  `to` needs 2n
 * bytes. */
static size_t wp_lower(uint8_t *to, const uint8_t *s, size_t n)
{
    size_t m = 0, len;

    for (size_t i = 0; i < n; i += len) {
        ucs4_t c;
        len = (size_t)u8_mbtouc(&c, s + i, n - i);
        m += (size_t)u8_uctomb(to + m, uc_tolower(c), (ptrdiff_t)(2 * n - m));
    }
    return m;
}

/* Clean text in new memory (free with free()): without accents and in lower case if requested. */
static uint8_t *wp_normal(const zt_wordpiece *w, const char *text, size_t *n)
{
    uint8_t *copy = malloc(*n + 1), *apart, *low;

    if (!copy)
        return NULL;
    if (*n > 0)
        memcpy(copy, text, *n);
    *n = wp_clean(copy, *n, false);
    if (!w->lower_case)
        return copy;
    apart = u8_normalize(UNINORM_NFD, copy, *n, NULL, n);
    free(copy);
    if (!apart)
        return NULL;
    *n = wp_clean(apart, *n, true);
    low = malloc(2 * *n + 1);
    if (low)
        *n = wp_lower(low, apart, *n);
    free(apart);
    return low;
}

int64_t zt_wordpiece_encode(const zt_wordpiece *w, const char *text, size_t n, uint64_t max,
                            int32_t *id)
{
    wp_out o = {w, id, 0, max > 1 ? max - 1 : max};
    uint8_t *s;

    if (u8_check((const uint8_t *)text, n))
        return -1;
    s = wp_normal(w, text, &n);
    if (!s)
        return -1;
    wp_put(&o, w->cls);
    wp_words(&o, s, n);
    free(s);
    o.max = max;
    wp_put(&o, w->sep);
    return (int64_t)o.n;
}
