/* SPDX-License-Identifier: Apache-2.0 */
/*
 * blas.h: the tests of linear maps, their gradients and matrix products of the CPU device against
 * double precision, with the products of this processor and with stand-ins.
 */
#ifndef TESTS_UNIT_ENGINE_DEVICE_BLAS_H
#define TESTS_UNIT_ENGINE_DEVICE_BLAS_H

#include "tests/unit/engine/device/help.h"
#include "tests/unit/unit.h"

typedef struct shape {
    uint64_t rows, in, out, pad; /* pad: what strides are longer than dense */
} shape;

static const shape shapes[] = {{1, 1, 1, 0},     {3, 5, 7, 0},       {17, 33, 65, 3},
                               {64, 48, 96, 8},  {9, 700, 2, 1},     {130, 31, 900, 5},
                               {5, 1100, 33, 0}, {801, 40, 1601, 0}, {48, 4200, 48, 4}};

static const zt_act acts[] = {ZT_ACT_NONE, ZT_GELU, ZT_GELU_TANH, ZT_RELU, ZT_TANH, ZT_SILU};

/* Noise of an fp32 sum of k products of values up to `size`. */
static double noise(uint64_t k, double size)
{
    return 0x1p-23 * (4 * sqrt((double)k) + 0.3 * (double)k) * size;
}

static double weight(const zt_linear *a, const dh_tensor *w, uint64_t in, uint64_t out)
{
    return (double)w->v[a->w_in_out ? in * a->out + out : out * a->in + in];
}

/* Check a few of the outputs (all of small ones). */
static void check_linear(const zt_linear *a, const dh_tensor *t)
{
    const dh_tensor *x = &t[0], *w = &t[1], *b = &t[2], *y = &t[3], *pre = &t[4];
    uint64_t total = a->rows * a->out, step = total / 3000 + 1;
    dh_bound bound = {1.01, noise(a->in, 1) * 1.2};
    for (uint64_t e = 0; e < total; e += step) {
        uint64_t i = e / a->out, o = e % a->out;
        double s = a->b ? (double)b->v[o] : 0;
        s += a->y_add ? (double)y->v[i * a->ldy + o] : 0;
        for (uint64_t k = 0; k < a->in; k++)
            s += (double)x->v[i * a->ldx + k] * weight(a, w, k, o);
        if (a->act == ZT_ACT_NONE) {
            dh_near(y, i * a->ldy + o, s, bound);
            continue;
        }
        dh_near(pre, e, s, bound);
        float kept = 0; // the activation is computed from the rounded value
        ckpt_cast_find(CKPT_F32, pre->dt)(&kept, (const char *)pre->p + e * dh_size(pre->dt), 1);
        dh_near(y, i * a->ldy + o, dh_act(a->act, (double)kept), (dh_bound){1.01, 4e-7});
    }
    for (uint64_t i = 0; i < a->rows; i++) { // what lies between rows is not touched
        for (uint64_t o = a->out; o < a->ldy; o++) {
            dh_near(y, i * a->ldy + o, (double)y->v[i * a->ldy + o], (dh_bound){0, 0});
        }
    }
}

static void try_linear(const shape *s, ckpt_dtype dt, unsigned flags)
{
    void *first_y = NULL, *first_pre = NULL;
    for (unsigned threads = 1; threads <= 3; threads++) {
        zt_linear a = {.rows = s->rows, .in = s->in, .out = s->out};
        a.ldx = s->in + s->pad;
        a.ldy = s->out + s->pad;
        dh_tensor t[] = {dh_new(dt, s->rows * a.ldx, 1, 1), dh_new(dt, s->in * s->out, 1, 2),
                         dh_new(dt, s->out, 1, 3), dh_new(dt, s->rows * a.ldy, 1, 4),
                         dh_new(dt, s->rows * s->out, 1, 5)};
        a.w_in_out = flags & 1;
        a.act = acts[flags / 4 % 6];
        a.y_add = a.act == ZT_ACT_NONE && flags & 8;
        a.x = t[0].p;
        a.w = t[1].p;
        a.b = flags & 2 ? t[2].p : NULL;
        a.y = t[3].p;
        a.pre = t[4].p;
        zt_device *d = dh_device(threads);
        d->ops->linear(d, dt, &a);
        dh_done(d);
        if (threads == 1)
            check_linear(&a, t);
        dh_same(&first_y, &t[3]);
        dh_same(&first_pre, &t[4]);
        DH_EACH(i, t)
        {
            dh_free(&t[i]);
        }
    }
    free(first_y);
    free(first_pre);
}

