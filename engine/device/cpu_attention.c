/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cpu_attention.c: computes attention on the CPU, forward and backward.
 *
 * A block of queries passes over the keys block by block; scores exist only for one pair of blocks,
 * in a worker's scratch.  Forward, each query has a running maximum and sum, and the sums are
 * scaled down when the maximum grows (Milakov & Gimelshein 2018).  Backward, probabilities are
 * recomputed from the stored log of the sum (Dao et al. 2022).
 *
 * A bias depends on the distance of key and query alone, so each head has one list of biases
 * (cpu_bias.c), and a row of scores adds a part of that list.
 *
 * Work is divided so that no two workers write the same output: forward by (batch, head, block of
 * queries); backward by (batch, key head), because the query heads that share a key head are
 * summed.
 */
#include <math.h>

#include "engine/device/cpu.h"
#include "engine/device/cpu_bias.h"
#include "engine/device/cpu_pool.h"
#include "engine/device/cpu_scores.h"
#include "engine/device/cpu_sgemm.h"
#include "engine/device/formulas.h"
#include "engine/device/philox.h"
#include "engine/device/vmath.h"

/* Queries and keys of a block: its scores take 64 KiB.  Both must be multiples of ZT_LANES. */
#define AT_Q 64u
#define AT_K 256u

/* With fewer multiplications than this, another thread costs more than it saves. */
#define AT_WORTH 500000u

/* A call, with all strides set. */
typedef struct at_job {
    zt_device *device;
    ckpt_dtype dt;
    zt_attention a;
    const zt_attention_grad *grad; /* NULL: forward */
    uint64_t lddo;
    uint64_t group;    /* query heads per key head */
    uint64_t n_blocks; /* blocks of queries per sequence */
    zt_bias bias;
} at_job;

/* A worker's scratch: blocks of AT_Q rows and of AT_K keys, and whole sequences. */
typedef struct at_room {
    float *q, *o, *dout, *acc;         /* [AT_Q, width]; acc: o or dq so far */
    float *top, *sum, *fresh, *shrink; /* [AT_Q]: the running softmax */
    float *lse, *delta;                /* [AT_Q]: backward */
    float *k, *v;                      /* [AT_K, width] */
    float *s, *dp;                     /* [AT_Q, AT_K] */
    float *keep;                       /* [AT_K] */
    float *slope;                      /* [AT_K], with a cap: of a row's scores */
    float *dk, *dv;                    /* [seq, width]: backward */
    int32_t *valid; /* [seq], rounded up to whole lanes: -1 if the key counts, else 0 */
    int32_t *near;  /* [seq], with a window: the last unmasked key up to this one, or -1 */
    float *lean;    /* [seq], with ALiBi: the bias of each key's scores */
} at_room;

/* The state of a worker: one head of one sequence. */
typedef struct at_head {
    const at_job *job;
    const at_room *room;
    uint64_t batch, head;
    uint64_t first, last; /* all keys that count lie in first .. last */
    uint64_t blind;       /* without a window: queries below this one see no key */
    float slope;          /* with ALiBi */
} at_head;

typedef struct at_view {
    const float *at;
    uint64_t ld;
} at_view;

/* Queries q0 .. q0 + rows and keys k0 .. k0 + cols.  ld: cols rounded up to whole lanes. */
typedef struct at_block {
    uint64_t q0, k0, rows, cols, ld;
    bool first; /* the first key block of its queries */
} at_block;

static uint64_t at_lanes(uint64_t n)
{
    return (n + ZT_LANES - 1) / ZT_LANES * ZT_LANES;
}

