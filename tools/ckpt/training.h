/* SPDX-License-Identifier: Apache-2.0 */
/*
 * training.h: opening a source for a target that holds training state: slices, optimizer, order.
 *
 * Shared by `ckpt reshard` and `ckpt convert --to universal`.
 */
#ifndef TOOLS_TRAINING_H
#define TOOLS_TRAINING_H

#include "tools/cli/args.h"

/* A format whose files hold training state. */
bool training_format(const char *format);

/* Options that contradict each other, or that such a target cannot follow. */
int training_check(const cli_args *a, ckpt_err *err);

/*
 * Open the source with its optimizer state; one that has none gets the state of a run that has not
 * begun.  a->target is complete, but for the order, whose text stays until training_free.
 */
int training_open(ckpt_map **map, cli_args *a, ckpt_err *err);
void training_free(cli_args *a);

#endif
