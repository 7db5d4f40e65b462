/* SPDX-License-Identifier: Apache-2.0 */
/*
 * proof.h: whether records are what was written, for readers that take them in any order.
 *
 * CRCs of what was read are kept for each record until they cover it; then they are compared, once.
 * A run that reads everything once has ledger.h for that.
 */
#ifndef CKPT_COPY_PROOF_H
#define CKPT_COPY_PROOF_H

#include "libckpt/copy/ledger.h"

typedef struct ckpt_proof ckpt_proof;

typedef struct ckpt_proof_opts {
    bool first; /* a record is read whole before its first byte is used */
    /* checks what is inside a file that is passed on as it is (ckpt_source.whole); NULL: nothing */
    int (*whole)(void *ctx, uint32_t source, ckpt_err *err);
    void *ctx;
} ckpt_proof_opts;

/* For the sources of the feed's map; both outlive it. */
int ckpt_proof_new(ckpt_proof **out, ckpt_feed *feed, const ckpt_proof_opts *opts, ckpt_err *err);
void ckpt_proof_free(ckpt_proof *p); /* NULL is fine */

/*
 * Before bytes of a source are used: decodes what is deflated, checks what is to be checked first.
 * Thread safe, as all that follows.
 *
 * Errors   CKPT_EFORMAT: the record is not what was written, found now or earlier; those of reading
 */
int ckpt_proof_touch(ckpt_proof *p, uint32_t source, ckpt_err *err);

/*
 * Takes segments of what was read; *read is empty afterwards.  Records that they complete are
 * compared: where only a small rest is missing it is read for that (padding belongs to no tensor).
 *
 * Errors   as above
 */
int ckpt_proof_take(ckpt_proof *p, ckpt_segments *read, ckpt_err *err);

/* Read the rest of every record that was read in part, and compare them. */
int ckpt_proof_finish(ckpt_proof *p, unsigned n_workers, ckpt_err *err);

/* The records' part of the counts; the rest is not touched. */
void ckpt_proof_count(ckpt_proof *p, ckpt_view_counts *out);

#endif
