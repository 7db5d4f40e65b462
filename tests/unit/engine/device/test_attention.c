/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_attention.c: attention on the processor against a plain reference in double, whose gradients
 * are themselves checked with finite differences.
 */
#include <math.h>

#include "engine/device/cpu.h"
#include "engine/device/philox.h"
#include "libckpt/base/cast.h"
#include "tests/unit/unit.h"

typedef enum mask_kind { NO_MASK, RIGHT, LEFT, HOLES, ONE_EMPTY } mask_kind;

typedef struct shape {
    uint64_t batch, seq, heads, kv_heads, width;
    uint64_t gap; /* elements between rows, beyond the dense ones */
    bool causal;
    mask_kind mask;
    float p;
    uint64_t queries; /* 0: all */
    uint64_t window;  /* 0: none */
    enum { PLAIN, ALIBI, DISTANCE, CAPPED } bias;
} shape;

/* Of scores: so small that it shows. */
#define CAP 0.75F

/* One problem: values in double, and the same in dt with strides. */
typedef struct problem {
    shape s;
    ckpt_dtype dt;
    double *q, *k, *v, *dout;       /* dense */
    double *bias;                   /* all 0 without one */
    double *o, *dq, *dk, *dv, *lse; /* the reference's answers */
    double *dbias;
    int32_t *mask;
    zt_attention_grad a;
} problem;

static void *new_array(uint64_t n, size_t size)
{
    void *p = calloc(n + 1, size);

    assert_non_null(p);
    return p;
}

/* Queries of a sequence. */
static uint64_t asked(const shape *s)
{
    return s->queries != 0 ? s->queries : s->seq;
}

static uint64_t n_q(const shape *s)
{
    return s->batch * asked(s) * s->heads * s->width;
}

static uint64_t n_k(const shape *s)
{
    return s->batch * s->seq * s->kv_heads * s->width;
}

/* Distances from a query to a key, for all heads. */
static uint64_t n_bias(const shape *s)
{
    return (asked(s) + s->seq - 1) * s->heads;
}

/* Element i of a dense array of rows of `row` elements, when rows have a gap. */
static uint64_t place(uint64_t i, uint64_t row, uint64_t gap)
{
    return i / row * (row + gap) + i % row;
}

/* n normal values, rounded to dt; *held gets them with gaps. */
static double *draw(ckpt_dtype dt, uint64_t seed, uint64_t n, uint64_t row, uint64_t gap,
                    const void **held)
{
    float *x = (float *)new_array(n, sizeof *x);
    double *out = (double *)new_array(n, sizeof *out);
    char *to = (char *)new_array(n / row * (row + gap), 4);

    zt_philox_normal(seed, 1.0, 0, n, x);
    for (uint64_t i = 0; i < n; i++) {
        char *e = to + place(i, row, gap) * zt_size(dt);

        ckpt_cast_find(dt, CKPT_F32)(e, &x[i], 1);
        ckpt_cast_find(CKPT_F32, dt)(&x[i], e, 1);
        out[i] = (double)x[i];
    }
    free(x);
    *held = to;
    return out;
}

static int32_t *draw_mask(const shape *s)
{
    int32_t *m = (int32_t *)new_array(s->batch * s->seq, sizeof *m);

    for (uint64_t b = 0; b < s->batch; b++) {
        for (uint64_t t = 0; t < s->seq; t++) {
            const uint64_t pad = (b + 1) * s->seq / (s->batch + 2);
            bool on = true;

            if (s->mask == RIGHT)
                on = t < s->seq - pad;
            else if (s->mask == LEFT)
                on = t >= pad;
            else if (s->mask == HOLES)
                on = (t * 7 + b) % 3 != 0;
            else if (s->mask == ONE_EMPTY)
                on = b != 0;
            m[b * s->seq + t] = on;
        }
    }
    return m;
}

