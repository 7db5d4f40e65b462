/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cpu_update.c: optimizer steps on the processor: one pass over weights, state and gradient, in
 * blocks that stay in the first-level cache while they are converted, updated and rounded.
 *
 * The order of operations is that of DeepSpeed's CPU kernels (csrc/adam, csrc/lion, csrc/adagrad of
 * 0.19.8), of torch's SGD, and of the CUDA kernel for LAMB.  Every element is computed alone, by
 * operations that round once each, so that neither threads nor the cut into pieces change a bit;
 * LAMB's norms are sums over fixed stretches, added in order.
 */
#include <math.h>

#include "engine/device/cpu.h"
#include "engine/device/cpu_pool.h"
#include "engine/device/vmath.h"

#if defined(__SSE__)
#include <xmmintrin.h>
#endif

// The loops below are for the vectorizer; it changes no result.
#if !defined(__clang__)
#pragma GCC optimize("O3", "no-trapping-math", "fp-contract=off")
#endif

#define UP_GRAIN   (8u * ZT_CPU_BLOCK)
#define UP_STRETCH (64u * ZT_CPU_BLOCK) /* elements per partial sum of LAMB's norms */

/* The hyper-parameters as the kernels use them: rounded to fp32 once. */
typedef struct up_job {
    const zt_update *a;
    float lr, beta1, beta2, gain1, gain2, eps, decay, keep, step, denominator, dampening;
    double *sum; /* LAMB: squares of p and of its direction, per stretch */
} up_job;

/* Gradient of a block, ready for use: in fp32, times the scale. */
ZT_CLONES static void up_scale(float *restrict out, const float *restrict g, uint64_t n,
                               float factor)
{
    for (uint64_t i = 0; i < n; i++)
        out[i] = g[i] * factor;
}

/* Square roots of a block.  Compilers leave sqrtf alone, as it may set errno. */
static void up_roots(uint64_t n, float *restrict out, const float *restrict x, float plus)
{
    uint64_t i = 0;

#if defined(__SSE__)
    const __m128 add = _mm_set1_ps(plus);

    for (; i + 4 <= n; i += 4)
        _mm_storeu_ps(out + i, _mm_sqrt_ps(_mm_add_ps(_mm_loadu_ps(x + i), add)));
#endif
    for (; i < n; i++)
        out[i] = sqrtf(x[i] + plus);
}

/* Kingma & Ba 2015; decoupled: Loshchilov & Hutter 2019. */
ZT_CLONES static void up_moments(const up_job *j, uint64_t n, const float *restrict p,
                                 float *restrict m, float *restrict v, const float *restrict g)
{
    const float b1 = j->beta1, b2 = j->beta2, r1 = j->gain1, r2 = j->gain2;
    // L2: the decay is part of the gradient; LAMB's and AdamW's is beside it
    const float within = j->a->decoupled || j->a->kind == ZT_LAMB ? 0.0f : j->decay;

    for (uint64_t i = 0; i < n; i++) {
        float grad = g[i] + p[i] * within;

        m[i] = m[i] * b1 + grad * r1;
        v[i] = v[i] * b2 + (grad * grad) * r2;
    }
}

ZT_CLONES static void up_adam(const up_job *j, uint64_t n, float *restrict p,
                              const float *restrict m, const float *restrict root)
{
    const float den = j->denominator, step = -j->step, eps = j->eps;
    const float beside = j->a->decoupled ? -j->lr * j->decay : 0.0f;

    for (uint64_t i = 0; i < n; i++)
        p[i] = (p[i] + p[i] * beside) + m[i] / (root[i] * den + eps) * step;
}

/* Duchi et al. 2011. */
ZT_CLONES static void up_squared(const up_job *j, uint64_t n, const float *restrict p,
                                 float *restrict v, const float *restrict g)
{
    const float decay = j->decay;

    for (uint64_t i = 0; i < n; i++) {
        float grad = g[i] + p[i] * decay;

        v[i] = v[i] + grad * grad;
    }
}

ZT_CLONES static void up_adagrad(const up_job *j, uint64_t n, float *restrict p,
                                 const float *restrict root, const float *restrict g)
{
    const float eps = j->eps, decay = j->decay, lr = -j->lr;

    for (uint64_t i = 0; i < n; i++)
        p[i] = p[i] + (g[i] + p[i] * decay) / (root[i] + eps) * lr;
}

/* Chen et al. 2023.  What a blend of exactly 0 does depends on the class that is followed. */
ZT_CLONES static void up_lion(const up_job *j, uint64_t n, float *restrict p, float *restrict m,
                              const float *restrict g)
{
    const float b1 = j->beta1, b2 = j->beta2, r1 = j->gain1, r2 = j->gain2;
    const float lr = j->lr, keep = j->keep;
    const int by_sign = !j->a->zero_up;

    for (uint64_t i = 0; i < n; i++) {
        float blend = m[i] * b1 + g[i] * r1;
        float move = by_sign ? -copysignf(lr, blend) : blend > 0.0f ? -lr : lr;

        p[i] = p[i] * keep + move;
        m[i] = m[i] * b2 + g[i] * r2;
    }
}

