/* SPDX-License-Identifier: Apache-2.0 */
/*
 * stage12.h: declares the layout of stages 1 and 2: from the ranks' slices of a flat buffer to the
 * extents of parameters.
 */
#ifndef CKPT_FORMATS_DS_STAGE12_H
#define CKPT_FORMATS_DS_STAGE12_H

#include "formats/deepspeed/layout/boxes.h"
#include "formats/deepspeed/layout/layout.h"

/* Lay out the groups by rank 0's slices. */
int ckpt_ds_stage12_begin(ckpt_ds_job *job, const ckpt_ds_head *head, ckpt_ds_layout *layout);

/* Check a rank's param_slice_mappings against the layout. */
int ckpt_ds_stage12_mappings(ckpt_ds_job *job, const ckpt_ds_head *head,
                             const ckpt_ds_layout *layout, const ckpt_ds_shard *s);

/* Check that every slice has a valid length. */
int ckpt_ds_stage12_check(ckpt_ds_job *job, const ckpt_ds_folder *dir, const ckpt_ds_head *head,
                          const ckpt_ds_layout *layout);

/* The form of a kind of state in a group. */
typedef enum ckpt_ds_form {
    CKPT_DS_ABSENT, /* no rank has it, or it has another form */
    CKPT_DS_CUT,    /* partitioned like the masters */
    CKPT_DS_WHOLE   /* a rank has all elements of each parameter that its slice touches (Muon) */
} ckpt_ds_form;

/* Decide the form of a column in a group, by the lengths on all ranks. */
int ckpt_ds_stage12_form(ckpt_ds_job *job, const ckpt_ds_head *head, const ckpt_ds_layout *layout,
                         const ckpt_ds_column *c, size_t group, ckpt_ds_form *form);

/* Collect the extents of a parameter in a column; form is CUT or WHOLE. */
int ckpt_ds_stage12_extents(const ckpt_ds_job *job, const ckpt_ds_layout *layout,
                            ckpt_ds_boxes *boxes, const ckpt_ds_column *c, const ckpt_ds_param *p,
                            ckpt_ds_form form);

#endif
