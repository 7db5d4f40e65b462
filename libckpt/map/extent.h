/* SPDX-License-Identifier: Apache-2.0 */
/*
 * extent.h: cuts flat intervals into boxes, and sorts, shares and checks a tensor's extents.
 */
#ifndef CKPT_MAP_EXTENT_H
#define CKPT_MAP_EXTENT_H

#include "libckpt/base/err.h"

/*
 * One rank's storage of all tensors with the same even partition: the bytes of a source from offset
 * `at` on.
 */
typedef struct ckpt_part {
    uint32_t source;
    uint64_t at;
} ckpt_part;

typedef struct ckpt_parts {
    uint32_t n;
    const ckpt_part *part; /* n parts, in the map's arena */
} ckpt_parts;

/*
 * Extents computed by a rule, for a tensor that is partitioned evenly over ranks (ZeRO-3): extent i
 * is flat and contiguous, holds `count` elements from i * count on (the last extent may hold
 * fewer), and begins `at` bytes after the start of part i. All tensors with the same partition
 * share the parts, so memory grows with tensors + ranks instead of tensors * ranks.
 */
typedef struct ckpt_cut {
    const ckpt_parts *parts;
    uint64_t at;    /* bytes */
    uint64_t count; /* elements, not 0 */
    int64_t stride; /* bytes between elements */
} ckpt_cut;

/* Extent i of a tensor, i < n_extents; an extent by rule is computed into *room. */
static inline const ckpt_extent *ckpt_extent_of(const ckpt_tensor *t, uint32_t i, ckpt_box *room)
{
    const ckpt_cut *c = t->cut;

    if (!c)
        return &t->extent[i];
    room->axis.start = i * c->count;
    room->axis.count = t->n_elems - room->axis.start;
    if (room->axis.count > c->count)
        room->axis.count = c->count;
    room->axis.stride = c->stride;
    room->extent.source = c->parts->part[i].source;
    room->extent.ndim = 1;
    room->extent.at = c->parts->part[i].at + c->at;
    room->extent.axis = &room->axis;
    return &room->extent;
}

/*
 * Find the first box of elements from..to-1 of a flattened row-major tensor.
 *
 * shape    ndim sizes in elements, all > 0; 1 <= ndim <= CKPT_MAX_DIM
 * from,to  elements, from < to <= product of shape
 * out      ndim axes; strides are left 0
 * Returns  the element after the box, where the next call continues: at most 2*ndim-1 calls cover
 *          the interval exactly once.
 * Source   own derivation; tests/unit/map/test_extent.c checks all small shapes up to 5 axes
 */
uint64_t ckpt_extent_cut_next(const uint64_t *shape, unsigned ndim, uint64_t from, uint64_t to,
                              ckpt_axis *out);

/* Multiply n counts; false on overflow, even if one size is zero. */
bool ckpt_shape_elems(const uint64_t *shape, unsigned ndim, uint64_t *out);

/* True if an extent of this tensor is flat: an interval of the flattened tensor. */
bool ckpt_extent_is_flat(const ckpt_tensor *t, const ckpt_extent *e);

/* True if a tensor has several extents, even if an outline leaves them out. */
static inline bool ckpt_extent_many(const ckpt_tensor *t)
{
    return t->n_extents > 1 || (t->flags & CKPT_TENSOR_OUTLINE);
}

/* The source of a tensor's extent i. */
static inline uint32_t ckpt_extent_source(const ckpt_tensor *t, uint32_t i)
{
    return t->cut ? t->cut->parts->part[i].source : t->extent[i].source;
}

/* Elements of a box, 0 if it is empty; the caller has checked that it lies inside a tensor. */
uint64_t ckpt_extent_count(const ckpt_extent *e);

/* True if a box holds no element; the box may be unchecked. */
bool ckpt_extent_is_empty(const ckpt_extent *e);

/* Give a tensor the extents of another one, without a copy. */
void ckpt_extent_share(ckpt_tensor *t, const ckpt_tensor *of);

/*
 * Give a tied tensor the values of its owner, which is going to be dropped; the other tensors of
 * the list that have the same owner become tied to this one.
 */
void ckpt_extent_own(ckpt_tensor *t, ckpt_tensor *const *all, size_t n);

/* True if two tensors have the same extents. */
bool ckpt_extent_is_shared(const ckpt_tensor *a, const ckpt_tensor *b);

/*
 * A copy of a tensor's extents as a list, with `shift` added to their sources; free it with
 * ckpt_free. NULL: out of memory.
 */
ckpt_extent *ckpt_extent_list(const ckpt_tensor *t, uint32_t shift);

/*
 * Sort flat extents by the elements they cover; an empty one comes before others with the same
 * start.
 */
void ckpt_extent_sort(ckpt_extent *extent, uint32_t n);

/*
 * Check that a tensor's extents cover each element exactly once.
 *
 * Flat extents must be ascending (linear time); boxes are compared pairwise.
 * Errors   CKPT_EMISMATCH: hole, overlap or an extent outside the tensor; the text names the first
 *          such element.
 */
int ckpt_extent_check(const ckpt_tensor *t, ckpt_err *err);

#endif
