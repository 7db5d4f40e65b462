/* SPDX-License-Identifier: Apache-2.0 */
/*
 * format.h: the contract of a format driver: bytes <-> map, and nothing else.
 *
 * A driver never reads payload, never opens a path by itself, never prints, and knows no other
 * driver.  It calls nothing of those who call it: what reads a file of a folder is handed to it
 * (ckpt_listing.read).  File formats handle one file; directory formats arrange files that file
 * formats read and write.
 */
#ifndef CKPT_FORMAT_H
#define CKPT_FORMAT_H

#include "ckpt.h"
#include "libckpt/copy/io.h"
#include "libckpt/copy/listing.h"
#include "libckpt/copy/pack.h"
#include "libckpt/map/map.h"

typedef struct ckpt_format {
    ckpt_format_info is; /* what it says of itself, which all others ask instead of knowing it */

    /* How sure the first n bytes make this driver, 0..100.  No allocation, no failure. */
    int (*probe)(const uint8_t *head, size_t n, uint64_t size);

    /*
     * Read headers: add sources, tensors with extents (names: path of keys in the tree of values,
     * joined by '.'), values, metadata, facts.  `file` is the index of io's entry in map->files.
     * Tensor bytes are never read.
     */
    int (*read)(ckpt_map *map, ckpt_io *io, uint32_t file, ckpt_err *err);

    /*
     * Add a source for every record that carries a checksum (for verify); NULL: the format has
     * none.
     */
    int (*records)(ckpt_map *map, ckpt_io *io, uint32_t file, ckpt_err *err);

    /*
     * Fix every offset of target file `file` from names, dtypes and shapes alone: for each tensor
     * of `to` with .file == file, in order, a source and extents (aliases: none); literals; the
     * file's size.  map->metadata is written where the format can.
     */
    int (*place)(ckpt_map *to, uint32_t file, ckpt_err *err);

    /*
     * Written alone, before `place`: dtypes, order, keys and further files that follow from the
     * whole.  All tensors of `to` are in one file so far.  NULL: they stay as they are.
     */
    int (*scatter)(ckpt_map *to, const ckpt_map *from, const ckpt_target *target, ckpt_err *err);

    /*
     * The bytes before offset `known` of the file are what they will be, and the crc of the sources
     * that end there are set: add the literals that depend on no others, each once.  Called with
     * ascending `known`, the last time with UINT64_MAX.  NULL: nothing.
     */
    int (*seal)(ckpt_map *to, uint32_t file, uint64_t known, ckpt_err *err);
    /* its readers do without what seal writes of checksums: a crc of 0 stands for none */
    bool bare;

    /*
     * Write the compressed form of a finished file (copy/pack.h); NULL: it has none
     * (CKPT_TAKES_DEFLATE is not set).
     */
    ckpt_pack_fn pack;
} ckpt_format;

/* A name in a run's folder, with its terminator. */
#define CKPT_RUN_NAME 256

/*
 * How a run keeps several checkpoints, for who judges them all: each in a folder of the run's, and
 * a small file that names the one to go on from.
 */
typedef struct ckpt_run_layout {
    bool (*is_tag)(const ckpt_listing *list); /* a folder is one checkpoint, whole or not */
    const char *pointer; /* name of the file; "": there is none, the newest finished is meant */
    bool (*is_done)(const ckpt_listing *list); /* without a pointer: its save has finished */
    /* with a pointer, of whose name there are others: a folder is such a run; NULL: the driver's
     * probe says so */
    bool (*is_run)(const ckpt_listing *list);
    bool several; /* a checkpoint is a folder of folders, one for each model */
    /*
     * the folder that a text of the file means (NULL without a pointer), and the text for a folder,
     * its number; false: there is none
     */
    bool (*folder)(char out[CKPT_RUN_NAME], const char *text);
    bool (*text)(char out[CKPT_RUN_NAME], const char *folder);
} ckpt_run_layout;

typedef struct ckpt_directory {
    ckpt_format_info is; /* the same; CKPT_IS_FOLDER is set */

    /* 0..100 from names alone. */
    int (*probe)(const ckpt_listing *list);

    /* Read all files' headers (with list->read) and make one map of logical tensors. */
    int (*gather)(ckpt_map *map, const ckpt_listing *list, const ckpt_open_opts *opts,
                  ckpt_err *err);

    /*
     * Distribute the tensors of `to` (already named, typed, in order) over files: set .file, add
     * files and literals.  With CKPT_MAKES_TENSORS `to` comes without tensors: the driver makes
     * them as its files need them.  A file that it has placed itself is marked so.
     */
    int (*scatter)(ckpt_map *to, const ckpt_map *from, const ckpt_target *target, ckpt_err *err);

    /*
     * Is a file of this name a part of such a folder?  0 no; 1 yes, and the folder is meant when
     * the caller asks for the whole checkpoint; 2 yes, and it means nothing alone (an index).
     * NULL: no.
     */
    int (*part)(const char *file_name);

    /*
     * Does a single file with these values (or NULL) hold a run, which this driver reads when the
     * caller wants one?  NULL: no.
     */
    bool (*holds)(const ckpt_value *values);

    /* of runs, by the pointers that they may have, NULL after the last; NULL: none, or DeepSpeed's
     * `latest` and its shards */
    const ckpt_run_layout *const *runs;
} ckpt_directory;

#endif
