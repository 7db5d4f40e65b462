/* SPDX-License-Identifier: Apache-2.0 */
/*
 * quant_k_search.h: the K-quantizers' search of scales for sixteen runs at once. Private to base/;
 * the body of each instruction set includes it once.
 *
 * One lane for each run, so that the sums of each run keep their order. No operation is fused: the
 * build forbids it. Rounding to integers below 2^22 gives the portable body's integers; runs with
 * values that are not finite, or whose levels could exceed this, go to the portable body.
 *
 * The including file defines:
 *
 *    QL_BODY, QL_INLINE    attributes of functions
 *    ql_f, ql_m            sixteen floats; a mask of their lanes
 *    ql_all ql_add ql_sub ql_mul ql_div ql_sqrt ql_abs ql_least ql_most ql_round ql_rint
 *    ql_from_zero ql_up_to ql_down_to
 *                          arithmetic; limits: from below by 0, from above by a positive number,
 *                          from below by a negative one
 *    ql_more ql_at_least ql_equal ql_unlike
 *                          comparisons; false if one is NaN, but ql_unlike: true
 *    ql_both ql_either ql_except ql_any ql_every
 *                          masks; ql_except(x, y): y without the lanes of x
 *    ql_pick ql_where ql_without
 *                          ql_pick(x, y, mask): y where the mask is set, else x; ql_where and
 *                          ql_without(mask, x): x there, else 0, and the other way round
 *    ql_load ql_store ql_put
 *                          sixteen runs of n values, value i of each run to to[i]; levels of
 *                          sixteen runs as bytes; sixteen floats
 */
#include <float.h>

#include "libckpt/base/quant_k.h"

/* The limits of values and of distances between them for the bodies below. */
#define QL_HUGE 1e18f
#define QL_FINE 1e-30f
#define QL_FAR  65536.0f /* of values below the minimum, in distances to the maximum */

/* ---- runs with a minimum ---- */

/* The state of the search. */
typedef struct ql_fit {
    ql_f x[CKPT_QK_RUN], w[CKPT_QK_RUN], level[CKPT_QK_RUN];
    ql_f high, least, sw, sx;
    ql_m flat;
    ql_f scale, low, best;         /* the best so far ... */
    ql_f level_inverse, level_low; /* ... and inverse scale and minimum that its levels had */
} ql_fit;

/* Load values and weights, or compute weights; false: values for the portable body. */
QL_INLINE bool ql_min_load(ql_fit *m, const float *x, const float *w, bool absolute, int n)
{
    ql_f mean = ql_all(0);
    ql_m usual = ql_equal(mean, mean);

    ql_load(m->x, x, n);
    for (int i = 0; i < n; i++)
        usual = ql_both(usual, ql_at_least(ql_all(QL_HUGE), ql_abs(m->x[i])));
    if (!ql_every(usual))
        return false;
    if (w) {
        ql_load(m->w, w, n);
        return true;
    }
    for (int i = 0; i < n; i++)
        mean = ql_add(mean, ql_mul(m->x[i], m->x[i]));
    mean = ql_sqrt(ql_div(mean, ql_all((float)n)));
    for (int i = 0; i < n; i++) {
        const ql_f size = ql_abs(m->x[i]);

        m->w[i] = absolute ? size : ql_add(mean, size);
    }
    return true;
}

/* False if distances to the minimum are for the portable body. */
QL_INLINE bool ql_min_usual(const ql_fit *m)
{
    const ql_f span = ql_sub(m->high, m->low);
    const ql_m usual = ql_both(
        ql_both(ql_at_least(span, ql_all(QL_FINE)), ql_at_least(ql_all(QL_HUGE), ql_abs(m->low))),
        ql_at_least(ql_mul(span, ql_all(QL_FAR)), ql_sub(m->low, m->least)));

    return ql_every(ql_either(usual, m->flat));
}

/* Level i for an inverse scale, not limited from above. */
QL_INLINE ql_f ql_min_level(const ql_fit *m, int i, ql_f inverse, ql_f low)
{
    return ql_round(ql_mul(inverse, ql_from_zero(ql_sub(m->x[i], low))));
}

