/* SPDX-License-Identifier: Apache-2.0 */
/*
 * budget.c: computes the numbers of threads and the sizes of their buffers.
 */
#include <inttypes.h>
#include <unistd.h>

#include "libckpt/copy/budget.h"
#include "libckpt/copy/work.h"
#include "libckpt/io/thread_pool.h"

enum { BU_MAX_JOBS = 64, BU_DEFAULT_JOBS = 8, BU_MIN_BLOCK = 4096 };

#define BU_MEMORY    (UINT64_C(256) << 20)
#define BU_MAX_BLOCK (UINT64_C(16) << 20)

unsigned ckpt_run_jobs(unsigned jobs)
{
    long n;

    if (jobs > 0)
        return jobs < BU_MAX_JOBS ? jobs : BU_MAX_JOBS;
    if (ckpt_crew_agreed() > 0)
        return ckpt_crew_agreed();
    n = sysconf(_SC_NPROCESSORS_ONLN);
    return n < 1 ? 1 : n > BU_DEFAULT_JOBS ? BU_DEFAULT_JOBS : (unsigned)n;
}

uint64_t ckpt_budget_memory(uint64_t memory)
{
    return memory > 0 ? memory : BU_MEMORY;
}

uint64_t ckpt_budget_spool(uint64_t memory)
{
    return ckpt_budget_memory(memory) / 8;
}

uint64_t ckpt_run_block(uint64_t memory, unsigned jobs)
{
    uint64_t all = ckpt_budget_memory(memory) - ckpt_budget_spool(memory);
    uint64_t block = all / ckpt_run_jobs(jobs) / CKPT_WORK_BLOCKS / BU_MIN_BLOCK * BU_MIN_BLOCK;

    // No plan has larger blocks, and most jobs are far smaller (plan.c).
    if (block > BU_MAX_BLOCK)
        return BU_MAX_BLOCK;
    return block > BU_MIN_BLOCK ? block : BU_MIN_BLOCK;
}

int ckpt_budget_workers(unsigned *out, const ckpt_run_opts *opts, uint64_t block, ckpt_err *err)
{
    uint64_t memory = ckpt_budget_memory(opts->memory);
    uint64_t room = memory - ckpt_budget_spool(memory);
    uint64_t fit = block > 0 ? room / (block * CKPT_WORK_BLOCKS) : BU_MAX_JOBS;

    *out = ckpt_run_jobs(opts->jobs);
    if (fit < *out)
        *out = (unsigned)fit;
    if (*out > 0)
        return CKPT_OK;
    // The smallest blocks are allowed under any limit, because five of them are smaller than a
    // thread's stack.
    if (block <= BU_MIN_BLOCK) {
        *out = 1;
        return CKPT_OK;
    }
    return ckpt_fail(err, CKPT_ELIMIT,
                     "the plan's blocks of %" PRIu64 " bytes need %" PRIu64
                     " bytes of memory, but the limit is %" PRIu64 "; raise it",
                     block, block * CKPT_WORK_BLOCKS, memory);
}
