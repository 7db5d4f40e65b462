/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_rope_dropout.c: rotary embedding and dropout on the processor.
 */
#include <math.h>

#include "engine/device/cpu.h"
#include "engine/device/philox.h"
#include "libckpt/base/cast.h"
#include "tests/unit/unit.h"

static const ckpt_dtype dtypes[] = {CKPT_F32, CKPT_BF16, CKPT_F16};

/* Half an ulp of 1.0, of the dtypes above. */
static const double half_ulp[] = {0x1p-24, 0x1p-8, 0x1p-11};

static zt_device *device(unsigned threads)
{
    ckpt_err err = {0};
    zt_device *d = NULL;

    assert_int_equal(zt_cpu_new(&d, threads, &err), CKPT_OK);
    return d;
}

static void done(zt_device *d)
{
    ckpt_err err = {0};

    assert_int_equal(zt_device_check(d, &err), CKPT_OK);
    zt_device_free(d);
}

static float at(ckpt_dtype dt, const void *x, uint64_t i)
{
    float f;

    ckpt_cast_find(CKPT_F32, dt)(&f, zt_cpu_const_at(dt, x, i), 1);
    return f;
}

/* n normal values in dt. */
static void *draw(ckpt_dtype dt, uint64_t seed, uint64_t n)
{
    float *x = (float *)calloc(n + 1, sizeof *x);
    void *out = calloc(n + 1, sizeof *x);

    assert_non_null(x);
    assert_non_null(out);
    zt_philox_normal(seed, 1.0, 0, n, x);
    ckpt_cast_find(dt, CKPT_F32)(out, x, n);
    free(x);
    return out;
}

/* ---- rope -------------------------------------------------------------------------------- */

typedef struct turn {
    uint64_t rows, seq, heads, width, ld, turned;
} turn;

/* Elements of a head in each of the halves that are rotated. */
static uint64_t half_of(const turn *t)
{
    return (t->turned != 0 ? t->turned : t->width) / 2;
}

static void angles(const turn *t, float **c, float **s)
{
    const uint64_t half = half_of(t);

    *c = (float *)calloc(t->seq * half + 1, sizeof **c);
    *s = (float *)calloc(t->seq * half + 1, sizeof **s);
    assert_non_null(*c);
    assert_non_null(*s);
    for (uint64_t i = 0; i < t->seq * half; i++) {
        (*c)[i] = cosf(0.37F * (float)i);
        (*s)[i] = sinf(0.37F * (float)i);
    }
}

/* |got - want| is at most half an ulp in dt, and the rounding of three fp32 operations. */
static void near(float got, double want, double half)
{
    assert_true(fabs((double)got - want) <= half * fabs(want) * 1.01 + 0x1p-22);
}

static void check_rope(const turn *t, size_t k)
{
    const ckpt_dtype dt = dtypes[k];
    const uint64_t ld = t->ld != 0 ? t->ld : t->heads * t->width, half = half_of(t);
    void *x = draw(dt, 5, t->rows * ld), *old = draw(dt, 5, t->rows * ld);
    float *c, *s;
    zt_device *d = device(2);

    angles(t, &c, &s);
    zt_rope a = {.rows = t->rows,
                 .seq = t->seq,
                 .heads = t->heads,
                 .width = t->width,
                 .ld = t->ld,
                 .turned = t->turned};
    a.cos = c;
    a.sin = s;
    a.x = x;
    zt_cpu_rope(d, dt, &a);
    for (uint64_t i = 0; i < t->rows * ld; i++) {
        const uint64_t row = i / ld, e = i % ld % t->width, angle = row % t->seq * half + e % half;
        const double co = (double)c[angle], si = (double)s[angle], here = (double)at(dt, old, i);

        if (i % ld >= t->heads * t->width || e >= 2 * half)
            assert_true(at(dt, x, i) == at(dt, old, i));
        else if (e < half)
            near(at(dt, x, i), here * co - (double)at(dt, old, i + half) * si, half_ulp[k]);
        else
            near(at(dt, x, i), here * co + (double)at(dt, old, i - half) * si, half_ulp[k]);
    }
    // the transpose of a rotation is its inverse
    a.inverse = true;
    zt_cpu_rope(d, dt, &a);
    for (uint64_t i = 0; i < t->rows * ld; i++)
        assert_true(fabs((double)at(dt, x, i) - (double)at(dt, old, i)) < 16 * half_ulp[k]);
    done(d);
    free(x), free(old), free(c), free(s);
}

static void rope(void **state)
{
    const turn turns[] = {{1, 1, 1, 2, 0, 0},    {6, 3, 2, 8, 0, 0},    {10, 5, 3, 34, 0, 0},
                          {8, 4, 2, 64, 200, 0}, {4, 2, 1, 1100, 0, 0}, {300, 150, 4, 32, 128, 0},
                          {6, 3, 2, 8, 0, 4},    {8, 4, 3, 64, 200, 16}};

    (void)state;
    for (size_t i = 0; i < sizeof turns / sizeof *turns; i++) {
        for (size_t k = 0; k < 3; k++)
            check_rope(&turns[i], k);
    }
}

