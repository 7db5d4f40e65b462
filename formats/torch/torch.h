/* SPDX-License-Identifier: Apache-2.0 */
/*
 * torch.h: what the two torch containers, zip and legacy stream, have in common.  Not for
 * anyone else.
 *
 *     torch.c         the zip container: its records, and the driver's table
 *     legacy.c  the stream of pickles, the tar layout (refused), plain pickles
 *     names.c   from the tree of values to named tensors with extents
 *     write.c   the zip container, written
 */
#ifndef CKPT_FORMATS_TORCH_FILE_H
#define CKPT_FORMATS_TORCH_FILE_H

#include "libckpt/codec/pickle/pickle.h"
#include "libckpt/copy/io.h"
#include "libckpt/format.h"

/* Archives as torch.save writes them since 1.6 (torch.c), and the form before it (legacy.c). */
extern const ckpt_format ckpt_format_torch;
extern const ckpt_format ckpt_format_torch_legacy;

/*
 * List the tensors of a tree: adds them to the map with their extents, tied ones to the first.
 *
 * root   the tree; its storages are bound to sources of the map
 * swap   the file's byte order is not ours: every source gets its unit to reverse
 * Errors CKPT_EFORMAT, CKPT_ELIMIT, CKPT_EUNSUPPORTED
 */
int ckpt_torch_list(ckpt_map *map, ckpt_io *io, ckpt_value *root, bool swap, ckpt_err *err);

/* Add what a pickle tells about itself: classes that are unknown here, the names it mentions. */
int ckpt_torch_remark(ckpt_map *map, const ckpt_io *io, const ckpt_pickle *pickle, ckpt_err *err);

/* An archive that is stored in another file as a whole. */
typedef struct ckpt_torch_range {
    ckpt_io *io;    /* of the file */
    uint32_t file;  /* in the map's files */
    uint64_t at, n; /* bytes of the archive: offset, length */
} ckpt_torch_range;

/*
 * The object that torch.save wrote there, in the map's arena; its storages are bound to sources of
 * the map.  No tensor is listed, and the map's values stay what they are.
 *
 * Errors  as of reading a torch file; CKPT_EFORMAT: the bytes are not inside the file
 */
int ckpt_torch_inner(ckpt_value **root, ckpt_map *map, const ckpt_torch_range *range,
                     ckpt_err *err);

/* torch.c's place and seal, which live in write.c. */
int ckpt_torch_place(ckpt_map *to, uint32_t file, ckpt_err *err);

/*
 * The same for a file that has the pickle and the records of `like`, one archive that was placed:
 * the sources of its records are numbered `shift` after that one's.
 */
int ckpt_torch_place_like(ckpt_map *to, uint32_t file, uint32_t like, uint32_t shift,
                          ckpt_err *err);
int ckpt_torch_seal(ckpt_map *to, uint32_t file, uint64_t known, ckpt_err *err);

#endif
