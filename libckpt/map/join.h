/* SPDX-License-Identifier: Apache-2.0 */
/*
 * join.h: finds the source bytes that fill a region of a logical tensor, by intersecting boxes.
 */
#ifndef CKPT_MAP_JOIN_H
#define CKPT_MAP_JOIN_H

#include "libckpt/base/err.h"

/*
 * One copy: a box of elements, from a source to a region.
 *
 * Axes are merged if both sides allow it, so that a contiguous copy has ndim 1 and stride == item
 * size. Axis 0 is the slowest. For packed dtypes (F4, ggml's blocks) all element counts are block
 * counts.
 */
typedef struct ckpt_piece {
    uint32_t source; /* index in the map's sources */
    uint32_t ndim;   /* 1..CKPT_MAX_DIM */
    uint64_t at;     /* byte offset in the source of the first element */
    uint64_t to;     /* element offset within the region, row-major, of the first element */
    uint64_t n_elems;
    struct {
        uint64_t count;  /* elements */
        int64_t from_by; /* bytes between elements in the source */
        uint64_t to_by;  /* elements between elements in the region */
    } axis[CKPT_MAX_DIM];
} ckpt_piece;

/*
 * Receives the pieces, in ascending order of region offset if the extents are flat; a non-zero
 * return stops the join.
 */
typedef int (*ckpt_piece_fn)(void *ctx, const ckpt_piece *piece, ckpt_err *err);

/*
 * Find the pieces that fill a region of a tensor.
 *
 * t       the tensor whose extents are the sources
 * region  n_axes == t->ndim: a box (strides ignored); n_axes == 1: an interval of the flattened
 *         tensor
 * fn      called for each piece; together they cover the region exactly once
 * Errors  CKPT_EMISMATCH if the extents leave elements of the region uncovered or cover them twice;
 *         CKPT_EUNSUPPORTED if one begins or ends inside a block; any return value of fn.
 * Cost    flat extents, flat region: logarithmic in the number of extents plus the pieces found.
 */
int ckpt_join(const ckpt_tensor *t, const ckpt_axis *region, unsigned n_axes, ckpt_piece_fn fn,
              void *ctx, ckpt_err *err);

#endif
