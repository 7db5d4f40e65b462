/* SPDX-License-Identifier: Apache-2.0 */
/*
 * stats.h: declares statistics of each tensor's values: extremes, mean, norm, a histogram.  Several
 * threads read the tensors block by block; each tensor is read by one thread, so the result does
 * not depend on their number.
 */
#ifndef TOOLS_STATS_H
#define TOOLS_STATS_H

#include "ckpt.h"

/*
 * The histogram counts by powers of two: element x, not 0, is in bin STATS_HALF + p or (negative)
 * STATS_HALF - 1 - p, with 2^(p + STATS_EXPONENT) <= |x| < twice that.  Smaller ones are in p = 0,
 * larger ones in p = STATS_HALF - 1.
 */
enum { STATS_HALF = 64, STATS_BINS = 2 * STATS_HALF, STATS_EXPONENT = -48 };

typedef struct tensor_stats {
    bool known;                               /* its elements are numbers, and have been read */
    uint64_t n;                               /* elements */
    uint64_t n_nan, n_above, n_below, n_zero; /* NaN, +Inf, -Inf, 0 */
    double min, max, mean, std, norm;         /* finite elements only; NaN: there are none */
    unsigned first, n_bins;                   /* range of the bins that are not empty */
    uint64_t *bin;                            /* n_bins of them */
} tensor_stats;

typedef struct stats {
    tensor_stats *at; /* [tensors of the map]; not set for tied tensors */
    size_t n;
    uint64_t n_nan, n_inf; /* numbers among all elements */
} stats;

/*
 * Read every tensor of a map.
 *
 * run      jobs (0: one per CPU, at most 8) and progress, in elements
 * Errors   those of ckpt_reader_read; CKPT_ELIMIT, CKPT_ECANCELED
 */
int stats_make(stats *out, const ckpt_map *map, const ckpt_run_opts *run, ckpt_err *err);
void stats_free(stats *s);

#endif
