/* SPDX-License-Identifier: Apache-2.0 */
/*
 * quant_k.c: has the K-quantizers: super-blocks of 256 values, in runs of 16 or 32 with quantized
 * scales.
 *
 * Sources: ggml-quants.c, quantize_row_q2_K_ref to quantize_row_q6_K_ref, and, with an importance
 * matrix, quantize_row_q2_K_impl to quantize_row_q6_K_impl.
 */
#include "libckpt/base/quant_k.h"

#include <assert.h>
#include <math.h>
#include <string.h>

enum { QK_SUPER = 256, QK_PAIR = 2 * QK_SUPER };

/* Compute the levels of n values again with the stored scale, unless that is 0. */
static void qk_level(const ckpt_qk_body *body, uint8_t *to, const float *x, int n,
                     const float step[2], const int range[2])
{
    if (step[0] != 0)
        body->level(to, x, n, step, range);
}

/* ---- with an importance matrix ---- */

/*
 * The values of n super-blocks, and the importance of each; NULL: none. Behind a single super-block
 * of a type with eight runs lie zeros, because the bodies fit sixteen runs.
 */
typedef struct qk_block {
    const float *x, *importance;
    size_t n;
} qk_block;

/*
 * Compute the weight of each value of a super-block, from its importance and magnitude, and the sum
 * of each run of n values. times: of the mean square.
 */
static void qk_weigh(const float *x, const float *importance, float times, int n, float *w,
                     float *sum)
{
    float squares = 0;

    for (int i = 0; i < QK_SUPER; i++)
        squares += x[i] * x[i];
    squares = times * squares / QK_SUPER;
    for (int i = 0; i < QK_SUPER; i++)
        w[i] = importance[i] * sqrtf(squares + x[i] * x[i]);
    for (int j = 0; j < QK_SUPER / n; j++) {
        sum[j] = 0;
        for (int i = 0; i < n; i++)
            sum[j] += w[n * j + i];
    }
}

/* ---- runs with a minimum: Q2_K, Q4_K, Q5_K ---- */

/* The quantized scales and minima of the runs of a super-block. */
typedef struct qk_scales {
    float d, least; /* factors of both */
    uint8_t scale[16], low[16];
} qk_scales;

/* Quantize scales and minima by the weights of the runs. */
static void qk_scales_weighted(qk_scales *out, const ckpt_qk_run *r, unsigned n, int most,
                               const float *sum)
{
    float scale[16], low[16];

    for (unsigned j = 0; j < n; j++) {
        scale[j] = r[j].scale;
        low[j] = r[j].low;
    }
    out->d = ckpt_qk_fit_scales(n, most, scale, sum, out->scale);
    out->least = ckpt_qk_fit_scales(n, most, low, sum, out->low);
}

/* The largest scale, and the largest minimum; at least 0. */
static void qk_largest(const ckpt_qk_run *r, int n, float *scale, float *low)
{
    *scale = *low = 0;
    for (int j = 0; j < n; j++) {
        *scale = r[j].scale > *scale ? r[j].scale : *scale;
        *low = r[j].low > *low ? r[j].low : *low;
    }
}

/* Quantize scales and minima of sixteen runs to four bits. */
static void qk_scales_4(qk_scales *out, const ckpt_qk_run *r)
{
    float scale, low;

    qk_largest(r, 16, &scale, &low);
    out->d = scale > 0 ? scale / 15 : 0;
    out->least = low > 0 ? low / 15 : 0;
    for (int j = 0; j < 16; j++) {
        out->scale[j] =
            (uint8_t)(scale > 0 ? ckpt_quant_rint(15 / scale * r[j].scale, INT32_MIN, INT32_MAX)
                                : 0);
        out->low[j] = (uint8_t)(low > 0 ? ckpt_quant_rint(15 / low * r[j].low, 0, 15) : 0);
    }
}

