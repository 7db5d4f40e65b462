/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ops.c: computes the merge of one tensor from several models.
 *
 * A range is computed tile by tile and model by model, so that memory does not grow with the number
 * of models. Earlier passes compute values of the whole tensor (the k-th largest difference, sums
 * of magnitudes, norms).
 */
#include <assert.h>
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "libckpt/base/cast.h"
#include "libckpt/transform/merge/ops.h"

enum {
    BO_TILE = 16 * 1024, /* elements */
    BO_ROWS = 8,         /* tiles per method, at most; the last one belongs to bo_round() */
    BO_BUCKETS = 1 << 16 /* buckets for the upper, then for the lower half of a magnitude */
};

static const struct {
    const char *name;
    bool normalizes, rescales;
} bo_method[CKPT_BLEND_N_METHODS] = {
    [CKPT_BLEND_LINEAR] = {"linear", true, false},
    [CKPT_BLEND_SLERP] = {"slerp", false, false},
    [CKPT_BLEND_TASK] = {"task_arithmetic", false, false},
    [CKPT_BLEND_TIES] = {"ties", true, false},
    [CKPT_BLEND_DARE_LINEAR] = {"dare_linear", false, true},
    [CKPT_BLEND_DARE_TIES] = {"dare_ties", false, true},
};

ckpt_blend_method ckpt_blend_named(const char *name)
{
    unsigned m = 0;

    while (m < CKPT_BLEND_N_METHODS && strcmp(bo_method[m].name, name) != 0)
        m++;
    return (ckpt_blend_method)m;
}

const char *ckpt_blend_name(ckpt_blend_method m)
{
    return m < CKPT_BLEND_N_METHODS ? bo_method[m].name : "?";
}

bool ckpt_blend_normalizes(ckpt_blend_method m)
{
    return m < CKPT_BLEND_N_METHODS && bo_method[m].normalizes;
}

bool ckpt_blend_rescales(ckpt_blend_method m)
{
    return m < CKPT_BLEND_N_METHODS && bo_method[m].rescales;
}

/* A term prepared for computation. */
typedef struct bo_term {
    const ckpt_tensor *t;
    float weight;
    double density;
    uint64_t key;      /* DARE: random key of the tensor and the model */
    uint32_t least;    /* TIES: bits of the smallest kept magnitude */
    uint64_t ties_end; /* TIES: of equal magnitudes only those before this element are kept */
    float scale;       /* factor of the kept elements */
} bo_term;

typedef struct bo_make {
    ckpt_make make; /* first member */
    ckpt_blend of;
    bo_term *term;
    float divisor;      /* divides the sum (linear) or the differences (task arithmetic) */
    float first, other; /* slerp: factors of the base and of the other tensor */
    const ckpt_tensor *const *input;
    ckpt_cast_fn narrow, widen; /* to `steps` and back; NULL: without rounding */
} bo_make;

/* Round values to the dtype of `steps`; half: a buffer for n of them. */
static void bo_round(const bo_make *m, float *x, uint64_t n, void *half)
{
    if (!m->narrow)
        return;
    m->narrow(half, x, (size_t)n);
    m->widen(x, half, (size_t)n);
}

static float bo_rounded(const bo_make *m, float x)
{
    uint16_t half;

    bo_round(m, &x, 1, &half);
    return x;
}

static bool bo_has_signs(const ckpt_blend *b)
{
    return b->method == CKPT_BLEND_TIES || b->method == CKPT_BLEND_DARE_TIES;
}

/* mergekit computes linear and slerp in F32 too, so they have no rounded steps. */
static bool bo_has_steps(const ckpt_blend *b)
{
    return b->method != CKPT_BLEND_LINEAR && b->method != CKPT_BLEND_SLERP;
}

static bool bo_is_random(const ckpt_blend *b)
{
    return b->method == CKPT_BLEND_DARE_LINEAR || b->method == CKPT_BLEND_DARE_TIES;
}

static int bo_read(ckpt_inputs *in, const ckpt_tensor *t, uint64_t at, uint64_t n, float *x,
                   ckpt_err *err)
{
    return in->read(in, t, &(const ckpt_axis){at, n, 0}, CKPT_F32, x, err);
}

