/* SPDX-License-Identifier: Apache-2.0 */
/*
 * quant_x86.c: implements ggml's quantizers with AVX2.
 *
 * K-quants: one lane for each of eight runs, so that the sums of each keep their order. Blocks of
 * 32: the order of maxima only matters if values are NaN, and such blocks go to the portable body.
 * No operation is fused, because the target has no FMA. Source: Intel SDM, volume 2 (MINPS and
 * MAXPS return the second operand if a value is NaN, as the comparisons of the portable bodies do).
 */
#include "libckpt/base/quant_x86.h"

#if defined(__x86_64__)

#include <immintrin.h>
#include <string.h>

#include "libckpt/base/quant_k.h"

#define QX_BODY   __attribute__((target("avx2")))
#define QX_INLINE static inline __attribute__((always_inline, target("avx2")))

typedef __m256 qx_f;
typedef __m256i qx_i;

QX_INLINE qx_f qx_all(float x)
{
    return _mm256_set1_ps(x);
}

QX_INLINE qx_f qx_abs(qx_f x)
{
    return _mm256_andnot_ps(qx_all(-0.0f), x);
}

QX_INLINE qx_f qx_negative(qx_f x)
{
    return _mm256_xor_ps(qx_all(-0.0f), x);
}

QX_INLINE qx_f qx_add(qx_f a, qx_f b)
{
    return _mm256_add_ps(a, b);
}

QX_INLINE qx_f qx_sub(qx_f a, qx_f b)
{
    return _mm256_sub_ps(a, b);
}

QX_INLINE qx_f qx_mul(qx_f a, qx_f b)
{
    return _mm256_mul_ps(a, b);
}

QX_INLINE qx_f qx_div(qx_f a, qx_f b)
{
    return _mm256_div_ps(a, b);
}

QX_INLINE qx_f qx_more(qx_f a, qx_f b)
{
    return _mm256_cmp_ps(a, b, _CMP_GT_OQ);
}

/* b where the mask is set, else a. */
QX_INLINE qx_f qx_pick(qx_f a, qx_f b, qx_f mask)
{
    return _mm256_blendv_ps(a, b, mask);
}

/* ckpt_quant_rint of eight values, as floats. */
QX_INLINE qx_f qx_rint(qx_f x, int low, int high)
{
    qx_i n = _mm256_castps_si256(qx_add(x, qx_all(12582912.0f)));

    n = _mm256_sub_epi32(_mm256_and_si256(n, _mm256_set1_epi32(0x007fffff)),
                         _mm256_set1_epi32(0x00400000));
    n = _mm256_min_epi32(_mm256_max_epi32(n, _mm256_set1_epi32(low)), _mm256_set1_epi32(high));
    return _mm256_cvtepi32_ps(n);
}

/* Value i of eight runs of n. */
QX_INLINE qx_f qx_load(const float *x, int n, int i)
{
    const qx_i at =
        _mm256_mullo_epi32(_mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7), _mm256_set1_epi32(n));

    return _mm256_i32gather_ps(x + i, at, 4);
}

/* Store level i of each run at its place, `by` bytes apart. */
QX_INLINE void qx_store_level(uint8_t *to, size_t by, qx_f level)
{
    int32_t n[8];

    _mm256_storeu_si256((qx_i *)(void *)n, _mm256_cvttps_epi32(level));
    for (int j = 0; j < 8; j++)
        to[(size_t)j * by] = (uint8_t)n[j];
}

/* ---- runs with a minimum ---- */

/* The values that stay constant while scales are tried. */
typedef struct qx_min {
    qx_f x[CKPT_QK_RUN], w[CKPT_QK_RUN], level[CKPT_QK_RUN];
    qx_f high, sw, sx, low, scale, best, flat;
} qx_min;

