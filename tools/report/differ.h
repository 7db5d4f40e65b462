/* SPDX-License-Identifier: Apache-2.0 */
/*
 * differ.h: two maps compared tensor by tensor, and set out by layer: a row for each layer, a
 * column for each name within layers.
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

/* One name of either map. */
typedef struct difference {
    const char *name;     /* its map's */
    unsigned what;        /* DIFFER_*; 0: equal */
    uint64_t n_different; /* elements */
    double max_abs;       /* the largest distance; below 0: compared by bits */
    size_t row, column;
} difference;

typedef struct differ {
    difference *at; /* of each tensor of A in its order, then of those that only B has */
    size_t n, n_a, n_different;
    char **row, **column; /* names of layers, and of what is in them */
    size_t n_rows, n_columns;
    size_t *cell; /* of each row its columns: index in at, + 1; 0: there is none */
} differ;

enum { DIFFER_LEVELS = 5, DIFFER_WORD = 24 };

/* How far values are apart: 0 (not at all) to DIFFER_LEVELS, by powers of 100 from 1e-6 to 1. */
unsigned differ_level(const difference *d);

/* "=", "2.4e-05", "bits", "only A", "only B", "shape", "dtype"; buf is returned. */
const char *differ_word(char buf[DIFFER_WORD], const difference *d);

/*
 * Compare two maps, streaming.
 *
 * Errors   CKPT_ECANCELED, CKPT_ELIMIT; those of ckpt_diff, but that they differ is none
 */
int differ_make(differ *out, const ckpt_map *a, const ckpt_map *b, const ckpt_run_opts *run,
                ckpt_err *err);
void differ_free(differ *d);

#endif
