/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cpu_act.c: activations on the processor, forward and backward, and the gated one of Llama.
 */
#include <string.h>

#include "engine/device/cpu.h"
#include "engine/device/cpu_pool.h"
#include "engine/device/vmath.h"

#define AC_GRAIN (8u * ZT_CPU_BLOCK)

#define AC_SQRT_HALF  0x1.6a09e6p-1F /* sqrt(1/2) */
#define AC_DENSITY    0x1.988454p-2F /* 1 / sqrt(2 pi) */
#define AC_TANH_SCALE 0x1.988454p-1F /* sqrt(2 / pi) */
#define AC_TANH_CUBIC 0.044715F

/* y = |y| with the sign of x. */
ZT_INLINE void ac_v_sign(zt_v *y, const zt_v *x)
{
    zt_vi a, b;
    memcpy(&a, y, sizeof a);
    memcpy(&b, x, sizeof b);
    a = (a & 0x7fffffff) | (b & (-0x7fffffff - 1));
    memcpy(y, &a, sizeof a);
}

ZT_INLINE void ac_v_abs(zt_v *x)
{
    zt_vi a;
    memcpy(&a, x, sizeof a);
    a &= 0x7fffffff;
    memcpy(x, &a, sizeof a);
}

/*
 * x = tanh(x), within 2 ulp; NaN stays.
 *
 * Source  below 0.625: x + x^3 P(x^2), P an own minimax fit (4.2e-9 of tanh); above: 1 - 2 / (exp(2
 * |x|) + 1)
 */
ZT_INLINE void ac_v_tanh(zt_v *x)
{
    zt_v at = *x, s = at * at, z = at, big;
    zt_v p = -5.717036561e-03F * s + 2.065057900e-02F;
    p = ((p * s - 5.374349526e-02F) * s + 1.333149125e-01F) * s - 3.333328392e-01F;
    zt_v y = at + at * s * p;
    ac_v_abs(&z);
    big = z + z;
    zt_v_exp(&big);
    big = 1.0F - 2.0F / (big + 1.0F);
    ac_v_sign(&big, &at);
    zt_vi mask = z >= 0.625F;
    zt_v_select(&y, &mask, &big);
    *x = y;
}

/*
 * x = erf(x), within 2 ulp; NaN stays.
 *
 * Source  below 1: x + x P(x^2); above: 1 - exp(-|x| Q(|x|)), from 3.95 on 1.  P and Q are own
 * minimax fits (1.2e-9 of erf, 5.5e-10)
 */
ZT_INLINE void ac_v_erf(zt_v *x)
{
    zt_v at = *x, s = at * at, z = at, limit = {0};
    zt_v p = (7.889119539e-05F * s - 8.020841281e-04F) * s + 5.189535339e-03F;
    p = (p * s - 2.685444459e-02F) * s + 1.128360018e-01F;
    p = (p * s - 3.761262714e-01F) * s + 1.283791659e-01F;
    zt_v y = at + at * p;
    ac_v_abs(&z);
    limit += 3.95F;
    zt_vi mask = z > limit;
    zt_v_select(&z, &mask, &limit);
    zt_v q = (1.257923228e-05F * z - 3.363403644e-04F) * z + 3.697695877e-03F;
    q = (q * z - 2.387934303e-02F) * z + 1.063736095e-01F;
    q = (q * z + 6.350682621e-01F) * z + 1.128669043e+00F;
    zt_v big = -(z * q);
    zt_v_exp(&big);
    big = 1.0F - big;
    ac_v_sign(&big, &at);
    mask = z >= 1.0F;
    zt_v_select(&y, &mask, &big);
    *x = y;
}

/* x = 1 / (1 + exp(-x)). */
ZT_INLINE void ac_v_sigmoid(zt_v *x)
{
    zt_v e = -*x;
    zt_v_exp(&e);
    *x = 1.0F / (1.0F + e);
}

ZT_INLINE void ac_v_relu(zt_v *y, const zt_v *pre)
{
    zt_v zero = {0};
    zt_vi mask = *pre <= 0.0F; // NaN stays
    zt_v_select(y, &mask, &zero);
}

/* x = act(x). */
ZT_INLINE void ac_v_act(zt_act act, zt_v *x)
{
    zt_v t = *x;
    switch (act) {
    case ZT_GELU:
        t *= AC_SQRT_HALF;
        ac_v_erf(&t);
        *x = 0.5F * *x * (1.0F + t);
        break;
    case ZT_GELU_TANH:
        t = AC_TANH_SCALE * (t + AC_TANH_CUBIC * (t * t * t));
        ac_v_tanh(&t);
        *x = 0.5F * *x * (1.0F + t);
        break;
    case ZT_RELU:
        ac_v_relu(x, &t);
        break;
    case ZT_TANH:
        ac_v_tanh(x);
        break;
    case ZT_SILU:
        ac_v_sigmoid(&t);
        *x *= t;
        break;
    case ZT_ACT_NONE:
    default:
        break;
    }
}