static problem make(const shape *s, ckpt_dtype dt)
{
    problem p = {.s = *s, .dt = dt};
    const uint64_t rq = s->heads * s->width, rk = s->kv_heads * s->width;
    const uint64_t rows = s->batch * (asked(s) > s->seq ? asked(s) : s->seq);
    zt_attention *a = &p.a.fw;

    *a = (zt_attention){.batch = s->batch,
                        .seq = s->seq,
                        .queries = s->queries,
                        .heads = s->heads,
                        .kv_heads = s->kv_heads,
                        .width = s->width,
                        .scale = (float)(1.0 / sqrt((double)s->width)),
                        .causal = s->causal,
                        .alibi = s->bias == ALIBI,
                        .cap = s->bias == CAPPED ? CAP : 0,
                        .window = s->window,
                        .p = s->p,
                        .seed = 77};
    p.q = draw(dt, 1, n_q(s), rq, s->gap, &a->q);
    p.k = draw(dt, 2, n_k(s), rk, s->gap, &a->k);
    p.v = draw(dt, 3, n_k(s), rk, s->gap, &a->v);
    p.dout = draw(dt, 4, n_q(s), rq, s->gap, &p.a.dout);
    p.bias = s->bias == DISTANCE ? draw(dt, 5, n_bias(s), s->heads, 0, &a->bias)
                                 : (double *)new_array(n_bias(s), sizeof(double));
    p.dbias = (double *)new_array(n_bias(s), sizeof(double));
    p.a.dbias = s->bias == DISTANCE ? new_array(n_bias(s), 4) : NULL;
    p.mask = draw_mask(s);
    a->mask = s->mask == NO_MASK ? NULL : p.mask;
    if (s->gap > 0) {
        a->ldq = a->ldo = p.a.lddo = rq + s->gap;
        a->ldk = a->ldv = rk + s->gap;
    }
    a->o = new_array(rows * (rq + s->gap), 4);
    a->lse = (float *)new_array(rows * s->heads, sizeof(float));
    p.a.dq = new_array(rows * (rq + s->gap), 4);
    p.a.dk = new_array(rows * (rk + s->gap), 4);
    p.a.dv = new_array(rows * (rk + s->gap), 4);
    p.o = (double *)new_array(n_q(s), sizeof(double));
    p.dq = (double *)new_array(n_q(s), sizeof(double));
    p.dk = (double *)new_array(n_k(s), sizeof(double));
    p.dv = (double *)new_array(n_k(s), sizeof(double));
    p.lse = (double *)new_array(rows * s->heads, sizeof(double));
    return p;
}

static void drop_held(const void *p)
{
    void *q;

    memcpy(&q, &p, sizeof q);
    free(q);
}

static void discard(problem *p)
{
    drop_held(p->a.fw.q);
    drop_held(p->a.fw.k);
    drop_held(p->a.fw.v);
    drop_held(p->a.dout);
    drop_held(p->a.fw.bias);
    free(p->bias), free(p->dbias), free(p->a.dbias);
    free(p->q), free(p->k), free(p->v), free(p->dout), free(p->mask);
    free(p->o), free(p->dq), free(p->dk), free(p->dv), free(p->lse);
    free(p->a.fw.o), free(p->a.fw.lse), free(p->a.dq), free(p->a.dk), free(p->a.dv);
}

/* ---- the reference ----------------------------------------------------------------------- */

/* One query of one head. */
typedef struct one {
    uint64_t b, h, t;
    const double *q;
    double *s, *keep; /* [seq]: probabilities, factors of dropout */
    double *slope;    /* [seq]: derivatives of capped scores */
} one;

static uint64_t at_q(const shape *s, uint64_t b, uint64_t t, uint64_t h)
{
    return ((b * asked(s) + t) * s->heads + h) * s->width;
}

static uint64_t at_k(const shape *s, uint64_t b, uint64_t t, uint64_t h)
{
    return ((b * s->seq + t) * s->kv_heads + h / (s->heads / s->kv_heads)) * s->width;
}

