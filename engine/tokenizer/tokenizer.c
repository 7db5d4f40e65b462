/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tokenizer.c: encodes a text: finds added tokens first, normalizes and splits the text between
 * them, and gives it to the model word by word.
 */
#include <assert.h>
#include <inttypes.h>
#include <string.h>

#include "engine/tokenizer/inside.h"
#include "libckpt/map/map.h"

static bool enc_is_spm(const char *path)
{
    const size_t n = strlen(path);

    return n >= 6 && strcmp(path + n - 6, ".model") == 0;
}

int zt_tokenizer_open(zt_tokenizer **out, const char *path, ckpt_err *err)
{
    assert(out && path);
    zt_tokenizer *t = ckpt_alloc(sizeof *t);
    int rc;

    if (!t)
        return ckpt_fail_memory(err);
    t->vocab.last = t->raw.last = t->normal.last = -1;
    t->arena = ckpt_arena_new(UINT64_C(4) << 30);
    rc = !t->arena          ? ckpt_fail_memory(err)
         : enc_is_spm(path) ? tz_spm_read(t, path, err)
                            : tz_file_read(t, path, err);
    tz_show_sort(t);
    if (rc == CKPT_OK)
        *out = t;
    else
        zt_tokenizer_free(t);
    return rc;
}

void zt_tokenizer_free(zt_tokenizer *t)
{
    if (!t)
        return;
    tz_sorted_free(&t->raws);
    tz_sorted_free(&t->normals);
    tz_vocab_free(&t->vocab);
    tz_vocab_free(&t->raw);
    tz_vocab_free(&t->normal);
    ckpt_vec_free(&t->added);
    tz_normal_free(&t->normalizer);
    tz_split_free(&t->split);
    tz_bpe_free(t->bpe);
    tz_unigram_free(t->unigram);
    ckpt_vec_free(&t->before);
    ckpt_vec_free(&t->after);
    ckpt_vec_free(&t->shown);
    tz_decoder_free(&t->decoder);
    ckpt_vec_free(&t->work.text);
    ckpt_vec_free(&t->work.spare);
    ckpt_vec_free(&t->work.piece);
    ckpt_vec_free(&t->work.next);
    ckpt_arena_free(t->arena);
    ckpt_free(t);
}

int32_t zt_tokenizer_find(const zt_tokenizer *t, const char *text)
{
    assert(t && text);
    const tz_vocab *const all[] = {&t->raw, &t->normal};
    const tz_token *found;

    for (unsigned i = 0; i < 2; i++) {
        found = tz_vocab_find(all[i], text, strlen(text));
        if (found)
            return t->added.at[found->id].id;
    }
    found = tz_vocab_find(&t->vocab, text, strlen(text));
    return found ? found->id : -1;
}

/* ---- added tokens ---- */

/* True if a word's character is before s[at] (or at it). */
static bool enc_word(const char *s, size_t n, size_t at, bool before)
{
    uint32_t c;

    if (before ? at == 0 : at >= n)
        return false;
    if (before) {
        for (at--; at > 0 && (s[at] & 0xc0) == 0x80; at--)
            ;
    }
    (void)tz_char(&c, s + at);
    return tz_is_word(c);
}

/* Extend a match over white space, where the token takes it. */
static void enc_extend(const tz_added *a, ckpt_text s, size_t floor, tz_match *m)
{
    uint32_t c;

    while (a->left && m->from > floor) {
        size_t at = m->from - 1;
        while (at > floor && (s.at[at] & 0xc0) == 0x80)
            at--;
        (void)tz_char(&c, s.at + at);
        if (!tz_is_space(c))
            break;
        m->from = at;
    }
    while (a->right && m->to < s.n) {
        size_t len = tz_char(&c, s.at + m->to);
        if (!tz_is_space(c))
            break;
        m->to += len;
    }
}

/*
 * Find the first added token in s[from..n): the longest of those that begin at one place.  A token
 * that must stand alone and does not is passed over whole.
 */
static const tz_added *enc_find(const zt_tokenizer *t, const tz_sorted *keys, ckpt_text s,
                                size_t from, tz_match *m)
{
    for (size_t i = from; keys->n > 0 && i < s.n;) {
        const uint8_t byte = (uint8_t)s.at[i];
        const tz_token *found = NULL, *next;
        const tz_added *a;
        tz_walk walk = {0};

        if (keys->first[byte] == keys->first[byte + 1]) {
            i++;
            continue;
        }
        while ((next = tz_walk_next(keys, &walk, s.at + i, s.n - i)) != NULL)
            found = next;
        if (!found) {
            i++;
            continue;
        }
        a = &t->added.at[found->id];
        *m = (tz_match){i, i + found->n};
        i += found->n;
        if (a->single_word && (enc_word(s.at, s.n, m->from, true) || enc_word(s.at, s.n, i, false)))
            continue;
        enc_extend(a, s, from, m);
        return a;
    }
    return NULL;
}

