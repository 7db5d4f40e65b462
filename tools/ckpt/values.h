/* SPDX-License-Identifier: Apache-2.0 */
/*
 * values.h: declares printing the elements of a tensor block by block: nested text, JSON, or
 * statistics.
 */
#ifndef TOOLS_VALUES_H
#define TOOLS_VALUES_H

#include "tools/ckpt/scalar.h"
#include "tools/cli/json_out.h"

/* Nested brackets as in numpy, one innermost row after another, wrapped. */
typedef struct values_text {
    uint32_t ndim;
    uint64_t span[CKPT_MAX_DIM]; /* elements in the last k+1 axes */
    uint64_t n_elems, next;      /* elements of the whole text; index of the next one */
    unsigned column;
} values_text;

/* Begin a text; ndim 0 prints bare elements.  An empty tensor prints only its brackets. */
void values_text_begin(values_text *v, uint32_t ndim, const uint64_t *shape, uint64_t n_elems);
void values_text_add(values_text *v, const scalar *s);

/* End the line; brackets of a truncated text stay open. */
void values_text_end(values_text *v);

/* Add an element to the open array; complex: [real, imaginary]. */
void values_json_add(json_out *j, const scalar *s);

/* Running statistics.  NaN and infinities are counted but excluded from the sums. */
typedef struct values_stats {
    uint64_t n, n_nan, n_inf, n_zero;
    double min, max, mean, m2; /* m2: sum of squared distances from the mean (Welford) */
} values_stats;

/* Add a value; v must be zeroed before the first one. */
void values_stats_add(values_stats *v, double x);

/* Standard deviation of the finite elements (divided by n, numpy's default). */
double values_stats_std(const values_stats *v);

#endif