static uint64_t at_least(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* ---- scratch ----------------------------------------------------------------------------- */

/* Take n floats of a worker's scratch, rounded up to whole lanes; base NULL: only count them. */
static float *at_take(float *base, uint64_t *used, uint64_t n)
{
    float *p = base ? base + *used : NULL;

    *used += at_lanes(n);
    return p;
}

/* Divide a worker's scratch; returns its size in floats. */
static uint64_t at_lay(const at_job *j, at_room *r, float *base)
{
    const uint64_t seq = j->a.seq, width = j->a.width;
    const uint64_t rows = at_least(at_lanes(j->a.queries), AT_Q);
    const uint64_t cols = at_least(at_lanes(seq), AT_K);
    const uint64_t whole = j->grad ? seq * width : 0;
    uint64_t used = 0;
    float **const blocks[] = {&r->q, &r->o, &r->dout, &r->acc};
    float **const lists[] = {&r->top, &r->sum, &r->fresh, &r->shrink, &r->lse, &r->delta};

    for (size_t i = 0; i < sizeof blocks / sizeof *blocks; i++)
        *blocks[i] = at_take(base, &used, rows * width);
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++)
        *lists[i] = at_take(base, &used, rows);
    r->k = at_take(base, &used, cols * width);
    r->v = at_take(base, &used, cols * width);
    r->s = at_take(base, &used, rows * cols);
    r->dp = at_take(base, &used, rows * cols);
    r->keep = at_take(base, &used, cols);
    r->slope = at_take(base, &used, j->a.cap > 0 ? cols : 0);
    r->dk = at_take(base, &used, whole);
    r->dv = at_take(base, &used, whole);
    r->valid = (int32_t *)(void *)at_take(base, &used, seq);
    r->near = (int32_t *)(void *)at_take(base, &used, j->a.window > 0 ? seq : 0);
    r->lean = at_take(base, &used, j->a.alibi ? seq : 0);
    return used;
}

/* False: no memory. */
static bool at_room_new(const at_job *j, unsigned worker, at_room *r)
{
    const uint64_t n = at_lay(j, r, NULL);
    float *base = (float *)zt_cpu_scratch(j->device, worker, n * sizeof(float));

    if (!base)
        return false;
    at_lay(j, r, base);
    return true;
}

/* n rows of one head in fp32: in place if possible, otherwise converted into room. */
static at_view at_rows(const at_job *j, const void *x, uint64_t at, uint64_t ld, uint64_t n,
                       float *room)
{
    const uint64_t width = j->a.width;

    if (j->dt == CKPT_F32) {
        return (at_view){(const float *)x + at, ld};
    }
    for (uint64_t i = 0; i < n; i++)
        zt_cpu_load(j->dt, room + i * width, x, at + i * ld, width);
    return (at_view){room, width};
}

/* Write n rows of one head. */
static void at_write(const at_job *j, void *x, uint64_t at, uint64_t ld, uint64_t n,
                     const float *from)
{
    for (uint64_t i = 0; i < n; i++)
        zt_cpu_store(j->dt, x, at + i * ld, from + i * j->a.width, j->a.width);
}

/* ---- keys that count --------------------------------------------------------------------- */

/* Find the keys of the head's sequence that count, from its mask. */
static void at_read_mask(at_head *h)
{
    const zt_attention *a = &h->job->a;
    const int32_t *mask = a->mask ? a->mask + h->batch * a->seq : NULL;

    h->first = a->seq;
    h->last = 0;
    for (uint64_t i = 0; i < at_lanes(a->seq); i++) {
        const bool counts = i < a->seq && (!mask || mask[i] != 0);

        h->room->valid[i] = counts ? -1 : 0;
        if (counts) {
            h->first = at_least(h->first, i);
            h->last = i + 1;
        }
    }
    h->blind = a->causal ? h->first : h->first == a->seq ? UINT64_MAX : 0;
    for (uint64_t i = 0; a->window > 0 && i < a->seq; i++)
        h->room->near[i] = h->room->valid[i] != 0 ? (int32_t)i : i > 0 ? h->room->near[i - 1] : -1;
}

/* True if a query sees no key. */
static bool at_is_blind(const at_head *h, uint64_t q)
{
    const uint64_t window = h->job->a.window;

    if (window == 0)
        return q < h->blind;
    return h->room->near[q] < 0 || (uint64_t)h->room->near[q] + window <= q;
}