/* Load values and compute weights, their sums, and bounds. */
QX_INLINE void qx_min_begin(qx_min *m, const ckpt_qk_search *s, const float *x, int n)
{
    qx_f mean = qx_all(0);

    for (int i = 0; i < n; i++) {
        m->x[i] = qx_load(x, n, i);
        mean = qx_add(mean, qx_mul(m->x[i], m->x[i]));
    }
    mean = _mm256_sqrt_ps(qx_div(mean, qx_all((float)n)));
    for (int i = 0; i < n; i++) {
        qx_f size = qx_abs(m->x[i]);

        m->w[i] = s->absolute ? size : qx_add(mean, size);
    }
    m->low = m->high = m->x[0];
    m->sw = m->w[0];
    m->sx = qx_mul(m->w[0], m->x[0]);
    for (int i = 1; i < n; i++) {
        m->low = _mm256_min_ps(m->x[i], m->low);
        m->high = _mm256_max_ps(m->x[i], m->high);
        m->sw = qx_add(m->sw, m->w[i]);
        m->sx = qx_add(m->sx, qx_mul(m->w[i], m->x[i]));
    }
    m->low = qx_pick(m->low, qx_all(0), qx_more(m->low, qx_all(0)));
    m->flat = _mm256_cmp_ps(m->high, m->low, _CMP_EQ_OQ);
}

QX_INLINE qx_f qx_min_error(const qx_min *m, const qx_f *level, qx_f scale, qx_f low, bool absolute,
                            int n)
{
    qx_f sum = qx_all(0);

    for (int i = 0; i < n; i++) {
        qx_f e = qx_sub(qx_add(qx_mul(scale, level[i]), low), m->x[i]);

        e = absolute ? qx_abs(e) : qx_mul(e, e);
        sum = qx_add(sum, qx_mul(m->w[i], e));
    }
    return sum;
}

/* Try one inverse scale, and keep it in the lanes in which it is better. */
QX_INLINE void qx_min_try(qx_min *m, float over, int most, bool absolute, int n)
{
    const qx_f zero = qx_all(0), inverse = qx_div(qx_all(over), qx_sub(m->high, m->low));
    qx_f level[CKPT_QK_RUN], sl = zero, sl2 = zero, sxl = zero, det, scale, low, above, won, error;

    for (int i = 0; i < n; i++) {
        level[i] = qx_rint(qx_mul(inverse, qx_sub(m->x[i], m->low)), 0, most);
        const qx_f wl = qx_mul(m->w[i], level[i]);

        sl = qx_add(sl, wl);
        sl2 = qx_add(sl2, qx_mul(wl, level[i]));
        sxl = qx_add(sxl, qx_mul(wl, m->x[i]));
    }
    det = qx_sub(qx_mul(m->sw, sl2), qx_mul(sl, sl));
    scale = qx_div(qx_sub(qx_mul(m->sw, sxl), qx_mul(m->sx, sl)), det);
    low = qx_div(qx_sub(qx_mul(sl2, m->sx), qx_mul(sl, sxl)), det);
    above = qx_more(low, zero);
    low = qx_pick(low, zero, above);
    scale = qx_pick(scale, qx_div(sxl, sl2), above);
    error = qx_min_error(m, level, scale, low, absolute, n);
    won = _mm256_and_ps(qx_more(det, zero), qx_more(m->best, error));
    won = _mm256_andnot_ps(m->flat, won);
    if (_mm256_movemask_ps(won) == 0)
        return;
    m->best = qx_pick(m->best, error, won);
    m->scale = qx_pick(m->scale, scale, won);
    m->low = qx_pick(m->low, low, won);
    for (int i = 0; i < n; i++)
        m->level[i] = qx_pick(m->level[i], level[i], won);
}

/* n and absolute are constants after inlining. */
QX_INLINE void qx_min_runs(const ckpt_qk_search *s, const float *x, ckpt_qk_run *out, int n,
                           bool absolute)
{
    qx_min m;
    qx_f inverse;
    float scale[8], low[8];

    qx_min_begin(&m, s, x, n);
    inverse = qx_div(qx_all((float)s->most), qx_sub(m.high, m.low));
    m.scale = _mm256_andnot_ps(m.flat, qx_div(qx_all(1), inverse));
    for (int i = 0; i < n; i++) {
        m.level[i] = qx_rint(qx_mul(inverse, qx_sub(m.x[i], m.low)), 0, s->most);
        m.level[i] = _mm256_andnot_ps(m.flat, m.level[i]);
    }
    m.best = qx_min_error(&m, m.level, m.scale, m.low, absolute, n);
    for (int k = 0; k <= s->steps; k++)
        qx_min_try(&m, s->from + s->by * (float)k + (float)s->most, s->most, absolute, n);
    _mm256_storeu_ps(scale, m.scale);
    _mm256_storeu_ps(low, qx_negative(m.low));
    for (int j = 0; j < 8; j++) {
        out[j].scale = scale[j];
        out[j].low = low[j];
    }
    for (int i = 0; i < n; i++)
        qx_store_level(&out[0].level[i], sizeof *out, m.level[i]);
}

