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

/* Eight 32-bit integers to bytes. */
QX_INLINE void qx_bytes(uint8_t *to, qx_i n)
{
    const __m128i words =
        _mm_packs_epi32(_mm256_castsi256_si128(n), _mm256_extracti128_si256(n, 1));

    _mm_storel_epi64((__m128i *)(void *)to, _mm_packus_epi16(words, words));
}

#endif
