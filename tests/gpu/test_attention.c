/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_attention.c: attention of a CUDA plugin (real or emulated) against the CPU device's.
 *
 *     test_attention PLUGIN
 *
 * Both devices get the same numbers.  How far they may differ is no guess: for each output element
 * a reference in double also sums the absolute values of what is added up, and tensor cores may
 * round each of those factors to the dtype once (engine/cuda/attention.h); fp32 arithmetic
 * gets a few ulp of the same sums.
 *
 * With ZEROTRAIN_ATTENTION=cudnn repeated runs need not have equal bits, and a line says how much
 * cuDNN has computed.
 */
#include <dlfcn.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/device/device.h"
#include "engine/device/philox.h"
#include "libckpt/base/cast.h"

typedef enum mask_kind { NO_MASK, RIGHT, LEFT, HOLES, ONE_EMPTY } mask_kind;

/* How q, k, v (and their gradients) lie: one after another with gaps between rows, or as one matrix
 * [rows, q k v], as GPT-2 has them. */
typedef enum lay { APART, FUSED } lay;

typedef struct shape {
    uint64_t batch, seq, heads, kv_heads, width;
    uint64_t gap; /* elements between rows, beyond the dense ones */
    bool causal;
    mask_kind mask;
    float p;
    lay how;
    uint64_t queries; /* 0: all */
    uint64_t window;  /* 0: none */
    enum { PLAIN, ALIBI, CAPPED, DISTANCES } bias;
} shape;

/* Of scores: so small that it shows. */
#define CAP 0.75F

/* Tensors; the first four are inputs and live in one buffer, the others in another one. */
enum { Q, K, V, DOUT, O, DQ, DK, DV, N_TENSORS };

static const char *const names[N_TENSORS] = {"q", "k", "v", "dout", "o", "dq", "dk", "dv"};

typedef struct place {
    uint64_t at, ld, row; /* elements: where it begins, between rows, of a row */
} place;

/* What may differ of an output: sums of absolute values. */
typedef struct bound {
    double *rounded; /* of products whose one factor is rounded to dt */
    double *noise;   /* of what cancels in fp32 */
} bound;

typedef struct problem {
    shape s;
    ckpt_dtype dt;
    uint64_t rows, n_in, n_out, n_lse;
    place at[N_TENSORS];
    char *in;
    float *value; /* of `in`, as fp32 */
    int32_t *mask;
    bound b[N_TENSORS];
    double top; /* the largest input */
    uint64_t n_bias;
    char *bias;         /* [distances, heads] */
    float *bias_value;  /* as fp32 */
    double *bias_noise; /* what may differ of their gradients */
} problem;

/* What a device has computed. */
typedef struct answer {
    char *out;
    float *lse;
    char *dbias;
} answer;

typedef int new_device(zt_device **out, int ordinal, bool deterministic, ckpt_err *err);
typedef void about_attention(zt_device *d, char *text, uint64_t n);

static unsigned n_passed, n_failed;
static bool fused; /* cuDNN computes some calls */

static void verdict(bool ok, const problem *p, const char *what, const char *detail)
{
    n_passed += ok;
    n_failed += !ok;
    if (!ok)
        printf("FAIL %s %s: B %d T %d H %d/%d W %d gap %d causal %d mask %d p %g lay %d queries "
               "%d window %d: %s\n",
               ckpt_dtype_name(p->dt), what, (int)p->s.batch, (int)p->s.seq, (int)p->s.heads,
               (int)p->s.kv_heads, (int)p->s.width, (int)p->s.gap, p->s.causal, (int)p->s.mask,
               (double)p->s.p, (int)p->s.how, (int)p->s.queries, (int)p->s.window, detail);
}

static void *new_array(uint64_t n, size_t size)
{
    void *p = calloc(n + 1, size);

    if (!p) {
        fprintf(stderr, "no memory\n");
        exit(2);
    }
    return p;
}

static uint64_t size_of(ckpt_dtype dt)
{
    return dt == CKPT_F32 ? 4 : 2;
}

/* Queries of a sequence. */
static uint64_t asked(const shape *s)
{
    return s->queries != 0 ? s->queries : s->seq;
}

/* Rows of a tensor. */
static uint64_t rows_of(const shape *s, int what)
{
    const bool of_queries = what == Q || what == DOUT || what == O || what == DQ;

    return s->batch * (of_queries ? asked(s) : s->seq);
}

/* ---- making a problem -------------------------------------------------------------------- */

/* Lay out four tensors in one buffer; returns its elements. */
static uint64_t lay_out(const shape *s, uint64_t rows, place *at)
{
    const uint64_t q = s->heads * s->width, k = s->kv_heads * s->width;
    const uint64_t row[4] = {q, k, k, q};
    uint64_t used = 0;

    for (int i = 0; i < 4; i++) {
        at[i] = (place){used, row[i] + s->gap, row[i]};
        if (s->how == FUSED && i < 3) {
            at[i] = (place){i == 0 ? 0 : q + (uint64_t)(i - 1) * k, q + 2 * k, row[i]};
            used = rows * (q + 2 * k);
        } else {
            used += rows * at[i].ld;
        }
    }
    return used;
}

