/* SPDX-License-Identifier: Apache-2.0 */
/*
 * quant_k.c: owns the K-quantizers: super-blocks of 256 values, in runs of 16 or 32 whose scales are
 * quantized themselves.
 *
 * Without an importance matrix.  Every sum goes from the first value to the last, every product
 * from left to right: other orders give other bits.  Sources: ggml-quants.c, quantize_row_q2_K_ref
 * to quantize_row_q6_K_ref and what they call.
 */
#include "libckpt/base/quant.h"

#include <math.h>
#include <string.h>

enum { QK_SUPER = 256, QK_RUN = 32 /* the longest */ };

/* Below this a run is all zeros. */
#define QK_TINY 1e-15f

/* How fit_min searches: levels 0..most, and the steps of the inverse scale that are tried. */
typedef struct qk_search {
    int n, most;
    float from, by;
    int steps;
    bool absolute; /* errors by magnitude, not squared */
} qk_search;

/* Levels of a run with scale and minimum. */
typedef struct qk_run {
    float scale, low;
    uint8_t level[QK_RUN];
} qk_run;

/* Weighted error of levels. */
static float qk_error(const qk_search *s, const float *x, const float *w, const qk_run *r)
{
    float sum = 0;

    for (int i = 0; i < s->n; i++) {
        float e = r->scale * (float)r->level[i] + r->low - x[i];

        e = s->absolute ? fabsf(e) : e * e;
        sum += w[i] * e;
    }
    return sum;
}

/* Levels for an inverse scale, and the line through them of least weighted squares; false: none. */
static bool qk_line(const qk_search *s, const float *x, const float *w, const float sums[2],
                    float inverse, float low, qk_run *r)
{
    float sl = 0, sl2 = 0, sxl = 0, det;

    for (int i = 0; i < s->n; i++) {
        const int level = ckpt_quant_rint(inverse * (x[i] - low), 0, s->most);

        r->level[i] = (uint8_t)level;
        sl += w[i] * (float)level;
        sl2 += w[i] * (float)level * (float)level;
        sxl += w[i] * (float)level * x[i];
    }
    det = sums[0] * sl2 - sl * sl;
    if (!(det > 0))
        return false;
    r->scale = (sums[0] * sxl - sums[1] * sl) / det;
    r->low = (sl2 * sums[1] - sl * sxl) / det;
    if (r->low > 0) {
        r->low = 0;
        r->scale = sxl / sl2;
    }
    return true;
}

