/* SPDX-License-Identifier: Apache-2.0 */
/*
 * thread_pool.h: runs numbered items on a few threads, stops at the first failure, and reports
 * progress.
 */
#ifndef CKPT_IO_THREAD_POOL_H
#define CKPT_IO_THREAD_POOL_H

#include "libckpt/base/mem.h"

/* The progress of a run: calls the caller's callback at most 20 times a second. */
typedef struct ckpt_progress ckpt_progress;

/* For a run of `total` bytes; opts has the callback (NULL: no callback). */
int ckpt_progress_new(ckpt_progress **out, const ckpt_run_opts *opts, uint64_t total,
                      ckpt_err *err);

/* Add n bytes; CKPT_ECANCELED after the callback has returned a non-zero value. Thread safe. */
int ckpt_progress_add(ckpt_progress *p, uint64_t n, ckpt_err *err);

/* Report the end to the callback. */
int ckpt_progress_end(ckpt_progress *p, ckpt_err *err);
void ckpt_progress_free(ckpt_progress *p); /* NULL is fine */

/* The threads of each process if several processes work together, the same for all; else 0. */
unsigned ckpt_crew_agreed(void);

/* Run item `item` on worker `worker`, 0..n_workers-1; no two calls share a worker at a time. */
typedef int (*ckpt_crew_fn)(void *ctx, unsigned worker, uint64_t item, ckpt_err *err);

/*
 * Give items 0..n_items-1 in ascending order to n_workers threads, one of which is the caller's.
 *
 * If fewer threads can start, the items only take longer.
 * Errors   the result of fn for the lowest item that failed; no further items start then.
 */
int ckpt_crew_run(unsigned n_workers, uint64_t n_items, ckpt_crew_fn fn, void *ctx, ckpt_err *err);

#endif
