/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cache.c: keeps the keys and values of earlier tokens, so that generation computes each token
 * once.
 *
 * The first pass (prefill) runs over all tokens of the prompts; each attention also copies its keys
 * and values.  Each pass after it (a decode step) has one new token of each sample.  Its attention
 * is not causal: one query against every slot of the cache, with a mask that hides empty slots.  So
 * decoding needs no operation of its own.
 *
 * The prompts of a batch end at the same place: shorter ones begin with masked tokens.  Positions
 * count the other tokens alone, as in transformers, so they differ from sample to sample.
 */
#include <inttypes.h>

#include "engine/model/layers.h"

/* Keys and values of one attention: [batch, keys, heads, width]. */
typedef struct kvc_slot {
    void *k, *v;
} kvc_slot;

struct zt_cache {
    zt_model *m;
    uint64_t batch, room; /* samples; keys of each */
    uint64_t filled;      /* keys of earlier passes */
    uint64_t source;      /* T5: tokens of the source */
    kvc_slot *slot;       /* [2 * layers]: self-attention, then cross-attention */
    int32_t *host;        /* [3, batch, room]: copies of the three below */
    int32_t *mask;        /* on the device, [batch, room]: the keys that exist */
    int32_t *near;        /* those in the window of this pass's query */
    int32_t *position;    /* of each row of this pass */
    uint64_t near_window; /* for which `near` was made; 0: for none in this pass */
    int32_t *seen;        /* [batch]: tokens so far, without masked ones */
    int32_t *of_source;   /* T5: mask of the source, [batch, source] */
    float *turn[2];       /* cosines and sines of the rows of this pass */
    uint64_t n_turn;      /* elements of each */
};

int zt_cache_new(zt_cache **out, zt_model *m, uint64_t batch, uint64_t room, ckpt_err *err)
{
    assert(out && m && m->device);
    zt_cache *c = ckpt_alloc(sizeof *c);
    const zt_device_ops *ops = m->device->ops;
    uint64_t n;

    *out = c;
    if (!c)
        return ckpt_fail_memory(err);
    *c = (zt_cache){.m = m, .batch = batch, .room = room};
    if (!ckpt_mul(batch, room, &n) || n == 0 || n > INT32_MAX)
        return ckpt_fail(err, CKPT_ELIMIT,
                         "a batch of %" PRIu64 " texts of %" PRIu64 " tokens is empty or too large",
                         batch, room);
    // the divisors change there, and transformers computes all keys again
    if (m->config.rope_kind == ZT_ROPE_LONG && (double)room > m->config.rope_old)
        return ckpt_fail(err, CKPT_EUNSUPPORTED,
                         "longrope: prompt and new tokens together must not exceed "
                         "original_max_position_embeddings = %.0f, found %" PRIu64
                         "; use a smaller --max-new-tokens or shorter prompts",
                         m->config.rope_old, room);
    c->slot = ckpt_alloc(2 * m->layers.n * sizeof *c->slot);
    c->host = ckpt_alloc(3 * n * sizeof *c->host);
    c->seen = ckpt_alloc(batch * sizeof *c->seen);
    c->mask = ops->alloc(m->device, n * sizeof *c->mask);
    c->near = ops->alloc(m->device, n * sizeof *c->near);
    c->position = ops->alloc(m->device, n * sizeof *c->position);
    if (!c->slot || !c->host || !c->seen || !c->mask || !c->near || !c->position)
        return ckpt_fail_memory(err);
    return CKPT_OK;
}

void zt_cache_free(zt_cache *c)
{
    if (!c)
        return;
    zt_device *d = c->m->device;

    for (size_t i = 0; c->slot && i < 2 * c->m->layers.n; i++) {
        d->ops->release(d, c->slot[i].k);
        d->ops->release(d, c->slot[i].v);
    }
    d->ops->release(d, c->mask);
    d->ops->release(d, c->near);
    d->ops->release(d, c->position);
    d->ops->release(d, c->of_source);
    d->ops->release(d, c->turn[0]);
    d->ops->release(d, c->turn[1]);
    ckpt_free(c->slot);
    ckpt_free(c->host);
    ckpt_free(c->seen);
    ckpt_free(c);
}

