/* SPDX-License-Identifier: Apache-2.0 */
/*
 * finish.h: output files are finished one by one, as soon as the last of their jobs is done.
 *
 * Finished means: checksums of its records known, sealed by its format, on the disk, and noted in
 * the journal where there is one.  The worker that does the last job of a file sees to that; small
 * files are finished a few at a time, so that they share syncs.
 */
#ifndef CKPT_COPY_FINISH_H
#define CKPT_COPY_FINISH_H

#include "libckpt/copy/joint.h"
#include "libckpt/copy/run.h"
#include "libckpt/copy/work.h"

typedef struct ckpt_finish_file ckpt_finish_file;

typedef struct ckpt_finish {
    /* its lock protects the target map, and all of this but what a file's finisher owns */
    ckpt_work *work;
    ckpt_joint *joint;
    ckpt_run_seal_fn seal;
    ckpt_finish_file *file; /* one per file of the target */
    uint32_t *source;       /* sources of files, grouped by file */
    size_t *first;          /* per file, and one more: where its group begins */
    ckpt_slots ready;       /* files whose jobs are done, waiting for company */
    uint64_t ready_bytes;
    ckpt_segments loose; /* what went to memory */
} ckpt_finish;

/* work->plan is set.  To be closed, also on failure. */
int ckpt_finish_open(ckpt_finish *f, ckpt_work *work, ckpt_joint *joint, ckpt_run_seal_fn seal,
                     ckpt_err *err);

/* Jobs first..end-1 are going to be done together.  Told for all jobs before any is done. */
void ckpt_finish_expect(ckpt_finish *f, size_t first, size_t end);

/*
 * They are: worker w has written them and has their segments.  Thread safe for different workers.
 */
int ckpt_finish_jobs(ckpt_finish *f, ckpt_worker *w, size_t first, size_t end, ckpt_err *err);

/*
 * Collective.  What this process has written to files that several write to is on the disk, and who
 * seals them knows its checksums.
 */
int ckpt_finish_join(ckpt_finish *f, ckpt_err *err);

/* All jobs are done: finish what is left, files without jobs among them. */
int ckpt_finish_rest(ckpt_finish *f, unsigned n_workers, ckpt_err *err);

/* CRC-32 of a file that this process has finished and others copy (ckpt_joint_copied). */
uint32_t ckpt_finish_crc(const ckpt_finish *f, uint32_t file);

/* Releases what it holds; files that are not finished stay as they are, for the sink to undo. */
void ckpt_finish_close(ckpt_finish *f);

#endif
