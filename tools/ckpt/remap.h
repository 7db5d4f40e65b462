/* SPDX-License-Identifier: Apache-2.0 */
/* remap.h: declares applying the layout map of --map to a source. */
#ifndef TOOLS_CKPT_REMAP_H
#define TOOLS_CKPT_REMAP_H

#include "tools/cli/write_args.h"

/* True if that map takes weights of the source in blocks (ckpt_remap_keeps_blocks). */
bool remap_keeps_blocks(ckpt_map *map, const write_args *a);

/* Apply --map if the user gave it or the target needs one.  Errors: those of maps_apply. */
int remap_apply(ckpt_map *map, const write_args *a, ckpt_err *err);

#endif