static bool counts(const shape *s, uint64_t b, uint64_t t)
{
    const uint64_t pad = (b + 1) * s->seq / (s->batch + 2);

    switch (s->mask) {
    case RIGHT:
        return t < s->seq - pad;
    case LEFT:
        return t >= pad;
    case HOLES:
        return (t * 7 + b) % 3 != 0;
    case ONE_EMPTY:
        return b != 0;
    case NO_MASK:
    default:
        return true;
    }
}

static void make_bias(problem *p)
{
    p->n_bias = p->s.bias == DISTANCES ? (asked(&p->s) + p->s.seq - 1) * p->s.heads : 0;
    p->bias = (char *)new_array(p->n_bias, 4);
    p->bias_value = (float *)new_array(p->n_bias, sizeof(float));
    p->bias_noise = (double *)new_array(p->n_bias, sizeof(double));
    zt_philox_normal(6, 1.0, 0, p->n_bias, p->bias_value);
    ckpt_cast_find(p->dt, CKPT_F32)(p->bias, p->bias_value, p->n_bias);
    ckpt_cast_find(CKPT_F32, p->dt)(p->bias_value, p->bias, p->n_bias);
}

static problem make(const shape *s, ckpt_dtype dt)
{
    const uint64_t longest = asked(s) > s->seq ? asked(s) : s->seq;
    problem p = {.s = *s, .dt = dt, .rows = s->batch * longest};
    place out[4];

    p.n_in = lay_out(s, p.rows, p.at);
    p.n_out = lay_out(s, p.rows, out);
    p.n_lse = rows_of(s, Q) * s->heads;
    // dq, dk, dv have the strides of q, k, v
    for (int i = 0; i < 4; i++)
        p.at[i == 3 ? O : DQ + i] = out[i];
    p.in = (char *)new_array(p.n_in, 4);
    p.value = (float *)new_array(p.n_in, sizeof(float));
    zt_philox_normal(5, 1.0, 0, p.n_in, p.value);
    ckpt_cast_find(dt, CKPT_F32)(p.in, p.value, p.n_in);
    ckpt_cast_find(CKPT_F32, dt)(p.value, p.in, p.n_in);
    for (uint64_t i = 0; i < p.n_in; i++)
        p.top = fmax(p.top, fabs((double)p.value[i]));
    p.mask = (int32_t *)new_array(p.rows, sizeof *p.mask);
    for (uint64_t i = 0; i < p.rows; i++)
        p.mask[i] = counts(s, i / s->seq, i % s->seq) ? 3 : 0;
    for (int i = O; i < N_TENSORS; i++) {
        p.b[i].rounded = (double *)new_array(p.rows * p.at[i].row, sizeof(double));
        p.b[i].noise = (double *)new_array(p.rows * p.at[i].row, sizeof(double));
    }
    make_bias(&p);
    return p;
}

static void discard(problem *p)
{
    free(p->in);
    free(p->value);
    free(p->mask);
    free(p->bias);
    free(p->bias_value);
    free(p->bias_noise);
    for (int i = O; i < N_TENSORS; i++) {
        free(p->b[i].rounded);
        free(p->b[i].noise);
    }
}

/* ---- how far results may be apart --------------------------------------------------------- */

/* One query of one head. */
typedef struct one {
    uint64_t b, h, t;
    double *p;   /* [seq]: probabilities */
    float *keep; /* [seq]: factors of dropout */
} one;

/* Where the vector of a head lies among the values of an input. */
static const float *vector_of(const problem *p, int what, const one *x, uint64_t t)
{
    const shape *s = &p->s;
    const uint64_t head = what == Q || what == DOUT ? x->h : x->h / (s->heads / s->kv_heads);
    const uint64_t row = x->b * (rows_of(s, what) / s->batch) + t;

    return p->value + p->at[what].at + row * p->at[what].ld + head * s->width;
}

/* The same place in a dense array of an output's bounds. */
static uint64_t dense(const problem *p, int what, const one *x, uint64_t t)
{
    const shape *s = &p->s;
    const uint64_t head = what == O || what == DQ ? x->h : x->h / (s->heads / s->kv_heads);

    return (x->b * (rows_of(s, what) / s->batch) + t) * p->at[what].row + head * s->width;
}

static double dot(const float *a, const float *b, uint64_t n)
{
    double sum = 0;

    for (uint64_t i = 0; i < n; i++)
        sum += (double)a[i] * (double)b[i];
    return sum;
}

