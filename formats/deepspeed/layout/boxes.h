/* SPDX-License-Identifier: Apache-2.0 */
/*
 * boxes.h: declares the assembly of one tensor's extents from pieces of flat tensors.
 */
#ifndef CKPT_FORMATS_DS_BOXES_H
#define CKPT_FORMATS_DS_BOXES_H

#include "formats/deepspeed/shard/shard.h"

CKPT_VEC(ckpt_ds_extents, ckpt_extent);
CKPT_VEC(ckpt_ds_axes, ckpt_axis);

/* The extents collected for one tensor. */
typedef struct ckpt_ds_boxes {
    ckpt_ds_extents extent;
    ckpt_ds_axes axis; /* one per extent */
} ckpt_ds_boxes;

/* Add elements first..first+count-1, from element `at` of a flat tensor.  A piece that continues
 * the previous extent is merged with it. */
int ckpt_ds_extent_add(const ckpt_ds_job *job, ckpt_ds_boxes *boxes, const ckpt_ds_flat *from,
                       uint64_t at, uint64_t first, uint64_t count);

/* Set a tensor's extents from boxes. */
int ckpt_ds_extent_back(const ckpt_ds_job *job, ckpt_ds_boxes *boxes, ckpt_tensor *t);

/* Free both lists; tensors have copies. */
void ckpt_ds_boxes_free(ckpt_ds_boxes *boxes);

/* Make a tensor view the elements of a flat tensor from `at` on. */
int ckpt_ds_flat_back(const ckpt_ds_job *job, const ckpt_ds_flat *from, uint64_t at,
                      ckpt_tensor *t);

#endif
