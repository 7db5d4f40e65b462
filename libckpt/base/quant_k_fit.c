/* SPDX-License-Identifier: Apache-2.0 */
/*
 * quant_k_fit.c: has the portable body of the K-quantizers: scales and levels of a run.
 *
 * Every sum goes from the first value to the last, every product from left to right, because other
 * orders give other bits. Sources: ggml-quants.c, make_qkx2_quants, make_qkx3_quants (the same with
 * given weights), make_qx_quants, make_q3_quants, make_qp_quants.
 */
#include "libckpt/base/quant_k.h"

#include <math.h>
#include <string.h>

/* Weighted error of levels. */
static float qf_error(const ckpt_qk_search *s, const float *x, const float *w, const ckpt_qk_run *r)
{
    float sum = 0;

    for (int i = 0; i < s->n; i++) {
        float e = r->scale * (float)r->level[i] + r->low - x[i];

        e = s->absolute ? fabsf(e) : e * e;
        sum += w[i] * e;
    }
    return sum;
}

/* The values of a run with their weights, and sums over the run. */
typedef struct qf_points {
    const float *x, *w;
    float sum_w, sum_wx;
} qf_points;

/*
 * Compute the levels for an inverse scale, and the weighted least squares line through them; false:
 * none.
 */
static bool qf_line(const ckpt_qk_search *s, const qf_points *p, float inverse, float low,
                    ckpt_qk_run *r)
{
    const float *const x = p->x, *const w = p->w;
    float sl = 0, sl2 = 0, sxl = 0, det;

    for (int i = 0; i < s->n; i++) {
        const int level = ckpt_quant_rint(inverse * (x[i] - low), 0, s->most);

        r->level[i] = (uint8_t)level;
        sl += w[i] * (float)level;
        sl2 += w[i] * (float)level * (float)level;
        sxl += w[i] * (float)level * x[i];
    }
    det = p->sum_w * sl2 - sl * sl;
    if (!(det > 0))
        return false;
    r->scale = (p->sum_w * sxl - p->sum_wx * sl) / det;
    r->low = (sl2 * p->sum_wx - sl * sxl) / det;
    if (r->low > 0) {
        r->low = 0;
        r->scale = sxl / sl2;
    }
    return true;
}

/* Fit scale and minimum (at most 0) of a run; out->low is subtracted, so it is at least 0. */
static void qf_fit_min(const ckpt_qk_search *s, const float *x, const float *w, ckpt_qk_run *out)
{
    qf_points p = {x, w, w[0], w[0] * x[0]};
    float low = x[0], high = x[0], best;
    ckpt_qk_run r;

    for (int i = 1; i < s->n; i++) {
        low = x[i] < low ? x[i] : low;
        high = x[i] > high ? x[i] : high;
        p.sum_w += w[i];
        p.sum_wx += w[i] * x[i];
    }
    low = low > 0 ? 0 : low;
    memset(out->level, 0, sizeof out->level);
    out->scale = 0;
    out->low = -low;
    if (high == low)
        return;
    float inverse = (float)s->most / (high - low);

    out->scale = 1 / inverse;
    out->low = low;
    for (int i = 0; i < s->n; i++)
        out->level[i] = (uint8_t)ckpt_quant_rint(inverse * (x[i] - low), 0, s->most);
    best = qf_error(s, x, w, out);
    for (int k = 0; k <= s->steps; k++) {
        // relative to the best minimum so far
        inverse = (s->from + s->by * (float)k + (float)s->most) / (high - out->low);
        if (!qf_line(s, &p, inverse, out->low, &r))
            continue;
        const float error = qf_error(s, x, w, &r);

        if (error < best) {
            best = error;
            *out = r;
        }
    }
    out->low = -out->low;
}

