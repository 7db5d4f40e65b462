/* SPDX-License-Identifier: Apache-2.0 */
/* cpu_sgemm.h: declares the fp32 matrix product of one thread, for use inside workers. */
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
 * m or n 0: nothing happens.  k 0: C = beta C.
 */
typedef struct zt_sgemm {
    bool a_transposed, b_transposed;
    uint64_t m, n, k;
    float alpha, beta;
    const float *a, *b;
    float *c;
    uint64_t lda, ldb, ldc;
} zt_sgemm;

/* Sizes must be below 2^31.  The result depends on the operands alone.  A signal handler must run
 * on a stack of its own (sigaltstack), because the library uses the stack pointer for other
 * purposes while it computes: a handler on the same stack overwrites memory.  Errors: ELIMIT (out
 * of memory), kept in the device. */
void zt_cpu_sgemm(zt_device *d, const zt_sgemm *g);

/* Let the library compute in the calling thread alone, because the pool's workers already share the
 * work. */
void zt_cpu_sgemm_alone(void);

#endif