static bool at_some_blind(const at_head *h, const at_block *b)
{
    if (h->job->a.window == 0)
        return b->q0 < h->blind;
    for (uint64_t r = 0; r < b->rows; r++) {
        if (at_is_blind(h, b->q0 + r))
            return true;
    }
    return false;
}

/* The keys that queries of the block see, rounded down to a whole block. */
static void at_range(const at_head *h, const at_block *b, uint64_t *from, uint64_t *to)
{
    const zt_attention *a = &h->job->a;

    if (at_some_blind(h, b)) {
        *from = 0;
        *to = a->seq;
    } else {
        *from = h->first;
        if (a->window > 0 && b->q0 + 1 > *from + a->window)
            *from = b->q0 + 1 - a->window;
        *from = *from / AT_K * AT_K;
        *to = a->causal ? at_least(h->last, b->q0 + b->rows) : h->last;
    }
}

/* Set the block's keys to k0 .. to, at most AT_K of them. */
static void at_block_keys(at_block *b, uint64_t from, uint64_t k0, uint64_t to)
{
    b->k0 = k0;
    b->cols = at_least(AT_K, to - k0);
    b->ld = at_lanes(b->cols);
    b->first = k0 == from;
}

/*
 * Find the lanes c .. c + ZT_LANES of row r that see their key: it is not masked out, not in the
 * future, not before the window.  Lanes beyond cols never do.
 */
ZT_INLINE void at_seen(zt_vi *seen, const at_head *h, const at_block *b, uint64_t r, uint64_t c)
{
    const zt_vi lane = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
    const uint64_t q = b->q0 + r, k = b->k0 + c;

    memcpy(seen, h->room->valid + k, sizeof *seen);
    if (h->job->a.causal && k + ZT_LANES > q + 1)
        *seen &= lane <= (q < k ? -1 : (int32_t)(q - k));
    if (h->job->a.window > 0 && k + h->job->a.window <= q)
        *seen &= lane > (int32_t)(q - h->job->a.window - k);
}

/* Scores of a query that sees no key: equal for all keys, -inf for the lanes after them. */
static void at_blind_row(const at_block *b, float *s)
{
    for (uint64_t c = 0; c < b->ld; c++)
        s[c] = c < b->cols ? 0.0F : -INFINITY;
}

/* ---- products ---------------------------------------------------------------------------- */

/* s = alpha q k' for the block. */
static void at_scores(const at_head *h, const at_block *b, float alpha, const at_view qk[2],
                      float *s)
{
    zt_cpu_sgemm(h->job->device, &(zt_sgemm){.b_transposed = true,
                                             .m = b->rows,
                                             .n = b->cols,
                                             .k = h->job->a.width,
                                             .alpha = alpha,
                                             .a = qk[0].at,
                                             .lda = qk[0].ld,
                                             .b = qk[1].at,
                                             .ldb = qk[1].ld,
                                             .c = s,
                                             .ldc = b->ld});
}

/* The distances of query r of the block to its keys, in a list of all distances. */
static uint64_t at_distance(const at_head *h, const at_block *b, uint64_t r)
{
    return b->k0 + h->job->a.queries - 1 - (b->q0 + r);
}

/* Add the head's bias to the scores of the block. */
ZT_CLONES static void at_add_bias(const at_head *h, const at_block *b, float *s)
{
    const float *bias = h->job->bias.at + h->head * h->job->bias.n;

    for (uint64_t r = 0; r < b->rows; r++, s += b->ld) {
        const float *from = bias + at_distance(h, b, r);

        for (uint64_t c = 0; c < b->cols; c++)
            s[c] += from[c];
    }
}

