/*
 * keep.h: looking at the files that an interrupted run has finished: are they still what its journal says?
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

/*
 * Read every file of `to` that is listed, below the folder `at`, on `jobs` threads; kept[] has one zeroed element per
 * file.  A file that is not there or cannot be read is not kept: no reason to fail.
 *
 * progress  asked now and then whether to go on; may be NULL
 * Errors    CKPT_ELIMIT, CKPT_ECANCELED
 */
int ckpt_keep_look(ckpt_kept *kept, int at, const ckpt_map *to, const ckpt_journal_entries *list,
                   unsigned jobs, ckpt_progress *progress, ckpt_err *err);

/* CRC-32 of the first `size` bytes behind a descriptor; *whole: there were that many. */
int ckpt_keep_sum(int fd, uint64_t size, ckpt_progress *progress, uint32_t *crc, bool *whole,
                  ckpt_err *err);

#endif
