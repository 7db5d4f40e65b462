/* SPDX-License-Identifier: Apache-2.0 */
/*
 * average.c: computes the mean of gradients over ranks: the factors, their order, their dtypes.
 *
 * Source: DeepSpeed 0.19.8, runtime/engine.py (allreduce_bucket), runtime/zero/stage_1_and_2.py
 * (average_tensor), runtime/zero/stage3.py (reduce-scatter).  The order of factors is the same as
 * there, because in 16 bits the rounding depends on it.  If a factor cannot change the rounding, it
 * moves into the update, which saves a pass over all gradients.
 */
#include <assert.h>
#include <math.h>

#include "engine/zero/own.h"

/* Elements per rank in the cast buffer: bounded, but large enough to hide latency. */
#define AV_CAST (UINT64_C(1) << 20)

/* True for powers of two, because multiplying by them does not round (except near underflow). */
static bool av_power_of_two(double x)
{
    int e;

    return isfinite(x) && x > 0 && frexp(x, &e) == 0.5; // exact comparison is intended
}

/* The factors that DeepSpeed applies with w ranks. */
static void av_factors(const zt_zero *z, zr_average *a, double w)
{
    const zt_config *c = z->config;
    zr_wrapper wrapper = zr_of(z)->wrapper;
    double mean = c->sum_gradients ? 1 : w;

    if (wrapper == ZR_ZERO3) {
        a->before[0] = (float)(1 / c->predivide);
        a->before[1] = (float)(1 / mean);
        a->after = c->predivide == w ? 1.0f : (float)c->predivide;
    } else if (wrapper == ZR_ZERO12 && c->reduce_scatter) {
        a->source = (float)(1 / mean);
    } else if (c->prescale && wrapper != ZR_ZERO12) {
        a->before[0] = (float)(1 / w);
    } else {
        a->before[0] = (float)(1 / c->predivide);
        a->after = c->sum_gradients ? 1.0f : (float)(c->predivide / w);
    }
}

/* True if delaying the factors does not change the rounding (fp32: at most the last bit). */
static bool av_may_fold(const zt_zero *z, const zr_average *a)
{
    const ckpt_dtype dt[3] = {z->model->dtype, z->config->comm_dtype, zr_of(z)->grad_dtype};
    unsigned n32 = 0;

    for (unsigned i = 0; i < 3; i++) {
        if (dt[i] == CKPT_F16) {
            return false; // a sum may overflow fp16's small range where a mean would not
        }
        n32 += dt[i] == CKPT_F32;
    }
    return n32 == 3 ||
           (av_power_of_two((double)a->source) && av_power_of_two((double)a->after) &&
            av_power_of_two((double)a->before[0]) && av_power_of_two((double)a->before[1]));
}

/* Choose the factors of this run. */
void zr_average_plan(zt_zero *z)
{
    zr_own *o = zr_of(z);
    zr_average a = {.source = 1, .before = {1, 1}, .after = 1, .fold = 1};

    if (z->comm->world > 1) {
        av_factors(z, &a, z->comm->world);
        if (av_may_fold(z, &a)) {
            float fold = a.source * a.before[0] * a.before[1] * a.after;

            a = (zr_average){.source = 1, .before = {1, 1}, .after = 1, .fold = fold};
        }
    }
    o->average = a;
}

/* Multiply in place; a factor of 1 is skipped, because it would change nothing. */
void zr_scale(zt_zero *z, ckpt_dtype dt, uint64_t n, void *x, float factor)
{
    if (factor < 1 || factor > 1)
        z->device->ops->scale(z->device, dt, n, x, factor);
}

/* Apply both factors that come before the sum. */
static void av_before(zt_zero *z, ckpt_dtype dt, uint64_t n, void *x)
{
    const zr_average *a = &zr_of(z)->average;

    zr_scale(z, dt, n, x, a->before[0]);
    zr_scale(z, dt, n, x, a->before[1]);
}

/* The cast buffer, allocated at the first use, which comes at the same time on all ranks. */
static void *av_buffer(zt_zero *z, ckpt_err *err)
{
    zr_own *o = zr_of(z);
    uint64_t n = AV_CAST * (uint64_t)z->comm->world;

    if (!o->cast)
        o->cast = zr_alloc(z, zr_bytes(z->config->comm_dtype, n), &o->memory.buffers, true);
    if (zt_comm_agree(z->comm, !o->cast ? ckpt_fail_memory(err) : CKPT_OK, err) != CKPT_OK)
        return NULL;
    return o->cast;
}