/* ALiBi's bias of key t, rounded to dt. */
static double lean(const problem *p, const one *x, uint64_t t)
{
    const uint64_t heads = p->s.heads;
    const int32_t *mask = p->s.mask == NO_MASK ? NULL : p->mask + x->b * p->s.seq;
    uint64_t first = 0, whole = 1;
    float slope, bias;
    uint16_t low;

    while (mask && first < p->s.seq && mask[first] == 0)
        first++;
    while (whole * 2 <= heads)
        whole *= 2;
    slope = x->h < whole ? powf((float)exp2(-8.0 / (double)whole), (float)(x->h + 1))
                         : powf((float)exp2(-4.0 / (double)whole), (float)(2 * (x->h - whole) + 1));
    bias = p->s.bias == ALIBI && t > first ? slope * (float)(t - first) : 0.0F;
    if (p->dt != CKPT_F32) {
        ckpt_cast_find(p->dt, CKPT_F32)(&low, &bias, 1);
        ckpt_cast_find(CKPT_F32, p->dt)(&bias, &low, 1);
    }
    return (double)bias;
}

/* The place of the bias of key t among the biases. */
static uint64_t bias_at(const problem *p, const one *x, uint64_t t)
{
    return (t + asked(&p->s) - 1 - x->t) * p->s.heads + x->h;
}

static void probabilities(const problem *p, const one *x)
{
    const shape *s = &p->s;
    double top = -INFINITY, sum = 0;

    for (uint64_t t = 0; t < s->seq; t++) {
        const bool on = (!s->causal || t <= x->t) && (s->window == 0 || t + s->window > x->t) &&
                        (s->mask == NO_MASK || p->mask[x->b * s->seq + t] != 0);

        const double score =
            dot(vector_of(p, Q, x, x->t), vector_of(p, K, x, t), s->width) / sqrt((double)s->width);

        x->p[t] = !on                    ? -1e30
                  : s->bias == CAPPED    ? (double)CAP * tanh(score / (double)CAP)
                  : s->bias == DISTANCES ? score + (double)p->bias_value[bias_at(p, x, t)]
                                         : score + lean(p, x, t);
        top = fmax(top, x->p[t]);
    }
    for (uint64_t t = 0; t < s->seq; t++) {
        x->p[t] = exp(x->p[t] - top);
        sum += x->p[t];
    }
    for (uint64_t t = 0; t < s->seq; t++) {
        x->p[t] /= sum;
        x->keep[t] = 1;
    }
    if (s->p > 0) {
        const uint64_t row = (x->b * s->heads + x->h) * asked(s) + x->t;

        zt_philox_keep(77, s->p, row * s->seq, s->seq, x->keep);
    }
}

/* Add what one query contributes to the bounds. */
static void add_bounds(problem *p, const one *x)
{
    const shape *s = &p->s;
    const float *dout = vector_of(p, DOUT, x, x->t), *q = vector_of(p, Q, x, x->t);
    const double scale = 1 / sqrt((double)s->width);
    double delta = 0;

    for (uint64_t t = 0; t < s->seq; t++)
        delta += x->p[t] * (double)x->keep[t] * dot(dout, vector_of(p, V, x, t), s->width);
    for (uint64_t t = 0; t < s->seq; t++) {
        const float *k = vector_of(p, K, x, t), *v = vector_of(p, V, x, t);
        const uint64_t o = dense(p, O, x, x->t), dk = dense(p, DK, x, t);
        const double dropped = x->p[t] * (double)x->keep[t];
        const double dp = dot(dout, v, s->width) * (double)x->keep[t];
        const double ds = x->p[t] * fabs(dp - delta) * scale;
        // dp, delta are sums of `width` products, each of about 1, that may cancel
        const double spread = sqrt((double)s->width) * (1 + (double)x->keep[t]);
        const double apart = x->p[t] * (fabs(dp) + fabs(delta) + spread) * scale;

        if (s->bias == DISTANCES)
            p->bias_noise[bias_at(p, x, t)] += apart / scale;
        for (uint64_t i = 0; i < s->width; i++) {
            p->b[O].rounded[o + i] += dropped * fabs((double)v[i]);
            p->b[DV].rounded[dk + i] += dropped * fabs((double)dout[i]);
            p->b[DQ].rounded[o + i] += ds * fabs((double)k[i]);
            p->b[DK].rounded[dk + i] += ds * fabs((double)q[i]);
            p->b[DQ].noise[o + i] += apart * fabs((double)k[i]);
            p->b[DK].noise[dk + i] += apart * fabs((double)q[i]);
        }
    }
}

static void find_bounds(problem *p)
{
    const shape *s = &p->s;
    one x = {.p = (double *)new_array(s->seq, sizeof(double)),
             .keep = (float *)new_array(s->seq, sizeof(float))};

    for (uint64_t i = 0; i < rows_of(s, Q) * s->heads; i++) {
        x.t = i % asked(s);
        x.h = i / asked(s) % s->heads;
        x.b = i / asked(s) / s->heads;
        probabilities(p, &x);
        add_bounds(p, &x);
    }
    free(x.p);
    free(x.keep);
}

/* ---- running on a device ------------------------------------------------------------------ */

