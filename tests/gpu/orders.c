/* SPDX-License-Identifier: Apache-2.0 */
/*
 * orders.c: prints in which order a CUDA plugin's products round, add a bias, and add old values.
 *
 *     orders PLUGIN
 *
 * A line for each kind of product gives the number of elements that each order does not explain; the
 * order with about 0 is that of the kernel.  The second device is a deterministic one: its products
 * never cut k.  The last column supposes that k is cut into halves, each rounded before they are
 * added, which engine/cuda/matmul.cu forbids.
 */
#include "orders.h"

/* The kinds of product that something is added to. */
enum { DX, DW, Y, Y_BIAS };
static const char *const names[] = {"dx added to", "dw added to", "y added to", "y added to, bias"};

/* Elements that two rounded halves of k do not explain. */
static uint64_t halves(const pair *y, const addition *s, const float *half)
{
    uint64_t differ = 0;
    for (uint64_t i = 0; i < s->rows * s->width; i++) {
        uint64_t at = i / s->width * s->ld + i % s->width;
        float c = value_at(y->dt, s->before, at);
        float b = s->bias ? value_at(y->dt, s->bias->c, i % s->width) : 0;
        float sum = round_to(y->dt, half[i]) + round_to(y->dt, s->product[i] - half[i]);
        differ += round_to(y->dt, sum + b + c) != value_at(y->dt, y->got, at);
    }
    return differ;
}

static void run(zt_device *d, int kind, ckpt_dtype dt, const uint64_t side[3], char *const at[4],
                uint64_t ld)
{
    const uint64_t m = side[0], n = side[1], k = side[2];
    if (kind == DX) {
        zt_linear_grad a = {.rows = m, .in = n, .out = k, .lddx = ld, .dx_add = true};
        a.dy = at[0];
        a.w = at[1];
        a.dx = at[3];
        d->ops->linear_grad(d, dt, &a);
    } else if (kind == DW) { // dw [out, in] = dy' x: both have k rows here
        zt_linear_grad a = {.rows = k, .in = n, .out = m, .w_in_out = false, .w_add = true};
        a.dy = at[0];
        a.x = at[1];
        a.w = at[1];
        a.dw = at[3];
        d->ops->linear_grad(d, dt, &a);
    } else {
        zt_linear a = {.rows = m, .in = k, .out = n, .ldy = ld, .w_in_out = true, .y_add = true};
        a.x = at[0];
        a.w = at[1];
        a.b = kind == Y_BIAS ? at[2] : NULL;
        a.y = at[3];
        d->ops->linear(d, dt, &a);
    }
}

/* [m, k] turned to [k, m], for dw, whose left factor is stored so. */
static pair turned(const pair *x, uint64_t m, uint64_t k)
{
    char *bytes = calloc(x->n, 4);
    for (uint64_t i = 0; i < m * k; i++)
        memcpy(bytes + (i % k * m + i / k) * size_of(x->dt), x->c + i * size_of(x->dt),
               size_of(x->dt));
    pair p = pair_from(x->dt, x->n, bytes, 0);
    free(bytes);
    return p;
}

static void one(zt_device *d, const char *which, int kind, ckpt_dtype dt, const uint64_t side[3])
{
    const uint64_t m = side[0], n = side[1], k = side[2], ld = kind == DW ? n : n + 16;
    pair x = pair_new(dt, m * k, 1, 1, 0), w = pair_new(dt, k * n, 1, 2, 0);
    pair b = pair_new(dt, n, 1, 3, 0), y = pair_new(dt, m * ld, 1, 4, 0), left = turned(&x, m, k);
    char *const at[] = {kind == DW ? left.g : x.g, w.g, b.g, y.g};
    gpu->ops->sync(gpu); // the operands are there, whichever device's stream reads them
    run(d, kind, dt, side, at, ld);
    d->ops->sync(d);
    fetch(&y);
    float *whole = product(&x, k, &w, false, side);
    float *half = product(&x, k, &w, false, (uint64_t[]){m, n, k / 2});
    addition s = {whole, m, n, ld, kind == Y_BIAS ? &b : NULL, y.c};
    printf("%-4s %-16s %4d x %4d x %4d %-13s of %6d: once %6d, product and bias first %6d, product "
           "and old first %6d, halves of k %6d\n",
           ckpt_dtype_name(dt), names[kind], (int)m, (int)n, (int)k, which, (int)(m * n),
           (int)unexplained(&y, &s, ORDER_ONCE), (int)unexplained(&y, &s, ORDER_BIAS_FIRST),
           (int)unexplained(&y, &s, ORDER_OLD_FIRST), (int)halves(&y, &s, half));
    free(whole);
    free(half);
    pair all[] = {x, w, b, y, left};
    pairs_free(all, 5);
}

int main(int argc, char **argv)
{
    static const uint64_t sides[][3] = {{64, 48, 96}, {256, 768, 768}, {16, 64, 4096}};
    ckpt_err err = {0};
    zt_device *fixed = NULL;
    int rc = begin(argc, argv);
    if (rc != 0)
        return rc;
    if (new_gpu(&fixed, 0, true, &err) != CKPT_OK) {
        fprintf(stderr, "no device: %s\n", err.text);
        return 2;
    }
    EACH(s, sides)
    {
        for (int kind = DX; kind <= Y_BIAS; kind++) {
            for (unsigned t = 1; t < 3; t++) { // BF16, F16
                one(gpu, "", kind, dtypes[t], sides[s]);
                one(fixed, "deterministic", kind, dtypes[t], sides[s]);
            }
        }
    }
    zt_device_free(fixed);
    zt_device_free(gpu);
    zt_device_free(cpu);
    return 0;
}
