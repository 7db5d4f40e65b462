/* SPDX-License-Identifier: Apache-2.0 */
/*
 * quant_lanes.h: has AVX2 operations that the quantizers of both block sizes use. Private to base/,
 * for x86-64.
 */
#ifndef CKPT_BASE_QUANT_LANES_H
#define CKPT_BASE_QUANT_LANES_H

#include <immintrin.h>
#include <stdint.h>

#define QX_BODY   __attribute__((target("avx2")))
#define QX_INLINE static inline __attribute__((always_inline, target("avx2")))

typedef __m256 qx_f;
typedef __m256i qx_i;

/* Eight equal floats. */
QX_INLINE qx_f qx_all(float x)
{
    return _mm256_set1_ps(x);
}

/* Magnitudes. */
QX_INLINE qx_f qx_abs(qx_f x)
{
    return _mm256_andnot_ps(qx_all(-0.0f), x);
}

/* a + b. */
QX_INLINE qx_f qx_add(qx_f a, qx_f b)
{
    return _mm256_add_ps(a, b);
}

/* a - b. */
QX_INLINE qx_f qx_sub(qx_f a, qx_f b)
{
    return _mm256_sub_ps(a, b);
}

/* a * b. */
QX_INLINE qx_f qx_mul(qx_f a, qx_f b)
{
    return _mm256_mul_ps(a, b);
}

/* a / b. */
QX_INLINE qx_f qx_div(qx_f a, qx_f b)
{
    return _mm256_div_ps(a, b);
}

/* A mask: a > b; false if one is NaN. */
QX_INLINE qx_f qx_more(qx_f a, qx_f b)
{
    return _mm256_cmp_ps(a, b, _CMP_GT_OQ);
}

/* Exchange rows and columns of eight registers. */
QX_INLINE void qx_transpose(qx_f r[8])
{
    qx_f t[8], u[8];

    for (int i = 0; i < 8; i += 2) {
        t[i] = _mm256_unpacklo_ps(r[i], r[i + 1]);
        t[i + 1] = _mm256_unpackhi_ps(r[i], r[i + 1]);
    }
    for (int i = 0; i < 8; i += 4) {
        for (int k = 0; k < 2; k++) {
            u[i + 2 * k] = _mm256_shuffle_ps(t[i + k], t[i + k + 2], 0x44);
            u[i + 2 * k + 1] = _mm256_shuffle_ps(t[i + k], t[i + k + 2], 0xee);
        }
    }
    for (int i = 0; i < 4; i++) {
        r[i] = _mm256_permute2f128_ps(u[i], u[i + 4], 0x20);
        r[i + 4] = _mm256_permute2f128_ps(u[i], u[i + 4], 0x31);
    }
}

/* ckpt_quant_rint of eight values of any size, as floats. */
QX_INLINE qx_f qx_rint(qx_f x, int low, int high)
{
    qx_i n = _mm256_castps_si256(qx_add(x, qx_all(12582912.0f)));

    n = _mm256_sub_epi32(_mm256_and_si256(n, _mm256_set1_epi32(0x007fffff)),
                         _mm256_set1_epi32(0x00400000));
    n = _mm256_min_epi32(_mm256_max_epi32(n, _mm256_set1_epi32(low)), _mm256_set1_epi32(high));
    return _mm256_cvtepi32_ps(n);
}

/* Eight 32-bit integers to bytes. */
QX_INLINE void qx_bytes(uint8_t *to, qx_i n)
{
    const __m128i words =
        _mm_packs_epi32(_mm256_castsi256_si128(n), _mm256_extracti128_si256(n, 1));

    _mm_storel_epi64((__m128i *)(void *)to, _mm_packus_epi16(words, words));
}

#endif