/* d gelu / dx = Phi(x) + x phi(x). */
ZT_INLINE void ac_v_gelu_slope(zt_v *x)
{
    zt_v at = *x, t = at * AC_SQRT_HALF, e = -0.5F * at * at;
    ac_v_erf(&t);
    zt_v_exp(&e);
    *x = 0.5F * (1.0F + t) + at * (AC_DENSITY * e);
}

ZT_INLINE void ac_v_gelu_tanh_slope(zt_v *x)
{
    zt_v at = *x, s = at * at, t = AC_TANH_SCALE * (at + AC_TANH_CUBIC * (s * at));
    ac_v_tanh(&t);
    zt_v inner = AC_TANH_SCALE * (1.0F + 3.0F * AC_TANH_CUBIC * s);
    *x = 0.5F * (1.0F + t) + 0.5F * at * (1.0F - t * t) * inner;
}

/* d silu / dx = s (1 + x (1 - s)), s = sigmoid(x). */
ZT_INLINE void ac_v_silu_slope(zt_v *x)
{
    zt_v s = *x;
    ac_v_sigmoid(&s);
    *x = s * (1.0F + *x * (1.0F - s));
}

/* dy *= act'(pre). */
ZT_INLINE void ac_v_grad(zt_act act, zt_v *dy, const zt_v *pre)
{
    zt_v t = *pre;
    switch (act) {
    case ZT_GELU:
        ac_v_gelu_slope(&t);
        break;
    case ZT_GELU_TANH:
        ac_v_gelu_tanh_slope(&t);
        break;
    case ZT_RELU:
        ac_v_relu(dy, pre);
        return;
    case ZT_TANH:
        ac_v_tanh(&t);
        t = 1.0F - t * t;
        break;
    case ZT_SILU:
        ac_v_silu_slope(&t);
        break;
    case ZT_ACT_NONE:
    default:
        return;
    }
    *dy *= t;
}

/* A part of a vector: the missing lanes are 0. */
ZT_INLINE void ac_v_load(zt_v *v, const float *p, uint64_t n)
{
    if (n >= ZT_LANES) {
        zt_v_load(v, p);
        return;
    }
    float t[ZT_LANES] = {0};
    memcpy(t, p, n * sizeof *t);
    zt_v_load(v, t);
}

ZT_INLINE void ac_v_store(float *p, const zt_v *v, uint64_t n)
{
    // two calls: a length that is known becomes one store
    if (n >= ZT_LANES)
        zt_v_store(p, v);
    else
        memcpy(p, v, n * sizeof *p);
}

ZT_CLONES static void ac_block(zt_act act, uint64_t n, float *y, const float *x)
{
    for (uint64_t i = 0; i < n; i += ZT_LANES) {
        zt_v v;
        ac_v_load(&v, x + i, n - i);
        ac_v_act(act, &v);
        ac_v_store(y + i, &v, n - i);
    }
}

ZT_CLONES static void ac_grad_block(const zt_act_grad *a, float *dx, const float *pre,
                                    const float *dy)
{
    for (uint64_t i = 0; i < a->n; i += ZT_LANES) {
        zt_v p, g;
        ac_v_load(&p, pre + i, a->n - i);
        ac_v_load(&g, dy + i, a->n - i);
        ac_v_grad(a->act, &g, &p);
        ac_v_store(dx + i, &g, a->n - i);
    }
}

/* y = silu(gate) * up. */
ZT_CLONES static void ac_swiglu_block(uint64_t n, float *y, const float *gate, const float *up)
{
    for (uint64_t i = 0; i < n; i += ZT_LANES) {
        zt_v g, u;
        ac_v_load(&g, gate + i, n - i);
        ac_v_load(&u, up + i, n - i);
        ac_v_act(ZT_SILU, &g);
        g *= u;
        ac_v_store(y + i, &g, n - i);
    }
}

/* The gradients of one block; outputs may be the inputs. */
ZT_CLONES static void ac_swiglu_grad_block(const zt_swiglu *a, const float *gate, const float *up,
                                           const float *dy)
{
    float *dgate = a->dgate, *dup = a->dup;
    for (uint64_t i = 0; i < a->n; i += ZT_LANES) {
        zt_v g, u, d;
        ac_v_load(&g, gate + i, a->n - i);
        ac_v_load(&u, up + i, a->n - i);
        ac_v_load(&d, dy + i, a->n - i);
        zt_v slope = g, silu = g;
        ac_v_silu_slope(&slope);
        ac_v_act(ZT_SILU, &silu);
        u *= d * slope;
        silu *= d;
        ac_v_store(dgate + i, &u, a->n - i);
        ac_v_store(dup + i, &silu, a->n - i);
    }
}

void zt_cpu_act_block(zt_act act, uint64_t n, float *y, const float *x)
{
    ac_block(act, n, y, x);
}

/* ---- operations ---------------------------------------------------------------------------- */

typedef struct ac_job {
    ckpt_dtype dt;
    zt_act_grad a; /* forward: dy is NULL, from pre to dx */
    zt_swiglu s;
} ac_job;

static uint64_t ac_count(uint64_t at, uint64_t last)
{
    return last - at < ZT_CPU_BLOCK ? last - at : ZT_CPU_BLOCK;
}

