/* SPDX-License-Identifier: Apache-2.0 */
/*
 * remap.h: the layout map that --map names, applied to what was opened.
 */
#ifndef TOOLS_CKPT_REMAP_H
#define TOOLS_CKPT_REMAP_H

#include "tools/cli/args.h"

/* Apply --map, if it was given or the target needs one.  Errors: those of maps_apply. */
int remap_apply(ckpt_map *map, const cli_args *a, ckpt_err *err);

#endif
