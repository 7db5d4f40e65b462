/* SPDX-License-Identifier: Apache-2.0 */
/*
 * quant.c: quantizes to block types of 32 values with one scale (Q4_0, Q4_1, Q5_0, Q5_1, Q8_0,
 * MXFP4).
 *
 * The values are divided by the unrounded scale, which is stored as F16; MXFP4 has powers of two.
 * Sources: ggml-quants.c, quantize_row_q4_0_ref and its variants.
 */
#include "libckpt/base/quant.h"

#include <math.h>
#include <string.h>

enum { QT_BLOCK = 32 };

float ckpt_half_get(const uint8_t *p)
{
    float x;

    ckpt_cast_find_portable(CKPT_F32, CKPT_F16)(&x, p, 1);
    return x;
}

void ckpt_half_put(uint8_t *p, float x)
{
    ckpt_cast_find_portable(CKPT_F16, CKPT_F32)(p, &x, 1);
}

float ckpt_quant_e8m0_half(uint8_t byte)
{
    const uint32_t bits = byte < 2 ? UINT32_C(0x00200000) << byte : (uint32_t)(byte - 1) << 23;
    float x;

    memcpy(&x, &bits, sizeof x);
    return x;
}

/* Convert to an integer like x86: overflow gives the smallest int. */
static int32_t qt_int(float x)
{
    return x >= -2147483648.0f && x < 2147483648.0f ? (int32_t)x : INT32_MIN;
}

/* The low byte of the integer as a signed number, at most `most`. */
static int qt_level(float x, int most)
{
    int low = (int)((uint32_t)qt_int(x) & 0xff);
    int q = low < 128 ? low : low - 256;

    return q < most ? q : most;
}

static void qt_range(const float *x, float *low, float *high)
{
    *low = 3.402823466e+38f;
    *high = -*low;
    for (int i = 0; i < QT_BLOCK; i++) {
        *low = x[i] < *low ? x[i] : *low;
        *high = x[i] > *high ? x[i] : *high;
    }
}

void ckpt_quant_pack(uint8_t *nibbles, uint8_t *bits, const uint8_t *level)
{
    for (int i = 0; i < QT_BLOCK / 2; i++)
        nibbles[i] = (uint8_t)((level[i] & 0xf) | (level[i + 16] & 0xf) << 4);
    if (!bits)
        return;
    memset(bits, 0, QT_BLOCK / 8);
    for (int i = 0; i < QT_BLOCK; i++)
        bits[i / 8] |= (uint8_t)((level[i] >> 4 & 1) << i % 8);
}

/* Quantize a block to levels around zero: d = v / -half, level = trunc(x / d + half + 0.5). */
static void qt_symmetric(uint8_t *to, const float *x, int half)
{
    uint8_t level[QT_BLOCK];
    const float d = ckpt_quant_signed_max(x, QT_BLOCK) / (float)-half,
                inverse = d != 0.0f ? 1.0f / d : 0.0f;
    const float shift = (float)half + 0.5f;

    ckpt_half_put(to, d);
    for (int i = 0; i < QT_BLOCK; i++)
        level[i] = (uint8_t)qt_level(x[i] * inverse + shift, 2 * half - 1);
    ckpt_quant_pack(to + (half == 8 ? 2 : 6), half == 8 ? NULL : to + 2, level);
}

/*
 * Quantize a block to levels above the smallest value: d = (max - min) / most, level = trunc((x -
 * min) / d + 0.5).
 */
static void qt_above(uint8_t *to, const float *x, int most)
{
    uint8_t level[QT_BLOCK];
    float low, high;

    qt_range(x, &low, &high);
    const float d = (high - low) / (float)most, inverse = d != 0.0f ? 1.0f / d : 0.0f;

    ckpt_half_put(to, d);
    ckpt_half_put(to + 2, low);
    for (int i = 0; i < QT_BLOCK; i++) {
        const float v = (x[i] - low) * inverse + 0.5f;

        // limit only levels of four bits, as ggml does; those of five bits cannot exceed 31
        level[i] = (uint8_t)qt_level(v, most == 15 ? most : 127);
    }
    ckpt_quant_pack(to + (most == 15 ? 4 : 8), most == 15 ? NULL : to + 4, level);
}

void ckpt_quant_q4_0(void *restrict dst, const void *restrict src, size_t n_elems)
{
    uint8_t *to = dst;
    float x[QT_BLOCK];

    for (size_t i = 0; i < n_elems; i += QT_BLOCK, to += 18) {
        memcpy(x, (const uint8_t *)src + i * sizeof *x, sizeof x);
        qt_symmetric(to, x, 8);
    }
}

