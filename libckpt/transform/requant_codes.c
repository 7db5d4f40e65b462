/* SPDX-License-Identifier: Apache-2.0 */
/*
 * requant_codes.c: computes the numbers and scales of one group, in the order of the programs that
 * make such weights by rounding to nearest.
 *
 *    integers  a scale for each group, max |x| / (2^bits - 1) * 2, and x / scale rounded once;
 *              compressed-tensors (calculate_qparams, quantize), which computes in the dtype of the
 *              weight: each result is rounded to it
 *    NVFP4     the scale max |x| / 6 times a factor of the whole tensor, as E4M3, and x / scale as
 *              E2M1; compressed-tensors (generate_gparam, calculate_qparams)
 *    MXFP4     the scale is a power of two near max |x| / 4 (generate_mx_scales)
 *    MLX       x = number * scale + bias, in fp32; the value of larger magnitude at the ends of the
 *              group is exact (backend/cpu/quantized.cpp, quantize)
 */
#include <float.h>
#include <math.h>
#include <string.h>

#include "libckpt/base/cast.h"
#include "libckpt/transform/requant.h"

/* ---- rounding ------------------------------------------------------------------------------ */

void ckpt_requant_round(const ckpt_requant_how *how, float *x, uint64_t n)
{
    uint16_t half[CKPT_REQUANT_GROUP];

    if (!how->narrow)
        return;
    how->narrow(half, x, (size_t)n);
    how->widen(x, half, (size_t)n);
}

static float rqc_round(const ckpt_requant_how *how, float x)
{
    ckpt_requant_round(how, &x, 1);
    return x;
}

/* The nearest whole number, ties to even; |x| below 2^22. */
static float rqc_whole(float x)
{
    return x + 12582912.0f - 12582912.0f;
}

/* NaN becomes the lower limit: it is 0 / 0 if the scale is 0, and all codes then mean the bias. */
static float rqc_clamp(float x, float low, float high)
{
    return !(x >= low) ? low : x > high ? high : x;
}

/* Lanes of a minimum or maximum, which compilers then keep in wide registers; a group is a multiple
 * of them. */
#define RQC_LANES 16u

static float rqc_max(const float *x, uint64_t n)
{
    float lane[RQC_LANES] = {0}, max = 0;

    for (uint64_t i = 0; i < n; i += RQC_LANES) {
        for (unsigned k = 0; k < RQC_LANES; k++)
            lane[k] = lane[k] < fabsf(x[i + k]) ? fabsf(x[i + k]) : lane[k];
    }
    for (unsigned k = 0; k < RQC_LANES; k++)
        max = lane[k] > max ? lane[k] : max;
    return max;
}

/* The smallest and the largest of n values. */
static void rqc_ends(const float *x, uint64_t n, float *low, float *high)
{
    float least[RQC_LANES], most[RQC_LANES];

    memcpy(least, x, sizeof least);
    memcpy(most, x, sizeof most);
    for (uint64_t i = RQC_LANES; i < n; i += RQC_LANES) {
        for (unsigned k = 0; k < RQC_LANES; k++) {
            least[k] = x[i + k] < least[k] ? x[i + k] : least[k];
            most[k] = most[k] < x[i + k] ? x[i + k] : most[k];
        }
    }
    *low = least[0];
    *high = most[0];
    for (unsigned k = 1; k < RQC_LANES; k++) {
        *low = least[k] < *low ? least[k] : *low;
        *high = most[k] > *high ? most[k] : *high;
    }
}

/* Write a number in the dtype of the arithmetic. */
static void rqc_put(const ckpt_requant_how *how, float x, void *to)
{
    if (how->narrow)
        how->narrow(to, &x, 1);
    else
        memcpy(to, &x, sizeof x);
}

/* Pack numbers of 4 or 8 bits into words, the first into the lowest bits. */
static void rqc_words(const ckpt_requant_how *how, const float *x, float add, uint32_t *to)
{
    unsigned per = 32 / how->bits;

    for (uint64_t i = 0; i < how->group; i += per) {
        uint32_t word = 0;

        for (unsigned k = 0; k < per; k++)
            word |= (uint32_t)(int32_t)(x[i + k] + add) << k * how->bits;
        to[i / per] = word;
    }
}

/* The difference between 1 and the next number of the dtype. */
static float rqc_epsilon(const ckpt_requant_how *how)
{
    return how->of == CKPT_BF16 ? 0x1p-7f : how->of == CKPT_F16 ? 0x1p-10f : FLT_EPSILON;
}

/* ---- integers ------------------------------------------------------------------------------ */

static float rqc_int(const ckpt_requant_how *how, const float *x)
{
    float half = ldexpf(1, (int)how->bits - 1) - 0.5f;
    float scale = rqc_round(how, rqc_max(x, how->group) / half);

    return scale == 0 ? rqc_epsilon(how) : scale;
}

void ckpt_requant_int_scale(const ckpt_requant_how *how, float *x, void *to)
{
    rqc_put(how, rqc_int(how, x), to);
}

void ckpt_requant_int_words(const ckpt_requant_how *how, float *x, void *to)
{
    float scale = rqc_int(how, x), half = ldexpf(1, (int)how->bits - 1);

    for (uint64_t i = 0; i < how->group; i++)
        x[i] /= scale;
    ckpt_requant_round(how, x, how->group);
    for (uint64_t i = 0; i < how->group; i++)
        x[i] = rqc_whole(rqc_clamp(x[i], -half, half - 1));
    rqc_words(how, x, half, to);
}

/* ---- E2M1 ---------------------------------------------------------------------------------- */

