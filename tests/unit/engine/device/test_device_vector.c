/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_device_vector.c: memory, threads, vectors and activations of the CPU device.
 */
#include "engine/device/cpu_pool.h"
#include "libckpt/base/mem.h"
#include "tests/unit/engine/device/help.h"
#include "tests/unit/unit.h"

static const uint64_t lengths[] = {0, 1, 15, 16, 17, 1023, 1025, 70001};

/* ---- memory, errors ------------------------------------------------------------------------ */

static void memory(void **state)
{
    (void)state;
    zt_device *d = dh_device(2);
    assert_true(d->host);
    assert_string_equal(d->ops->name, "cpu");
    unsigned char *a = d->ops->alloc(d, 3000001), *b = d->ops->alloc(d, 9000000);
    assert_true((uintptr_t)a % 64 == 0 && (uintptr_t)b % 64 == 0);
    assert_true(d->allocated == 12000001 && d->peak == 12000001);
    d->ops->zero(d, b, 9000000);
    for (size_t i = 0; i < 3000001; i++)
        a[i] = (unsigned char)(i * 7 + i / 255);
    d->ops->put(d, b + 1, a, 3000001);
    assert_memory_equal(b + 1, a, 3000001);
    assert_true(b[0] == 0 && b[3000002] == 0 && b[8999999] == 0);
    d->ops->copy(d, b + 5, b + 1, 3000001); // overlapping
    assert_memory_equal(b + 5, a, 3000001);
    d->ops->zero(d, a, 3000000);
    assert_true(a[0] == 0 && a[2999999] == 0 && a[3000000] == b[3000005]);
    d->ops->get(d, a, b + 5, 10);
    assert_memory_equal(a, b + 5, 10);
    d->ops->copy(d, NULL, NULL, 0);
    d->ops->sync(d);
    d->ops->release(d, b);
    d->ops->release(d, NULL);
    assert_true(d->allocated == 3000001 && d->peak == 12000001);
    d->ops->release(d, a);
    void *none = d->ops->alloc(d, 0);
    assert_non_null(none);
    d->ops->release(d, none);
    dh_done(d);
}

/* The first failure stays, later operations do nothing, memory can still be given back. */
static void first_failure(void **state)
{
    (void)state;
    ckpt_err err = {0};
    zt_device *d = dh_device(2);
    float x[2] = {1, 2};
    float *p = d->ops->alloc(d, 8);
    assert_null(d->ops->alloc(d, UINT64_MAX));
    assert_int_equal(zt_device_check(d, &err), CKPT_ELIMIT);
    assert_non_null(strstr(err.text, "out of memory"));
    d->ops->scale(d, CKPT_F32, 2, x, 3);
    assert_true(x[0] == 1.0F && x[1] == 2.0F);
    d->ops->scale(d, CKPT_F32, 2, NULL, 3);
    zt_device_fail(d, CKPT_EIO, "later");
    zt_device_fail(NULL, CKPT_EIO, "nobody");
    assert_int_equal(zt_device_check(d, NULL), CKPT_ELIMIT);
    assert_null(d->ops->alloc(d, 8));
    d->ops->release(d, p);
    assert_true(d->allocated == 0);
    zt_device_free(d);
    zt_device_free(NULL);
    assert_int_equal(zt_device_check(NULL, NULL), CKPT_EUSAGE);
}

/* Every allocation of creating a device fails once. */
static void no_memory(void **state)
{
    (void)state;
    unsigned n = 0;
    for (int rc = CKPT_ELIMIT; rc != CKPT_OK; n++) {
        zt_device *d = NULL;
        ckpt_err err = {0};
        ckpt_alloc_fail_at(n);
        rc = zt_cpu_new(&d, 2, &err);
        ckpt_alloc_fail_at(UINT64_MAX);
        assert_true(rc == CKPT_OK || (rc == CKPT_ELIMIT && !d));
        zt_device_free(d);
    }
    assert_true(n > 2);
    zt_device *d = NULL;
    assert_int_equal(zt_cpu_new(&d, 100000, NULL), CKPT_ELIMIT);
    assert_null(d);
    assert_int_equal(zt_cpu_new(&d, 0, NULL), CKPT_OK);
    zt_device_free(d);
}

typedef void (*call)(zt_device *d);

static void null_cast(zt_device *d)
{
    d->ops->cast(d, 1, NULL, CKPT_F32, NULL, CKPT_F32);
}

static void odd_cast(zt_device *d)
{
    float x[4] = {0};
    d->ops->cast(d, 1, x, CKPT_I32, x + 2, CKPT_F32);
}