/* The bits of finite floats sort by magnitude. */
static uint32_t bo_bits(float x)
{
    uint32_t u;

    memcpy(&u, &x, sizeof u);
    return u & 0x7fffffffu;
}

/* Uniform random number of a key and a position (splitmix64: Steele, Lea, Flood 2014), so that
 * threads need no common state. */
static double bo_uniform(uint64_t key, uint64_t at)
{
    uint64_t z = key + (at + 1) * UINT64_C(0x9e3779b97f4a7c15);

    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return (double)((z ^ (z >> 31)) >> 11) * 0x1p-53;
}

/* The elements that are made together. */
typedef struct bo_tile {
    ckpt_inputs *in;
    uint64_t at, n; /* first element in the tensors, and number of elements */
    float *room;    /* scratch: rows of BO_TILE elements */
    void *half;     /* buffer for bo_round() */
} bo_tile;

/* ---- sparsified differences ---- */

static void bo_thin(const bo_make *m, const bo_term *p, float *d, uint64_t n, uint64_t at)
{
    if (p->density >= 1)
        return;
    for (uint64_t i = 0; i < n; i++) {
        uint32_t u = bo_bits(d[i]);
        bool stays = bo_is_random(&m->of) ? bo_uniform(p->key, at + i) < p->density
                                          : u > p->least || (u == p->least && at + i < p->ties_end);
        d[i] = stays && p->density > 0 ? d[i] * p->scale : 0;
        if (stays && p->scale != 1)
            d[i] = bo_rounded(m, d[i]);
    }
}

/* Compute a term's difference from `base`. */
static int bo_difference(const bo_make *m, const bo_tile *tile, const bo_term *p, const float *base,
                         float *d, ckpt_err *err)
{
    int rc = bo_read(tile->in, p->t, tile->at, tile->n, d, err);

    if (rc != CKPT_OK)
        return rc;
    bo_round(m, d, tile->n, tile->half);
    for (uint64_t i = 0; i < tile->n; i++)
        d[i] -= base[i];
    bo_round(m, d, tile->n, tile->half);
    return CKPT_OK;
}

/* ---- tiles ---- */

static int bo_linear(const bo_make *m, const bo_tile *tile, float *to, ckpt_err *err)
{
    const uint64_t n = tile->n;
    float *x = tile->room;
    int rc = CKPT_OK;

    memset(to, 0, (size_t)n * sizeof *to);
    for (uint32_t k = 0; rc == CKPT_OK && k < m->of.n; k++) {
        const float w = m->term[k].weight;

        rc = bo_read(tile->in, m->term[k].t, tile->at, n, x, err);
        if (rc == CKPT_OK)
            bo_round(m, x, n, tile->half);
        for (uint64_t i = 0; rc == CKPT_OK && i < n; i++)
            to[i] += w * x[i];
    }
    for (uint64_t i = 0; rc == CKPT_OK && m->of.normalize && i < n; i++)
        to[i] /= m->divisor;
    return rc;
}

static int bo_slerp(const bo_make *m, const bo_tile *tile, float *to, ckpt_err *err)
{
    const float a = m->first, b = m->other;
    const uint64_t n = tile->n;
    float *x = tile->room;
    int rc = bo_read(tile->in, m->of.base, tile->at, n, to, err);

    if (rc == CKPT_OK)
        rc = bo_read(tile->in, m->term[0].t, tile->at, n, x, err);
    if (rc != CKPT_OK)
        return rc;
    bo_round(m, to, n, tile->half);
    bo_round(m, x, n, tile->half);
    for (uint64_t i = 0; i < n; i++)
        to[i] = a * to[i] + b * x[i];
    return CKPT_OK;
}

/* Sums of differences: all, and per sign; sums of weights per sign. */
typedef struct bo_sums {
    float *all, *plus, *minus, *w_plus, *w_minus;
} bo_sums;

