/* SPDX-License-Identifier: Apache-2.0 */
/*
 * state.h: converts a run's parameter groups and optimizer values to the writers' form.
 */
#ifndef CKPT_FORMATS_DS_STATE_H
#define CKPT_FORMATS_DS_STATE_H

#include "formats/deepspeed/module/module.h"
#include "libckpt/map/state.h"

/* Builds the writers' state of the run: parameter groups in layout order with their values;
 * with_optimizer adds the step counts as tensors. */
int ckpt_ds_state_make(const ckpt_ds_job *job, ckpt_ds_head *head, const ckpt_ds_module *module,
                       const ckpt_ds_layout *layout);

/* Creates a state with the version, dtype, stage and ranks of the model file. Parameters and groups
 * remain empty. */
int ckpt_ds_state_new(const ckpt_ds_job *job, ckpt_ds_head *head, const ckpt_ds_module *module,
                      ckpt_state **out);

/* Training dtypes that a target with training state accepts, terminated by NONE. */
extern const ckpt_dtype ckpt_ds_dtypes[];

/* A scalar of a shard that many parameters share, as four bytes of F32. */
typedef struct ckpt_ds_scalar {
    bool has;        /* the value is a number */
    uint32_t source; /* number in the output map: a file, or memory */
    uint64_t at;     /* bytes */
} ckpt_ds_scalar;

/* Locates a number of the optimizer's state; a Python number is copied to memory. */
int ckpt_ds_state_scalar(const ckpt_ds_job *job, ckpt_ds_shard *s, const ckpt_value *v,
                         ckpt_ds_scalar *out);

/* Adds the scalar tensor "<kind>/<parameter>". */
int ckpt_ds_state_add_scalar(const ckpt_ds_job *job, const char *kind, const char *param,
                             const ckpt_ds_scalar *scalar);

/* Exports optimizer state as F32, because a run may have kept it in 16 bits. */
void ckpt_ds_state_export(ckpt_map *map);

#endif
