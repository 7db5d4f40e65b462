/* SPDX-License-Identifier: Apache-2.0 */
/*
 * boxes.h: the extents of one tensor, made of pieces of flat tensors.
 */
#ifndef CKPT_FORMATS_DS_BOXES_H
#define CKPT_FORMATS_DS_BOXES_H

#include "formats/deepspeed/shard/shard.h"

CKPT_VEC(ckpt_ds_extents, ckpt_extent);
CKPT_VEC(ckpt_ds_axes, ckpt_axis);

/* The extents of one tensor while they are made. */
typedef struct ckpt_ds_boxes {
    ckpt_ds_extents extent;
    ckpt_ds_axes axis; /* one per extent */
} ckpt_ds_boxes;

/* Add elements first..first+count-1, from element `at` of a flat tensor; merged with the extent
 * before where it goes on. */
int ckpt_ds_extent_add(const ckpt_ds_job *job, ckpt_ds_boxes *boxes, const ckpt_ds_flat *from,
                       uint64_t at, uint64_t first, uint64_t count);

/* Give a tensor what is in boxes. */
int ckpt_ds_extent_back(const ckpt_ds_job *job, ckpt_ds_boxes *boxes, ckpt_tensor *t);

/* Free both lists; what was given to a tensor is a copy. */
void ckpt_ds_boxes_free(ckpt_ds_boxes *boxes);

/* Give a tensor the elements of a flat tensor from element `at` on. */
int ckpt_ds_flat_back(const ckpt_ds_job *job, const ckpt_ds_flat *from, uint64_t at,
                      ckpt_tensor *t);

#endif
