/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bpe.c: encodes words by byte pair encoding: of all neighbours, the pair with the lowest rank is
 * merged first, and of equal ranks the leftmost.
 *
 * Short words are searched from end to end for each merge; long ones use a heap, because a word
 * may be a whole text.  The tokens of short words are kept for the next time.
 */
#include <assert.h>
#include <string.h>

#include "engine/tokenizer/inside.h"

enum {
    BP_SHORT = 40,     /* symbols of a word without a heap */
    BP_KEPT = 1 << 14, /* words kept; a power of two */
    BP_KEPT_TEXT = 23, /* bytes of a kept word */
    BP_KEPT_IDS = 7
};

/* A symbol of a word: a token, in a list of the remaining ones. */
typedef struct bp_symbol {
    int32_t id;
    size_t prev, next; /* SIZE_MAX: none */
    bool gone;
} bp_symbol;
CKPT_VEC(bp_symbols, bp_symbol);

/* A possible merge of a symbol with the next. */
typedef struct bp_try {
    uint32_t rank;
    int32_t to;
    size_t at;
} bp_try;
CKPT_VEC(bp_tries, bp_try);

typedef struct bp_kept {
    uint8_t n, n_ids; /* n 0: free */
    char text[BP_KEPT_TEXT];
    int32_t id[BP_KEPT_IDS];
} bp_kept;

struct tz_bpe {
    tz_model_opts o;
    tz_merges merge;
    ckpt_index pairs;
    int32_t bytes[256]; /* tokens of single bytes; -1: missing */
    bp_symbols symbol;
    bp_tries heap;
    bp_kept *kept;
};

/* ---- merges ---- */

static uint32_t bp_hash(int32_t left, int32_t right)
{
    return ckpt_hash_u64((uint64_t)(uint32_t)left << 32 | (uint32_t)right);
}

static bool bp_same(const void *ctx, uint32_t number, const void *key)
{
    const tz_merge *have = &((const tz_bpe *)ctx)->merge.at[number], *want = key;

    return have->left == want->left && have->right == want->right;
}

static tz_merge *bp_find(const tz_bpe *b, int32_t left, int32_t right)
{
    const tz_merge key = {.left = left, .right = right};
    uint32_t at = ckpt_index_find(&b->pairs, bp_hash(left, right), bp_same, b, &key);

    return at == CKPT_INDEX_NONE ? NULL : &b->merge.at[at];
}

/* Of equal pairs the last counts, as in `tokenizers`. */
static int bp_merges(tz_bpe *b, const tz_merges *merges, ckpt_err *err)
{
    for (size_t i = 0; i < merges->n; i++) {
        const tz_merge *m = &merges->at[i];
        tz_merge *to = bp_find(b, m->left, m->right);

        if (to) {
            *to = *m;
            continue;
        }
        to = ckpt_vec_push(&b->merge);
        if (!to)
            return ckpt_fail_memory(err);
        *to = *m;
        if (!ckpt_index_add(&b->pairs, bp_hash(m->left, m->right), (uint32_t)b->merge.n - 1))
            return ckpt_fail_memory(err);
    }
    return CKPT_OK;
}

int tz_bpe_new(tz_bpe **out, const tz_model_opts *o, const tz_merges *merges, ckpt_err *err)
{
    assert(out && o && o->vocab && merges);
    tz_bpe *b = ckpt_alloc(sizeof *b);

    *out = b;
    if (!b)
        return ckpt_fail_memory(err);
    b->o = *o;
    b->kept = ckpt_alloc(BP_KEPT * sizeof *b->kept);
    if (!b->kept)
        return ckpt_fail_memory(err);
    tz_vocab_bytes(o->vocab, b->bytes);
    for (unsigned i = 0; o->byte_level && i < 256; i++) {
        const char byte = (char)i;
        const tz_token *t = tz_vocab_find(o->vocab, &byte, 1);
        b->bytes[i] = t ? t->id : -1;
    }
    return bp_merges(b, merges, err);
}

void tz_bpe_free(tz_bpe *b)
{
    if (!b)
        return;
    ckpt_vec_free(&b->merge);
    ckpt_index_free(&b->pairs);
    ckpt_vec_free(&b->symbol);
    ckpt_vec_free(&b->heap);
    ckpt_free(b->kept);
    ckpt_free(b);
}

