/* SPDX-License-Identifier: Apache-2.0 */
/*
 * training.h: declares opening a source for a target with training state: slices, optimizer, order.
 *
 * `ckpt reshard` and `ckpt convert --to universal` share it.
 */
#ifndef TOOLS_TRAINING_H
#define TOOLS_TRAINING_H

#include "tools/cli/write_args.h"

/* True if files of the format contain training state. */
bool training_format(const char *format);

/* Refuse options that contradict each other, or that targets with training state do not support. */
int training_check(const write_args *a, ckpt_err *err);

/* Read the order of --order, whose text lives until training_free. */
int training_order(write_args *a, ckpt_err *err);

/*
 * Open the source with its optimizer state.  A source without one gets the state of a run at its
 * start.  a->target must be complete except for the order, whose text lives until training_free.
 */
int training_open(ckpt_map **map, write_args *a, ckpt_err *err);
void training_free(write_args *a);

#endif