/* Add the gradients of the scores to the sums of their distances. */
ZT_CLONES static void at_sum_bias(const at_head *h, const at_block *b, const float *ds)
{
    const at_job *j = h->job;
    float *dbias = j->bias.grad + (h->batch * j->a.heads + h->head) * j->bias.n;

    for (uint64_t r = 0; r < b->rows; r++, ds += b->ld) {
        float *to = dbias + at_distance(h, b, r);

        for (uint64_t c = 0; c < b->cols; c++)
            to[c] += ds[c];
    }
}

/* Find the biases of the head's keys, rounded to the model's dtype as in transformers. */
static void at_set_lean(at_head *h)
{
    const zt_attention *a = &h->job->a;
    const zt_alibi of = zt_alibi_of(a->heads);
    uint16_t low[AT_Q];

    if (!a->alibi)
        return;
    h->slope = zt_alibi_slope(&of, (int)h->head);
    for (uint64_t k = 0; k < at_lanes(a->seq); k++)
        h->room->lean[k] = k < h->first ? 0.0F : h->slope * (float)(k - h->first);
    for (uint64_t k = 0; h->job->dt != CKPT_F32 && k < a->seq; k += AT_Q) {
        const uint64_t n = at_least(AT_Q, a->seq - k);

        zt_cpu_store(h->job->dt, low, 0, h->room->lean + k, n);
        zt_cpu_load(h->job->dt, h->room->lean + k, low, 0, n);
    }
}

/*
 * Add the biases to the block's scores, less the unrounded bias of the query's own key: the softmax
 * does not change, and sums with small numbers keep more digits.
 */
ZT_CLONES static void at_lean(const at_head *h, const at_block *b)
{
    for (uint64_t r = 0; r < b->rows; r++) {
        const float own = h->slope * ((float)(b->q0 + r) - (float)h->first);
        float *s = h->room->s + r * b->ld;

        for (uint64_t c = 0; c < b->ld; c += ZT_LANES) {
            zt_v x, lean;

            zt_v_load(&x, s + c);
            zt_v_load(&lean, h->room->lean + b->k0 + c);
            x += lean - own;
            zt_v_store(s + c, &x);
        }
    }
}

/* Scores of the block, capped or with their biases. */
static void at_all_scores(const at_head *h, const at_block *b, const at_view qk[2])
{
    at_scores(h, b, h->job->a.scale, qk, h->room->s);
    if (h->job->a.cap > 0)
        zt_scores_cap(h->room->s, b->rows * b->ld, h->job->a.cap);
    if (h->job->a.alibi)
        at_lean(h, b);
    if (h->job->bias.at)
        at_add_bias(h, b, h->room->s);
}

/* acc [+]= alpha s x: rows of queries from rows of keys. */
static void at_gather(const at_head *h, const at_block *b, float alpha, const float *s, at_view x)
{
    zt_cpu_sgemm(h->job->device, &(zt_sgemm){.m = b->rows,
                                             .n = h->job->a.width,
                                             .k = b->cols,
                                             .alpha = alpha,
                                             .beta = b->first ? 0.0F : 1.0F,
                                             .a = s,
                                             .lda = b->ld,
                                             .b = x.at,
                                             .ldb = x.ld,
                                             .c = h->room->acc,
                                             .ldc = h->job->a.width});
}

/* to += alpha s' x: rows of keys from rows of queries. */
static void at_spread(const at_head *h, const at_block *b, const zt_sgemm *what)
{
    zt_sgemm g = *what;

    g.a_transposed = true;
    g.m = b->cols;
    g.n = h->job->a.width;
    g.k = b->rows;
    g.beta = 1.0F;
    g.lda = b->ld;
    g.c += b->k0 * h->job->a.width;
    g.ldc = h->job->a.width;
    zt_cpu_sgemm(h->job->device, &g);
}

/* ---- forward ----------------------------------------------------------------------------- */

/* Dropout factors for row r of the block.  The number of a probability is its offset in [batch,
 * heads, queries, seq]. */
