/* SPDX-License-Identifier: Apache-2.0 */
/*
 * formulas.h: implements the arithmetic of single elements, for CPU and GPU alike: random words,
 * dropout, activations, rotation, normalisation, optimizer steps.
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

/* gate = silu(gate) up (Shazeer 2020). */
ZT_FORMULA void zt_f_swiglu(zt_f *gate, const zt_f *up)
{
    zt_f_act(ZT_SILU, gate);
    *gate = *gate * *up;
}

/* Replace gate and up by their gradients. */
ZT_FORMULA void zt_f_swiglu_grad(zt_f *gate, zt_f *up, const zt_f *dy)
{
    zt_f slope = *gate, silu;

    silu = slope;
    zt_f_silu_slope(&slope);
    zt_f_act(ZT_SILU, &silu);
    *gate = *up * (*dy * slope);
    *up = silu * *dy;
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

/* ---- optimizer steps ---- */

/* The parameters of a step, rounded to fp32 once. */
typedef struct zt_step_numbers {
    float lr, beta1, beta2, gain1, gain2, eps, decay, keep, step, denominator;
    float within;           /* L2 decay, added to the gradient */
    float beside;           /* decoupled decay of Adam */
    float inside, outside;  /* LAMB's eps, inside the root or added to it */
    float old, gain, ahead; /* SGD's momentum: factors of buffer, gradient, Nesterov term */
    bool zero_up, nesterov;
} zt_step_numbers;

static inline zt_step_numbers zt_step_numbers_of(const zt_update *a)
{
    const bool lamb = a->kind == ZT_LAMB;
    zt_step_numbers s;

    s.lr = (float)a->lr;
    s.beta1 = (float)a->beta1;
    s.beta2 = (float)a->beta2;
    // torch computes 1 - beta in double, DeepSpeed's kernels in float; for 0.999 the results differ
    // by 1.3e-5
    s.gain1 = a->exact ? (float)(1.0 - a->beta1) : 1.0F - s.beta1;
    s.gain2 = a->exact ? (float)(1.0 - a->beta2) : 1.0F - s.beta2;
    s.eps = (float)a->eps;
    s.decay = (float)a->weight_decay;
    s.keep = 1.0F - s.lr * s.decay;
    s.step = (float)a->step_size;
    s.denominator = (float)a->denominator;
    s.within = a->decoupled || lamb ? 0.0F : s.decay;
    s.beside = a->decoupled ? -s.lr * s.decay : 0.0F;
    s.inside = a->eps_inside ? s.eps : 0.0F;
    s.outside = a->eps_inside ? 0.0F : s.eps;
    s.old = a->first ? 0.0F : s.beta1;
    s.gain = a->first ? 1.0F : (float)(1.0 - a->dampening);
    s.ahead = s.beta1;
    s.zero_up = a->zero_up;
    s.nesterov = a->nesterov;
    if (a->kind == ZT_SGD && !a->decoupled)
        s.keep = 1.0F;
    return s;
}

/* A weight, its state and its gradient; optimizers without a member leave it untouched. */
typedef struct zt_cell {
    float p, m, v, g;
} zt_cell;

/* Adam's moments: Kingma & Ba 2015.  `within` is L2 decay. */
ZT_FORMULA void zt_step_moments(const zt_step_numbers *s, zt_cell *c)
{
    const float grad = c->g + c->p * s->within;

    c->m = c->m * s->beta1 + grad * s->gain1;
    c->v = c->v * s->beta2 + (grad * grad) * s->gain2;
}

/* Adam's step; `beside` is decoupled decay (Loshchilov & Hutter 2019). */
ZT_FORMULA void zt_step_adam(const zt_step_numbers *s, zt_cell *c)
{
    zt_step_moments(s, c);
    c->p = (c->p + c->p * s->beside) + c->m / (sqrtf(c->v) * s->denominator + s->eps) * -s->step;
}

/* Adagrad's step (Duchi et al. 2011). */
ZT_FORMULA void zt_step_adagrad(const zt_step_numbers *s, zt_cell *c)
{
    const float grad = c->g + c->p * s->decay;

    c->v = c->v + grad * grad;
    c->p = c->p + grad / (sqrtf(c->v) + s->eps) * -s->lr;
}

/*
 * Lion's step (Chen et al. 2023).  DeepSpeed's two classes treat an update of exactly 0 differently
 * (zero_up).
 */
ZT_FORMULA void zt_step_lion(const zt_step_numbers *s, zt_cell *c)
{
    const float blend = c->m * s->beta1 + c->g * s->gain1;
    const float move = !s->zero_up ? -copysignf(s->lr, blend) : blend > 0.0F ? -s->lr : s->lr;

    c->p = c->p * s->keep + move;
    c->m = c->m * s->beta2 + c->g * s->gain2;
}

/* SGD without momentum: p moves by -lr (g + decay p). */
ZT_FORMULA void zt_step_sgd(const zt_step_numbers *s, zt_cell *c)
{
    const float grad = c->g + c->p * s->within;

    c->p = c->p * s->keep + grad * -s->lr;
}

/* SGD with momentum.  The first step sets the buffer to the gradient (old is 0). */
ZT_FORMULA void zt_step_momentum(const zt_step_numbers *s, zt_cell *c)
{
    const float grad = c->g + c->p * s->decay;

    c->m = (s->old == 0.0F ? 0.0F : c->m * s->old) + grad * s->gain;
    c->p = c->p + (s->nesterov ? grad + c->m * s->ahead : c->m) * -s->lr;
}

/* Direction of LAMB's step (You et al. 2020). */
ZT_FORMULA float zt_step_direction(const zt_step_numbers *s, const zt_cell *c)
{
    return c->m / (sqrtf(c->v + s->inside) + s->outside) + c->p * s->decay;
}

#ifdef __cplusplus
#define ZT_BOTH static __host__ __device__ inline
#else
#define ZT_BOTH static inline
#endif

/*
 * LAMB's trust ratio: the norm of the weights divided by that of the direction; takes sums of
 * squares.
 */
ZT_BOTH float zt_step_trust(const zt_update *a, double squares_p, double squares_u)
{
    const float norm_p = (float)sqrt(squares_p), norm_u = (float)sqrt(squares_u);
    float ratio = 1.0F;

    if (norm_p != 0.0F && norm_u != 0.0F) {
        ratio = norm_p / norm_u;
        ratio = ratio > (float)a->max_coeff ? (float)a->max_coeff : ratio;
        ratio = ratio < (float)a->min_coeff ? (float)a->min_coeff : ratio;
    }
    return ratio;
}

#endif
