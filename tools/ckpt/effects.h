/* SPDX-License-Identifier: Apache-2.0 */
/*
 * effects.h: an option that was given and has no effect is never passed over.
 *
 * Not meant are options that only allow something (--force), set a limit or a means (--memory,
 * --tol), or demand what is so anyway (--require-crc where all records have one, --files of a list
 * that is whole).
 */
#ifndef TOOLS_EFFECTS_H
#define TOOLS_EFFECTS_H

#include "tools/cli/args.h"

/*
 * Before anything is opened: options that mean nothing to the format of the target, which is set.
 *
 * Errors   CKPT_EUSAGE
 */
int effects_of_target(const cli_args *a, ckpt_err *err);

/* Before anything else: a warning for each option that another one leaves nothing to do. */
void effects_of_options(const cli_args *a);

/* After opening: a warning for each option that the source gave nothing to act on. */
void effects_of_source(const cli_args *a, const ckpt_map *map);

/* After the layout: the same for options of the target. */
void effects_of_layout(const cli_args *a, const ckpt_map *from, const ckpt_map *to);

/*
 * With --strict, any warning so far is a failure.  Ask once more before the first byte is written.
 *
 * Errors   CKPT_EDOUBT
 */
int effects_strict(const cli_args *a, ckpt_err *err);

#endif