/* Compute bounds and sums; false: values for the portable body. */
QL_INLINE bool ql_min_begin(ql_fit *m, const float *x, const float *w, bool absolute, int n)
{
    if (!ql_min_load(m, x, w, absolute, n))
        return false;
    m->low = m->high = m->x[0];
    m->sw = m->w[0];
    m->sx = ql_mul(m->w[0], m->x[0]);
    for (int i = 1; i < n; i++) {
        m->low = ql_least(m->x[i], m->low);
        m->high = ql_most(m->x[i], m->high);
        m->sw = ql_add(m->sw, m->w[i]);
        m->sx = ql_add(m->sx, ql_mul(m->w[i], m->x[i]));
    }
    m->low = ql_pick(m->low, ql_all(0), ql_more(m->low, ql_all(0)));
    m->least = m->low;
    m->flat = ql_equal(m->high, m->low);
    return ql_min_usual(m);
}

/* The sum of weighted errors of the levels. */
QL_INLINE ql_f ql_min_error(const ql_fit *m, ql_f scale, ql_f low, bool absolute, int n)
{
    ql_f sum = ql_all(0);

    for (int i = 0; i < n; i++) {
        ql_f e = ql_sub(ql_add(ql_mul(scale, m->level[i]), low), m->x[i]);

        e = absolute ? ql_abs(e) : ql_mul(e, e);
        sum = ql_add(sum, ql_mul(m->w[i], e));
    }
    return sum;
}

/* Weighted sums of levels, of their squares, and of their products with the values. */
typedef struct ql_sums {
    ql_f l, l2, xl;
} ql_sums;

/* Compute levels, at most `most` if they must be limited, and their sums. */
QL_INLINE ql_sums ql_min_sums(ql_fit *m, ql_f inverse, bool limit, float most, int n)
{
    ql_sums s = {ql_all(0), ql_all(0), ql_all(0)};
    const ql_f low = m->low;

    for (int i = 0; i < n; i++) {
        ql_f level = ql_min_level(m, i, inverse, low);

        if (limit)
            level = ql_up_to(level, most);
        const ql_f wl = ql_mul(m->w[i], level);

        m->level[i] = level;
        s.l = ql_add(s.l, wl);
        s.l2 = ql_add(s.l2, ql_mul(wl, level));
        s.xl = ql_add(s.xl, ql_mul(wl, m->x[i]));
    }
    return s;
}

/*
 * Try one inverse scale, and keep it in the lanes in which it is better; false: the portable body
 * must repeat the search.
 */
QL_INLINE bool ql_min_try(ql_fit *m, float over, float most, bool absolute, int n)
{
    const ql_f zero = ql_all(0), inverse = ql_div(ql_all(over), ql_sub(m->high, m->low));
    // the largest value is `over` inverse scales above the minimum
    const ql_sums s = over > most + 0.49f ? ql_min_sums(m, inverse, true, most, n)
                                          : ql_min_sums(m, inverse, false, most, n);
    const ql_f det = ql_sub(ql_mul(m->sw, s.l2), ql_mul(s.l, s.l));
    ql_f scale = ql_div(ql_sub(ql_mul(m->sw, s.xl), ql_mul(m->sx, s.l)), det);
    ql_f low = ql_div(ql_sub(ql_mul(s.l2, m->sx), ql_mul(s.l, s.xl)), det);
    const ql_m above = ql_more(low, zero);

    if (ql_any(above)) {
        low = ql_pick(low, zero, above);
        scale = ql_pick(scale, ql_div(s.xl, s.l2), above);
    }
    const ql_f error = ql_min_error(m, scale, low, absolute, n);
    const ql_m won = ql_except(m->flat, ql_both(ql_more(det, zero), ql_more(m->best, error)));

    if (!ql_any(won))
        return true;
    m->best = ql_pick(m->best, error, won);
    m->scale = ql_pick(m->scale, scale, won);
    m->level_inverse = ql_pick(m->level_inverse, inverse, won);
    m->level_low = ql_pick(m->level_low, m->low, won);
    m->low = ql_pick(m->low, low, won);
    return ql_min_usual(m);
}

/* Store the best scales, minima and levels. */
QL_INLINE void ql_min_end(ql_fit *m, float most, ckpt_qk_run *out, int n)
{
    float scale[CKPT_QK_LANES], low[CKPT_QK_LANES];

    for (int i = 0; i < n; i++) {
        const ql_f level = ql_min_level(m, i, m->level_inverse, m->level_low);

        m->level[i] = ql_without(m->flat, ql_up_to(level, most));
    }
    ql_put(scale, m->scale);
    ql_put(low, m->low);
    for (int j = 0; j < CKPT_QK_LANES; j++) {
        out[j].scale = scale[j];
        out[j].low = -low[j];
    }
    ql_store(out[0].level, sizeof *out, m->level, n);
}

