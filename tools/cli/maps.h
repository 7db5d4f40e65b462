/* SPDX-License-Identifier: Apache-2.0 */
/*
 * maps.h: declares layout maps by name: where their texts are, and how a map is chosen.
 *
 * A name LEFT:RIGHT ("hf:megatron") selects the map from one layout to the other; three or more
 * layouts select several maps, applied in order.  The name of a map's file selects it too.  The
 * texts are files named *.map in the folders of $CKPT_MAPS (separated by ':'), and those of
 * tools/share/maps, which are linked in.
 */
#ifndef TOOLS_MAPS_H
#define TOOLS_MAPS_H

#include "ckpt_extra.h"

/* The maps linked into the program; tools/embed.sh generates their source. */
typedef struct maps_text {
    const char *name; /* name of the file */
    const char *text;
} maps_text;

extern const maps_text maps_builtin[];
extern const size_t maps_n_builtin;

typedef struct cli_map_text {
    char *path; /* path of the file; for a map that is linked in, only its name */
    char *text;
    char *pair;          /* "hf:gguf" without its colon, if side points to it; else NULL */
    const char *side[2]; /* names of its layouts: left, right */
    ckpt_remap *map;     /* parsed; NULL: not yet, see maps_use */
} cli_map_text;

/* Maps, in the order in which they are tried. */
typedef struct cli_maps {
    cli_map_text *at;
    size_t n, room;
} cli_maps;

/*
 * Read the map of a path.  If `name` is not a path, read those of $CKPT_MAPS and those linked in.
 *
 * Errors   CKPT_EUSAGE: a text that is not a map; CKPT_EIO
 */
int maps_read(cli_maps *out, const char *name, ckpt_err *err);
void maps_free(cli_maps *m);

/*
 * The map, parsed; NULL: out of memory.  A map that is linked in is parsed at its first use,
 * because parsing all of them takes longer than a small conversion.
 */
ckpt_remap *maps_use(cli_map_text *t, ckpt_err *err);

/* Parse all maps, for commands that list them. */
int maps_use_all(const cli_maps *m, ckpt_err *err);

/* True if the name is a path, not a list of layouts. */
bool maps_is_path(const char *name);

/* The last part of a path, as messages name a map. */
const char *maps_base(const char *path);

/* True if the first map of a name joins slices itself (ckpt_remap_keeps_slices). */
bool maps_keep_slices(const cli_maps *maps, const char *name, bool backwards);

/*
 * True if a name is that of one map, and this map takes weights of the source in blocks
 * (ckpt_remap_keeps_blocks).
 *
 * opts     config and sizes; backwards: apply a path's map from right to left
 */
bool maps_keep_blocks(ckpt_map *map, const cli_maps *maps, const char *name,
                      const ckpt_remap_opts *opts);

/* The layout that programs for a target expect if the user names no map; NULL: any. */
const char *maps_default(const char *format, const char *path);

enum { MAPS_NAME = 256 };

/*
 * The maps that are needed from a checkpoint to a layout, found by its format or its tensor names:
 * "torch_dist:megatron:hf".  NULL: none.
 */
const char *maps_needed(char name[MAPS_NAME], ckpt_map *map, const cli_maps *maps, const char *to,
                        ckpt_remap_opts *opts);

/*
 * Find the maps that lead from one layout to another, over any others: "torch_dist:megatron:hf".
 *
 * name     empty
 */
bool maps_route(char name[MAPS_NAME], const cli_maps *maps, const char *from, const char *to);

/* True if a name of --map is that of one map's file, not a list of layouts. */
bool maps_is_file(const cli_maps *maps, const char *name);

/*
 * Apply the maps of a name, one after the other; a failure keeps those before.
 *
 * opts     config and sizes; like: becomes NULL if no map needed it; backwards: apply a path's map
 *          from right to left
 * Errors   CKPT_EUSAGE: no such map, or none for this architecture, with a list of the existing
 *          ones; those of ckpt_map_remap
 */
int maps_apply(ckpt_map *map, const cli_maps *maps, const char *name, ckpt_remap_opts *opts,
               ckpt_err *err);

#endif
