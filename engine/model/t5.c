/* SPDX-License-Identifier: Apache-2.0 */
/*
 * t5.c: implements T5 (Raffel et al. 2020) and T5 1.1: an encoder and a decoder, with RMS norm
 * before each branch and a bias by distance in self-attention.
 *
 *     attention   y = x + drop(o(attention(q n, k s, v s))), n = norm(x); s = n, or the encoder's
 *                 output in cross-attention; scores are not scaled
 *     inner       y = x + drop(wo(drop(relu(wi n)))); 1.1: drop(gelu(wi_0 n) * wi_1 n)
 *
 * The chain of layers is: embedding of the source, encoder blocks, bridge, decoder blocks, head.
 * The bridge (t5_ends.c) normalises the encoder's output and embeds the decoder's tokens.  From
 * there on the state between layers has two parts: the rows of the decoder, then the encoder's
 * output, which every decoder block reads and passes on.  The gradient of the state has the same
 * parts, so the gradients of all cross-attentions add up in the second one on their way back to
 * the bridge.
 *
 * All blocks of a stack share one table of biases, [buckets, heads].  It belongs to the first
 * block; the others use it too, like tied weights.  A bias depends on the distance of key and query
 * alone, so each block looks up one row per distance.
 */
#include <inttypes.h>
#include <math.h>

#include "engine/model/layers.h"

/* Maps of a block; a cross-attention is a block of its own without the inner layer. */
enum { T5_Q, T5_K, T5_V, T5_O, T5_WI, T5_WI_1, T5_WO };

enum { T5_NORM_ATTENTION, T5_NORM_INNER };

enum { T5_ENCODER, T5_DECODER };

/* Sites of dropout besides those of layers.h; above the numbers of maps. */
enum { T5_SITE_INNER = 64, T5_SITE_CROSS, T5_SITE_CROSS_OUT };

/* ---- shapes ---- */

/* Rows of the source and of the target. */
static uint64_t t5_source(const zt_batch *b)
{
    return b->batch * b->seq;
}

static uint64_t t5_target(const zt_batch *b)
{
    return b->batch * b->decoder_seq;
}

static uint64_t t5_heads_width(const zt_model *m)
{
    return m->config.heads * m->config.head_width;
}

/* A stack's part in one batch. */
typedef struct t5_stack {
    int which;
    uint64_t seq, rows;
} t5_stack;

static t5_stack t5_stack_of(const zt_model *m, const zt_layer *l, const zt_batch *b)
{
    if (l->block < m->config.layers)
        return (t5_stack){T5_ENCODER, b->seq, t5_source(b)};
    return (t5_stack){T5_DECODER, b->decoder_seq, t5_target(b)};
}

/* The block of self-attention and inner layer; for decoders the block of cross-attention follows
 * it. */
static const zt_block *t5_block(const zt_model *m, const zt_layer *l)
{
    const uint64_t n = m->config.layers;

    return &zt_own_of(m)->block[l->block < n ? l->block : n + 2 * (l->block - n)];
}

/* ---- values for the backward pass ---- */

/* One attention branch; `y` is the residual's sum. */
typedef struct t5_attended {
    void *h, *q, *k, *v, *o, *y;
    float *rstd, *lse;
    void *low[T5_WI];
} t5_attended;

typedef struct t5_inner {
    void *h, *pre, *up, *act; /* pre: input of the activation; up: 1.1 only */
    float *rstd;
    void *low[ZT_MAPS];
} t5_inner;

typedef struct t5_kept {
    t5_attended self, cross;
    t5_inner inner;
    uint64_t n_bytes;
} t5_kept;