static void null_structs(zt_device *d)
{
    d->ops->accumulate(d, NULL);
}

static void null_sum(zt_device *d)
{
    (void)d->ops->sum_squares(d, CKPT_F32, 1, NULL);
}

static void null_act(zt_device *d)
{
    d->ops->act(d, CKPT_F32, ZT_GELU, 1, NULL, NULL);
}

static void null_act_grad(zt_device *d)
{
    d->ops->act_grad(d, CKPT_F32, NULL);
}

static void unknown_act(zt_device *d)
{
    float x = 1;
    d->ops->act(d, CKPT_F32, (zt_act)99, 1, &x, &x);
}

static void null_swiglu(zt_device *d)
{
    zt_swiglu s = {.n = 1};
    d->ops->swiglu(d, CKPT_F32, &s);
}

static void null_swiglu_grad(zt_device *d)
{
    d->ops->swiglu_grad(d, CKPT_F32, NULL);
}

static void null_rows(zt_device *d)
{
    zt_rows r = {.rows = 1, .width = 1};
    d->ops->rows(d, CKPT_F32, &r);
}

static void null_add(zt_device *d)
{
    d->ops->add(d, CKPT_F32, 1, NULL, NULL);
}

static void null_zero(zt_device *d)
{
    d->ops->zero(d, NULL, 1);
}

static void wrong_calls(void **state)
{
    (void)state;
    static const call calls[] = {null_cast,     odd_cast,    null_structs, null_sum,
                                 null_act,      unknown_act, null_swiglu,  null_swiglu_grad,
                                 null_act_grad, null_rows,   null_add,     null_zero};
    DH_EACH(i, calls)
    {
        zt_device *d = dh_device(1);
        calls[i](d);
        assert_int_equal(zt_device_check(d, NULL), CKPT_EUSAGE);
        zt_device_free(d);
    }
}

/* ---- threads ------------------------------------------------------------------------------- */

typedef struct marks {
    zt_device *d;
    uint64_t n, grain;
    unsigned char *seen;
    bool wrong[3];
} marks;

static void mark(void *ctx, uint64_t first, uint64_t last, unsigned worker)
{
    marks *m = ctx;
    uint64_t *room = zt_cpu_scratch(m->d, worker, (last - first) * sizeof *room);
    m->wrong[worker] |= !room || (uintptr_t)room % 64 != 0 || first >= last || last > m->n ||
                        first % m->grain != 0 || (last % m->grain != 0 && last != m->n);
    for (uint64_t i = first; i < last; i++) {
        room[i - first] = i;
        m->seen[i]++;
    }
    for (uint64_t i = first; i < last; i++)
        m->wrong[worker] |= room[i - first] != i;
}

/* Every element exactly once, ranges at multiples of the grain, scratch to oneself. */
static void ranges(void **state)
{
    (void)state;
    static const uint64_t counts[] = {1, 2, 7, 64, 65, 1000, 4097};
    static const uint64_t grains[] = {1, 3, 64, 5000};
    for (unsigned threads = 1; threads <= 3; threads++) {
        zt_device *d = dh_device(threads);
        for (unsigned again = 0; again < 20; again++) {
            DH_EACH(i, counts)
            {
                marks m = {.d = d, .n = counts[i], .grain = grains[(i + again) % 4]};
                m.seen = calloc(m.n, 1);
                assert_non_null(m.seen);
                zt_cpu_parallel(d, m.n, m.grain, mark, &m);
                assert_false(m.wrong[0] || m.wrong[1] || m.wrong[2]);
                for (uint64_t k = 0; k < m.n; k++)
                    assert_int_equal(m.seen[k], 1);
                free(m.seen);
            }
        }
        zt_cpu_parallel(d, 0, 1, mark, NULL);
        dh_done(d);
    }
}

/* ---- cast, accumulate, scale, add ---------------------------------------------------------- */

static void cast(void **state)
{
    (void)state;
    static const ckpt_dtype all[] = {CKPT_F32, CKPT_BF16, CKPT_F16, CKPT_F64};
    DH_EACH(from, dh_dtypes)
    {
        DH_EACH(to, all)
        {
            dh_tensor x = dh_new(dh_dtypes[from], 70001, 3, 1);
            void *y = calloc(x.n, 8), *z = calloc(x.n, 8);
            zt_device *d = dh_device(2);
            d->ops->cast(d, x.n, y, all[to], x.p, x.dt);
            d->ops->cast(d, x.n, x.p, x.dt, x.p, x.dt); // onto itself
            dh_done(d);
            ckpt_cast_find_portable(all[to], x.dt)(z, x.p, x.n);
            assert_memory_equal(y, z, x.n * 8);
            free(y);
            free(z);
            dh_free(&x);
        }
    }
}

