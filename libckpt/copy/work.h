/* SPDX-License-Identifier: Apache-2.0 */
/*
 * work.h: runs one job of a plan on one worker: gather, compare, average, convert, checksum, write.
 */
#ifndef CKPT_COPY_WORK_H
#define CKPT_COPY_WORK_H

#include <pthread.h>

#include "libckpt/base/cast.h"
#include "libckpt/commit/sink.h"
#include "libckpt/copy/job.h"
#include "libckpt/copy/plan.h"
#include "libckpt/copy/values.h"
#include "libckpt/io/thread_pool.h"

/*
 * Buffers of one worker, in blocks: source values, converted values, copies, sums, and small ones.
 */
#define CKPT_WORK_BLOCKS 5u

/* Counts of values, in elements. */
typedef struct ckpt_tally {
    uint64_t n_nan, n_inf;               /* in the target */
    uint64_t n_source_nan, n_source_inf; /* in the source */
    ckpt_lost lost;                      /* in the conversion */
} ckpt_tally;

/*
 * Fail with CKPT_EMISMATCH about a value of the map: two copies of one precision differ, or a copy
 * differs from its master's rounded value.
 */
int ckpt_unlike_fail(const ckpt_map *map, const ckpt_unlike *u, ckpt_err *err);

/* sum += t */
void ckpt_tally_add(ckpt_tally *sum, const ckpt_tally *t);

/* Add findings about a target tensor's values that are not finite, or were lost. */
int ckpt_tally_note(ckpt_map *to, const ckpt_tensor *t, const ckpt_tally *n, ckpt_err *err);

/* The state that all workers of a run share. */
typedef struct ckpt_work {
    const ckpt_plan *plan;
    ckpt_feed feed;
    ckpt_sink *sink;      /* NULL: the target has no files */
    bool keep;            /* the target keeps bytes, so records' CRCs must match */
    pthread_mutex_t lock; /* protects the target map's findings, and reported */
    uint8_t *reported;    /* per target tensor: its mismatch with a copy was reported */
    /*
     * error about the first such tensor, reported after all CRCs matched, because damage explains
     * it better
     */
    ckpt_err mismatch;
    uint32_t mismatched; /* that tensor */
    ckpt_tally *tally;   /* per target tensor (under lock) */
    ckpt_progress *progress;
    uint64_t helper; /* bytes of each worker's small buffers: strided reads, small writes */
} ckpt_work;

/* Adjacent small results that are written together. */
typedef struct ckpt_work_pending {
    uint8_t *bytes;
    uint64_t room, n; /* bytes */
    uint64_t at;      /* offset in the file */
    uint32_t file;
} ckpt_work_pending;

typedef struct ckpt_worker {
    ckpt_work *work;
    ckpt_values values;
    ckpt_segments read, written; /* for the ledgers */
    uint8_t *in;                 /* plan->block bytes, allocated at first use */
    uint32_t tensor;             /* the target tensor of the current job */
    ckpt_work_pending pending;
    uint64_t n_elems, n_written;
    ckpt_tally tally;
    bool unlike; /* a value of the last job differs from its copy */
} ckpt_worker;

/* A worker of `work`, which must outlive it; buffers are allocated at first use. */
void ckpt_worker_init(ckpt_worker *w, ckpt_work *work);

/*
 * Compute a job's values in the target's dtype: gather, compare with copies, count, convert.
 *
 * to      receives them, dense; NULL: a buffer of the worker, valid until the next job
 * v       gets the job's parts; *out their place
 */
int ckpt_worker_make(ckpt_worker *w, const ckpt_job *job, uint8_t *to, ckpt_job_view *v,
                     const uint8_t **out, ckpt_err *err);

/* Run jobs first..end-1 of the plan: compute and write each. */
int ckpt_worker_jobs(ckpt_worker *w, size_t first, size_t end, ckpt_err *err);

/* Release its buffers. Results that were not written yet are lost. */
void ckpt_worker_free(ckpt_worker *w);

#endif