/* The problem in a device's memory. */
typedef struct held {
    char *in, *out;
    void *mask;
    float *lse;
    void *bias, *dbias; /* NULL: none */
    zt_attention_grad a;
} held;

static void *give(zt_device *d, const void *from, uint64_t n_bytes)
{
    void *p = d->ops->alloc(d, n_bytes);

    if (p)
        d->ops->put(d, p, from, n_bytes);
    return p;
}

static held hold(zt_device *d, const problem *p, const answer *start)
{
    const shape *s = &p->s;
    const uint64_t size = size_of(p->dt);
    held m = {.in = (char *)give(d, p->in, p->n_in * size),
              .out = (char *)give(d, start->out, p->n_out * size),
              .mask = give(d, p->mask, p->rows * sizeof *p->mask),
              .lse = (float *)give(d, start->lse, p->n_lse * sizeof(float)),
              .bias = s->bias == DISTANCES ? give(d, p->bias, p->n_bias * size) : NULL,
              .dbias = s->bias == DISTANCES ? give(d, start->dbias, p->n_bias * size) : NULL};

    m.a = (zt_attention_grad){.fw = {.batch = s->batch,
                                     .seq = s->seq,
                                     .queries = s->queries,
                                     .heads = s->heads,
                                     .kv_heads = s->kv_heads,
                                     .width = s->width,
                                     .ldq = p->at[Q].ld,
                                     .ldk = p->at[K].ld,
                                     .ldv = p->at[V].ld,
                                     .ldo = p->at[O].ld,
                                     .scale = (float)(1 / sqrt((double)s->width)),
                                     .causal = s->causal,
                                     .alibi = s->bias == ALIBI,
                                     .cap = s->bias == CAPPED ? CAP : 0,
                                     .window = s->window,
                                     .mask = s->mask == NO_MASK ? NULL : (const int32_t *)m.mask,
                                     .p = s->p,
                                     .seed = 77,
                                     .q = m.in + p->at[Q].at * size,
                                     .k = m.in + p->at[K].at * size,
                                     .v = m.in + p->at[V].at * size,
                                     .bias = m.bias,
                                     .o = m.out + p->at[O].at * size,
                                     .lse = m.lse},
                              .lddo = p->at[DOUT].ld,
                              .dout = m.in + p->at[DOUT].at * size,
                              .dq = m.out + p->at[DQ].at * size,
                              .dk = m.out + p->at[DK].at * size,
                              .dv = m.out + p->at[DV].at * size,
                              .dbias = m.dbias};
    return m;
}

static void let_go(zt_device *d, held *m)
{
    d->ops->release(d, m->in);
    d->ops->release(d, m->out);
    d->ops->release(d, m->mask);
    d->ops->release(d, m->lse);
    d->ops->release(d, m->bias);
    d->ops->release(d, m->dbias);
}

/* Memory for an answer: a pattern that results do not have, so that gaps can be told. */
static answer blank(const problem *p)
{
    answer r = {.out = (char *)new_array(p->n_out, 4),
                .lse = (float *)new_array(p->n_lse, sizeof(float)),
                .dbias = (char *)new_array(p->n_bias, 4)};

    memset(r.out, 0x5A, p->n_out * 4);
    return r;
}

static void forget(answer *r)
{
    free(r->out);
    free(r->lse);
    free(r->dbias);
}

typedef enum pass { FORWARD = 1, BACKWARD = 2 } pass;

/* Continue from `start` (o and lse of a forward pass, or blank). */
static answer compute(zt_device *d, const problem *p, const answer *start, int passes)
{
    held m = hold(d, p, start);
    answer r = blank(p);

    if ((passes & FORWARD) != 0)
        d->ops->attention(d, p->dt, &m.a.fw);
    if ((passes & BACKWARD) != 0)
        d->ops->attention_grad(d, p->dt, &m.a);
    d->ops->get(d, r.out, m.out, p->n_out * size_of(p->dt));
    d->ops->get(d, r.lse, m.lse, p->n_lse * sizeof(float));
    if (m.dbias)
        d->ops->get(d, r.dbias, m.dbias, p->n_bias * size_of(p->dt));
    d->ops->sync(d);
    let_go(d, &m);
    return r;
}

/* ---- comparing ---------------------------------------------------------------------------- */

static float element(const problem *p, const answer *r, uint64_t i)
{
    float x;

    ckpt_cast_find(CKPT_F32, p->dt)(&x, r->out + i * size_of(p->dt), 1);
    return x;
}

/* Unit roundoff of dt: half the distance from 1 to the next number. */
static double half_ulp(ckpt_dtype dt)
{
    return dt == CKPT_F32 ? 0x1p-24 : dt == CKPT_BF16 ? 0x1p-8 : 0x1p-11;
}

