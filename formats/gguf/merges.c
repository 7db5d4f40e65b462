/* SPDX-License-Identifier: Apache-2.0 */
/*
 * merges.c: writes the merges of a BPE tokenizer.  Both parts and the result of a merge must be in
 * the vocabulary, because the tokenizers library requires it (models/bpe, BpeBuilder).
 */
#include <assert.h>
#include <inttypes.h>
#include <string.h>

#include "formats/gguf/tokenizer.h"
#include "libckpt/base/index.h"

typedef struct mrg_work {
    ckpt_gguf_tokenizer_work *w;
    ckpt_index known; /* texts of the vocabulary */
    ckpt_dict vocab;
    ckpt_bytes text;   /* "left right" */
    uint64_t n_prefix; /* bytes that a merge removes from its right part */
} mrg_work;

static bool mrg_same(const void *ctx, uint32_t number, const void *key)
{
    assert(number < ((const mrg_work *)ctx)->vocab.n);
    const mrg_work *m = ctx;
    const ckpt_text *mine = &m->vocab.at[number].key->as.text, *other = key;

    return mine->n == other->n && memcmp(mine->at, other->at, (size_t)mine->n) == 0;
}

static uint32_t mrg_hash(const ckpt_text *t)
{
    return ckpt_hash_bytes(t->at, (size_t)t->n, 0);
}

static bool mrg_knows(const mrg_work *m, const ckpt_text *t)
{
    return ckpt_index_find(&m->known, mrg_hash(t), mrg_same, m, t) != CKPT_INDEX_NONE;
}

/* Append a part.  A blank in it is written as U+0120, because a plain blank separates the parts. */
static bool mrg_add(ckpt_bytes *out, const ckpt_text *part)
{
    for (uint64_t i = 0; i < part->n; i++) {
        bool ok = part->at[i] == ' ' ? ckpt_bytes_add(out, "\xc4\xa0", 2)
                                     : ckpt_bytes_add(out, part->at + i, 1);
        if (!ok)
            return false;
    }
    return true;
}

/* Split "left right", or ["left", "right"]; false for other values. */
static bool mrg_parts(const ckpt_value *v, ckpt_text part[2])
{
    const ckpt_seq pair = ckpt_value_seq(v);

    if (v->kind == CKPT_V_STR) {
        const char *s = v->as.text.at, *blank = memchr(s, ' ', (size_t)v->as.text.n);

        if (!blank)
            return false;
        part[0] = (ckpt_text){s, (uint64_t)(blank - s)};
        part[1] = (ckpt_text){blank + 1, v->as.text.n - part[0].n - 1};
        return part[0].n > 0 && part[1].n > 0 && !memchr(part[1].at, ' ', (size_t)part[1].n);
    }
    for (unsigned k = 0; k < 2; k++) {
        if (pair.n != 2 || pair.at[k]->kind != CKPT_V_STR || pair.at[k]->as.text.n == 0)
            return false;
        part[k] = pair.at[k]->as.text;
    }
    return true;
}

/* Check that both parts and the joined text are tokens; m->text keeps the joined text. */
static int mrg_check(mrg_work *m, uint64_t number, const ckpt_text part[2])
{
    uint64_t cut = part[1].n > m->n_prefix ? m->n_prefix : 0;
    const ckpt_text *unknown = NULL;

    m->text.n = 0;
    if (!ckpt_bytes_add(&m->text, part[0].at, (size_t)part[0].n) ||
        !ckpt_bytes_add(&m->text, part[1].at + cut, (size_t)(part[1].n - cut)))
        return ckpt_fail_memory(m->w->err);
    const ckpt_text joined = {(const char *)m->text.at, m->text.n};
    unknown = !mrg_knows(m, &part[0])   ? &part[0]
              : !mrg_knows(m, &part[1]) ? &part[1]
              : !mrg_knows(m, &joined)  ? &joined
                                        : NULL;
    return unknown ? ckpt_fail(m->w->err, CKPT_EFORMAT,
                               "%s/tokenizer.json: merge %" PRIu64
                               " is of '%.*s', which the vocabulary lacks",
                               m->w->list.folder, number, unknown->n < 80 ? (int)unknown->n : 80,
                               unknown->at)
                   : CKPT_OK;
}

static int mrg_one(mrg_work *m, uint64_t number, const ckpt_value *v, ckpt_value **out)
{
    ckpt_text part[2];
    int rc = mrg_parts(v, part) ? mrg_check(m, number, part)
                                : ckpt_fail(m->w->err, CKPT_EFORMAT,
                                            "%s/tokenizer.json: merge %" PRIu64 " is not a pair",
                                            m->w->list.folder, number);

    if (rc != CKPT_OK)
        return rc;
    m->text.n = 0;
    if (mrg_add(&m->text, &part[0]) && ckpt_bytes_add(&m->text, " ", 1) &&
        mrg_add(&m->text, &part[1]))
        *out = ckpt_value_str(m->w->to->arena, (const char *)m->text.at, m->text.n);
    return *out ? CKPT_OK : ckpt_fail_memory(m->w->err);
}

/* Index the texts of the vocabulary. */
static int mrg_learn(mrg_work *m, const ckpt_value *bpe)
{
    const ckpt_value *prefix = ckpt_value_get(bpe, "continuing_subword_prefix");

    m->n_prefix = prefix && prefix->kind == CKPT_V_STR ? prefix->as.text.n : 0;
    m->vocab = ckpt_value_map(ckpt_value_get(bpe, "vocab"));
    for (uint64_t i = 0; i < m->vocab.n; i++) {
        if (!ckpt_index_add(&m->known, mrg_hash(&m->vocab.at[i].key->as.text), (uint32_t)i))
            return ckpt_fail_memory(m->w->err);
    }
    return CKPT_OK;
}

int ckpt_gguf_merges(ckpt_gguf_tokenizer_work *w)
{
    assert(w->to && w->bpe);
    const ckpt_value *merges = ckpt_value_get(w->bpe, "merges");
    const ckpt_seq from = ckpt_value_seq(merges);
    ckpt_value *list = ckpt_value_new(w->to->arena, CKPT_V_LIST);
    mrg_work m = {.w = w};
    int rc;

    if (!merges || merges->kind != CKPT_V_LIST || from.n == 0)
        return ckpt_fail(w->err, CKPT_EFORMAT, "%s/tokenizer.json: BPE without a list of merges",
                         w->list.folder);
    if (list)
        list->as.seq = (ckpt_seq){
            .at = ckpt_arena_array(w->to->arena, from.n, sizeof(ckpt_value *)), .n = from.n};
    rc = list && list->as.seq.at ? mrg_learn(&m, w->bpe) : ckpt_fail_memory(w->err);
    for (uint64_t i = 0; rc == CKPT_OK && i < from.n; i++)
        rc = mrg_one(&m, i, from.at[i], &list->as.seq.at[i]);
    ckpt_index_free(&m.known);
    ckpt_vec_free(&m.text);
    return rc == CKPT_OK
               ? ckpt_gguf_add(w->to, "tokenizer.ggml.merges", CKPT_KEY_STRING, true, list, w->err)
               : rc;
}
