/* SPDX-License-Identifier: Apache-2.0 */
/*
 * finish.h: finishes output files one by one, each as soon as its last job is done.
 *
 * Finishing a file means: compute the checksums of its records, call the format's seal function,
 * sync the file to disk, and record it in the journal if there is one. The worker that runs the
 * last job of a file does this; it finishes a few small files at a time, so that they share syncs.
 */
#ifndef CKPT_RUN_FINISH_H
#define CKPT_RUN_FINISH_H

#include "libckpt/copy/work.h"
#include "libckpt/run/peers.h"
#include "libckpt/run/run.h"

typedef struct ckpt_finish_file ckpt_finish_file;

typedef struct ckpt_finish {
    /*
     * its lock protects the target map and this struct, except the data of a file that a worker is
     * finishing
     */
    ckpt_work *work;
    ckpt_peers *peers;
    ckpt_plan_seal_fn seal;
    ckpt_finish_file *file; /* one per file of the target, as the next two */
    ckpt_segments *seg;     /* segments of the file that workers have written */
    uint32_t *crc;          /* CRC-32 of the complete file, if it is needed */
    uint32_t *source;       /* sources of files, grouped by file */
    size_t *first;          /* per file, and one more: the start of its group */
    ckpt_slots ready;       /* files without open jobs, which wait to share a sync */
    uint64_t ready_bytes;
    ckpt_segments loose; /* segments that were written to memory */
    ckpt_hashes *hashes; /* gets the finished files; or NULL */
} ckpt_finish;

/* work->plan is set. The caller closes it, also on failure. */
int ckpt_finish_open(ckpt_finish *f, ckpt_work *work, ckpt_peers *peers, ckpt_plan_seal_fn seal,
                     ckpt_err *err);

/*
 * Begin to hash the outputs (hashes.h), and write the headers that do not depend on other bytes at
 * once. hashes may be NULL.
 *
 * seals   as in ckpt_run_hooks
 * Errors  CKPT_EUSAGE: several processes write the files
 */
int ckpt_finish_hash(ckpt_finish *f, ckpt_hashes *hashes, unsigned n_workers,
                     bool (*seals)(const ckpt_map *to, uint32_t file), ckpt_err *err);

/* Wait for the hashes; if rc, which it returns, is a failure, end hashing at once. */
int ckpt_finish_hashed(ckpt_finish *f, int rc, ckpt_err *err);

/*
 * Announce that jobs first..end-1 will be done together. Call it for all jobs before any is done.
 */
void ckpt_finish_expect(ckpt_finish *f, size_t first, size_t end);

/*
 * Report jobs as done: worker w has written them and has their segments. Thread safe for different
 * workers.
 */
int ckpt_finish_jobs(ckpt_finish *f, ckpt_worker *w, size_t first, size_t end, ckpt_err *err);

/*
 * Collective. Sync this process's parts of files that several processes write, and send their
 * checksums to the process that finishes the file.
 */
int ckpt_finish_join(ckpt_finish *f, ckpt_err *err);

/* Finish the remaining files, including those without jobs, after all jobs. */
int ckpt_finish_rest(ckpt_finish *f, unsigned n_workers, ckpt_err *err);

/* Release memory. Unfinished files stay as they are, because the sink removes them. */
void ckpt_finish_close(ckpt_finish *f);

#endif