/* How far element i of an output may be from the processor's. */
static double allowed(const problem *p, int what, uint64_t i, double want)
{
    const double u = half_ulp(p->dt);
    // a factor below the normal range of fp16 is rounded to a multiple of 2^-24
    const double tiny = p->dt == CKPT_F16 ? 0x1p-25 * (double)p->s.seq * p->top : 0;
    const double rounded = p->b[what].rounded[i], noise = p->b[what].noise[i] + rounded;
    // cuDNN rounds the sums of each query head, too, before it adds those of a group
    const bool twice = fused && (what == DK || what == DV) && p->s.heads > p->s.kv_heads;
    const double factors = p->dt == CKPT_F32 ? 0 : twice ? 2.02 * u : 1.01 * u;

    return 2.01 * u * fabs(want) + factors * rounded + 3e-6 * noise + 2 * tiny + 1e-7;
}

static void compare(const problem *p, int what, const answer *want, const answer *got)
{
    const place at = p->at[what];
    char text[128] = "";
    bool ok = true;

    for (uint64_t i = 0; ok && i < rows_of(&p->s, what) * at.row; i++) {
        const uint64_t e = at.at + i / at.row * at.ld + i % at.row;
        const double w = (double)element(p, want, e), g = (double)element(p, got, e);

        ok = fabs(g - w) <= allowed(p, what, i, w);
        if (!ok)
            snprintf(text, sizeof text, "row %d column %d is %.9g, not %.9g within %.3g",
                     (int)(i / at.row), (int)(i % at.row), g, w, allowed(p, what, i, w));
    }
    verdict(ok, p, names[what], text);
}

static void compare_lse(const problem *p, const answer *want, const answer *got)
{
    char text[128] = "";
    bool ok = true;

    for (uint64_t i = 0; ok && i < p->n_lse; i++) {
        const double w = (double)want->lse[i], g = (double)got->lse[i];

        ok = fabs(g - w) <= 3e-6 * (1 + fabs(w));
        if (!ok)
            snprintf(text, sizeof text, "%d is %.9g, not %.9g", (int)i, g, w);
    }
    verdict(ok, p, "lse", text);
}

static void compare_dbias(const problem *p, const answer *want, const answer *got)
{
    const uint64_t size = size_of(p->dt);
    char text[128] = "";
    bool ok = true;

    for (uint64_t i = 0; ok && i < p->n_bias; i++) {
        const double near = 2.01 * half_ulp(p->dt);
        float w, g;

        ckpt_cast_find(CKPT_F32, p->dt)(&w, want->dbias + i * size, 1);
        ckpt_cast_find(CKPT_F32, p->dt)(&g, got->dbias + i * size, 1);
        ok = fabs((double)g - (double)w) <= near * fabs((double)w) + 3e-6 * p->bias_noise[i] + 1e-7;
        if (!ok)
            snprintf(text, sizeof text, "%d is %.9g, not %.9g", (int)i, (double)g, (double)w);
    }
    verdict(ok, p, "dbias", text);
}

/* Elements between rows, and the inputs' side of nothing, were left alone. */
static void compare_gaps(const problem *p, const answer *got)
{
    const uint64_t size = size_of(p->dt);
    char *left = (char *)new_array(p->n_out, 1);
    bool ok = true;

    for (int w = O; w < N_TENSORS; w++) {
        for (uint64_t r = 0; r < rows_of(&p->s, w); r++)
            memset(left + p->at[w].at + r * p->at[w].ld, 1, p->at[w].row);
    }
    for (uint64_t i = 0; i < p->n_out * size; i++)
        ok = ok && (left[i / size] || got->out[i] == 0x5A);
    free(left);
    verdict(ok, p, "gaps", "something was written between rows");
}

/* Forward on both; backward on both from the processor's o and lse; and once more: equal bits. */
static void check(zt_device *cpu, zt_device *gpu, const shape *s, ckpt_dtype dt)
{
    problem p = make(s, dt);
    answer start = blank(&p);

    find_bounds(&p);
    answer want = compute(cpu, &p, &start, FORWARD);
    answer got = compute(gpu, &p, &start, FORWARD);

    compare(&p, O, &want, &got);
    compare_lse(&p, &want, &got);
    answer want_grad = compute(cpu, &p, &want, BACKWARD);
    answer got_grad = compute(gpu, &p, &want, BACKWARD);
    answer again = compute(gpu, &p, &want, BACKWARD);

    for (int w = DQ; w < N_TENSORS; w++)
        compare(&p, w, &want_grad, &got_grad);
    if (s->bias == DISTANCES)
        compare_dbias(&p, &want_grad, &got_grad);
    compare_gaps(&p, &got_grad);
    for (int w = DQ; fused && w < N_TENSORS; w++)
        compare(&p, w, &want_grad, &again);
    if (!fused)
        verdict(memcmp(again.out, got_grad.out, p.n_out * size_of(dt)) == 0 &&
                    memcmp(again.dbias, got_grad.dbias, p.n_bias * size_of(dt)) == 0,
                &p, "again", "the second run has other bits");
    forget(&start), forget(&want), forget(&got);
    forget(&want_grad), forget(&got_grad), forget(&again);
    discard(&p);
}

/* ---- tests -------------------------------------------------------------------------------- */