static void qk_block_q2(const ckpt_qk_body *body, uint8_t *to, const qk_block *b)
{
    static const ckpt_qk_search search = {16, 3, -0.5f, 0.1f, 15, true},
                                weighted = {16, 3, -0.9f, 0.05f, 36, false};
    static const int range[2] = {0, 3};
    const float *x = b->x;
    float w[QK_SUPER], sum[16];
    ckpt_qk_run run[16];
    qk_scales s;

    if (b->importance) {
        qk_weigh(x, b->importance, 1, 16, w, sum);
        body->fit_min(&weighted, x, w, run);
        qk_scales_weighted(&s, run, 16, 15, sum);
    } else {
        body->fit_min(&search, x, NULL, run);
        qk_scales_4(&s, run);
    }
    ckpt_half_put(to + 80, s.d);
    ckpt_half_put(to + 82, s.least);
    const float d = ckpt_half_get(to + 80), least = ckpt_half_get(to + 82);

    for (int j = 0; j < 16; j++) {
        to[j] = (uint8_t)(s.scale[j] | s.low[j] << 4);
        const float step[2] = {d * (float)(to[j] & 15), least * (float)(to[j] >> 4)};

        qk_level(body, run[j].level, x + 16 * j, 16, step, range);
    }
    for (int i = 0; i < 64; i++) {
        const ckpt_qk_run *r = run + i / 32 * 8 + i % 32 / 16;
        const int k = i % 16;

        to[16 + i] =
            (uint8_t)(r[0].level[k] | r[2].level[k] << 2 | r[4].level[k] << 4 | r[6].level[k] << 6);
    }
}

/* A level of six bits at most. */
static uint8_t qk_six(uint8_t level)
{
    return level < 63 ? level : 63;
}

/* Quantize scales and minima of eight runs to six bits. */
static void qk_scales_6(qk_scales *out, const ckpt_qk_run *r)
{
    float scale, low;

    qk_largest(r, 8, &scale, &low);
    const float is = scale > 0 ? 63.0f / scale : 0.0f, im = low > 0 ? 63.0f / low : 0.0f;

    out->d = scale / 63.0f;
    out->least = low / 63.0f;
    for (int j = 0; j < 8; j++) {
        // as a byte first, so that a negative scale becomes the largest
        out->scale[j] = qk_six((uint8_t)ckpt_quant_rint(is * r[j].scale, INT32_MIN, INT32_MAX));
        out->low[j] = qk_six((uint8_t)ckpt_quant_rint(im * r[j].low, INT32_MIN, INT32_MAX));
    }
}

/* Store scales and minima of eight runs, six bits each, in 12 bytes. */
static void qk_pack(uint8_t *b, const qk_scales *s)
{
    memset(b, 0, 12);
    for (int j = 0; j < 8; j++) {
        const uint8_t scale = s->scale[j], low = s->low[j];

        if (j < 4) {
            b[j] = scale;
            b[j + 4] = low;
        } else {
            b[j + 4] = (uint8_t)((scale & 15) | (low & 15) << 4);
            b[j - 4] |= (uint8_t)(scale >> 4 << 6);
            b[j] |= (uint8_t)(low >> 4 << 6);
        }
    }
}

/* Store scales and minima of eight runs, and compute the levels from the stored ones. */
static void qk_store_6(const ckpt_qk_body *body, uint8_t *to, const float *x, int most,
                       const qk_scales *s, ckpt_qk_run *run)
{
    const int range[2] = {0, most};
    const uint8_t *b = to + 4;

    ckpt_half_put(to, s->d);
    ckpt_half_put(to + 2, s->least);
    const float d = ckpt_half_get(to), least = ckpt_half_get(to + 2);

    qk_pack(to + 4, s);
    for (int j = 0; j < 8; j++) {
        const int scale = j < 4 ? b[j] & 63 : (b[j + 4] & 15) | b[j - 4] >> 6 << 4;
        const int low = j < 4 ? b[j + 4] & 63 : b[j + 4] >> 4 | b[j] >> 6 << 4;
        const float step[2] = {d * (float)scale, least * (float)low};

        qk_level(body, run[j].level, x + 32 * j, 32, step, range);
    }
}

/*
 * Fit the eight runs of one or two super-blocks to levels 0..most, and store scales and minima,
 * each super-block's at its place.
 */
static void qk_runs_6(const ckpt_qk_body *body, uint8_t *to, const qk_block *b,
                      const ckpt_qk_search *search, ckpt_qk_run *run)
{
    const ckpt_qk_search weighted = {32, search->most, -0.9f, 0.05f, 36, false};
    const size_t bytes = ckpt_dtype_get(search->most == 15 ? CKPT_Q4_K : CKPT_Q5_K)->bytes;
    float w[QK_PAIR] = {0}, sum[16];

    for (size_t k = 0; b->importance && k < b->n; k++)
        qk_weigh(b->x + k * QK_SUPER, b->importance + k * QK_SUPER, 2, 32, w + k * QK_SUPER,
                 sum + 8 * k);
    body->fit_min(b->importance ? &weighted : search, b->x, b->importance ? w : NULL, run);
    for (size_t k = 0; k < b->n; k++) {
        qk_scales s;

        if (b->importance)
            qk_scales_weighted(&s, run + 8 * k, 8, 63, sum + 8 * k);
        else
            qk_scales_6(&s, run + 8 * k);
        // of the scales by given weights, ggml limits only those of Q5_K
        for (int j = 0; j < 8 && search->most == 31; j++) {
            s.scale[j] = qk_six(s.scale[j]);
            s.low[j] = qk_six(s.low[j]);
        }
        qk_store_6(body, to + k * bytes, b->x + k * QK_SUPER, search->most, &s, run + 8 * k);
    }
}