static double dot(const double *a, const double *b, uint64_t n)
{
    double sum = 0;

    for (uint64_t i = 0; i < n; i++)
        sum += a[i] * b[i];
    return sum;
}

/* ALiBi's bias of key t, rounded to dt, less that of the query's own key. */
static double lean(const problem *p, const one *x, uint64_t t)
{
    const int32_t *mask = p->a.fw.mask ? p->mask + x->b * p->s.seq : NULL;
    uint64_t first = 0, whole = 1;
    float slope, bias;
    uint16_t low;

    while (mask && first < p->s.seq && mask[first] == 0)
        first++;
    while (whole * 2 <= p->s.heads)
        whole *= 2;
    slope = x->h < whole ? powf((float)exp2(-8.0 / (double)whole), (float)(x->h + 1))
                         : powf((float)exp2(-4.0 / (double)whole), (float)(2 * (x->h - whole) + 1));
    bias = p->s.bias == ALIBI && t > first ? slope * (float)(t - first) : 0.0F;
    if (p->dt != CKPT_F32) {
        ckpt_cast_find(p->dt, CKPT_F32)(&low, &bias, 1);
        ckpt_cast_find(CKPT_F32, p->dt)(&bias, &low, 1);
    }
    return p->s.bias == ALIBI ? (double)bias - (double)slope * ((double)x->t - (double)first) : 0;
}

/* A scaled score, capped if the shape says so. */
static double capped(const shape *s, double x)
{
    return s->bias == CAPPED ? (double)CAP * tanh(x / (double)CAP) : x;
}

/* The bias of one query and the key t. */
static uint64_t at_bias(const shape *s, const one *x, uint64_t t)
{
    return (t + asked(s) - 1 - x->t) * s->heads + x->h;
}

/* Probabilities of one query as transformers' explicit attention has them: what is masked has the
 * lowest number instead of its score, so a query without keys looks at all of them equally. */
static double ref_softmax(const problem *p, const one *x)
{
    const shape *s = &p->s;
    double top = -(double)INFINITY, sum = 0;

    for (uint64_t t = 0; t < s->seq; t++) {
        const bool on = (!s->causal || t <= x->t) && (s->window == 0 || t + s->window > x->t) &&
                        (!p->a.fw.mask || p->mask[x->b * s->seq + t] != 0);

        const double score =
            capped(s, (double)p->a.fw.scale * dot(x->q, p->k + at_k(s, x->b, t, x->h), s->width));

        x->s[t] = -1e30;
        x->slope[t] = s->bias == CAPPED ? 1 - score * score / (double)CAP / (double)CAP : 1;
        if (on)
            x->s[t] = score + lean(p, x, t) + (s->bias == DISTANCE ? p->bias[at_bias(s, x, t)] : 0);
        top = x->s[t] > top ? x->s[t] : top;
    }
    for (uint64_t t = 0; t < s->seq; t++) {
        x->s[t] = exp(x->s[t] - top);
        sum += x->s[t];
    }
    for (uint64_t t = 0; t < s->seq; t++)
        x->s[t] /= sum;
    return (top > -1e29 ? top : 0) + log(sum);
}

static void ref_keep(const problem *p, const one *x)
{
    const shape *s = &p->s;

    for (uint64_t t = 0; t < s->seq; t++) {
        float f = 1.0F;

        if (s->p > 0)
            zt_philox_keep(p->a.fw.seed, s->p,
                           ((x->b * s->heads + x->h) * asked(s) + x->t) * s->seq + t, 1, &f);
        x->keep[t] = (double)f;
    }
}

