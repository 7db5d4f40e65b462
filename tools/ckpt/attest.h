/* SPDX-License-Identifier: Apache-2.0 */
/* attest.h: declares statements about conversions (--attest): attest.c, attest_read.c. */
#ifndef TOOLS_ATTEST_H
#define TOOLS_ATTEST_H

#include "tools/ckpt/job.h"
#include "tools/cli/write_args.h"

/* Before a run: check that a statement about it can be written. */
int attest_check(const convert_job *job, const write_args *a, ckpt_err *err);

/*
 * After job_prepare: check that the statement replaces no file of the output, and nothing but an
 * older statement.
 */
int attest_check_place(const convert_job *job, const write_args *a, ckpt_err *err);

/* After a run: write the statement of --attest, if it was given. */
int attest_write(const convert_job *job, const write_args *a, ckpt_err *err);

/*
 * Read a statement, and set the options of its conversion in a command line that has some of them.
 * recipe: its --config is a configuration of a merge, which the command line names as a source.
 *
 * Errors   those of ckpt_attest_read; CKPT_EUSAGE: the line already has such an option;
 *          CKPT_EUNSUPPORTED: the command has no such option, and it changes the result
 */
int attest_read(ckpt_attested **out, cli_line *line, const char *file, bool recipe, ckpt_err *err);

#endif