/* Pack four bits of the levels of two runs in 32 bytes. */
static void qk_pack_nibbles(uint8_t *restrict to, const uint8_t *restrict a,
                            const uint8_t *restrict b)
{
    for (int i = 0; i < 32; i++)
        to[i] = (uint8_t)((a[i] & 15) | b[i] << 4);
}

static void qk_block_q4(const ckpt_qk_body *body, uint8_t *to, const qk_block *b)
{
    static const ckpt_qk_search search = {32, 15, -1.0f, 0.1f, 20, false};
    ckpt_qk_run run[CKPT_QK_LANES];

    qk_runs_6(body, to, b, &search, run);
    for (size_t j = 0; j < 4 * b->n; j++)
        qk_pack_nibbles(to + j / 4 * 144 + 16 + j % 4 * 32, run[2 * j].level, run[2 * j + 1].level);
}

/* Pack the fifth bits of the levels of a super-block in 32 bytes. */
static void qk_pack_q5(uint8_t *restrict to, const ckpt_qk_run *restrict run)
{
    memset(to, 0, 32);
    for (int j = 0; j < 8; j++) {
        for (int i = 0; i < 32; i++)
            to[i] |= (uint8_t)(run[j].level[i] >> 4 << j);
    }
}

static void qk_block_q5(const ckpt_qk_body *body, uint8_t *to, const qk_block *b)
{
    static const ckpt_qk_search search = {32, 31, -0.5f, 0.1f, 15, false};
    ckpt_qk_run run[CKPT_QK_LANES];

    qk_runs_6(body, to, b, &search, run);
    for (size_t k = 0; k < b->n; k++)
        qk_pack_q5(to + k * 176 + 16, run + 8 * k);
    for (size_t j = 0; j < 4 * b->n; j++)
        qk_pack_nibbles(to + j / 4 * 176 + 48 + j % 4 * 32, run[2 * j].level, run[2 * j + 1].level);
}

/* ---- runs around zero: Q3_K, Q6_K ---- */

/* Quantize sixteen scales to levels 0..63, which stand for -32..31; returns their factor. */
static float qk_scales_around(const float *scale, uint8_t *level)
{
    const float most = ckpt_quant_signed_max(scale, 16);

    memset(level, 0, 16);
    if (most == 0)
        return 0;
    const float inverse = -32.0f / most;

    for (int j = 0; j < 16; j++)
        level[j] = (uint8_t)(ckpt_quant_rint(inverse * scale[j], -32, 31) + 32);
    return 1 / inverse;
}

/* Fit sixteen runs of a super-block, and their scales; returns the factor of the scales. */
static float qk_runs_q3(const ckpt_qk_body *body, const qk_block *b, uint8_t *scales,
                        uint8_t *level)
{
    static const ckpt_qk_around run = {16, 4}, all = {16, 32};
    float w[QK_SUPER], sum[16], scale[16];

    if (!b->importance) {
        body->fit_sweep(b->x, scale, level);
        return qk_scales_around(scale, scales);
    }
    qk_weigh(b->x, b->importance, 2, 16, w, sum);
    body->fit_sym(&run, b->x, w, scale, level);
    return ckpt_qk_fit_sym(&all, scale, sum, scales);
}

/* Pack the levels of a super-block: the third bit of each in 32 bytes, and two in 64. */
static void qk_pack_q3(uint8_t *restrict high, uint8_t *restrict low, const uint8_t *restrict level)
{
    for (int j = 0; j < 8; j++) {
        for (int i = 0; i < 32; i++)
            high[i] |= (uint8_t)(level[32 * j + i] >> 2 << j);
    }
    for (int j = 0; j < 2; j++, low += 32, level += 128) {
        for (int i = 0; i < 32; i++)
            low[i] = (uint8_t)((level[i] & 3) | (level[i + 32] & 3) << 2 |
                               (level[i + 64] & 3) << 4 | (level[i + 96] & 3) << 6);
    }
}