/* batch, seq, heads, key heads, width, gap, causal, mask, dropout, lay, queries, window, what scores get: edges of tiles
 * (16, 32, 64, 128), of widths (16 .. 128 on tensor cores, others not), rows that are whole in 16 bytes or not.
 */
static const shape shapes[] = {
    {1, 1, 1, 1, 1, 0, false, NO_MASK, 0, APART, 0, 0, PLAIN},
    {2, 1, 3, 1, 8, 0, true, NO_MASK, 0, APART, 0, 0, PLAIN},
    {1, 5, 2, 2, 3, 0, false, NO_MASK, 0, APART, 0, 0, PLAIN},
    {2, 17, 2, 1, 20, 5, true, LEFT, 0, APART, 0, 0, PLAIN},
    {3, 16, 4, 2, 16, 0, false, RIGHT, 0.25F, APART, 0, 0, PLAIN},
    {2, 33, 6, 2, 32, 7, true, HOLES, 0.5F, APART, 0, 0, PLAIN},
    {1, 63, 1, 1, 64, 0, true, NO_MASK, 0, FUSED, 0, 0, PLAIN},
    {1, 64, 2, 2, 64, 64, false, HOLES, 0, APART, 0, 0, PLAIN},
    {1, 65, 2, 2, 33, 1, true, LEFT, 0.1F, APART, 0, 0, PLAIN},
    {2, 65, 4, 2, 64, 8, true, NO_MASK, 0.1F, FUSED, 0, 0, PLAIN},
    {2, 128, 1, 1, 17, 0, true, RIGHT, 0, APART, 0, 0, PLAIN},
    {1, 129, 2, 1, 128, 0, true, NO_MASK, 0, FUSED, 0, 0, PLAIN},
    {1, 100, 2, 1, 128, 16, false, RIGHT, 0.2F, APART, 0, 0, PLAIN},
    {1, 70, 2, 1, 96, 0, true, LEFT, 0, FUSED, 0, 0, PLAIN},
    {1, 70, 1, 1, 80, 0, true, NO_MASK, 0.1F, APART, 0, 0, PLAIN},
    {1, 200, 3, 1, 24, 0, true, NO_MASK, 0, APART, 0, 0, PLAIN},
    {1, 70, 2, 1, 130, 1, true, NO_MASK, 0.1F, APART, 0, 0, PLAIN},
    {1, 30, 2, 2, 200, 0, false, HOLES, 0, FUSED, 0, 0, PLAIN},
    {1, 255, 1, 1, 8, 0, false, LEFT, 0.1F, APART, 0, 0, PLAIN},
    {1, 257, 2, 1, 8, 3, true, LEFT, 0.1F, APART, 0, 0, PLAIN},
    {2, 19, 2, 1, 8, 0, false, ONE_EMPTY, 0.2F, APART, 0, 0, PLAIN},
    {2, 19, 2, 2, 8, 2, true, ONE_EMPTY, 0, APART, 0, 0, PLAIN},
    {2, 140, 1, 1, 40, 0, true, ONE_EMPTY, 0, APART, 0, 0, PLAIN},
    {1, 40, 1, 1, 16, 0, true, NO_MASK, 1.0F, APART, 0, 0, PLAIN},
    {3, 40, 4, 2, 16, 8, false, LEFT, 0.25F, APART, 1, 0, PLAIN},
    {2, 150, 2, 1, 64, 0, true, RIGHT, 0, APART, 70, 0, PLAIN},
    {2, 200, 2, 2, 32, 3, false, ONE_EMPTY, 0, APART, 1, 0, PLAIN},
    {2, 65, 2, 1, 128, 0, true, LEFT, 0.1F, FUSED, 64, 0, PLAIN},
    {2, 70, 2, 2, 140, 0, false, HOLES, 0.1F, APART, 65, 0, PLAIN},
    {1, 90, 2, 1, 8, 0, true, NO_MASK, 0, APART, 0, 7, PLAIN},
    {2, 200, 2, 2, 32, 3, true, HOLES, 0.1F, APART, 0, 2, PLAIN},
    {2, 260, 2, 1, 64, 0, true, NO_MASK, 0.1F, FUSED, 0, 65, PLAIN},
    {1, 150, 1, 1, 128, 0, true, RIGHT, 0, APART, 0, 40, PLAIN},
    {2, 19, 2, 1, 96, 0, true, LEFT, 0, APART, 0, 1, PLAIN},
    {2, 150, 2, 1, 140, 0, true, ONE_EMPTY, 0, APART, 70, 16, PLAIN},
    {1, 20, 1, 1, 16, 0, true, NO_MASK, 0, APART, 0, 99, PLAIN},
    {2, 70, 3, 3, 16, 0, true, LEFT, 0.1F, APART, 0, 0, ALIBI},
    {1, 150, 2, 2, 140, 0, true, RIGHT, 0, FUSED, 0, 0, ALIBI},
    {2, 65, 6, 6, 32, 0, true, NO_MASK, 0, APART, 0, 0, ALIBI},
    {2, 19, 2, 2, 8, 0, true, ONE_EMPTY, 0, APART, 0, 0, ALIBI},
    {2, 70, 4, 2, 16, 3, true, LEFT, 0.1F, APART, 0, 0, CAPPED},
    {1, 150, 2, 1, 140, 0, true, HOLES, 0, FUSED, 0, 40, CAPPED},
    {2, 19, 2, 2, 8, 0, false, ONE_EMPTY, 0, APART, 0, 0, CAPPED},
    {2, 30, 2, 2, 16, 0, false, RIGHT, 0.1F, APART, 75, 0, PLAIN},
    {3, 7, 1, 1, 130, 0, false, ONE_EMPTY, 0, APART, 140, 0, PLAIN},
    {2, 30, 2, 2, 16, 0, false, RIGHT, 0.1F, APART, 75, 0, PLAIN},
    {3, 7, 1, 1, 130, 0, false, ONE_EMPTY, 0, APART, 140, 0, PLAIN},
    {1, 1, 2, 2, 8, 0, false, NO_MASK, 0, APART, 0, 0, DISTANCES},
    {2, 65, 3, 3, 16, 0, true, NO_MASK, 0.1F, APART, 0, 0, DISTANCES},
    {2, 150, 2, 1, 64, 5, false, HOLES, 0, APART, 0, 0, DISTANCES},
    {2, 140, 2, 2, 140, 0, false, ONE_EMPTY, 0.1F, FUSED, 0, 0, DISTANCES},
    {2, 70, 2, 2, 32, 0, false, LEFT, 0, APART, 130, 0, DISTANCES},
    {1, 130, 1, 1, 8, 0, true, RIGHT, 0, APART, 66, 0, DISTANCES},
    {2, 192, 6, 2, 64, 0, true, NO_MASK, 0, FUSED, 0, 0, PLAIN},
    {2, 131, 3, 1, 80, 16, true, NO_MASK, 0, APART, 0, 0, PLAIN},
    {1, 150, 4, 2, 96, 0, true, NO_MASK, 0, APART, 70, 0, PLAIN},
    {3, 70, 2, 2, 32, 0, false, NO_MASK, 0, APART, 130, 0, PLAIN},
    {5, 64, 4, 4, 64, 0, false, NO_MASK, 0, FUSED, 0, 0, PLAIN},
    {3, 40, 2, 1, 16, 0, false, NO_MASK, 0, APART, 1, 0, PLAIN},
};

