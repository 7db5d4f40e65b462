/* SPDX-License-Identifier: Apache-2.0 */
/*
 * stage3.h: declares the layout of stage 3: from the ranks' partitions of parameters to their
 * extents.
 *
 *     stage3.c  partitions, frozen fragments
 *     swap.c    groups in swap files of NVMe offload
 */
#ifndef CKPT_FORMATS_DS_STAGE3_H
#define CKPT_FORMATS_DS_STAGE3_H

#include "formats/deepspeed/layout/boxes.h"
#include "formats/deepspeed/layout/layout.h"
#include "libckpt/map/zero_param.h"

/*
 * Assign the parameters to rank 0's flat tensors in order.
 *
 * Errors   CKPT_EMISMATCH: the parameters do not fill the flat tensors; CKPT_EFORMAT: sizes
 *          overflow
 */
int ckpt_ds_stage3_begin(ckpt_ds_job *job, const ckpt_ds_folder *dir, const ckpt_ds_head *head,
                         ckpt_ds_layout *layout);

/* Check that every rank's flat tensors have the length of rank 0's. */
int ckpt_ds_stage3_check(ckpt_ds_job *job, const ckpt_ds_folder *dir, const ckpt_ds_head *head,
                         const ckpt_ds_layout *layout);

/* Decide if all ranks have a column's state for a sub-group, or none; otherwise report a
 * problem. */
int ckpt_ds_stage3_holds(ckpt_ds_job *job, const ckpt_ds_head *head, const ckpt_ds_layout *layout,
                         const ckpt_ds_column *c, size_t group, bool *holds);

/* Make the list of parts for tensors that are partitioned over all ranks' flat tensors. */
int ckpt_ds_stage3_parts(const ckpt_ds_job *job, const ckpt_ds_head *head, const ckpt_ds_flat *flat,
                         const ckpt_parts **out);

/*
 * Make a tensor view the ranks' partitions, which begin at element `at` of each flat tensor.
 * `parts` comes from ckpt_ds_stage3_parts.
 */
int ckpt_ds_stage3_back(const ckpt_ds_job *job, const ckpt_ds_flat *flat, const ckpt_parts *parts,
                        uint64_t at, ckpt_tensor *t);

/* The id of the swap file for an empty flat tensor, or NULL. */
const char *ckpt_ds_swap_id(const ckpt_ds_job *job, const ckpt_value *v);

/* Point a column's tensors of swapped groups to their swap files. */
int ckpt_ds_swap_bind(const ckpt_ds_job *job, const ckpt_ds_head *head,
                      const ckpt_ds_layout *layout, ckpt_ds_column *c);

/*
 * AutoEP: collect the extents of one expert in a fused parameter that is partitioned over the ranks
 * of its lane.
 */
int ckpt_ds_stage3_extents(const ckpt_ds_job *job, const ckpt_ds_layout *layout,
                           ckpt_ds_boxes *boxes, const ckpt_ds_column *c, const ckpt_ds_param *p);

#endif
