/* SPDX-License-Identifier: Apache-2.0 */
/* product.c: expresses linear maps, their gradients and matmul as matrix products. */
#include "engine/device/product.h"

#include "engine/device/arguments.h"

zt_product zt_product_linear(const zt_linear *a)
{
    return (zt_product){.b_transposed = !a->w_in_out,
                        .act = a->act,
                        .m = a->rows,
                        .n = a->out,
                        .k = a->in,
                        .lda = zt_stride(a->ldx, a->in),
                        .ldb = a->w_in_out ? a->out : a->in,
                        .ldc = zt_stride(a->ldy, a->out),
                        .alpha = 1.0F,
                        .beta = a->y_add ? 1.0F : 0.0F,
                        .a = a->x,
                        .b = a->w,
                        .bias = a->b,
                        .c = a->y,
                        .pre = a->pre};
}

zt_product zt_product_dx(const zt_linear_grad *a)
{
    return (zt_product){.b_transposed = a->w_in_out,
                        .m = a->rows,
                        .n = a->in,
                        .k = a->out,
                        .lda = zt_stride(a->lddy, a->out),
                        .ldb = a->w_in_out ? a->out : a->in,
                        .ldc = zt_stride(a->lddx, a->in),
                        .alpha = 1.0F,
                        .beta = a->dx_add ? 1.0F : 0.0F,
                        .a = a->dy,
                        .b = a->w,
                        .c = a->dx};
}

zt_product zt_product_dw(const zt_linear_grad *a)
{
    const uint64_t lddy = zt_stride(a->lddy, a->out), ldx = zt_stride(a->ldx, a->in);
    const bool flip = a->w_in_out;

    return (zt_product){.a_transposed = true,
                        .sum = a->w_add,
                        .m = flip ? a->in : a->out,
                        .n = flip ? a->out : a->in,
                        .k = a->rows,
                        .lda = flip ? ldx : lddy,
                        .ldb = flip ? lddy : ldx,
                        .ldc = flip ? a->out : a->in,
                        .alpha = 1.0F,
                        .a = flip ? a->x : a->dy,
                        .b = flip ? a->dy : a->x,
                        .c = a->dw};
}

zt_product zt_product_matmul(const zt_matmul *a)
{
    const uint64_t k = a->k != 0 ? a->k : 1; // a stride of 0 would be invalid even if rows have no
                                             // elements

    return (zt_product){.a_transposed = a->a_transposed,
                        .b_transposed = a->b_transposed,
                        .m = a->m,
                        .n = a->n,
                        .k = a->k,
                        .lda = a->a_transposed ? a->m : k,
                        .ldb = a->b_transposed ? k : a->n,
                        .ldc = a->n,
                        .alpha = a->alpha,
                        .beta = a->beta,
                        .a = a->a,
                        .b = a->b,
                        .c = a->c};
}
