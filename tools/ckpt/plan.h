/* SPDX-License-Identifier: Apache-2.0 */
/*
 * plan.h: declares a conversion from its layout to its end, and its report of planned or written
 * files, as text and as JSON.
 *
 * `ckpt convert` and `ckpt reshard` share it.
 */
#ifndef TOOLS_PLAN_H
#define TOOLS_PLAN_H

#include "tools/ckpt/job.h"
#include "tools/cli/write_args.h"

/*
 * Lay out and plan.  Then print the plan (--dry-run), or run it and print the result.  Frees the
 * job.
 *
 * Errors  those of ckpt_layout and ckpt_plan_run; CKPT_EDOUBT: --strict, and there is a warning
 */
int plan_carry_out(convert_job *job, write_args *a, ckpt_err *err);

#endif
