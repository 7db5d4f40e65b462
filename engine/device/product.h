/* SPDX-License-Identifier: Apache-2.0 */
/*
 * product.h: declares linear maps, their gradients and matmul as matrix products, for the devices.
 */
#ifndef ZT_DEVICE_PRODUCT_H
#define ZT_DEVICE_PRODUCT_H

#include "engine/device/device.h"

/* C [m, n] = act(alpha A B + beta C + bias), row-major: A [m, k], B [k, n], or their transposes. */
typedef struct zt_product {
    bool a_transposed, b_transposed;
    bool sum; /* round the product, then add it to C (beta is 0) */
    zt_act act;
    uint64_t m, n, k, lda, ldb, ldc;
    float alpha, beta;
    const void *a, *b, *bias;
    void *c, *pre; /* pre: dense, the input of act; NULL: not stored */
} zt_product;

/* Express y = act(x w' + bias), or a matmul, as a product. */
zt_product zt_product_linear(const zt_linear *a);
zt_product zt_product_matmul(const zt_matmul *a);

/* dx = dy w; dw = dy' x, or its transpose x' dy. */
zt_product zt_product_dx(const zt_linear_grad *a);
zt_product zt_product_dw(const zt_linear_grad *a);

#endif
