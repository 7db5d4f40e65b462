/* SPDX-License-Identifier: Apache-2.0 */
/*
 * quant_x86_k.c: implements the K-quantizers' search of scales with AVX2: sixteen lanes are two
 * registers.
 */
#include "libckpt/base/quant_k.h"

#if defined(__x86_64__)

#include "libckpt/base/quant_lanes.h"

/* The values of sixteen runs. */
typedef struct ql_f {
    qx_f a, b;
} ql_f;

typedef ql_f ql_m; /* all bits of a lane */

QX_INLINE ql_f ql_all(float x)
{
    return (ql_f){qx_all(x), qx_all(x)};
}

QX_INLINE ql_f ql_add(ql_f x, ql_f y)
{
    return (ql_f){qx_add(x.a, y.a), qx_add(x.b, y.b)};
}

QX_INLINE ql_f ql_sub(ql_f x, ql_f y)
{
    return (ql_f){qx_sub(x.a, y.a), qx_sub(x.b, y.b)};
}

QX_INLINE ql_f ql_mul(ql_f x, ql_f y)
{
    return (ql_f){qx_mul(x.a, y.a), qx_mul(x.b, y.b)};
}

QX_INLINE ql_f ql_div(ql_f x, ql_f y)
{
    return (ql_f){qx_div(x.a, y.a), qx_div(x.b, y.b)};
}

QX_INLINE ql_f ql_sqrt(ql_f x)
{
    return (ql_f){_mm256_sqrt_ps(x.a), _mm256_sqrt_ps(x.b)};
}

QX_INLINE ql_f ql_abs(ql_f x)
{
    return (ql_f){qx_abs(x.a), qx_abs(x.b)};
}

QX_INLINE ql_f ql_least(ql_f x, ql_f y)
{
    return (ql_f){_mm256_min_ps(x.a, y.a), _mm256_min_ps(x.b, y.b)};
}

QX_INLINE ql_f ql_most(ql_f x, ql_f y)
{
    return (ql_f){_mm256_max_ps(x.a, y.a), _mm256_max_ps(x.b, y.b)};
}

QX_INLINE ql_m ql_both(ql_m x, ql_m y)
{
    return (ql_m){_mm256_and_ps(x.a, y.a), _mm256_and_ps(x.b, y.b)};
}

QX_INLINE ql_m ql_either(ql_m x, ql_m y)
{
    return (ql_m){_mm256_or_ps(x.a, y.a), _mm256_or_ps(x.b, y.b)};
}

QX_INLINE ql_f ql_where(ql_m mask, ql_f x)
{
    return ql_both(mask, x);
}

QX_INLINE ql_f ql_without(ql_m mask, ql_f x)
{
    return (ql_f){_mm256_andnot_ps(mask.a, x.a), _mm256_andnot_ps(mask.b, x.b)};
}

QX_INLINE ql_m ql_except(ql_m x, ql_m y)
{
    return ql_without(x, y);
}

QX_INLINE ql_m ql_more(ql_f x, ql_f y)
{
    return (ql_m){qx_more(x.a, y.a), qx_more(x.b, y.b)};
}

QX_INLINE ql_m ql_at_least(ql_f x, ql_f y)
{
    return (ql_m){_mm256_cmp_ps(x.a, y.a, _CMP_GE_OQ), _mm256_cmp_ps(x.b, y.b, _CMP_GE_OQ)};
}

QX_INLINE ql_m ql_equal(ql_f x, ql_f y)
{
    return (ql_m){_mm256_cmp_ps(x.a, y.a, _CMP_EQ_OQ), _mm256_cmp_ps(x.b, y.b, _CMP_EQ_OQ)};
}

QX_INLINE ql_m ql_unlike(ql_f x, ql_f y)
{
    return (ql_m){_mm256_cmp_ps(x.a, y.a, _CMP_NEQ_UQ), _mm256_cmp_ps(x.b, y.b, _CMP_NEQ_UQ)};
}

QX_INLINE ql_f ql_pick(ql_f x, ql_f y, ql_m mask)
{
    return (ql_f){_mm256_blendv_ps(x.a, y.a, mask.a), _mm256_blendv_ps(x.b, y.b, mask.b)};
}

