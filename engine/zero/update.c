/* SPDX-License-Identifier: Apache-2.0 */
/*
 * update.c: the optimizer's step over the partitions that this rank owns.
 */
#include "engine/zero/own.h"

void *zr_low(zt_zero *z, uint32_t i)
{
    zr_own *o = zr_of(z);
    const zt_partition *p = &z->part[i];
    uint64_t first, count;
    uint32_t k = p->first;

    if (o->alias) {
        return NULL;
    }
    if (p->low != NULL) {
        return p->low;
    }
    // Stages 0 to 2: the group's buffer is one piece, so any owned parameter tells where the
    // partition's begins.
    for (; k < p->first + p->n; k++) {
        void *w = o->stage->low(z, z->order[k], &first, &count);

        if (count > 0) {
            uint64_t slice = z->config->stage == 0 ? 0 : (uint64_t)z->comm->rank * p->n_elems;
            uint64_t at = o->place[z->order[k]].at + first - slice;

            // cppcheck-suppress returnDanglingLifetime ; it takes w for a pointer into the locals
            return (char *)w - zr_bytes(z->model->dtype, at);
        }
    }
    return NULL; // nothing but padding
}

/* Muon's matrices: their gradients are directions already. */
static void up_muon(zt_device *d, const zt_piece *piece, const zt_hyper *h)
{
    float decay = (float)(1 - h->lr * h->weight_decay);
    zt_update u = {.kind = ZT_SGD,
                   .n = piece->n,
                   .p = piece->p,
                   .g = piece->g,
                   .g_dtype = piece->g_dtype,
                   .g_scale = piece->g_scale,
                   .low = piece->low,
                   .low_dtype = piece->low_dtype,
                   .lr = h->lr,
                   .first = true};

    if (decay < 1 || decay > 1) {
        d->ops->scale(d, CKPT_F32, piece->n, piece->p, decay);
    }
    d->ops->update(d, &u);
}

/* LAMB's norms are per tensor at stage 0, per flat partition under ZeRO. */
static void up_tensors(zt_zero *z, const zt_partition *p, const zt_piece *all, const zt_hyper *h)
{
    for (uint32_t k = p->first; k < p->first + p->n; k++) {
        const zr_place *at = &zr_of(z)->place[z->order[k]];
        zt_piece one = *all;

        one.n = z->model->params.at[z->order[k]].n_elems;
        one.p += at->at;
        one.g = (const char *)all->g + zr_bytes(all->g_dtype, at->at);
        for (unsigned s = 0; s < 2; s++) {
            one.state[s] = all->state[s] == NULL ? NULL : all->state[s] + at->at;
        }
        one.low = all->low == NULL ? NULL : zr_at(all->low, all->low_dtype, at->at);
        zt_optim_update(z->device, &z->config->optim, h, z->updates, &one);
    }
}

/* All of a partition, or of a run of it; masters and state are in memory. */
int zr_update_piece(zt_zero *z, zt_device *d, uint32_t i, const zt_piece *piece, ckpt_err *err)
{
    zr_own *o = zr_of(z);
    const zt_partition *p = &z->part[i];
    const zt_optim *optim = &z->config->optim;
    const zt_hyper *h = &z->group[p->group].hyper;

    if (z->group[p->group].muon) {
        up_muon(d, piece, h);
    } else if (o->onebit != NULL) {
        return zt_onebit_update(o->onebit[i], optim, h, z->updates, piece, err);
    } else if (optim->type == ZT_OPT_LAMB && z->config->stage == 0) {
        up_tensors(z, p, piece, h);
    } else {
        zt_optim_update(d, optim, h, z->updates, piece);
    }
    return CKPT_OK;
}

/* All partitions; `low`: working weights follow. */
static int up_all(zt_zero *z, float g_scale, bool low, ckpt_err *err)
{
    zr_own *o = zr_of(z);
    int rc = CKPT_OK;

    for (uint32_t i = 0; i < z->n_parts && rc == CKPT_OK; i++) {
        zt_partition *p = &z->part[i];

        rc = zr_bring(z, i, err);
        if (rc != CKPT_OK) {
            break;
        }
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
        if (rc == CKPT_OK) {
            rc = zr_put_back(z, i, true, err);
        }
    }
    return rc == CKPT_OK ? zr_settle(z, err) : rc;
}

/* After zt_zero.updates has been counted up. */
int zr_update(zt_zero *z, float g_scale, ckpt_err *err)
{
    return up_all(z, g_scale, true, err);
}

/*
 * DeepSpeed's 16-bit optimizer of stage 0 makes one step with zero gradients when it is built, with
 * the configured rate: the step count begins at 1, AdamW has decayed the masters once; working
 * weights stay.
 */
int zr_update_initial(zt_zero *z, ckpt_err *err)
{
    if (zr_of(z)->wrapper != ZR_FP16) {
        return CKPT_OK;
    }
    for (uint32_t i = 0; i < z->n_parts; i++) {
        zt_partition *p = &z->part[i];

        z->device->ops->zero(z->device, p->grad, zr_bytes(zr_of(z)->grad_dtype, p->n_elems));
    }
    for (uint32_t i = 0; i < z->n_groups; i++) {
        z->group[i].hyper = zr_settings(z, i);
    }
    z->updates = 1;
    return up_all(z, 1, false, err);
}