void ckpt_quant_q5_0(void *restrict dst, const void *restrict src, size_t n_elems)
{
    uint8_t *to = dst;
    float x[QT_BLOCK];

    for (size_t i = 0; i < n_elems; i += QT_BLOCK, to += 22) {
        memcpy(x, (const uint8_t *)src + i * sizeof *x, sizeof x);
        qt_symmetric(to, x, 16);
    }
}

void ckpt_quant_q4_1(void *restrict dst, const void *restrict src, size_t n_elems)
{
    uint8_t *to = dst;
    float x[QT_BLOCK];

    for (size_t i = 0; i < n_elems; i += QT_BLOCK, to += 20) {
        memcpy(x, (const uint8_t *)src + i * sizeof *x, sizeof x);
        qt_above(to, x, 15);
    }
}

void ckpt_quant_q5_1(void *restrict dst, const void *restrict src, size_t n_elems)
{
    uint8_t *to = dst;
    float x[QT_BLOCK];

    for (size_t i = 0; i < n_elems; i += QT_BLOCK, to += 24) {
        memcpy(x, (const uint8_t *)src + i * sizeof *x, sizeof x);
        qt_above(to, x, 31);
    }
}

void ckpt_quant_q8_0(void *restrict dst, const void *restrict src, size_t n_elems)
{
    uint8_t *to = dst;
    float x[QT_BLOCK];

    for (size_t i = 0; i < n_elems; i += QT_BLOCK, to += 34) {
        float most = 0;

        memcpy(x, (const uint8_t *)src + i * sizeof *x, sizeof x);
        for (int k = 0; k < QT_BLOCK; k++)
            most = most > fabsf(x[k]) ? most : fabsf(x[k]);
        const float d = most / 127.0f, inverse = d != 0.0f ? 1.0f / d : 0.0f;

        ckpt_half_put(to, d);
        for (int k = 0; k < QT_BLOCK; k++)
            to[2 + k] = (uint8_t)qt_int(roundf(x[k] * inverse));
    }
}

/* Twice the values of E2M1; code 8 would be -0, which ggml's integers lack. */
static const float qt_e2m1[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

/*
 * Find for each value the nearest of the 16 products of a code and the scale; of two that are
 * equally near, the one with the smaller code. This is the definition, for products that overflow
 * and values that are not finite.
 */
static void qt_nearest_of_all(uint8_t *level, const float *x, float scale)
{
    for (int i = 0; i < QT_BLOCK; i++) {
        float best = fabsf(qt_e2m1[0] * scale - x[i]);

        level[i] = 0;
        for (int k = 1; k < 16; k++) {
            const float off = fabsf(qt_e2m1[k] * scale - x[i]);

            level[i] = off < best ? (uint8_t)k : level[i];
            best = off < best ? off : best;
        }
    }
}

/*
 * The same by the middles between products, which are exact, as the scale is a power of two: a
 * value in the middle gets the smaller code.
 */
static void qt_nearest(uint8_t *level, const float *x, float scale)
{
    static const float middle[7] = {0.5f, 1.5f, 2.5f, 3.5f, 5, 7, 10};
    int32_t code[QT_BLOCK] = {0};

    for (int k = 0; k < 7; k++) {
        const float least = middle[k] * scale;

        for (int i = 0; i < QT_BLOCK; i++)
            code[i] += fabsf(x[i]) > least;
    }
    for (int i = 0; i < QT_BLOCK; i++)
        level[i] = (uint8_t)(code[i] + (code[i] > 0 && x[i] < 0 ? 8 : 0));
}

/* The scale is a power of two near max / 4: its exponent + 127 is the block's first byte. */
void ckpt_quant_mxfp4(void *restrict dst, const void *restrict src, size_t n_elems)
{
    enum { LARGEST = 252 }; // the exponent of the largest scale by which 12 is finite
    uint8_t *to = dst, level[QT_BLOCK] = {0};
    float x[QT_BLOCK];

    for (size_t i = 0; i < n_elems; i += QT_BLOCK, to += 17) {
        float most = 0;

        memcpy(x, (const uint8_t *)src + i * sizeof *x, sizeof x);
        for (int k = 0; k < QT_BLOCK; k++)
            most = most < fabsf(x[k]) ? fabsf(x[k]) : most;
        to[0] = most > 0 ? (uint8_t)qt_int(floorf(log2f(most)) - 2 + 127) : 0;
        if (isfinite(most) && to[0] <= LARGEST)
            qt_nearest(level, x, ckpt_quant_e8m0_half(to[0]));
        else
            qt_nearest_of_all(level, x, ckpt_quant_e8m0_half(to[0]));
        ckpt_quant_pack(to + 1, NULL, level);
    }
}
