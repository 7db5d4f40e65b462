/* SPDX-License-Identifier: Apache-2.0 */
/* update.c: runs the optimizer's step over the partitions that this rank owns. */
#include <assert.h>

#include "engine/zero/own.h"

void *zr_low(zt_zero *z, uint32_t i)
{
    zr_own *o = zr_of(z);
    const zt_partition *p = &z->part[i];
    uint64_t first, count;
    uint32_t k = p->first;

    assert(i < z->n_parts);
    if (o->alias)
        return NULL;
    if (p->low)
        return p->low;
    // Stages 0 to 2: the group's weights are one buffer, so the address of any owned parameter
    // gives the partition's.
    for (; k < p->first + p->n; k++) {
        void *w = o->stage->low(z, z->order[k], &first, &count);

        if (count > 0) {
            uint64_t slice = z->config->stage == 0 ? 0 : (uint64_t)z->comm->rank * p->n_elems;
            uint64_t at = o->place[z->order[k]].at + first - slice;

            // cppcheck-suppress returnDanglingLifetime ; it takes w for a pointer into the locals
            return (char *)w - zr_bytes(z->model->dtype, at);
        }
    }
    return NULL; // all padding
}

/* Step all partitions; `low`: also write the working weights. */
static int zu_all(zt_zero *z, float g_scale, bool low, ckpt_err *err)
{
    zr_own *o = zr_of(z);
    int rc = CKPT_OK;

    for (uint32_t i = 0; i < z->n_parts && rc == CKPT_OK; i++) {
        zt_partition *p = &z->part[i];

        rc = zr_bring(z, i, err);
        if (rc != CKPT_OK)
            break;
        assert(p->n_elems == 0 || (p->master && p->grad));
        zt_piece piece = {.n = p->n_elems,
                          .p = p->master,
                          .state = {p->state[0], p->state[1]},
                          .g = p->grad,
                          .g_dtype = o->grad_dtype,
                          .g_scale = g_scale,
                          .low = low ? zr_low(z, i) : NULL,
                          .low_dtype = z->model->dtype};

        rc = zr_is_home(z) ? zr_home_update(z, i, &piece, err)
                           : zr_update_piece(z, z->device, i, &piece, err);
        if (rc == CKPT_OK)
            rc = zr_put_back(z, i, true, err);
    }
    return rc == CKPT_OK ? zr_settle(z, err) : rc;
}

/* Must be called after zt_zero.updates is incremented. */
int zr_update(zt_zero *z, float g_scale, ckpt_err *err)
{
    return zu_all(z, g_scale, true, err);
}

/*
 * When DeepSpeed builds its 16-bit optimizer of stage 0, it makes one step with zero gradients and
 * the configured rate.  So the step count begins at 1, and AdamW has decayed the masters once;
 * working weights stay unchanged.
 */
int zr_update_initial(zt_zero *z, ckpt_err *err)
{
    if (zr_of(z)->wrapper != ZR_FP16)
        return CKPT_OK;
    for (uint32_t i = 0; i < z->n_parts; i++) {
        zt_partition *p = &z->part[i];

        z->device->ops->zero(z->device, p->grad, zr_bytes(zr_of(z)->grad_dtype, p->n_elems));
    }
    for (uint32_t i = 0; i < z->n_groups; i++)
        z->group[i].hyper = zr_settings(z, i);
    z->updates = 1;
    return zu_all(z, 1, false, err);
}
