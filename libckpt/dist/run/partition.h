/* SPDX-License-Identifier: Apache-2.0 */
/*
 * partition.h: divides the jobs of a plan over the processes of a team.
 *
 * Every rank has the same plan and computes the same division. A job goes to a machine that can
 * write its target; among these, to one that sees most of the bytes it reads. Among equal machines,
 * and among the ranks of a machine, jobs go to those with the fewest bytes, so bytes read and
 * written are spread over the ranks as evenly as the locations of files allow. Each rank gets
 * contiguous runs of jobs, cut between files if a file ends close by.
 */
#ifndef CKPT_DIST_RUN_PARTITION_H
#define CKPT_DIST_RUN_PARTITION_H

#include "libckpt/copy/plan.h"

#define CKPT_SHARE_ANY UINT32_MAX

/* The files that each rank can read and write; the same on all ranks. */
typedef struct ckpt_places {
    unsigned n_ranks;
    const uint32_t *node_of_rank; /* n_ranks: ranks of one machine share a number, 0..n_nodes-1 */
    unsigned n_nodes;             /* each has at least one rank */
    /* [files of plan->from * n_nodes]: 1 if the node sees the file; NULL: every node sees all */
    const uint8_t *sees;
    /*
     * per file of plan->to: the only node that can write it, or CKPT_SHARE_ANY; NULL: any node can
     * write any file
     */
    const uint32_t *target_node;
} ckpt_places;

typedef struct ckpt_share {
    unsigned n_ranks;
    /* rank r's jobs, ascending, in as few runs as possible: run[at[r]] .. run[at[r + 1] - 1] */
    ckpt_job_range *run;
    uint32_t *at;      /* n_ranks + 1 */
    uint64_t *n_bytes; /* per rank: payload bytes read and written, as a plan counts them */
    /* per rank: bytes of these that it reads from files that no rank of its machine sees */
    uint64_t *n_far;
    /*
     * Per file of plan->to: the rank with most of its bytes, which finishes it (the lowest of
     * equals; files without jobs go to different ranks that can write them), and the number of
     * ranks with jobs in it.
     */
    uint32_t *home;
    uint32_t *n_writers;
} ckpt_share;

/*
 * Divide a plan's jobs; after success the caller must call ckpt_share_free.
 *
 * Balance  bytes of a rank differ from the mean by at most 5 % if jobs are smaller than 1 % of it
 *          and the locations of files leave a choice
 * Memory   of the result: ranks, files of the target and runs
 * Errors   CKPT_EMISSING: a job needs bytes of a file that no node sees; CKPT_ELIMIT; those of
 *          ckpt_join
 */
int ckpt_share_make(ckpt_share *out, const ckpt_plan *plan, const ckpt_places *places,
                    ckpt_err *err);
void ckpt_share_free(ckpt_share *s);

#endif