static void qk_block_q3(const ckpt_qk_body *body, uint8_t *to, const qk_block *b)
{
    static const int range[2] = {-4, 3};
    uint8_t *packed = to + 96, level[QK_SUPER], scales[16];

    memset(to, 0, 110);
    ckpt_half_put(to + 108, qk_runs_q3(body, b, scales, level));
    const float d = ckpt_half_get(to + 108);

    for (int j = 0; j < 16; j++) {
        const float step[2] = {d * (float)(scales[j] - 32), 0};

        packed[j % 8] |= (uint8_t)((scales[j] & 15) << (j < 8 ? 0 : 4));
        packed[8 + j % 4] |= (uint8_t)(scales[j] >> 4 << 2 * (j / 4));
        qk_level(body, level + 16 * j, b->x + 16 * j, 16, step, range);
    }
    qk_pack_q3(to, to + 32, level);
}

/* Pack 128 levels, in quarters of 32: four bits of each in 64 bytes, and two in 32. */
static void qk_pack_q6(uint8_t *restrict low, uint8_t *restrict high, const uint8_t *restrict level)
{
    for (int i = 0; i < 32; i++) {
        const uint8_t a = level[i], b = level[i + 32], c = level[i + 64], d = level[i + 96];

        low[i] = (uint8_t)((a & 15) | c << 4);
        low[i + 32] = (uint8_t)((b & 15) | d << 4);
        high[i] = (uint8_t)(a >> 4 | b >> 4 << 2 | c >> 4 << 4 | d >> 4 << 6);
    }
}

static void qk_block_q6(const ckpt_qk_body *body, uint8_t *to, const qk_block *b)
{
    static const ckpt_qk_around run = {16, 32};
    static const int range[2] = {-32, 31};
    uint8_t level[QK_SUPER];
    float scale[16], most;

    body->fit_sym(&run, b->x, b->importance, scale, level);
    most = ckpt_quant_signed_max(scale, 16);
    memset(to, 0, 210);
    if (fabsf(most) < CKPT_QK_TINY)
        return;
    const float inverse = -128.0f / most;

    ckpt_half_put(to + 208, 1 / inverse);
    const float d = ckpt_half_get(to + 208);

    for (int j = 0; j < 16; j++) {
        const int s = ckpt_quant_rint(inverse * scale[j], INT32_MIN, 127);
        const float step[2] = {d * (float)s, 0};

        to[192 + j] = (uint8_t)s;
        qk_level(body, level + 16 * j, b->x + 16 * j, 16, step, range);
    }
    qk_pack_q6(to, to + 128, level);
    qk_pack_q6(to + 64, to + 160, level + 128);
}

/* ---- super-blocks ---- */

void ckpt_quant_k(ckpt_dtype type, const ckpt_qk_body *body, void *restrict dst,
                  const void *restrict src, const float *w, size_t n_elems)
{
    static const struct {
        void (*fn)(const ckpt_qk_body *, uint8_t *, const qk_block *);
        size_t n; /* super-blocks at a time */
    } types[] = {
        {qk_block_q2, 1}, {qk_block_q3, 1}, {qk_block_q4, 2}, {qk_block_q5, 2}, {qk_block_q6, 1}};
    uint8_t *to = dst;
    float x[QK_PAIR];

    assert(type >= CKPT_Q2_K && type <= CKPT_Q6_K);
    const size_t bytes = ckpt_dtype_get(type)->bytes, most = types[type - CKPT_Q2_K].n;

    for (size_t i = 0; i < n_elems;) {
        const size_t left = (n_elems - i) / QK_SUPER, n = left < most ? left : most;

        memcpy(x, (const uint8_t *)src + i * sizeof *x, n * QK_SUPER * sizeof *x);
        memset(x + n * QK_SUPER, 0, (most - n) * QK_SUPER * sizeof *x);
        types[type - CKPT_Q2_K].fn(body, to, &(qk_block){x, w ? w + i : NULL, n});
        i += n * QK_SUPER;
        to += n * bytes;
    }
}

#define QK_QUANT(name, type)                                                                       \
    void name(void *restrict dst, const void *restrict src, size_t n_elems)                        \
    {                                                                                              \
        ckpt_quant_k(type, &ckpt_qk_portable, dst, src, NULL, n_elems);                            \
    }

QK_QUANT(ckpt_quant_q2_k, CKPT_Q2_K)
QK_QUANT(ckpt_quant_q3_k, CKPT_Q3_K)
QK_QUANT(ckpt_quant_q4_k, CKPT_Q4_K)
QK_QUANT(ckpt_quant_q5_k, CKPT_Q5_K)
QK_QUANT(ckpt_quant_q6_k, CKPT_Q6_K)