/* ---- symbols of a word ---- */

static bool bp_push(tz_bpe *b, int32_t id)
{
    bp_symbol *s = ckpt_vec_push(&b->symbol);

    if (s)
        *s = (bp_symbol){.id = id};
    return s != NULL;
}

/* Add a character that is no token: as its bytes, else as the unknown token. */
static bool bp_other(tz_bpe *b, const char *s, size_t n, bool *unknown)
{
    bool bytes = b->o.byte_fallback, ok = true;

    for (size_t i = 0; i < n; i++)
        bytes = bytes && b->bytes[(uint8_t)s[i]] >= 0;
    for (size_t i = 0; bytes && ok && i < n; i++)
        ok = bp_push(b, b->bytes[(uint8_t)s[i]]);
    if (bytes || b->o.unknown < 0) // without an unknown token, `tokenizers` leaves it out
        return ok;
    // unknown neighbours are one token
    if (*unknown && b->o.fuse_unknown)
        return true;
    *unknown = true;
    return bp_push(b, b->o.unknown);
}

static int bp_symbols_of(tz_bpe *b, const char *s, size_t n, ckpt_err *err)
{
    bool ok = true, unknown = false;
    uint32_t c;

    b->symbol.n = 0;
    for (size_t i = 0, len; ok && i < n; i += len) {
        const tz_token *t = NULL;
        int32_t id;

        len = b->o.byte_level ? 1 : tz_char(&c, s + i);
        if (!b->o.byte_level)
            t = tz_vocab_find(b->o.vocab, s + i, len);
        id = b->o.byte_level ? b->bytes[(uint8_t)s[i]] : t ? t->id : -1;
        if (id >= 0)
            unknown = false;
        ok = id >= 0 ? bp_push(b, id) : bp_other(b, s + i, len, &unknown);
    }
    for (size_t i = 0; i < b->symbol.n; i++) {
        b->symbol.at[i].prev = i ? i - 1 : SIZE_MAX;
        b->symbol.at[i].next = i + 1 < b->symbol.n ? i + 1 : SIZE_MAX;
    }
    return ok ? CKPT_OK : ckpt_fail_memory(err);
}

/* ---- merging ---- */

/* Merge all of a short word: look for the best pair again and again. */
static void bp_short(tz_bpe *b)
{
    const tz_merge *with[BP_SHORT]; /* of each symbol with the next */
    bp_symbol *s = b->symbol.at;
    size_t n = b->symbol.n;

    for (size_t i = 0; i + 1 < n; i++)
        with[i] = bp_find(b, s[i].id, s[i + 1].id);
    for (;;) {
        size_t best = n;

        for (size_t i = 0; i + 1 < n; i++) {
            if (with[i] && (best == n || with[i]->rank < with[best]->rank))
                best = i;
        }
        if (best == n)
            break;
        s[best].id = with[best]->to;
        n--;
        for (size_t i = best + 1; i < n; i++) {
            s[i].id = s[i + 1].id;
            with[i] = i + 1 < n ? with[i + 1] : NULL;
        }
        with[best] = best + 1 < n ? bp_find(b, s[best].id, s[best + 1].id) : NULL;
        if (best > 0)
            with[best - 1] = bp_find(b, s[best - 1].id, s[best].id);
    }
    b->symbol.n = n;
}

static bool bp_before(const bp_try *a, const bp_try *b)
{
    return a->rank != b->rank ? a->rank < b->rank : a->at < b->at;
}

/* Add the merge of the symbol at `at` with the next to the heap, if there is one. */
static bool bp_offer(tz_bpe *b, size_t at)
{
    const bp_symbol *s = b->symbol.at;
    const size_t next = at == SIZE_MAX ? SIZE_MAX : s[at].next;
    const tz_merge *m = next == SIZE_MAX ? NULL : bp_find(b, s[at].id, s[next].id);
    bp_try *heap, new;
    size_t i;

    if (!m)
        return true;
    heap = ckpt_vec_push(&b->heap);
    if (!heap)
        return false;
    new = (bp_try){m->rank, m->to, at};
    heap = b->heap.at;
    for (i = b->heap.n - 1; i > 0 && bp_before(&new, &heap[(i - 1) / 2]); i = (i - 1) / 2)
        heap[i] = heap[(i - 1) / 2];
    heap[i] = new;
    return true;
}