/* Add to the sums per sign; d: a difference times its weight w. */
static void bo_add_signs(const bo_sums *s, const float *d, float w, uint64_t n)
{
    for (uint64_t i = 0; i < n; i++) {
        float v = d[i];

        s->all[i] += v;
        s->plus[i] += v > 0 ? v : 0;
        s->minus[i] += v < 0 ? v : 0;
        s->w_plus[i] += v > 0 ? w : 0;
        s->w_minus[i] += v < 0 ? w : 0;
    }
}

/* Keep the sum of the differences with the sign of the total, divided by their weights. */
static void bo_elect(const bo_make *m, const bo_sums *s, uint64_t n)
{
    for (uint64_t i = 0; i < n; i++) {
        bool up = s->all[i] >= 0;
        float w = up ? s->w_plus[i] : s->w_minus[i], v = up ? s->plus[i] : s->minus[i];

        s->all[i] = m->of.normalize ? v / (w == 0 ? 1 : w) : v;
    }
}

/* Sum up the weighted differences of a tile from `base`. */
static int bo_sum_up(const bo_make *m, const bo_tile *tile, const float *base, const bo_sums *s,
                     ckpt_err *err)
{
    const uint64_t n = tile->n;
    float *d = tile->room;
    int rc = CKPT_OK;

    for (uint32_t k = 0; rc == CKPT_OK && k < m->of.n; k++) {
        const bo_term *p = &m->term[k];

        rc = bo_difference(m, tile, p, base, d, err);
        if (rc != CKPT_OK)
            return rc;
        bo_thin(m, p, d, n, tile->at);
        for (uint64_t i = 0; i < n; i++)
            d[i] *= p->weight;
        bo_round(m, d, n, tile->half);
        if (bo_has_signs(&m->of))
            bo_add_signs(s, d, p->weight, n);
        for (uint64_t i = 0; !bo_has_signs(&m->of) && i < n; i++)
            s->all[i] += d[i];
    }
    return rc;
}

static int bo_task(const bo_make *m, const bo_tile *tile, float *to, ckpt_err *err)
{
    float *const room = tile->room, *const half = tile->half;
    const uint64_t n = tile->n;
    const bo_sums s = {room + BO_TILE, room + 2 * BO_TILE, room + 3 * BO_TILE, room + 4 * BO_TILE,
                       room + 5 * BO_TILE};
    float lambda = (float)m->of.lambda;
    unsigned n_sums = bo_has_signs(&m->of) ? 5 : 1;
    int rc = bo_read(tile->in, m->of.base, tile->at, n, to, err);

    memset(s.all, 0, n_sums * BO_TILE * sizeof *room);
    if (rc == CKPT_OK) {
        bo_round(m, to, n, half);
        rc = bo_sum_up(m, tile, to, &s, err);
    }
    if (rc != CKPT_OK)
        return rc;
    for (unsigned k = 0; k < n_sums; k++)
        bo_round(m, s.all + k * BO_TILE, n, half);
    if (n_sums > 1)
        bo_elect(m, &s, n);
    for (uint64_t i = 0; n_sums == 1 && m->of.normalize && i < n; i++)
        s.all[i] /= m->divisor;
    bo_round(m, s.all, n, half);
    for (uint64_t i = 0; i < n; i++)
        s.all[i] *= lambda;
    bo_round(m, s.all, n, half);
    for (uint64_t i = 0; i < n; i++)
        to[i] += s.all[i];
    bo_round(m, to, n, half);
    return CKPT_OK;
}

static int bo_run(const ckpt_make *make, ckpt_inputs *in, void *to, uint64_t n, uint64_t at,
                  ckpt_err *err)
{
    const bo_make *m = (const bo_make *)(const void *)make;
    float *room = in->scratch(in, BO_ROWS * BO_TILE * sizeof *room), *x = to;
    int rc = room ? CKPT_OK : ckpt_fail_memory(err);

    for (uint64_t done = 0; rc == CKPT_OK && done < n; done += BO_TILE) {
        const bo_tile tile = {in, at + done, n - done < BO_TILE ? n - done : BO_TILE, room,
                              room + (BO_ROWS - 1) * BO_TILE};

        if (m->of.method == CKPT_BLEND_LINEAR)
            rc = bo_linear(m, &tile, x + done, err);
        else if (m->of.method == CKPT_BLEND_SLERP)
            rc = bo_slerp(m, &tile, x + done, err);
        else
            rc = bo_task(m, &tile, x + done, err);
    }
    return rc;
}