ZT_CLONES static void up_sgd(const up_job *j, uint64_t n, float *restrict p,
                             const float *restrict g)
{
    const float lr = -j->lr;
    const float within = j->a->decoupled ? 0.0f : j->decay;
    const float keep = j->a->decoupled ? j->keep : 1.0f;

    for (uint64_t i = 0; i < n; i++) {
        float grad = g[i] + p[i] * within;

        p[i] = p[i] * keep + grad * lr;
    }
}

/* With a momentum buffer (beta1), which the first step fills with the gradient itself. */
ZT_CLONES static void up_momentum(const up_job *j, uint64_t n, float *restrict p, float *restrict m,
                                  const float *restrict g)
{
    const float lr = -j->lr, mu = j->beta1, decay = j->decay;
    const float old = j->a->first ? 0.0f : mu, gain = j->a->first ? 1.0f : j->dampening;
    const float ahead = j->a->nesterov ? mu : 0.0f;
    const int nesterov = j->a->nesterov;

    for (uint64_t i = 0; i < n; i++) {
        float grad = g[i] + p[i] * decay;
        float mi = (old == 0.0f ? 0.0f : m[i] * old) + grad * gain;
        float use = nesterov ? grad + mi * ahead : mi;

        p[i] = p[i] + use * lr;
        m[i] = mi;
    }
}

/* You et al. 2020: the direction of a block; u holds the roots at first. */
ZT_CLONES static void up_direction(const up_job *j, uint64_t n, const float *restrict p,
                                   const float *restrict m, float *restrict u)
{
    const float decay = j->decay, eps = j->a->eps_inside ? 0.0f : j->eps;

    for (uint64_t i = 0; i < n; i++)
        u[i] = m[i] / (u[i] + eps) + p[i] * decay;
}

static void up_lamb_direction(const up_job *j, uint64_t at, uint64_t n, float *u)
{
    const zt_update *a = j->a;

    up_roots(n, u, a->v + at, a->eps_inside ? j->eps : 0.0f);
    up_direction(j, n, a->p + at, a->m + at, u);
}

ZT_CLONES static void up_move(uint64_t n, float *restrict p, const float *restrict u, float factor)
{
    for (uint64_t i = 0; i < n; i++)
        p[i] = p[i] - u[i] * factor;
}

/* Eight sums side by side: the order is fixed and the adder is kept busy. */
static double up_squares(uint64_t n, const float *x)
{
    double s[8] = {0};

    for (uint64_t i = 0; i < n; i++)
        s[i & 7] += (double)x[i] * (double)x[i];
    return ((s[0] + s[1]) + (s[2] + s[3])) + ((s[4] + s[5]) + (s[6] + s[7]));
}

/* The gradient of n elements from `at` on; room for them when they must be converted or scaled. */
static const float *up_gradient(const zt_update *a, uint64_t at, uint64_t n, float *room)
{
    const float *g = zt_cpu_read(a->g_dtype, a->g, at, n, room);
    float plain[ZT_CPU_BLOCK];

    if (a->g_scale == 1.0f) { // exact for every value, NaN included
        return g;
    }
    if (g == room) {
        memcpy(plain, room, (size_t)n * sizeof *plain);
        g = plain;
    }
    up_scale(room, g, n, a->g_scale);
    return room;
}

/* One block of any kind but LAMB. */
static void up_block(const up_job *j, uint64_t at, uint64_t n, const float *g)
{
    const zt_update *a = j->a;
    float *p = a->p + at, *m = a->m ? a->m + at : NULL, *v = a->v ? a->v + at : NULL;
    float root[ZT_CPU_BLOCK];

    switch (a->kind) {
    case ZT_ADAM:
        up_moments(j, n, p, m, v, g);
        up_roots(n, root, v, 0.0f);
        up_adam(j, n, p, m, root);
        break;
    case ZT_ADAGRAD:
        up_squared(j, n, p, v, g);
        up_roots(n, root, v, 0.0f);
        up_adagrad(j, n, p, root, g);
        break;
    case ZT_LION:
        up_lion(j, n, p, m, g);
        break;
    case ZT_SGD:
        if (m)
            up_momentum(j, n, p, m, g);
        else
            up_sgd(j, n, p, g);
        break;
    case ZT_LAMB:
    default:
        break;
    }
}

static void up_range(void *ctx, uint64_t first, uint64_t last, unsigned worker)
{
    const up_job *j = ctx;
    const zt_update *a = j->a;
    float room[ZT_CPU_BLOCK];

    (void)worker;
    for (uint64_t at = first; at < last; at += ZT_CPU_BLOCK) {
        uint64_t n = last - at < ZT_CPU_BLOCK ? last - at : ZT_CPU_BLOCK;

        up_block(j, at, n, up_gradient(a, at, n, room));
        if (a->low)
            zt_cpu_store(a->low_dtype, a->low, at, a->p + at, n);
    }
}

