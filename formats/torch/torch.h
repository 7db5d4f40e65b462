/* SPDX-License-Identifier: Apache-2.0 */
/*
 * torch.h: the interface between the readers and the writer of torch's two containers (private to
 * this folder).
 *
 *     torch.c   reads the zip container; the drivers' tables
 *     legacy.c  reads the stream of pickles and plain pickles; refuses the tar layout
 *     names.c   turns the tree of values into named tensors with extents
 *     write.c   writes the zip container
 */
#ifndef CKPT_FORMATS_TORCH_FILE_H
#define CKPT_FORMATS_TORCH_FILE_H

#include "libckpt/codec/pickle/pickle.h"
#include "libckpt/format.h"
#include "libckpt/io/io.h"

/* Archives of torch.save since 1.6 (torch.c), and the older form (legacy.c). */
extern const ckpt_format ckpt_format_torch;
extern const ckpt_format ckpt_format_torch_legacy;

/*
 * Add the tensors of a tree to the map with their extents; tied ones refer to the first.
 *
 * root    the tree; its storages are bound to sources of the map
 * swap    the file has the other byte order: set each source's unit of reversal
 * Errors  CKPT_EFORMAT, CKPT_ELIMIT, CKPT_EUNSUPPORTED
 */
int ckpt_torch_list(ckpt_map *map, ckpt_io *io, ckpt_value *root, bool swap, ckpt_err *err);

/* Add notes about a pickle: its unknown classes, and the names in it. */
int ckpt_torch_remark(ckpt_map *map, const ckpt_io *io, const ckpt_pickle *pickle, ckpt_err *err);

/*
 * Warn of values that are not tensors in the top dict of a file of weights, which a map of several
 * files does not keep.
 */
int ckpt_torch_say_others(ckpt_map *file, const char *path, ckpt_err *err);

/* A complete archive inside another file. */
typedef struct ckpt_torch_range {
    ckpt_io *io;    /* the open file */
    uint32_t file;  /* index of the file in the map */
    uint64_t at, n; /* offset and length of the archive in bytes */
} ckpt_torch_range;

/*
 * Read the object of an archive into the map's arena; its storages are bound to sources of the map.
 * No tensor is listed, and map->values does not change.
 *
 * Errors  as for a torch file; CKPT_EFORMAT: the range is not inside the file
 */
int ckpt_torch_inner(ckpt_value **root, ckpt_map *map, const ckpt_torch_range *range,
                     ckpt_err *err);

/* ckpt_format.place and .seal, implemented in write.c. */
int ckpt_torch_place(ckpt_map *to, uint32_t file, ckpt_err *err);

/*
 * Place a file with the pickle and the records of `like`, a placed file of one archive.  The
 * sources of its records have the numbers of like's plus `shift`.
 */
int ckpt_torch_place_like(ckpt_map *to, uint32_t file, uint32_t like, uint32_t shift,
                          ckpt_err *err);
int ckpt_torch_seal(ckpt_map *to, uint32_t file, uint64_t known, ckpt_err *err);

#endif
