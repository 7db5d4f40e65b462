/* SPDX-License-Identifier: Apache-2.0 */
/*
 * crc_check.h: compares the CRCs of records for readers that read them in any order.
 *
 * It collects CRCs of the parts that were read until they cover a record, and then compares its CRC
 * once. A run that reads everything once uses crc_ledger.h instead.
 */
#ifndef CKPT_COPY_CRC_CHECK_H
#define CKPT_COPY_CRC_CHECK_H

#include "libckpt/copy/crc_ledger.h"

typedef struct ckpt_proof ckpt_proof;

typedef struct ckpt_proof_opts {
    bool first; /* read a complete record before the first use of its bytes */
    /* checks the contents of a file that is copied unchanged (ckpt_source.whole); NULL: no check */
    int (*whole)(void *ctx, uint32_t source, ckpt_err *err);
    void *ctx;
} ckpt_proof_opts;

/* For the sources of the feed's map; both must outlive it. */
int ckpt_proof_new(ckpt_proof **out, ckpt_feed *feed, const ckpt_proof_opts *opts, ckpt_err *err);
void ckpt_proof_free(ckpt_proof *p); /* NULL is fine */

/*
 * Call before the use of a source's bytes: it decodes a deflated source and makes the checks that
 * must precede the use. Thread safe, like the functions below.
 *
 * Errors   CKPT_EFORMAT: the record has a wrong CRC, found now or earlier; those of reading
 */
int ckpt_proof_touch(ckpt_proof *p, uint32_t source, ckpt_err *err);

/*
 * Take over the segments of a read; *read is empty afterwards. It compares the records that they
 * complete; if only a small rest is missing it reads that too, because padding belongs to no
 * tensor.
 *
 * Errors   as above
 */
int ckpt_proof_take(ckpt_proof *p, ckpt_segments *read, ckpt_err *err);

/* Read the rest of every record that was read in part, and compare their CRCs. */
int ckpt_proof_finish(ckpt_proof *p, unsigned n_workers, ckpt_err *err);

/* Set the members of *out that count records; the others stay unchanged. */
void ckpt_proof_count(ckpt_proof *p, ckpt_view_counts *out);

#endif
