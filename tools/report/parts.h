/* SPDX-License-Identifier: Apache-2.0 */
/*
 * parts.h: declares how tensors are distributed over files, in compressed form: equal parts in the
 * files of a thousand ranks are one run of three numbers.
 */
#ifndef TOOLS_PARTS_H
#define TOOLS_PARTS_H

#include "ckpt.h"

typedef struct part_file {
    const char *path; /* path of the file; the text belongs to the map */
    uint64_t n_bytes; /* size of the file */
    uint64_t held;    /* bytes of tensors in it */
    bool used;        /* true: the file holds elements of a tensor */
} part_file;

typedef struct parts {
    const ckpt_map *map;
    part_file *file; /* those with tensors first, each group by name, numbers in numeric order */
    size_t n_files, n_used;
    uint32_t *of_source; /* per source of the map: its file + 1; 0: not looked up yet */
    size_t n_sources;
} parts;

/* Pass over every extent of the map once.  Errors: CKPT_ELIMIT */
int parts_make(parts *out, const ckpt_map *map, ckpt_err *err);
void parts_free(parts *p);

/*
 * A run of n flat parts, each of `count` elements (the last of a tensor may have fewer), one after
 * the other, in files `file`, file + 1 ...; or (n = 0) the box of an extent.
 */
typedef struct part_run {
    uint32_t file;
    uint64_t count, n;
    const ckpt_extent *box;
} part_run;

#define PARTS_NO_FILE UINT32_MAX /* memory, or a file that the map does not list */

/*
 * Call fn for the parts of a tensor in order, at most `most` runs; returns the number of parts left
 * out.  Not called for tied tensors.  If parts are not flat, each is a box.
 */
typedef void (*part_fn)(void *ctx, const part_run *run);
uint64_t parts_each(parts *p, const ckpt_tensor *t, uint64_t most, part_fn fn, void *ctx);

#endif
