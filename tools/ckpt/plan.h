/* SPDX-License-Identifier: Apache-2.0 */
/*
 * plan.h: what a conversion would write, and what it wrote, as text and as JSON.
 *
 * Shared by `ckpt convert` and `ckpt reshard`.
 */
#ifndef TOOLS_PLAN_H
#define TOOLS_PLAN_H

#include "tools/ckpt/job.h"
#include "tools/cli/args.h"

/* The plan of a job that was prepared: files, sums, disk; nothing was written. */
void plan_show(convert_job *job, const cli_args *a);

/* The closing line and what was changed on the way, or the report as JSON. */
void outcome_show(convert_job *job, const cli_args *a);

#endif