/* Where a block of fp32 results goes: straight to the output, or first to `room`. */
static float *ac_out(ckpt_dtype dt, void *y, uint64_t at, float *room)
{
    return dt == CKPT_F32 ? (float *)y + at : room;
}

static void ac_put(ckpt_dtype dt, void *y, uint64_t at, const float *from, uint64_t n)
{
    if (dt != CKPT_F32)
        zt_cpu_store(dt, y, at, from, n);
}

static void ac_act_range(void *ctx, uint64_t first, uint64_t last, unsigned worker)
{
    const ac_job *j = ctx;
    float in[ZT_CPU_BLOCK], in2[ZT_CPU_BLOCK], room[ZT_CPU_BLOCK];
    (void)worker;
    for (uint64_t at = first; at < last; at += ZT_CPU_BLOCK) {
        zt_act_grad a = j->a;
        a.n = ac_count(at, last);
        float *out = ac_out(j->dt, a.dx, at, room);
        const float *pre = zt_cpu_read(j->dt, a.pre, at, a.n, in);
        if (a.dy)
            ac_grad_block(&a, out, pre, zt_cpu_read(j->dt, a.dy, at, a.n, in2));
        else
            ac_block(a.act, a.n, out, pre);
        ac_put(j->dt, a.dx, at, out, a.n);
    }
}

static bool ac_known(zt_act act)
{
    return act >= ZT_ACT_NONE && act <= ZT_SILU;
}

void zt_cpu_act(zt_device *d, ckpt_dtype dt, zt_act act, uint64_t n, void *y, const void *x)
{
    if (!zt_cpu_ready(d, dt, ac_known(act) && (n == 0 || (x && y)), "act"))
        return;
    ac_job j = {.dt = dt, .a = {.act = act, .n = n, .pre = x, .dx = y}};
    zt_cpu_parallel(d, n, AC_GRAIN, ac_act_range, &j);
}

void zt_cpu_act_grad(zt_device *d, ckpt_dtype dt, const zt_act_grad *a)
{
    bool ok = a && ac_known(a->act) && (a->n == 0 || (a->pre && a->dy && a->dx));
    if (!zt_cpu_ready(d, dt, ok, "act_grad"))
        return;
    ac_job j = {.dt = dt, .a = *a};
    zt_cpu_parallel(d, a->n, AC_GRAIN, ac_act_range, &j);
}

static void ac_swiglu_range(void *ctx, uint64_t first, uint64_t last, unsigned worker)
{
    const ac_job *j = ctx;
    float gate[ZT_CPU_BLOCK], up[ZT_CPU_BLOCK], room[ZT_CPU_BLOCK];
    (void)worker;
    for (uint64_t at = first; at < last; at += ZT_CPU_BLOCK) {
        uint64_t n = ac_count(at, last);
        float *out = ac_out(j->dt, j->s.y, at, room);
        ac_swiglu_block(n, out, zt_cpu_read(j->dt, j->s.gate, at, n, gate),
                        zt_cpu_read(j->dt, j->s.up, at, n, up));
        ac_put(j->dt, j->s.y, at, out, n);
    }
}

void zt_cpu_swiglu(zt_device *d, ckpt_dtype dt, const zt_swiglu *a)
{
    if (!zt_cpu_ready(d, dt, a && (a->n == 0 || (a->gate && a->up && a->y)), "swiglu"))
        return;
    ac_job j = {.dt = dt, .s = *a};
    zt_cpu_parallel(d, a->n, AC_GRAIN, ac_swiglu_range, &j);
}

static void ac_swiglu_grad_range(void *ctx, uint64_t first, uint64_t last, unsigned worker)
{
    const ac_job *j = ctx;
    float in[3][ZT_CPU_BLOCK], room[2][ZT_CPU_BLOCK];
    (void)worker;
    for (uint64_t at = first; at < last; at += ZT_CPU_BLOCK) {
        zt_swiglu a = j->s;
        a.n = ac_count(at, last);
        a.dgate = ac_out(j->dt, j->s.dgate, at, room[0]);
        a.dup = ac_out(j->dt, j->s.dup, at, room[1]);
        ac_swiglu_grad_block(&a, zt_cpu_read(j->dt, a.gate, at, a.n, in[0]),
                             zt_cpu_read(j->dt, a.up, at, a.n, in[1]),
                             zt_cpu_read(j->dt, a.dy, at, a.n, in[2]));
        ac_put(j->dt, j->s.dgate, at, a.dgate, a.n);
        ac_put(j->dt, j->s.dup, at, a.dup, a.n);
    }
}

void zt_cpu_swiglu_grad(zt_device *d, ckpt_dtype dt, const zt_swiglu *a)
{
    bool ok = a && (a->n == 0 || (a->gate && a->up && a->dy && a->dgate && a->dup));
    if (!zt_cpu_ready(d, dt, ok, "swiglu_grad"))
        return;
    ac_job j = {.dt = dt, .s = *a};
    zt_cpu_parallel(d, a->n, AC_GRAIN, ac_swiglu_grad_range, &j);
}
