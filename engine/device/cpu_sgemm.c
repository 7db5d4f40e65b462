/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cpu_sgemm.c: computes the fp32 matrix product of one thread by a library: oneDNN, or a BLAS on
 * CPUs without oneDNN.
 *
 * oneDNN is preferred because on x86-64 it takes about 15 % less time than OpenBLAS with sides of a
 * few hundred, and 30 % less with heads of attention (tests/bench/RESULTS.md).
 */
#include "engine/device/cpu_sgemm.h"

/* The case k = 0: C = beta C. */
static void gm_scale(const zt_sgemm *g)
{
    for (uint64_t i = 0; i < g->m; i++) {
        float *row = g->c + i * g->ldc;
        for (uint64_t j = 0; j < g->n; j++)
            row[j] = g->beta == 0.0F ? 0.0F : g->beta * row[j];
    }
}

#ifdef ZT_ONEDNN
#include <oneapi/dnnl/dnnl.h>

// libgomp's function, declared here because not every compiler has <omp.h>
void omp_set_num_threads(int n);

void zt_cpu_sgemm_alone(void)
{
    // per thread, as in OpenMP
    static _Thread_local bool alone;

    if (!alone) {
        omp_set_num_threads(1);
        alone = true;
    }
}

static bool gm_product(const zt_sgemm *g)
{
    zt_cpu_sgemm_alone();
    return dnnl_sgemm(g->a_transposed ? 'T' : 'N', g->b_transposed ? 'T' : 'N', (dnnl_dim_t)g->m,
                      (dnnl_dim_t)g->n, (dnnl_dim_t)g->k, g->alpha, g->a, (dnnl_dim_t)g->lda, g->b,
                      (dnnl_dim_t)g->ldb, g->beta, g->c, (dnnl_dim_t)g->ldc) == dnnl_success;
}
#else
#include <cblas.h>
#include <pthread.h>

static void gm_one_thread(void)
{
    openblas_set_num_threads(1);
}

void zt_cpu_sgemm_alone(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    (void)pthread_once(&once, gm_one_thread);
}

static bool gm_product(const zt_sgemm *g)
{
    zt_cpu_sgemm_alone();
    cblas_sgemm(CblasRowMajor, g->a_transposed ? CblasTrans : CblasNoTrans,
                g->b_transposed ? CblasTrans : CblasNoTrans, (blasint)g->m, (blasint)g->n,
                (blasint)g->k, g->alpha, g->a, (blasint)g->lda, g->b, (blasint)g->ldb, g->beta,
                g->c, (blasint)g->ldc);
    return true;
}
#endif

void zt_cpu_sgemm(zt_device *d, const zt_sgemm *g)
{
    if (g->m == 0 || g->n == 0)
        return;
    if (g->k == 0)
        gm_scale(g);
    else if (!gm_product(g))
        zt_device_fail(d, CKPT_ELIMIT, "matrix product: out of memory");
}