QX_BODY
static void qx_fit_min(const ckpt_qk_search *s, const float *x, ckpt_qk_run *out)
{
    if (s->n == 16 && s->absolute)
        qx_min_runs(s, x, out, 16, true);
    else
        qx_min_runs(s, x, out, 32, false);
}

/* ---- runs around zero ---- */

/* The value with the largest magnitude of each run, the first of equals. */
QX_INLINE qx_f qx_signed_max(const qx_f *x)
{
    qx_f most = qx_all(0), value = qx_all(0);

    for (int i = 0; i < 16; i++) {
        const qx_f size = qx_abs(x[i]), more = qx_more(size, most);

        most = qx_pick(most, size, more);
        value = qx_pick(value, x[i], more);
    }
    return value;
}

/* Compute levels with an inverse scale, and their sums. */
QX_INLINE void qx_sums(const qx_f *x, qx_f inverse, int half, qx_f *level, qx_f sum[2])
{
    sum[0] = sum[1] = qx_all(0);
    for (int i = 0; i < 16; i++) {
        const qx_f w = qx_mul(x[i], x[i]);

        level[i] = qx_rint(qx_mul(inverse, x[i]), -half, half - 1);
        sum[0] = qx_add(sum[0], qx_mul(qx_mul(w, x[i]), level[i]));
        sum[1] = qx_add(sum[1], qx_mul(qx_mul(w, level[i]), level[i]));
    }
}

/* Store scales and levels; runs that are almost zero become 0. */
QX_INLINE void qx_put(qx_f scale, const qx_f *level, qx_f tiny, int half, float *out,
                      uint8_t *levels)
{
    _mm256_storeu_ps(out, _mm256_andnot_ps(tiny, scale));
    for (int i = 0; i < 16; i++)
        qx_store_level(levels + i, 16,
                       _mm256_andnot_ps(tiny, qx_add(level[i], qx_all((float)half))));
}

QX_BODY
static void qx_fit_sym(const float *x, float *out, uint8_t *levels)
{
    const qx_f zero = qx_all(0);
    qx_f v[16], level[16], other[16], sum[2], most, tiny, scale, best;

    for (int i = 0; i < 16; i++)
        v[i] = qx_load(x, 16, i);
    most = qx_signed_max(v);
    tiny = qx_more(qx_all(CKPT_QK_TINY), qx_abs(most));
    // their products would be subnormal, and slow
    for (int i = 0; i < 16; i++)
        v[i] = _mm256_andnot_ps(tiny, v[i]);
    qx_sums(v, qx_div(qx_all(-32.0f), most), 32, level, sum);
    scale = _mm256_and_ps(qx_div(sum[0], sum[1]), _mm256_cmp_ps(sum[1], zero, _CMP_NEQ_UQ));
    best = qx_mul(scale, sum[0]);
    for (int k = -9; k <= 9; k++) {
        qx_f won, next;

        if (k == 0)
            continue;
        qx_sums(v, qx_div(qx_all(-(32.0f + 0.1f * (float)k)), most), 32, other, sum);
        won = _mm256_and_ps(qx_more(sum[1], zero),
                            qx_more(qx_mul(sum[0], sum[0]), qx_mul(best, sum[1])));
        if (_mm256_movemask_ps(won) == 0)
            continue;
        next = qx_div(sum[0], sum[1]);
        scale = qx_pick(scale, next, won);
        best = qx_pick(best, qx_mul(next, sum[0]), won);
        for (int i = 0; i < 16; i++)
            level[i] = qx_pick(level[i], other[i], won);
    }
    qx_put(scale, level, tiny, 32, out, levels);
}

