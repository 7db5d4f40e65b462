/* SPDX-License-Identifier: Apache-2.0 */
/*
 * autoep.h: AutoEP, DeepSpeed's expert parallelism for models that know nothing of it.
 *
 * A layer's experts are three parameters, "<prefix>.w1" to "<prefix>.w3", whose first axis counts
 * the experts of one expert-parallel rank.  Here each expert is a parameter of its own, under its
 * number among all of the layer ("<prefix>.w1.5"), as the files of experts name them: the run of
 * elements is the same, and no number of expert-parallel ranks is in the names.
 * From deepspeed/runtime/engine.py (_save_moe_checkpoint), checkpoint/autoep_zero3_metadata.py,
 * 0.19.2 to 0.19.8.
 */
#ifndef CKPT_FORMATS_DS_AUTOEP_H
#define CKPT_FORMATS_DS_AUTOEP_H

#include "formats/deepspeed/layout/layout.h"
#include "libckpt/map/zero_param.h"

/*
 * Read ds_autoep_layers of the model file into head->autoep; without such, it stays empty.
 *
 * Errors   CKPT_EFORMAT; CKPT_EUNSUPPORTED: experts that are not spread evenly and in order, a
 *          format of a later release; CKPT_EMISMATCH: the layers contradict each other
 */
int ckpt_ds_autoep_read(ckpt_ds_job *job, ckpt_ds_head *head);

/* The layer whose parameter "<prefix>.w1" to ".w3" a name is; NULL: it is none. */
const ckpt_ds_moe_layer *ckpt_ds_autoep_of(const ckpt_ds_head *head, const char *name, uint64_t n);

/*
 * Each such parameter as the experts of a layer that are on one rank, numbered from 0, or as all
 * of the layer's.
 */
int ckpt_ds_autoep_expand(ckpt_ds_job *job, const ckpt_ds_head *head, ckpt_ds_params *params,
                          bool all);

/* Stage 3: where the parameters of every sub-group lie in a rank's flat tensor. */
int ckpt_ds_autoep_place(ckpt_ds_job *job, const ckpt_ds_head *head, ckpt_ds_layout *layout);

/* Stage 3: a rank's optimizer file is of the expert-parallel rank that its number says. */
int ckpt_ds_autoep_check_optim(ckpt_ds_job *job, const ckpt_ds_head *head,
                               const ckpt_ds_layout *layout, const ckpt_ds_shard *s);

/* The same of a rank's model file. */
int ckpt_ds_autoep_check_model(ckpt_ds_job *job, const ckpt_ds_head *head, const ckpt_ds_shard *s);

/* The name of the parameter that an expert's is a part of: its first *n bytes. */
static inline const char *ckpt_ds_autoep_whole(const ckpt_ds_param *p, size_t *n)
{
    *n = (size_t)p->n_name;
    while (p->fused && *n > 0 && p->name[*n - 1] != '.')
        (*n)--;
    *n -= p->fused && *n > 0;
    return p->name;
}

#endif
