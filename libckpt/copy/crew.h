/* SPDX-License-Identifier: Apache-2.0 */
/*
 * crew.h: a few threads that carry out numbered items, with one failure and one way to stop.
 */
#ifndef CKPT_COPY_CREW_H
#define CKPT_COPY_CREW_H

#include "libckpt/base/mem.h"

/* How far the run has come: told to the caller's callback at most 20 times a second. */
typedef struct ckpt_progress ckpt_progress;

/* For a run of `total` bytes; opts (NULL: nobody listens) names the callback. */
int ckpt_progress_new(ckpt_progress **out, const ckpt_run_opts *opts, uint64_t total,
                      ckpt_err *err);

/* Add n bytes; CKPT_ECANCELED once the callback has asked to stop.  Thread safe. */
int ckpt_progress_add(ckpt_progress *p, uint64_t n, ckpt_err *err);

/* Tell the callback that everything is done. */
int ckpt_progress_end(ckpt_progress *p, ckpt_err *err);
void ckpt_progress_free(ckpt_progress *p); /* NULL is fine */

/*
 * Carry out item `item` on worker `worker`: 0..n_workers-1; no two calls share a worker at a time.
 */
typedef int (*ckpt_crew_fn)(void *ctx, unsigned worker, uint64_t item, ckpt_err *err);

/*
 * Hand out items 0..n_items-1 in ascending order to n_workers threads (the caller's is one of
 * them).
 *
 * Fewer threads than wanted are no failure: the items then take longer.
 * Errors   what fn returned for the lowest item that failed; no further items are handed out then.
 */
int ckpt_crew_run(unsigned n_workers, uint64_t n_items, ckpt_crew_fn fn, void *ctx, ckpt_err *err);

#endif
