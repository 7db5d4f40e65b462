/* SPDX-License-Identifier: Apache-2.0 */
/*
 * dequant.c: converts ggml's blocks to F32.
 *
 * Products and sums are computed in ggml's order, so that the bits equal ggml's. The types with
 * code books (IQ1, IQ2, IQ3) are missing. Sources: ggml-common.h (blocks), ggml-quants.c
 * (dequantize_row_*), OCP Microscaling Formats 1.0 (MXFP4).
 */
#include "libckpt/base/quant.h"

#include <string.h>

/* Convert one block of a type to its values. */
typedef void (*dq_fn)(float *to, const uint8_t *p);

static int dq_i8(uint8_t b)
{
    return b < 128 ? b : b - 256;
}

static uint32_t dq_u16(const uint8_t *p)
{
    return (uint32_t)p[0] | (uint32_t)p[1] << 8;
}

static uint32_t dq_u32(const uint8_t *p)
{
    return dq_u16(p) | dq_u16(p + 2) << 16;
}

static void dq_q4_0(float *to, const uint8_t *p)
{
    const float d = ckpt_half_get(p);

    for (int i = 0; i < 16; i++) {
        to[i] = (float)((p[2 + i] & 0xf) - 8) * d;
        to[i + 16] = (float)((p[2 + i] >> 4) - 8) * d;
    }
}

static void dq_q4_1(float *to, const uint8_t *p)
{
    const float d = ckpt_half_get(p), m = ckpt_half_get(p + 2);

    for (int i = 0; i < 16; i++) {
        to[i] = (float)(p[4 + i] & 0xf) * d + m;
        to[i + 16] = (float)(p[4 + i] >> 4) * d + m;
    }
}

static void dq_q5_0(float *to, const uint8_t *p)
{
    const float d = ckpt_half_get(p);
    const uint32_t bits = dq_u32(p + 2);

    for (int i = 0; i < 16; i++) {
        const uint32_t a = (p[6 + i] & 0xfu) | (bits >> i & 1) << 4;
        const uint32_t b = (uint32_t)(p[6 + i] >> 4) | (bits >> (i + 16) & 1) << 4;

        to[i] = (float)((int)a - 16) * d;
        to[i + 16] = (float)((int)b - 16) * d;
    }
}

static void dq_q5_1(float *to, const uint8_t *p)
{
    const float d = ckpt_half_get(p), m = ckpt_half_get(p + 2);
    const uint32_t bits = dq_u32(p + 4);

    for (int i = 0; i < 16; i++) {
        const uint32_t a = (p[8 + i] & 0xfu) | (bits >> i & 1) << 4;
        const uint32_t b = (uint32_t)(p[8 + i] >> 4) | (bits >> (i + 16) & 1) << 4;

        to[i] = (float)a * d + m;
        to[i + 16] = (float)b * d + m;
    }
}

static void dq_q8_0(float *to, const uint8_t *p)
{
    const float d = ckpt_half_get(p);

    for (int i = 0; i < 32; i++)
        to[i] = (float)dq_i8(p[2 + i]) * d;
}

static void dq_q8_k(float *to, const uint8_t *p)
{
    float d;

    memcpy(&d, p, sizeof d);
    for (int i = 0; i < 256; i++)
        to[i] = d * (float)dq_i8(p[4 + i]);
}

static void dq_q2_k(float *to, const uint8_t *p)
{
    const uint8_t *scale = p, *q = p + 16;
    const float d = ckpt_half_get(p + 80), low = ckpt_half_get(p + 82);

    // 16 values share a scale, and 128 values share 32 bytes of levels
    for (int i = 0; i < 256; i += 16, scale++) {
        const uint8_t *at = q + i / 128 * 32 + i % 32;
        const float s = d * (float)(*scale & 0xf), m = low * (float)(*scale >> 4);

        for (int k = 0; k < 16; k++)
            to[i + k] = s * (float)(at[k] >> (i % 128 / 32 * 2) & 3) - m;
    }
}

/*
 * Scale j of Q3_K has six bits: four in one of the first eight bytes, two in one of the last four.
 */
static int dq_scale_q3(const uint8_t *p, int j)
{
    return (j < 8 ? p[j] & 0xf : p[j - 8] >> 4) | (p[8 + j % 4] >> 2 * (j / 4) & 3) << 4;
}

