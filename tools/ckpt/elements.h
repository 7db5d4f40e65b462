/* SPDX-License-Identifier: Apache-2.0 */
/*
 * elements.h: some elements of one tensor: found by name and range, read block by block.
 */
#ifndef TOOLS_ELEMENTS_H
#define TOOLS_ELEMENTS_H

#include "tools/cli/args.h"

typedef struct elements {
    const ckpt_map *map;
    const ckpt_tensor *t; /* the name asked for */
    ckpt_dtype dtype;     /* to read in */
    uint64_t first, count;
    bool no_crc; /* read nothing but these elements */
} elements;

/* Called for each block in order; returns false to stop. */
typedef bool (*elements_fn)(void *ctx, const elements *r, const void *buf, size_t n);

/*
 * Open a checkpoint and find a tensor: among the weights, else among optimizer state as well.
 * The caller frees *map, whatever the outcome.
 */
int elements_open(ckpt_map **map, elements *r, cli_args *a, ckpt_err *err);

/* FIRST:COUNT, either of which may be left out; NULL: everything. */
int elements_set_range(elements *r, const char *text, ckpt_err *err);

/* Read them in constant memory. */
int elements_each(const elements *r, elements_fn fn, void *ctx, ckpt_err *err);

#endif
