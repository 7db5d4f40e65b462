/* SPDX-License-Identifier: Apache-2.0 */
/*
 * format.h: the contract of a format driver: bytes <-> map, and nothing else.
 *
 * A driver never reads payload, never opens a path by itself, never prints, and knows no other driver.
 * File formats handle one file; directory formats arrange files that file formats read and write.
 */
#ifndef CKPT_FORMAT_H
#define CKPT_FORMAT_H

#include "ckpt.h"
#include "libckpt/copy/io.h"
#include "libckpt/map/map.h"

typedef struct ckpt_format {
    const char *name;   /* "torch" */
    const char *suffix; /* ".pt" */
    const char *note;   /* for the table of formats: versions, limits */
    unsigned caps;

    /* How sure the first n bytes make this driver, 0..100.  No allocation, no failure. */
    int (*probe)(const uint8_t *head, size_t n, uint64_t size);

    /*
     * Read headers: add sources, tensors with extents (names: path of keys in the tree of values, joined by '.'), values,
     * metadata, facts.  `file` is the index of io's entry in map->files.  Tensor bytes are never read.
     */
    int (*read)(ckpt_map *map, ckpt_io *io, uint32_t file, ckpt_err *err);

    /* Add a source for every record that carries a checksum (for verify); NULL: the format has none. */
    int (*records)(ckpt_map *map, ckpt_io *io, uint32_t file, ckpt_err *err);

    /*
     * Fix every offset of target file `file` from names, dtypes and shapes alone: for each tensor of `to` with .file == file, in order,
     * a source and extents (aliases: none); literals; the file's size.  map->metadata is written where the format can.
     */
    int (*place)(ckpt_map *to, uint32_t file, ckpt_err *err);

    /* After all bytes are written: sources' crc are set; add the literals that depend on them.  NULL: nothing. */
    int (*seal)(ckpt_map *to, uint32_t file, ckpt_err *err);
} ckpt_format;

/* A folder as directory drivers see it. */
typedef struct ckpt_entry {
    const char *name;
    bool is_dir;
    uint64_t size;
} ckpt_entry;

typedef struct ckpt_listing {
    const char *folder;
    const ckpt_entry *entry; /* sorted: numbers inside names by value */
    size_t n;
    const char *part; /* the file of it that the caller named (see ckpt_directory.part), or NULL */
} ckpt_listing;

typedef struct ckpt_directory {
    const char *name;
    const char *note;
    unsigned caps;
    const ckpt_dtype *dtypes; /* that a target may ask for, up to NONE; NULL: all that floats convert to */

    /* 0..100 from names alone. */
    int (*probe)(const ckpt_listing *list);

    /* Read all files' headers (with ckpt_format_read) and make one map of logical tensors. */
    int (*gather)(ckpt_map *map, const ckpt_listing *list, const ckpt_open_opts *opts, ckpt_err *err);

    /*
     * Distribute the tensors of `to` (already named, typed, in order) over files: set .file, add files and literals.
     * With CKPT_MAKES_TENSORS `to` comes without tensors: the driver makes them as its files need them.  A file that it
     * has placed itself is marked so.
     */
    int (*scatter)(ckpt_map *to, const ckpt_map *from, const ckpt_target *target, ckpt_err *err);

    /*
     * Is a file of this name a part of such a folder?  0 no; 1 yes, and the folder is meant when the caller asks for the
     * whole checkpoint; 2 yes, and it means nothing alone (an index).  NULL: no.
     */
    int (*part)(const char *file_name);
} ckpt_directory;

/* The one list of drivers (formats/table.c), NULL-terminated, most specific first. */
extern const ckpt_format *const ckpt_formats[];
extern const ckpt_directory *const ckpt_directories[];

const ckpt_format *ckpt_format_find(const char *name);
const ckpt_directory *ckpt_directory_find(const char *name);

/*
 * Read one file of any known file format into a map of its own.
 *
 * format  the driver to insist on, or NULL to choose by content
 * Errors  CKPT_EFORMAT (unknown or damaged), CKPT_EUNSAFE, CKPT_EUNSUPPORTED, CKPT_EMISSING, CKPT_EIO, CKPT_ELIMIT
 */
int ckpt_format_read(ckpt_map **out, const char *path, const ckpt_format *format, ckpt_err *err);

/* List a folder; the listing and all it points to live in the map's arena. */
int ckpt_listing_read(ckpt_listing *out, ckpt_map *map, const char *folder, ckpt_err *err);

/* Entry by name, or NULL. */
const ckpt_entry *ckpt_listing_find(const ckpt_listing *list, const char *name);

#endif
