/* SPDX-License-Identifier: Apache-2.0 */
/*
 * unigram.c: encodes words as the pieces with the greatest sum of scores (Viterbi's algorithm).
 *
 * As in `tokenizers`: a character that is no piece costs the lowest score minus 10, unknown
 * neighbours form one token, and of equal sums the first one found stays.
 */
#include <assert.h>
#include <float.h>

#include "engine/tokenizer/inside.h"

#define UG_PENALTY 10.0

/* The best way to a position. */
typedef struct ug_best {
    double score;
    size_t from; /* SIZE_MAX: not reached */
    int32_t id;
} ug_best;
CKPT_VEC(ug_bests, ug_best);

struct tz_unigram {
    tz_model_opts o;
    tz_sorted pieces;
    int32_t bytes[256];
    double unknown; /* score of an unknown character */
    ug_bests best;
    zt_ids back;
};

int tz_unigram_new(tz_unigram **out, const tz_model_opts *o, ckpt_err *err)
{
    assert(out && o && o->vocab);
    tz_unigram *u = ckpt_alloc(sizeof *u);
    double least = DBL_MAX;

    *out = u;
    if (!u)
        return ckpt_fail_memory(err);
    u->o = *o;
    tz_vocab_bytes(o->vocab, u->bytes);
    for (size_t i = 0; i < o->vocab->token.n; i++)
        least = o->vocab->token.at[i].score < least ? o->vocab->token.at[i].score : least;
    u->unknown = least - UG_PENALTY;
    return tz_sorted_make(&u->pieces, o->vocab->token.at, o->vocab->token.n, err);
}

void tz_unigram_free(tz_unigram *u)
{
    if (!u)
        return;
    tz_sorted_free(&u->pieces);
    ckpt_vec_free(&u->best);
    ckpt_vec_free(&u->back);
    ckpt_free(u);
}

static void ug_offer(ug_best *to, double score, size_t from, int32_t id)
{
    if (to->from == SIZE_MAX || score > to->score)
        *to = (ug_best){score, from, id};
}

/* Find the best way to every position. */
static int ug_forward(tz_unigram *u, const char *s, size_t n, ckpt_err *err)
{
    u->best.n = 0;
    for (size_t i = 0; i <= n; i++) {
        ug_best *b = ckpt_vec_push(&u->best);
        if (!b)
            return ckpt_fail_memory(err);
        b->from = SIZE_MAX;
    }
    for (size_t i = 0, len; i < n; i += len) {
        const double here = u->best.at[i].score;
        tz_walk walk = {0};
        const tz_token *t;
        bool single = false;
        uint32_t c;

        len = tz_char(&c, s + i);
        while ((t = tz_walk_next(&u->pieces, &walk, s + i, n - i)) != NULL) {
            ug_offer(&u->best.at[i + t->n], t->score + here, i, t->id);
            single = single || t->n == len;
        }
        if (!single && u->o.unknown < 0)
            return ckpt_fail(
                err, CKPT_EFORMAT,
                "the tokenizer has neither a piece for character U+%04X nor a token for "
                "unknown text",
                (unsigned)c);
        if (!single)
            ug_offer(&u->best.at[i + len], u->unknown + here, i, u->o.unknown);
    }
    return CKPT_OK;
}

static bool ug_push(zt_ids *to, int32_t id)
{
    int32_t *at = ckpt_vec_push(to);

    if (at)
        *at = id;
    return at != NULL;
}

/* Add the tokens of one part of the text, last first. */
static bool ug_part(tz_unigram *u, const char *s, size_t n)
{
    const tz_token *t = tz_vocab_find(u->o.vocab, s, n);
    bool bytes = u->o.byte_fallback, ok = true;

    if (t)
        return ug_push(&u->back, t->id);
    for (size_t i = 0; i < n; i++)
        bytes = bytes && u->bytes[(uint8_t)s[i]] >= 0;
    if (!bytes)
        return ug_push(&u->back, u->o.unknown);
    for (size_t i = n; ok && i-- > 0;)
        ok = ug_push(&u->back, u->bytes[(uint8_t)s[i]]);
    return ok;
}

int tz_unigram_encode(tz_unigram *u, const char *s, size_t n, zt_ids *out, ckpt_err *err)
{
    assert(u && (s || n == 0) && out);
    int rc = ug_forward(u, s, n, err);
    bool ok = true;

    u->back.n = 0;
    for (size_t end = n; rc == CKPT_OK && ok && end > 0;) {
        size_t from = u->best.at[end].from;

        while (u->o.fuse_unknown && u->best.at[end].id == u->o.unknown && from > 0 &&
               u->best.at[from].id == u->o.unknown)
            from = u->best.at[from].from;
        ok = ug_part(u, s + from, end - from);
        end = from;
    }
    for (size_t i = u->back.n; rc == CKPT_OK && ok && i-- > 0;)
        ok = ug_push(out, u->back.at[i]);
    return rc == CKPT_OK && !ok ? ckpt_fail_memory(err) : rc;
}