static double rounded(ckpt_dtype dt, double v)
{
    float f = (float)v, back = 0;
    uint32_t room = 0;
    ckpt_cast_find_portable(dt, CKPT_F32)(&room, &f, 1);
    ckpt_cast_find_portable(CKPT_F32, dt)(&back, &room, 1);
    return (double)back;
}

static void try_accumulate(uint64_t n, unsigned flags)
{
    ckpt_dtype acc_dt = dh_dtypes[flags % 3], x_dt = dh_dtypes[flags / 3 % 3];
    dh_tensor acc = dh_new(acc_dt, n, 1, 1), x = dh_new(x_dt, n, 1, 2);
    zt_accumulate a = {.n = n, .acc = acc.p, .acc_dtype = acc_dt, .x = x.p, .x_dtype = x_dt};
    a.factor = flags / 9 % 2 ? 0.37F : 1.0F;
    a.add = flags / 18 % 2;
    zt_device *d = dh_device(1 + flags % 3);
    d->ops->accumulate(d, &a);
    dh_done(d);
    for (uint64_t i = 0; i < n; i++) {
        double v = rounded(x_dt, (double)x.v[i] * (double)a.factor);
        v += a.add ? (double)acc.v[i] : 0;
        dh_near(&acc, i, rounded(acc_dt, v), (dh_bound){0, 0});
    }
    dh_free(&acc);
    dh_free(&x);
}

static void accumulate(void **state)
{
    (void)state;
    DH_EACH(i, lengths)
    {
        for (unsigned flags = 0; flags < 36; flags++)
            try_accumulate(lengths[i], flags);
    }
}

static void scale_and_add(void **state)
{
    (void)state;
    DH_EACH(k, dh_dtypes)
    {
        dh_tensor x = dh_new(dh_dtypes[k], 70001, 1, 1), y = dh_new(dh_dtypes[k], 70001, 1, 2);
        zt_device *d = dh_device(3);
        d->ops->scale(d, x.dt, x.n, x.p, -1.7F);
        dh_read(&x, x.v);
        d->ops->add(d, y.dt, y.n, y.p, x.p);
        dh_done(d);
        dh_tensor old = dh_new(dh_dtypes[k], 70001, 1, 1);
        for (uint64_t i = 0; i < x.n; i++) {
            assert_true((double)x.v[i] == rounded(x.dt, (double)old.v[i] * (double)-1.7F));
            dh_near(&y, i, rounded(x.dt, (double)x.v[i] + (double)y.v[i]), (dh_bound){0, 0});
        }
        dh_free(&x);
        dh_free(&y);
        dh_free(&old);
    }
}

/* ---- sum of squares ------------------------------------------------------------------------ */

static void sum_squares(void **state)
{
    (void)state;
    static const uint64_t sizes[] = {0, 1, 17, 16384, 16385, 300001};
    DH_EACH(i, sizes)
    {
        DH_EACH(k, dh_dtypes)
        {
            dh_tensor x = dh_new(dh_dtypes[k], sizes[i], 100, 1);
            double got[3], expected = 0;
            for (uint64_t e = 0; e < x.n; e++)
                expected += (double)x.v[e] * (double)x.v[e];
            for (unsigned threads = 1; threads <= 3; threads++) {
                zt_device *d = dh_device(threads);
                got[threads - 1] = d->ops->sum_squares(d, x.dt, x.n, x.p);
                dh_done(d);
            }
            assert_true(fabs(got[0] - expected) <= 1e-12 * expected);
            assert_memory_equal(&got[0], &got[1], sizeof *got);
            assert_memory_equal(&got[0], &got[2], sizeof *got);
            dh_free(&x);
        }
    }
}

/* Far beyond what fp32 sums could hold; one bad element shows. */
static void sum_squares_extremes(void **state)
{
    (void)state;
    uint64_t n = 40000;
    float *x = malloc(n * sizeof *x);
    assert_non_null(x);
    for (uint64_t i = 0; i < n; i++)
        x[i] = 3e38F;
    zt_device *d = dh_device(2);
    double big = d->ops->sum_squares(d, CKPT_F32, n, x);
    assert_true(fabs(big / (9e76 * 4e4) - 1) < 1e-6);
    x[31234] = INFINITY;
    assert_true(isinf(d->ops->sum_squares(d, CKPT_F32, n, x)));
    x[17] = NAN;
    assert_true(isnan(d->ops->sum_squares(d, CKPT_F32, n, x)));
    dh_done(d);
    free(x);
}