static void at_keep(const at_head *h, const at_block *b, uint64_t r)
{
    const zt_attention *a = &h->job->a;
    const uint64_t row = (h->batch * a->heads + h->head) * a->queries + b->q0 + r;

    zt_philox_keep(a->seed, a->p, row * a->seq + b->k0, b->cols, h->room->keep);
}

/* Set the hidden scores of row r to -inf; returns the row's maximum. */
ZT_INLINE float at_hide(const at_head *h, const at_block *b, uint64_t r, float *s)
{
    zt_v top, hidden;

    zt_v_fill(&hidden, -INFINITY);
    top = hidden;
    for (uint64_t c = 0; c < b->ld; c += ZT_LANES) {
        zt_vi mask;
        zt_v x;

        at_seen(&mask, h, b, r, c);
        mask = ~mask;
        zt_v_load(&x, s + c);
        zt_v_select(&x, &mask, &hidden);
        zt_v_max(&top, &x);
        zt_v_store(s + c, &x);
    }
    return zt_v_top(&top);
}

/* s = exp(s - top); returns the sum. */
ZT_INLINE float at_exp(float *s, uint64_t n, float top)
{
    zt_v sum;

    zt_v_fill(&sum, 0.0F);
    for (uint64_t c = 0; c < n; c += ZT_LANES) {
        zt_v x;

        zt_v_load(&x, s + c);
        x = x - top;
        zt_v_exp(&x);
        sum += x;
        zt_v_store(s + c, &x);
    }
    return zt_v_sum(&sum);
}

/*
 * One step of the running softmax: scores become exponents relative to the new maxima, and `shrink`
 * gets the factors by which earlier sums must be multiplied.
 */
ZT_CLONES static void at_softmax(const at_head *h, const at_block *b)
{
    const at_room *m = h->room;

    for (uint64_t r = 0; r < b->rows; r++) {
        float *s = m->s + r * b->ld;
        float top = 0.0F;

        if (at_is_blind(h, b->q0 + r))
            at_blind_row(b, s);
        else
            top = at_hide(h, b, r, s);
        top = m->top[r] > top ? m->top[r] : top;
        // -inf: the row has seen no key yet; exp(-inf - 0) = 0
        m->shrink[r] = m->top[r] - (top > -INFINITY ? top : 0.0F);
        m->fresh[r] = at_exp(s, b->ld, top > -INFINITY ? top : 0.0F);
        m->top[r] = top;
    }
    for (uint64_t r = 0; r < b->rows; r += ZT_LANES) {
        zt_v x, sum, fresh;

        zt_v_load(&x, m->shrink + r);
        zt_v_exp(&x);
        zt_v_store(m->shrink + r, &x);
        zt_v_load(&sum, m->sum + r);
        zt_v_load(&fresh, m->fresh + r);
        sum = sum * x + fresh;
        zt_v_store(m->sum + r, &sum);
    }
}

/* Apply dropout to the probabilities of a block. */
static void at_drop(const at_head *h, const at_block *b)
{
    for (uint64_t r = 0; r < b->rows; r++) {
        float *s = h->room->s + r * b->ld;

        at_keep(h, b, r);
        for (uint64_t c = 0; c < b->cols; c++)
            s[c] *= h->room->keep[c];
    }
}

/* Offset of the block's first row of this head in q (or o, or dq); at_key: in k or v. */
static uint64_t at_query(const at_head *h, const at_block *b, uint64_t ld)
{
    return (h->batch * h->job->a.queries + b->q0) * ld + h->head * h->job->a.width;
}

static uint64_t at_key(const at_head *h, const at_block *b, uint64_t ld)
{
    return (h->batch * h->job->a.seq + b->k0) * ld + h->head / h->job->group * h->job->a.width;
}

