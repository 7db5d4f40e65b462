/* SPDX-License-Identifier: Apache-2.0 */
/* elements.h: declares a range of elements of one tensor, read block by block. */
#ifndef TOOLS_ELEMENTS_H
#define TOOLS_ELEMENTS_H

#include "tools/cli/args.h"

typedef struct elements {
    const ckpt_map *map;
    const ckpt_tensor *t; /* the requested tensor */
    ckpt_dtype dtype;     /* dtype of the elements in buf */
    uint64_t first, count;
    bool no_crc; /* read no bytes except these elements */
} elements;

/* Callback for each block, in order; returns false to stop. */
typedef bool (*elements_fn)(void *ctx, const elements *r, const void *buf, size_t n);

/*
 * Open a checkpoint and find a tensor: first among the weights, then in the optimizer state.  The
 * caller frees *map, even after a failure.
 */
int elements_open(ckpt_map **map, elements *r, cli_args *a, ckpt_err *err);

/* Parse FIRST:COUNT, either of which may be missing; NULL: all elements. */
int elements_set_range(elements *r, const char *text, ckpt_err *err);

/* Read the elements in constant memory. */
int elements_each(const elements *r, elements_fn fn, void *ctx, ckpt_err *err);

#endif