static void dq_q3_k(float *to, const uint8_t *p)
{
    const uint8_t *high = p, *q = p + 32, *scale = p + 96;
    const float d = ckpt_half_get(p + 108);

    for (int i = 0; i < 256; i += 16) {
        const uint8_t *at = q + i / 128 * 32 + i % 32, *bit = high + i % 32;
        const float s = d * (float)(dq_scale_q3(scale, i / 16) - 32);

        for (int k = 0; k < 16; k++) {
            const int level = at[k] >> (i % 128 / 32 * 2) & 3;

            to[i + k] = s * (float)(level - (bit[k] >> i / 32 & 1 ? 0 : 4));
        }
    }
}

/* Get scale and minimum j of Q4_K and Q5_K: six bits each, in 12 bytes. */
static void dq_scale_q4(const uint8_t *p, int j, int *scale, int *low)
{
    *scale = j < 4 ? p[j] & 63 : (p[j + 4] & 0xf) | p[j - 4] >> 6 << 4;
    *low = j < 4 ? p[j + 4] & 63 : p[j + 4] >> 4 | p[j] >> 6 << 4;
}

/*
 * Convert Q4_K and Q5_K: eight runs of 32 values; two runs share 32 bytes, one nibble each; high:
 * the fifth bits, or NULL.
 */
static void dq_q45_k(float *to, const uint8_t *p, const uint8_t *high, const uint8_t *q)
{
    const float d = ckpt_half_get(p), low = ckpt_half_get(p + 2);

    for (int j = 0; j < 8; j++) {
        const uint8_t *at = q + j / 2 * 32;
        int scale, least;

        dq_scale_q4(p + 4, j, &scale, &least);
        const float s = d * (float)scale, m = low * (float)least;

        for (int k = 0; k < 32; k++) {
            const int level = (at[k] >> j % 2 * 4 & 0xf) | (high ? (high[k] >> j & 1) << 4 : 0);

            to[32 * j + k] = s * (float)level - m;
        }
    }
}

static void dq_q4_k(float *to, const uint8_t *p)
{
    dq_q45_k(to, p, NULL, p + 16);
}

static void dq_q5_k(float *to, const uint8_t *p)
{
    dq_q45_k(to, p, p + 16, p + 48);
}

static void dq_q6_k(float *to, const uint8_t *p)
{
    const uint8_t *scale = p + 192;
    const float d = ckpt_half_get(p + 208);

    // 128 values from 64 low and 32 high bytes; value k of quarter j
    for (int i = 0; i < 256; i++) {
        const int half = i / 128, j = i % 128 / 32, k = i % 32;
        const int low = p[64 * half + j % 2 * 32 + k] >> j / 2 * 4 & 0xf;
        const int high = p[128 + 32 * half + k] >> 2 * j & 3;

        to[i] = d * (float)dq_i8(scale[i / 16]) * (float)((low | high << 4) - 32);
    }
}