static void ref_one(problem *p, const one *x, bool grad)
{
    const shape *s = &p->s;
    const uint64_t at = at_q(s, x->b, x->t, x->h);
    const double *dout = p->dout + at;
    const double scale = (double)p->a.fw.scale;
    double delta;

    p->lse[(x->b * s->heads + x->h) * asked(s) + x->t] = ref_softmax(p, x);
    ref_keep(p, x);
    for (uint64_t i = 0; i < s->width; i++) {
        p->o[at + i] = 0;
        for (uint64_t t = 0; t < s->seq; t++)
            p->o[at + i] += x->s[t] * x->keep[t] * p->v[at_k(s, x->b, t, x->h) + i];
    }
    delta = dot(dout, p->o + at, s->width);
    for (uint64_t t = 0; grad && t < s->seq; t++) {
        const uint64_t key = at_k(s, x->b, t, x->h);
        const double dp = dot(dout, p->v + key, s->width) * x->keep[t];
        const double ds = x->s[t] * (dp - delta) * scale * x->slope[t];

        p->dbias[at_bias(s, x, t)] += x->s[t] * (dp - delta);
        for (uint64_t i = 0; i < s->width; i++) {
            p->dv[key + i] += x->s[t] * x->keep[t] * dout[i];
            p->dq[at + i] += ds * p->k[key + i];
            p->dk[key + i] += ds * x->q[i];
        }
    }
}

static void reference(problem *p, bool grad)
{
    const shape *s = &p->s;
    one x = {.s = (double *)new_array(s->seq, sizeof(double)),
             .keep = (double *)new_array(s->seq, sizeof(double)),
             .slope = (double *)new_array(s->seq, sizeof(double))};

    for (x.b = 0; x.b < s->batch; x.b++) {
        for (x.h = 0; x.h < s->heads; x.h++) {
            for (x.t = 0; x.t < asked(s); x.t++) {
                x.q = p->q + at_q(s, x.b, x.t, x.h);
                ref_one(p, &x, grad);
            }
        }
    }
    free(x.s);
    free(x.keep);
    free(x.slope);
}

/* ---- comparing --------------------------------------------------------------------------- */

/* Element i of an array in dt, dense index. */
static double got(const problem *p, const void *x, uint64_t i, uint64_t row)
{
    float f;

    ckpt_cast_find(CKPT_F32, p->dt)(&f, (const char *)x + place(i, row, p->s.gap) * zt_size(p->dt),
                                    1);
    return (double)f;
}

/* Every element of `rows` rows within tolerance[0] of the largest plus tolerance[1] of itself. */
static void close_to(const problem *p, const void *x, const double *want, uint64_t row,
                     uint64_t rows, const double tolerance[2])
{
    const uint64_t n = rows * row;
    double top = 1; // inputs are about 1: what cancels may leave that much rounding

    for (uint64_t i = 0; i < n; i++)
        top = fabs(want[i]) > top ? fabs(want[i]) : top;
    for (uint64_t i = 0; i < n; i++) {
        const double g = got(p, x, i, row);

        if (!(fabs(g - want[i]) <= tolerance[0] * top + tolerance[1] * fabs(want[i])))
            fail_msg("T %d H %d/%d W %d: element %d is %.9g, not %.9g", (int)p->s.seq,
                     (int)p->s.heads, (int)p->s.kv_heads, (int)p->s.width, (int)i, g, want[i]);
    }
}

/* Elements between rows were left alone. */
static void gaps_clean(const problem *p, const void *x, uint64_t row, uint64_t rows)
{
    const uint64_t size = zt_size(p->dt);

    for (uint64_t r = 0; r < rows; r++) {
        const char *gap = (const char *)x + (r * (row + p->s.gap) + row) * size;

        for (uint64_t i = 0; i < p->s.gap * size; i++)
            assert_int_equal(gap[i], 0);
    }
}

static void run(problem *p, unsigned threads)
{
    ckpt_err err = {0};
    zt_device *d = NULL;

    assert_int_equal(zt_cpu_new(&d, threads, &err), CKPT_OK);
    zt_cpu_attention(d, p->dt, &p->a.fw);
    zt_cpu_attention_grad(d, p->dt, &p->a);
    assert_int_equal(zt_device_check(d, &err), CKPT_OK);
    zt_device_free(d);
}

