/* SPDX-License-Identifier: Apache-2.0 */
/*
 * listing.h: a folder as directory drivers see it: its names, and what reads one of its files.
 */
#ifndef CKPT_LISTING_H
#define CKPT_LISTING_H

#include "libckpt/map/map.h"

/*
 * How a file is read that is one of many, whose headers are mostly equal byte for byte: the shards
 * of a run.
 *
 * keep  the map is one that others may be like
 * like  a map that was read with keep and outlives the new one, or NULL.  Where the headers are
 *       equal, the new map's `values` are like's own, which no one may change any more; the bytes
 *       that they need are found in the new file, as sources of the same numbers, but neither
 *       tensors nor remarks are listed once more
 */
typedef struct ckpt_read_beside {
    bool keep;
    const ckpt_map *like;
} ckpt_read_beside;

/* Read the headers of one file, of any known format, into a map of its own; beside may be NULL. */
typedef int ckpt_read_file(ckpt_map **out, const char *path, const ckpt_read_beside *beside,
                           ckpt_err *err);

typedef struct ckpt_entry {
    const char *name;
    bool is_dir;
    uint64_t size; /* bytes; 0 of what is no regular file */
} ckpt_entry;

typedef struct ckpt_listing {
    const char *folder;
    const ckpt_entry *entry; /* sorted: numbers inside names by value */
    size_t n;
    /* the file of it that the caller named (see ckpt_directory.part), or NULL */
    const char *part;
    ckpt_read_file *read; /* set by who hands the listing to a driver */
    ckpt_map *map;        /* that it was made for: probes list what is below for it, too */
} ckpt_listing;

/*
 * List a folder, of all machines if it is each one's own (places.h); the listing and all it points
 * to live in the map's arena.  For one map a folder is asked for once, however many drivers look
 * at it: it costs a question for each of thousands of files.
 *
 * Errors  CKPT_EMISSING, CKPT_EIO, CKPT_ELIMIT
 */
int ckpt_listing_read(ckpt_listing *out, ckpt_map *map, const char *folder, ckpt_err *err);

/* What was listed for the map before; false: this folder was not. */
bool ckpt_listing_known(ckpt_listing *out, ckpt_map *map, const char *folder);

/* List a folder of this machine, whatever was listed before. */
int ckpt_listing_read_here(ckpt_listing *out, ckpt_map *map, const char *folder, ckpt_err *err);

CKPT_VEC(ckpt_entries, ckpt_entry);

/* A listing of these entries, which are sorted. */
int ckpt_listing_of(ckpt_listing *out, ckpt_map *map, const char *folder, ckpt_entries *all,
                    ckpt_err *err);

/* Entry by name, or NULL. */
const ckpt_entry *ckpt_listing_find(const ckpt_listing *list, const char *name);

/* True if there is an entry of this name and kind. */
bool ckpt_listing_has(const ckpt_listing *list, const char *name, bool is_dir);

/* folder/name, in the arena; NULL when memory is exhausted. */
const char *ckpt_path_join(ckpt_arena *arena, const char *folder, const char *name);

/* The last part of a path, without slashes at its end; in the arena, or NULL. */
const char *ckpt_path_base(ckpt_arena *arena, const char *path);

#endif