/* ---- passes over a whole tensor ---- */

/* Receives each tile of a term's difference. */
typedef void (*bo_see)(void *ctx, const float *d, uint64_t n, uint64_t at);

static int bo_pass(const bo_make *m, ckpt_inputs *in, const bo_term *p, bo_see see, void *ctx,
                   ckpt_err *err)
{
    float *base = in->scratch(in, 3 * BO_TILE * sizeof *base), *d = base + BO_TILE;
    uint64_t n = m->of.base->n_elems;
    int rc = base ? CKPT_OK : ckpt_fail_memory(err);

    for (uint64_t at = 0; rc == CKPT_OK && at < n; at += BO_TILE) {
        const bo_tile tile = {in, at, n - at < BO_TILE ? n - at : BO_TILE, base,
                              base + 2 * BO_TILE};

        rc = bo_read(in, m->of.base, at, tile.n, base, err);
        if (rc == CKPT_OK) {
            bo_round(m, base, tile.n, tile.half);
            rc = bo_difference(m, &tile, p, base, d, err);
        }
        if (rc == CKPT_OK)
            see(ctx, d, tile.n, at);
    }
    return rc;
}

/* State of the search for the k-th largest magnitude: its upper half, its lower half, then the last
 * kept element. */
typedef struct bo_search {
    uint64_t *count; /* BO_BUCKETS */
    uint32_t upper, least;
    uint64_t left;     /* kept elements that are equal to `least` */
    uint64_t ties_end; /* one past the last of them */
} bo_search;

static void bo_see_upper(void *ctx, const float *d, uint64_t n, uint64_t at)
{
    const bo_search *s = ctx;

    (void)at;
    for (uint64_t i = 0; i < n; i++)
        s->count[bo_bits(d[i]) >> 16]++;
}

static void bo_see_lower(void *ctx, const float *d, uint64_t n, uint64_t at)
{
    const bo_search *s = ctx;

    (void)at;
    for (uint64_t i = 0; i < n; i++) {
        uint32_t u = bo_bits(d[i]);

        if (u >> 16 == s->upper)
            s->count[u & 0xffff]++;
    }
}

static void bo_see_ties(void *ctx, const float *d, uint64_t n, uint64_t at)
{
    bo_search *s = ctx;

    for (uint64_t i = 0; s->left > 0 && i < n; i++) {
        if (bo_bits(d[i]) == s->least) {
            s->left--;
            s->ties_end = at + i + 1;
        }
    }
}

/* Find the bucket of the k-th largest; *k becomes its rank within the bucket. Clears the counts. */
static uint32_t bo_bucket(uint64_t *count, uint64_t *k)
{
    uint32_t b = BO_BUCKETS - 1;

    while (b > 0 && count[b] < *k)
        *k -= count[b--];
    memset(count, 0, BO_BUCKETS * sizeof *count);
    return b;
}

/* TIES: find the threshold of the largest elements; of equal elements the first are kept. */
static int bo_find_least(const bo_make *m, ckpt_inputs *in, bo_term *p, ckpt_err *err)
{
    uint64_t k = (uint64_t)(p->density * (double)p->t->n_elems);
    bo_search s = {.count = ckpt_alloc(BO_BUCKETS * sizeof *s.count)};
    int rc = s.count ? bo_pass(m, in, p, bo_see_upper, &s, err) : ckpt_fail_memory(err);

    k = k > 0 ? k : 1;
    if (rc == CKPT_OK) {
        s.upper = bo_bucket(s.count, &k);
        rc = bo_pass(m, in, p, bo_see_lower, &s, err);
    }
    if (rc == CKPT_OK) {
        s.least = s.upper << 16 | bo_bucket(s.count, &k);
        s.left = k;
        rc = bo_pass(m, in, p, bo_see_ties, &s, err);
    }
    p->least = s.least;
    p->ties_end = s.ties_end;
    ckpt_free(s.count);
    return rc;
}

