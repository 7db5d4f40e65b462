/* SPDX-License-Identifier: Apache-2.0 */
/*
 * stage3.h: stage 3: from the ranks' partitions of every parameter to its extents.
 *
 *     stage3.c  partitions, frozen fragments
 *     swap.c    groups that NVMe offload left in swap files
 */
#ifndef CKPT_FORMATS_DS_STAGE3_H
#define CKPT_FORMATS_DS_STAGE3_H

#include "formats/deepspeed/layout/boxes.h"
#include "formats/deepspeed/layout/layout.h"
#include "libckpt/map/zero_param.h"

/*
 * Walk the parameters over rank 0's flat tensors, which they fill.
 *
 * Errors   CKPT_EMISMATCH: they do not; CKPT_EFORMAT: sizes overflow
 */
int ckpt_ds_stage3_begin(ckpt_ds_job *job, const ckpt_ds_folder *dir, const ckpt_ds_head *head,
                         ckpt_ds_layout *layout);

/* Every rank's flat tensors are as long as rank 0's. */
int ckpt_ds_stage3_check(ckpt_ds_job *job, const ckpt_ds_folder *dir, const ckpt_ds_head *head,
                         const ckpt_ds_layout *layout);

/* Every rank has a column's state for a sub-group, none (false), or it is a problem. */
int ckpt_ds_stage3_holds(ckpt_ds_job *job, const ckpt_ds_head *head, const ckpt_ds_layout *layout,
                         const ckpt_ds_column *c, size_t group, bool *holds);

/* All ranks' flat tensors as the parts of the tensors that were cut into them. */
int ckpt_ds_stage3_parts(const ckpt_ds_job *job, const ckpt_ds_head *head, const ckpt_ds_flat *flat,
                         const ckpt_parts **out);

/*
 * Give a tensor its elements, from each rank's partition, which begins at element `at` of its flat
 * tensor; parts: of these.
 */
int ckpt_ds_stage3_back(const ckpt_ds_job *job, const ckpt_ds_flat *flat, const ckpt_parts *parts,
                        uint64_t at, ckpt_tensor *t);

/* The id of the swap file behind an empty flat tensor, or NULL. */
const char *ckpt_ds_swap_id(const ckpt_ds_job *job, const ckpt_value *v);

/* Let a column's tensors of the groups that were swapped out point into their swap files. */
int ckpt_ds_swap_bind(const ckpt_ds_job *job, const ckpt_ds_head *head,
                      const ckpt_ds_layout *layout, ckpt_ds_column *c);

/*
 * AutoEP: the elements of one expert, a part of a parameter that is cut over the ranks of its
 * lane.
 */
int ckpt_ds_stage3_extents(const ckpt_ds_job *job, const ckpt_ds_layout *layout,
                           ckpt_ds_boxes *boxes, const ckpt_ds_column *c, const ckpt_ds_param *p);

#endif