uint64_t zt_cache_filled(const zt_cache *c)
{
    return c->filled;
}

uint64_t zt_cache_room(const zt_cache *c)
{
    return c->room;
}

/* ---- around a pass ---- */

/* Tokens that a pass adds to each sample. */
static uint64_t kvc_added(const zt_batch *b)
{
    return b->decoder_seq > 0 ? b->decoder_seq : b->seq;
}

/* Note which tokens of this pass exist, and their positions. */
static void kvc_note(zt_cache *c, const zt_batch *b, uint64_t n)
{
    const int32_t *given = b->decoder_seq > 0 ? NULL : b->attention_mask;
    int32_t *mask = c->host, *position = c->host + 2 * c->batch * c->room;

    for (uint64_t i = 0; i < c->batch; i++) {
        for (uint64_t t = 0; t < n; t++) {
            const bool is = !given || given[i * n + t] != 0;

            mask[i * c->room + c->filled + t] = is;
            position[i * n + t] = is ? c->seen[i]++ : 0;
        }
    }
}

/* T5: keep the mask of the source, which later passes do not have. */
static int kvc_source(zt_cache *c, const zt_batch *b, ckpt_err *err)
{
    zt_device *d = c->m->device;
    const uint64_t n = b->batch * b->seq * sizeof *c->of_source;

    c->source = b->seq;
    if (!b->attention_mask)
        return CKPT_OK;
    c->of_source = d->ops->alloc(d, n);
    if (!c->of_source)
        return ckpt_fail_memory(err);
    d->ops->put(d, c->of_source, b->attention_mask, n);
    return CKPT_OK;
}

int zt_cache_begin(zt_cache *c, const zt_batch *host, ckpt_err *err)
{
    zt_device *d = c->m->device;
    const uint64_t n = kvc_added(host), all = c->batch * c->room;
    const bool first = c->filled == 0;

    if (host->batch != c->batch || n == 0 || n > c->room - c->filled || (!first && n != 1))
        return ckpt_fail(err, CKPT_EUSAGE,
                         "a pass of %" PRIu64 " x %" PRIu64
                         " tokens does not fit the cache of %" PRIu64 " x %" PRIu64
                         " tokens, of which %" PRIu64 " are filled",
                         host->batch, n, c->batch, c->room, c->filled);
    kvc_note(c, host, n);
    c->near_window = 0;
    d->ops->put(d, c->mask, c->host, all * sizeof *c->mask);
    d->ops->put(d, c->position, c->host + 2 * all, c->batch * n * sizeof *c->position);
    return first && host->decoder_seq > 0 ? kvc_source(c, host, err) : CKPT_OK;
}

void zt_cache_end(zt_cache *c, const zt_batch *host)
{
    c->filled += kvc_added(host);
}

uint32_t zt_model_later(const zt_model *m)
{
    uint32_t l = 0;

    while (m->config.arch == ZT_T5 && m->layers.at[l].ops != &zt_t5_bridge_ops)
        l++;
    return l;
}

uint32_t zt_cache_first_layer(const zt_cache *c)
{
    return c->filled > 0 ? zt_model_later(c->m) : 0;
}

/* ---- in a pass ---- */

/* Memory for the keys and values of one attention: n rows; a failure is the device's. */
static kvc_slot *kvc_slot_of(zt_cache *c, uint64_t i, uint64_t rows, uint64_t width)
{
    zt_device *d = c->m->device;
    const uint64_t n = rows * width * zt_elem(c->m);
    kvc_slot *s = &c->slot[i];

    if (!s->k) {
        s->k = d->ops->alloc(d, n);
        s->v = d->ops->alloc(d, n);
        // keys that do not exist yet are masked, but must be numbers
        if (s->k && s->v) {
            d->ops->zero(d, s->k, n);
            d->ops->zero(d, s->v, n);
        }
    }
    return s;
}