/* tolerance: of the largest element, of each element; for o, then for gradients. */
static void check(const shape *s, ckpt_dtype dt, const double tolerance[4])
{
    problem p = make(s, dt);
    const uint64_t rq = s->heads * s->width, rk = s->kv_heads * s->width;
    const uint64_t queries = s->batch * asked(s), keys = s->batch * s->seq;

    run(&p, 2);
    reference(&p, true);
    close_to(&p, p.a.fw.o, p.o, rq, queries, tolerance);
    close_to(&p, p.a.dq, p.dq, rq, queries, tolerance + 2);
    close_to(&p, p.a.dk, p.dk, rk, keys, tolerance + 2);
    close_to(&p, p.a.dv, p.dv, rk, keys, tolerance + 2);
    if (s->bias == DISTANCE) {
        p.s.gap = 0; // a bias has none
        close_to(&p, p.a.dbias, p.dbias, s->heads, n_bias(s) / s->heads, tolerance + 2);
        p.s.gap = s->gap;
    }
    gaps_clean(&p, p.a.fw.o, rq, queries);
    gaps_clean(&p, p.a.dq, rq, queries);
    gaps_clean(&p, p.a.dk, rk, keys);
    gaps_clean(&p, p.a.dv, rk, keys);
    for (uint64_t i = 0; i < queries * s->heads; i++)
        assert_true(fabs((double)p.a.fw.lse[i] - p.lse[i]) <= 2e-6 * (1 + fabs(p.lse[i])));
    discard(&p);
}

/* ---- tests ------------------------------------------------------------------------------- */

/*
 * batch, seq, heads, key heads, width, gap, causal, mask, dropout, queries, window, bias: odd sizes,
 * block edges.
 */
