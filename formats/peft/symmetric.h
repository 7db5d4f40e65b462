/* SPDX-License-Identifier: Apache-2.0 */
/*
 * symmetric.h: declares the eigenvalues of a symmetric matrix.
 */
#ifndef CKPT_FORMATS_PEFT_SYMMETRIC_H
#define CKPT_FORMATS_PEFT_SYMMETRIC_H

#include <stddef.h>

/*
 * Compute all eigenvalues and eigenvectors of a symmetric matrix, by Householder's tridiagonal form
 * and implicit QR steps (Golub and Van Loan, Matrix Computations, sections 8.3.1 to 8.3.3).
 *
 * a        [n, n], destroyed
 * value    out: [n], in descending order
 * vector   out: [n, n]; row i is the unit vector of value[i]
 * work     room for 2 n values
 *
 * Time grows with n^3.  Values that are not finite give results that are not finite.
 */
void ckpt_symmetric(double *a, size_t n, double *value, double *vector, double *work);

#endif
