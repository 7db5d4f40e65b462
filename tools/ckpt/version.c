/* SPDX-License-Identifier: Apache-2.0 */
/*
 * version.c: implements ckpt version, which prints the version, and what the sandbox restricts on
 * this machine.
 */
#include "tools/ckpt/verbs.h"
#include "tools/sandbox/sandbox.h"

static int version_run(cli_args *a, ckpt_err *err)
{
    char text[128];

    (void)a;
    (void)err;
    sandbox_describe(text, sizeof text);
    out_printf("ckpt %s\nsandbox: %s\n", ckpt_version(), text);
    return CKPT_OK;
}

const cli_verb verb_version = {
    .name = "version",
    .command = "ckpt version",
    .operands = "",
    .summary = "Show the version, and the parts of the sandbox that work here.",
    .run = version_run,
};