static const shape shapes[] = {
    {1, 1, 1, 1, 1, 0, false, NO_MASK, 0, 0, 0, PLAIN},
    {2, 1, 3, 1, 8, 0, true, NO_MASK, 0, 0, 0, PLAIN},
    {1, 5, 2, 2, 3, 0, false, NO_MASK, 0, 0, 0, PLAIN},
    {2, 17, 2, 1, 20, 5, true, LEFT, 0, 0, 0, PLAIN},
    {3, 16, 4, 2, 16, 0, false, RIGHT, 0.25F, 0, 0, PLAIN},
    {2, 33, 6, 2, 32, 7, true, HOLES, 0.5F, 0, 0, PLAIN},
    {1, 63, 1, 1, 64, 0, true, NO_MASK, 0, 0, 0, PLAIN},
    {1, 64, 2, 2, 64, 64, false, HOLES, 0, 0, 0, PLAIN},
    {1, 65, 2, 2, 33, 1, true, LEFT, 0.1F, 0, 0, PLAIN},
    {2, 128, 1, 1, 17, 0, true, RIGHT, 0, 0, 0, PLAIN},
    {1, 255, 1, 1, 8, 0, false, LEFT, 0.1F, 0, 0, PLAIN},
    {1, 256, 1, 1, 8, 0, true, NO_MASK, 0, 0, 0, PLAIN},
    {1, 257, 2, 1, 8, 3, true, LEFT, 0.1F, 0, 0, PLAIN},
    {2, 300, 1, 1, 16, 0, false, RIGHT, 0, 0, 0, PLAIN},
    {1, 530, 1, 1, 5, 0, true, HOLES, 0, 0, 0, PLAIN},
    {2, 530, 1, 1, 4, 0, false, LEFT, 0, 0, 0, PLAIN},
    {2, 19, 2, 1, 8, 0, false, ONE_EMPTY, 0.2F, 0, 0, PLAIN},
    {2, 19, 2, 2, 8, 2, true, ONE_EMPTY, 0, 0, 0, PLAIN},
    {2, 270, 1, 1, 8, 0, true, ONE_EMPTY, 0, 0, 0, PLAIN},
    {3, 40, 4, 2, 16, 5, false, LEFT, 0.25F, 1, 0, PLAIN},
    {2, 150, 2, 1, 8, 0, true, RIGHT, 0, 70, 0, PLAIN},
    {2, 300, 2, 2, 8, 3, false, ONE_EMPTY, 0, 1, 0, PLAIN},
    {2, 65, 1, 1, 8, 0, true, LEFT, 0.1F, 64, 0, PLAIN},
    {1, 90, 2, 1, 8, 0, true, NO_MASK, 0, 0, 7, PLAIN},
    {2, 300, 2, 2, 8, 3, true, HOLES, 0.1F, 0, 2, PLAIN},
    {2, 600, 1, 1, 4, 0, true, RIGHT, 0, 0, 40, PLAIN},
    {1, 530, 1, 1, 5, 0, true, NO_MASK, 0, 0, 257, PLAIN},
    {2, 19, 2, 1, 8, 0, true, LEFT, 0, 0, 1, PLAIN},
    {2, 150, 2, 1, 8, 0, true, ONE_EMPTY, 0, 70, 16, PLAIN},
    {1, 20, 1, 1, 8, 0, true, NO_MASK, 0, 0, 99, PLAIN},
    {2, 70, 3, 3, 16, 0, true, LEFT, 0.1F, 0, 0, ALIBI},
    {1, 300, 2, 1, 8, 0, true, RIGHT, 0, 0, 0, ALIBI},
    {2, 65, 6, 6, 8, 5, true, NO_MASK, 0, 0, 0, ALIBI},
    {2, 19, 2, 2, 8, 0, true, ONE_EMPTY, 0, 0, 0, ALIBI},
    {2, 19, 2, 2, 8, 3, false, RIGHT, 0, 0, 0, DISTANCE},
    {3, 70, 4, 2, 16, 0, true, NO_MASK, 0.1F, 0, 0, DISTANCE},
    {1, 300, 2, 2, 8, 0, false, ONE_EMPTY, 0, 0, 0, DISTANCE},
    {2, 40, 3, 3, 8, 0, true, LEFT, 0, 20, 0, DISTANCE},
    {2, 7, 2, 2, 8, 0, false, RIGHT, 0.1F, 130, 0,
     PLAIN}, // cross-attention: more queries than keys
    {2, 300, 2, 2, 8, 0, false, LEFT, 0, 9, 0, PLAIN},
    {2, 3, 2, 1, 8, 5, false, ONE_EMPTY, 0, 11, 0, DISTANCE},
    {2, 40, 4, 2, 16, 3, true, LEFT, 0.1F, 0, 0, CAPPED},
    {1, 300, 2, 1, 8, 0, true, HOLES, 0, 0, 5, CAPPED},
    {2, 19, 2, 2, 8, 0, false, ONE_EMPTY, 0, 0, 0, CAPPED},
};

enum { N_SHAPES = sizeof shapes / sizeof *shapes };

static void single_precision(void **state)
{
    (void)state;
    for (size_t i = 0; i < N_SHAPES; i++) {
        check(&shapes[i], CKPT_F32, (const double[4]){2e-6, 1e-6, 3e-6, 1e-6});
    }
}

/* Half an ulp of each element, and what fp32 and the rounded o in delta add. */
static void sixteen_bits(void **state)
{
    (void)state;
    for (size_t i = 0; i < N_SHAPES; i++) {
        check(&shapes[i], CKPT_BF16, (const double[4]){2e-6, 0x1.01p-8, 8e-3, 0x1.01p-8});
        check(&shapes[i], CKPT_F16, (const double[4]){2e-6, 0x1.01p-11, 1e-3, 0x1.01p-11});
    }
}

/* The sum of o * dout in the reference, as a function of its inputs. */
static double total(problem *p)
{
    reference(p, false);
    return dot(p->o, p->dout, n_q(&p->s));
}

