/* SPDX-License-Identifier: Apache-2.0 */
/* completion.c: implements ckpt completion, which prints completion scripts for shells. */
#include "tools/ckpt/verbs.h"

static int completion_run(cli_args *a, ckpt_err *err)
{
    return cli_complete(a->operand[0], "ckpt", a->commands, err);
}

const cli_verb verb_completion = {
    .name = "completion",
    .command = "ckpt completion",
    .operands = CLI_SHELLS,
    .summary = "Print a completion script for a shell.",
    .min = 1,
    .max = 1,
    .run = completion_run,
};