/* Take the best merge from the heap, which is not empty. */
static bp_try bp_take(tz_bpe *b)
{
    bp_try *heap = b->heap.at, top = heap[0], last = heap[b->heap.n - 1];
    size_t n = --b->heap.n, i = 0, child;

    for (; (child = 2 * i + 1) < n; i = child) {
        if (child + 1 < n && bp_before(&heap[child + 1], &heap[child]))
            child++;
        if (!bp_before(&heap[child], &last))
            break;
        heap[i] = heap[child];
    }
    if (n > 0)
        heap[i] = last;
    return top;
}

/* Do a merge, unless earlier merges took one of its symbols. */
static bool bp_apply(tz_bpe *b, const bp_try *t)
{
    bp_symbol *s = b->symbol.at, *left = &s[t->at], *right;
    const tz_merge *m;

    if (left->gone || left->next == SIZE_MAX)
        return true;
    right = &s[left->next];
    m = bp_find(b, left->id, right->id);
    if (!m || m->to != t->to)
        return true;
    left->id = m->to;
    right->gone = true;
    left->next = right->next;
    if (right->next != SIZE_MAX)
        s[right->next].prev = t->at;
    return bp_offer(b, left->prev) && bp_offer(b, t->at);
}

static int bp_long(tz_bpe *b, ckpt_err *err)
{
    bool ok = true;
    size_t n = 0;

    b->heap.n = 0;
    for (size_t i = 0; ok && i < b->symbol.n; i++)
        ok = bp_offer(b, i);
    while (ok && b->heap.n > 0) {
        const bp_try top = bp_take(b);
        ok = bp_apply(b, &top);
    }
    for (size_t i = 0; i < b->symbol.n; i++) {
        if (!b->symbol.at[i].gone)
            b->symbol.at[n++].id = b->symbol.at[i].id;
    }
    b->symbol.n = n;
    return ok ? CKPT_OK : ckpt_fail_memory(err);
}

/* ---- words ---- */

static int bp_word(tz_bpe *b, const char *word, size_t n, ckpt_err *err)
{
    const tz_token *whole = b->o.ignore_merges ? tz_vocab_find(b->o.vocab, word, n) : NULL;
    int rc;

    if (whole) {
        b->symbol.n = 0;
        return bp_push(b, whole->id) ? CKPT_OK : ckpt_fail_memory(err);
    }
    rc = bp_symbols_of(b, word, n, err);
    if (rc != CKPT_OK)
        return rc;
    if (b->symbol.n > BP_SHORT)
        return bp_long(b, err);
    bp_short(b);
    return CKPT_OK;
}

static bool bp_out(zt_ids *out, int32_t id)
{
    int32_t *to = ckpt_vec_push(out);

    if (to)
        *to = id;
    return to != NULL;
}

int tz_bpe_encode(tz_bpe *b, const char *word, size_t n, zt_ids *out, ckpt_err *err)
{
    assert(b && (word || n == 0) && out);
    bp_kept *k = n <= BP_KEPT_TEXT ? &b->kept[ckpt_hash_bytes(word, n, 0) & (BP_KEPT - 1)] : NULL;
    bool ok = true;
    int rc;

    if (k && k->n == n && memcmp(k->text, word, n) == 0) {
        for (unsigned i = 0; ok && i < k->n_ids; i++)
            ok = bp_out(out, k->id[i]);
        return ok ? CKPT_OK : ckpt_fail_memory(err);
    }
    rc = bp_word(b, word, n, err);
    for (size_t i = 0; rc == CKPT_OK && i < b->symbol.n; i++)
        rc = bp_out(out, b->symbol.at[i].id) ? CKPT_OK : ckpt_fail_memory(err);
    if (rc == CKPT_OK && k && b->symbol.n <= BP_KEPT_IDS) {
        k->n = (uint8_t)n;
        k->n_ids = (uint8_t)b->symbol.n;
        memcpy(k->text, word, n);
        for (size_t i = 0; i < b->symbol.n; i++)
            k->id[i] = b->symbol.at[i].id;
    }
    return rc;
}
