/* SPDX-License-Identifier: Apache-2.0 */
/*
 * scores.c: computes precision, recall and F1 of classes, and their averages.
 *
 * Formulas and the order of operations are those of scikit-learn 1.9
 * (precision_recall_fscore_support) and numpy's sums, so that printed digits are equal even where
 * they are rounded from a tie.
 */
#include <assert.h>

#include "engine/scores.h"

/* Which number of a class a sum adds. */
typedef enum prf_part { PRF_PRECISION, PRF_RECALL, PRF_F1, PRF_SUPPORT } prf_part;

typedef struct prf_list {
    const zt_class *c;
    prf_part part;
    bool weighted;
} prf_list;

static double prf_ratio(double a, double b)
{
    return b > 0 ? a / b : 0;
}

zt_measures zt_measures_of(const zt_class *c)
{
    return (zt_measures){.precision = prf_ratio(c->right, c->predicted),
                         .recall = prf_ratio(c->right, c->support),
                         .f1 = prf_ratio(2 * c->right, c->support + c->predicted)};
}

static double prf_value(const prf_list *l, size_t i)
{
    const zt_measures m = zt_measures_of(&l->c[i]);
    const double v = l->part == PRF_PRECISION ? m.precision
                     : l->part == PRF_RECALL  ? m.recall
                     : l->part == PRF_F1      ? m.f1
                                              : l->c[i].support;

    return l->weighted ? v * l->c[i].support : v;
}

/* Sum of n values from `first`, in the order of numpy's pairwise sum. */
static double prf_sum(const prf_list *l, size_t first, size_t n)
{
    enum { PRF_BLOCK = 128, PRF_LANES = 8 };
    double r[PRF_LANES], sum = 0;
    size_t i = 0, half;

    if (n > PRF_BLOCK) {
        half = n / 2 - n / 2 % PRF_LANES;
        return prf_sum(l, first, half) + prf_sum(l, first + half, n - half);
    }
    if (n >= PRF_LANES) {
        for (; i < PRF_LANES; i++)
            r[i] = prf_value(l, first + i);
        for (; i < n - n % PRF_LANES; i++)
            r[i % PRF_LANES] += prf_value(l, first + i);
        sum = ((r[0] + r[1]) + (r[2] + r[3])) + ((r[4] + r[5]) + (r[6] + r[7]));
    }
    for (; i < n; i++)
        sum += prf_value(l, first + i);
    return sum;
}

static double prf_mean(const zt_class *c, size_t n, prf_part part, bool weighted)
{
    const prf_list values = {c, part, weighted}, weights = {c, PRF_SUPPORT, false};

    return prf_ratio(prf_sum(&values, 0, n), weighted ? prf_sum(&weights, 0, n) : (double)n);
}

zt_measures zt_measures_mean(const zt_class *c, size_t n, bool weighted)
{
    assert(c || n == 0);
    assert(n > 0);
    return (zt_measures){.precision = prf_mean(c, n, PRF_PRECISION, weighted),
                         .recall = prf_mean(c, n, PRF_RECALL, weighted),
                         .f1 = prf_mean(c, n, PRF_F1, weighted)};
}

double zt_measures_accuracy(const zt_class *c, size_t n)
{
    double right = 0, support = 0;

    for (size_t i = 0; i < n; i++) {
        right += c[i].right;
        support += c[i].support;
    }
    return prf_ratio(right, support);
}
