/* SPDX-License-Identifier: Apache-2.0 */
/*
 * job.h: computes, for a job of a plan, the region of its logical tensor and its location in the
 * target.
 */
#ifndef CKPT_COPY_JOB_H
#define CKPT_COPY_JOB_H

#include "libckpt/copy/plan.h"

/* The parts of a job. */
typedef struct ckpt_job_view {
    const ckpt_tensor *t;      /* tensor of the target */
    const ckpt_tensor *origin; /* the tensor with its values */
    /* extent of the target; it usually points to `room`, so a view must not be copied */
    const ckpt_extent *e;
    ckpt_box room;
    unsigned n_axes;                /* axes of the region: 1 (flat) or t->ndim */
    ckpt_axis region[CKPT_MAX_DIM]; /* starts and counts in t; strides are the target extent's */
    uint64_t to;                    /* byte offset in the target's source of the first element */
} ckpt_job_view;

/* Compute the parts of a job; the view borrows from the plan's maps. */
void ckpt_job_look(ckpt_job_view *out, const ckpt_plan *plan, const ckpt_job *job);

/* Receives n contiguous bytes of a job's result and their offset in the target's source. */
typedef int (*ckpt_job_put_fn)(void *ctx, const uint8_t *bytes, uint64_t n, uint64_t at,
                               ckpt_err *err);

/*
 * Write a job's dense values in the target's strides, in the longest possible contiguous stretches.
 *
 * bytes    of `count` elements in the target's dtype
 */
int ckpt_job_spread(const ckpt_job_view *v, const uint8_t *bytes, uint64_t count,
                    ckpt_job_put_fn put, void *ctx, ckpt_err *err);

/* The offset in the target's source after the last byte of such a job. */
uint64_t ckpt_job_end(const ckpt_job_view *v, uint64_t count);

/*
 * Bytes of n elements of a dtype; packed ones are always whole bytes here, because plan.c cuts at
 * blocks.
 */
uint64_t ckpt_job_bytes(ckpt_dtype d, uint64_t n_elems);

/*
 * Bytes of n elements of a tensor in the widest dtype of a buffer: its own, those of its copies, or
 * of the sums of its addends.
 */
uint64_t ckpt_job_widest(const ckpt_tensor *t, uint64_t n_elems);

#endif
