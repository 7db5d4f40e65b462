/* SPDX-License-Identifier: Apache-2.0 */
/*
 * plan.h: lists the copies that turn one map into another, without reading data.
 *
 * A plan is the list of jobs that fill the target: each is a stretch of one target extent, small
 * enough for a worker's buffer; its pieces are the join of that stretch with the origin's extents
 * (map/join.h). They are computed again when needed, so that a plan's memory does not grow with the
 * number of ranks. The origin decides the operation:
 *
 *    copy  its elements unchanged
 *    cast  target and origin differ in dtype
 *    fill  its extents name a zero source
 *    same  it has twins, a chain of any length: each is read and must be equal; bit for bit
 *          if the precision is the same, else equal to the rounded value
 *    mean  it has addends: (its own elements + those of each addend in turn) / their number
 *          (mean.h); twins of the origin and of an addend are compared with that slice's own
 *          elements, not with the mean
 */
#ifndef CKPT_COPY_PLAN_H
#define CKPT_COPY_PLAN_H

#include "libckpt/map/map.h"

typedef struct ckpt_job {
    uint32_t tensor; /* index in the target map */
    uint32_t extent; /* index of the extent in the tensor */
    uint64_t first;  /* element offset within the extent (row-major within its box) */
    uint64_t count;  /* elements; whole rows of the box, or a part of one row */
} ckpt_job;

CKPT_VEC(ckpt_jobs, ckpt_job);

/* Jobs first..end-1 of a plan. */
typedef struct ckpt_job_range {
    uint32_t first, end;
} ckpt_job_range;

typedef struct ckpt_plan ckpt_plan;

struct ckpt_plan {
    const ckpt_map *from; /* borrowed: both maps outlive the plan */
    /* borrowed; the run writes checksums into its sources and literals into its files */
    ckpt_map *to;
    /* per target tensor: the tensor with its values (owner resolved); NULL for aliases */
    ckpt_tensor **origin;
    ckpt_jobs jobs; /* ascending by target file and offset */
    /* bytes that a job should have at least, so that there are not too many jobs */
    uint64_t best;
    uint64_t block;     /* bytes: the longest job, in the widest dtype of its buffers */
    uint64_t n_read;    /* payload bytes to read, with twins and addends */
    uint64_t n_write;   /* payload bytes to be written */
    uint64_t n_elems;   /* elements to be produced */
    uint64_t n_compare; /* elements to compare with a twin, counting all twins */
};

/*
 * Make the plan that fills `to` from `from`.
 *
 * block    bytes of a job at most (0: 4 MiB)
 * Errors   CKPT_EMISSING: a target tensor's origin is not in `from`; CKPT_EMISMATCH: shapes differ
 *          (of twins and addends too), or extents do not cover; CKPT_EUNSUPPORTED: no conversion
 *          between the dtypes, or no mean of them; CKPT_ELIMIT
 */
int ckpt_plan_make(ckpt_plan **out, const ckpt_map *from, ckpt_map *to, uint64_t block,
                   ckpt_err *err);
CKPT_API void ckpt_plan_free(ckpt_plan *plan);
CKPT_API void ckpt_plan_sizes(const ckpt_plan *plan, uint64_t *n_read, uint64_t *n_write,
                              uint64_t *n_jobs);

/*
 * The format's last changes to a target file, for the bytes before `known` (format.h's seal); the
 * run and the view of a plan call it.
 */
typedef int (*ckpt_plan_seal_fn)(ckpt_map *to, uint32_t file, uint64_t known, ckpt_err *err);

/* Bytes to read for all of target tensor i, as n_read counts them; 0 for aliases. */
double ckpt_plan_reads(const ckpt_plan *plan, size_t i);

#endif