/* Write o and lse of the block's queries. */
static void at_finish(const at_head *h, const at_block *b)
{
    const at_job *j = h->job;
    const at_room *m = h->room;

    for (uint64_t r = 0; r < b->rows; r++)
        m->shrink[r] = 1.0F / m->sum[r];
    zt_scores_scale(m->acc, b->rows, j->a.width, m->shrink);
    at_write(j, j->a.o, at_query(h, b, j->a.ldo), j->a.ldo, b->rows, m->acc);
    if (j->a.lse) {
        float *lse = j->a.lse + (h->batch * j->a.heads + h->head) * j->a.queries + b->q0;

        for (uint64_t r = 0; r < b->rows; r++)
            lse[r] = m->top[r] + logf(m->sum[r]);
    }
}

/* Pass over all keys for one block of queries of one head. */
static void at_forward(const at_head *h, at_block *b)
{
    const at_job *j = h->job;
    const zt_attention *a = &j->a;
    const at_room *m = h->room;
    const at_view q = at_rows(j, a->q, at_query(h, b, a->ldq), a->ldq, b->rows, m->q);
    uint64_t from, to;

    for (uint64_t r = 0; r < at_lanes(b->rows); r++) {
        m->top[r] = -INFINITY;
        m->sum[r] = m->fresh[r] = m->shrink[r] = 0.0F;
    }
    at_range(h, b, &from, &to);
    for (uint64_t k0 = from; k0 < to; k0 += AT_K) {
        at_block_keys(b, from, k0, to);
        const at_view k = at_rows(j, a->k, at_key(h, b, a->ldk), a->ldk, b->cols, m->k);
        const at_view v = at_rows(j, a->v, at_key(h, b, a->ldv), a->ldv, b->cols, m->v);

        at_all_scores(h, b, (const at_view[2]){q, k});
        at_softmax(h, b);
        if (!b->first)
            zt_scores_scale(m->acc, b->rows, a->width, m->shrink);
        if (a->p > 0)
            at_drop(h, b);
        at_gather(h, b, 1.0F, m->s, v);
    }
    at_finish(h, b);
}

/* Tasks are numbered by (batch, head, block of queries). */
static void at_forward_body(void *ctx, uint64_t first, uint64_t last, unsigned worker)
{
    const at_job *j = (const at_job *)ctx;
    at_room room;
    at_head h = {.job = j, .room = &room, .batch = UINT64_MAX};

    if (!at_room_new(j, worker, &room))
        return;
    for (uint64_t i = first; i < last; i++) {
        const uint64_t q0 = i % j->n_blocks * AT_Q, row = i / j->n_blocks;
        at_block b = {.q0 = q0, .rows = at_least(AT_Q, j->a.queries - q0)};

        h.head = row % j->a.heads;
        if (h.batch != row / j->a.heads) {
            h.batch = row / j->a.heads;
            at_read_mask(&h);
        }
        at_set_lean(&h);
        at_forward(&h, &b);
    }
}

/* ---- backward ---------------------------------------------------------------------------- */

/* delta = dout * o, summed over each row. */
ZT_CLONES static void at_delta(const at_view *x, const at_view *y, uint64_t rows, uint64_t width,
                               float *out)
{
    for (uint64_t r = 0; r < rows; r++) {
        const float *p = x->at + r * x->ld, *q = y->at + r * y->ld;
        uint64_t i = 0;
        zt_v sum;

        zt_v_fill(&sum, 0.0F);
        for (; i + ZT_LANES <= width; i += ZT_LANES) {
            zt_v u, v;

            zt_v_load(&u, p + i);
            zt_v_load(&v, q + i);
            sum += u * v;
        }
        out[r] = zt_v_sum(&sum);
        for (; i < width; i++)
            out[r] += p[i] * q[i];
    }
}

/*
 * One row: turn the scores s into probabilities with dropout, and their gradients dp into gradients
 * of the scores (before scaling): p (dp keep - delta).  keep NULL: no dropout.
 */
