/* SPDX-License-Identifier: Apache-2.0 */
/*
 * values.h: what a tensor's values are: its own elements, gathered and resolved, equal to those of
 * its copies, averaged with those of its addends; from sources that are tensors themselves, too.
 */
#ifndef CKPT_COPY_VALUES_H
#define CKPT_COPY_VALUES_H

#include "libckpt/copy/gather.h"
#include "libckpt/map/nest.h"

/* A value that differs from its copy. */
typedef struct ckpt_unlike {
    const ckpt_tensor *head; /* what was asked for: self, or the tensor it is an addend of */
    const ckpt_tensor *self, *twin;
    uint64_t element;                      /* of the flattened tensor */
    const uint8_t *value, *rounded, *copy; /* self's; in the twin's dtype; the twin's */
} ckpt_unlike;

/*
 * One per thread, zeroed but for gather, unlike, ctx and room; gather's nested and its context are
 * set here.
 */
typedef struct ckpt_values {
    ckpt_gather gather;
    /* called for each value that differs from its copy; NULL: copies are not looked at */
    int (*unlike)(void *ctx, const ckpt_unlike *u, ckpt_err *err);
    void *ctx;
    uint64_t room; /* bytes of a region, at most, in the widest dtype it is held in */
    uint64_t n_compared, n_unlike;
    // The rest is values.c's own; buffers are made when first needed.
    uint8_t *twin, *spare, *sum, *block;
    struct ckpt_values *inner; /* for the tensors inside nested sources */
    struct vs_inputs *inputs;
    unsigned depth;
} ckpt_values;

/* Bytes of region buffers of tensors inside others. */
#define CKPT_VALUES_ROOM (256u * 1024u)

/*
 * A region's values in the tensor's dtype.
 *
 * region  as for ckpt_gather_region; n_elems of it, `room` bytes at most if t has copies or addends
 * Errors  those of ckpt_gather_region, of unlike, and of operations
 */
int ckpt_values_region(ckpt_values *v, const ckpt_tensor *t, const ckpt_axis *region,
                       unsigned n_axes, uint64_t n_elems, void *buf, ckpt_err *err);

/* Any number of elements from `first` of the flattened tensor on. */
int ckpt_values_read(ckpt_values *v, const ckpt_tensor *t, uint64_t first, uint64_t n_elems,
                     void *buf, ckpt_err *err);

/*
 * The same of packed elements, as values of another dtype: the blocks around them are read.
 *
 * part    an interval of the flattened tensor, cut anywhere
 */
int ckpt_values_unpack(ckpt_values *v, const ckpt_tensor *t, const ckpt_axis *part,
                       ckpt_dtype dtype, void *buf, ckpt_err *err);

/* `room` bytes that are free between two calls; NULL: no memory. */
uint8_t *ckpt_values_spare(ckpt_values *v);

/* Release the buffers; feed and segments belong to the user. */
void ckpt_values_free(ckpt_values *v);

#endif
