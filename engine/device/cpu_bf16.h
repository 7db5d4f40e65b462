/* SPDX-License-Identifier: Apache-2.0 */
/* cpu_bf16.h: declares the matrix product of BF16 operands in one thread, for workers. */
#ifndef ZT_DEVICE_CPU_BF16_H
#define ZT_DEVICE_CPU_BF16_H

#include <stdbool.h>
#include <stdint.h>

#include "libckpt/base/dtype.h"

/*
 * C += op(A) op(B), row-major: C [m, n] dense, fp32; op(A) [m, k], op(B) [k, n] of one dtype.
 *
 * a_transposed  A is stored [k, m]; b_transposed: B is stored [n, k]
 * lda, ldb      elements from one stored row to the next
 */
typedef struct zt_cpu_product {
    ckpt_dtype dt; /* of A and B: F32, or BF16 where zt_cpu_has_bf16 */
    bool a_transposed, b_transposed;
    uint64_t m, n, k;
    const void *a, *b;
    float *c;
    uint64_t lda, ldb;
} zt_cpu_product;

/*
 * Sizes must be 1 to 2^31 - 1.  Sums are fp32; the result depends on the operands alone.  The
 * tiles of AMX read subnormal numbers as 0, and write them as 0.
 *
 * False: oneDNN has no such product here, or no memory.
 */
bool zt_cpu_multiply(const zt_cpu_product *p);

/*
 * True if matrices of BF16 are to be multiplied by AMX, which is faster than converting them to
 * fp32.  The processor must have AMX, and DNNL_MAX_CPU_ISA must not forbid it.  The first call also
 * multiplies small matrices of whole numbers as a test; a result that is not exact means false.
 */
bool zt_cpu_has_bf16(void);

#endif