static void differences(problem *p, double *x, const double *grad, uint64_t n)
{
    const double h = 1e-5;

    for (uint64_t i = 0; i < n; i++) {
        const double old = x[i];
        double up, down;

        x[i] = old + h;
        up = total(p);
        x[i] = old - h;
        down = total(p);
        x[i] = old;
        assert_true(fabs((up - down) / (2 * h) - grad[i]) < 1e-7);
    }
}

static void finite_differences(void **state)
{
    const shape s[] = {{1, 4, 4, 2, 3, 0, true, NO_MASK, 0.3F, 0, 0, PLAIN},
                       {2, 3, 2, 1, 2, 0, false, HOLES, 0, 0, 0, PLAIN},
                       {2, 4, 2, 1, 2, 0, false, HOLES, 0.3F, 2, 0, PLAIN},
                       {2, 3, 2, 1, 2, 0, false, HOLES, 0.3F, 5, 0, DISTANCE},
                       {2, 3, 2, 1, 2, 0, true, NO_MASK, 0.3F, 0, 0, CAPPED}};

    (void)state;
    for (size_t i = 0; i < sizeof s / sizeof *s; i++) {
        problem p = make(&s[i], CKPT_F32);

        reference(&p, true);
        differences(&p, p.q, p.dq, n_q(&s[i]));
        differences(&p, p.k, p.dk, n_k(&s[i]));
        differences(&p, p.v, p.dv, n_k(&s[i]));
        if (s[i].bias == DISTANCE)
            differences(&p, p.bias, p.dbias, n_bias(&s[i]));
        discard(&p);
    }
}

/* A query without keys gets the mean of all values, later ones too. */
static void no_keys(void **state)
{
    const shape s = {1, 5, 1, 1, 2, 0, true, LEFT, 0, 0, 0, PLAIN};
    problem p = make(&s, CKPT_F32);
    double mean[2] = {0, 0};

    (void)state;
    assert_int_equal(p.mask[0], 0);
    assert_int_equal(p.mask[1], 1);
    run(&p, 1);
    for (uint64_t t = 0; t < 5; t++) {
        mean[0] += p.v[2 * t] / 5;
        mean[1] += p.v[2 * t + 1] / 5;
    }
    assert_true(fabs(got(&p, p.a.fw.o, 0, 2) - mean[0]) < 1e-6);
    assert_true(fabs(got(&p, p.a.fw.o, 1, 2) - mean[1]) < 1e-6);
    // the second query sees itself alone
    assert_true(fabs(got(&p, p.a.fw.o, 2, 2) - p.v[2]) < 1e-6);
    discard(&p);
}

static void any_number_of_threads(void **state)
{
    const shape s = {2, 150, 4, 2, 32, 3, true, LEFT, 0.1F, 0, 0, PLAIN};
    problem one_thread = make(&s, CKPT_BF16);
    const uint64_t rows = s.batch * s.seq, nq = rows * (4 * 32 + 3) * 2,
                   nk = rows * (2 * 32 + 3) * 2;

    (void)state;
    run(&one_thread, 1);
    for (unsigned threads = 2; threads <= 3; threads++) {
        problem p = make(&s, CKPT_BF16);

        run(&p, threads);
        assert_memory_equal(p.a.fw.o, one_thread.a.fw.o, nq);
        assert_memory_equal(p.a.fw.lse, one_thread.a.fw.lse, rows * 4 * sizeof(float));
        assert_memory_equal(p.a.dq, one_thread.a.dq, nq);
        assert_memory_equal(p.a.dk, one_thread.a.dk, nk);
        assert_memory_equal(p.a.dv, one_thread.a.dv, nk);
        discard(&p);
    }
    discard(&one_thread);
}