static void linear(void **state)
{
    (void)state;
    unsigned flags = 0;
    DH_EACH(i, shapes)
    {
        DH_EACH(k, dh_dtypes)
        {
            for (unsigned n = 0; n < 4; n++) {
                try_linear(&shapes[i], dh_dtypes[k], flags);
                flags += 5;
            }
        }
    }
    for (flags = 0; flags < 24; flags++) {
        try_linear(&shapes[2], CKPT_F32, flags);
        try_linear(&shapes[2], CKPT_BF16, flags);
    }
}

/* Without `pre` the activation happens in place and gives the same. */
static void linear_without_pre(void **state)
{
    (void)state;
    DH_EACH(k, dh_dtypes)
    {
        ckpt_dtype dt = dh_dtypes[k];
        dh_tensor x = dh_new(dt, 12 * 20, 1, 1), w = dh_new(dt, 20 * 30, 1, 2);
        dh_tensor y = dh_new(dt, 12 * 30, 1, 3), z = dh_new(dt, 12 * 30, 1, 4);
        dh_tensor pre = dh_new(dt, 12 * 30, 1, 5);
        zt_linear a = {.rows = 12, .in = 20, .out = 30, .act = ZT_GELU};
        a.x = x.p;
        a.w = w.p;
        a.y = y.p;
        a.pre = pre.p;
        zt_device *d = dh_device(2);
        d->ops->linear(d, dt, &a);
        a.y = z.p;
        a.pre = NULL;
        d->ops->linear(d, dt, &a);
        dh_done(d);
        assert_memory_equal(y.p, z.p, y.n * dh_size(dt));
        dh_free(&x);
        dh_free(&w);
        dh_free(&y);
        dh_free(&z);
        dh_free(&pre);
    }
}

/* ---- gradients ----------------------------------------------------------------------------- */

static void check_dx(const zt_linear_grad *a, const dh_tensor *t)
{
    const dh_tensor *w = &t[1], *dy = &t[2], *dx = &t[3];
    uint64_t total = a->rows * a->in, step = total / 1500 + 1;
    for (uint64_t e = 0; e < total; e += step) {
        uint64_t i = e / a->in, k = e % a->in;
        double s = a->dx_add ? (double)dx->v[i * a->lddx + k] : 0;
        for (uint64_t o = 0; o < a->out; o++)
            s += (double)dy->v[i * a->lddy + o] *
                 (double)w->v[a->w_in_out ? k * a->out + o : o * a->in + k];
        dh_near(dx, i * a->lddx + k, s, (dh_bound){1.01, noise(a->out, 1.2)});
    }
}

static void check_dw(const zt_linear_grad *a, const dh_tensor *t)
{
    const dh_tensor *x = &t[0], *dy = &t[2], *dw = &t[4], *db = &t[5];
    uint64_t total = a->in * a->out, step = total / 1500 + 1;
    double eps = dh_eps(dw->dt);
    for (uint64_t e = 0; e < total; e += step) {
        uint64_t k = a->w_in_out ? e / a->out : e % a->in;
        uint64_t o = a->w_in_out ? e % a->out : e / a->in;
        double s = 0, old = a->w_add ? (double)dw->v[e] : 0;
        for (uint64_t i = 0; i < a->rows; i++)
            s += (double)x->v[i * a->ldx + k] * (double)dy->v[i * a->lddy + o];
        // the new part is rounded before it is added
        dh_near(dw, e, s + old,
                (dh_bound){1.01, noise(a->rows, 1.2) + (a->w_add ? eps * fabs(s) : 0)});
    }
    for (uint64_t o = 0; o < a->out; o++) {
        double s = 0, old = a->b_add ? (double)db->v[o] : 0;
        for (uint64_t i = 0; i < a->rows; i++)
            s += (double)dy->v[i * a->lddy + o];
        dh_near(db, o, s + old,
                (dh_bound){1.01, noise(a->rows, 2) + (a->b_add ? eps * fabs(s) : 0)});
    }
}