static t5_attended t5_keep_attention(const zt_model *m, const zt_block *k, zt_room *room,
                                     uint64_t rows, uint64_t key_rows)
{
    const uint64_t wide = t5_heads_width(m);
    t5_attended t;

    t.h = zt_room_elems(room, m, rows * m->config.hidden);
    t.q = zt_room_elems(room, m, rows * wide);
    t.k = zt_room_elems(room, m, key_rows * wide);
    t.v = zt_room_elems(room, m, key_rows * wide);
    t.o = zt_room_elems(room, m, rows * wide);
    t.y = zt_room_elems(room, m, rows * m->config.hidden);
    t.rstd = zt_room_floats(room, rows);
    t.lse = zt_room_floats(room, rows * m->config.heads);
    for (int i = T5_Q; i <= T5_O; i++) {
        const bool of_key = i == T5_K || i == T5_V;

        t.low[i] = zt_room_take(room, zt_map_low(m, &k->map[i], of_key ? key_rows : rows));
    }
    return t;
}

static t5_inner t5_keep_inner(const zt_model *m, const zt_block *k, zt_room *room, uint64_t rows)
{
    const uint64_t n = rows * m->config.inner;
    t5_inner t = {0};

    t.h = zt_room_elems(room, m, rows * m->config.hidden);
    t.pre = zt_room_elems(room, m, n);
    t.up = m->config.gated ? zt_room_elems(room, m, n) : NULL;
    t.act = zt_room_elems(room, m, n);
    t.rstd = zt_room_floats(room, rows);
    for (int i = T5_WI; i <= T5_WO; i++)
        t.low[i] = zt_room_take(room, zt_map_low(m, &k->map[i], rows));
    return t;
}

static t5_kept t5_keep(const zt_model *m, const zt_layer *l, const zt_batch *b, void *tape)
{
    const t5_stack s = t5_stack_of(m, l, b);
    const zt_block *k = t5_block(m, l);
    zt_room room = {.base = tape};
    t5_kept t = {0};

    t.self = t5_keep_attention(m, k, &room, s.rows, s.rows);
    if (s.which == T5_DECODER)
        t.cross = t5_keep_attention(m, k + 1, &room, s.rows, t5_source(b));
    t.inner = t5_keep_inner(m, k, &room, s.rows);
    t.n_bytes = room.used;
    return t;
}

/* ---- workspace ---- */

/* d_q, d_k and d_v share memory with d_act, which is not used in attention. */
typedef struct t5_work {
    void *d_act, *d_q, *d_k, *d_v;
    void *d_h, *d_o, *masked, *spare;
    void *bias, *d_bias; /* [2 * seq - 1, heads] */
    uint64_t n_bytes;
} t5_work;

/* Distances between the stack's tokens; of the last one to those in the cache. */
static uint64_t t5_distances(const zt_batch *b, const t5_stack *s)
{
    if (b->cache && s->which == T5_DECODER && zt_cache_filled(b->cache) > 0)
        return zt_cache_room(b->cache);
    return s->seq > 0 ? 2 * s->seq - 1 : 0;
}

static t5_work t5_working(const zt_model *m, const zt_layer *l, const zt_batch *b, void *scratch)
{
    const t5_stack s = t5_stack_of(m, l, b);
    const zt_block *k = t5_block(m, l);
    const bool decoder = s.which == T5_DECODER;
    const uint64_t key_rows = decoder && t5_source(b) > s.rows ? t5_source(b) : s.rows;
    const uint64_t wide = t5_heads_width(m), distances = t5_distances(b, &s) * m->config.heads;
    const uint64_t spare = zt_block_spare(m, k, ZT_MAPS, key_rows);
    const uint64_t crossed = decoder ? zt_block_spare(m, k + 1, ZT_MAPS, key_rows) : 0;
    zt_room room = {.base = scratch};
    t5_work w;

    w.d_q = zt_room_elems(&room, m, s.rows * wide);
    w.d_k = zt_room_elems(&room, m, key_rows * wide);
    w.d_v = zt_room_elems(&room, m, key_rows * wide);
    w.d_act = zt_room_elems(&room, m, s.rows * m->config.inner);
    w.d_h = zt_room_elems(&room, m, s.rows * m->config.hidden);
    w.d_o = zt_room_elems(&room, m, s.rows * wide);
    w.masked = zt_room_elems(&room, m, s.rows * m->config.hidden);
    w.bias = zt_room_elems(&room, m, distances);
    w.d_bias = zt_room_elems(&room, m, distances);
    w.spare = zt_room_take(&room, spare > crossed ? spare : crossed);
    w.n_bytes = room.used;
    return w;
}