static const ckpt_dtype dtypes[] = {CKPT_F32, CKPT_BF16, CKPT_F16};

enum { N_SHAPES = sizeof shapes / sizeof *shapes, N_DTYPES = sizeof dtypes / sizeof *dtypes };

/* What is not finite shows in its own row and nowhere else: scaling of the loss depends on it. */
static void not_finite(zt_device *gpu, ckpt_dtype dt)
{
    const shape s = {1, 40, 1, 1, 16, 0, true, NO_MASK, 0, APART, 0, 0, PLAIN};
    const float bad[] = {INFINITY, NAN};

    for (size_t i = 0; i < 2; i++) {
        problem p = make(&s, dt);
        answer start = blank(&p);
        bool ok = true;

        if (fused) { // a call without them lets cuDNN compute the next one
            answer clean = compute(gpu, &p, &start, FORWARD | BACKWARD);

            forget(&clean);
        }
        ckpt_cast_find(dt, CKPT_F32)(p.in + (20 * 16 + 3) * size_of(dt), &bad[i], 1);
        answer r = compute(gpu, &p, &start, FORWARD | BACKWARD);

        for (uint64_t t = 0; t < s.seq; t++) {
            ok = ok && (isnan(element(&p, &r, p.at[O].at + t * 16)) != 0) == (t == 20);
            ok = ok && (isnan(element(&p, &r, p.at[DQ].at + t * 16)) != 0) == (t == 20);
        }
        ok = ok && isnan(element(&p, &r, p.at[DK].at + 16));
        verdict(ok, &p, "not finite", i == 0 ? "infinity in q" : "NaN in q");
        forget(&start), forget(&r);
        discard(&p);
    }
}

/* Evaluation keeps no lse; nothing to do is no failure. */
static void forward_alone(zt_device *gpu, ckpt_dtype dt)
{
    const shape s = {1, 9, 1, 1, 8, 0, false, NO_MASK, 0, APART, 0, 0, PLAIN};
    problem p = make(&s, dt);
    answer start = blank(&p), r = blank(&p), whole = compute(gpu, &p, &start, FORWARD);
    held m = hold(gpu, &p, &start);
    ckpt_err err = {0};

    m.a.fw.lse = NULL;
    gpu->ops->attention(gpu, dt, &m.a.fw);
    gpu->ops->get(gpu, r.out, m.out, p.n_out * size_of(dt));
    m.a.fw.batch = 0;
    gpu->ops->attention(gpu, dt, &m.a.fw);
    m.a.fw.lse = m.lse;
    gpu->ops->attention_grad(gpu, dt, &m.a);
    gpu->ops->sync(gpu);
    let_go(gpu, &m);
    find_bounds(&p);
    compare(&p, O, &whole, &r);
    verdict(fused || memcmp(r.out, whole.out, p.n_out * size_of(dt)) == 0, &p, "no lse",
            "o differs");
    verdict(zt_device_check(gpu, &err) == CKPT_OK, &p, "empty", err.text);
    forget(&start), forget(&r), forget(&whole);
    discard(&p);
}

