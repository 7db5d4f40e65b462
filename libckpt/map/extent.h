/* SPDX-License-Identifier: Apache-2.0 */
/*
 * extent.h: boxes: cutting flat intervals into boxes, and meeting two boxes.
 */
#ifndef CKPT_MAP_EXTENT_H
#define CKPT_MAP_EXTENT_H

#include "libckpt/base/err.h"

/*
 * The first box of elements from..to-1 of a flattened row-major tensor.
 *
 * shape    ndim sizes in elements, all > 0; 1 <= ndim <= CKPT_MAX_DIM
 * from,to  elements, from < to <= product of shape
 * out      ndim axes; strides are left 0
 * Returns  the element after the box, where the next cut goes on: repeated, at most 2*ndim-1 boxes
 *          cover the interval exactly once.
 * Source   own derivation; tests/unit/map/test_extent.c checks all small shapes up to 5 axes
 */
uint64_t ckpt_extent_cut_next(const uint64_t *shape, unsigned ndim, uint64_t from, uint64_t to,
                              ckpt_axis *out);

/* Product of n counts with the overflow check (zero sizes do not excuse the others). */
bool ckpt_shape_elems(const uint64_t *shape, unsigned ndim, uint64_t *out);

/* True if an extent of this tensor is flat: an interval of the flattened tensor. */
bool ckpt_extent_is_flat(const ckpt_tensor *t, const ckpt_extent *e);

/* The source of a tensor's extent i. */
static inline uint32_t ckpt_extent_source(const ckpt_tensor *t, uint32_t i)
{
    return t->cut ? t->cut->parts->part[i].source : t->extent[i].source;
}

/* Let a tensor's elements lie where those of another do. */
void ckpt_extent_share(ckpt_tensor *t, const ckpt_tensor *of);

/* True if that is so. */
bool ckpt_extent_is_shared(const ckpt_tensor *a, const ckpt_tensor *b);

/*
 * A tensor's extents as a list of their own, with sources numbered `shift` after theirs; released
 * with ckpt_free.  NULL: no memory.
 */
ckpt_extent *ckpt_extent_list(const ckpt_tensor *t, uint32_t shift);

/*
 * Put flat extents in ascending order of what they cover; empty ones come before others that begin
 * there.
 */
void ckpt_extent_sort(ckpt_extent *extent, uint32_t n);

/*
 * Check that a tensor's extents cover each element exactly once.
 *
 * Flat extents must be ascending (linear time); boxes are compared pairwise.
 * Errors   CKPT_EMISMATCH: hole, overlap or an extent outside the tensor, naming the first element
 *          concerned.
 */
int ckpt_extent_check(const ckpt_tensor *t, ckpt_err *err);

#endif
