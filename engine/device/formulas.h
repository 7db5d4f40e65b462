/* SPDX-License-Identifier: Apache-2.0 */
/*
 * formulas.h: implements the arithmetic of single elements, for CPU and GPU alike: random words,
 * dropout, activations, rotation, normalisation.  optimizer_formulas.h has the optimizers'.
 *
 * C and CUDA compile it, each with its own loops over memory.  Activations and rotation process one
 * zt_f at a time: 16 elements of vmath.h, or one of a kernel.  All arithmetic is fp32, and the
 * order of operations is part of the formula, because results are compared bit for bit between
 * files in which the compiler fuses nothing (all of the CPU's, vector.cu).
 */
#ifndef ZT_DEVICE_FORMULAS_H
#define ZT_DEVICE_FORMULAS_H

#include <math.h>
#include <Random123/philox.h>

#ifdef __cplusplus
#define ZT_FORMULA static __device__ __forceinline__
typedef float zt_f;
#else
#include "engine/device/device.h"
#include "engine/device/vmath.h"
#define ZT_FORMULA ZT_INLINE
typedef zt_v zt_f;
#endif

/* ---- random words, dropout ---- */

/* Four random words: block `block` of a seed, in stream `last` (philox.h). */
ZT_FORMULA philox4x32_ctr_t zt_philox_block(uint64_t seed, uint64_t block, uint32_t last)
{
    const philox4x32_key_t key = {{(uint32_t)seed, (uint32_t)(seed >> 32)}};
    const philox4x32_ctr_t counter = {{(uint32_t)block, (uint32_t)(block >> 32), 0, last}};

    return philox4x32_R(10, counter, key);
}

/*
 * Dropout at rate p keeps an element, and multiplies it by factor, if the upper 24 bits of its word
 * are at least `least`.  p 2^24 is exact, and so is the comparison of integers.
 */
typedef struct zt_keep {
    int32_t least;
    float factor;
} zt_keep;

static inline zt_keep zt_keep_of(float p)
{
    const zt_keep k = {(int32_t)ceilf(p * 0x1p+24F),
                       p < 1.0F ? (float)(1.0 / (1.0 - (double)p)) : 0.0F};

    return k;
}

/* ---- linear biases of attention ---- */

/*
 * Slopes of ALiBi for a number of heads: powers of `base` for the first `whole` heads (the largest
 * power of two), odd powers of `more` for the others.
 */
typedef struct zt_alibi {
    float base, more;
    int whole;
} zt_alibi;

static inline zt_alibi zt_alibi_of(uint64_t heads)
{
    zt_alibi a = {0, 0, 1};

    while ((uint64_t)a.whole * 2 <= heads)
        a.whole *= 2;
    a.base = (float)exp2(-8.0 / a.whole);
    a.more = (float)exp2(-4.0 / a.whole);
    return a;
}

/* The slope of a head; the power of an fp32 base, as in transformers. */
#ifdef __cplusplus
ZT_FORMULA float zt_alibi_slope(const zt_alibi &a, int head)
{
    return head < a.whole ? powf(a.base, (float)(head + 1))
                          : powf(a.more, (float)(2 * (head - a.whole) + 1));
}
#else
static inline float zt_alibi_slope(const zt_alibi *a, int head)
{
    return head < a->whole ? powf(a->base, (float)(head + 1))
                           : powf(a->more, (float)(2 * (head - a->whole) + 1));
}
#endif

/* ---- functions with two implementations ---- */

#ifdef __cplusplus
/* x = exp(x), computed by the GPU's library, or on the CPU by vmath.h. */
ZT_FORMULA void zt_f_exp(float *x)
{
    *x = expf(*x);
}

/* x = erf(x). */
ZT_FORMULA void zt_f_erf(float *x)
{
    *x = erff(*x);
}

/* x = tanh(x). */
ZT_FORMULA void zt_f_tanh(float *x)
{
    *x = tanhf(*x);
}

/* y = 0 if x <= 0; NaN stays NaN. */
ZT_FORMULA void zt_f_relu(float *y, const float *x)
{
    *y = *x <= 0.0F ? 0.0F : *y;
}
#else
#define zt_f_exp  zt_v_exp
#define zt_f_erf  zt_v_erf
#define zt_f_tanh zt_v_tanh

/* y = 0 if x <= 0; NaN stays NaN. */
ZT_FORMULA void zt_f_relu(zt_v *y, const zt_v *x)
{
    const zt_v zero = {0};
    const zt_vi mask = *x <= 0.0F;

    zt_v_select(y, &mask, &zero);
}
#endif

/* ---- activations ---- */

#define ZT_SQRT_HALF  0x1.6a09e6p-1F /* sqrt(1/2) */
#define ZT_DENSITY    0x1.988454p-2F /* 1 / sqrt(2 pi) */
#define ZT_TANH_SCALE 0x1.988454p-1F /* sqrt(2 / pi) */
#define ZT_TANH_CUBIC 0.044715F