/* Copy rows of k or v: `each` consecutive ones for every sample. */
static void kvc_copy(const zt_cache *c, void *to, const void *from, uint64_t ld, uint64_t width,
                     uint64_t each)
{
    zt_device *d = c->m->device;
    const uint64_t at = c->filled * width, step = c->room * width;
    zt_rows r = {.rows = c->batch, .width = width, .ld_to = step, .ld_from = ld, .from = from};

    if (each == 1) {
        r.to = to ? zt_at(c->m, to, at) : NULL;
        d->ops->rows(d, c->m->dtype, &r);
        return;
    }
    for (uint64_t i = 0; i < c->batch; i++) {
        r.rows = each;
        r.ld_to = width;
        r.from = zt_at_const(c->m, from, i * each * ld);
        r.to = to ? zt_at(c->m, to, i * step + at) : NULL;
        d->ops->rows(d, c->m->dtype, &r);
    }
}

/* The keys that exist, and are in the window of the query. */
static const int32_t *kvc_mask(zt_cache *c, uint64_t window)
{
    zt_device *d = c->m->device;
    int32_t *near = c->host + c->batch * c->room;

    if (window == 0 || window > c->filled)
        return c->mask;
    if (c->near_window != window) {
        for (uint64_t i = 0; i < c->batch * c->room; i++)
            near[i] = i % c->room + window > c->filled ? c->host[i] : 0;
        d->ops->put(d, c->near, near, c->batch * c->room * sizeof *near);
        c->near_window = window;
    }
    return c->near;
}

/* Let a later pass's attention read the cache. */
static void kvc_read(zt_attention *a, const kvc_slot *s, uint64_t keys)
{
    a->k = s->k;
    a->v = s->v;
    a->ldk = a->ldv = a->kv_heads * a->width;
    a->seq = keys;
    a->queries = 1;
    a->causal = false;
    a->window = 0;
}

void zt_attend(const zt_call *c, zt_attention *a)
{
    zt_model *m = c->m;
    zt_cache *k = c->p->in.cache;

    if (k) {
        const uint64_t width = a->kv_heads * a->width;
        const kvc_slot *s = kvc_slot_of(k, c->layer, k->batch * k->room, width);

        kvc_copy(k, s->k, a->k, a->ldk, width, a->seq);
        kvc_copy(k, s->v, a->v, a->ldv, width, a->seq);
        if (k->filled > 0) {
            a->mask = kvc_mask(k, a->window);
            kvc_read(a, s, k->room);
        }
    }
    m->device->ops->attention(m->device, m->dtype, a);
}

void zt_attend_source(const zt_call *c, zt_attention *a)
{
    zt_model *m = c->m;
    zt_cache *k = c->p->in.cache;

    if (k) {
        const uint64_t width = a->kv_heads * a->width, rows = k->batch * k->source;
        const kvc_slot *s = kvc_slot_of(k, m->layers.n + c->layer, rows, width);

        if (k->filled > 0) {
            a->mask = k->of_source;
            kvc_read(a, s, k->source);
        } else if (s->k && s->v) {
            m->device->ops->copy(m->device, s->k, a->k, rows * width * zt_elem(m));
            m->device->ops->copy(m->device, s->v, a->v, rows * width * zt_elem(m));
        }
    }
    m->device->ops->attention(m->device, m->dtype, a);
}

const int32_t *zt_cache_positions(const zt_cache *c)
{
    return c->position;
}

int32_t zt_cache_place(const zt_cache *c, uint64_t row)
{
    return c->host[2 * c->batch * c->room + row];
}

const float *zt_cache_turns(zt_cache *c, int which, const zt_rows *table, uint64_t rows)
{
    zt_device *d = c->m->device;
    zt_embed e = {.rows = rows, .seq = rows, .width = table->width, .vocab = table->rows};

    if (c->n_turn < rows * table->width) {
        for (int i = 0; i < 2; i++) {
            d->ops->release(d, c->turn[i]);
            c->turn[i] = d->ops->alloc(d, rows * table->width * sizeof(float));
        }
        c->n_turn = rows * table->width;
    }
    e.token = c->position;
    e.word = table->from;
    e.y = c->turn[which];
    d->ops->embed(d, CKPT_F32, &e);
    return c->turn[which];
}
