/* SPDX-License-Identifier: Apache-2.0 */
/* pipe.h: declares `ckpt convert SRC -`, which writes one file to standard output in order. */
#ifndef TOOLS_PIPE_H
#define TOOLS_PIPE_H

#include "tools/ckpt/job.h"
#include "tools/cli/write_args.h"

/*
 * Check that standard output may be written to and that the options choose a format; warn about
 * options without effect.  Sets the target's path, from which some formats take names.
 *
 * Errors  CKPT_EUSAGE: a terminal, no format, a format of several files, --json
 */
int pipe_check(write_args *a, ckpt_err *err);

/*
 * Write the one file of a prepared job to standard output, and the proofs to standard error.
 *
 * Errors  CKPT_EUSAGE: several files; those of ckpt_view_stream: output so far may then be damaged
 */
int pipe_run(convert_job *job, ckpt_err *err);

#endif
