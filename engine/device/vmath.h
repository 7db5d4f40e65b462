/* SPDX-License-Identifier: Apache-2.0 */
/*
 * vmath.h: implements fp32 functions over 16 elements at a time, in plain C, with the same bits on
 * every CPU.
 *
 * They use the vector extension that gcc and clang share.  They must be inlined into a function
 * marked ZT_CLONES, because that is compiled for wide registers as well.  No operation is fused,
 * and sums keep their order, so each clone gives the same bits.
 */
#ifndef ZT_DEVICE_VMATH_H
#define ZT_DEVICE_VMATH_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#define ZT_LANES 16u

typedef float zt_v __attribute__((vector_size(64)));
typedef int32_t zt_vi __attribute__((vector_size(64)));

/*
 * Marks a function that is compiled for wide registers as well; the loader chooses a version.  Off
 * under sanitizers, because the choice would run before they are ready, and under clang 14, because
 * it cannot link clones of an external function.
 */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || !defined(__x86_64__) ||       \
    defined(__clang__)
#define ZT_NO_CLONES 1
#endif

#ifdef ZT_NO_CLONES
#define ZT_CLONES
#else
#define ZT_CLONES __attribute__((target_clones("avx512f", "avx2", "default")))
#endif

#define ZT_INLINE static inline __attribute__((always_inline))

/* Values pass by address, because vector arguments have no fixed calling convention. */
ZT_INLINE void zt_v_load(zt_v *v, const float *p)
{
    memcpy(v, p, sizeof *v);
}

/* Store ZT_LANES floats at p, which may have any alignment. */
ZT_INLINE void zt_v_store(float *p, const zt_v *v)
{
    memcpy(p, v, sizeof *v);
}

/* Every lane = x. */
ZT_INLINE void zt_v_fill(zt_v *v, float x)
{
    for (unsigned i = 0; i < ZT_LANES; i++)
        (*v)[i] = x;
}

/* In each lane, v = mask ? a : v; mask lanes are 0 or -1. */
ZT_INLINE void zt_v_select(zt_v *v, const zt_vi *mask, const zt_v *a)
{
    zt_vi old, with;

    memcpy(&old, v, sizeof old);
    memcpy(&with, a, sizeof with);
    old = (old & ~*mask) | (with & *mask);
    memcpy(v, &old, sizeof old);
}

/* v = max(v, x); lanes with NaN in x keep v. */
ZT_INLINE void zt_v_max(zt_v *v, const zt_v *x)
{
    const zt_vi more = *x > *v;

    zt_v_select(v, &more, x);
}

/* Sum the lanes as a tree, so the order does not depend on the registers' width. */
ZT_INLINE float zt_v_sum(const zt_v *v)
{
    float t[ZT_LANES];

    zt_v_store(t, v);
    for (unsigned half = ZT_LANES / 2; half > 0; half /= 2) {
        for (unsigned i = 0; i < half; i++)
            t[i] += t[i + half];
    }
    return t[0];
}

/* The largest lane; undefined if a lane is NaN. */
ZT_INLINE float zt_v_top(const zt_v *v)
{
    float t[ZT_LANES];

    zt_v_store(t, v);
    for (unsigned half = ZT_LANES / 2; half > 0; half /= 2) {
        for (unsigned i = 0; i < half; i++)
            t[i] = t[i + half] > t[i] ? t[i + half] : t[i];
    }
    return t[0];
}

/*
 * x = exp(x), relative error below 1.5e-7; 0 below ln(2^-126), infinite above ln(2^128); NaN
 * stays NaN.
 *
 * Source  exp(x) = 2^n exp(r), n = round(x / ln 2), |r| <= ln(2) / 2; the polynomial is our minimax
 *         fit of (exp(r) - 1 - r) / r^2 (3.1e-9 of exp); ln 2 is split in two parts, the first with
 *         15 bits, so n times it is exact
 */