/* Try another level for one value in each run; true if some run changed. */
QX_INLINE bool qx_sweep_one(qx_f x, qx_f *level, qx_f sum[2])
{
    const qx_f zero = qx_all(0), w = qx_mul(x, x), wx = qx_mul(w, x);
    qx_f a = qx_sub(sum[0], qx_mul(wx, *level));
    qx_f b = qx_sub(sum[1], qx_mul(qx_mul(w, *level), *level));
    qx_f won = qx_more(a, zero);
    const qx_f next = qx_rint(qx_div(qx_mul(x, b), a), -4, 3);

    won = _mm256_and_ps(won, _mm256_cmp_ps(next, *level, _CMP_NEQ_UQ));
    a = qx_add(a, qx_mul(wx, next));
    b = qx_add(b, qx_mul(qx_mul(w, next), next));
    won = _mm256_and_ps(won, qx_more(b, zero));
    won = _mm256_and_ps(won,
                        qx_more(qx_mul(qx_mul(a, a), sum[1]), qx_mul(qx_mul(sum[0], sum[0]), b)));
    *level = qx_pick(*level, next, won);
    sum[0] = qx_pick(sum[0], a, won);
    sum[1] = qx_pick(sum[1], b, won);
    return _mm256_movemask_ps(won) != 0;
}

QX_BODY
static void qx_fit_sweep(const float *x, float *out, uint8_t *levels)
{
    qx_f v[16], level[16], sum[2], most, tiny;
    bool changed = true;

    for (int i = 0; i < 16; i++)
        v[i] = qx_load(x, 16, i);
    most = qx_signed_max(v);
    tiny = qx_more(qx_all(CKPT_QK_TINY), qx_abs(most));
    // their products would be subnormal, and slow
    for (int i = 0; i < 16; i++)
        v[i] = _mm256_andnot_ps(tiny, v[i]);
    qx_sums(v, qx_div(qx_all(-4.0f), most), 4, level, sum);
    // sweep all eight runs again while one of them changes; a sweep leaves the finished ones as
    // they are
    for (int sweep = 0; sweep < 5 && changed; sweep++) {
        changed = false;
        for (int i = 0; i < 16; i++)
            changed = qx_sweep_one(v[i], &level[i], sum) || changed;
    }
    qx_put(qx_div(sum[0], sum[1]), level, tiny, 4, out, levels);
}

/* Eight 32-bit integers to bytes. */
QX_INLINE void qx_bytes(uint8_t *to, qx_i n)
{
    const __m128i words =
        _mm_packs_epi32(_mm256_castsi256_si128(n), _mm256_extracti128_si256(n, 1));

    _mm_storel_epi64((__m128i *)(void *)to, _mm_packus_epi16(words, words));
}

QX_BODY
static void qx_level(uint8_t *to, const float *x, int n, const float step[2], const int range[2])
{
    const qx_f add = qx_all(step[1]), by = qx_all(step[0]);

    for (int i = 0; i < n; i += 8) {
        const qx_f v = qx_div(qx_add(_mm256_loadu_ps(x + i), add), by);

        qx_bytes(to + i, _mm256_sub_epi32(_mm256_cvttps_epi32(qx_rint(v, range[0], range[1])),
                                          _mm256_set1_epi32(range[0])));
    }
}

static const ckpt_qk_body qx_body = {qx_fit_min, qx_fit_sym, qx_fit_sweep, qx_level};

#define QX_K(name, type)                                                                           \
    static void name(void *restrict dst, const void *restrict src, size_t n)                       \
    {                                                                                              \
        ckpt_quant_k(type, &qx_body, dst, src, n);                                                 \
    }

QX_K(qx_q2_k, CKPT_Q2_K)
QX_K(qx_q3_k, CKPT_Q3_K)
QX_K(qx_q4_k, CKPT_Q4_K)
QX_K(qx_q5_k, CKPT_Q5_K)
QX_K(qx_q6_k, CKPT_Q6_K)

/* ---- blocks of 32 ---- */

/* Load a block; false: a value is NaN. */
QX_INLINE bool qx_block(const uint8_t *src, qx_f x[4])
{
    qx_f odd = qx_all(0);

    for (int i = 0; i < 4; i++) {
        x[i] = _mm256_loadu_ps((const float *)(const void *)(src + 32 * i));
        odd = _mm256_or_ps(odd, _mm256_cmp_ps(x[i], x[i], _CMP_UNORD_Q));
    }
    return _mm256_movemask_ps(odd) == 0;
}

