/* SPDX-License-Identifier: Apache-2.0 */
/*
 * muon.c: implements Muon with sharded state; Muon needs complete matrices to compute directions.
 *
 * Each rank holds a run of a matrix' gradient and momentum.  All ranks assemble the matrix by
 * summing buffers that are zero outside the rank's own run; then every rank computes the direction
 * and keeps its run.
 */
#include <assert.h>

#include "engine/zero/own.h"

bool zr_has_muon(const zt_zero *z)
{
    return z->config->optim.type == ZT_OPT_MUON;
}

/* Buffers for the largest matrix. */
typedef struct zm_work {
    float *g, *momentum;
    void *scratch;
    uint64_t n;       /* elements */
    uint64_t n_bytes; /* size of scratch */
} zm_work;

/* View a tensor with more axes as a matrix: its first axis by all others. */
static void zm_shape(const zt_param *p, uint64_t *rows, uint64_t *cols)
{
    assert(p->ndim >= 2); // vectors are of the other half
    *rows = p->shape[0];
    *cols = p->shape[0] == 0 ? 0 : p->n_elems / p->shape[0];
}

/* Allocate buffers for the largest matrix; it is the same on all ranks. */
static int zm_work_new(zt_zero *z, zm_work *w, ckpt_err *err)
{
    const zr_own *o = zr_of(z);
    const zt_device_ops *ops = z->device->ops;

    for (uint32_t i = 0; i < z->n_order; i++) {
        const zt_param *p = &z->model->params.at[z->order[i]];
        uint64_t rows, cols, n_bytes;

        if (!z->group[o->place[z->order[i]].group].muon)
            continue;
        zm_shape(p, &rows, &cols);
        n_bytes = zt_muon_scratch(rows, cols);
        w->n = p->n_elems > w->n ? p->n_elems : w->n;
        w->n_bytes = n_bytes > w->n_bytes ? n_bytes : w->n_bytes;
    }
    w->g = ops->alloc(z->device, 4 * w->n + 64);
    w->momentum = ops->alloc(z->device, 4 * w->n + 64);
    w->scratch = ops->alloc(z->device, w->n_bytes + 64);
    if (!w->g || !w->momentum || !w->scratch)
        return ckpt_fail_memory(err);
    return CKPT_OK;
}

static void zm_work_free(zt_zero *z, zm_work *w)
{
    z->device->ops->release(z->device, w->g);
    z->device->ops->release(z->device, w->momentum);
    z->device->ops->release(z->device, w->scratch);
}

/* This rank's run of a parameter; count 0: it has none. */
static zt_owned zm_owned(const zt_zero *z, uint32_t param)
{
    const zr_own *o = zr_of(z);

    for (size_t i = 0; i < o->n_owned; i++) {
        if (o->owned[i].param == param)
            return o->owned[i];
    }
    return (zt_owned){.param = param, .partition = o->place[param].part};
}

/* Assemble one matrix, compute its direction, keep this rank's run. */
static int zm_matrix(zt_zero *z, uint32_t param, zm_work *w, float g_scale, ckpt_err *err)
{
    const zr_own *o = zr_of(z);
    const zt_device_ops *ops = z->device->ops;
    const zt_param *p = &z->model->params.at[param];
    zt_owned own = zm_owned(z, param);
    zt_partition *part = &z->part[own.partition];
    void *grad = zr_at(part->grad, o->grad_dtype, own.at);
    uint64_t rows, cols;
    int rc = CKPT_OK;

    assert(p->n_elems <= w->n && own.first + own.count <= p->n_elems);
    zm_shape(p, &rows, &cols);
    if (own.count > 0)
        rc = zr_bring(z, own.partition, err);
    if (rc != CKPT_OK)
        return rc;
    if (own.count < p->n_elems) {
        ops->zero(z->device, w->g, 4 * p->n_elems);
        ops->zero(z->device, w->momentum, 4 * p->n_elems);
    }
    if (own.count > 0) {
        ops->cast(z->device, own.count, w->g + own.first, CKPT_F32, grad, o->grad_dtype);
        if (zr_is_home(z))
            ops->put(z->device, w->momentum + own.first, part->state[0] + own.at, 4 * own.count);
        else
            ops->copy(z->device, w->momentum + own.first, part->state[0] + own.at, 4 * own.count);
    }
    if (z->config->stage > 0 && z->comm->world > 1) {
        zr_ready(z);
        rc = z->wire->ops->all_reduce(z->wire, w->g, p->n_elems, CKPT_F32, ZT_SUM, err);
        if (rc == CKPT_OK)
            rc = z->wire->ops->all_reduce(z->wire, w->momentum, p->n_elems, CKPT_F32, ZT_SUM, err);
    }
    zr_scale(z, CKPT_F32, p->n_elems, w->g, g_scale);
    zt_muon_direction(z->device, &z->group[o->place[param].group].hyper, rows, cols, w->g,
                      w->momentum, w->scratch);
    if (own.count > 0) {
        ops->cast(z->device, own.count, grad, o->grad_dtype, w->g + own.first, CKPT_F32);
        if (zr_is_home(z))
            ops->get(z->device, part->state[0] + own.at, w->momentum + own.first, 4 * own.count);
        else
            ops->copy(z->device, part->state[0] + own.at, w->momentum + own.first, 4 * own.count);
    }
    return rc == CKPT_OK && own.count > 0 ? zr_put_back(z, own.partition, true, err) : rc;
}

/*
 * The update multiplies all gradients by the averaging factor and g_scale.  Directions do not
 * contain these factors, so divide by them in advance.
 */
static void zm_rescale(zt_zero *z, float g_scale)
{
    const zr_own *o = zr_of(z);

    for (uint32_t i = 0; i < z->n_parts; i++) {
        zt_partition *p = &z->part[i];

        if (z->group[p->group].muon)
            zr_scale(z, o->grad_dtype, p->n_elems, p->grad, 1 / g_scale);
    }
}

int zr_muon(zt_zero *z, float g_scale, ckpt_err *err)
{
    const zr_own *o = zr_of(z);
    zm_work w = {0};
    int rc = zm_work_new(z, &w, err);
    bool before_clip = o->wrapper == ZR_ZERO12 || o->wrapper == ZR_ZERO3;
    float scale = before_clip ? o->average.fold / (float)z->scaler.scale : g_scale;

    rc = zt_comm_agree(z->comm, rc, err);
    for (uint32_t i = 0; i < z->n_order && rc == CKPT_OK; i++) {
        if (z->group[o->place[z->order[i]].group].muon)
            rc = zm_matrix(z, z->order[i], &w, scale, err);
    }
    zm_rescale(z, scale);
    zm_work_free(z, &w);
    return rc;
}
