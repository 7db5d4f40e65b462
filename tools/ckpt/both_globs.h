/* SPDX-License-Identifier: Apache-2.0 */
/* both_globs.h: declares --include and --exclude for the two sides of a comparison. */
#ifndef TOOLS_CKPT_BOTH_GLOBS_H
#define TOOLS_CKPT_BOTH_GLOBS_H

#include "tools/cli/args.h"

/* What globs match on a side: first those of --include, then those of --exclude. */
typedef struct both_globs {
    bool *seen; /* a name that the side had before layout maps, or before parts were left out */
    bool *met;  /* a name that was compared, or excluded */
} both_globs;

/* Errors   CKPT_ELIMIT */
int both_globs_new(both_globs *g, const cli_args *a, ckpt_err *err);
void both_globs_free(both_globs *g);

/* Remember the globs that match a name that a side has now; used: the globs choose its tensors. */
void both_globs_see(both_globs *g, const cli_args *a, const ckpt_map *map, bool used);

/*
 * Select tensors of a side.  A glob that matches only names of the other side, or names that were
 * left out before, gives no warning.
 *
 * Errors   those of ckpt_map_select
 */
int both_globs_select(both_globs *g, const cli_args *a, ckpt_map *map, ckpt_err *err);

/*
 * Warn about globs that match no name of either side: misspelt, or for another model.  A note names
 * those that match only names of before.
 */
void both_globs_say(const both_globs *g, const cli_args *a);

#endif