static uint64_t t5_tape(const zt_model *m, const zt_layer *l, const zt_batch *b)
{
    return t5_keep(m, l, b, NULL).n_bytes;
}

static uint64_t t5_scratch(const zt_model *m, const zt_layer *l, const zt_batch *b)
{
    return t5_working(m, l, b, NULL).n_bytes;
}

/* ---- relative positions ---- */

/*
 * The bucket of a key at distance `key - query`: small distances have one each, larger ones share
 * one by their logarithm.  Only the encoder has buckets for later keys.  The logarithm is in fp32
 * as in transformers, so the borders are the same.
 */
static int32_t t5_bucket(const zt_model_config *f, int which, int64_t distance)
{
    int64_t n = (int64_t)f->buckets, exact, far = distance < 0 ? -distance : 0, first = 0;
    float log_far;

    if (which == T5_ENCODER) {
        n /= 2;
        first = distance > 0 ? n : 0;
        far = distance > 0 ? distance : far;
    }
    exact = n / 2;
    if (far < exact)
        return (int32_t)(first + far);
    log_far = logf((float)far / (float)exact) /
              (float)log((double)f->max_distance / (double)exact) * (float)(n - exact);
    far = log_far < (float)n ? exact + (int64_t)log_far : n - 1;
    return (int32_t)(first + (far < n - 1 ? far : n - 1));
}

/*
 * Make a table of the buckets of distances -reach + 1 .. reach - 1 on the device, for sequences of
 * up to `reach` tokens; false: out of memory, a failure of the device.
 */
static bool t5_buckets_new(zt_model *m, int which, uint64_t reach)
{
    zt_own *own = zt_own_of(m);
    zt_device *d = m->device;
    const uint64_t n = 2 * reach - 1;
    int32_t *host;

    if (own->reach[which] >= reach)
        return true;
    d->ops->release(d, own->bucket[which]);
    own->reach[which] = 0;
    own->bucket[which] = d->ops->alloc(d, n * sizeof *host);
    host = ckpt_alloc(n * sizeof *host);
    if (!own->bucket[which] || !host) {
        ckpt_free(host);
        zt_device_fail(d, CKPT_ELIMIT, "out of memory for the table of relative positions");
        return false;
    }
    for (uint64_t i = 0; i < n; i++)
        host[i] = t5_bucket(&m->config, which, (int64_t)i - (int64_t)reach + 1);
    d->ops->put(d, own->bucket[which], host, n * sizeof *host);
    own->reach[which] = reach;
    ckpt_free(host);
    return true;
}

/* The buckets of all distances (t5_distances) of a call; NULL: failed. */
static const int32_t *t5_buckets(const zt_call *c, const t5_stack *s)
{
    const zt_own *own = zt_own_of(c->m);
    const zt_cache *cache = s->which == T5_DECODER ? c->p->in.cache : NULL;
    const uint64_t before = cache ? zt_cache_filled(cache) : s->seq - 1;

    if (!t5_buckets_new(c->m, s->which, cache ? zt_cache_room(cache) : s->seq))
        return NULL;
    return own->bucket[s->which] + (own->reach[s->which] - 1 - before);
}

/* Look up the biases of all distances. */
static void t5_bias(const zt_call *c, const t5_stack *s, void *bias)
{
    zt_model *m = c->m;
    const uint64_t n = t5_distances(&c->p->in, s);
    zt_embed e = {.rows = n,
                  .seq = n,
                  .width = m->config.heads,
                  .vocab = m->config.buckets,
                  .token = t5_buckets(c, s),
                  .word = zt_weight(m, zt_own_of(m)->bias[s->which]),
                  .y = bias};

    m->device->ops->embed(m->device, m->dtype, &e);
}

