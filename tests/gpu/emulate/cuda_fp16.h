/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cuda_fp16.h: half precision for the emulation: storage and conversions, rounding to nearest even.
 *
 * Arithmetic on halves is left out on purpose: this project computes in fp32.
 */
#ifndef ZT_EMULATE_CUDA_FP16_H
#define ZT_EMULATE_CUDA_FP16_H

#include "cuda_runtime.h"

struct __half {
    uint16_t bits;
};

struct alignas(4) __half2 {
    __half x, y;
};

typedef __half half;
typedef __half2 half2;

static inline float __half2float(__half h)
{
    unsigned sign = (unsigned)(h.bits & 0x8000u) << 16, rest = h.bits & 0x7fffu;
    if (rest >= 0x7c00u) { // infinite, NaN
        return __uint_as_float(sign | 0x7f800000u | (rest & 0x3ffu) << 13);
    }
    // the exponent's bias differs by 112: a product by 2^112 also makes subnormals normal
    float x = __uint_as_float(rest << 13) * 0x1p+112f;
    return __uint_as_float(__float_as_uint(x) | sign);
}

static inline __half __float2half_rn(float f)
{
    unsigned x = __float_as_uint(f), sign = x >> 16 & 0x8000u, a = x & 0x7fffffffu;
    if (a > 0x7f800000u) {
        return {(uint16_t)0x7fffu}; // the hardware's NaN
    }
    if (a >= 0x477ff000u) { // from 65520 on
        return {(uint16_t)(sign | 0x7c00u)};
    }
    if (a < 0x38800000u) { // below 2^-14: an addition rounds to multiples of 2^-24
        float y = __uint_as_float(a) + 0.5f;
        return {(uint16_t)(sign | (__float_as_uint(y) - 0x3f000000u))};
    }
    unsigned odd = a >> 13 & 1;
    return {(uint16_t)(sign | ((a - 0x38000000u + 0xfffu + odd) >> 13))};
}

static inline __half __float2half(float f)
{
    return __float2half_rn(f);
}

static inline __half2 __floats2half2_rn(float a, float b)
{
    return {__float2half_rn(a), __float2half_rn(b)};
}

static inline __half2 __float22half2_rn(float2 f)
{
    return __floats2half2_rn(f.x, f.y);
}

static inline float2 __half22float2(__half2 h)
{
    return make_float2(__half2float(h.x), __half2float(h.y));
}

static inline __half2 __halves2half2(__half a, __half b)
{
    return {a, b};
}

static inline float __low2float(__half2 h)
{
    return __half2float(h.x);
}

static inline float __high2float(__half2 h)
{
    return __half2float(h.y);
}

static inline unsigned short __half_as_ushort(__half h)
{
    return h.bits;
}

static inline __half __ushort_as_half(unsigned short x)
{
    return {x};
}

#endif
