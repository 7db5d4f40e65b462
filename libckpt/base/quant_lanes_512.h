/* SPDX-License-Identifier: Apache-2.0 */
/*
 * quant_lanes_512.h: has the AVX-512 operations of quant_k_search.h. Private to base/, for x86-64.
 */
#ifndef CKPT_BASE_QUANT_LANES_512_H
#define CKPT_BASE_QUANT_LANES_512_H

#include <stdbool.h>
#include <stddef.h>

#include "libckpt/base/quant_lanes.h"

#define QL_BODY   __attribute__((target("avx512f")))
#define QL_INLINE static inline __attribute__((always_inline, target("avx512f")))

typedef __m512 ql_f;
typedef __mmask16 ql_m;

/* Sixteen equal floats. */
QL_INLINE ql_f ql_all(float x)
{
    return _mm512_set1_ps(x);
}

/* x + y. */
QL_INLINE ql_f ql_add(ql_f x, ql_f y)
{
    return _mm512_add_ps(x, y);
}

/* x - y. */
QL_INLINE ql_f ql_sub(ql_f x, ql_f y)
{
    return _mm512_sub_ps(x, y);
}

/* x * y. */
QL_INLINE ql_f ql_mul(ql_f x, ql_f y)
{
    return _mm512_mul_ps(x, y);
}

/* x / y. */
QL_INLINE ql_f ql_div(ql_f x, ql_f y)
{
    return _mm512_div_ps(x, y);
}

/* The smaller values; y if one is NaN. */
QL_INLINE ql_f ql_least(ql_f x, ql_f y)
{
    return _mm512_min_ps(x, y);
}

/* The larger values; y if one is NaN. */
QL_INLINE ql_f ql_most(ql_f x, ql_f y)
{
    return _mm512_max_ps(x, y);
}

/* Square roots. */
QL_INLINE ql_f ql_sqrt(ql_f x)
{
    return _mm512_sqrt_ps(x);
}

/* Magnitudes. */
QL_INLINE ql_f ql_abs(ql_f x)
{
    return _mm512_abs_ps(x);
}

/* x > y; false if one is NaN. */
QL_INLINE ql_m ql_more(ql_f x, ql_f y)
{
    return _mm512_cmp_ps_mask(x, y, _CMP_GT_OQ);
}

/* x >= y; false if one is NaN. */
QL_INLINE ql_m ql_at_least(ql_f x, ql_f y)
{
    return _mm512_cmp_ps_mask(x, y, _CMP_GE_OQ);
}

/* x == y; false if one is NaN. */
QL_INLINE ql_m ql_equal(ql_f x, ql_f y)
{
    return _mm512_cmp_ps_mask(x, y, _CMP_EQ_OQ);
}

/* x != y; true if one is NaN. */
QL_INLINE ql_m ql_unlike(ql_f x, ql_f y)
{
    return _mm512_cmp_ps_mask(x, y, _CMP_NEQ_UQ);
}

/* Lanes of both masks. */
QL_INLINE ql_m ql_both(ql_m x, ql_m y)
{
    return (ql_m)(x & y);
}

/* Lanes of one mask or both. */
QL_INLINE ql_m ql_either(ql_m x, ql_m y)
{
    return (ql_m)(x | y);
}

/* Lanes of y that x lacks. */
QL_INLINE ql_m ql_except(ql_m x, ql_m y)
{
    return (ql_m)(y & ~x);
}

/* True if a lane is set. */
QL_INLINE bool ql_any(ql_m mask)
{
    return mask != 0;
}

/* True if all lanes are set. */
QL_INLINE bool ql_every(ql_m mask)
{
    return mask == 0xffff;
}

/* y where the mask is set, else x. */
QL_INLINE ql_f ql_pick(ql_f x, ql_f y, ql_m mask)
{
    return _mm512_mask_blend_ps(mask, x, y);
}