static void t5_bias_grad(const zt_call *c, const t5_stack *s, const void *d_bias)
{
    zt_model *m = c->m;
    zt_embed_grad e = {.rows = 2 * s->seq - 1,
                       .seq = 2 * s->seq - 1,
                       .width = m->config.heads,
                       .vocab = m->config.buckets,
                       .padding = -1,
                       .token = t5_buckets(c, s),
                       .dy = d_bias};

    e.dword = zt_grad(m, zt_own_of(m)->bias[s->which], &e.word_add);
    if (e.dword)
        m->device->ops->embed_grad(m->device, m->dtype, &e);
}

/* ---- attention ---- */

/* One attention branch of one call. */
typedef struct t5_branch {
    const zt_block *k;
    const t5_attended *t;
    const t5_stack *stack;
    const zt_call *queries, *keys; /* the same call with the rows of each */
    const void *x;                 /* its input */
    const void *encoded;           /* cross-attention: the encoder's output; else NULL */
    void *bias;
} t5_branch;

static zt_attention t5_attention(const t5_branch *b)
{
    const zt_model *m = b->queries->m;
    const zt_pass *p = b->queries->p;
    const bool source = b->encoded || b->stack->which == T5_ENCODER;

    return (zt_attention){.batch = p->in.batch,
                          .seq = source ? p->in.seq : p->in.decoder_seq,
                          .queries = b->stack->seq,
                          .heads = m->config.heads,
                          .kv_heads = m->config.heads,
                          .width = m->config.head_width,
                          .scale = 1.0F,
                          .causal = !source,
                          .mask = source ? p->in.attention_mask : NULL,
                          .p = p->train ? m->config.dropout_attention : 0.0F,
                          .seed =
                              zt_seed(b->queries, b->encoded ? T5_SITE_CROSS : ZT_SITE_ATTENTION),
                          .q = b->t->q,
                          .k = b->t->k,
                          .v = b->t->v,
                          .bias = b->encoded ? NULL : b->bias,
                          .o = b->t->o,
                          .lse = b->t->lse};
}

static uint32_t t5_branch_site(const t5_branch *b)
{
    return b->encoded ? T5_SITE_CROSS_OUT : ZT_SITE_HIDDEN_1;
}

/* t->y = x + the branch. */
static void t5_fw_attention(const t5_branch *b, void *spare)
{
    zt_model *m = b->queries->m;
    const t5_attended *t = b->t;
    const void *s = b->encoded ? b->encoded : t->h;
    zt_norm n = {.x = b->x, .y = t->h, .rstd = t->rstd};
    zt_map_fw q = {.x = t->h, .y = t->q, .low = t->low[T5_Q], .spare = spare};
    zt_map_fw k = {.x = s, .y = t->k, .low = t->low[T5_K], .spare = spare};
    zt_map_fw v = {.x = s, .y = t->v, .low = t->low[T5_V], .spare = spare};
    zt_map_fw o = {.x = t->o, .y = t->y, .low = t->low[T5_O], .spare = spare};
    zt_attention a;

    zt_affine_forward(b->queries, &b->k->norm[T5_NORM_ATTENTION], &n);
    zt_map_forward(b->queries, &b->k->map[T5_Q], &q);
    if (b->keys->rows > 0) { // a later pass of generation has no source
        zt_map_forward(b->keys, &b->k->map[T5_K], &k);
        zt_map_forward(b->keys, &b->k->map[T5_V], &v);
    }
    if (!b->encoded)
        t5_bias(b->queries, b->stack, b->bias);
    a = t5_attention(b);
    if (b->encoded)
        zt_attend_source(b->queries, &a);
    else if (a.causal)
        zt_attend(b->queries, &a);
    else
        m->device->ops->attention(m->device, m->dtype, &a);
    zt_map_residual(b->queries, &b->k->map[T5_O], &o, b->x, t5_branch_site(b));
}

