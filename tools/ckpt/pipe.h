/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pipe.h: `ckpt convert SRC -`: one file to standard output, from its first byte to its last.
 */
#ifndef TOOLS_PIPE_H
#define TOOLS_PIPE_H

#include "tools/ckpt/job.h"
#include "tools/cli/args.h"

/*
 * Whether standard output may be written to, and the options say what; warns of those without
 * effect.  The target gets a path for what is named after it.
 *
 * Errors  CKPT_EUSAGE: a terminal, no format, a format of several files, --json
 */
int pipe_check(cli_args *a, ckpt_err *err);

/*
 * Pour out the one file of a job that was prepared, and say on standard error what was proved.
 *
 * Errors  CKPT_EUSAGE: several files; those of ckpt_view_stream: what was poured out before may
 *         then be damaged
 */
int pipe_run(convert_job *job, ckpt_err *err);

#endif
