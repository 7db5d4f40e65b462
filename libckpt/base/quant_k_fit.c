/* SPDX-License-Identifier: Apache-2.0 */
/*
 * quant_k_fit.c: has the portable body of the K-quantizers: scales and levels of a run.
 *
 * Every sum goes from the first value to the last, every product from left to right, because other
 * orders give other bits. Sources: ggml-quants.c, make_qkx2_quants, make_qx_quants, make_q3_quants.
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

/*
 * Compute levels of 16 values with an inverse scale, and sums with weights x * x: of values, of
 * levels.
 */
static void qf_sums(uint8_t *levels, const float *x, float inverse, float *a, float *b)
{
    *a = *b = 0;
    for (int i = 0; i < 16; i++) {
        const float w = x[i] * x[i];
        const int level = ckpt_quant_rint(inverse * x[i], -32, 31);

        levels[i] = (uint8_t)(level + 32);
        *a += w * x[i] * (float)level;
        *b += w * (float)level * (float)level;
    }
}

/* Fit the scale of 16 values with levels -32..31, stored from 0. */
static float qf_fit_sym(uint8_t *levels, const float *x)
{
    const float v = ckpt_quant_signed_max(x, 16);
    float a, b, scale, best;
    uint8_t other[16];

    memset(levels, 0, 16);
    if (fabsf(v) < CKPT_QK_TINY)
        return 0;
    qf_sums(levels, x, -32.0f / v, &a, &b);
    scale = b != 0 ? a / b : 0.0f;
    best = scale * a;
    for (int k = -9; k <= 9; k++) {
        if (k == 0)
            continue;
        qf_sums(other, x, -(32.0f + 0.1f * (float)k) / v, &a, &b);
        if (b > 0 && a * a > best * b) {
            memcpy(levels, other, sizeof other);
            scale = a / b;
            best = scale * a;
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

/* ---- eight runs ---- */

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

static void qf_min_runs(const ckpt_qk_search *s, const float *x, ckpt_qk_run *out)
{
    float w[CKPT_QK_RUN];

    for (int j = 0; j < CKPT_QK_LANES; j++) {
        qf_weights(s, x + s->n * j, w);
        qf_fit_min(s, x + s->n * j, w, &out[j]);
    }
}

static void qf_sym_runs(const float *x, float *scale, uint8_t *levels)
{
    for (int j = 0; j < CKPT_QK_LANES; j++)
        scale[j] = qf_fit_sym(levels + 16 * j, x + 16 * j);
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
