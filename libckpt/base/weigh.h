/* SPDX-License-Identifier: Apache-2.0 */
/*
 * weigh.h: converts floats to quantized blocks with the importance of each column, as llama.cpp
 * does with an importance matrix.
 */
#ifndef CKPT_BASE_WEIGH_H
#define CKPT_BASE_WEIGH_H

#include "libckpt/base/dtype.h"

/*
 * The importance of the columns of a tensor that is one matrix, or one after another.
 *
 * of       `columns` numbers for each matrix, finite and at least 0; NULL: none
 * rows     of each matrix
 */
typedef struct ckpt_importance {
    const float *of;
    uint64_t columns, rows;
} ckpt_importance;

/* A conversion of complete rows of a tensor, from its element `first`. */
typedef struct ckpt_weighing {
    const ckpt_importance *by;
    ckpt_dtype to, from; /* from: a float that converts to F32 */
    uint64_t first;
} ckpt_weighing;

/* True if the quantizer of this type takes an importance matrix: all do except that of Q8_0. */
bool ckpt_dtype_weighs(ckpt_dtype type);

/* Convert n elements; false: memory is exhausted. */
bool ckpt_weigh(const ckpt_weighing *how, void *restrict dst, const void *restrict src,
                uint64_t n_elems);

#endif
