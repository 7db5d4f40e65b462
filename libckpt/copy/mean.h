/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mean.h: computes the mean of slices, element by element, as torch's sum(slices) / len(slices)
 * does.
 *
 * F64 slices are added in F64, all others in F32: 16-bit ones are widened first and rounded once,
 * at the end. The sum begins with 0 + the first slice (so that -0 becomes 0) and follows the given
 * order.
 */
#ifndef CKPT_COPY_MEAN_H
#define CKPT_COPY_MEAN_H

#include "libckpt/base/dtype.h"

/* The dtype of the sum for slices of dtype d; CKPT_DTYPE_NONE: d has no mean. */
ckpt_dtype ckpt_mean_dtype(ckpt_dtype d);

/*
 * Add n values of dtype d to sum, which has dtype ckpt_mean_dtype(d); zero it before the first
 * call.
 */
void ckpt_mean_add(ckpt_dtype d, void *restrict sum, const void *restrict values, uint64_t n);

/* values = sum / n_slices, rounded to d. It overwrites sum. */
void ckpt_mean_end(ckpt_dtype d, void *restrict values, void *restrict sum, uint32_t n_slices,
                   uint64_t n);

#endif
