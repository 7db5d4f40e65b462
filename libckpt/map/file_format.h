/* SPDX-License-Identifier: Apache-2.0 */
/*
 * file_format.h: defines the contract of a driver for one file (libckpt/format.h).
 */
#ifndef CKPT_MAP_FILE_FORMAT_H
#define CKPT_MAP_FILE_FORMAT_H

#include "ckpt.h"
#include "libckpt/base/io.h"

/* Both forms of a file, for the packing function. */
typedef struct ckpt_packing {
    ckpt_io *stored; /* the finished file; reads of it count as progress */
    ckpt_io *packed; /* the packed output so far, for reading back */
    int fd;          /* descriptor of the packed file */
} ckpt_packing;

/* Writes the packed form of target file `file` from p->stored. */
typedef int (*ckpt_pack_fn)(ckpt_map *to, uint32_t file, ckpt_packing *p, ckpt_err *err);

typedef struct ckpt_format {
    /* the driver's description; other code asks it instead of knowing formats */
    ckpt_format_info is;

    /*
     * How likely it is that the first n bytes belong to this format, 0..100. It neither allocates
     * nor fails.
     */
    int (*probe)(const uint8_t *head, size_t n, uint64_t size);

    /*
     * Read headers: add sources, tensors with extents (names: path of keys in the tree of values,
     * joined by '.'), values, metadata, facts. `file` is the index of io's entry in map->files.
     * Never read tensor bytes.
     */
    int (*read)(ckpt_map *map, ckpt_io *io, uint32_t file, ckpt_err *err);

    /* Add a source for every record with a checksum (for verify); NULL: the format has none. */
    int (*records)(ckpt_map *map, ckpt_io *io, uint32_t file, ckpt_err *err);

    /*
     * Fix every offset of target file `file` from names, dtypes and shapes alone: for each tensor
     * of `to` with .file == file, in order, a source and extents (aliases: none); literals; the
     * file's size.  map->metadata is written where the format can.
     */
    int (*place)(ckpt_map *to, uint32_t file, ckpt_err *err);

    /*
     * For a target of one file, before `place`: set the dtypes, order, keys and further files that
     * depend on the whole target. All tensors of `to` are still in one file. NULL: they stay
     * unchanged.
     */
    int (*scatter)(ckpt_map *to, const ckpt_map *from, const ckpt_target *target, ckpt_err *err);

    /*
     * The bytes before offset `known` of the file are final, and the crc of the sources that end
     * there are set: add the literals that depend on no others, each once. Called with ascending
     * `known`, the last time with UINT64_MAX. NULL: nothing to add.
     */
    int (*seal)(ckpt_map *to, uint32_t file, uint64_t known, ckpt_err *err);
    /* readers of the format do not need the checksums that seal writes: a crc of 0 means none */
    bool bare;

    /*
     * Write the compressed form of a finished file (commit/recompress.h); NULL: it has none
     * (CKPT_TAKES_DEFLATE is not set).
     */
    ckpt_pack_fn pack;
} ckpt_format;

#endif
