/* SPDX-License-Identifier: Apache-2.0 */
/*
 * help.h: what the tests of the CPU device's operations share: random tensors, rounding,
 * comparison.
 *
 * References are computed in double precision from the values that the operation sees (after
 * rounding to dt).
 */
#ifndef TESTS_UNIT_ENGINE_DEVICE_HELP_H
#define TESTS_UNIT_ENGINE_DEVICE_HELP_H

#include <math.h>

#include "engine/device/device.h"
#include "libckpt/base/cast.h"
#include "tests/unit/unit.h"

static const ckpt_dtype dh_dtypes[] = {CKPT_F32, CKPT_BF16, CKPT_F16};

#define DH_EACH(i, array) for (size_t i = 0; i < sizeof(array) / sizeof *(array); i++)

/* A tensor on the host in dt; `v` are its values when it was made. */
typedef struct dh_tensor {
    ckpt_dtype dt;
    uint64_t n;
    void *p;
    float *v;
} dh_tensor;

static inline uint64_t dh_size(ckpt_dtype dt)
{
    return dt == CKPT_F32 ? 4 : 2;
}

static inline double dh_uniform(uint64_t *seed)
{
    *seed = *seed * 6364136223846793005u + 1442695040888963407u;
    return (double)(*seed >> 11) / 9007199254740992.0;
}

static inline void dh_read(const dh_tensor *t, float *out)
{
    ckpt_cast_find(CKPT_F32, t->dt)(out, t->p, t->n);
}

/* n values in -scale..scale. */
static inline dh_tensor dh_new(ckpt_dtype dt, uint64_t n, double scale, uint64_t seed)
{
    dh_tensor t = {dt, n, malloc(n * dh_size(dt) + 1), malloc(n * sizeof(float) + 1)};
    assert_non_null(t.p);
    assert_non_null(t.v);
    for (uint64_t i = 0; i < n; i++)
        t.v[i] = (float)((2.0 * dh_uniform(&seed) - 1.0) * scale);
    ckpt_cast_find(dt, CKPT_F32)(t.p, t.v, n);
    dh_read(&t, t.v);
    return t;
}

static inline void dh_free(dh_tensor *t)
{
    free(t->p);
    free(t->v);
}

/* Relative error of one rounding to dt. */
static inline double dh_eps(ckpt_dtype dt)
{
    return dt == CKPT_F32 ? 0x1p-23 : dt == CKPT_BF16 ? 0x1p-8 : 0x1p-11;
}

/*
 * Element i now is `expected`: within `roundings` of dt, and `noise` for fp32 arithmetic inside.
 */
typedef struct dh_bound {
    double roundings, noise;
} dh_bound;

static inline void dh_near(const dh_tensor *t, uint64_t i, double expected, dh_bound b)
{
    float got = 0;
    ckpt_cast_find(CKPT_F32, t->dt)(&got, (const char *)t->p + i * dh_size(t->dt), 1);
    double allowed = b.roundings * dh_eps(t->dt) * fabs(expected) + b.noise;
    allowed += t->dt == CKPT_F16 ? 0x1p-24 : 0;
    if (!(fabs((double)got - expected) <= allowed))
        fail_msg("element %llu of %llu: %.9g, expected %.9g within %.3g", (unsigned long long)i,
                 (unsigned long long)t->n, (double)got, expected, allowed);
}

static inline zt_device *dh_device(unsigned threads)
{
    zt_device *d = NULL;
    ckpt_err err = {0};
    assert_int_equal(zt_cpu_new(&d, threads, &err), CKPT_OK);
    assert_non_null(d);
    return d;
}

static inline void dh_done(zt_device *d)
{
    ckpt_err err = {0};
    if (zt_device_check(d, &err) != CKPT_OK)
        fail_msg("%s", err.text);
    zt_device_free(d);
}

/* The first result is kept, later ones (of other numbers of threads) must have the same bits. */
static inline void dh_same(void **first, const dh_tensor *t)
{
    if (!*first) {
        *first = malloc(t->n * dh_size(t->dt) + 1);
        assert_non_null(*first);
        memcpy(*first, t->p, t->n * dh_size(t->dt));
    }
    assert_memory_equal(*first, t->p, t->n * dh_size(t->dt));
}

static inline double dh_act(zt_act act, double x)
{
    switch (act) {
    case ZT_GELU:
        return 0.5 * x * (1 + erf(x / sqrt(2.0)));
    case ZT_GELU_TANH:
        return 0.5 * x * (1 + tanh(sqrt(2.0 / acos(-1.0)) * (x + 0.044715 * x * x * x)));
    case ZT_RELU:
        return x > 0 ? x : 0;
    case ZT_TANH:
        return tanh(x);
    case ZT_SILU:
        return x / (1 + exp(-x));
    case ZT_ACT_NONE:
    default:
        return x;
    }
}

/* Derivative by central difference; exact enough for fp32 (relu: not at 0). */
static inline double dh_slope(zt_act act, double x)
{
    if (act == ZT_RELU)
        return x > 0;
    double h = 1e-5;
    return (dh_act(act, x + h) - dh_act(act, x - h)) / (2 * h);
}

#endif