/* ---- activations --------------------------------------------------------------------------- */

static void try_act(zt_act act, ckpt_dtype dt, uint64_t n)
{
    void *first[3] = {NULL, NULL, NULL};
    for (unsigned threads = 1; threads <= 3; threads++) {
        dh_tensor x = dh_new(dt, n, 6, 1), dy = dh_new(dt, n, 2, 2);
        dh_tensor y = dh_new(dt, n, 1, 3), dx = dh_new(dt, n, 1, 4);
        zt_device *d = dh_device(threads);
        d->ops->act(d, dt, act, n, y.p, x.p);
        zt_act_grad g = {.act = act, .n = n, .pre = x.p, .dy = dy.p, .dx = dx.p};
        d->ops->act_grad(d, dt, &g);
        g.dx = dy.p; // in place
        d->ops->act_grad(d, dt, &g);
        for (uint64_t i = 0; threads == 1 && i < n; i++) {
            double v = (double)x.v[i];
            dh_near(&y, i, dh_act(act, v), (dh_bound){1.01, 1e-6});
            dh_near(&dx, i, dh_slope(act, v) * (double)dy.v[i], (dh_bound){1.01, 2e-6});
        }
        assert_memory_equal(dx.p, dy.p, n * dh_size(dt));
        d->ops->act(d, dt, act, n, x.p, x.p);
        assert_memory_equal(x.p, y.p, n * dh_size(dt));
        dh_done(d);
        dh_same(&first[0], &y);
        dh_same(&first[1], &dx);
        dh_free(&x);
        dh_free(&dy);
        dh_free(&y);
        dh_free(&dx);
    }
    free(first[0]);
    free(first[1]);
}

static void act(void **state)
{
    (void)state;
    for (zt_act a = ZT_ACT_NONE; a <= ZT_SILU; a++) {
        DH_EACH(k, dh_dtypes)
        {
            try_act(a, dh_dtypes[k], 20011);
            try_act(a, dh_dtypes[k], 3);
        }
    }
}

/* tanh within 2.5 ulp, from tiny to huge; limits and NaN of all. */
static void act_limits(void **state)
{
    (void)state;
    enum { N = 20000 };
    static float x[N], y[N];
    zt_device *d = dh_device(1);
    for (int i = 0; i < N; i++)
        x[i] = (float)((i % 2 ? -1 : 1) * exp(-30 + 33.0 * i / N));
    d->ops->act(d, CKPT_F32, ZT_TANH, N, y, x);
    for (int i = 0; i < N; i++)
        assert_true(fabs((double)y[i] - tanh((double)x[i])) <= 1.5e-7 * fabs(tanh((double)x[i])));
    static const float edge[4] = {INFINITY, -INFINITY, NAN, 0};
    static const float expected[6][4] = {
        {INFINITY, -INFINITY, NAN, 0}, {INFINITY, NAN, NAN, 0}, {INFINITY, NAN, NAN, 0},
        {INFINITY, 0, NAN, 0},         {1, -1, NAN, 0},         {INFINITY, NAN, NAN, 0}};
    for (zt_act a = ZT_ACT_NONE; a <= ZT_SILU; a++) {
        d->ops->act(d, CKPT_F32, a, 4, y, edge);
        for (int i = 0; i < 4; i++)
            assert_true(isnan(expected[a][i]) ? isnan(y[i]) : y[i] == expected[a][i]);
    }
    dh_done(d);
}

/* erf through gelu: where 0.5 x (1 + erf) has no cancellation, 4 ulp; and 0 far below. */
static void gelu_accuracy(void **state)
{
    (void)state;
    enum { N = 20000 };
    static float x[N], y[N];
    zt_device *d = dh_device(1);
    for (int i = 0; i < N; i++)
        x[i] = (float)(10.0 * i / N);
    d->ops->act(d, CKPT_F32, ZT_GELU, N, y, x);
    for (int i = 0; i < N; i++) {
        double v = dh_act(ZT_GELU, (double)x[i]);
        assert_true(fabs((double)y[i] - v) <= 2.4e-7 * v);
    }
    for (int i = 0; i < N; i++)
        x[i] = -x[i];
    d->ops->act(d, CKPT_F32, ZT_GELU, N, y, x);
    for (int i = 0; i < N; i++)
        assert_true(fabs((double)y[i] - dh_act(ZT_GELU, (double)x[i])) <= 3e-7);
    dh_done(d);
}

