/* SPDX-License-Identifier: Apache-2.0 */
/*
 * budget.h: decides the number of threads of a run, and divides its memory.
 */
#ifndef CKPT_COPY_BUDGET_H
#define CKPT_COPY_BUDGET_H

#include "libckpt/base/err.h"

/*
 * Block size, from opts->memory, the memory that all workers together may use. The plan's own block
 * must not exceed ckpt_run_block(memory, jobs).
 */
uint64_t ckpt_run_block(uint64_t memory, unsigned jobs);

/* Threads used for opts->jobs == 0: the processors available, at most 8. */
unsigned ckpt_run_jobs(unsigned jobs);

/* The memory of a run: 0 means 256 MiB. The part of it for decoded records: an eighth. */
uint64_t ckpt_budget_memory(uint64_t memory);
uint64_t ckpt_budget_spool(uint64_t memory);

/*
 * The number of workers for blocks of this size: fewer than requested if the plan was made for more
 * memory than there is now.
 *
 * Errors   CKPT_ELIMIT: not enough for one
 */
int ckpt_budget_workers(unsigned *out, const ckpt_run_opts *opts, uint64_t block, ckpt_err *err);

#endif
