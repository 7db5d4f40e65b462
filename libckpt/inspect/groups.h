/* SPDX-License-Identifier: Apache-2.0 */
/*
 * groups.h: declares sums over the elements of compared tensors, by groups of names that differ
 * only in numbers of layers.
 */
#ifndef CKPT_INSPECT_GROUPS_H
#define CKPT_INSPECT_GROUPS_H

#include "ckpt.h"
#include "libckpt/base/index.h"
#include "libckpt/base/vec.h"

/* A sum of doubles, and the part that rounding has lost (Neumaier). */
typedef struct ckpt_sum {
    double sum, lost;
} ckpt_sum;

/* Sums over elements a and b. Elements that are NaN or infinite are counted, and not summed. */
typedef struct ckpt_sums {
    uint64_t n_nan_a, n_nan_b, n_inf_a, n_inf_b;
    uint64_t n_all, n;       /* all elements, and those in the sums */
    ckpt_sum aa, bb, ab, dd; /* of a * a, b * b, a * b, (a - b) * (a - b) */
    double max_abs;          /* the largest |a - b| */
} ckpt_sums;

/* Add n elements. The result depends on the order of the calls. */
void ckpt_sums_add(ckpt_sums *s, const double *a, const double *b, size_t n);

/* A group and its sums. */
typedef struct ckpt_group_sums {
    ckpt_diff_group group;
    ckpt_sums sums;
    char *name; /* owned */
} ckpt_group_sums;

CKPT_VEC(ckpt_group_list, ckpt_group_sums);

typedef struct ckpt_diff_groups {
    ckpt_group_list list;
    ckpt_index index;
} ckpt_diff_groups;

/*
 * Add a compared tensor to its group.
 *
 * Errors  CKPT_ELIMIT
 */
int ckpt_diff_groups_add(ckpt_diff_groups *g, const ckpt_difference *d, const ckpt_sums *sums,
                         ckpt_err *err);

/*
 * Call fn for each group, in the order of their first tensors.
 *
 * Errors  CKPT_ECANCELED: fn returned a non-zero value
 */
int ckpt_diff_groups_tell(ckpt_diff_groups *g, ckpt_diff_group_fn fn, void *ctx, ckpt_err *err);

/* Free the groups' names and the list. */
void ckpt_diff_groups_free(ckpt_diff_groups *g);

#endif
