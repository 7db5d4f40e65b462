/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cuda_bf16.h: bfloat16 for the emulation: storage and conversions, rounding to nearest even.
 */
#ifndef ZT_EMULATE_CUDA_BF16_H
#define ZT_EMULATE_CUDA_BF16_H

#include "cuda_runtime.h"

struct __nv_bfloat16 {
    uint16_t bits;
};

struct alignas(4) __nv_bfloat162 {
    __nv_bfloat16 x, y;
};

typedef __nv_bfloat16 nv_bfloat16;
typedef __nv_bfloat162 nv_bfloat162;

static inline float __bfloat162float(__nv_bfloat16 b)
{
    return __uint_as_float((unsigned)b.bits << 16);
}

static inline __nv_bfloat16 __float2bfloat16_rn(float f)
{
    unsigned x = __float_as_uint(f);
    if ((x & 0x7fffffffu) > 0x7f800000u) {
        return {(uint16_t)0x7fffu}; // the hardware's NaN
    }
    return {(uint16_t)((x + 0x7fffu + (x >> 16 & 1)) >> 16)};
}

static inline __nv_bfloat16 __float2bfloat16(float f)
{
    return __float2bfloat16_rn(f);
}

static inline __nv_bfloat162 __floats2bfloat162_rn(float a, float b)
{
    return {__float2bfloat16_rn(a), __float2bfloat16_rn(b)};
}

static inline __nv_bfloat162 __float22bfloat162_rn(float2 f)
{
    return __floats2bfloat162_rn(f.x, f.y);
}

static inline float2 __bfloat1622float2(__nv_bfloat162 b)
{
    return make_float2(__bfloat162float(b.x), __bfloat162float(b.y));
}

static inline __nv_bfloat162 __halves2bfloat162(__nv_bfloat16 a, __nv_bfloat16 b)
{
    return {a, b};
}

static inline float __low2float(__nv_bfloat162 b)
{
    return __bfloat162float(b.x);
}

static inline float __high2float(__nv_bfloat162 b)
{
    return __bfloat162float(b.y);
}

static inline unsigned short __bfloat16_as_ushort(__nv_bfloat16 b)
{
    return b.bits;
}

static inline __nv_bfloat16 __ushort_as_bfloat16(unsigned short x)
{
    return {x};
}

#endif