/* n and absolute are constants after inlining. False: the portable body must do it. */
QL_INLINE bool ql_min_runs(const ckpt_qk_search *s, const float *x, const float *w,
                           ckpt_qk_run *out, int n, bool absolute)
{
    const float most = (float)s->most;
    ql_fit m;

    if (!ql_min_begin(&m, x, w, absolute, n))
        return false;
    m.level_inverse = ql_div(ql_all(most), ql_sub(m.high, m.low));
    m.level_low = m.low;
    m.scale = ql_without(m.flat, ql_div(ql_all(1), m.level_inverse));
    for (int i = 0; i < n; i++)
        m.level[i] = ql_min_level(&m, i, m.level_inverse, m.low);
    m.best = ql_min_error(&m, m.scale, m.low, absolute, n);
    for (int k = 0; k <= s->steps; k++) {
        if (!ql_min_try(&m, s->from + s->by * (float)k + most, most, absolute, n))
            return false;
    }
    ql_min_end(&m, most, out, n);
    return true;
}

QL_BODY
static void ql_fit_min(const ckpt_qk_search *s, const float *x, const float *w, ckpt_qk_run *out)
{
    bool done = s->n == 32    ? ql_min_runs(s, x, w, out, 32, false)
                : s->absolute ? ql_min_runs(s, x, w, out, 16, true)
                              : ql_min_runs(s, x, w, out, 16, false);

    if (!done)
        ckpt_qk_portable.fit_min(s, x, w, out);
}

/* ---- runs around zero ---- */

/* Values, weights, and products of both; the best scales, and inverse scales of their levels. */
typedef struct ql_around {
    ql_f x[CKPT_QK_RUN], w[CKPT_QK_RUN], wx[CKPT_QK_RUN];
    ql_f most, scale, inverse;
    ql_m tiny;
} ql_around;

/* Load values, those of almost empty runs as 0, with weights; false: values for the portable
 * body. */
QL_INLINE bool ql_around_load(ql_around *a, const float *x, const float *w, int n)
{
    ql_f size = ql_all(0);
    ql_m usual = ql_equal(size, size);

    ql_load(a->x, x, n);
    a->most = size;
    for (int i = 0; i < n; i++) {
        const ql_f one = ql_abs(a->x[i]);
        const ql_m more = ql_more(one, size);

        // the first of equals, with its sign
        usual = ql_both(usual, ql_at_least(ql_all(FLT_MAX), one));
        size = ql_pick(size, one, more);
        a->most = ql_pick(a->most, a->x[i], more);
    }
    if (!ql_every(usual))
        return false;
    a->tiny = ql_more(ql_all(CKPT_QK_TINY), size);
    if (w)
        ql_load(a->w, w, n);
    for (int i = 0; i < n; i++) {
        // their products would be subnormal, and slow
        a->x[i] = ql_without(a->tiny, a->x[i]);
        if (!w)
            a->w[i] = ql_mul(a->x[i], a->x[i]);
        a->wx[i] = ql_mul(a->w[i], a->x[i]);
    }
    return true;
}

/* Compute levels -half..half-1 with an inverse scale, and their sums: with values, of squares. */
QL_INLINE void ql_around_sums(const ql_around *a, ql_f inverse, float low, float high, int n,
                              ql_f sum[2])
{
    sum[0] = sum[1] = ql_all(0);
    for (int i = 0; i < n; i++) {
        ql_f level = ql_up_to(ql_round(ql_mul(inverse, a->x[i])), high);

        if (low < 0)
            level = ql_down_to(level, low);
        sum[0] = ql_add(sum[0], ql_mul(a->wx[i], level));
        sum[1] = ql_add(sum[1], ql_mul(ql_mul(a->w[i], level), level));
    }
}

/* Store scales and levels; almost empty runs become 0. */
QL_INLINE void ql_around_end(ql_around *a, float half, int n, float *out, uint8_t *levels)
{
    ql_put(out, ql_without(a->tiny, a->scale));
    for (int i = 0; i < n; i++) {
        ql_f level = ql_round(ql_mul(a->inverse, a->x[i]));

        level = ql_down_to(ql_up_to(level, half - 1), -half);
        a->x[i] = ql_without(a->tiny, ql_add(level, ql_all(half)));
    }
    ql_store(levels, (size_t)n, a->x, n);
}

