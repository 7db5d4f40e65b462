/*
 * cpu_blas.h: the fp32 matrix product of one thread, for use inside workers.
 */
#ifndef ZT_DEVICE_CPU_BLAS_H
#define ZT_DEVICE_CPU_BLAS_H

#include <stdbool.h>
#include <stdint.h>

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

void zt_cpu_sgemm(const zt_sgemm *g);

/* Once per process, before any product: BLAS must not start threads of its own. */
void zt_cpu_blas_init(void);

#endif