/*
 * dx holds the gradient of t->y; add the gradient through the branch.  d_encoded: the gradient of
 * the encoder's output, to which cross-attention adds.
 */
static void t5_bw_attention(const t5_branch *b, const t5_work *w, void *dx, void *d_encoded)
{
    zt_model *m = b->queries->m;
    const t5_attended *t = b->t;
    const void *s = b->encoded ? b->encoded : t->h;
    void *d_s = b->encoded ? d_encoded : w->d_h;
    zt_map_bw o = {.x = t->o, .dx = w->d_o, .low = t->low[T5_O], .spare = w->spare};
    zt_map_bw q = {.x = t->h, .dy = w->d_q, .dx = w->d_h, .low = t->low[T5_Q], .spare = w->spare};
    zt_map_bw k = {.dx_add = true, .x = s, .dy = w->d_k, .dx = d_s, .low = t->low[T5_K]};
    zt_map_bw v = {.dx_add = true, .x = s, .dy = w->d_v, .dx = d_s, .low = t->low[T5_V]};
    zt_norm_grad n = {.dx_add = true, .x = b->x, .dy = w->d_h, .rstd = t->rstd, .dx = dx};
    zt_attention_grad a = {.dout = w->d_o, .dq = w->d_q, .dk = w->d_k, .dv = w->d_v};

    if (!b->encoded)
        t5_bias(b->queries, b->stack, w->bias);
    a.fw = t5_attention(b);
    a.dbias = b->encoded ? NULL : w->d_bias;
    o.dy = zt_branch_grad(b->queries, t5_branch_site(b), dx, m->config.hidden, w->masked);
    zt_map_backward(b->queries, &b->k->map[T5_O], &o);
    m->device->ops->attention_grad(m->device, m->dtype, &a);
    if (!b->encoded)
        t5_bias_grad(b->queries, b->stack, w->d_bias);
    k.spare = w->spare;
    v.spare = w->spare;
    zt_map_backward(b->queries, &b->k->map[T5_Q], &q);
    zt_map_backward(b->keys, &b->k->map[T5_K], &k);
    zt_map_backward(b->keys, &b->k->map[T5_V], &v);
    zt_affine_backward(b->queries, &b->k->norm[T5_NORM_ATTENTION], &n);
}

/* ---- the inner layer ---- */

/* Dropout over the inner values, in place; the gradient has the same mask. */
static void t5_drop_inner(const zt_call *c, void *x)
{
    zt_drop(c, T5_SITE_INNER, c->m->config.dropout_hidden,
            &(zt_dropout){.n = c->rows * c->m->config.inner, .x = x, .y = x});
}

static zt_swiglu t5_gate(const zt_call *c, const t5_inner *t)
{
    return (zt_swiglu){
        .n = c->rows * c->m->config.inner, .act = c->m->config.act, .gate = t->pre, .up = t->up};
}

static void t5_fw_inner(const zt_call *c, const zt_block *k, const t5_inner *t, const void *x,
                        void *y)
{
    zt_model *m = c->m;
    void *spare = t5_working(m, &m->layers.at[c->layer], &c->p->in, c->p->scratch).spare;
    zt_norm n = {.x = x, .y = t->h, .rstd = t->rstd};
    zt_map_fw wi = {.x = t->h, .low = t->low[T5_WI], .spare = spare};
    zt_map_fw wi_1 = {.x = t->h, .y = t->up, .low = t->low[T5_WI_1], .spare = spare};
    zt_map_fw wo = {.x = t->act, .y = y, .low = t->low[T5_WO], .spare = spare};
    zt_swiglu gate = t5_gate(c, t);

    zt_affine_forward(c, &k->norm[T5_NORM_INNER], &n);
    if (m->config.gated) {
        wi.y = t->pre;
        zt_map_forward(c, &k->map[T5_WI], &wi);
        zt_map_forward(c, &k->map[T5_WI_1], &wi_1);
        gate.y = t->act;
        m->device->ops->swiglu(m->device, m->dtype, &gate);
    } else {
        wi.act = m->config.act;
        wi.pre = t->pre;
        wi.y = t->act;
        zt_map_forward(c, &k->map[T5_WI], &wi);
    }
    t5_drop_inner(c, t->act);
    zt_map_residual(c, &k->map[T5_WO], &wo, x, ZT_SITE_HIDDEN_2);
}