/* Sums of magnitudes of a difference before and after it is sparsified. */
typedef struct bo_scale {
    const bo_make *m;
    const bo_term *p;
    double before, after;
} bo_scale;

static void bo_see_sums(void *ctx, const float *d, uint64_t n, uint64_t at)
{
    bo_scale *s = ctx;

    for (uint64_t i = 0; i < n; i++) {
        float one = d[i];

        s->before += fabs((double)one);
        bo_thin(s->m, s->p, &one, 1, at + i);
        s->after += fabs((double)one);
    }
}

/* Prepare the sparsified differences by passes over the tensor; densities of 0 and 1 need none. */
static int bo_prepare_thin(bo_make *m, ckpt_inputs *in, ckpt_err *err)
{
    int rc = CKPT_OK;

    for (uint32_t k = 0; rc == CKPT_OK && k < m->of.n; k++) {
        bo_term *p = &m->term[k];
        bo_scale s = {m, p, 0, 0};

        p->scale = 1;
        if (p->density >= 1 || p->density <= 0)
            continue;
        if (!bo_is_random(&m->of))
            rc = bo_find_least(m, in, p, err);
        if (rc == CKPT_OK && m->of.rescale)
            rc = bo_pass(m, in, p, bo_see_sums, &s, err);
        if (m->of.rescale && s.before >= 1e-7 && s.after >= 1e-7)
            p->scale =
                bo_rounded(m, bo_rounded(m, (float)s.before) / bo_rounded(m, (float)s.after));
    }
    return rc;
}

/* Sum up the products for the angle between two tensors. */
static int bo_angle(const bo_make *m, ckpt_inputs *in, double sum[3], ckpt_err *err)
{
    float *a = in->scratch(in, 3 * BO_TILE * sizeof *a), *b = a + BO_TILE;
    uint64_t n = m->of.base->n_elems;
    int rc = a ? CKPT_OK : ckpt_fail_memory(err);

    for (uint64_t at = 0; rc == CKPT_OK && at < n; at += BO_TILE) {
        uint64_t some = n - at < BO_TILE ? n - at : BO_TILE;

        rc = bo_read(in, m->of.base, at, some, a, err);
        if (rc == CKPT_OK)
            rc = bo_read(in, m->term[0].t, at, some, b, err);
        if (rc == CKPT_OK) {
            bo_round(m, a, some, a + 2 * BO_TILE);
            bo_round(m, b, some, a + 2 * BO_TILE);
        }
        for (uint64_t i = 0; rc == CKPT_OK && i < some; i++) {
            sum[0] += (double)a[i] * (double)a[i];
            sum[1] += (double)b[i] * (double)b[i];
            sum[2] += (double)a[i] * (double)b[i];
        }
    }
    return rc;
}

/* Compute the factors. Nearly parallel tensors are interpolated linearly, because the sine is near
 * 0; mergekit has the same limit of 0.9995 for the cosine. */
static int bo_prepare_slerp(bo_make *m, ckpt_inputs *in, ckpt_err *err)
{
    double sum[3] = {0}, t = m->of.t, na, nb, dot, angle;
    int rc = bo_angle(m, in, sum, err);

    na = sqrt(sum[0]) > 1e-8 ? sqrt(sum[0]) : 1;
    nb = sqrt(sum[1]) > 1e-8 ? sqrt(sum[1]) : 1;
    dot = sum[2] / na / nb;
    dot = dot > 1 ? 1 : dot < -1 ? -1 : dot;
    angle = acos(dot);
    m->first = (float)(1 - t);
    m->other = (float)t;
    if (fabs(dot) <= 0.9995) {
        m->first = (float)(sin((1 - t) * angle) / sin(angle));
        m->other = (float)(sin(t * angle) / sin(angle));
    }
    return rc;
}

static int bo_prepare(ckpt_make *make, ckpt_inputs *in, ckpt_err *err)
{
    bo_make *m = (bo_make *)(void *)make;

    return m->of.method == CKPT_BLEND_SLERP ? bo_prepare_slerp(m, in, err)
                                            : bo_prepare_thin(m, in, err);
}