/* x where the mask is set, else 0. */
QL_INLINE ql_f ql_where(ql_m mask, ql_f x)
{
    return _mm512_maskz_mov_ps(mask, x);
}

/* x where the mask is not set, else 0. */
QL_INLINE ql_f ql_without(ql_m mask, ql_f x)
{
    return _mm512_maskz_mov_ps((ql_m)~mask, x);
}

/* Limit numbers from below by 0, as integers (see ql_from_zero of quant_x86_k.c). */
QL_INLINE ql_f ql_from_zero(ql_f x)
{
    return _mm512_castsi512_ps(_mm512_max_epi32(_mm512_castps_si512(x), _mm512_setzero_si512()));
}

/* Limit numbers from above by a positive number. */
QL_INLINE ql_f ql_up_to(ql_f x, float high)
{
    return _mm512_castsi512_ps(
        _mm512_min_epi32(_mm512_castps_si512(x), _mm512_castps_si512(ql_all(high))));
}

/* Limit numbers from below by a negative number. */
QL_INLINE ql_f ql_down_to(ql_f x, float low)
{
    return _mm512_castsi512_ps(
        _mm512_min_epu32(_mm512_castps_si512(x), _mm512_castps_si512(ql_all(low))));
}

// without optimization this intrinsic is a macro, whose mask changes its sign
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wsign-conversion"

/* The nearest integer, ties to even. */
QL_INLINE ql_f ql_round(ql_f x)
{
    return _mm512_roundscale_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}

#pragma GCC diagnostic pop

/* The first eight lanes. */
QL_INLINE qx_f ql_first(ql_f x)
{
    return _mm512_castps512_ps256(x);
}

/* The last eight lanes. */
QL_INLINE qx_f ql_second(ql_f x)
{
    return _mm256_castpd_ps(_mm512_extractf64x4_pd(_mm512_castps_pd(x), 1));
}

/* Sixteen lanes of two times eight. */
QL_INLINE ql_f ql_of(qx_f first, qx_f second)
{
    return _mm512_castpd_ps(_mm512_insertf64x4(_mm512_castps_pd(_mm512_castps256_ps512(first)),
                                               _mm256_castps_pd(second), 1));
}

/* ckpt_quant_rint of values of any size, as floats. */
QL_INLINE ql_f ql_rint(ql_f x, int low, int high)
{
    return ql_of(qx_rint(ql_first(x), low, high), qx_rint(ql_second(x), low, high));
}

/* Store sixteen floats. */
QL_INLINE void ql_put(float *to, ql_f x)
{
    _mm512_storeu_ps(to, x);
}

/* Load sixteen runs of n values, value i of each run to to[i]. */
QL_INLINE void ql_load(ql_f *to, const float *x, int n)
{
    for (int i = 0; i < n; i += 8) {
        qx_f a[8], b[8];

        for (int j = 0; j < 8; j++) {
            a[j] = _mm256_loadu_ps(x + n * j + i);
            b[j] = _mm256_loadu_ps(x + n * (j + 8) + i);
        }
        qx_transpose(a);
        qx_transpose(b);
        for (int j = 0; j < 8; j++)
            to[i + j] = ql_of(a[j], b[j]);
    }
}

/* Store levels of sixteen runs as bytes, those of a run together, and runs `by` bytes apart. */
QL_INLINE void ql_store(uint8_t *to, size_t by, const ql_f *level, int n)
{
    for (int i = 0; i < n; i += 8) {
        qx_f a[8], b[8];

        for (int j = 0; j < 8; j++) {
            a[j] = ql_first(level[i + j]);
            b[j] = ql_second(level[i + j]);
        }
        qx_transpose(a);
        qx_transpose(b);
        for (int j = 0; j < 8; j++) {
            qx_bytes(to + (size_t)j * by + i, _mm256_cvttps_epi32(a[j]));
            qx_bytes(to + (size_t)(j + 8) * by + i, _mm256_cvttps_epi32(b[j]));
        }
    }
}

#endif
