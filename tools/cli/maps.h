/* SPDX-License-Identifier: Apache-2.0 */
/*
 * maps.h: layout maps by name: where the texts are, and which of them is meant.
 *
 * A name is LEFT:RIGHT, "hf:megatron", and says from which layout to which; three and more are one
 * after the other.  A file's own name means it too.  The texts are files that end in ".map" in the
 * folders of $CKPT_MAPS (separated by ':'), and those of tools/share/maps, which are linked in.
 */
#ifndef TOOLS_MAPS_H
#define TOOLS_MAPS_H

#include "ckpt.h"

/* Those linked into the program, by name; tools/embed.sh makes their source. */
typedef struct maps_text {
    const char *name; /* of the file */
    const char *text;
} maps_text;

extern const maps_text maps_builtin[];
extern const size_t maps_n_builtin;

typedef struct cli_map_text {
    char *path; /* or the file's name alone, where it is linked in */
    char *text;
    ckpt_remap *map; /* understood */
} cli_map_text;

/* Texts, in the order in which they are tried. */
typedef struct cli_maps {
    cli_map_text *at;
    size_t n;
} cli_maps;

/*
 * Read the text that a path names; where `name` is none, those of $CKPT_MAPS and those linked in.
 *
 * Errors   CKPT_EUSAGE: a text that is no map; CKPT_EIO
 */
int maps_read(cli_maps *out, const char *name, ckpt_err *err);
void maps_free(cli_maps *m);

/* True if it is a path, not a name of two layouts. */
bool maps_is_path(const char *name);

/* The last part of a path: what messages call a map. */
const char *maps_base(const char *path);

/* True if the first map that a name means joins slices itself (ckpt_remap_keeps_slices). */
bool maps_keep_slices(const cli_maps *maps, const char *name, bool backwards);

/* The layout whose names a target's programs know, where no map is named; NULL: any. */
const char *maps_default(const char *format, const char *path);

enum { MAPS_NAME = 256 };

/*
 * The maps that lead from a checkpoint to such a layout, by what its format or its names say,
 * "torch_dist:megatron:hf"; NULL: none is needed.
 */
const char *maps_needed(char name[MAPS_NAME], ckpt_map *map, const cli_maps *maps, const char *to,
                        ckpt_remap_opts *opts);

/*
 * Apply the maps that a name means, one after the other, to a map.
 *
 * opts     config and sizes; backwards: a path's map is read from right to left
 * Errors   CKPT_EUSAGE: there is no such map, or none for this architecture, naming those there
 *          are; those of ckpt_map_remap
 */
int maps_apply(ckpt_map *map, const cli_maps *maps, const char *name, ckpt_remap_opts *opts,
               ckpt_err *err);

#endif
