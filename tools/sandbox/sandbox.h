/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sandbox.h: declares the sandbox that a command enters before it reads files of others.
 *
 * The process keeps read access to the checkpoints of the command line and the targets of their
 * links, and write access to the output's folder.  It loses access to other programs, the network
 * and other processes, and it cannot gain privileges.  On a kernel with fewer features it silently
 * keeps more access; `ckpt version` reports this.
 */
#ifndef TOOLS_SANDBOX_H
#define TOOLS_SANDBOX_H

#include "tools/cli/args.h"

/* State to undo; zero it before sandbox_enter. */
typedef struct sandbox {
    char *folder; /* folder of the output */
    size_t *made; /* lengths of its prefixes that were created for this run */
    size_t n_made;
    bool files; /* only allowed files are accessible */
} sandbox;

/*
 * Enter the sandbox according to the verb's operands and options; with --no-sandbox do nothing.
 * Creates the output's folder, because only existing folders can be allowed.
 *
 * Errors   CKPT_EIO: the folder cannot be created; CKPT_ELIMIT
 */
int sandbox_enter(sandbox *s, const cli_args *a, ckpt_err *err);

/* Check that outputs and mount points of the command line can be written to: ckpt_output_check. */
int sandbox_check_outputs(const cli_args *a, ckpt_err *err);

/* Remove created folders that are still empty; frees s. */
void sandbox_leave(sandbox *s);

/* True if the sandbox may have caused an error: a file that this user may read was refused. */
bool sandbox_suspect(const sandbox *s, const ckpt_err *err);

/* Describe in one line the restrictions that this machine enforces. */
void sandbox_describe(char *out, size_t room);

#endif
