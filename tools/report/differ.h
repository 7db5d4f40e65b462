/* SPDX-License-Identifier: Apache-2.0 */
/*
 * differ.h: declares the comparison of two maps by tensor, arranged by layer: a row per layer, a
 * column per name within layers.
 */
#ifndef TOOLS_DIFFER_H
#define TOOLS_DIFFER_H

#include "ckpt.h"

enum {
    DIFFER_ONLY_A = 1,
    DIFFER_ONLY_B = 2,
    DIFFER_SHAPE = 4,
    DIFFER_DTYPE = 8,
    DIFFER_VALUES = 16
};

/* A name that is in either map. */
typedef struct difference {
    const char *name;     /* the text belongs to its map */
    unsigned what;        /* DIFFER_*; 0: equal */
    uint64_t n_different; /* elements */
    double max_abs;       /* the largest distance; below 0: compared by bits */
    size_t row, column;
} difference;

typedef struct differ {
    difference *at; /* A's tensors in their order, then those that only B has */
    size_t n, n_a, n_different;
    char **row, **column; /* names of layers, and names within layers */
    size_t n_rows, n_columns;
    size_t *cell; /* per row and column: index in at, + 1; 0: none */
} differ;

enum { DIFFER_LEVELS = 5, DIFFER_WORD = 24 };

/* The degree of a difference: 0 (equal) to DIFFER_LEVELS, by powers of 100 from 1e-6 to 1. */
unsigned differ_level(const difference *d);

/*
 * Format a difference: "=", "2.4e-05", "bits", "only A", "only B", "shape", "dtype"; returns buf.
 */
const char *differ_word(char buf[DIFFER_WORD], const difference *d);

/*
 * Compare two maps, streaming.
 *
 * Errors   CKPT_ECANCELED, CKPT_ELIMIT; those of ckpt_diff; a difference is not an error
 */
int differ_make(differ *out, const ckpt_map *a, const ckpt_map *b, const ckpt_run_opts *run,
                ckpt_err *err);
void differ_free(differ *d);

#endif
