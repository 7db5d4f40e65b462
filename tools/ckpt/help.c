/* SPDX-License-Identifier: Apache-2.0 */
/* help.c: implements ckpt help: the list of commands, and the help of one. */
#include "tools/ckpt/verbs.h"

/* Print the commands of the table, and the meaning of exit statuses. */
static int help_list(const cli_verb *const *commands)
{
    out_printf("Usage: ckpt COMMAND [options] ...\n\n"
               "Open, convert, compare and verify checkpoints of large models.\n\nCommands:\n");
    for (; !(*commands)->compat; commands++)
        out_printf("  %-14s%s\n", (*commands)->name, (*commands)->summary);
    out_printf("\nReplacements for DeepSpeed's scripts, as programs or commands: zero_to_fp32,\n"
               "zero_to_torch, ds_to_universal.  Training: the program zerotrain.\n"
               "'ckpt COMMAND --help' shows the options of a command.\n\n"
               "Exit status: 0 done, 1 differences found, 2 wrong arguments, 3 damaged or\n"
               "unsupported input, 4 the file would run code, 5 missing or inconsistent parts,\n"
               "6 a limit was reached, 7 input/output error, 8 wrong hash or signature,\n"
               "9 values would be lost, or warnings under --strict, 130 interrupted.\n");
    return CKPT_OK;
}

/* Print the help of a command, or the list. */
static int help_run(cli_args *a, ckpt_err *err)
{
    if (a->n_operands == 0)
        return help_list(a->commands);
    const cli_verb *v = cli_find(a->commands, a->operand[0]);
    if (!v)
        return fail(err, CKPT_EUSAGE, "'%s' is not a command", a->operand[0]);
    cli_help(v, a->line.help_all);
    return CKPT_OK;
}

const cli_verb verb_help = {
    .name = "help",
    .command = "ckpt help",
    .operands = "[COMMAND]",
    .summary = "Show the commands, or the options of one.",
    .max = 1,
    .uses = "v",
    .run = help_run,
};
