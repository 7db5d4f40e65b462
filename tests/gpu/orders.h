/* SPDX-License-Identifier: Apache-2.0 */
/*
 * orders.h: the orders in which a product, a bias and old values are added and rounded.
 *
 * cuBLASLt 13.0 on an H100 rounds product and bias before it adds what is there (kernels for Hopper
 * that do not cut k), or product and what is there before it adds the bias (others); PyTorch, which
 * calls it too, has the same results.
 */
#ifndef GPU_TEST_ORDERS_H
#define GPU_TEST_ORDERS_H

#include "test_help.h"

/*
 * A product [rows, width] that something is added to: a bias, and what the place held before; each
 * may be NULL.  Rows of the result are ld apart.
 */
typedef struct addition {
    float *product; /* owned */
    uint64_t rows, width, ld;
    const pair *bias;
    const char *before;
} addition;

enum { ORDER_ONCE, ORDER_BIAS_FIRST, ORDER_OLD_FIRST, ORDERS };

static inline float round_to(ckpt_dtype dt, float x)
{
    char bytes[4];
    ckpt_cast_find(dt, CKPT_F32)(bytes, &x, 1);
    return value_at(dt, bytes, 0);
}

/* x[m, k] times w, which is [k, n] or, if w_transposed, [n, k]; in fp32, to be freed. */
static inline float *product(const pair *x, uint64_t ldx, const pair *w, bool w_transposed,
                             const uint64_t side[3])
{
    const uint64_t m = side[0], n = side[1], k = side[2];
    float *p = calloc(m * n + 1, sizeof *p), *a = calloc(x->n + 1, sizeof *a),
          *b = calloc(w->n + 1, sizeof *b);
    ckpt_cast_find(CKPT_F32, x->dt)(a, x->c, x->n);
    ckpt_cast_find(CKPT_F32, w->dt)(b, w->c, w->n);
    for (uint64_t i = 0; i < m * n; i++) {
        double sum = 0;
        for (uint64_t j = 0; j < k; j++)
            sum += (double)a[i / n * ldx + j] *
                   (double)b[w_transposed ? i % n * k + j : j * n + i % n];
        p[i] = (float)sum;
    }
    free(a);
    free(b);
    return p;
}

/* How many elements of y have other bits than this order of sums and roundings gives. */
static inline uint64_t unexplained(const pair *y, const addition *s, unsigned order)
{
    uint64_t differ = 0;
    for (uint64_t i = 0; i < s->rows * s->width; i++) {
        uint64_t at = i / s->width * s->ld + i % s->width;
        float p = s->product[i], b = s->bias ? value_at(y->dt, s->bias->c, i % s->width) : 0;
        float c = s->before ? value_at(y->dt, s->before, at) : 0;
        float sum = order == ORDER_ONCE         ? p + b + c
                    : order == ORDER_BIAS_FIRST ? round_to(y->dt, p + b) + c
                                                : round_to(y->dt, p + c) + b;
        differ += round_to(y->dt, sum) != value_at(y->dt, y->got, at);
    }
    return differ;
}

/*
 * As mostly_same, for a sum that may be rounded once more on its way.  One of the orders must
 * explain nearly all elements: a wrong one changes a quarter.
 */
static inline void one_order(pair *y, const addition *s)
{
    uint64_t least = UINT64_MAX, n = s->rows * s->width;
    fetch(y);
    for (unsigned order = 0; order < ORDERS; order++) {
        uint64_t differ = unexplained(y, s, order);
        least = differ < least ? differ : least;
    }
    if (y->dt != CKPT_F32 && n >= 64 && least > n / 20)
        fail("elements that no order of roundings explains", least, (double)least, 0);
}

#endif
