/* SPDX-License-Identifier: Apache-2.0 */
/*
 * effects.h: an option that was given and has no effect is never passed over.
 */
#ifndef TOOLS_EFFECTS_H
#define TOOLS_EFFECTS_H

#include "tools/cli.h"

/*
 * Before anything is opened: options that mean nothing to the format of the target, which is set.
 *
 * Errors   CKPT_EUSAGE
 */
int effects_of_target(const cli_args *a, ckpt_err *err);

/* After opening: a warning for each option that the source gave nothing to act on. */
void effects_of_source(const cli_args *a, const ckpt_map *map);

/*
 * With --strict, any warning so far is a failure.  Ask once more before the first byte is written.
 *
 * Errors   CKPT_EDOUBT
 */
int effects_strict(const cli_args *a, ckpt_err *err);

#endif
