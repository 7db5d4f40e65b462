/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sandbox.h: what a command gives up before it looks into a file of somebody else.
 *
 * Reading is left for the checkpoints that the command line names and what their links point to,
 * writing for the folder of the output; other programs, the network, other processes and new rights
 * are gone.  A kernel that has less of this gives up less, without a word: `ckpt version` tells.
 */
#ifndef TOOLS_SANDBOX_H
#define TOOLS_SANDBOX_H

#include "tools/cli/args.h"

/* What has to be undone; zeroed before sandbox_enter. */
typedef struct sandbox {
    char *folder; /* the output's */
    size_t *made; /* bytes of it that each folder takes that was made for this run */
    size_t n_made;
    bool files; /* only files that were named can be reached */
} sandbox;

/*
 * Enter it, as the verb's operands and options say; with --no-sandbox nothing happens.  Makes the
 * folder of the output where there is none, since only what exists can be allowed.
 *
 * Errors   CKPT_EIO: the folder cannot be made; CKPT_ELIMIT
 */
int sandbox_enter(sandbox *s, const cli_args *a, ckpt_err *err);

/* What the command line says is written, or mounted on, can be: ckpt_check_output. */
int sandbox_check_outputs(const cli_args *a, ckpt_err *err);

/* Remove the folders that were made and have stayed empty; frees s. */
void sandbox_leave(sandbox *s);

/* An error may be the sandbox's doing: a file that this user may read was refused. */
bool sandbox_suspect(const sandbox *s, const ckpt_err *err);

/* One line: what is enforced on this machine. */
void sandbox_describe(char *out, size_t room);

#endif
