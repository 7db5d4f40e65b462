/* SPDX-License-Identifier: Apache-2.0 */
/*
 * view.h: reads the files of a plan in any order without writing them.
 *
 * A read computes its bytes with the jobs that the executor would run; the view caches the last
 * results. Headers and directories are the plan's literals. If a format stores checksums of data,
 * the view leaves them out in the way that the format's own writer can (format.h's bare); without
 * such a way it reads the data of a file once before the file's first byte.
 *
 * The executor makes its checks at its end, the view as early as it can: a record's CRC after all
 * of it was read, a value's range after its conversion, a copy after its comparison. The read that
 * meets a failure fails, and so do all later reads of that record.
 *
 * ckpt_extra.h has the functions of a view; ckpt_view_new is in libckpt/view.c.
 */
#ifndef CKPT_COPY_VIEW_H
#define CKPT_COPY_VIEW_H

#include "ckpt_extra.h"

#include "libckpt/copy/crc_check.h"
#include "libckpt/copy/plan.h"

/* Functions that the caller, outside of this folder, passes in. */
typedef struct ckpt_view_hooks {
    ckpt_plan_seal_fn seal;
    bool (*sums)(const ckpt_map *to, uint32_t file); /* true if seal needs checksums of the data */
    bool (*bare)(const ckpt_map *to, uint32_t file); /* true if they may be left out */
    /* checks the contents of a file that is copied unchanged */
    int (*whole)(const ckpt_map *from, uint32_t source, ckpt_err *err);
} ckpt_view_hooks;

/* Limit of a job's bytes in a view's plan. */
uint64_t ckpt_view_block(const ckpt_map *to, uint64_t memory, unsigned jobs);

/* Make a view of a plan made with ckpt_view_block; the view frees the plan, also on failure. */
int ckpt_view_make(ckpt_view **out, ckpt_plan *plan, const ckpt_run_opts *run, bool check_first,
                   const ckpt_view_hooks *hooks, ckpt_err *err);

#endif
