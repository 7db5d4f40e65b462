/* SPDX-License-Identifier: Apache-2.0 */
/*
 * keep.h: looking at the files that an interrupted run has finished: are they still what its
 * journal says?
 */
#ifndef CKPT_COPY_KEEP_H
#define CKPT_COPY_KEEP_H

#include "libckpt/copy/crew.h"
#include "libckpt/copy/journal.h"

/* What is known of one file of the target. */
typedef struct ckpt_kept {
    bool listed; /* in the journal, with the size that it is to have now */
    bool kept;   /* and of these bytes on the disk */
    uint32_t crc;
} ckpt_kept;

/* Where to look. */
typedef struct ckpt_keep {
    int at;                  /* the folder that the files are in */
    const ckpt_map *to;      /* whose files they are */
    unsigned jobs;           /* threads; 0: one */
    ckpt_progress *progress; /* asked now and then whether to go on, or NULL */
} ckpt_keep;

/*
 * Read every file that is listed; kept[] has one zeroed element per file.  A file that is not there
 * or cannot be read is not kept: no reason to fail.
 *
 * Errors   CKPT_ELIMIT, CKPT_ECANCELED
 */
int ckpt_keep_look(ckpt_kept *kept, const ckpt_keep *where, const ckpt_journal_entries *list,
                   ckpt_err *err);

/* CRC-32 of the first `size` bytes behind a descriptor; *whole: there were that many. */
int ckpt_keep_sum(int fd, uint64_t size, ckpt_progress *progress, uint32_t *crc, bool *whole,
                  ckpt_err *err);

#endif