/* ---- creation ---- */

/*
 * All inputs of the result except the tensors; the journal records them, because a resumed run must
 * have the same.
 */
static const char *bo_terms(ckpt_map *map, const ckpt_blend *b)
{
    const char *text = ckpt_arena_printf(map->arena, "%s %d %d %d %.17g %.17g %" PRIu64,
                                         ckpt_blend_name(b->method), b->normalize, b->rescale,
                                         (int)b->steps, b->lambda, b->t, b->seed);

    for (uint32_t i = 0; text && i < b->n; i++)
        text = ckpt_arena_printf(map->arena, "%s %.17g:%.17g", text, b->term[i].weight,
                                 b->term[i].density);
    return text;
}

/* Derive a separate random key for each tensor and model. */
static uint64_t bo_key(const ckpt_blend *b, uint32_t k)
{
    uint64_t h = b->seed ^ UINT64_C(0xcbf29ce484222325);

    for (const char *s = b->name; *s; s++)
        h = (h ^ (unsigned char)*s) * UINT64_C(0x100000001b3);
    return (h ^ k) * UINT64_C(0x9e3779b97f4a7c15);
}

/* Fill in the prepared terms and the list of inputs. */
static bool bo_fill(ckpt_map *map, bo_make *m, const ckpt_blend *b)
{
    const ckpt_tensor **input = ckpt_arena_array(map->arena, b->n + 1, sizeof *input);
    double sum = 0;

    if (b->steps != CKPT_DTYPE_NONE) {
        m->narrow = ckpt_cast_find(b->steps, CKPT_F32);
        m->widen = ckpt_cast_find(CKPT_F32, b->steps);
    }
    m->term = ckpt_arena_array(map->arena, b->n, sizeof *m->term);
    if (!input || !m->term)
        return false;
    for (uint32_t k = 0; k < b->n; k++) {
        m->term[k] = (bo_term){.t = b->term[k].t,
                               .weight = bo_has_steps(b) ? bo_rounded(m, (float)b->term[k].weight)
                                                         : (float)b->term[k].weight,
                               .density = b->method == CKPT_BLEND_TASK ? 1 : b->term[k].density,
                               .key = bo_key(b, k)};
        sum += (double)m->term[k].weight;
        input[k] = b->term[k].t;
    }
    input[b->n] = b->base;
    m->input = input;
    m->of = *b;
    m->of.term = NULL;
    m->divisor = bo_has_steps(b) ? bo_rounded(m, (float)sum) : (float)sum;
    if (b->method != CKPT_BLEND_LINEAR && fabs(sum) < 1e-8)
        m->divisor = 1;
    return true;
}

int ckpt_blend_put(ckpt_map *map, ckpt_tensor *t, const ckpt_blend *b, ckpt_err *err)
{
    assert(map && t && b && b->n > 0 && b->name);
    assert((b->method == CKPT_BLEND_LINEAR) == !b->base);
    bo_make *m = ckpt_arena_alloc(map->arena, sizeof *m);
    uint32_t source = 0;
    int rc;

    if (!m || !bo_fill(map, m, b))
        return ckpt_fail_memory(err);
    m->make = (ckpt_make){.name = b->name,
                          .dtype = CKPT_F32,
                          .n_inputs = b->n + (b->base != NULL),
                          .input = m->input,
                          .terms = bo_terms(map, b),
                          .prepare = b->base && b->method != CKPT_BLEND_TASK ? bo_prepare : NULL,
                          .make = bo_run};
    if (!m->make.terms)
        return ckpt_fail_memory(err);
    rc = ckpt_map_add_made(map, &m->make, t->n_elems, &source, err);
    if (t->export_dtype == CKPT_DTYPE_NONE)
        t->export_dtype = t->dtype;
    t->dtype = CKPT_F32;
    t->twin = t->addend = NULL;
    return rc == CKPT_OK ? ckpt_map_back_whole(map, t, source, 0, err) : rc;
}
