/* SPDX-License-Identifier: Apache-2.0 */
/* same_layout.h: declares bringing the two sides of a comparison to one layout. */
#ifndef TOOLS_CKPT_SAME_LAYOUT_H
#define TOOLS_CKPT_SAME_LAYOUT_H

#include "tools/cli/maps.h"

/* The layout maps that were applied to each side; "": none. */
typedef struct same_layout {
    char a[MAPS_NAME], b[MAPS_NAME];
} same_layout;

/* The maps to choose from, and the sizes that the user gives. */
typedef struct same_layout_from {
    const cli_maps *maps;
    const ckpt_remap_opts *opts;
    bool always; /* map two checkpoints of one layout, too */
} same_layout_from;

/*
 * If the two checkpoints have different layouts, or from->always is set, turn each into Hugging
 * Face's, as ckpt convert does.  A side that cannot be mapped keeps its names, and *why gets
 * the reason.
 *
 * Errors   CKPT_ELIMIT
 */
int same_layout_meet(ckpt_map *a, ckpt_map *b, const same_layout_from *from, same_layout *out,
                     ckpt_err *why, ckpt_err *err);

/*
 * Apply the map that the user names to the first side.  For LAYOUT_A:LAYOUT_B between which no map
 * leads directly, turn each side from its layout into Hugging Face's.
 *
 * Errors   those of maps_apply
 */
int same_layout_apply(ckpt_map *a, ckpt_map *b, const same_layout_from *from, const char *name,
                      same_layout *out, ckpt_err *err);

/*
 * Count the tensors of both sides whose dtypes are different floating dtypes, because each format
 * has its own rules for dtypes.
 */
size_t same_layout_dtypes(const ckpt_map *a, const ckpt_map *b);

#endif
