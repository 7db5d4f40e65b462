/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mean.h: the mean of slices, element by element, as torch's sum(slices) / len(slices) computes it.
 *
 * F64 slices are summed in F64, all others in F32: 16-bit ones are widened first and rounded once,
 * at the end.  The sum begins with 0 + the first slice (so -0 becomes 0), in the order given.
 */
#ifndef CKPT_COPY_MEAN_H
#define CKPT_COPY_MEAN_H

#include "libckpt/base/dtype.h"

/* The dtype that a mean of slices of dtype d is summed in; CKPT_DTYPE_NONE: there is no mean of d.
 */
ckpt_dtype ckpt_mean_dtype(ckpt_dtype d);

/* Add n values of dtype d to sum, whose elements are of ckpt_mean_dtype(d); zeroed before the
 * first. */
void ckpt_mean_add(ckpt_dtype d, void *restrict sum, const void *restrict values, uint64_t n);

/* values = sum / n_slices, rounded to d.  sum is used up. */
void ckpt_mean_end(ckpt_dtype d, void *restrict values, void *restrict sum, uint32_t n_slices,
                   uint64_t n);

#endif
