/* SPDX-License-Identifier: Apache-2.0 */
/*
 * plan.h: a conversion from its layout to its end: what it would write, or what it wrote, as text
 * and as JSON.
 *
 * Shared by `ckpt convert` and `ckpt reshard`.
 */
#ifndef TOOLS_PLAN_H
#define TOOLS_PLAN_H

#include "tools/ckpt/job.h"
#include "tools/cli/args.h"

/*
 * Lay out and plan; then show that (--dry-run), or carry it out and show what was done.  The job is
 * freed.
 *
 * Errors  those of ckpt_layout and ckpt_plan_run; CKPT_EDOUBT: --strict, and there is a warning
 */
int plan_carry_out(convert_job *job, cli_args *a, ckpt_err *err);

#endif
