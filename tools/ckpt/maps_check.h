/* SPDX-License-Identifier: Apache-2.0 */
/*
 * maps_check.h: declares the check of a layout map with a checkpoint, for authors of maps.
 */
#ifndef TOOLS_CKPT_MAPS_CHECK_H
#define TOOLS_CKPT_MAPS_CHECK_H

#include "tools/cli/args.h"
#include "tools/cli/maps.h"

typedef struct maps_check_args {
    const cli_args *cli;
    const cli_maps *maps;
    const char *name, *source;             /* of the map; path of the checkpoint */
    const char *config_text, *config_name; /* the model's config.json, or NULL */
    const char *const *sizes;              /* --size, or NULL */
    bool backwards;                        /* the checkpoint has the right layout */
} maps_check_args;

/*
 * Apply the map and apply it again in the other direction, in memory; print the tensors of
 * each rule, the tensors that are left over, and the changes by the way back.  No values are read.
 *
 * Errors   CKPT_EDIFFERS: tensors are left over, or the way back gives others; CKPT_EUSAGE: no such
 *          map; those of ckpt_open and ckpt_map_remap, after the rules that were applied
 */
int maps_check(const maps_check_args *a, ckpt_err *err);

#endif