static int enc_put(zt_ids *out, int32_t id, ckpt_err *err)
{
    int32_t *to = ckpt_vec_push(out);

    if (!to)
        return ckpt_fail_memory(err);
    *to = id;
    return CKPT_OK;
}

/* ---- text between added tokens ---- */

/* Encode normalized text without added tokens. */
static int enc_words(zt_tokenizer *t, ckpt_text s, zt_ids *out, ckpt_err *err)
{
    tz_work *w = &t->work;
    tz_piece *all;
    int rc;

    w->text.n = w->piece.n = 0;
    all = s.n ? ckpt_vec_push(&w->piece) : NULL;
    if (s.n == 0)
        return CKPT_OK;
    if (!all || !ckpt_bytes_add(&w->text, s.at, s.n))
        return ckpt_fail_memory(err);
    *all = (tz_piece){0, s.n};
    rc = tz_split_run(&t->split, w, err);
    for (size_t i = 0; rc == CKPT_OK && i < w->piece.n; i++) {
        const char *word = (const char *)w->text.at + w->piece.at[i].at;
        rc = t->bpe ? tz_bpe_encode(t->bpe, word, w->piece.at[i].n, out, err)
                    : tz_unigram_encode(t->unigram, word, w->piece.at[i].n, out, err);
    }
    return rc;
}

/* Encode text between added tokens that are found before normalization. */
static int enc_section(zt_tokenizer *t, ckpt_text s, bool first, zt_ids *out, ckpt_err *err)
{
    ckpt_bytes text = {0}, spare = {0};
    const tz_added *a;
    ckpt_text all;
    size_t done = 0;
    int rc = CKPT_OK;

    if (t->normalizer.n > 0) {
        rc = ckpt_bytes_add(&text, s.at, s.n) ? tz_normal_run(&t->normalizer, &text, &spare, err)
                                              : ckpt_fail_memory(err);
        ckpt_vec_free(&spare);
    }
    all = t->normalizer.n > 0 ? (ckpt_text){(const char *)text.at, text.n} : s;
    while (rc == CKPT_OK && done < all.n) {
        tz_match m = {all.n, all.n};

        a = enc_find(t, &t->normals, all, done, &m);
        if (!a)
            m = (tz_match){all.n, all.n};
        t->work.first = first && done == 0;
        rc = enc_words(t, (ckpt_text){all.at + done, m.from - done}, out, err);
        if (rc == CKPT_OK && a)
            rc = enc_put(out, a->id, err);
        done = m.to;
    }
    ckpt_vec_free(&text);
    return rc;
}

int zt_tokenizer_encode(zt_tokenizer *t, ckpt_text text, bool special, zt_ids *out, ckpt_err *err)
{
    assert(t && out && (text.at || text.n == 0));
    int rc = CKPT_OK;

    if (text.n > ZT_TEXT_BYTES)
        return ckpt_fail(err, CKPT_ELIMIT, "a text has %" PRIu64 " bytes; the limit is %" PRIu64,
                         text.n, ZT_TEXT_BYTES);
    if (!ckpt_utf8_ok(text.at, text.n))
        return ckpt_fail(err, CKPT_EFORMAT, "a text is not UTF-8");
    for (size_t i = 0; special && rc == CKPT_OK && i < t->before.n; i++)
        rc = enc_put(out, t->before.at[i], err);
    for (size_t done = 0; rc == CKPT_OK && done < text.n;) {
        tz_match m;
        const tz_added *a = enc_find(t, &t->raws, text, done, &m);

        if (!a)
            m = (tz_match){text.n, text.n};
        if (m.from > done)
            rc = enc_section(t, (ckpt_text){text.at + done, m.from - done}, done == 0, out, err);
        if (rc == CKPT_OK && a)
            rc = enc_put(out, a->id, err);
        done = m.to;
    }
    for (size_t i = 0; special && rc == CKPT_OK && i < t->after.n; i++)
        rc = enc_put(out, t->after.at[i], err);
    return rc;
}
