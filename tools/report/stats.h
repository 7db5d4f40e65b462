/* SPDX-License-Identifier: Apache-2.0 */
/*
 * stats.h: what the values of each tensor are like: extremes, mean, norm, a histogram.  Read block
 * by block, by several threads, each of which takes one tensor after the other; so what comes out
 * does not depend on their number.
 */
#ifndef TOOLS_STATS_H
#define TOOLS_STATS_H

#include "ckpt.h"

/*
 * The histogram counts by power of two: element x, not 0, is in bin STATS_HALF + p or (negative)
 * STATS_HALF - 1 - p, where 2^(p + STATS_EXPONENT) <= |x| < twice that; smaller ones are in p = 0
 * and larger ones in p = STATS_HALF - 1.
 */
enum { STATS_HALF = 64, STATS_BINS = 2 * STATS_HALF, STATS_EXPONENT = -48 };

typedef struct tensor_stats {
    bool known;                               /* its elements are numbers, and were read */
    uint64_t n;                               /* elements */
    uint64_t n_nan, n_above, n_below, n_zero; /* NaN, +Inf, -Inf, 0 */
    double min, max, mean, std, norm;         /* of finite elements; NaN: there are none */
    unsigned first, n_bins;                   /* the bins that hold something lie among these */
    uint64_t *bin;                            /* n_bins of them */
} tensor_stats;

typedef struct stats {
    tensor_stats *at; /* of each tensor of the map; tied ones are not known */
    size_t n;
    uint64_t n_nan, n_inf; /* of all */
} stats;

/*
 * Read every tensor of a map.
 *
 * run      jobs (0: one for each processor, at most 8) and progress, in elements
 * Errors   those of ckpt_reader_read; CKPT_ELIMIT, CKPT_ECANCELED
 */
int stats_make(stats *out, const ckpt_map *map, const ckpt_run_opts *run, ckpt_err *err);
void stats_free(stats *s);

#endif
