/* SPDX-License-Identifier: Apache-2.0 */
/*
 * autoep.h: declares support for AutoEP, DeepSpeed's expert parallelism for unmodified models.
 *
 * A layer's experts are three parameters, "<prefix>.w1" to "<prefix>.w3", whose first axis counts
 * the experts of one expert-parallel rank.  ckpt splits them into one parameter per expert, named
 * by its number in the whole layer ("<prefix>.w1.5") like in the files of experts, so that names do
 * not depend on the number of ranks.  The order of the elements is the same. From
 * deepspeed/runtime/engine.py (_save_moe_checkpoint), checkpoint/autoep_zero3_metadata.py, 0.19.2
 * to 0.19.8.
 */
#ifndef CKPT_FORMATS_DS_AUTOEP_H
#define CKPT_FORMATS_DS_AUTOEP_H

#include "formats/deepspeed/layout/layout.h"
#include "libckpt/map/zero_param.h"

/*
 * Read ds_autoep_layers of the model file into head->autoep, which stays empty without it.
 *
 * Errors   CKPT_EFORMAT; CKPT_EUNSUPPORTED: experts that are not distributed evenly and in order,
 * or a
 *          format of a later release; CKPT_EMISMATCH: the layers contradict each other
 */
int ckpt_ds_autoep_read(ckpt_ds_job *job, ckpt_ds_head *head);

/* The layer of a parameter "<prefix>.w1" to ".w3"; NULL for other names. */
const ckpt_ds_moe_layer *ckpt_ds_autoep_of(const ckpt_ds_head *head, const char *name, uint64_t n);

/*
 * Split each fused parameter into one parameter per expert: for the experts of one rank, numbered
 * from 0, or with `all` for those of the whole layer.
 */
int ckpt_ds_autoep_expand(ckpt_ds_job *job, const ckpt_ds_head *head, ckpt_ds_params *params,
                          bool all);

/* Stage 3: compute where each sub-group's parameters are in a rank's flat tensor. */
int ckpt_ds_autoep_place(ckpt_ds_job *job, const ckpt_ds_head *head, ckpt_ds_layout *layout);

/* Stage 3: check that a rank's optimizer file belongs to its expert-parallel rank. */
int ckpt_ds_autoep_check_optim(ckpt_ds_job *job, const ckpt_ds_head *head,
                               const ckpt_ds_layout *layout, const ckpt_ds_shard *s);

/* Check that a rank's model file belongs to its expert-parallel rank. */
int ckpt_ds_autoep_check_model(ckpt_ds_job *job, const ckpt_ds_head *head, const ckpt_ds_shard *s);

/* The name of the fused parameter that an expert belongs to: its first *n bytes. */
static inline const char *ckpt_ds_autoep_whole(const ckpt_ds_param *p, size_t *n)
{
    *n = (size_t)p->n_name;
    while (p->fused && *n > 0 && p->name[*n - 1] != '.')
        (*n)--;
    *n -= p->fused && *n > 0;
    return p->name;
}

#endif
