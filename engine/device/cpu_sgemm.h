/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cpu_sgemm.h: the fp32 matrix product of one thread, for use inside workers.
 */
#ifndef ZT_DEVICE_CPU_SGEMM_H
#define ZT_DEVICE_CPU_SGEMM_H

#include <stdbool.h>
#include <stdint.h>

#include "engine/device/device.h"

/*
 * C = alpha op(A) op(B) + beta C, row-major: C [m, n], op(A) [m, k], op(B) [k, n].
 *
 * a_transposed  A is stored [k, m]; b_transposed: B is stored [n, k]
 * lda,ldb,ldc   elements from one stored row to the next
 * beta 0        C is not read
 * Any of m, n 0: nothing happens.  k 0: C = beta C.
 */
typedef struct zt_sgemm {
    bool a_transposed, b_transposed;
    uint64_t m, n, k;
    float alpha, beta;
    const float *a, *b;
    float *c;
    uint64_t lda, ldb, ldc;
} zt_sgemm;

/* Sides are below 2^31.  The result depends on nothing but the operands.
 * A signal's handler must run on a stack of its own (sigaltstack): the library's code uses the
 * stack pointer for other things while it computes, and a handler beside it overwrites memory.
 * Errors: ELIMIT (out of
 * memory), kept by the device. */
void zt_cpu_sgemm(zt_device *d, const zt_sgemm *g);

#endif
