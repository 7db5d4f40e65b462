/* SPDX-License-Identifier: Apache-2.0 */
/* cpu_act.c: computes activations on the CPU, forward and backward, and gated ones. */
#include <string.h>

#include "engine/device/cpu.h"
#include "engine/device/cpu_pool.h"
#include "engine/device/formulas.h"

#define AC_GRAIN (8u * ZT_CPU_BLOCK)

ZT_CLONES static void ac_block(zt_act act, uint64_t n, float *y, const float *x)
{
    for (uint64_t i = 0; i < n; i += ZT_LANES) {
        zt_v v;
        zt_v_load_part(&v, x + i, n - i);
        zt_f_act(act, &v);
        zt_v_store_part(y + i, &v, n - i);
    }
}

ZT_CLONES static void ac_grad_block(const zt_act_grad *a, float *dx, const float *pre,
                                    const float *dy)
{
    for (uint64_t i = 0; i < a->n; i += ZT_LANES) {
        zt_v p, g;
        zt_v_load_part(&p, pre + i, a->n - i);
        zt_v_load_part(&g, dy + i, a->n - i);
        zt_f_act_grad(a->act, &g, &p);
        zt_v_store_part(dx + i, &g, a->n - i);
    }
}

/* y = act(gate) * up for one block of a->n elements. */
ZT_CLONES static void ac_swiglu_block(const zt_swiglu *a, float *y, const float *gate,
                                      const float *up)
{
    for (uint64_t i = 0; i < a->n; i += ZT_LANES) {
        zt_v g, u;
        zt_v_load_part(&g, gate + i, a->n - i);
        zt_v_load_part(&u, up + i, a->n - i);
        zt_f_swiglu(a->act, &g, &u);
        zt_v_store_part(y + i, &g, a->n - i);
    }
}

/* Gradients of one block; outputs may be the inputs. */
ZT_CLONES static void ac_swiglu_grad_block(const zt_swiglu *a, const float *gate, const float *up,
                                           const float *dy)
{
    float *dgate = a->dgate, *dup = a->dup;
    for (uint64_t i = 0; i < a->n; i += ZT_LANES) {
        zt_v g, u, d;
        zt_v_load_part(&g, gate + i, a->n - i);
        zt_v_load_part(&u, up + i, a->n - i);
        zt_v_load_part(&d, dy + i, a->n - i);
        zt_f_swiglu_grad(a->act, &g, &u, &d);
        zt_v_store_part(dgate + i, &g, a->n - i);
        zt_v_store_part(dup + i, &u, a->n - i);
    }
}

void zt_cpu_act_block(zt_act act, uint64_t n, float *y, const float *x)
{
    ac_block(act, n, y, x);
}

/* ---- operations ---------------------------------------------------------------------------- */

typedef struct ac_job {
    ckpt_dtype dt;
    zt_act_grad a; /* forward: dy is NULL, input pre, output dx */
    zt_swiglu s;
} ac_job;

static uint64_t ac_count(uint64_t at, uint64_t last)
{
    return last - at < ZT_CPU_BLOCK ? last - at : ZT_CPU_BLOCK;
}

/* Destination of a block of fp32 results: the output itself, or `room` if it must be converted. */
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

void zt_cpu_act(zt_device *d, ckpt_dtype dt, zt_act act, uint64_t n, void *y, const void *x)
{
    if (!zt_ready(d, dt, zt_ok_act(act, n, y, x), "act"))
        return;
    ac_job j = {.dt = dt, .a = {.act = act, .n = n, .pre = x, .dx = y}};
    zt_cpu_parallel(d, n, AC_GRAIN, ac_act_range, &j);
}

void zt_cpu_act_grad(zt_device *d, ckpt_dtype dt, const zt_act_grad *a)
{
    if (!zt_ready(d, dt, zt_ok_act_grad(a), "act_grad"))
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
        zt_swiglu a = j->s;
        a.n = ac_count(at, last);
        float *out = ac_out(j->dt, a.y, at, room);
        ac_swiglu_block(&a, out, zt_cpu_read(j->dt, a.gate, at, a.n, gate),
                        zt_cpu_read(j->dt, a.up, at, a.n, up));
        ac_put(j->dt, a.y, at, out, a.n);
    }
}

void zt_cpu_swiglu(zt_device *d, ckpt_dtype dt, const zt_swiglu *a)
{
    if (!zt_ready(d, dt, zt_ok_swiglu(a), "swiglu"))
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
    if (!zt_ready(d, dt, zt_ok_swiglu_grad(a), "swiglu_grad"))
        return;
    ac_job j = {.dt = dt, .s = *a};
    zt_cpu_parallel(d, a->n, AC_GRAIN, ac_swiglu_grad_range, &j);
}
