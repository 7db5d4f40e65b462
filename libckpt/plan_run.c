/* SPDX-License-Identifier: Apache-2.0 */
/*
 * plan_run.c: making and running plans as the public header has it: copy/ meets the formats here.
 */
#include "libckpt/claim.h"
#include "libckpt/copy/run.h"
#include "libckpt/format.h"

int ckpt_plan_new(ckpt_plan **out, const ckpt_map *from, ckpt_map *to, const ckpt_run_opts *opts,
                  ckpt_err *err)
{
    return ckpt_plan_make(
        out, from, to,
        ckpt_run_block(opts != NULL ? opts->memory : 0, opts != NULL ? opts->jobs : 0), err);
}

/* The format of a file says what its end looks like; files of no format are literals only. */
static int plan_seal(ckpt_map *to, uint32_t file, ckpt_err *err)
{
    const ckpt_format *format = to->files.at[file].format;

    return format != NULL && format->seal != NULL ? format->seal(to, file, err) : CKPT_OK;
}

int ckpt_plan_run(const ckpt_plan *plan, const char *folder, const ckpt_run_opts *opts,
                  ckpt_run_report *report, ckpt_err *err)
{
    static const ckpt_run_hooks hooks = {.seal = plan_seal, .check = ckpt_claim_check};

    return ckpt_run(plan, folder, opts, &hooks, report, err);
}