/* Gradients of wi's output, which replace d_act; with a gate in t->pre, and of wi_1's in t->up. */
static void t5_bw_act(const zt_call *c, const t5_inner *t, void *d_act)
{
    zt_model *m = c->m;
    zt_swiglu gate = t5_gate(c, t);
    zt_act_grad act = {.act = m->config.act, .n = gate.n, .pre = t->pre, .dy = d_act, .dx = d_act};

    if (!m->config.gated) {
        m->device->ops->act_grad(m->device, m->dtype, &act);
        return;
    }
    gate.dy = d_act;
    gate.dgate = t->pre;
    gate.dup = t->up;
    m->device->ops->swiglu_grad(m->device, m->dtype, &gate);
}

/* dx holds the gradient of the sum; add the gradient through the inner layer. */
static void t5_bw_inner(const zt_call *c, const zt_block *k, const t5_inner *t, const t5_work *w,
                        const void *x, void *dx)
{
    zt_map_bw wo = {.x = t->act, .dx = w->d_act, .low = t->low[T5_WO], .spare = w->spare};
    zt_map_bw wi = {.x = t->h, .dx = w->d_h, .low = t->low[T5_WI], .spare = w->spare};
    zt_map_bw wi_1 = {.dx_add = true, .x = t->h, .dy = t->up, .dx = w->d_h, .spare = w->spare};
    zt_norm_grad n = {.dx_add = true, .x = x, .dy = w->d_h, .rstd = t->rstd, .dx = dx};

    wo.dy = zt_branch_grad(c, ZT_SITE_HIDDEN_2, dx, c->m->config.hidden, w->masked);
    zt_map_backward(c, &k->map[T5_WO], &wo);
    t5_drop_inner(c, w->d_act);
    t5_bw_act(c, t, w->d_act);
    wi.dy = c->m->config.gated ? t->pre : w->d_act;
    zt_map_backward(c, &k->map[T5_WI], &wi);
    if (c->m->config.gated) {
        wi_1.low = t->low[T5_WI_1];
        zt_map_backward(c, &k->map[T5_WI_1], &wi_1);
    }
    zt_affine_backward(c, &k->norm[T5_NORM_INNER], &n);
}

/* ---- blocks ---- */

/* Both attention branches of a block. */
typedef struct t5_branches {
    zt_call c, source; /* with the rows of the stack, and of the encoder */
    t5_stack stack;
    t5_kept t;
    t5_work w;
    const zt_block *k;
    t5_branch self, cross;
} t5_branches;

static void t5_branches_set(t5_branches *b, zt_model *m, const zt_layer *l, zt_pass *p, void *tape)
{
    b->stack = t5_stack_of(m, l, &p->in);
    b->c = (zt_call){m, p, l->number, b->stack.rows};
    b->source = (zt_call){m, p, l->number, t5_source(&p->in)};
    b->t = t5_keep(m, l, &p->in, tape);
    b->w = t5_working(m, l, &p->in, p->scratch);
    b->k = t5_block(m, l);
    b->self = (t5_branch){.k = b->k,
                          .t = &b->t.self,
                          .stack = &b->stack,
                          .queries = &b->c,
                          .keys = &b->c,
                          .bias = b->w.bias};
    b->cross = (t5_branch){.k = b->k + 1,
                           .t = &b->t.cross,
                           .stack = &b->stack,
                           .queries = &b->c,
                           .keys = &b->source,
                           .x = b->t.self.y};
}

