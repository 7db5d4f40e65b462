/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mean.c: computes means of slices.
 */
#include <assert.h>

#include "libckpt/copy/mean.h"

#include "libckpt/base/cast.h"

/* Elements that are widened at a time, so that they stay in the first-level cache. */
enum { MEAN_CHUNK = 1024 };

ckpt_dtype ckpt_mean_dtype(ckpt_dtype d)
{
    if (d == CKPT_F64)
        return CKPT_F64;
    return d == CKPT_F32 || d == CKPT_F16 || d == CKPT_BF16 ? CKPT_F32 : CKPT_DTYPE_NONE;
}

static void mean_add_f64(double *restrict sum, const double *restrict x, uint64_t n)
{
    for (uint64_t i = 0; i < n; i++)
        sum[i] += x[i];
}

static void mean_add_f32(float *restrict sum, const float *restrict x, uint64_t n)
{
    for (uint64_t i = 0; i < n; i++)
        sum[i] += x[i];
}

void ckpt_mean_add(ckpt_dtype d, void *restrict sum, const void *restrict values, uint64_t n)
{
    assert(ckpt_mean_dtype(d) != CKPT_DTYPE_NONE);
    assert((sum && values) || n == 0);
    ckpt_cast_fn widen = ckpt_cast_find(CKPT_F32, d);
    const uint8_t *from = values;
    float *to = sum, wide[MEAN_CHUNK];

    if (d == CKPT_F64) {
        mean_add_f64(sum, values, n);
        return;
    }
    if (d == CKPT_F32) {
        mean_add_f32(sum, values, n);
        return;
    }
    for (uint64_t i = 0; i < n; i += MEAN_CHUNK) {
        uint64_t some = n - i < MEAN_CHUNK ? n - i : MEAN_CHUNK;

        widen(wide, from + i * 2, (size_t)some);
        mean_add_f32(to + i, wide, some);
    }
}

void ckpt_mean_end(ckpt_dtype d, void *restrict values, void *restrict sum, uint32_t n_slices,
                   uint64_t n)
{
    assert(ckpt_mean_dtype(d) != CKPT_DTYPE_NONE && n_slices > 0);
    assert((sum && values) || n == 0);
    double *wide = sum;
    float *narrow = sum;

    // Divide instead of multiplying by a reciprocal, because torch divides.
    if (d == CKPT_F64) {
        for (uint64_t i = 0; i < n; i++)
            wide[i] /= n_slices;
    } else {
        for (uint64_t i = 0; i < n; i++)
            narrow[i] /= (float)n_slices;
    }
    ckpt_cast_find(d, ckpt_mean_dtype(d))(values, sum, (size_t)n);
}
