/* SPDX-License-Identifier: Apache-2.0 */
/* piece.c: runs the optimizer's step of one partition, or of a run of it, in memory. */
#include <assert.h>

#include "engine/zero/own.h"

/*
 * Step each tensor on its own, because at stage 0 LAMB's norms are per tensor (under ZeRO: per
 * partition).
 */
static void pc_tensors(zt_zero *z, const zt_partition *p, const zt_piece *all, const zt_hyper *h)
{
    for (uint32_t k = p->first; k < p->first + p->n; k++) {
        const zr_place *at = &zr_of(z)->place[z->order[k]];
        zt_piece one = *all;

        one.n = z->model->params.at[z->order[k]].n_elems;
        one.p += at->at;
        one.g = (const char *)all->g + zr_bytes(all->g_dtype, at->at);
        assert(at->at + one.n <= all->n); // the piece is the whole partition
        for (unsigned s = 0; s < 2; s++)
            one.state[s] = !all->state[s] ? NULL : all->state[s] + at->at;
        one.low = !all->low ? NULL : zr_at(all->low, all->low_dtype, at->at);
        zt_optim_update(z->device, &z->config->optim, h, z->updates, &one);
    }
}

/* Step a partition or a run of it; masters and state must be in memory. */
int zr_update_piece(zt_zero *z, zt_device *d, uint32_t i, const zt_piece *piece, ckpt_err *err)
{
    zr_own *o = zr_of(z);
    const zt_partition *p = &z->part[i];
    const zt_optim *optim = &z->config->optim;
    const zt_hyper *h = &z->group[p->group].hyper;

    assert(i < z->n_parts && p->group < z->n_groups && piece->n <= p->n_elems);
    if (z->group[p->group].muon)
        zt_muon_apply(d, h, piece);
    else if (o->onebit)
        return zt_onebit_update(o->onebit[i], optim, h, z->updates, piece, err);
    else if (optim->type == ZT_OPT_LAMB && z->config->stage == 0)
        pc_tensors(z, p, piece, h);
    else
        zt_optim_update(d, optim, h, z->updates, piece);
    return CKPT_OK;
}
