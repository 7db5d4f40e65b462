/* SPDX-License-Identifier: Apache-2.0 */
/*
 * near.h: which machines have the bytes that a job reads.
 */
#ifndef CKPT_COPY_NEAR_H
#define CKPT_COPY_NEAR_H

#include "libckpt/copy/job.h"

/* Made once for a plan; says one job at a time. */
typedef struct ckpt_near {
    const ckpt_plan *plan;
    unsigned n_nodes;
    uint8_t *all;    /* per file of plan->from: every node sees it */
    uint32_t *first; /* n files + 1: the nodes that see a file, unless all do, are */
    uint32_t *node;  /* node[first[file]] .. node[first[file + 1] - 1] */
    /* of the job last asked about */
    uint64_t n_bytes;  /* that it reads and that not every node sees */
    uint64_t *bytes;   /* of these, per node: what it sees */
    uint32_t *touched; /* the nodes that see any */
    uint32_t n_touched;
} ckpt_near;

/*
 * Prepare for a plan's jobs.
 *
 * sees    [files of plan->from * n_nodes]: 1 where the node sees the file
 * Errors  CKPT_ELIMIT; ckpt_near_free is due in any case
 */
int ckpt_near_init(ckpt_near *out, const ckpt_plan *plan, const uint8_t *sees, unsigned n_nodes,
                   ckpt_err *err);
void ckpt_near_free(ckpt_near *n);

/*
 * Say of a job how many of the bytes that it reads each node sees, copies and addends included.
 *
 * What lies in tensors (nest.h) is estimated: as large a part of them as of the source is read.
 * Errors  CKPT_EMISSING: no node sees a file; those of ckpt_join
 * Cost    that of the joins, and the nodes that see the files
 */
int ckpt_near_job(ckpt_near *n, const ckpt_job *job, ckpt_err *err);

#endif