/* What is not finite shows in its own row and nowhere else: scaling of the loss depends on it. */
static void not_finite(void **state)
{
    const shape s = {1, 40, 1, 1, 16, 0, true, NO_MASK, 0, 0, 0, PLAIN};
    const float bad[] = {INFINITY, NAN};

    (void)state;
    for (size_t i = 0; i < 2; i++) {
        problem p = make(&s, CKPT_F32);
        float *q;

        memcpy(&q, &p.a.fw.q, sizeof q);
        q[20 * 16 + 3] = bad[i];
        run(&p, 1);
        for (uint64_t t = 0; t < s.seq; t++) {
            assert_int_equal(isnan(got(&p, p.a.fw.o, t * 16, 16)) != 0, t == 20);
            assert_int_equal(isnan(got(&p, p.a.dq, t * 16, 16)) != 0, t == 20);
        }
        assert_true(isnan(got(&p, p.a.dk, 16, 16)));
        discard(&p);
    }
}

/* Evaluation keeps no lse; nothing to do is no failure. */
static void forward_alone(void **state)
{
    const shape s = {1, 9, 1, 1, 8, 0, false, NO_MASK, 0, 0, 0, PLAIN};
    problem p = make(&s, CKPT_F32);
    ckpt_err err = {0};
    zt_device *d = NULL;

    (void)state;
    assert_int_equal(zt_cpu_new(&d, 1, &err), CKPT_OK);
    reference(&p, false);
    free(p.a.fw.lse);
    p.a.fw.lse = NULL;
    zt_cpu_attention(d, CKPT_F32, &p.a.fw);
    close_to(&p, p.a.fw.o, p.o, 8, 9, (const double[2]){2e-6, 1e-6});
    p.a.fw.batch = 0;
    zt_cpu_attention(d, CKPT_F32, &p.a.fw);
    assert_int_equal(zt_device_check(d, &err), CKPT_OK);
    zt_device_free(d);
    discard(&p);
}

/* A call that cannot be fails the device, and writes nothing. */
static void refused(void **state)
{
    const shape s = {1, 3, 2, 2, 4, 0, false, NO_MASK, 0, 0, 0, PLAIN};

    (void)state;
    for (int i = 0; i < 12; i++) {
        problem p = make(&s, CKPT_F32);
        zt_attention_grad a = p.a;
        ckpt_err err = {0};
        zt_device *d = NULL;

        assert_int_equal(zt_cpu_new(&d, 1, &err), CKPT_OK);
        a.fw.kv_heads = i == 0 ? 0 : i == 1 ? 3 : 2;
        a.fw.q = i == 2 ? NULL : a.fw.q;
        a.fw.p = i == 3 ? 1.5F : 0;
        a.fw.queries = i == 6 ? 4 : 0;
        a.fw.causal = i == 6;
        a.fw.scale = i == 7 ? 0 : i == 8 ? NAN : a.fw.scale;
        a.fw.cap = i == 9 ? -1 : i == 10 ? NAN : i == 11 ? 1 : 0; // with ALiBi: none
        a.fw.alibi = i == 11;
        a.fw.lse = i == 4 ? NULL : a.fw.lse;
        a.dv = i == 5 ? NULL : a.dv;
        if (i < 4 || i >= 6)
            zt_cpu_attention(d, CKPT_F32, &a.fw);
        else
            zt_cpu_attention_grad(d, CKPT_F32, &a);
        assert_int_not_equal(zt_device_check(d, &err), CKPT_OK);
        assert_true(got(&p, p.a.fw.o, 0, 8) == 0);
        assert_true(got(&p, p.a.dq, 0, 8) == 0);
        zt_device_free(d);
        discard(&p);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(finite_differences),    cmocka_unit_test(single_precision),
        cmocka_unit_test(sixteen_bits),          cmocka_unit_test(no_keys),
        cmocka_unit_test(any_number_of_threads), cmocka_unit_test(not_finite),
        cmocka_unit_test(forward_alone),         cmocka_unit_test(refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
