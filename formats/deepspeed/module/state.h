/* SPDX-License-Identifier: Apache-2.0 */
/*
 * state.h: a run's parameter groups and optimizer values in the form that writers take.
 */
#ifndef CKPT_FORMATS_DS_STATE_H
#define CKPT_FORMATS_DS_STATE_H

#include "formats/deepspeed/module/module.h"
#include "libckpt/map/state.h"

/* The state of the run for writers: parameter groups in layout order and what belongs to them; and
 * the step counts as tensors (with_optimizer). */
int ckpt_ds_state_make(const ckpt_ds_job *job, ckpt_ds_head *head, const ckpt_ds_module *module,
                       const ckpt_ds_layout *layout);

/* A new state with all that the model file says: version, dtype, stage, ranks.  Its parameters and
 * groups are left empty. */
int ckpt_ds_state_new(const ckpt_ds_job *job, ckpt_ds_head *head, const ckpt_ds_module *module,
                      ckpt_state **out);

/* What runs train in, up to NONE: what a target with training state may ask for. */
extern const ckpt_dtype ckpt_ds_dtypes[];

/* A value of a shard that holds for many parameters, as four bytes of F32. */
typedef struct ckpt_ds_scalar {
    bool has;        /* it is a number */
    uint32_t source; /* in the large map: the file's bytes, or memory */
    uint64_t at;     /* bytes */
} ckpt_ds_scalar;

/* Where one number of the optimizer's state lies; a Python number gets memory of its own. */
int ckpt_ds_state_scalar(const ckpt_ds_job *job, ckpt_ds_shard *s, const ckpt_value *v,
                         ckpt_ds_scalar *out);

/* Add the tensor "<kind>/<parameter>" without axes. */
int ckpt_ds_state_add_scalar(const ckpt_ds_job *job, const char *kind, const char *param,
                             const ckpt_ds_scalar *scalar);

#endif