ZT_INLINE void at_row_grad(const at_head *h, const at_block *b, uint64_t r, const float *keep)
{
    const at_room *m = h->room;
    float *s = m->s + r * b->ld, *dp = m->dp + r * b->ld;
    const bool blind = at_is_blind(h, b->q0 + r);
    zt_v zero;

    zt_v_fill(&zero, 0.0F);
    if (blind)
        at_blind_row(b, s);
    for (uint64_t c = 0; c < b->ld; c += ZT_LANES) {
        zt_v p, d, f;

        zt_v_load(&p, s + c);
        zt_v_load(&d, dp + c);
        p = p - m->lse[r];
        zt_v_exp(&p);
        if (!blind) {
            zt_vi mask;

            at_seen(&mask, h, b, r, c);
            mask = ~mask;
            zt_v_select(&p, &mask, &zero);
        }
        if (keep) {
            zt_v_load(&f, keep + c);
            d = p * (d * f - m->delta[r]);
            p = p * f;
        } else {
            d = p * (d - m->delta[r]);
        }
        zt_v_store(s + c, &p);
        zt_v_store(dp + c, &d);
    }
}

ZT_CLONES static void at_block_grad(const at_head *h, const at_block *b)
{
    const bool drop = h->job->a.p > 0;
    const float cap = h->job->a.cap;

    for (uint64_t r = 0; r < b->rows; r++) {
        if (drop)
            at_keep(h, b, r);
        if (cap > 0) // before the row becomes probabilities
            zt_scores_slope(h->room->slope, h->room->s + r * b->ld, b->ld, cap);
        at_row_grad(h, b, r, drop ? h->room->keep : NULL);
        if (cap > 0)
            zt_scores_uncap(h->room->dp + r * b->ld, h->room->slope, b->ld);
    }
}

/* Load lse and compute delta of the block's queries. */
static void at_begin(const at_head *h, const at_block *b, const at_view *dout)
{
    const at_job *j = h->job;
    const at_room *m = h->room;
    const float *lse = j->a.lse + (h->batch * j->a.heads + h->head) * j->a.queries + b->q0;
    const at_view o = at_rows(j, j->a.o, at_query(h, b, j->a.ldo), j->a.ldo, b->rows, m->o);

    memcpy(m->lse, lse, b->rows * sizeof *lse);
    at_delta(dout, &o, b->rows, j->a.width, m->delta);
}

/*
 * Pass over all keys for one block of queries of one head: compute its dq, and add its part of dk
 * and dv.
 */
static void at_backward(const at_head *h, at_block *b)
{
    const at_job *j = h->job;
    const zt_attention *a = &j->a;
    const at_room *m = h->room;
    const uint64_t at = at_query(h, b, a->ldq);
    const at_view q = at_rows(j, a->q, at, a->ldq, b->rows, m->q);
    const at_view dout =
        at_rows(j, j->grad->dout, at_query(h, b, j->lddo), j->lddo, b->rows, m->dout);
    uint64_t from, to;

    at_begin(h, b, &dout);
    at_range(h, b, &from, &to);
    for (uint64_t k0 = from; k0 < to; k0 += AT_K) {
        at_block_keys(b, from, k0, to);
        const at_view k = at_rows(j, a->k, at_key(h, b, a->ldk), a->ldk, b->cols, m->k);
        const at_view v = at_rows(j, a->v, at_key(h, b, a->ldv), a->ldv, b->cols, m->v);

        at_all_scores(h, b, (const at_view[2]){q, k});
        at_scores(h, b, 1.0F, (const at_view[2]){dout, v}, m->dp);
        at_block_grad(h, b);
        if (j->bias.grad)
            at_sum_bias(h, b, m->dp);
        at_spread(h, b,
                  &(zt_sgemm){.alpha = 1.0F, .a = m->s, .b = dout.at, .ldb = dout.ld, .c = m->dv});
        at_spread(h, b,
                  &(zt_sgemm){.alpha = a->scale, .a = m->dp, .b = q.at, .ldb = q.ld, .c = m->dk});
        at_gather(h, b, a->scale, m->dp, k);
    }
    at_write(j, j->grad->dq, at, a->ldq, b->rows, m->acc);
}