QX_INLINE ql_f ql_of_ints(qx_i a, qx_i b)
{
    return (ql_f){_mm256_castsi256_ps(a), _mm256_castsi256_ps(b)};
}

/*
 * Limit numbers: from below by 0, from above by a positive number, from below by a negative one. As
 * integers, floats above 0 are in order, and as unsigned ones those below 0, the largest magnitude
 * last; and more ports of the processor compare integers.
 */
QX_INLINE ql_f ql_from_zero(ql_f x)
{
    const qx_i zero = _mm256_setzero_si256();

    return ql_of_ints(_mm256_max_epi32(_mm256_castps_si256(x.a), zero),
                      _mm256_max_epi32(_mm256_castps_si256(x.b), zero));
}

QX_INLINE ql_f ql_up_to(ql_f x, float high)
{
    const qx_i most = _mm256_castps_si256(qx_all(high));

    return ql_of_ints(_mm256_min_epi32(_mm256_castps_si256(x.a), most),
                      _mm256_min_epi32(_mm256_castps_si256(x.b), most));
}

QX_INLINE ql_f ql_down_to(ql_f x, float low)
{
    const qx_i most = _mm256_castps_si256(qx_all(low));

    return ql_of_ints(_mm256_min_epu32(_mm256_castps_si256(x.a), most),
                      _mm256_min_epu32(_mm256_castps_si256(x.b), most));
}

/* The nearest integer, ties to even. */
QX_INLINE ql_f ql_round(ql_f x)
{
    return (ql_f){_mm256_round_ps(x.a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC),
                  _mm256_round_ps(x.b, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)};
}

QX_INLINE bool ql_any(ql_m mask)
{
    return _mm256_movemask_ps(_mm256_or_ps(mask.a, mask.b)) != 0;
}

QX_INLINE bool ql_every(ql_m mask)
{
    return _mm256_movemask_ps(_mm256_and_ps(mask.a, mask.b)) == 0xff;
}

/* ---- order of values in memory ---- */

/* Load sixteen runs of n values, value i of each run to to[i]. */
QX_INLINE void ql_load(ql_f *to, const float *x, int n)
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
            to[i + j] = (ql_f){a[j], b[j]};
    }
}

/* Store levels of sixteen runs as bytes, those of a run together, and runs `by` bytes apart. */
QX_INLINE void ql_store(uint8_t *to, size_t by, const ql_f *level, int n)
{
    for (int i = 0; i < n; i += 8) {
        qx_f a[8], b[8];

        for (int j = 0; j < 8; j++) {
            a[j] = level[i + j].a;
            b[j] = level[i + j].b;
        }
        qx_transpose(a);
        qx_transpose(b);
        for (int j = 0; j < 8; j++) {
            qx_bytes(to + (size_t)j * by + i, _mm256_cvttps_epi32(a[j]));
            qx_bytes(to + (size_t)(j + 8) * by + i, _mm256_cvttps_epi32(b[j]));
        }
    }
}

QX_INLINE void ql_put(float *to, ql_f x)
{
    _mm256_storeu_ps(to, x.a);
    _mm256_storeu_ps(to + 8, x.b);
}

QX_INLINE ql_f ql_rint(ql_f x, int low, int high)
{
    return (ql_f){qx_rint(x.a, low, high), qx_rint(x.b, low, high)};
}

#define QL_BODY   QX_BODY
#define QL_INLINE QX_INLINE
#include "libckpt/base/quant_k_search.h"

QX_BODY
static void ql_level(uint8_t *to, const float *x, int n, const float step[2], const int range[2])
{
    const qx_f add = qx_all(step[1]), by = qx_all(step[0]);

    for (int i = 0; i < n; i += 8) {
        const qx_f v = qx_div(qx_add(_mm256_loadu_ps(x + i), add), by);

        qx_bytes(to + i, _mm256_sub_epi32(_mm256_cvttps_epi32(qx_rint(v, range[0], range[1])),
                                          _mm256_set1_epi32(range[0])));
    }
}

const ckpt_qk_body ckpt_qk_x86 = {ql_fit_min, ql_fit_sym, ql_fit_sweep, ql_level};

#endif