static void t5_fw(zt_model *m, const zt_layer *l, zt_pass *p, void *tape, const void *x, void *y)
{
    const uint64_t target = t5_target(&p->in) * m->config.hidden;
    const uint64_t source = t5_source(&p->in) * m->config.hidden;
    t5_branches b;
    const void *r;

    t5_branches_set(&b, m, l, p, tape);
    b.self.x = x;
    t5_fw_attention(&b.self, b.w.spare);
    r = b.t.self.y;
    if (b.stack.which == T5_DECODER) {
        b.cross.encoded = zt_at_const(m, x, target);
        t5_fw_attention(&b.cross, b.w.spare);
        r = b.t.cross.y;
        if (source > 0)
            m->device->ops->copy(m->device, zt_at(m, y, target), b.cross.encoded,
                                 source * zt_elem(m));
    }
    t5_fw_inner(&b.c, b.k, &b.t.inner, r, y);
}

/* LIMIT: the parameters are those of zt_layer_ops. */
static void t5_bw(zt_model *m, const zt_layer *l, zt_pass *p, void *tape, const void *x,
                  const void *dy, void *dx)
{
    const uint64_t target = t5_target(&p->in) * m->config.hidden;
    t5_branches b;
    bool decoder;
    uint64_t rows;

    if (!zt_wants_backward(m, l))
        return;
    t5_branches_set(&b, m, l, p, tape);
    decoder = b.stack.which == T5_DECODER;
    rows = decoder ? zt_batch_state(&p->in) : b.stack.rows;
    if (dx != dy)
        m->device->ops->copy(m->device, dx, dy, rows * m->config.hidden * zt_elem(m));
    t5_bw_inner(&b.c, b.k, &b.t.inner, &b.w, decoder ? b.t.cross.y : b.t.self.y, dx);
    if (decoder) {
        b.cross.encoded = zt_at_const(m, x, target);
        t5_bw_attention(&b.cross, &b.w, dx, zt_at(m, dx, target));
    }
    b.self.x = x;
    t5_bw_attention(&b.self, &b.w, dx, NULL);
}

/* ---- building ---- */

static const zt_layer_ops t5_block_ops = {t5_tape, t5_scratch, t5_fw, t5_bw};

/* 1 / sqrt(n), times initializer_factor. */
static float t5_std(const zt_build *b, uint64_t n)
{
    return (float)((double)b->m->config.init_range / sqrt((double)n));
}

static const char *t5_name(zt_build *b, const char *before, const char *after)
{
    return zt_build_name(b, before, after);
}

/* q, k, v and o below `module`; the rest of the block's maps stay empty. */
static void t5_build_attention(zt_build *b, zt_block *k, const char *module)
{
    const zt_model_config *f = &b->m->config;
    const uint64_t n = f->hidden, wide = t5_heads_width(b->m);
    const zt_map_shape q = {n, wide, false, false, t5_std(b, n * f->head_width)};
    const zt_map_shape kv = {n, wide, false, false, t5_std(b, n)};
    const zt_map_shape o = {wide, n, false, false, t5_std(b, wide)};

    for (int i = 0; i < ZT_MAPS; i++)
        k->map[i] = (zt_map){.w = ZT_NO_PARAM, .b = ZT_NO_PARAM, .lora_a = ZT_NO_PARAM};
    k->map[T5_Q] = zt_build_map(b, t5_name(b, module, ".q"), &q);
    k->map[T5_K] = zt_build_map(b, t5_name(b, module, ".k"), &kv);
    k->map[T5_V] = zt_build_map(b, t5_name(b, module, ".v"), &kv);
    k->map[T5_O] = zt_build_map(b, t5_name(b, module, ".o"), &o);
}

