/* SPDX-License-Identifier: Apache-2.0 */
/*
 * budget.h: how many threads a run has, and what its memory is for.
 */
#ifndef CKPT_COPY_BUDGET_H
#define CKPT_COPY_BUDGET_H

#include "libckpt/base/err.h"

/*
 * Memory the workers may use in all is opts->memory; block sizes follow from it.  The plan's own
 * block must not exceed ckpt_run_block(memory, jobs).
 */
uint64_t ckpt_run_block(uint64_t memory, unsigned jobs);

/* Threads used for opts->jobs == 0: the processors available, at most 8. */
unsigned ckpt_run_jobs(unsigned jobs);

/* What memory is meant: 0 is 256 MiB.  Bytes of decoded records that stay in it: an eighth. */
uint64_t ckpt_budget_memory(uint64_t memory);
uint64_t ckpt_budget_spool(uint64_t memory);

/*
 * The workers of a run with blocks of so many bytes: fewer than asked for where a plan was made for
 * more memory than there is now.
 *
 * Errors   CKPT_ELIMIT: not even one
 */
int ckpt_budget_workers(unsigned *out, const ckpt_run_opts *opts, uint64_t block, ckpt_err *err);

#endif
