/* SPDX-License-Identifier: Apache-2.0 */
/*
 * scores.h: declares precision, recall and F1 of classes and their averages, as scikit-learn
 * computes them.
 */
#ifndef ZT_SCORES_H
#define ZT_SCORES_H

#include <stdbool.h>
#include <stddef.h>

/* Samples of a class: predicted correctly, predicted, labelled.  name NULL: it has none. */
typedef struct zt_class {
    const char *name;
    double right, predicted, support;
} zt_class;

typedef struct zt_measures {
    double precision, recall, f1;
} zt_measures;

/* Measures of one class; a quotient by zero is 0 (zero_division=0). */
zt_measures zt_measures_of(const zt_class *c);

/* Mean over n > 0 classes: of the values ("macro"), or weighted by support. */
zt_measures zt_measures_mean(const zt_class *c, size_t n, bool weighted);

/* Correct predictions as a share of all; 0 if there are none. */
double zt_measures_accuracy(const zt_class *c, size_t n);

#endif