ZT_INLINE void zt_v_exp(zt_v *x)
{
    const zt_v at = *x;
    // 1.5 * 2^23: adding it leaves the nearest integer in the low bits
    const zt_v t = at * 0x1.715476p+0F + 0x1.8p+23F;
    const zt_v n = t - 0x1.8p+23F;
    const zt_v r = (at - n * 0x1.62e4p-1F) - n * 0x1.7f7d1cp-20F;
    zt_v y = ((0x1.6a23d0p-10F * r + 0x1.123a20p-7F) * r + 0x1.5558f2p-5F) * r + 0x1.555492p-3F;
    zt_v edge;
    zt_vi bits, power, mask;

    y = (y * r + 0x1.fffffcp-2F) * (r * r) + r + 1.0F;
    memcpy(&bits, &y, sizeof bits);
    memcpy(&power, &t, sizeof power);
    // multiply by 2^n: add n, below 2^8, to the exponent
    for (unsigned i = 0; i < ZT_LANES; i++)
        bits[i] = (int32_t)((uint32_t)bits[i] + ((uint32_t)power[i] << 23));
    memcpy(&y, &bits, sizeof y);
    zt_v_fill(&edge, 0.0F);
    mask = at < -0x1.5d589ep+6F;
    zt_v_select(&y, &mask, &edge);
    zt_v_fill(&edge, INFINITY);
    mask = at > 0x1.62e42ep+6F;
    zt_v_select(&y, &mask, &edge);
    mask = at != at;
    zt_v_select(&y, &mask, &at);
    *x = y;
}

/* y = |y| with the sign of x. */
ZT_INLINE void zt_v_sign(zt_v *y, const zt_v *x)
{
    zt_vi a, b;
    memcpy(&a, y, sizeof a);
    memcpy(&b, x, sizeof b);
    a = (a & 0x7fffffff) | (b & (-0x7fffffff - 1));
    memcpy(y, &a, sizeof a);
}

/* x = |x|, NaN and zeros included, by clearing the sign bit. */
ZT_INLINE void zt_v_abs(zt_v *x)
{
    zt_vi a;
    memcpy(&a, x, sizeof a);
    a &= 0x7fffffff;
    memcpy(x, &a, sizeof a);
}

/*
 * x = tanh(x), within 2 ulp; NaN stays NaN.
 *
 * Source  below 0.625: x + x^3 P(x^2), P is our minimax fit (4.2e-9 of tanh); above: 1 - 2 / (exp(2
 *         |x|) + 1)
 */
ZT_INLINE void zt_v_tanh(zt_v *x)
{
    zt_v at = *x, s = at * at, z = at, big;
    zt_v p = -5.717036561e-03F * s + 2.065057900e-02F;
    p = ((p * s - 5.374349526e-02F) * s + 1.333149125e-01F) * s - 3.333328392e-01F;
    zt_v y = at + at * s * p;
    zt_v_abs(&z);
    big = z + z;
    zt_v_exp(&big);
    big = 1.0F - 2.0F / (big + 1.0F);
    zt_v_sign(&big, &at);
    zt_vi mask = z >= 0.625F;
    zt_v_select(&y, &mask, &big);
    *x = y;
}

/*
 * x = erf(x), within 2 ulp; NaN stays NaN.
 *
 * Source  below 1: x + x P(x^2); above: 1 - exp(-|x| Q(|x|)), from 3.95 on 1.  P and Q are our
 *         minimax fits (1.2e-9 of erf, 5.5e-10)
 */
ZT_INLINE void zt_v_erf(zt_v *x)
{
    zt_v at = *x, s = at * at, z = at, limit = {0};
    zt_v p = (7.889119539e-05F * s - 8.020841281e-04F) * s + 5.189535339e-03F;
    p = (p * s - 2.685444459e-02F) * s + 1.128360018e-01F;
    p = (p * s - 3.761262714e-01F) * s + 1.283791659e-01F;
    zt_v y = at + at * p;
    zt_v_abs(&z);
    limit += 3.95F;
    zt_vi mask = z > limit;
    zt_v_select(&z, &mask, &limit);
    zt_v q = (1.257923228e-05F * z - 3.363403644e-04F) * z + 3.697695877e-03F;
    q = (q * z - 2.387934303e-02F) * z + 1.063736095e-01F;
    q = (q * z + 6.350682621e-01F) * z + 1.128669043e+00F;
    zt_v big = -(z * q);
    zt_v_exp(&big);
    big = 1.0F - big;
    zt_v_sign(&big, &at);
    mask = z >= 1.0F;
    zt_v_select(&y, &mask, &big);
    *x = y;
}

/* Load n < ZT_LANES floats (or a whole vector); missing lanes become 0. */
ZT_INLINE void zt_v_load_part(zt_v *v, const float *p, uint64_t n)
{
    if (n >= ZT_LANES) {
        zt_v_load(v, p);
        return;
    }
    float t[ZT_LANES] = {0};
    memcpy(t, p, n * sizeof *t);
    zt_v_load(v, t);
}

/* Store the first n lanes, or all if n is ZT_LANES or more. */
ZT_INLINE void zt_v_store_part(float *p, const zt_v *v, uint64_t n)
{
    // two calls, because a constant length compiles to one store
    if (n >= ZT_LANES)
        zt_v_store(p, v);
    else
        memcpy(p, v, n * sizeof *p);
}

#endif