/* x = 1 / (1 + exp(-x)). */
ZT_FORMULA void zt_f_sigmoid(zt_f *x)
{
    zt_f e = -*x;

    zt_f_exp(&e);
    *x = 1.0F / (1.0F + e);
}

/* x = act(x).  GELU: Hendrycks & Gimpel 2016, exact and by tanh; SiLU: x sigmoid(x). */
ZT_FORMULA void zt_f_act(zt_act act, zt_f *x)
{
    zt_f t = *x;

    switch (act) {
    case ZT_GELU:
        t = t * ZT_SQRT_HALF;
        zt_f_erf(&t);
        *x = 0.5F * *x * (1.0F + t);
        break;
    case ZT_GELU_TANH:
        t = ZT_TANH_SCALE * (t + ZT_TANH_CUBIC * (t * t * t));
        zt_f_tanh(&t);
        *x = 0.5F * *x * (1.0F + t);
        break;
    case ZT_RELU:
        zt_f_relu(x, &t);
        break;
    case ZT_TANH:
        zt_f_tanh(x);
        break;
    case ZT_SILU:
        zt_f_sigmoid(&t);
        *x = *x * t;
        break;
    case ZT_ACT_NONE:
    default:
        break;
    }
}

/* x = d gelu / dx = Phi(x) + x phi(x). */
ZT_FORMULA void zt_f_gelu_slope(zt_f *x)
{
    zt_f at = *x, t = at * ZT_SQRT_HALF, e = -0.5F * at * at;

    zt_f_erf(&t);
    zt_f_exp(&e);
    *x = 0.5F * (1.0F + t) + at * (ZT_DENSITY * e);
}

/* d gelu / dx for GELU by tanh. */
ZT_FORMULA void zt_f_gelu_tanh_slope(zt_f *x)
{
    zt_f at = *x, t = ZT_TANH_SCALE * (at + ZT_TANH_CUBIC * (at * at * at));

    zt_f_tanh(&t);
    *x = 0.5F * (1.0F + t) +
         0.5F * at * (1.0F - t * t) * (ZT_TANH_SCALE * (1.0F + 3.0F * ZT_TANH_CUBIC * (at * at)));
}

/* x = d silu / dx = s (1 + x (1 - s)), s = sigmoid(x). */
ZT_FORMULA void zt_f_silu_slope(zt_f *x)
{
    zt_f s = *x;

    zt_f_sigmoid(&s);
    *x = s * (1.0F + *x * (1.0F - s));
}

/* dy = dy act'(x). */
ZT_FORMULA void zt_f_act_grad(zt_act act, zt_f *dy, const zt_f *x)
{
    zt_f t = *x;

    switch (act) {
    case ZT_GELU:
        zt_f_gelu_slope(&t);
        break;
    case ZT_GELU_TANH:
        zt_f_gelu_tanh_slope(&t);
        break;
    case ZT_RELU:
        zt_f_relu(dy, x);
        return;
    case ZT_TANH:
        zt_f_tanh(&t);
        t = 1.0F - t * t;
        break;
    case ZT_SILU:
        zt_f_silu_slope(&t);
        break;
    case ZT_ACT_NONE:
    default:
        return;
    }
    *dy = *dy * t;
}

/* gate = act(gate) up (Shazeer 2020); act NONE: SILU. */
ZT_FORMULA void zt_f_swiglu(zt_act act, zt_f *gate, const zt_f *up)
{
    zt_f_act(act == ZT_ACT_NONE ? ZT_SILU : act, gate);
    *gate = *gate * *up;
}

/* Replace gate and up by their gradients. */
ZT_FORMULA void zt_f_swiglu_grad(zt_act act, zt_f *gate, zt_f *up, const zt_f *dy)
{
    const zt_act of = act == ZT_ACT_NONE ? ZT_SILU : act;
    zt_f slope = *dy, opened = *gate;

    zt_f_act_grad(of, &slope, gate);
    zt_f_act(of, &opened);
    *gate = *up * slope;
    *up = opened * *dy;
}

/* ---- rotation (Su et al. 2021), normalisation ---- */

/* Rotate the pair (low, high) by the angle with cosine c and sine s. */
ZT_FORMULA void zt_f_rotate(zt_f *low, zt_f *high, const zt_f *c, const zt_f *s)
{
    const zt_f a = *low, b = *high;

    *low = a * *c - b * *s;
    *high = b * *c + a * *s;
}

/* Normalise one element of a row. */
ZT_FORMULA float zt_norm_hat(float x, float mean, float rstd)
{
    return (x - mean) * rstd;
}

/* Gradient of zt_norm_hat: g = dy w, c1 is the mean of g, c2 the mean of g xhat over the row. */
ZT_FORMULA float zt_norm_dx(float g, float xhat, float c1, float c2, float rstd)
{
    return (g - c1 - xhat * c2) * rstd;
}

#endif
