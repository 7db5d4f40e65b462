/* SPDX-License-Identifier: Apache-2.0 */
/*
 * parts.h: which file holds which part of which tensor, told shortly: a tensor that a thousand
 * ranks hold alike is one run of three numbers.
 */
#ifndef TOOLS_PARTS_H
#define TOOLS_PARTS_H

#include "ckpt.h"

typedef struct part_file {
    const char *path; /* the map's */
    uint64_t n_bytes; /* of the file */
    uint64_t held;    /* bytes of tensors in it */
    bool used;        /* it holds some tensor's elements */
} part_file;

typedef struct parts {
    const ckpt_map *map;
    part_file *file; /* those that hold tensors first, each by its name, numbers as numbers */
    size_t n_files, n_used;
    uint32_t *of_source; /* file of a source of the map, + 1; 0: not asked yet */
    size_t n_sources;
} parts;

/* Look at every extent of the map once.  Errors: CKPT_ELIMIT */
int parts_make(parts *out, const ckpt_map *map, ckpt_err *err);
void parts_free(parts *p);

/*
 * A run of flat parts: n of them, each of `count` elements (the last of a tensor may have fewer),
 * one after the other, in files `file`, file + 1 ...; or (n = 0) the box of an extent.
 */
typedef struct part_run {
    uint32_t file;
    uint64_t count, n;
    const ckpt_extent *box;
} part_run;

#define PARTS_NO_FILE UINT32_MAX /* memory, or a file that the map does not list */

/*
 * Tell the parts of a tensor, in their order, at most `most` runs; returns how many were left out.
 * Nothing is told of a tied tensor.  If the parts are not flat, each is told as a box.
 */
typedef void (*part_fn)(void *ctx, const part_run *run);
uint64_t parts_each(parts *p, const ckpt_tensor *t, uint64_t most, part_fn fn, void *ctx);

#endif
