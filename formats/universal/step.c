/* SPDX-License-Identifier: Apache-2.0 */
/*
 * step.c: finds a group's step count and writes it in the form of universal checkpoints.
 */
#include <assert.h>

#include "formats/universal/universal.h"

/* A group's step count from the optimizer's state, or from the hyper-parameters (FusedAdam). */
static const ckpt_value *ust_step(const ckpt_group *g)
{
    const ckpt_value *step = ckpt_value_get(g->entry, "step");

    if (!step || step->kind == CKPT_V_NONE)
        step = ckpt_value_get(g->fields, "step");
    return step && step->kind != CKPT_V_NONE ? step : NULL;
}

/* A group's step count as a tensor of the map, for releases that store it per parameter. */
static const ckpt_tensor *ust_step_tensor(const ckpt_uni_write *w, const ckpt_group *g)
{
    return g->n ? ckpt_state_moment(w->job.from, w->job.state, "step",
                                    w->job.state->param.at[g->first])
                : NULL;
}

bool ckpt_uni_write_steps(const ckpt_uni_write *w, const ckpt_group *g)
{
    return ust_step(g) || ust_step_tensor(w, g);
}

ckpt_value *ckpt_uni_write_step(ckpt_uni_write *w, ckpt_torch_tree *t, const ckpt_group *g)
{
    assert(w && t && g);
    const ckpt_value *step = ust_step(g);
    const ckpt_tensor *tensor = ust_step_tensor(w, g);

    if (!step && !tensor)
        return ckpt_tt_new(t, CKPT_V_NONE);
    if (w->how.fresh)
        return step && step->kind != CKPT_V_TENSOR ? ckpt_tt_int(t, 0)
                                                   : ckpt_tt_zeros(t, CKPT_F32, NULL, 0);
    return step ? ckpt_tt_copy(t, step) : ckpt_tt_whole(t, tensor, CKPT_F32);
}
