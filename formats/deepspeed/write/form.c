/* SPDX-License-Identifier: Apache-2.0 */
/*
 * form.c: decides the form in which stage 0 keeps its optimizer, and which parameters are frozen.
 */
#include <string.h>

#include "formats/deepspeed/write/write.h"

ckpt_dsw_stage0_form ckpt_dsw_form_of(const ckpt_train_job *job, const ckpt_dsw_how *how)
{
    const ckpt_value *optimizer = ckpt_value_get(job->state->model, "optimizer");

    if (how->stage != 0)
        return CKPT_DSW_ZERO;
    if (ckpt_value_get(optimizer, "fp32_groups_flat"))
        return CKPT_DSW_FLAT;
    return ckpt_value_get(optimizer, "fp32_groups") ? CKPT_DSW_LISTED : CKPT_DSW_PLAIN;
}

bool ckpt_dsw_is_frozen(const ckpt_train_job *job, const ckpt_tensor *t)
{
    const char *prefix = job->state->prefix;

    return !t->owner && strncmp(t->name, prefix, strlen(prefix)) == 0 &&
           (t->role == CKPT_ROLE_FROZEN ||
            (job->to->claim.no_empty && t->role == CKPT_ROLE_WEIGHT && t->n_elems == 0));
}