static void t5_build_inner(zt_build *b, zt_block *k, const char *layer)
{
    const zt_model_config *f = &b->m->config;
    const zt_map_shape in = {f->hidden, f->inner, false, false, t5_std(b, f->hidden)};
    const zt_map_shape out = {f->inner, f->hidden, false, false, t5_std(b, f->inner)};

    if (f->gated) {
        k->map[T5_WI] = zt_build_map(b, t5_name(b, layer, ".DenseReluDense.wi_0"), &in);
        k->map[T5_WI_1] = zt_build_map(b, t5_name(b, layer, ".DenseReluDense.wi_1"), &in);
    } else {
        k->map[T5_WI] = zt_build_map(b, t5_name(b, layer, ".DenseReluDense.wi"), &in);
    }
    k->map[T5_WO] = zt_build_map(b, t5_name(b, layer, ".DenseReluDense.wo"), &out);
    k->norm[T5_NORM_INNER] = zt_build_norm(b, t5_name(b, layer, ".layer_norm"), false);
}

/* The table of biases: a parameter of the first block, used by the others. */
static void t5_build_bias(zt_build *b, int which, const char *layer)
{
    const zt_model_config *f = &b->m->config;
    uint32_t *bias = &b->own->bias[which];

    if (*bias != ZT_NO_PARAM) {
        zt_build_use(b, *bias);
        return;
    }
    *bias = zt_build_matrix(b, t5_name(b, layer, ".SelfAttention.relative_attention_bias.weight"),
                            f->buckets, f->heads, t5_std(b, f->hidden));
}

static void t5_build_block(zt_build *b, int which, uint64_t i)
{
    zt_model *m = b->m;
    const bool decoder = which == T5_DECODER;
    zt_block *k = &b->own->block[decoder ? m->config.layers + 2 * i : i];
    const char *name =
        ckpt_arena_printf(m->arena, "%s.block.%" PRIu64, decoder ? "decoder" : "encoder", i);
    const char *self = t5_name(b, name, ".layer.0"), *cross = t5_name(b, name, ".layer.1");

    zt_build_layer(b, &t5_block_ops, true, name);
    t5_build_attention(b, k, t5_name(b, self, ".SelfAttention"));
    t5_build_bias(b, which, self);
    k->norm[T5_NORM_ATTENTION] = zt_build_norm(b, t5_name(b, self, ".layer_norm"), false);
    if (decoder) {
        t5_build_attention(b, k + 1, t5_name(b, cross, ".EncDecAttention"));
        k[1].norm[T5_NORM_ATTENTION] = zt_build_norm(b, t5_name(b, cross, ".layer_norm"), false);
    }
    t5_build_inner(b, k, t5_name(b, name, decoder ? ".layer.2" : ".layer.1"));
}

int zt_t5_build(zt_build *b)
{
    const zt_model_config *f = &b->m->config;
    zt_own *own = b->own;

    own->block =
        ckpt_arena_array(b->m->arena, f->layers + 2 * f->decoder_layers, sizeof *own->block);
    if (!own->block)
        return ckpt_fail_memory(b->err);
    own->position = ZT_NO_PARAM;
    own->bias[T5_ENCODER] = own->bias[T5_DECODER] = ZT_NO_PARAM;
    zt_build_layer(b, &zt_stem_ops, false, "shared");
    own->word = zt_build_matrix(b, "shared.weight", f->vocab, f->hidden, f->init_range);
    for (uint64_t i = 0; i < f->layers; i++)
        t5_build_block(b, T5_ENCODER, i);
    zt_build_layer(b, &zt_t5_bridge_ops, false, "encoder.final_layer_norm");
    own->transform_norm = zt_build_norm(b, "encoder.final_layer_norm", false);
    zt_build_use(b, own->word);
    for (uint64_t i = 0; i < f->decoder_layers; i++)
        t5_build_block(b, T5_DECODER, i);
    zt_build_layer(b, &zt_t5_head_ops, false, "lm_head");
    own->lm = &zt_t5_final;
    own->norm = zt_build_norm(b, "decoder.final_layer_norm", false);
    zt_build_alias(b, "encoder.embed_tokens.weight", own->word);
    zt_build_alias(b, "decoder.embed_tokens.weight", own->word);
    zt_build_lm_out(b, "lm_head.weight");
    zt_build_close(b);
    return b->rc;
}
