/* SPDX-License-Identifier: Apache-2.0 */
/*
 * args.h: declares the options that several of ckpt's commands have, and fills what their fields
 * (cli_args, verb.h) leave open.
 */
#ifndef TOOLS_ARGS_H
#define TOOLS_ARGS_H

#include "ckpt_extra.h"
#include "tools/cli/out.h"
#include "tools/cli/table.h"

/* The option of commands that several processes run together (ckpt-mpi(7)). */
#define CLI_LOCAL                                                                                  \
    {                                                                                              \
        "local", 0, CLI_FLAG, offsetof(cli_args, local), NULL,                                     \
            "under mpirun: read inputs from each machine's own disk"                               \
    }

/* The options of commands that may write to local disks of several machines. */
#define CLI_SPREAD                                                                                 \
    {"local-target", 0,                                                                            \
     CLI_FLAG,       offsetof(cli_args, local_target),                                             \
     NULL,           "under mpirun: write each machine its ranks' files"},                         \
    {                                                                                              \
        "hostfile", 0, CLI_FILE, offsetof(cli_args, hostfile), "FILE",                             \
            "with --local-target: assign ranks to hosts ('host slots=N')"                          \
    }

/* The option of every command that reads files of others. */
#define CLI_NO_SANDBOX                                                                             \
    {                                                                                              \
        "no-sandbox", 0, CLI_FLAG, offsetof(cli_args, no_sandbox), NULL,                           \
            "read without the sandbox, see ckpt(1)"                                                \
    }

/*
 * Fill args from the command line of a verb; they must be zeroed except for commands.  argv[0] is
 * skipped.  Memory gets its default; args_rules reads the files of options later.
 *
 * Errors   CKPT_EUSAGE with a text; CKPT_ELIMIT
 */
int args_parse(cli_args *a, const cli_verb *verb, int argc, char **argv, ckpt_err *err);
void args_free(cli_args *a);

/* Open the first operand with --tag, --slice-rules and the other options. */
int args_open(ckpt_map **out, cli_args *a, ckpt_err *err);

/*
 * Read the files of options before the sandbox hides them: the slice rules for a->open, then those
 * of the command's own options.
 */
int args_rules(cli_args *a, ckpt_err *err);

/* Make a filter from --include and --exclude; false: none of them was given. */
bool args_filter(ckpt_filter *out, const cli_args *a);

/* True if this command line writes its output to stdout. */
bool args_to_stdout(const cli_args *a);

#endif