/* The largest lane. */
QX_INLINE float qx_largest(qx_f v)
{
    __m128 m = _mm_max_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));

    m = _mm_max_ps(m, _mm_movehl_ps(m, m));
    m = _mm_max_ss(m, _mm_shuffle_ps(m, m, 1));
    return _mm_cvtss_f32(m);
}

QX_INLINE float qx_largest_size(const qx_f x[4])
{
    return qx_largest(_mm256_max_ps(_mm256_max_ps(qx_abs(x[0]), qx_abs(x[1])),
                                    _mm256_max_ps(qx_abs(x[2]), qx_abs(x[3]))));
}

/* Round halves away from zero; overflow gives the smallest int. */
QX_INLINE qx_i qx_round(qx_f x)
{
    const qx_f whole = _mm256_round_ps(x, _MM_FROUND_TO_ZERO | _MM_FROUND_NO_EXC);
    const qx_f far = _mm256_cmp_ps(qx_abs(qx_sub(x, whole)), qx_all(0.5f), _CMP_GE_OQ);
    const qx_f one = _mm256_or_ps(_mm256_and_ps(x, qx_all(-0.0f)), qx_all(1));

    return _mm256_cvttps_epi32(qx_add(whole, _mm256_and_ps(far, one)));
}

QX_BODY
static void qx_q8_0(void *restrict dst, const void *restrict src, size_t n)
{
    const uint8_t *from = src;
    uint8_t *to = dst;

    for (size_t i = 0; i < n; i += 32, from += 128, to += 34) {
        qx_f x[4];

        if (!qx_block(from, x)) {
            ckpt_quant_q8_0(to, from, 32);
            continue;
        }
        const float d = qx_largest_size(x) / 127.0f, inverse = d != 0.0f ? 1.0f / d : 0.0f;

        ckpt_half_put(to, d);
        for (int k = 0; k < 4; k++)
            qx_bytes(to + 2 + 8 * k, _mm256_and_si256(qx_round(qx_mul(x[k], qx_all(inverse))),
                                                      _mm256_set1_epi32(0xff)));
    }
}

/* The first value with this magnitude. */
QX_INLINE float qx_first(const uint8_t *src, const qx_f x[4], float size)
{
    float value = 0;

    for (int i = 0; i < 4; i++) {
        int at = _mm256_movemask_ps(_mm256_cmp_ps(qx_abs(x[i]), qx_all(size), _CMP_EQ_OQ));

        if (at != 0) {
            memcpy(&value, src + 32 * i + 4 * __builtin_ctz((unsigned)at), sizeof value);
            break;
        }
    }
    return size > 0 ? value : 0;
}

/* 32 levels: the low byte of each as a signed number, at most `most`. */
QX_INLINE void qx_levels(uint8_t *level, const qx_f v[4], int most)
{
    for (int k = 0; k < 4; k++) {
        qx_i n = _mm256_slli_epi32(_mm256_cvttps_epi32(v[k]), 24);

        n = _mm256_min_epi32(_mm256_srai_epi32(n, 24), _mm256_set1_epi32(most));
        qx_bytes(level + 8 * k, _mm256_and_si256(n, _mm256_set1_epi32(0xff)));
    }
}

/* Pack the low halves, values i and i + 16 in one byte, and bit 4 of each, by value. */
QX_INLINE void qx_pack(uint8_t *nibbles, uint8_t *bits, const uint8_t *level)
{
    const __m128i half = _mm_set1_epi8(0xf);
    const __m128i a = _mm_loadu_si128((const __m128i *)(const void *)level);
    const __m128i b = _mm_loadu_si128((const __m128i *)(const void *)(level + 16));
    const __m128i low = _mm_and_si128(a, half), high = _mm_slli_epi16(_mm_and_si128(b, half), 4);

    _mm_storeu_si128((__m128i *)(void *)nibbles, _mm_or_si128(low, high));
    if (bits) {
        const uint32_t all = (uint32_t)_mm_movemask_epi8(_mm_slli_epi16(a, 3)) |
                             (uint32_t)_mm_movemask_epi8(_mm_slli_epi16(b, 3)) << 16;

        memcpy(bits, &all, sizeof all);
    }
}