/* Compute levels of a run with an inverse scale, and weighted sums: of values, of levels. */
static void qf_sums(const ckpt_qk_around *s, const qf_points *p, float inverse, uint8_t *levels,
                    float sum[2])
{
    sum[0] = sum[1] = 0;
    for (unsigned i = 0; i < s->n; i++) {
        const float x = p->x[i], w = p->w ? p->w[i] : x * x;
        const int level = ckpt_quant_rint(inverse * x, -s->half, s->half - 1);

        levels[i] = (uint8_t)(level + s->half);
        sum[0] += w * x * (float)level;
        sum[1] += w * (float)level * (float)level;
    }
}

float ckpt_qk_fit_sym(const ckpt_qk_around *s, const float *x, const float *w, uint8_t *levels)
{
    const float v = ckpt_quant_signed_max(x, (int)s->n), half = (float)s->half;
    const qf_points p = {.x = x, .w = w};
    float sum[2], scale, best;
    uint8_t other[CKPT_QK_RUN];

    memset(levels, 0, s->n);
    if (fabsf(v) < CKPT_QK_TINY)
        return 0;
    qf_sums(s, &p, -half / v, levels, sum);
    scale = sum[1] != 0 ? sum[0] / sum[1] : 0.0f;
    best = scale * sum[0];
    for (int k = -9; k <= 9; k++) {
        if (k == 0)
            continue;
        qf_sums(s, &p, -(half + 0.1f * (float)k) / v, other, sum);
        if (sum[1] > 0 && sum[0] * sum[0] > best * sum[1]) {
            memcpy(levels, other, s->n);
            scale = sum[0] / sum[1];
            best = scale * sum[0];
        }
    }
    return scale;
}

/* Fit the scale of 16 values with levels -4..3, improved one by one, and stored from 0. */
static float qf_fit_sweep(uint8_t *levels, const float *x)
{
    const float v = ckpt_quant_signed_max(x, 16);
    float a = 0, b = 0, level[16];
    bool changed = true;

    memset(levels, 0, 16);
    if (fabsf(v) < CKPT_QK_TINY)
        return 0;
    const float inverse = -4.0f / v;

    for (int i = 0; i < 16; i++) {
        const float w = x[i] * x[i];

        level[i] = (float)ckpt_quant_rint(inverse * x[i], -4, 3);
        a += w * x[i] * level[i];
        b += w * level[i] * level[i];
    }
    for (int sweep = 0; sweep < 5 && changed; sweep++) {
        changed = false;
        for (int i = 0; i < 16; i++) {
            const float w = x[i] * x[i];
            float others = a - w * x[i] * level[i], squares = b - w * level[i] * level[i];

            if (!(others > 0))
                continue;
            const float next = (float)ckpt_quant_rint(x[i] * squares / others, -4, 3);

            if (next == level[i])
                continue;
            others += w * x[i] * next;
            squares += w * next * next;
            if (squares > 0 && others * others * b > a * a * squares) {
                level[i] = next;
                a = others;
                b = squares;
                changed = true;
            }
        }
    }
    for (int i = 0; i < 16; i++)
        levels[i] = (uint8_t)((int)level[i] + 4);
    return a / b;
}

/* ---- scales of runs ---- */

static int qf_nearest(float x, int most)
{
    return ckpt_quant_rint(x, INT32_MIN, most);
}

/* The inverse scale with the least error, of those near most / largest. */
static float qf_scales_inverse(unsigned n, int most, const float *x, const float *w, float largest)
{
    float inverse = (float)most / largest, best = 0;

    for (int k = -5; k <= 4; k++) {
        // the first attempt has no limit of levels, only their low bytes
        const bool first = k == -5;
        const float by = first ? inverse : (0.1f * (float)k + (float)most) / largest,
                    scale = 1 / by;
        float error = 0;

        if (k == 0)
            continue;
        for (unsigned i = 0; i < n; i++) {
            const int level = qf_nearest(by * x[i], first ? INT32_MAX : most);
            const float e = x[i] - scale * (float)(first ? (uint8_t)level : level);

            error += w[i] * e * e;
        }
        if (first || error < best) {
            best = error;
            inverse = by;
        }
    }
    return inverse;
}

