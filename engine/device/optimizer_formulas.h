/* SPDX-License-Identifier: Apache-2.0 */
/*
 * optimizer_formulas.h: implements one step of Adam, Adagrad, Lion, SGD and LAMB on one element,
 * for CPU and GPU alike.  formulas.h says how C and CUDA share such files.
 */
#ifndef ZT_DEVICE_OPTIMIZER_FORMULAS_H
#define ZT_DEVICE_OPTIMIZER_FORMULAS_H

#include "engine/device/formulas.h"

/* The numbers of one step, each rounded to fp32 once; zt_update (device.h) has them in fp64. */
typedef struct zt_step_numbers {
    float lr, beta1, beta2, eps, decay;
    float gain1, gain2;      /* 1 - beta1 and 1 - beta2: factors of the gradient and its square */
    float step, denominator; /* Adam's bias correction: step_size and denominator of zt_update */
    float within;            /* factor of the weight in the gradient: L2 decay */
    float beside;            /* Adam: factor of the weight in its change: decoupled decay */
    float keep;              /* Lion, SGD: factor of the weight itself: decoupled decay */
    float inside, outside;   /* LAMB: eps under the square root or beside it; the other is 0 */
    float old, gain;         /* SGD with momentum: factors of the buffer and of the gradient */
    float ahead;             /* SGD with momentum: factor of the buffer in Nesterov's step */
    bool zero_up;            /* Lion: an update of 0 increases the weight */
    bool nesterov;
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

/*
 * A weight, its two moments and its gradient.  An optimizer leaves moments that it lacks as they
 * are.
 */
typedef struct zt_cell {
    float p, m, v, g;
} zt_cell;

/* Update the moments of Adam (Kingma & Ba 2015) and LAMB. */
ZT_FORMULA void zt_step_moments(const zt_step_numbers *s, zt_cell *c)
{
    const float grad = c->g + c->p * s->within;

    c->m = c->m * s->beta1 + grad * s->gain1;
    c->v = c->v * s->beta2 + (grad * grad) * s->gain2;
}

/* Adam's step, with L2 decay or decoupled decay (AdamW, Loshchilov & Hutter 2019). */
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
 * Lion's step (Chen et al. 2023).  DeepSpeed's CUDA class increases the weight if the update is
 * exactly 0; in its CPU class the sign bit of the zero decides.
 */
ZT_FORMULA void zt_step_lion(const zt_step_numbers *s, zt_cell *c)
{
    const float blend = c->m * s->beta1 + c->g * s->gain1;
    const float move = !s->zero_up ? -copysignf(s->lr, blend) : blend > 0.0F ? -s->lr : s->lr;

    c->p = c->p * s->keep + move;
    c->m = c->m * s->beta2 + c->g * s->gain2;
}

/* SGD's step without momentum: p -= lr (g + decay p). */
ZT_FORMULA void zt_step_sgd(const zt_step_numbers *s, zt_cell *c)
{
    const float grad = c->g + c->p * s->within;

    c->p = c->p * s->keep + grad * -s->lr;
}

/* SGD's step with momentum.  In the first step the buffer becomes the gradient (old is 0). */
ZT_FORMULA void zt_step_momentum(const zt_step_numbers *s, zt_cell *c)
{
    const float grad = c->g + c->p * s->decay;

    c->m = (s->old == 0.0F ? 0.0F : c->m * s->old) + grad * s->gain;
    c->p = c->p + (s->nesterov ? grad + c->m * s->ahead : c->m) * -s->lr;
}

/* The direction of LAMB's step (You et al. 2020), before the trust ratio scales it. */
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
 * LAMB's trust ratio: the norm of a parameter's weights divided by the norm of its direction, kept
 * within min_coeff and max_coeff.  squares_p and squares_u are the squares of these norms.
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