/* Scale and minimum (at most 0) of a run; out->low is what is subtracted, so at least 0. */
static void qk_fit_min(const qk_search *s, const float *x, const float *w, qk_run *out)
{
    float low = x[0], high = x[0], sums[2] = {w[0], w[0] * x[0]}, best;
    qk_run r;

    for (int i = 1; i < s->n; i++) {
        low = x[i] < low ? x[i] : low;
        high = x[i] > high ? x[i] : high;
        sums[0] += w[i];
        sums[1] += w[i] * x[i];
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
    best = qk_error(s, x, w, out);
    for (int k = 0; k <= s->steps; k++) {
        // from the minimum that has won so far
        inverse = (s->from + s->by * (float)k + (float)s->most) / (high - out->low);
        if (!qk_line(s, x, w, sums, inverse, out->low, &r))
            continue;
        const float error = qk_error(s, x, w, &r);

        if (error < best) {
            best = error;
            *out = r;
        }
    }
    out->low = -out->low;
}

/* The value of the largest magnitude, the first of equals, with its sign. */
static float qk_signed_max(const float *x, int n)
{
    float most = 0, value = 0;

    for (int i = 0; i < n; i++) {
        if (fabsf(x[i]) > most) {
            most = fabsf(x[i]);
            value = x[i];
        }
    }
    return value;
}

/* Levels of 16 values by an inverse scale, and their sums of weights x * x: by values, by levels. */
static void qk_sums(uint8_t *levels, const float *x, float inverse, float *a, float *b)
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

/* Scale of 16 values with levels -32..31, which are counted from 0. */
static float qk_fit_sym(uint8_t *levels, const float *x)
{
    const float v = qk_signed_max(x, 16);
    float a, b, scale, best;
    uint8_t other[16];

    memset(levels, 0, 16);
    if (fabsf(v) < QK_TINY)
        return 0;
    qk_sums(levels, x, -32.0f / v, &a, &b);
    scale = b != 0 ? a / b : 0.0f;
    best = scale * a;
    for (int k = -9; k <= 9; k++) {
        if (k == 0)
            continue;
        qk_sums(other, x, -(32.0f + 0.1f * (float)k) / v, &a, &b);
        if (b > 0 && a * a > best * b) {
            memcpy(levels, other, sizeof other);
            scale = a / b;
            best = scale * a;
        }
    }
    return scale;
}

/* Scale of 16 values with levels -4..3, improved one by one, and counted from 0. */
static float qk_fit_sweep(uint8_t *levels, const float *x)
{
    const float v = qk_signed_max(x, 16);
    float a = 0, b = 0, level[16];
    bool changed = true;

    memset(levels, 0, 16);
    if (fabsf(v) < QK_TINY)
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

/* ---- runs with a minimum: Q2_K, Q4_K, Q5_K ---- */

/* Levels of n values again, with the scales as they are stored. */
static void qk_level_min(uint8_t *level, const float *x, int n, int most, const float step[2])
{
    if (step[0] == 0)
        return;
    for (int i = 0; i < n; i++)
        level[i] = (uint8_t)ckpt_quant_rint((x[i] + step[1]) / step[0], 0, most);
}

/* The largest scale, and the largest minimum; at least 0. */
static void qk_largest(const qk_run *r, int n, float *scale, float *low)
{
    *scale = *low = 0;
    for (int j = 0; j < n; j++) {
        *scale = r[j].scale > *scale ? r[j].scale : *scale;
        *low = r[j].low > *low ? r[j].low : *low;
    }
}

static void qk_block_q2(uint8_t *to, const float *x)
{
    static const qk_search search = {16, 3, -0.5f, 0.1f, 15, true};
    qk_run run[16];
    float w[16], scale, low;

    for (int j = 0; j < 16; j++) {
        for (int i = 0; i < 16; i++)
            w[i] = fabsf(x[16 * j + i]);
        qk_fit_min(&search, x + 16 * j, w, &run[j]);
    }
    qk_largest(run, 16, &scale, &low);
    ckpt_half_put(to + 80, scale > 0 ? scale / 15 : 0);
    ckpt_half_put(to + 82, low > 0 ? low / 15 : 0);
    for (int j = 0; j < 16; j++) {
        int s = scale > 0 ? ckpt_quant_rint(15 / scale * run[j].scale, INT32_MIN, INT32_MAX) : 0;
        int m = low > 0 ? ckpt_quant_rint(15 / low * run[j].low, 0, 15) : 0;

        to[j] = (uint8_t)((unsigned)s | (unsigned)m << 4);
        const float step[2] = {ckpt_half_get(to + 80) * (float)(to[j] & 15),
                               ckpt_half_get(to + 82) * (float)(to[j] >> 4)};

        qk_level_min(run[j].level, x + 16 * j, 16, 3, step);
    }
    for (int i = 0; i < 64; i++) {
        const qk_run *r = run + i / 32 * 8 + i % 32 / 16;
        const int k = i % 16;

        to[16 + i] =
            (uint8_t)(r[0].level[k] | r[2].level[k] << 2 | r[4].level[k] << 4 | r[6].level[k] << 6);
    }
}

/* Scales and minima of eight runs, six bits each, in 12 bytes; levels follow the stored scales. */
static void qk_scales(uint8_t *to, const float *x, int most, qk_run *run)
{
    uint8_t *b = to + 4;
    float scale, low;

    qk_largest(run, 8, &scale, &low);
    const float is = scale > 0 ? 63.0f / scale : 0.0f, im = low > 0 ? 63.0f / low : 0.0f;

    ckpt_half_put(to, scale / 63.0f);
    ckpt_half_put(to + 2, low / 63.0f);
    memset(b, 0, 12);
    for (int j = 0; j < 8; j++) {
        // as a byte first: a negative scale becomes the largest
        int s = (uint8_t)ckpt_quant_rint(is * run[j].scale, INT32_MIN, INT32_MAX);
        int m = (uint8_t)ckpt_quant_rint(im * run[j].low, INT32_MIN, INT32_MAX);

        s = s < 63 ? s : 63;
        m = m < 63 ? m : 63;
        if (j < 4) {
            b[j] = (uint8_t)s;
            b[j + 4] = (uint8_t)m;
        } else {
            b[j + 4] = (uint8_t)((s & 15) | (m & 15) << 4);
            b[j - 4] |= (uint8_t)(s >> 4 << 6);
            b[j] |= (uint8_t)(m >> 4 << 6);
        }
        const float step[2] = {ckpt_half_get(to) * (float)s, ckpt_half_get(to + 2) * (float)m};

        qk_level_min(run[j].level, x + 32 * j, 32, most, step);
    }
}

/* Eight runs of 32 values. */
static void qk_runs(const qk_search *search, const float *x, qk_run run[8])
{
    float w[32];

    for (int j = 0; j < 8; j++) {
        const float *at = x + 32 * j;
        float sum = 0;

        for (int i = 0; i < 32; i++)
            sum += at[i] * at[i];
        const float mean = sqrtf(sum / 32);

        for (int i = 0; i < 32; i++)
            w[i] = mean + fabsf(at[i]);
        qk_fit_min(search, at, w, &run[j]);
    }
}

static void qk_block_q4(uint8_t *to, const float *x)
{
    static const qk_search search = {32, 15, -1.0f, 0.1f, 20, false};
    qk_run run[8];

    qk_runs(&search, x, run);
    qk_scales(to, x, 15, run);
    for (int i = 0; i < 128; i++)
        to[16 + i] =
            (uint8_t)(run[i / 32 * 2].level[i % 32] | run[i / 32 * 2 + 1].level[i % 32] << 4);
}

static void qk_block_q5(uint8_t *to, const float *x)
{
    static const qk_search search = {32, 31, -0.5f, 0.1f, 15, false};
    qk_run run[8];

    qk_runs(&search, x, run);
    qk_scales(to, x, 31, run);
    for (int i = 0; i < 128; i++)
        to[48 + i] = (uint8_t)((run[i / 32 * 2].level[i % 32] & 15) |
                               (run[i / 32 * 2 + 1].level[i % 32] & 15) << 4);
    for (int i = 0; i < 32; i++) {
        unsigned bits = 0;

        for (int j = 0; j < 8; j++)
            bits |= (unsigned)(run[j].level[i] >> 4) << j;
        to[16 + i] = (uint8_t)bits;
    }
}

/* ---- runs around zero: Q3_K, Q6_K ---- */

/* Levels of 16 values again, with the scale as it is stored, unless that is 0. */
static void qk_level_sym(uint8_t *level, const float *x, int half, float step)
{
    if (step == 0)
        return;
    for (int i = 0; i < 16; i++)
        level[i] = (uint8_t)(ckpt_quant_rint(x[i] / step, -half, half - 1) + half);
}

static void qk_block_q3(uint8_t *to, const float *x)
{
    uint8_t *b = to + 96, level[QK_SUPER];
    float scale[16], most;

    for (int j = 0; j < 16; j++)
        scale[j] = qk_fit_sweep(level + 16 * j, x + 16 * j);
    most = qk_signed_max(scale, 16);
    memset(to, 0, 110);
    const float inverse = most != 0 ? -32.0f / most : 0;

    ckpt_half_put(to + 108, most != 0 ? 1 / inverse : 0);
    for (int j = 0; j < 16; j++) {
        const int s = ckpt_quant_rint(inverse * scale[j], -32, 31);

        if (most != 0) {
            b[j % 8] |= (uint8_t)(((s + 32) & 15) << (j < 8 ? 0 : 4));
            b[8 + j % 4] |= (uint8_t)((s + 32) >> 4 << 2 * (j / 4));
            qk_level_sym(level + 16 * j, x + 16 * j, 4, ckpt_half_get(to + 108) * (float)s);
        }
    }
    for (int i = 0; i < QK_SUPER; i++) {
        to[i % 32] |= (uint8_t)((level[i] >> 2) << i / 32);
        to[32 + i / 128 * 32 + i % 32] |= (uint8_t)((level[i] & 3) << i % 128 / 32 * 2);
    }
}

static void qk_block_q6(uint8_t *to, const float *x)
{
    uint8_t level[QK_SUPER];
    float scale[16], most;

    for (int j = 0; j < 16; j++)
        scale[j] = qk_fit_sym(level + 16 * j, x + 16 * j);
    most = qk_signed_max(scale, 16);
    memset(to, 0, 210);
    if (fabsf(most) < QK_TINY)
        return;
    const float inverse = -128.0f / most;

    ckpt_half_put(to + 208, 1 / inverse);
    for (int j = 0; j < 16; j++) {
        const int s = ckpt_quant_rint(inverse * scale[j], INT32_MIN, 127);

        to[192 + j] = (uint8_t)s;
        qk_level_sym(level + 16 * j, x + 16 * j, 32, ckpt_half_get(to + 208) * (float)s);
    }
    for (int i = 0; i < QK_SUPER; i++) {
        const int half = i / 128, j = i % 128 / 32, k = i % 32;

        to[64 * half + j % 2 * 32 + k] |= (uint8_t)((level[i] & 15) << j / 2 * 4);
        to[128 + 32 * half + k] |= (uint8_t)(level[i] >> 4 << 2 * j);
    }
}

/* Every super-block; the body is a constant where this is inlined. */
static inline __attribute__((always_inline)) void
qk_each(void *dst, const void *src, size_t n, size_t bytes, void (*fn)(uint8_t *, const float *))
{
    uint8_t *to = dst;
    float x[QK_SUPER];

    for (size_t i = 0; i < n; i += QK_SUPER, to += bytes) {
        memcpy(x, (const uint8_t *)src + i * sizeof *x, sizeof x);
        fn(to, x);
    }
}

void ckpt_quant_q2_k(void *restrict dst, const void *restrict src, size_t n_elems)
{
    qk_each(dst, src, n_elems, 84, qk_block_q2);
}

void ckpt_quant_q3_k(void *restrict dst, const void *restrict src, size_t n_elems)
{
    qk_each(dst, src, n_elems, 110, qk_block_q3);
}

void ckpt_quant_q4_k(void *restrict dst, const void *restrict src, size_t n_elems)
{
    qk_each(dst, src, n_elems, 144, qk_block_q4);
}

void ckpt_quant_q5_k(void *restrict dst, const void *restrict src, size_t n_elems)
{
    qk_each(dst, src, n_elems, 176, qk_block_q5);
}

void ckpt_quant_q6_k(void *restrict dst, const void *restrict src, size_t n_elems)
{
    qk_each(dst, src, n_elems, 210, qk_block_q6);
}
