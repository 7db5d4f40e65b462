/* SPDX-License-Identifier: Apache-2.0 */
/*
 * stage12.h: stages 1 and 2: from the ranks' slices of a flat buffer to the extents of
 * parameters.
 */
#ifndef CKPT_FORMATS_DS_STAGE12_H
#define CKPT_FORMATS_DS_STAGE12_H

#include "formats/deepspeed/layout/boxes.h"
#include "formats/deepspeed/layout/layout.h"

/* Lay out groups from rank 0's slices. */
int ckpt_ds_stage12_begin(ckpt_ds_job *job, const ckpt_ds_head *head, ckpt_ds_layout *layout);

/* The parameters that a rank says its slices hold are those that the layout gives it. */
int ckpt_ds_stage12_mappings(ckpt_ds_job *job, const ckpt_ds_head *head,
                             const ckpt_ds_layout *layout, const ckpt_ds_shard *s);

/* Every slice is as long as its place in the layout asks. */
int ckpt_ds_stage12_check(ckpt_ds_job *job, const ckpt_ds_folder *dir, const ckpt_ds_head *head,
                          const ckpt_ds_layout *layout);

/* How the ranks keep a kind of state of a group. */
typedef enum ckpt_ds_form {
    CKPT_DS_ABSENT, /* no rank has any, or it is something else */
    CKPT_DS_CUT,    /* sliced as the masters are */
    CKPT_DS_WHOLE   /* of each parameter that touches its slice a rank has all elements (Muon) */
} ckpt_ds_form;

/* The form of a column in a group of stages 1 and 2, by the lengths that the ranks have. */
int ckpt_ds_stage12_form(ckpt_ds_job *job, const ckpt_ds_head *head, const ckpt_ds_layout *layout,
                         const ckpt_ds_column *c, size_t group, ckpt_ds_form *form);

/* Extents of a parameter in a column, into boxes; form is CUT or WHOLE. */
int ckpt_ds_stage12_extents(const ckpt_ds_job *job, const ckpt_ds_layout *layout,
                            ckpt_ds_boxes *boxes, const ckpt_ds_column *c, const ckpt_ds_param *p,
                            ckpt_ds_form form);

#endif
