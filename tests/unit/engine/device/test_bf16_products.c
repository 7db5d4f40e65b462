/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_bf16_products.c: runs the tests of blas.h as on a processor that multiplies
 * BF16.
 *
 * The functions below stand in for those of cpu_bf16.c; so the tiles, panels and sums around them
 * are tested on every processor.
 */
#include <stdlib.h>

#include "engine/device/cpu_bf16.h"
#include "engine/device/cpu_sgemm.h"
#include "libckpt/base/cast.h"
#include "tests/unit/engine/device/blas.h"

bool zt_cpu_has_bf16(void)
{
    return true;
}

static float *widen(const void *from, uint64_t rows, uint64_t width, uint64_t ld)
{
    float *to = malloc(rows * width * sizeof *to);
    for (uint64_t i = 0; to && i < rows; i++)
        ckpt_cast_find(CKPT_F32, CKPT_BF16)(to + i * width, (const uint16_t *)from + i * ld, width);
    return to;
}

/* Some widths have no product, as if oneDNN had no code for them. */
bool zt_cpu_multiply(const zt_cpu_product *p)
{
    uint64_t a_rows = p->a_transposed ? p->k : p->m, a_width = p->a_transposed ? p->m : p->k;
    uint64_t b_rows = p->b_transposed ? p->n : p->k, b_width = p->b_transposed ? p->k : p->n;
    if (p->dt != CKPT_BF16 || p->n % 3 == 1)
        return false;
    float *a = widen(p->a, a_rows, a_width, p->lda), *b = widen(p->b, b_rows, b_width, p->ldb);
    bool ok = a && b;
    if (ok)
        zt_cpu_sgemm(NULL, &(zt_sgemm){.a_transposed = p->a_transposed,
                                       .b_transposed = p->b_transposed,
                                       .m = p->m,
                                       .n = p->n,
                                       .k = p->k,
                                       .alpha = 1.0F,
                                       .beta = 1.0F,
                                       .a = a,
                                       .b = b,
                                       .c = p->c,
                                       .lda = a_width,
                                       .ldb = b_width,
                                       .ldc = p->n});
    free(a);
    free(b);
    return ok;
}

int main(void)
{
    return blas_tests();
}