/*
 * Mean of n elements over ranks, in place (before `fold`): on all ranks, or (root >= 0) on one;
 * then the elements become undefined on the others.
 */
int zr_sum(zt_zero *z, void *x, ckpt_dtype dt, uint64_t n, int root, ckpt_err *err)
{
    zr_own *o = zr_of(z);
    const zt_device_ops *ops = z->device->ops;
    ckpt_dtype c = z->config->comm_dtype;
    uint64_t step = c == dt ? n : AV_CAST * (uint64_t)z->comm->world;
    int rc = CKPT_OK;

    assert((x || n == 0) && root < z->comm->world);
    if (z->comm->world == 1 || n == 0)
        return CKPT_OK;
    if (c != dt && !av_buffer(z, err))
        return zr_code(err);
    zr_scale(z, dt, n, x, o->average.source);
    for (uint64_t at = 0; at < n && rc == CKPT_OK; at += step) {
        uint64_t part = n - at < step ? n - at : step;
        void *from = zr_at(x, dt, at);
        void *sum = c == dt ? from : o->cast;

        if (c != dt)
            ops->cast(z->device, part, sum, c, from, dt);
        av_before(z, c, part, sum);
        zr_ready(z);
        rc = root < 0 ? z->wire->ops->all_reduce(z->wire, sum, part, c, ZT_SUM, err)
                      : z->wire->ops->reduce(z->wire, sum, part, c, root, err);
        if (root >= 0 && root != z->comm->rank)
            continue;
        zr_scale(z, c, part, sum, o->average.after);
        if (c != dt)
            ops->cast(z->device, part, from, dt, sum, c);
    }
    return rc;
}

/* Use the cast buffer for AV_CAST elements of every rank's slice at a time. */
static int av_scatter_cast(zt_zero *z, void *x, ckpt_dtype dt, uint64_t slice, ckpt_err *err)
{
    zr_own *o = zr_of(z);
    const zt_device_ops *ops = z->device->ops;
    ckpt_dtype c = z->config->comm_dtype;
    uint64_t rank = (uint64_t)z->comm->rank, world = (uint64_t)z->comm->world;
    int rc = CKPT_OK;

    if (!av_buffer(z, err))
        return zr_code(err);
    for (uint64_t at = 0; at < slice && rc == CKPT_OK; at += AV_CAST) {
        uint64_t n = slice - at < AV_CAST ? slice - at : AV_CAST;
        void *mine = zr_at(o->cast, c, rank * n);

        for (uint64_t r = 0; r < world; r++)
            ops->cast(z->device, n, zr_at(o->cast, c, r * n), c, zr_at(x, dt, r * slice + at), dt);
        av_before(z, c, world * n, o->cast);
        zr_ready(z);
        rc = z->wire->ops->reduce_scatter(z->wire, mine, o->cast, n, c, err);
        zr_scale(z, c, n, mine, o->average.after);
        ops->cast(z->device, n, zr_at(x, dt, rank * slice + at), dt, mine, c);
    }
    return rc;
}

/*
 * Mean over ranks of this rank's slice of x [world * slice], in place; the rest of x becomes
 * undefined.
 */
int zr_sum_scatter(zt_zero *z, void *x, ckpt_dtype dt, uint64_t slice, ckpt_err *err)
{
    zr_own *o = zr_of(z);
    uint64_t all = slice * (uint64_t)z->comm->world;
    void *mine = zr_at(x, dt, (uint64_t)z->comm->rank * slice);
    int rc;

    if (z->comm->world == 1 || slice == 0)
        return CKPT_OK;
    zr_scale(z, dt, all, x, o->average.source);
    if (z->config->comm_dtype != dt)
        return av_scatter_cast(z, x, dt, slice, err);
    av_before(z, dt, all, x);
    zr_ready(z);
    rc = z->wire->ops->reduce_scatter(z->wire, mine, x, slice, dt, err);
    zr_scale(z, dt, slice, mine, o->average.after);
    return rc;
}
