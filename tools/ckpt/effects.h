/* SPDX-License-Identifier: Apache-2.0 */
/*
 * effects.h: declares the warnings about options that have no effect.
 *
 * Three kinds of options never cause a warning: those that only permit something (--force), those
 * that set a limit (--memory, --tol), and those that require a condition which holds anyway
 * (--require-crc if all records have checksums, --files with a complete list).
 */
#ifndef TOOLS_EFFECTS_H
#define TOOLS_EFFECTS_H

#include "tools/cli/write_args.h"

/*
 * Before the source is opened: refuse options that have no meaning for the target's format, which
 * must be set.
 *
 * Errors   CKPT_EUSAGE
 */
int effects_of_target(const write_args *a, ckpt_err *err);

/* Before all other steps: warn about each option that another option makes useless. */
void effects_of_options(const cli_args *a);

/* After the source is opened: warn about each option for which the source has nothing to act on. */
void effects_of_source(const cli_args *a, const ckpt_map *map);

/* After the layout: warn about each option of the target that had no effect. */
void effects_of_layout(const write_args *a, const ckpt_map *from, const ckpt_map *to);

/*
 * With --strict, fail if there was any warning so far.  Call it again before the first byte is
 * written.
 *
 * Errors   CKPT_EDOUBT
 */
int effects_strict(const cli_args *a, ckpt_err *err);

#endif
