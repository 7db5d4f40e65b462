/* SPDX-License-Identifier: Apache-2.0 */
/*
 * product.c: multiplies rows by matrices for the updates of adapters, and rounds them.
 */
#include <assert.h>
#include <math.h>

#include "formats/peft/product.h"
#include "libckpt/base/cast.h"

/*
 * The body: acc[0..n-1] += the sum over k of left[k] * right[k][0..n-1]; `by` is the stride of
 * right's rows.  The order is that of torch's products on a processor: one fused step for each k.
 */
#define PP_PRODUCT                                                                                 \
    uint64_t k = 0;                                                                                \
    for (; k + 4 <= rank; k += 4, right += 4 * by) {                                               \
        const float a = left[k], b = left[k + 1], c = left[k + 2], d = left[k + 3];                \
        const float *p = right, *q = p + by, *r = q + by, *s = r + by;                             \
        for (uint64_t j = 0; j < n; j++)                                                           \
            acc[j] = fmaf(d, s[j], fmaf(c, r[j], fmaf(b, q[j], fmaf(a, p[j], acc[j]))));           \
    }                                                                                              \
    for (; k < rank; k++, right += by) {                                                           \
        for (uint64_t j = 0; j < n; j++)                                                           \
            acc[j] = fmaf(left[k], right[j], acc[j]);                                              \
    }

/* Where the processor has no such instruction, the C library computes the same bits, slowly. */
static void pp_product_portable(float *restrict acc, const float *restrict left,
                                const float *restrict right, uint64_t by, uint64_t rank, uint64_t n)
{
    PP_PRODUCT
}

#if defined(__x86_64__)
__attribute__((target("avx2,fma"))) static void
pp_product_avx2(float *restrict acc, const float *restrict left, const float *restrict right,
                uint64_t by, uint64_t rank, uint64_t n)
{
    PP_PRODUCT
}
#endif

void ckpt_peft_product(float *acc, const float *left, const float *right, uint64_t by,
                       uint64_t rank, uint64_t n)
{
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
        pp_product_avx2(acc, left, right, by, rank, n);
        return;
    }
#endif
    pp_product_portable(acc, left, right, by, rank, n);
}

void ckpt_peft_round(ckpt_dtype dtype, float *x, uint64_t n)
{
    uint16_t narrow[CKPT_PEFT_TILE];

    if (dtype == CKPT_DTYPE_NONE)
        return;
    for (uint64_t i = 0; i < n; i += CKPT_PEFT_TILE) {
        uint64_t some = n - i < CKPT_PEFT_TILE ? n - i : CKPT_PEFT_TILE;

        ckpt_cast_find(dtype, CKPT_F32)(narrow, x + i, (size_t)some);
        ckpt_cast_find(CKPT_F32, dtype)(x + i, narrow, (size_t)some);
    }
}
