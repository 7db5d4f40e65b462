/* SPDX-License-Identifier: Apache-2.0 */
/*
 * truncate.h: declares the best approximation of a matrix by one of a lower rank.
 *
 * It is U S V' of the largest singular values (Eckart and Young 1936).  They are found by the block
 * Lanczos method with complete orthogonalization (Golub and Van Loan, Matrix Computations, section
 * 10.3.6): the singular vectors are those of the matrix on the space of V, X'X V, (X'X)^2 V ...,
 * which grows until the vectors' residuals say that further blocks would not change them.
 */
#ifndef CKPT_FORMATS_PEFT_TRUNCATE_H
#define CKPT_FORMATS_PEFT_TRUNCATE_H

#include "ckpt_shape.h"

typedef struct ckpt_truncation {
    const float *x; /* [rows, cols], finite */
    uint64_t rows, cols;
    uint64_t rank;    /* of the result; ranks beyond those of x are zeros */
    ckpt_dtype round; /* F16, BF16: left and right have values of this dtype; NONE: F32 */
    unsigned threads; /* at least 1; the result does not depend on it */
    float *left;      /* out: U sqrt(S), [rows, rank] */
    float *right;     /* out: sqrt(S) V', [rank, cols] */
    double norm;      /* out: the Frobenius norm of x */
    double rest;      /* out: the Frobenius norm of x - left right; not finite: out of range */
    double rounded;   /* out: the larger part of a factor's norm that rounding changed */
} ckpt_truncation;

/*
 * Compute left and right.
 *
 * Memory   beside x and the factors about (number of steps) 64 cols bytes; the steps are a few
 *          times rank / 8, and at most min(rows, cols) / 8
 * Errors   CKPT_ELIMIT: no memory, or it does not converge, which finite values do not cause
 */
int ckpt_truncate(ckpt_truncation *t, ckpt_err *err);

#endif