static void try_grad(const shape *s, ckpt_dtype dt, unsigned flags)
{
    void *first[3] = {NULL, NULL, NULL};
    for (unsigned threads = 1; threads <= 3; threads++) {
        zt_linear_grad a = {.rows = s->rows, .in = s->in, .out = s->out};
        a.ldx = s->in + s->pad;
        a.lddx = s->in + 2 * s->pad;
        a.lddy = s->out + s->pad;
        dh_tensor t[] = {dh_new(dt, s->rows * a.ldx, 1, 1),  dh_new(dt, s->in * s->out, 1, 2),
                         dh_new(dt, s->rows * a.lddy, 1, 3), dh_new(dt, s->rows * a.lddx, 1, 4),
                         dh_new(dt, s->in * s->out, 1, 5),   dh_new(dt, s->out, 1, 6)};
        a.w_in_out = flags & 1;
        a.dx_add = flags & 2;
        a.w_add = flags & 4;
        a.b_add = flags & 8;
        a.x = t[0].p;
        a.w = t[1].p;
        a.dy = t[2].p;
        a.dx = t[3].p;
        a.dw = t[4].p;
        a.db = t[5].p;
        zt_device *d = dh_device(threads);
        d->ops->linear_grad(d, dt, &a);
        dh_done(d);
        if (threads == 1) {
            check_dx(&a, t);
            check_dw(&a, t);
        }
        for (unsigned i = 0; i < 3; i++)
            dh_same(&first[i], &t[3 + i]);
        DH_EACH(i, t)
        {
            dh_free(&t[i]);
        }
    }
    for (unsigned i = 0; i < 3; i++)
        free(first[i]);
}

static void linear_grad(void **state)
{
    (void)state;
    unsigned flags = 0;
    DH_EACH(i, shapes)
    {
        DH_EACH(k, dh_dtypes)
        {
            for (unsigned n = 0; n < 2; n++) {
                try_grad(&shapes[i], dh_dtypes[k], flags);
                flags += 7;
            }
        }
    }
    for (flags = 0; flags < 16; flags++) {
        try_grad(&shapes[2], CKPT_F32, flags);
        try_grad(&shapes[2], CKPT_F16, flags);
    }
}

/* Each of the three gradients alone, and none for no rows. */
static void linear_grad_parts(void **state)
{
    (void)state;
    dh_tensor x = dh_new(CKPT_F32, 6, 1, 1), w = dh_new(CKPT_F32, 6, 1, 2);
    dh_tensor dy = dh_new(CKPT_F32, 4, 1, 3), out = dh_new(CKPT_F32, 6, 1, 4);
    zt_linear_grad a = {.rows = 2, .in = 3, .out = 2};
    zt_device *d = dh_device(2);
    a.dy = dy.p;
    a.db = out.p;
    d->ops->linear_grad(d, CKPT_F32, &a);
    dh_near(&out, 1, (double)dy.v[1] + (double)dy.v[3], (dh_bound){2, 1e-7});
    dh_near(&out, 2, (double)out.v[2], (dh_bound){0, 0});
    a.db = NULL;
    a.x = x.p;
    a.dw = out.p;
    d->ops->linear_grad(d, CKPT_F32, &a);
    dh_near(&out, 4, (double)dy.v[1] * (double)x.v[1] + (double)dy.v[3] * (double)x.v[4],
            (dh_bound){2, 1e-7});
    a.rows = 0;
    d->ops->linear_grad(d, CKPT_F32, &a);
    for (uint64_t i = 0; i < 6; i++) {
        dh_near(&out, i, 0, (dh_bound){0, 0});
    }
    dh_done(d);
    dh_free(&x);
    dh_free(&w);
    dh_free(&dy);
    dh_free(&out);
}

/* ---- products ------------------------------------------------------------------------------ */

static void try_matmul(const shape *s, ckpt_dtype dt, unsigned flags)
{
    void *first = NULL;
    for (unsigned threads = 1; threads <= 3; threads++) {
        zt_matmul a = {.m = s->rows, .n = s->out, .k = s->in, .alpha = 0.75F};
        dh_tensor x = dh_new(dt, a.m * a.k, 1, 1), y = dh_new(dt, a.k * a.n, 1, 2);
        dh_tensor c = dh_new(dt, a.m * a.n, 1, 3);
        a.a_transposed = flags & 1;
        a.b_transposed = flags & 2;
        a.beta = flags & 4 ? -0.5F : 0.0F;
        a.a = x.p;
        a.b = y.p;
        a.c = c.p;
        zt_device *d = dh_device(threads);
        d->ops->matmul(d, dt, &a);
        dh_done(d);
        uint64_t step = c.n / 1500 + 1;
        for (uint64_t e = 0; threads == 1 && e < c.n; e += step) {
            uint64_t i = e / a.n, j = e % a.n;
            double sum = 0;
            for (uint64_t k = 0; k < a.k; k++)
                sum += (double)x.v[a.a_transposed ? k * a.m + i : i * a.k + k] *
                       (double)y.v[a.b_transposed ? j * a.k + k : k * a.n + j];
            dh_near(&c, e, 0.75 * sum + (double)a.beta * (double)c.v[e],
                    (dh_bound){1.01, noise(a.k, 1.2)});
        }
        dh_same(&first, &c);
        dh_free(&x);
        dh_free(&y);
        dh_free(&c);
    }
    free(first);
}

