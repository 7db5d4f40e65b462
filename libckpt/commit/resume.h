/* SPDX-License-Identifier: Apache-2.0 */
/*
 * resume.h: checks that the files that an interrupted run has finished still have the bytes in its
 * journal.
 */
#ifndef CKPT_COMMIT_RESUME_H
#define CKPT_COMMIT_RESUME_H

#include "libckpt/commit/journal.h"
#include "libckpt/io/thread_pool.h"

/* The result for one file of the target. */
typedef struct ckpt_kept {
    bool listed; /* the journal lists it with the size that it has now */
    bool kept;   /* listed, and the disk has the same bytes */
    uint32_t crc;
} ckpt_kept;

/* The files to check. */
typedef struct ckpt_keep {
    int at;                  /* their folder */
    const ckpt_map *to;      /* the target map */
    unsigned jobs;           /* threads; 0: one */
    ckpt_progress *progress; /* shows a cancellation; or NULL */
} ckpt_keep;

/*
 * Read every listed file; kept[] has one zeroed element per file. A file that is missing or cannot
 * be read is not kept, without a failure.
 *
 * Errors   CKPT_ELIMIT, CKPT_ECANCELED
 */
int ckpt_keep_look(ckpt_kept *kept, const ckpt_keep *where, const ckpt_journal_entries *list,
                   ckpt_err *err);

/* CRC-32 of the first `size` bytes of a file; *whole: false if the file is shorter. */
int ckpt_keep_sum(int fd, uint64_t size, ckpt_progress *progress, uint32_t *crc, bool *whole,
                  ckpt_err *err);

#endif
