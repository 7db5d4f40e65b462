/* SPDX-License-Identifier: Apache-2.0 */
/*
 * values.h: computes a tensor's values: gathers its elements, compares them with its copies, and
 * averages them with its addends; also for sources that are tensors themselves.
 */
#ifndef CKPT_COPY_VALUES_H
#define CKPT_COPY_VALUES_H

#include "libckpt/copy/gather.h"
#include "libckpt/map/nest.h"

/* A value that differs from its copy. */
typedef struct ckpt_unlike {
    /* the tensor in the caller's request: self, or the tensor with self as addend */
    const ckpt_tensor *head;
    const ckpt_tensor *self, *twin;
    uint64_t element; /* index of the element in the flattened tensor */
    /* self's value; the same in the twin's dtype; the twin's value */
    const uint8_t *value, *rounded, *copy;
} ckpt_unlike;

/*
 * One per thread. Zero it, then set gather, unlike, ctx and room; the functions below set gather's
 * nested and its context.
 */
typedef struct ckpt_values {
    ckpt_gather gather;
    /* called for each value that differs from its copy; NULL: copies are not compared */
    int (*unlike)(void *ctx, const ckpt_unlike *u, ckpt_err *err);
    void *ctx;
    uint64_t room; /* largest region in bytes, in the widest dtype of a buffer */
    uint64_t n_compared, n_unlike;
    // The rest belongs to values.c; buffers are allocated at first use.
    uint8_t *twin, *spare, *sum, *block;
    struct ckpt_values *inner; /* for the tensors inside nested sources */
    struct vs_inputs *inputs;
    unsigned depth;
} ckpt_values;

/* Bytes of region buffers for tensors inside others. */
#define CKPT_VALUES_ROOM (256u * 1024u)

/* A region of a tensor, with axes as for ckpt_gather_region. */
typedef struct ckpt_region {
    const ckpt_axis *axis;
    unsigned n_axes;
    uint64_t n_elems;
} ckpt_region;

/*
 * Compute a region's values in the tensor's dtype.
 *
 * region  at most `room` bytes if t has copies or addends
 * Errors  those of ckpt_gather_region, of unlike, and of operations
 */
int ckpt_values_region(ckpt_values *v, const ckpt_tensor *t, const ckpt_region *region, void *buf,
                       ckpt_err *err);

/* Compute any number of elements from `first` of the flattened tensor. */
int ckpt_values_read(ckpt_values *v, const ckpt_tensor *t, uint64_t first, uint64_t n_elems,
                     void *buf, ckpt_err *err);

/*
 * The same for packed elements, as values of another dtype; it reads the blocks around them.
 *
 * part    an interval of the flattened tensor, cut anywhere
 */
int ckpt_values_unpack(ckpt_values *v, const ckpt_tensor *t, const ckpt_axis *part,
                       ckpt_dtype dtype, void *buf, ckpt_err *err);

/* A buffer of `room` bytes, free for the caller between two calls; NULL: out of memory. */
uint8_t *ckpt_values_spare(ckpt_values *v);

/* Release the buffers; feed and segments belong to the user. */
void ckpt_values_free(ckpt_values *v);

#endif