/* Levels of IQ4_NL and IQ4_XS, and doubled ones of four-bit floats. */
static const int8_t dq_levels[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                     1,    13,   25,  38,  53,  69,  89,  113};
static const int8_t dq_e2m1[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

/* Convert n bytes: low halves first, then high halves. */
static void dq_nibbles(float *to, const uint8_t *q, int n, const int8_t *level, float d)
{
    for (int i = 0; i < n; i++) {
        to[i] = d * (float)level[q[i] & 0xf];
        to[i + n] = d * (float)level[q[i] >> 4];
    }
}

static void dq_iq4_nl(float *to, const uint8_t *p)
{
    dq_nibbles(to, p + 2, 16, dq_levels, ckpt_half_get(p));
}

static void dq_iq4_xs(float *to, const uint8_t *p)
{
    const float d = ckpt_half_get(p);
    const uint32_t high = dq_u16(p + 2);

    for (int j = 0; j < 8; j++) {
        const uint32_t low = p[4 + j / 2], s = (low >> j % 2 * 4 & 0xfu) | (high >> 2 * j & 3u)
                                                                               << 4;

        dq_nibbles(to + 32 * j, p + 8 + 16 * j, 16, dq_levels, d * (float)((int)s - 32));
    }
}

/* Digit n of a byte. The byte is a fraction of 256 with five digits in base three. */
static float dq_trit(uint8_t b, int n)
{
    static const uint8_t power[5] = {1, 3, 9, 27, 81};
    const unsigned q = (unsigned)b * power[n] & 0xff;

    return (float)((int)(q * 3 >> 8) - 1);
}

static void dq_tq1_0(float *to, const uint8_t *p)
{
    const float d = ckpt_half_get(p + 52);

    for (int i = 0; i < 160; i++)
        *to++ = dq_trit(p[i % 32], i / 32) * d;
    for (int i = 0; i < 80; i++)
        *to++ = dq_trit(p[32 + i % 16], i / 16) * d;
    for (int i = 0; i < 16; i++)
        *to++ = dq_trit(p[48 + i % 4], i / 4) * d;
}

static void dq_tq2_0(float *to, const uint8_t *p)
{
    const float d = ckpt_half_get(p + 64);

    for (int i = 0; i < 256; i++)
        to[i] = (float)((p[i / 128 * 32 + i % 32] >> i % 128 / 32 * 2 & 3) - 1) * d;
}

static void dq_mxfp4(float *to, const uint8_t *p)
{
    dq_nibbles(to, p + 1, 16, dq_e2m1, ckpt_quant_e8m0_half(p[0]));
}

/*
 * Convert four runs of 16 values, each with a scale: E4M3 without sign and NaN. The pattern of NaN
 * means 0 if the unused bit is clear, and the next number if it is set.
 */
static void dq_nvfp4(float *to, const uint8_t *p)
{
    for (int j = 0; j < 4; j++) {
        float scale = 0;

        if (p[j] == 0xff)
            scale = 480;
        else if (p[j] != 0x7f)
            ckpt_cast_find_portable(CKPT_F32, CKPT_F8_E4M3)(&scale, &(uint8_t){p[j] & 0x7f}, 1);
        dq_nibbles(to + 16 * j, p + 4 + 8 * j, 8, dq_e2m1, scale * 0.5f);
    }
}

/* Convert all blocks; the type's sizes and function are constants after inlining. */
static inline __attribute__((always_inline)) void dq_run(void *dst, const void *src, size_t n,
                                                         size_t per, size_t bytes, dq_fn fn)
{
    const uint8_t *p = src;
    uint8_t *to = dst;
    float x[256];

    for (size_t i = 0; i < n; i += per, p += bytes, to += per * sizeof *x) {
        fn(x, p);
        memcpy(to, x, per * sizeof *x);
    }
}

#define DQ_TYPES(X)                                                                                \
    X(Q4_0, dq_q4_0, 32, 18)                                                                       \
    X(Q4_1, dq_q4_1, 32, 20)                                                                       \
    X(Q5_0, dq_q5_0, 32, 22)                                                                       \
    X(Q5_1, dq_q5_1, 32, 24)                                                                       \
    X(Q8_0, dq_q8_0, 32, 34)                                                                       \
    X(Q2_K, dq_q2_k, 256, 84)                                                                      \
    X(Q3_K, dq_q3_k, 256, 110)                                                                     \
    X(Q4_K, dq_q4_k, 256, 144)                                                                     \
    X(Q5_K, dq_q5_k, 256, 176)                                                                     \
    X(Q6_K, dq_q6_k, 256, 210)                                                                     \
    X(Q8_K, dq_q8_k, 256, 292)                                                                     \
    X(IQ4_NL, dq_iq4_nl, 32, 18)                                                                   \
    X(IQ4_XS, dq_iq4_xs, 256, 136)                                                                 \
    X(TQ1_0, dq_tq1_0, 256, 54)                                                                    \
    X(TQ2_0, dq_tq2_0, 256, 66)                                                                    \
    X(MXFP4, dq_mxfp4, 32, 17)                                                                     \
    X(NVFP4, dq_nvfp4, 64, 36)

#define DQ_CAST(id, fn, per, bytes)                                                                \
    static void dq_cast_##id(void *restrict dst, const void *restrict src, size_t n)               \
    {                                                                                              \
        dq_run(dst, src, n, per, bytes, fn);                                                       \
    }
#define DQ_CASE(id, fn, per, bytes)                                                                \
    case CKPT_##id:                                                                                \
        return dq_cast_##id;

DQ_TYPES(DQ_CAST)

ckpt_cast_fn ckpt_dequant_find(ckpt_dtype from)
{
    switch ((int)from) {
        DQ_TYPES(DQ_CASE)
    default:
        return NULL;
    }
}
