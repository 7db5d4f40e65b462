/* SPDX-License-Identifier: Apache-2.0 */
/*
 * listing.h: lists a folder for directory drivers, with the function that reads one of its files.
 */
#ifndef CKPT_LISTING_H
#define CKPT_LISTING_H

#include "libckpt/map/map.h"

/*
 * How to read a file that is one of many with mostly identical headers: the shards of a run.
 *
 * keep     other files may be compared with this map
 * like     a map that was read with keep and outlives the new one, or NULL. If the headers are
 *          equal, the new map shares like's `values`, which must not change any more; it has
 *          sources of the same numbers in the new file, but neither tensors nor remarks
 */
typedef struct ckpt_read_beside {
    bool keep;
    const ckpt_map *like;
} ckpt_read_beside;

/* Read the headers of one file, of any known format, into a new map; beside may be NULL. */
typedef int ckpt_read_file(ckpt_map **out, const char *path, const ckpt_read_beside *beside,
                           ckpt_err *err);

typedef struct ckpt_entry {
    const char *name;
    bool is_dir;
    uint64_t size; /* size in bytes; 0 if it is not a regular file */
} ckpt_entry;

typedef struct ckpt_listing {
    const char *folder;
    const ckpt_entry *entry; /* sorted: numbers inside names by value */
    size_t n;
    /* the file in it that the caller opened (see ckpt_directory.part), or NULL */
    const char *part;
    ckpt_read_file *read; /* set before the listing goes to a driver */
    ckpt_map *map;        /* the map to read into; probes that list subfolders use it too */
} ckpt_listing;

/*
 * List a folder, of all machines if each has its own (file_locations.h); the listing lives in the
 * map's arena. A folder is listed only once for a map, even if many drivers look at it, because the
 * listing costs a system call for each of thousands of files.
 *
 * Errors  CKPT_EMISSING, CKPT_EIO, CKPT_ELIMIT
 */
int ckpt_listing_read(ckpt_listing *out, ckpt_map *map, const char *folder, ckpt_err *err);

/* The earlier listing of this folder for the map; false: there is none. */
bool ckpt_listing_known(ckpt_listing *out, ckpt_map *map, const char *folder);

/* List a folder of this machine again, without the earlier listing. */
int ckpt_listing_read_here(ckpt_listing *out, ckpt_map *map, const char *folder, ckpt_err *err);

CKPT_VEC(ckpt_entries, ckpt_entry);

/* Make a listing of sorted entries. */
int ckpt_listing_of(ckpt_listing *out, ckpt_map *map, const char *folder, ckpt_entries *all,
                    ckpt_err *err);

/* Entry by name, or NULL. */
const ckpt_entry *ckpt_listing_find(const ckpt_listing *list, const char *name);

/* True if there is an entry of this name and kind. */
bool ckpt_listing_has(const ckpt_listing *list, const char *name, bool is_dir);

/* folder/name, in the arena; NULL when memory is exhausted. */
const char *ckpt_path_join(ckpt_arena *arena, const char *folder, const char *name);

/* The last part of a path, without trailing slashes; in the arena, or NULL. */
const char *ckpt_path_base(ckpt_arena *arena, const char *path);

#endif
