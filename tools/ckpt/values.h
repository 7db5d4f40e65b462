/* SPDX-License-Identifier: Apache-2.0 */
/*
 * values.h: printing the elements of a tensor as they are read, block by block: nested text, JSON,
 * or statistics.
 */
#ifndef TOOLS_VALUES_H
#define TOOLS_VALUES_H

#include "tools/ckpt/scalar.h"
#include "tools/cli/json_out.h"

/* Nested brackets as numpy prints them, one innermost row after another, wrapped. */
typedef struct values_text {
    uint32_t ndim;
    uint64_t span[CKPT_MAX_DIM]; /* elements in the last k+1 axes */
    uint64_t n_elems, next;      /* of the whole text; index of the next element */
    unsigned column;
} values_text;

/* Start; ndim 0 prints bare elements.  An empty tensor prints its brackets only. */
void values_text_begin(values_text *v, uint32_t ndim, const uint64_t *shape, uint64_t n_elems);
void values_text_add(values_text *v, const scalar *s);

/* End the line; brackets of a text that was cut short stay open. */
void values_text_end(values_text *v);

/* One element as the next member of the array that is open; complex: [real, imaginary]. */
void values_json_add(json_out *j, const scalar *s);

/* Running statistics; NaN and infinities are counted and left out of the sums. */
typedef struct values_stats {
    uint64_t n, n_nan, n_inf, n_zero;
    double min, max, mean, m2; /* m2: sum of squared distances from the mean (Welford) */
} values_stats;

/* Take one more value in; v is zeroed at first. */
void values_stats_add(values_stats *v, double x);

/* Standard deviation of the finite elements (divided by n, as numpy does by default). */
double values_stats_std(const values_stats *v);

#endif