/* Tasks are numbered by (batch, key head). */
static void at_backward_body(void *ctx, uint64_t first, uint64_t last, unsigned worker)
{
    const at_job *j = (const at_job *)ctx;
    const zt_attention *a = &j->a;
    at_room room;
    at_head h = {.job = j, .room = &room};

    if (!at_room_new(j, worker, &room))
        return;
    for (uint64_t i = first; i < last; i++) {
        const uint64_t key_head = i % a->kv_heads;
        const at_block all = {.k0 = 0};

        h.batch = i / a->kv_heads;
        at_read_mask(&h);
        memset(room.dk, 0, a->seq * a->width * sizeof(float));
        memset(room.dv, 0, a->seq * a->width * sizeof(float));
        for (uint64_t n = 0; n < j->group * j->n_blocks; n++) {
            const uint64_t q0 = n % j->n_blocks * AT_Q;
            at_block b = {.q0 = q0, .rows = at_least(AT_Q, a->queries - q0)};

            h.head = key_head * j->group + n / j->n_blocks;
            at_set_lean(&h);
            at_backward(&h, &b);
        }
        at_write(j, j->grad->dk, at_key(&h, &all, a->ldk), a->ldk, a->seq, room.dk);
        at_write(j, j->grad->dv, at_key(&h, &all, a->ldv), a->ldv, a->seq, room.dv);
    }
}

/* ---- the operations ---------------------------------------------------------------------- */

static void at_job_set(at_job *j, zt_device *d, ckpt_dtype dt, const zt_attention *a)
{
    *j = (at_job){.device = d, .dt = dt, .a = *a};
    j->group = a->heads / a->kv_heads;
    j->a.queries = a->queries != 0 ? a->queries : a->seq;
    j->n_blocks = (j->a.queries + AT_Q - 1) / AT_Q;
    j->a.ldq = zt_stride(a->ldq, a->heads * a->width);
    j->a.ldk = zt_stride(a->ldk, a->kv_heads * a->width);
    j->a.ldv = zt_stride(a->ldv, a->kv_heads * a->width);
    j->a.ldo = zt_stride(a->ldo, a->heads * a->width);
}

/* Tasks per range, if each takes about n multiplications. */
static uint64_t at_grain(uint64_t n)
{
    return n < AT_WORTH ? AT_WORTH / (n + 1) + 1 : 1;
}

void zt_cpu_attention(zt_device *d, ckpt_dtype dt, const zt_attention *a)
{
    at_job j;

    if (!zt_ready(d, dt, zt_ok_attention(a), "attention"))
        return;
    at_job_set(&j, d, dt, a);
    const uint64_t rows = at_least(AT_Q, j.a.queries);

    if (zt_bias_new(&j.bias, d, dt, &j.a, false))
        zt_cpu_parallel(d, a->batch * a->heads * j.n_blocks, at_grain(2 * rows * a->seq * a->width),
                        at_forward_body, &j);
    zt_bias_free(&j.bias);
}

void zt_cpu_attention_grad(zt_device *d, ckpt_dtype dt, const zt_attention_grad *a)
{
    at_job j;

    if (!zt_ready(d, dt, zt_ok_attention_grad(a), "attention_grad"))
        return;
    at_job_set(&j, d, dt, &a->fw);
    j.grad = a;
    j.lddo = zt_stride(a->lddo, a->fw.heads * a->fw.width);
    if (zt_bias_new(&j.bias, d, dt, &j.a, a->dbias != NULL))
        zt_cpu_parallel(d, a->fw.batch * a->fw.kv_heads,
                        at_grain(5 * j.a.queries * a->fw.seq * a->fw.width * j.group),
                        at_backward_body, &j);
    if (j.bias.grad && zt_device_check(d, NULL) == CKPT_OK)
        zt_bias_grad(&j.bias, dt, &j.a, a->dbias);
    zt_bias_free(&j.bias);
}