/* half and bytes are constants after inlining. */
QX_INLINE void qx_symmetric(uint8_t *to, const uint8_t *from, size_t n, int half, size_t bytes)
{
    for (size_t i = 0; i < n; i += 32, from += 128, to += bytes) {
        uint8_t level[32];
        qx_f x[4];

        if (!qx_block(from, x)) {
            (half == 8 ? ckpt_quant_q4_0 : ckpt_quant_q5_0)(to, from, 32);
            continue;
        }
        const float d = qx_first(from, x, qx_largest_size(x)) / (float)-half;
        const qx_f inverse = qx_all(d != 0.0f ? 1.0f / d : 0.0f);

        ckpt_half_put(to, d);
        for (int k = 0; k < 4; k++)
            x[k] = qx_add(qx_mul(x[k], inverse), qx_all((float)half + 0.5f));
        qx_levels(level, x, 2 * half - 1);
        qx_pack(to + (half == 8 ? 2 : 6), half == 8 ? NULL : to + 2, level);
    }
}

QX_BODY
static void qx_q4_0(void *restrict dst, const void *restrict src, size_t n)
{
    qx_symmetric(dst, src, n, 8, 18);
}

QX_BODY
static void qx_q5_0(void *restrict dst, const void *restrict src, size_t n)
{
    qx_symmetric(dst, src, n, 16, 22);
}

/* The same for most and bytes. */
QX_INLINE void qx_above(uint8_t *to, const uint8_t *from, size_t n, int most, size_t bytes)
{
    for (size_t i = 0; i < n; i += 32, from += 128, to += bytes) {
        uint8_t level[32];
        qx_f x[4], low;

        if (!qx_block(from, x)) {
            (most == 15 ? ckpt_quant_q4_1 : ckpt_quant_q5_1)(to, from, 32);
            continue;
        }
        low = _mm256_min_ps(_mm256_min_ps(x[0], x[1]), _mm256_min_ps(x[2], x[3]));
        // of zeros with both signs the portable body keeps the first
        const float least = -qx_largest(qx_negative(low));
        const float high =
            qx_largest(_mm256_max_ps(_mm256_max_ps(x[0], x[1]), _mm256_max_ps(x[2], x[3])));
        if (least == 0 || high == 0) {
            (most == 15 ? ckpt_quant_q4_1 : ckpt_quant_q5_1)(to, from, 32);
            continue;
        }
        const float d = (high - least) / (float)most, inverse = d != 0.0f ? 1.0f / d : 0.0f;

        ckpt_half_put(to, d);
        ckpt_half_put(to + 2, least);
        for (int k = 0; k < 4; k++)
            x[k] = qx_add(qx_mul(qx_sub(x[k], qx_all(least)), qx_all(inverse)), qx_all(0.5f));
        qx_levels(level, x, most == 15 ? most : 127);
        qx_pack(to + (most == 15 ? 4 : 8), most == 15 ? NULL : to + 4, level);
    }
}

QX_BODY
static void qx_q4_1(void *restrict dst, const void *restrict src, size_t n)
{
    qx_above(dst, src, n, 15, 20);
}

QX_BODY
static void qx_q5_1(void *restrict dst, const void *restrict src, size_t n)
{
    qx_above(dst, src, n, 31, 24);
}

ckpt_cast_fn ckpt_quant_find_x86(ckpt_dtype to)
{
    static const struct {
        ckpt_dtype to;
        ckpt_cast_fn fn;
    } table[] = {{CKPT_Q4_0, qx_q4_0}, {CKPT_Q4_1, qx_q4_1}, {CKPT_Q5_0, qx_q5_0},
                 {CKPT_Q5_1, qx_q5_1}, {CKPT_Q8_0, qx_q8_0}, {CKPT_Q2_K, qx_q2_k},
                 {CKPT_Q3_K, qx_q3_k}, {CKPT_Q4_K, qx_q4_k}, {CKPT_Q5_K, qx_q5_k},
                 {CKPT_Q6_K, qx_q6_k}};

    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        if (table[i].to == to)
            return table[i].fn;
    }
    return NULL;
}

#else

ckpt_cast_fn ckpt_quant_find_x86(ckpt_dtype to)
{
    (void)to;
    return NULL;
}

#endif