/* A call that cannot be fails the device, and writes nothing. */
static void refused(new_device *make_device, int which)
{
    const shape s = {1, 3, 2, 2, 4, 0, false, NO_MASK, 0, APART, 0, 0, PLAIN};
    problem p = make(&s, CKPT_F32);
    answer start = blank(&p);
    ckpt_err err = {0}, later = {0};
    zt_device *d = NULL;

    if (make_device(&d, 0, false, &err) != CKPT_OK) {
        verdict(false, &p, "refused", err.text);
        forget(&start);
        discard(&p);
        return;
    }
    held m = hold(d, &p, &start);

    m.a.fw.kv_heads = which == 0 ? 0 : which == 1 ? 3 : 2;
    m.a.fw.q = which == 2 ? NULL : m.a.fw.q;
    m.a.fw.p = which == 3 ? 1.5F : 0;
    m.a.fw.lse = which == 4 ? NULL : m.a.fw.lse;
    m.a.dv = which == 5 ? NULL : m.a.dv;
    m.a.fw.seq = which == 6 ? UINT64_MAX / 2 : m.a.fw.seq;
    m.a.fw.queries = which == 7 ? UINT64_MAX / 2 : 0;
    m.a.fw.scale = which == 8 ? 0 : which == 9 ? NAN : m.a.fw.scale;
    // sizes that wrap around where they are multiplied in 32 or 64 bits
    m.a.fw.batch = which == 10   ? UINT64_C(1) << 32
                   : which == 11 ? UINT64_C(1) << 63
                   : which >= 12 ? UINT64_C(1) << 29
                                 : m.a.fw.batch;
    m.a.fw.seq = which == 13 ? UINT64_C(1) << 29 : m.a.fw.seq;
    if (which < 4 || which >= 6)
        d->ops->attention(d, CKPT_F32, &m.a.fw);
    else
        d->ops->attention_grad(d, CKPT_F32, &m.a);
    verdict(zt_device_check(d, &later) != CKPT_OK, &p, "refused", "a call that cannot be");
    let_go(d, &m);
    zt_device_free(d);
    forget(&start);
    discard(&p);
}

/* The plugin's function, or NULL and a message; *about: its zt_cuda_attention. */
static new_device *load(const char *path, about_attention **about)
{
    new_device *f = NULL;
    void *plugin = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    void *found = plugin ? dlsym(plugin, "zt_cuda_attention") : NULL;

    memcpy(about, &found, sizeof found);
    found = plugin ? dlsym(plugin, "zt_cuda_device_new") : NULL;

    if (!found) {
        fprintf(stderr, "test_attention: %s\n", dlerror());
        return NULL;
    }
    memcpy(&f, &found, sizeof f); // ISO C has no cast from an object's address to a function's
    return f;
}

int main(int argc, char **argv)
{
    ckpt_err err = {0};
    zt_device *cpu = NULL, *gpu = NULL;
    about_attention *about = NULL;
    new_device *make_device = argc == 2 ? load(argv[1], &about) : NULL;
    const char *asked = getenv("ZEROTRAIN_ATTENTION");

    fused = asked && strcmp(asked, "cudnn") == 0;

    if (!make_device) {
        fprintf(stderr, "usage: test_attention PLUGIN\n");
        return 2;
    }
    if (zt_cpu_new(&cpu, 1, &err) != CKPT_OK || make_device(&gpu, 0, false, &err) != CKPT_OK) {
        fprintf(stderr, "test_attention: %s\n", err.text);
        return 2;
    }
    for (size_t t = 0; t < N_DTYPES; t++) {
        for (size_t i = 0; i < N_SHAPES; i++)
            check(cpu, gpu, &shapes[i], dtypes[t]);
        not_finite(gpu, dtypes[t]);
        forward_alone(gpu, dtypes[t]);
    }
    for (int i = 0; i < 14; i++)
        refused(make_device, i);
    if (zt_device_check(cpu, &err) != CKPT_OK || zt_device_check(gpu, &err) != CKPT_OK) {
        printf("FAIL %s\n", err.text);
        n_failed++;
    }
    if (fused && about) {
        char text[200];

        about(gpu, text, sizeof text);
        printf("%s\n", text);
    }
    zt_device_free(gpu);
    zt_device_free(cpu);
    printf("gpu attention: %u passed, %u failed\n", n_passed, n_failed);
    return n_failed != 0;
}
