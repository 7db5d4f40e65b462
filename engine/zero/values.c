/* SPDX-License-Identifier: Apache-2.0 */
/*
 * values.c: moves values into and out of the runtime: initial values, masters after a resume, runs
 * that this rank owns, complete parameters.
 */
#include <assert.h>

#include "engine/zero/own.h"

/* Elements at a time, 16 MiB: enough for many threads to draw values for some milliseconds. */
#define VA_CHUNK (UINT64_C(1) << 22)

/* Buffers for values on their way to the device. */
typedef struct va_way {
    uint64_t n;
    float *host;
    void *device; /* equals host on a host device */
} va_way;

static int va_new(zt_zero *z, va_way *w, ckpt_err *err)
{
    w->n = 1;
    for (uint32_t i = 0; i < z->model->params.n; i++)
        w->n = z->model->params.at[i].n_elems > w->n ? z->model->params.at[i].n_elems : w->n;
    w->n = w->n < VA_CHUNK ? w->n : VA_CHUNK;
    w->host = ckpt_alloc(w->n * sizeof *w->host);
    w->device = z->device->host ? (void *)w->host
                                : z->device->ops->alloc(z->device, w->n * sizeof *w->host);
    return !w->host || !w->device ? ckpt_fail_memory(err) : CKPT_OK;
}

static void va_free(zt_zero *z, va_way *w)
{
    if (!z->device->host)
        z->device->ops->release(z->device, w->device);
    ckpt_free(w->host);
}

/* The source of initial values. */
typedef struct va_source {
    zt_value_fn value;
    void *ctx;
} va_source;

/* Fill this rank's part of one parameter's working weights. */
static int va_param(zt_zero *z, uint32_t i, const va_source *from, va_way *w, ckpt_err *err)
{
    ckpt_dtype dt = z->model->dtype;
    uint64_t first, count;
    char *low = zr_of(z)->stage->low(z, i, &first, &count);
    int rc = CKPT_OK;

    assert(count == 0 || first + count <= z->model->params.at[i].n_elems);
    for (uint64_t at = 0; at < count && rc == CKPT_OK; at += w->n) {
        uint64_t n = count - at < w->n ? count - at : w->n;

        rc = from->value(from->ctx, i, first + at, n, w->host, err);
        if (!z->device->host)
            z->device->ops->put(z->device, w->device, w->host, n * sizeof *w->host);
        z->device->ops->cast(z->device, n, low + zr_bytes(dt, at), dt, w->device, CKPT_F32);
        z->device->ops->sync(z->device);
    }
    return rc;
}

/* Fill all trained parameters, or (trained false) all frozen ones. */
static int va_params(zt_zero *z, const va_source *from, bool trained, ckpt_err *err)
{
    va_way w = {0};
    int rc = va_new(z, &w, err);

    for (uint32_t i = 0; i < z->model->params.n && rc == CKPT_OK; i++) {
        if (zr_is_trained(z, i) == trained)
            rc = va_param(z, i, from, &w, err);
    }
    va_free(z, &w);
    return rc;
}

/* Set masters to the working weights, cast to fp32, and state to zero. */
static int va_masters(zt_zero *z, ckpt_err *err)
{
    zt_device *home = zr_of(z)->home;
    int rc = CKPT_OK;

    for (uint32_t i = 0; i < z->n_parts && rc == CKPT_OK; i++) {
        zt_partition *p = &z->part[i];
        void *low = zr_low(z, i);

        rc = zr_bring(z, i, err);
        if (rc != CKPT_OK)
            break;
        if (low)
            zr_masters_read(z, p->master, low, p->n_elems);
        for (unsigned s = 0; s < z->config->optim.n_state; s++)
            home->ops->zero(home, p->state[s], 4 * p->n_elems);
        rc = zr_put_back(z, i, true, err);
    }
    return rc;
}

/*
 * Fill working weights first, then masters from them, because DeepSpeed loses the extra precision
 * in the same way.
 */
int zt_zero_fill(zt_zero *z, zt_value_fn value, void *ctx, ckpt_err *err)
{
    const va_source from = {.value = value, .ctx = ctx};
    int rc = va_params(z, &from, false, err);

    if (rc == CKPT_OK)
        rc = va_params(z, &from, true, err);
    if (rc == CKPT_OK)
        rc = va_masters(z, err);
    rc = zt_comm_agree(z->comm, rc, err);
    if (rc == CKPT_OK)
        rc = zr_of(z)->stage->publish(z, err);
    z->updates = 0;
    if (rc == CKPT_OK)
        rc = zr_update_initial(z, err);
    if (rc == CKPT_OK)
        rc = zr_rates_begin(z, err);
    if (rc == CKPT_OK)
        rc = zt_device_check(z->device, err);
    return zt_comm_agree(z->comm, rc, err);
}

int zt_zero_fill_frozen(zt_zero *z, zt_value_fn value, void *ctx, ckpt_err *err)
{
    const va_source from = {.value = value, .ctx = ctx};
    int rc = zt_comm_agree(z->comm, va_params(z, &from, false, err), err);

    return rc == CKPT_OK ? zr_of(z)->stage->publish(z, err) : rc;
}

int zt_zero_refresh(zt_zero *z, ckpt_err *err)
{
    int rc = CKPT_OK;

    for (uint32_t i = 0; i < z->n_parts && rc == CKPT_OK; i++) {
        zt_partition *p = &z->part[i];
        void *low = zr_low(z, i);

        if (!low) {
            continue; // the masters are the working weights
        }
        rc = zr_bring(z, i, err);
        if (rc == CKPT_OK) {
            zr_masters_write(z, low, p->master, p->n_elems);
            rc = zr_put_back(z, i, false, err);
        }
    }
    if (rc == CKPT_OK)
        rc = zt_device_check(z->device, err);
    rc = zt_comm_agree(z->comm, rc, err);
    return rc == CKPT_OK ? zr_of(z)->stage->publish(z, err) : rc;
}

const zt_owned *zt_zero_owned(const zt_zero *z, size_t *n)
{
    *n = zr_of(z)->n_owned;
    return zr_of(z)->owned;
}

/* ---- partitions in memory ---- */

int zt_zero_hold(zt_zero *z, uint32_t partition, ckpt_err *err)
{
    if (partition >= z->n_parts)
        return ckpt_fail(err, CKPT_EUSAGE,
                         "partition %u does not exist: the number of partitions is %u", partition,
                         z->n_parts);
    return zr_bring(z, partition, err);
}

int zt_zero_let_go(zt_zero *z, uint32_t partition, bool changed, ckpt_err *err)
{
    if (partition >= z->n_parts)
        return ckpt_fail(err, CKPT_EUSAGE,
                         "partition %u does not exist: the number of partitions is %u", partition,
                         z->n_parts);
    return zr_put_back(z, partition, changed, err);
}

int zt_zero_gather(zt_zero *z, uint32_t param, void *host, ckpt_err *err)
{
    const void *whole = NULL;
    int rc = zr_of(z)->stage->whole(z, param, &whole, err);

    assert(host && param < z->model->params.n);
    if (rc == CKPT_OK) {
        uint64_t n = z->model->params.at[param].n_elems;

        z->device->ops->get(z->device, host, whole, zr_bytes(z->model->dtype, n));
        z->device->ops->sync(z->device);
        rc = zt_device_check(z->device, err);
    }
    return rc;
}