/* Try another level for one scale; true if it is better. */
static bool qf_scale_better(float x, float w, int most, uint8_t *level, float sum[2])
{
    float a = sum[0] - w * x * (float)*level, b = sum[1] - w * (float)*level * (float)*level;

    if (!(a > 0 && b > 0))
        return false;
    const int next = qf_nearest(x * b / a, most);

    if (next == *level)
        return false;
    a += w * x * (float)next;
    b += w * (float)next * (float)next;
    if (!(a * a * sum[1] > sum[0] * sum[0] * b))
        return false;
    *level = (uint8_t)next;
    sum[0] = a;
    sum[1] = b;
    return true;
}

float ckpt_qk_fit_scales(unsigned n, int most, const float *x, const float *w, uint8_t *level)
{
    float largest = 0, sum[2] = {0, 0};
    bool changed = true;

    for (unsigned i = 0; i < n; i++)
        largest = largest > x[i] ? largest : x[i];
    memset(level, 0, n);
    if (largest < CKPT_QK_TINY)
        return 0;
    const float inverse = qf_scales_inverse(n, most, x, w, largest);

    for (unsigned i = 0; i < n; i++) {
        const int nearest = qf_nearest(inverse * x[i], most);

        level[i] = (uint8_t)nearest;
        sum[0] += w[i] * x[i] * (float)nearest;
        sum[1] += w[i] * (float)nearest * (float)nearest;
    }
    for (int sweep = 0; sweep < 5 && changed; sweep++) {
        changed = false;
        for (unsigned i = 0; i < n; i++)
            changed = qf_scale_better(x[i], w[i], most, &level[i], sum) || changed;
    }
    return sum[1] > 0 ? sum[0] / sum[1] : 0;
}

/* ---- adjacent runs ---- */

/* Compute the weights of a run. */
static void qf_weights(const ckpt_qk_search *s, const float *x, float *w)
{
    float sum = 0, mean;

    for (int i = 0; i < s->n; i++)
        sum += x[i] * x[i];
    mean = s->absolute ? 0 : sqrtf(sum / (float)s->n);
    for (int i = 0; i < s->n; i++)
        w[i] = s->absolute ? fabsf(x[i]) : mean + fabsf(x[i]);
}

static void qf_min_runs(const ckpt_qk_search *s, const float *x, const float *w, ckpt_qk_run *out)
{
    float own[CKPT_QK_RUN];

    for (int j = 0; j < CKPT_QK_LANES; j++) {
        if (!w)
            qf_weights(s, x + s->n * j, own);
        qf_fit_min(s, x + s->n * j, w ? w + s->n * j : own, &out[j]);
    }
}

static void qf_sym_runs(const ckpt_qk_around *s, const float *x, const float *w, float *scale,
                        uint8_t *levels)
{
    for (unsigned j = 0; j < CKPT_QK_LANES; j++)
        scale[j] = ckpt_qk_fit_sym(s, x + s->n * j, w ? w + s->n * j : NULL, levels + s->n * j);
}

static void qf_sweep_runs(const float *x, float *scale, uint8_t *levels)
{
    for (int j = 0; j < CKPT_QK_LANES; j++)
        scale[j] = qf_fit_sweep(levels + 16 * j, x + 16 * j);
}

static void qf_level(uint8_t *to, const float *x, int n, const float step[2], const int range[2])
{
    for (int i = 0; i < n; i++)
        to[i] =
            (uint8_t)(ckpt_quant_rint((x[i] + step[1]) / step[0], range[0], range[1]) - range[0]);
}

const ckpt_qk_body ckpt_qk_portable = {qf_min_runs, qf_sym_runs, qf_sweep_runs, qf_level};
