/* SPDX-License-Identifier: Apache-2.0 */
/*
 * quant.h: converts F32 to ggml's quantized types with its reference quantizers, bit for bit, and
 * back. Private to base/: cast.h finds these with all other conversions.
 *
 * n_elems is a multiple of the type's block. The arithmetic is that of ggml on x86-64, in F32 and
 * in its order, without contraction (-ffp-contract=off), so that even values that are not finite
 * give the same bits, although they are meaningless. Sources: ggml-quants.c and its blocks.
 */
#ifndef CKPT_BASE_QUANT_H
#define CKPT_BASE_QUANT_H

#include <math.h>

#include "libckpt/base/cast.h"

/* Convert n_elems of F32 to blocks, for the types that ckpt writes. */
void ckpt_quant_q4_0(void *restrict dst, const void *restrict src, size_t n_elems);
void ckpt_quant_q4_1(void *restrict dst, const void *restrict src, size_t n_elems);
void ckpt_quant_q5_0(void *restrict dst, const void *restrict src, size_t n_elems);
void ckpt_quant_q5_1(void *restrict dst, const void *restrict src, size_t n_elems);
void ckpt_quant_q8_0(void *restrict dst, const void *restrict src, size_t n_elems);
void ckpt_quant_q2_k(void *restrict dst, const void *restrict src, size_t n_elems);
void ckpt_quant_q3_k(void *restrict dst, const void *restrict src, size_t n_elems);
void ckpt_quant_q4_k(void *restrict dst, const void *restrict src, size_t n_elems);
void ckpt_quant_q5_k(void *restrict dst, const void *restrict src, size_t n_elems);
void ckpt_quant_q6_k(void *restrict dst, const void *restrict src, size_t n_elems);
void ckpt_quant_mxfp4(void *restrict dst, const void *restrict src, size_t n_elems);

/*
 * Pack the low halves of 32 levels, values i and i + 16 in one byte, and, unless bits is NULL, bit
 * 4 of each, by value.
 */
void ckpt_quant_pack(uint8_t *nibbles, uint8_t *bits, const uint8_t *level);

/* Convert blocks to F32, for every type without code books; NULL: none. */
ckpt_cast_fn ckpt_dequant_find(ckpt_dtype from);

/* Half of the scale of MXFP4 that a byte encodes, because ggml doubles the values of E2M1. */
float ckpt_quant_e8m0_half(uint8_t byte);

/* F16 to and from F32, one value. */
float ckpt_half_get(const uint8_t *p);
void ckpt_half_put(uint8_t *p, float x);

/* The nearest integer, ties to even, computed by adding and taking the low bits, then clamped. */
static inline int ckpt_quant_rint(float x, int low, int high)
{
    union {
        float f;
        uint32_t u;
    } v = {x + 12582912.0f};
    int n = (int)(v.u & 0x007fffff) - 0x00400000;

    return n < low ? low : n > high ? high : n;
}

/* The value with the largest magnitude, the first of equals, with its sign. */
static inline float ckpt_quant_signed_max(const float *x, int n)
{
    float most = 0, value = 0;

    for (int i = 0; i < n; i++) {
        if (most < fabsf(x[i])) {
            most = fabsf(x[i]);
            value = x[i];
        }
    }
    return value;
}

#endif