static void matmul(void **state)
{
    (void)state;
    unsigned flags = 0;
    DH_EACH(i, shapes)
    {
        DH_EACH(k, dh_dtypes)
        {
            try_matmul(&shapes[i], dh_dtypes[k], flags++);
        }
    }
    for (flags = 0; flags < 8; flags++) {
        try_matmul(&shapes[3], CKPT_F32, flags);
        try_matmul(&shapes[3], CKPT_BF16, flags);
    }
}

/* beta 0 does not read C: what was NaN there is gone.  k 0 leaves beta C. */
static void matmul_edges(void **state)
{
    (void)state;
    float a[4] = {1, 2, 3, 4}, c[4] = {NAN, NAN, NAN, NAN};
    zt_matmul m = {.m = 2, .n = 2, .k = 2, .alpha = 1, .a = a, .b = a, .c = c};
    zt_device *d = dh_device(1);
    d->ops->matmul(d, CKPT_F32, &m);
    assert_true(c[0] == 7.0F && c[3] == 22.0F);
    m.k = 0;
    m.beta = 0.5F;
    d->ops->matmul(d, CKPT_F32, &m);
    assert_true(c[0] == 3.5F && c[3] == 11.0F);
    m.beta = 0;
    d->ops->matmul(d, CKPT_F32, &m);
    assert_true(c[0] == 0.0F && c[3] == 0.0F);
    dh_done(d);
}

/* ---- wrong calls --------------------------------------------------------------------------- */

static void fails(int code, void (*call)(zt_device *d))
{
    ckpt_err err = {0};
    zt_device *d = dh_device(2);
    call(d);
    assert_int_equal(zt_device_check(d, &err), code);
    assert_true(strlen(err.text) > 0);
    zt_device_free(d);
}

static float some[64];

static void no_weight(zt_device *d)
{
    zt_linear a = {.rows = 2, .in = 2, .out = 2, .x = some, .y = some + 8};
    d->ops->linear(d, CKPT_F32, &a);
}

static void short_stride(zt_device *d)
{
    zt_linear a = {
        .rows = 2, .in = 4, .out = 2, .ldx = 3, .x = some, .w = some + 16, .y = some + 32};
    d->ops->linear(d, CKPT_F32, &a);
}

static void add_after_act(zt_device *d)
{
    zt_linear a = {.rows = 2, .in = 2, .out = 2, .x = some, .w = some + 8, .y = some + 16};
    a.act = ZT_RELU;
    a.y_add = true;
    d->ops->linear(d, CKPT_F32, &a);
}

static void no_dy(zt_device *d)
{
    zt_linear_grad a = {.rows = 2, .in = 2, .out = 2, .w = some, .dx = some + 8};
    d->ops->linear_grad(d, CKPT_F32, &a);
}

static void no_c(zt_device *d)
{
    zt_matmul a = {.m = 2, .n = 2, .k = 2, .alpha = 1, .a = some, .b = some};
    d->ops->matmul(d, CKPT_F32, &a);
}

static void too_long(zt_device *d)
{
    zt_matmul a = {.m = 1, .n = 1, .k = (uint64_t)1 << 31, .alpha = 1, .a = some, .b = some};
    a.c = some + 8;
    d->ops->matmul(d, CKPT_F32, &a);
}

static void whole_numbers(zt_device *d)
{
    zt_matmul a = {.m = 2, .n = 2, .k = 2, .alpha = 1, .a = some, .b = some, .c = some + 8};
    d->ops->matmul(d, CKPT_I32, &a);
}

static void all_null(zt_device *d)
{
    d->ops->linear(d, CKPT_F32, NULL);
    d->ops->linear_grad(d, CKPT_F32, NULL);
    d->ops->matmul(d, CKPT_F32, NULL);
}

static void wrong_calls(void **state)
{
    (void)state;
    fails(CKPT_EUSAGE, no_weight);
    fails(CKPT_EUSAGE, short_stride);
    fails(CKPT_EUSAGE, add_after_act);
    fails(CKPT_EUSAGE, no_dy);
    fails(CKPT_EUSAGE, no_c);
    fails(CKPT_ELIMIT, too_long);
    fails(CKPT_EUNSUPPORTED, whole_numbers);
    fails(CKPT_EUSAGE, all_null);
}

static inline int blas_tests(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(linear),      cmocka_unit_test(linear_without_pre),
        cmocka_unit_test(linear_grad), cmocka_unit_test(linear_grad_parts),
        cmocka_unit_test(matmul),      cmocka_unit_test(matmul_edges),
        cmocka_unit_test(wrong_calls),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

#endif