static void rope_refused(void **state)
{
    float x[6] = {1, 2, 3, 4, 5, 6}, c[3] = {0}, s[3] = {0};
    zt_rope a = {.rows = 2, .seq = 1, .heads = 1, .width = 3, .cos = c, .sin = s, .x = x};
    ckpt_err err = {0};

    (void)state;
    for (int i = 0; i < 4; i++) {
        zt_device *d = device(1);

        a.turned = i == 3 ? 4 : 0; // more than the width
        a.width = i == 0 ? 3 : 2;
        a.seq = i == 1 ? 0 : 1;
        a.cos = i == 2 ? NULL : c;
        zt_cpu_rope(d, CKPT_F32, &a);
        assert_int_not_equal(zt_device_check(d, &err), CKPT_OK);
        assert_true(x[0] == 1 && x[5] == 6);
        err = (ckpt_err){0};
        zt_device_free(d);
    }
}

/* ---- dropout ----------------------------------------------------------------------------- */

enum { N = 40001 };

/* Bit for bit: one product, one sum, one rounding. */
static void check_dropout(size_t k, float p, bool add, unsigned threads)
{
    const ckpt_dtype dt = dtypes[k];
    void *x = draw(dt, 1, N), *more = draw(dt, 2, N), *y = draw(dt, 3, N);
    float *keep = (float *)calloc(N, sizeof *keep);
    zt_device *d = device(threads);
    const zt_dropout a = {.n = N - 1, .seed = 9, .p = p, .x = x, .add = add ? more : NULL, .y = y};
    const float after = at(dt, y, N - 1);

    assert_non_null(keep);
    zt_philox_keep(9, p, 0, N, keep);
    zt_cpu_dropout(d, dt, &a);
    for (uint64_t i = 0; i < N - 1; i++) {
        float want = at(dt, x, i) * keep[i], rounded = 0;

        if (add)
            want += at(dt, more, i);
        ckpt_cast_find(dt, CKPT_F32)(&rounded, &want, 1);
        assert_true(at(dt, y, i) == at(dt, &rounded, 0));
    }
    assert_true(at(dt, y, N - 1) == after);
    done(d);
    free(x), free(more), free(y), free(keep);
}

static void dropout(void **state)
{
    const float rates[] = {0, 0.1F, 0.5F, 1};

    (void)state;
    for (size_t k = 0; k < 3; k++) {
        for (size_t r = 0; r < 4; r++) {
            check_dropout(k, rates[r], false, 1);
            check_dropout(k, rates[r], true, 3);
        }
    }
}

/* In place over x and over add; a second call with the same seed is the gradient's mask. */
static void dropout_in_place(void **state)
{
    float *x = (float *)draw(CKPT_F32, 1, N), *y = (float *)draw(CKPT_F32, 1, N);
    float *sum = (float *)draw(CKPT_F32, 2, N);
    zt_device *d = device(2);

    (void)state;
    for (int i = 0; i < N; i++)
        y[i] = 1;
    zt_cpu_dropout(d, CKPT_F32, &(zt_dropout){.n = N, .seed = 4, .p = 0.3F, .x = y, .y = y});
    zt_cpu_dropout(d, CKPT_F32,
                   &(zt_dropout){.n = N, .seed = 4, .p = 0.3F, .x = x, .add = sum, .y = sum});
    zt_cpu_dropout(d, CKPT_F32, &(zt_dropout){.n = N, .seed = 4, .p = 0.3F, .x = x, .y = x});
    float *other = (float *)draw(CKPT_F32, 2, N), *first = (float *)draw(CKPT_F32, 1, N);
    for (int i = 0; i < N; i++) {
        assert_true(y[i] == 0 || y[i] == (float)(1 / (1 - (double)0.3F)));
        assert_true(x[i] == first[i] * y[i]);
        assert_true(sum[i] == first[i] * y[i] + other[i]);
    }
    done(d);
    free(x), free(y), free(sum), free(other), free(first);
}

static void dropout_refused(void **state)
{
    float x[2] = {1, 2};
    const float rates[] = {-0.1F, 1.1F, NAN};
    ckpt_err err = {0};

    (void)state;
    for (int i = 0; i < 4; i++) {
        zt_device *d = device(1);
        const zt_dropout a = {.n = 2, .p = i < 3 ? rates[i] : 0.5F, .x = i < 3 ? x : NULL, .y = x};

        zt_cpu_dropout(d, CKPT_F32, &a);
        assert_int_not_equal(zt_device_check(d, &err), CKPT_OK);
        assert_true(x[0] == 1 && x[1] == 2);
        err = (ckpt_err){0};
        zt_device_free(d);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rope),
        cmocka_unit_test(rope_refused),
        cmocka_unit_test(dropout),
        cmocka_unit_test(dropout_in_place),
        cmocka_unit_test(dropout_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