/* The code of the nearest number of E2M1, ties to the even code; a small negative one is -0. */
static int rqc_e2m1(float x)
{
    float m = fabsf(x);

    return (m > 0.25f) + (m >= 0.75f) + (m > 1.25f) + (m >= 1.75f) + (m > 2.5f) + (m >= 3.5f) +
           (m > 5.0f) + 8 * (x < 0);
}

static void rqc_pairs(const float *x, uint64_t n, uint8_t *to)
{
    int code[CKPT_REQUANT_GROUP];

    for (uint64_t i = 0; i < n; i++)
        code[i] = rqc_e2m1(x[i]);
    for (uint64_t i = 0; i < n; i += 2)
        to[i / 2] = (uint8_t)(code[i] | code[i + 1] << 4);
}

float ckpt_requant_nvfp4_whole(const ckpt_requant_how *how, float max)
{
    float least = how->of == CKPT_F16 ? 0x1p-14f : FLT_MIN;
    // torch divides a number by a tensor in two steps: reciprocal, then product
    float inverse = rqc_round(how, 1.0f / (max > least ? max : least));
    float whole = rqc_round(how, inverse * (448.0f * 6.0f));

    return isfinite(whole) ? whole : 1;
}

/* The stored scale as E4M3, and its value. */
static float rqc_nvfp4(const ckpt_requant_how *how, const float *x, uint8_t *code)
{
    float scale = how->whole * rqc_round(how, rqc_max(x, how->group) / 6.0f);

    scale = rqc_clamp(scale, -448.0f, 448.0f);
    how->to_fp8(code, &scale, 1);
    how->from_fp8(&scale, code, 1);
    if (scale == 0) {
        scale = 0.125f;
        how->to_fp8(code, &scale, 1);
    }
    return scale;
}

void ckpt_requant_nvfp4_scale(const ckpt_requant_how *how, float *x, void *to)
{
    (void)rqc_nvfp4(how, x, to);
}

void ckpt_requant_nvfp4_pairs(const ckpt_requant_how *how, float *x, void *to)
{
    uint8_t code;
    float scale = rqc_nvfp4(how, x, &code) / how->whole;

    for (uint64_t i = 0; i < how->group; i++)
        x[i] /= scale;
    rqc_pairs(x, how->group, to);
}

/* A number without its fraction, or the next power of two from 1.75 times a power on. */
static float rqc_power(const ckpt_requant_how *how, float x)
{
    uint32_t bits;
    uint16_t half;
    unsigned fraction = how->of == CKPT_BF16 ? 7 : 10;

    if (!how->narrow) {
        memcpy(&bits, &x, sizeof bits);
        bits = (bits + (UINT32_C(1) << 21)) & ~((UINT32_C(1) << 23) - 1);
        memcpy(&x, &bits, sizeof x);
        return x;
    }
    how->narrow(&half, &x, 1);
    half = (uint16_t)((half + (1u << (fraction - 2))) & ~((1u << fraction) - 1));
    how->widen(&x, &half, 1);
    return x;
}

/* The scale of a group, and its stored exponent + 127. */
static float rqc_mxfp4(const ckpt_requant_how *how, const float *x, uint8_t *code)
{
    float power = rqc_power(how, rqc_max(x, how->group));
    int most = how->of == CKPT_F16 ? 16 : 128; // of the largest numbers
    int exponent = isinf(power) ? most - 2 : power > 0 ? ilogbf(power) - 2 : -127;
    float scale = rqc_round(how, ldexpf(1, exponent > -127 ? exponent : -127));

    if (scale == 0)
        scale = 1;
    *code = (uint8_t)(127 + ilogbf(scale));
    return scale;
}

void ckpt_requant_mxfp4_scale(const ckpt_requant_how *how, float *x, void *to)
{
    (void)rqc_mxfp4(how, x, to);
}

void ckpt_requant_mxfp4_pairs(const ckpt_requant_how *how, float *x, void *to)
{
    uint8_t code;
    float scale = rqc_mxfp4(how, x, &code);

    for (uint64_t i = 0; i < how->group; i++)
        x[i] /= scale;
    ckpt_requant_round(how, x, how->group);
    rqc_pairs(x, how->group, to);
}

/* ---- MLX ----------------------------------------------------------------------------------- */

typedef struct rqc_line {
    float scale, bias;
} rqc_line;

static rqc_line rqc_mlx(const ckpt_requant_how *how, const float *x)
{
    float low, high, n = (float)((1u << how->bits) - 1);

    rqc_ends(x, how->group, &low, &high);
    bool down = fabsf(low) > fabsf(high);
    float scale = (high - low) / n > 1e-7f ? (high - low) / n : 1e-7f;
    float edge = down ? low : high;
    scale = down ? scale : -scale;
    float first = rintf(edge / scale);
    return first != 0 ? (rqc_line){edge / first, edge} : (rqc_line){scale, 0};
}

void ckpt_requant_mlx_scale(const ckpt_requant_how *how, float *x, void *to)
{
    rqc_put(how, rqc_mlx(how, x).scale, to);
}

void ckpt_requant_mlx_bias(const ckpt_requant_how *how, float *x, void *to)
{
    rqc_put(how, rqc_mlx(how, x).bias, to);
}

void ckpt_requant_mlx_words(const ckpt_requant_how *how, float *x, void *to)
{
    rqc_line line = rqc_mlx(how, x);
    float n = (float)((1u << how->bits) - 1);

    for (uint64_t i = 0; i < how->group; i++)
        x[i] = rqc_whole(rqc_clamp((x[i] - line.bias) / line.scale, 0, n));
    rqc_words(how, x, 0, to);
}
