/* SPDX-License-Identifier: Apache-2.0 */
/*
 * quant_k.c: has the K-quantizers: super-blocks of 256 values, in runs of 16 or 32 with quantized
 * scales.
 *
 * Without an importance matrix. Source: ggml-quants.c, quantize_row_q2_K_ref to
 * quantize_row_q6_K_ref.
 */
#include "libckpt/base/quant_k.h"

#include <assert.h>
#include <math.h>
#include <string.h>

enum { QK_SUPER = 256 };

/* Compute the levels of n values again with the stored scale, unless that is 0. */
static void qk_level(const ckpt_qk_body *body, uint8_t *to, const float *x, int n,
                     const float step[2], const int range[2])
{
    if (step[0] != 0)
        body->level(to, x, n, step, range);
}

/* ---- runs with a minimum: Q2_K, Q4_K, Q5_K ---- */

/* The largest scale, and the largest minimum; at least 0. */
static void qk_largest(const ckpt_qk_run *r, int n, float *scale, float *low)
{
    *scale = *low = 0;
    for (int j = 0; j < n; j++) {
        *scale = r[j].scale > *scale ? r[j].scale : *scale;
        *low = r[j].low > *low ? r[j].low : *low;
    }
}

static void qk_block_q2(const ckpt_qk_body *body, uint8_t *to, const float *x)
{
    static const ckpt_qk_search search = {16, 3, -0.5f, 0.1f, 15, true};
    static const int range[2] = {0, 3};
    ckpt_qk_run run[16];
    float scale, low;

    body->fit_min(&search, x, run);
    body->fit_min(&search, x + 128, run + 8);
    qk_largest(run, 16, &scale, &low);
    ckpt_half_put(to + 80, scale > 0 ? scale / 15 : 0);
    ckpt_half_put(to + 82, low > 0 ? low / 15 : 0);
    const float d = ckpt_half_get(to + 80), least = ckpt_half_get(to + 82);

    for (int j = 0; j < 16; j++) {
        int s = scale > 0 ? ckpt_quant_rint(15 / scale * run[j].scale, INT32_MIN, INT32_MAX) : 0;
        int m = low > 0 ? ckpt_quant_rint(15 / low * run[j].low, 0, 15) : 0;

        to[j] = (uint8_t)((unsigned)s | (unsigned)m << 4);
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

/*
 * Store scales and minima of eight runs, six bits each, in 12 bytes, and compute the levels from
 * the stored scales.
 */
static void qk_scales(const ckpt_qk_body *body, uint8_t *to, const float *x, int most,
                      ckpt_qk_run *run)
{
    const int range[2] = {0, most};
    uint8_t *b = to + 4;
    float scale, low;

    qk_largest(run, 8, &scale, &low);
    const float is = scale > 0 ? 63.0f / scale : 0.0f, im = low > 0 ? 63.0f / low : 0.0f;

    ckpt_half_put(to, scale / 63.0f);
    ckpt_half_put(to + 2, low / 63.0f);
    const float d = ckpt_half_get(to), least = ckpt_half_get(to + 2);

    memset(b, 0, 12);
    for (int j = 0; j < 8; j++) {
        // as a byte first, so that a negative scale becomes the largest
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
        const float step[2] = {d * (float)s, least * (float)m};

        qk_level(body, run[j].level, x + 32 * j, 32, step, range);
    }
}

static void qk_block_q4(const ckpt_qk_body *body, uint8_t *to, const float *x)
{
    static const ckpt_qk_search search = {32, 15, -1.0f, 0.1f, 20, false};
    ckpt_qk_run run[8];

    body->fit_min(&search, x, run);
    qk_scales(body, to, x, 15, run);
    for (int j = 0; j < 4; j++) {
        for (int i = 0; i < 32; i++)
            to[16 + 32 * j + i] = (uint8_t)(run[2 * j].level[i] | run[2 * j + 1].level[i] << 4);
    }
}

static void qk_block_q5(const ckpt_qk_body *body, uint8_t *to, const float *x)
{
    static const ckpt_qk_search search = {32, 31, -0.5f, 0.1f, 15, false};
    ckpt_qk_run run[8];

    body->fit_min(&search, x, run);
    qk_scales(body, to, x, 31, run);
    memset(to + 16, 0, 32);
    for (int j = 0; j < 8; j++) {
        for (int i = 0; i < 32; i++)
            to[16 + i] |= (uint8_t)(run[j].level[i] >> 4 << j);
    }
    for (int j = 0; j < 4; j++) {
        for (int i = 0; i < 32; i++)
            to[48 + 32 * j + i] =
                (uint8_t)((run[2 * j].level[i] & 15) | (run[2 * j + 1].level[i] & 15) << 4);
    }
}

/* ---- runs around zero: Q3_K, Q6_K ---- */

static void qk_block_q3(const ckpt_qk_body *body, uint8_t *to, const float *x)
{
    static const int range[2] = {-4, 3};
    uint8_t *b = to + 96, level[QK_SUPER];
    float scale[16], most;

    body->fit_sweep(x, scale, level);
    body->fit_sweep(x + 128, scale + 8, level + 128);
    most = ckpt_quant_signed_max(scale, 16);
    memset(to, 0, 110);
    const float inverse = most != 0 ? -32.0f / most : 0;

    ckpt_half_put(to + 108, most != 0 ? 1 / inverse : 0);
    const float d = ckpt_half_get(to + 108);

    for (int j = 0; most != 0 && j < 16; j++) {
        const int s = ckpt_quant_rint(inverse * scale[j], -32, 31);
        const float step[2] = {d * (float)s, 0};

        b[j % 8] |= (uint8_t)(((s + 32) & 15) << (j < 8 ? 0 : 4));
        b[8 + j % 4] |= (uint8_t)((s + 32) >> 4 << 2 * (j / 4));
        qk_level(body, level + 16 * j, x + 16 * j, 16, step, range);
    }
    for (int j = 0; j < 8; j++) {
        for (int i = 0; i < 32; i++) {
            to[i] |= (uint8_t)(level[32 * j + i] >> 2 << j);
            to[32 + j / 4 * 32 + i] |= (uint8_t)((level[32 * j + i] & 3) << j % 4 * 2);
        }
    }
}

static void qk_block_q6(const ckpt_qk_body *body, uint8_t *to, const float *x)
{
    static const int range[2] = {-32, 31};
    uint8_t level[QK_SUPER];
    float scale[16], most;

    body->fit_sym(x, scale, level);
    body->fit_sym(x + 128, scale + 8, level + 128);
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
        qk_level(body, level + 16 * j, x + 16 * j, 16, step, range);
    }
    // 128 values in 64 and 32 bytes: quarters of 32
    for (int j = 0; j < 8; j++) {
        uint8_t *low = to + 64 * (j / 4) + j % 2 * 32, *high = to + 128 + 32 * (j / 4);

        for (int i = 0; i < 32; i++) {
            low[i] |= (uint8_t)((level[32 * j + i] & 15) << j % 4 / 2 * 4);
            high[i] |= (uint8_t)(level[32 * j + i] >> 4 << 2 * (j % 4));
        }
    }
}

/* ---- super-blocks ---- */

void ckpt_quant_k(ckpt_dtype type, const ckpt_qk_body *body, void *restrict dst,
                  const void *restrict src, size_t n_elems)
{
    static void (*const fn[])(const ckpt_qk_body *, uint8_t *, const float *) = {
        qk_block_q2, qk_block_q3, qk_block_q4, qk_block_q5, qk_block_q6};
    const size_t bytes = ckpt_dtype_get(type)->bytes;
    uint8_t *to = dst;
    float x[QK_SUPER];

    assert(type >= CKPT_Q2_K && type <= CKPT_Q6_K);
    for (size_t i = 0; i < n_elems; i += QK_SUPER, to += bytes) {
        memcpy(x, (const uint8_t *)src + i * sizeof *x, sizeof x);
        fn[type - CKPT_Q2_K](body, to, x);
    }
}

#define QK_QUANT(name, type)                                                                       \
    void name(void *restrict dst, const void *restrict src, size_t n_elems)                        \
    {                                                                                              \
        ckpt_quant_k(type, &ckpt_qk_portable, dst, src, n_elems);                                  \
    }

QK_QUANT(ckpt_quant_q2_k, CKPT_Q2_K)
QK_QUANT(ckpt_quant_q3_k, CKPT_Q3_K)
QK_QUANT(ckpt_quant_q4_k, CKPT_Q4_K)
QK_QUANT(ckpt_quant_q5_k, CKPT_Q5_K)
QK_QUANT(ckpt_quant_q6_k, CKPT_Q6_K)