/* LAMB's first pass over one stretch or several: state, and the squares of weights and directions.
 */
static void up_lamb_norms(void *ctx, uint64_t first, uint64_t last, unsigned worker)
{
    const up_job *j = ctx;
    const zt_update *a = j->a;
    float room[ZT_CPU_BLOCK], u[ZT_CPU_BLOCK];

    (void)worker;
    for (uint64_t s = first; s < last; s++) {
        uint64_t end = (s + 1) * UP_STRETCH < a->n ? (s + 1) * UP_STRETCH : a->n;
        double sum_p = 0, sum_u = 0;

        for (uint64_t at = s * UP_STRETCH; at < end; at += ZT_CPU_BLOCK) {
            uint64_t n = end - at < ZT_CPU_BLOCK ? end - at : ZT_CPU_BLOCK;

            up_moments(j, n, a->p + at, a->m + at, a->v + at, up_gradient(a, at, n, room));
            up_lamb_direction(j, at, n, u);
            sum_p += up_squares(n, a->p + at);
            sum_u += up_squares(n, u);
        }
        j->sum[2 * s] = sum_p;
        j->sum[2 * s + 1] = sum_u;
    }
}

/* Its second pass: step is the trust ratio times the step size. */
static void up_lamb_range(void *ctx, uint64_t first, uint64_t last, unsigned worker)
{
    const up_job *j = ctx;
    const zt_update *a = j->a;
    float u[ZT_CPU_BLOCK];

    (void)worker;
    for (uint64_t at = first; at < last; at += ZT_CPU_BLOCK) {
        uint64_t n = last - at < ZT_CPU_BLOCK ? last - at : ZT_CPU_BLOCK;

        up_lamb_direction(j, at, n, u);
        up_move(n, a->p + at, u, j->step);
        if (a->low)
            zt_cpu_store(a->low_dtype, a->low, at, a->p + at, n);
    }
}

static float up_trust(const zt_update *a, double sum_p, double sum_u)
{
    float norm_p = (float)sqrt(sum_p), norm_u = (float)sqrt(sum_u);
    float ratio = 1.0f;

    if (norm_p != 0.0f && norm_u != 0.0f) {
        ratio = norm_p / norm_u;
        ratio = ratio > (float)a->max_coeff ? (float)a->max_coeff : ratio;
        ratio = ratio < (float)a->min_coeff ? (float)a->min_coeff : ratio;
    }
    return ratio;
}

static void up_lamb(zt_device *d, up_job *j)
{
    uint64_t n = j->a->n, stretches = (n - 1) / UP_STRETCH + 1;
    double sum_p = 0, sum_u = 0;

    j->sum = zt_cpu_scratch(d, 0, stretches * 2 * sizeof *j->sum);
    if (!j->sum)
        return;
    zt_cpu_parallel(d, stretches, 1, up_lamb_norms, j);
    for (uint64_t s = 0; s < stretches; s++) {
        sum_p += j->sum[2 * s];
        sum_u += j->sum[2 * s + 1];
    }
    j->step *= up_trust(j->a, sum_p, sum_u);
    zt_cpu_parallel(d, n, UP_GRAIN, up_lamb_range, j);
}

/* Whether the buffers that a kind needs are there. */
static bool up_complete(const zt_update *a)
{
    bool adam = a->kind == ZT_ADAM || a->kind == ZT_LAMB;

    if (!a->p || !a->g ||
        (a->low && a->low_dtype != CKPT_F32 && a->low_dtype != CKPT_BF16 &&
         a->low_dtype != CKPT_F16))
        return false;
    return (!(adam || a->kind == ZT_LION) || a->m) && (!(adam || a->kind == ZT_ADAGRAD) || a->v);
}

void zt_cpu_update(zt_device *d, const zt_update *a)
{
    up_job j = {.a = a};

    if (!zt_cpu_ready(d, a->g_dtype, a->n == 0 || up_complete(a), "update") || a->n == 0)
        return;
    j.lr = (float)a->lr;
    j.beta1 = (float)a->beta1;
    j.beta2 = (float)a->beta2;
    // torch forms 1 - beta from doubles, DeepSpeed's kernels from floats: 1.3e-5 apart for 0.999
    j.gain1 = a->exact ? (float)(1.0 - a->beta1) : 1.0f - j.beta1;
    j.gain2 = a->exact ? (float)(1.0 - a->beta2) : 1.0f - j.beta2;
    j.eps = (float)a->eps;
    j.decay = (float)a->weight_decay;
    j.keep = 1.0f - j.lr * j.decay;
    j.step = (float)a->step_size;
    j.denominator = (float)a->denominator;
    j.dampening = (float)(1.0 - a->dampening);
    if (a->kind == ZT_LAMB)
        up_lamb(d, &j);
    else
        zt_cpu_parallel(d, a->n, UP_GRAIN, up_range, &j);
}
