/* SPDX-License-Identifier: Apache-2.0 */
/*
 * quant_x86.c: implements ggml's quantizers of blocks of 32 with AVX2.
 *
 * The order of maxima only matters if values are NaN, and such blocks go to the portable body. No
 * operation is fused, because the target has no FMA.
 */
#include "libckpt/base/quant_x86.h"

#if defined(__x86_64__)

#include <string.h>

#include "libckpt/base/quant_k.h"
#include "libckpt/base/quant_lanes.h"

QX_INLINE qx_f qx_negative(qx_f x)
{
    return _mm256_xor_ps(qx_all(-0.0f), x);
}

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

#define QX_K(name, type)                                                                           \
    static void name(void *restrict dst, const void *restrict src, size_t n)                       \
    {                                                                                              \
        ckpt_quant_k(type, ckpt_qk_body_at(0), dst, src, NULL, n);                                 \
    }

QX_K(qx_q2_k, CKPT_Q2_K)
QX_K(qx_q3_k, CKPT_Q3_K)
QX_K(qx_q4_k, CKPT_Q4_K)
QX_K(qx_q5_k, CKPT_Q5_K)
QX_K(qx_q6_k, CKPT_Q6_K)

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