/* n is a constant after inlining. False: the portable body must do it. */
QL_INLINE bool ql_sym_runs(float half, const float *x, const float *w, float *out, uint8_t *levels,
                           int n)
{
    ql_f sum[2], best;
    ql_around a;

    if (!ql_around_load(&a, x, w, n))
        return false;
    a.inverse = ql_div(ql_all(-half), a.most);
    ql_around_sums(&a, a.inverse, 0, half - 1, n, sum);
    a.scale = ql_where(ql_unlike(sum[1], ql_all(0)), ql_div(sum[0], sum[1]));
    best = ql_mul(a.scale, sum[0]);
    for (int k = -9; k <= 9; k++) {
        const float over = half + 0.1f * (float)k;
        const ql_f by = ql_div(ql_all(-over), a.most);

        if (k == 0)
            continue;
        // the lowest level is that of the largest value, unless it rounds below
        if (over > half + 0.49f)
            ql_around_sums(&a, by, -half, half - 1, n, sum);
        else
            ql_around_sums(&a, by, 0, half - 1, n, sum);
        const ql_m won = ql_both(ql_more(sum[1], ql_all(0)),
                                 ql_more(ql_mul(sum[0], sum[0]), ql_mul(best, sum[1])));

        if (!ql_any(won))
            continue;
        const ql_f next = ql_div(sum[0], sum[1]);

        a.scale = ql_pick(a.scale, next, won);
        best = ql_pick(best, ql_mul(next, sum[0]), won);
        a.inverse = ql_pick(a.inverse, by, won);
    }
    ql_around_end(&a, half, n, out, levels);
    return true;
}

QL_BODY
static void ql_fit_sym(const ckpt_qk_around *s, const float *x, const float *w, float *scale,
                       uint8_t *levels)
{
    bool done = s->n == 16 ? ql_sym_runs((float)s->half, x, w, scale, levels, 16)
                           : ql_sym_runs((float)s->half, x, w, scale, levels, 32);

    if (!done)
        ckpt_qk_portable.fit_sym(s, x, w, scale, levels);
}

/* Try another level for one value in each run; true if some run changed. */
QL_INLINE bool ql_sweep_one(ql_f x, ql_f w, ql_f wx, ql_f *level, ql_f sum[2])
{
    const ql_f zero = ql_all(0);
    ql_f a = ql_sub(sum[0], ql_mul(wx, *level));
    ql_f b = ql_sub(sum[1], ql_mul(ql_mul(w, *level), *level));
    ql_m won = ql_more(a, zero);
    const ql_f next = ql_rint(ql_div(ql_mul(x, b), a), -4, 3);

    won = ql_both(won, ql_unlike(next, *level));
    a = ql_add(a, ql_mul(wx, next));
    b = ql_add(b, ql_mul(ql_mul(w, next), next));
    won = ql_both(won, ql_more(b, zero));
    won = ql_both(won, ql_more(ql_mul(ql_mul(a, a), sum[1]), ql_mul(ql_mul(sum[0], sum[0]), b)));
    *level = ql_pick(*level, next, won);
    sum[0] = ql_pick(sum[0], a, won);
    sum[1] = ql_pick(sum[1], b, won);
    return ql_any(won);
}

QL_BODY
static void ql_fit_sweep(const float *x, float *out, uint8_t *levels)
{
    const ql_f first = ql_all(0);
    ql_f level[16], sum[2] = {first, first}, inverse;
    bool changed = true;
    ql_around a;

    if (!ql_around_load(&a, x, NULL, 16)) {
        ckpt_qk_portable.fit_sweep(x, out, levels);
        return;
    }
    inverse = ql_div(ql_all(-4), a.most);
    for (int i = 0; i < 16; i++) {
        level[i] = ql_up_to(ql_round(ql_mul(inverse, a.x[i])), 3);
        sum[0] = ql_add(sum[0], ql_mul(a.wx[i], level[i]));
        sum[1] = ql_add(sum[1], ql_mul(ql_mul(a.w[i], level[i]), level[i]));
    }
    // sweep all runs again while one of them changes; a sweep leaves the finished ones as they are
    for (int sweep = 0; sweep < 5 && changed; sweep++) {
        changed = false;
        for (int i = 0; i < 16; i++)
            changed = ql_sweep_one(a.x[i], a.w[i], a.wx[i], &level[i], sum) || changed;
    }
    ql_put(out, ql_without(a.tiny, ql_div(sum[0], sum[1])));
    for (int i = 0; i < 16; i++)
        level[i] = ql_without(a.tiny, ql_add(level[i], ql_all(4)));
    ql_store(levels, 16, level, 16);
}