static void try_swiglu(ckpt_dtype dt, uint64_t n, unsigned threads)
{
    dh_tensor gate = dh_new(dt, n, 6, 1), up = dh_new(dt, n, 2, 2), dy = dh_new(dt, n, 2, 3);
    dh_tensor y = dh_new(dt, n, 1, 4), dg = dh_new(dt, n, 1, 5), du = dh_new(dt, n, 1, 6);
    zt_device *d = dh_device(threads);
    zt_swiglu s = {.n = n, .gate = gate.p, .up = up.p, .y = y.p, .dy = dy.p};
    s.dgate = dg.p;
    s.dup = du.p;
    d->ops->swiglu(d, dt, &s);
    d->ops->swiglu_grad(d, dt, &s);
    for (uint64_t i = 0; i < n; i++) {
        double g = (double)gate.v[i], u = (double)up.v[i], o = (double)dy.v[i];
        dh_near(&y, i, dh_act(ZT_SILU, g) * u, (dh_bound){1.01, 2e-6});
        dh_near(&dg, i, dh_slope(ZT_SILU, g) * u * o, (dh_bound){1.01, 4e-6});
        dh_near(&du, i, dh_act(ZT_SILU, g) * o, (dh_bound){1.01, 2e-6});
    }
    // in place: gradients over their inputs, then the output over one of them
    s.dgate = gate.p;
    s.dup = up.p;
    d->ops->swiglu_grad(d, dt, &s);
    assert_memory_equal(gate.p, dg.p, n * dh_size(dt));
    assert_memory_equal(up.p, du.p, n * dh_size(dt));
    dh_tensor gate2 = dh_new(dt, n, 6, 1), up2 = dh_new(dt, n, 2, 2);
    s.gate = gate2.p;
    s.up = up2.p;
    s.y = up2.p;
    d->ops->swiglu(d, dt, &s);
    assert_memory_equal(up2.p, y.p, n * dh_size(dt));
    dh_done(d);
    dh_free(&gate);
    dh_free(&up);
    dh_free(&dy);
    dh_free(&y);
    dh_free(&dg);
    dh_free(&du);
    dh_free(&gate2);
    dh_free(&up2);
}

static void swiglu(void **state)
{
    (void)state;
    DH_EACH(k, dh_dtypes)
    {
        for (unsigned threads = 1; threads <= 3; threads++) {
            try_swiglu(dh_dtypes[k], 20011, threads);
            try_swiglu(dh_dtypes[k], 5, threads);
        }
    }
}

/* ---- rows ---------------------------------------------------------------------------------- */

static void try_rows(const zt_rows *shape, ckpt_dtype dt, unsigned threads)
{
    zt_rows r = *shape;
    uint64_t to_ld = r.ld_to ? r.ld_to : r.width, from_ld = r.ld_from ? r.ld_from : r.width;
    dh_tensor to = dh_new(dt, r.rows * to_ld, 1, 1), from = dh_new(dt, r.rows * from_ld, 1, 2);
    r.to = to.p;
    r.from = from.p;
    zt_device *d = dh_device(threads);
    d->ops->rows(d, dt, &r);
    dh_done(d);
    for (uint64_t i = 0; i < to.n; i++) {
        double v = (double)to.v[i];
        if (i % to_ld < r.width)
            v = (r.add ? v : 0) + (double)from.v[i / to_ld * from_ld + i % to_ld];
        dh_near(&to, i, rounded(dt, v), (dh_bound){0, 0});
    }
    dh_free(&to);
    dh_free(&from);
}

static void rows(void **state)
{
    (void)state;
    static const zt_rows shapes[] = {{.rows = 7, .width = 5},
                                     {.rows = 300, .width = 130, .ld_to = 390, .ld_from = 131},
                                     {.rows = 40, .width = 1500, .ld_from = 3000},
                                     {.rows = 0, .width = 5},
                                     {.rows = 5, .width = 0, .ld_to = 4, .ld_from = 4}};
    DH_EACH(i, shapes)
    {
        for (unsigned flags = 0; flags < 18; flags++) {
            zt_rows r = shapes[i];
            r.add = flags % 2;
            try_rows(&r, dh_dtypes[flags / 2 % 3], 1 + flags / 6);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(memory),        cmocka_unit_test(first_failure),
        cmocka_unit_test(no_memory),     cmocka_unit_test(wrong_calls),
        cmocka_unit_test(ranges),        cmocka_unit_test(cast),
        cmocka_unit_test(accumulate),    cmocka_unit_test(scale_and_add),
        cmocka_unit_test(sum_squares),   cmocka_unit_test(sum_squares_extremes),
        cmocka_unit_test(act),           cmocka_unit_test(act_limits),
        cmocka_unit_test(gelu_accuracy), cmocka_unit_test(swiglu),
        cmocka_unit_test(rows),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
