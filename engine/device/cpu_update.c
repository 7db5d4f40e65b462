/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cpu_update.c: computes optimizer steps on the CPU, in one pass over weights, state and gradient.
 * Blocks stay in the first-level cache while they are converted, updated (optimizer_formulas.h)
 * and rounded.
 *
 * The order of operations is that of DeepSpeed's CPU kernels (csrc/adam, csrc/lion, csrc/adagrad of
 * 0.19.8), of torch's SGD, and of the CUDA kernel for LAMB.  Every element is computed on its own,
 * by operations that round once each, so neither threads nor the borders of blocks change a bit.
 * LAMB's norms are sums over fixed stretches, added in order.
 */
#include <math.h>

#include "engine/device/cpu.h"
#include "engine/device/cpu_pool.h"
#include "engine/device/optimizer_formulas.h"

#define UP_GRAIN   (8u * ZT_CPU_BLOCK)
#define UP_STRETCH (64u * ZT_CPU_BLOCK) /* elements per partial sum of LAMB's norms */

typedef struct up_job {
    const zt_update *a;
    zt_step_numbers s;
    double *sum; /* LAMB: squares of p and of its direction, per stretch */
} up_job;

/* Gradient of a block in fp32, times the scale. */
ZT_CLONES static void up_scale(float *restrict out, const float *restrict g, uint64_t n,
                               float factor)
{
    for (uint64_t i = 0; i < n; i++)
        out[i] = g[i] * factor;
}

#define UP_EACH(formula)                                                                           \
    for (uint64_t i = 0; i < n; i++) {                                                             \
        zt_cell c = {p[i], m[i], v[i], g[i]};                                                      \
        formula(&s, &c);                                                                           \
        p[i] = c.p;                                                                                \
        m[i] = c.m;                                                                                \
        v[i] = c.v;                                                                                \
    }

/*
 * Update n elements (with LAMB only their state).  m, v: dummy memory if the optimizer has no such
 * state.
 */
ZT_CLONES static void up_step(const up_job *j, uint64_t n, float *restrict p, float *restrict m,
                              float *restrict v, const float *restrict g)
{
    const zt_step_numbers s = j->s;

    switch (j->a->kind) {
    case ZT_ADAM:
        UP_EACH(zt_step_adam)
        break;
    case ZT_ADAGRAD:
        UP_EACH(zt_step_adagrad)
        break;
    case ZT_LION:
        UP_EACH(zt_step_lion)
        break;
    case ZT_SGD:
        if (j->a->m) {
            UP_EACH(zt_step_momentum)
        } else {
            UP_EACH(zt_step_sgd)
        }
        break;
    case ZT_LAMB:
        UP_EACH(zt_step_moments)
        break;
    default:
        break;
    }
}

ZT_CLONES static void up_direction(const up_job *j, uint64_t at, uint64_t n, float *restrict u)
{
    const zt_step_numbers s = j->s;
    const float *p = j->a->p + at, *m = j->a->m + at, *v = j->a->v + at;

    for (uint64_t i = 0; i < n; i++) {
        const zt_cell c = {p[i], m[i], v[i], 0.0F};

        u[i] = zt_step_direction(&s, &c);
    }
}

ZT_CLONES static void up_move(uint64_t n, float *restrict p, const float *restrict u, float factor)
{
    for (uint64_t i = 0; i < n; i++)
        p[i] = p[i] - u[i] * factor;
}

/* Eight sums side by side keep the adder busy, in a fixed order. */
static double up_squares(uint64_t n, const float *x)
{
    double s[8] = {0};

    for (uint64_t i = 0; i < n; i++)
        s[i & 7] += (double)x[i] * (double)x[i];
    return ((s[0] + s[1]) + (s[2] + s[3])) + ((s[4] + s[5]) + (s[6] + s[7]));
}

/* Gradient of n elements from `at` on; `room` is used if they must be converted or scaled. */
static const float *up_gradient(const zt_update *a, uint64_t at, uint64_t n, float *room)
{
    const float *g = zt_cpu_read(a->g_dtype, a->g, at, n, room);
    float plain[ZT_CPU_BLOCK];

    if (a->g_scale == 1.0f) { // a product with 1 would change nothing, not even NaN
        return g;
    }
    if (g == room) {
        memcpy(plain, room, (size_t)n * sizeof *plain);
        g = plain;
    }
    up_scale(room, g, n, a->g_scale);
    return room;
}

static void up_range(void *ctx, uint64_t first, uint64_t last, unsigned worker)
{
    const up_job *j = ctx;
    const zt_update *a = j->a;
    float room[ZT_CPU_BLOCK], none[2][ZT_CPU_BLOCK] = {{0}, {0}};

    (void)worker;
    for (uint64_t at = first; at < last; at += ZT_CPU_BLOCK) {
        uint64_t n = last - at < ZT_CPU_BLOCK ? last - at : ZT_CPU_BLOCK;

        up_step(j, n, a->p + at, a->m ? a->m + at : none[0], a->v ? a->v + at : none[1],
                up_gradient(a, at, n, room));
        if (a->low)
            zt_cpu_store(a->low_dtype, a->low, at, a->p + at, n);
    }
}

/* LAMB's first pass over some stretches: update the state, and sum the squares of weights and
 * directions. */
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

            up_step(j, n, a->p + at, a->m + at, a->v + at, up_gradient(a, at, n, room));
            up_direction(j, at, n, u);
            sum_p += up_squares(n, a->p + at);
            sum_u += up_squares(n, u);
        }
        j->sum[2 * s] = sum_p;
        j->sum[2 * s + 1] = sum_u;
    }
}

/* LAMB's second pass; step is the trust ratio times the step size. */
static void up_lamb_range(void *ctx, uint64_t first, uint64_t last, unsigned worker)
{
    const up_job *j = ctx;
    const zt_update *a = j->a;
    float u[ZT_CPU_BLOCK];

    (void)worker;
    for (uint64_t at = first; at < last; at += ZT_CPU_BLOCK) {
        uint64_t n = last - at < ZT_CPU_BLOCK ? last - at : ZT_CPU_BLOCK;

        up_direction(j, at, n, u);
        up_move(n, a->p + at, u, j->s.step);
        if (a->low)
            zt_cpu_store(a->low_dtype, a->low, at, a->p + at, n);
    }
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
    j->s.step *= zt_step_trust(j->a, sum_p, sum_u);
    zt_cpu_parallel(d, n, UP_GRAIN, up_lamb_range, j);
}

void zt_cpu_update(zt_device *d, const zt_update *a)
{
    up_job j = {.a = a};

    if (!zt_ready(d, a->g_dtype, zt_ok_update(a), "update") || a->n == 0)
        return;
    j.s = zt_step_numbers_of(a);
    if (a->kind == ZT_LAMB)
        up_lamb(d, &j);
    else
        zt_cpu_parallel(d, a->n, UP_GRAIN, up_range, &j);
}
