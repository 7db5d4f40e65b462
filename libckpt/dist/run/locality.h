/* SPDX-License-Identifier: Apache-2.0 */
/*
 * locality.h: counts, for each machine, the bytes of a job that it can read.
 */
#ifndef CKPT_DIST_RUN_LOCALITY_H
#define CKPT_DIST_RUN_LOCALITY_H

#include "libckpt/copy/job.h"

/* Made once for a plan; gives results for one job at a time. */
typedef struct ckpt_near {
    const ckpt_plan *plan;
    unsigned n_nodes;
    uint8_t *all;    /* per file of plan->from: 1 if every node sees it */
    uint32_t *first; /* n files + 1: start of each file's list in `node` */
    uint32_t *node;  /* the nodes that see a file, for files that not every node sees */
    /* the members below describe the job last given to ckpt_near_job */
    uint64_t n_bytes;  /* bytes that the job reads from files that not every node sees */
    uint64_t *bytes;   /* per node: the part of n_bytes in files that the node sees */
    uint32_t *touched; /* nodes whose `bytes` is not 0 */
    uint32_t n_touched;
} ckpt_near;

/*
 * Prepare for a plan's jobs.
 *
 * sees    [files of plan->from * n_nodes]: 1 if the node sees the file
 * Errors  CKPT_ELIMIT; the caller must call ckpt_near_free in any case
 */
int ckpt_near_init(ckpt_near *out, const ckpt_plan *plan, const uint8_t *sees, unsigned n_nodes,
                   ckpt_err *err);
void ckpt_near_free(ckpt_near *n);

/*
 * Compute how many of a job's bytes each node sees, with copies and addends.
 *
 * Bytes in tensors (nest.h) are estimated: the same fraction of them as of the source is read.
 * Errors  CKPT_EMISSING: no node sees a file; those of ckpt_join
 * Cost    that of the joins, and the nodes that see the files
 */
int ckpt_near_job(ckpt_near *n, const ckpt_job *job, ckpt_err *err);

#endif
