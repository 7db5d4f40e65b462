/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_help.h: what the tests of a CUDA plugin's operations share: a tensor on two devices, and the
 * comparison.
 *
 * Every operation runs on the processor's device and on the plugin's with the same numbers.  Where
 * both do the same roundings in the same order the bits must be equal; else results may differ by a
 * bound that the test gives: so many roundings to the dtype, and the noise of fp32 sums.
 */
#ifndef GPU_TEST_HELP_H
#define GPU_TEST_HELP_H

#include <dlfcn.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/device/device.h"
#include "libckpt/base/cast.h"

#define EACH(i, array) for (size_t i = 0; i < sizeof(array) / sizeof *(array); i++)

static const ckpt_dtype dtypes[] = {CKPT_F32, CKPT_BF16, CKPT_F16};

/* The two devices, and the verdict on the case in progress. */
static zt_device *cpu, *gpu;
static unsigned n_passed, n_failed;
static bool case_ok;
static char case_name[200];

static inline void fail(const char *what, uint64_t at, double got, double expected)
{
    if (case_ok) { // one line per case
        printf("FAIL %s: %s %llu: %.9g, the processor has %.9g\n", case_name, what,
               (unsigned long long)at, got, expected);
    }
    case_ok = false;
}

#define CASE(...)                                                                                  \
    do {                                                                                           \
        snprintf(case_name, sizeof case_name, __VA_ARGS__);                                        \
        case_ok = true;                                                                            \
    } while (0)

#define EXPECT(what)                                                                               \
    do {                                                                                           \
        if (!(what)) {                                                                             \
            fail(#what ", line", __LINE__, 0, 1);                                                  \
        }                                                                                          \
    } while (0)

/* The end of a case: neither device may have failed. */
static inline void case_end(void)
{
    ckpt_err err = {0};
    gpu->ops->sync(gpu);
    if (zt_device_check(gpu, &err) != CKPT_OK || zt_device_check(cpu, &err) != CKPT_OK) {
        printf("%s\n", err.text);
        fail("a device has failed", 0, 0, 0);
    }
    n_passed += case_ok;
    n_failed += !case_ok;
}

static inline uint64_t size_of(ckpt_dtype dt)
{
    return dt == CKPT_F32 ? 4 : 2;
}

/* Relative error of one rounding to dt. */
static inline double eps_of(ckpt_dtype dt)
{
    return dt == CKPT_F32 ? 0x1p-23 : dt == CKPT_BF16 ? 0x1p-8 : 0x1p-11;
}

static inline double uniform(uint64_t *seed)
{
    *seed = *seed * 6364136223846793005u + 1442695040888963407u;
    return (double)(*seed >> 11) / 9007199254740992.0;
}

/* A tensor on both devices: c on the processor (host memory), g on the GPU. */
typedef struct pair {
    ckpt_dtype dt;
    uint64_t n;
    char *c, *g;
    char *c_base, *g_base;
    char *got; /* fetch(): what is on the GPU */
} pair;

/* The same bytes on both; `skew` elements behind an aligned address. */
static inline pair pair_from(ckpt_dtype dt, uint64_t n, const void *bytes, uint64_t skew)
{
    uint64_t size = size_of(dt);
    pair p = {dt, n, NULL, NULL, NULL, NULL, NULL};
    p.c_base = cpu->ops->alloc(cpu, (n + skew) * size + 1);
    p.g_base = gpu->ops->alloc(gpu, (n + skew) * size + 1);
    p.got = calloc(n + 1, size);
    if (!p.c_base || !p.g_base || !p.got) {
        printf("out of memory\n");
        exit(2);
    }
    p.c = p.c_base + skew * size;
    p.g = p.g_base + skew * size;
    memcpy(p.c, bytes, n * size);
    gpu->ops->put(gpu, p.g, bytes, n * size);
    return p;
}

/* Values in -scale..scale. */
static inline pair pair_new(ckpt_dtype dt, uint64_t n, double scale, uint64_t seed, uint64_t skew)
{
    float *v = calloc(n + 1, sizeof *v);
    char *bytes = calloc(n + 1, sizeof *v);
    for (uint64_t i = 0; i < n; i++)
        v[i] = (float)((2.0 * uniform(&seed) - 1.0) * scale);
    ckpt_cast_find(dt, CKPT_F32)(bytes, v, n);
    pair p = pair_from(dt, n, bytes, skew);
    free(v);
    free(bytes);
    return p;
}

static inline void pair_free(pair *p)
{
    cpu->ops->release(cpu, p->c_base);
    gpu->ops->release(gpu, p->g_base);
    free(p->got);
}

static inline void pairs_free(pair *p, size_t n)
{
    for (size_t i = 0; i < n; i++)
        pair_free(&p[i]);
}

static inline void fetch(pair *p)
{
    gpu->ops->get(gpu, p->got, p->g, p->n * size_of(p->dt));
}

static inline float value_at(ckpt_dtype dt, const char *p, uint64_t i)
{
    float x = 0;
    ckpt_cast_find(CKPT_F32, dt)(&x, p + i * size_of(dt), 1);
    return x;
}

/* roundings: to dt, relative; noise: absolute. */
static inline void near(pair *p, double roundings, double noise)
{
    fetch(p);
    for (uint64_t i = 0; i < p->n; i++) {
        double c = (double)value_at(p->dt, p->c, i), g = (double)value_at(p->dt, p->got, i);
        double most = roundings * eps_of(p->dt) * fmax(fabs(c), fabs(g)) + noise;
        most += p->dt == CKPT_F16 && roundings > 0 ? 0x1p-23 : 0;
        if (!((isnan(c) && isnan(g)) || c == g || fabs(c - g) <= most)) {
            fail("element", i, g, c);
            return;
        }
    }
}

/*
 * Of 16-bit results nearly all must have equal bits, too: a rounding goes the other way only where
 * fp32 noise crosses half way between two values.  A rounding too many, or in the wrong place,
 * changes a quarter and more.
 */
static inline void mostly_same(pair *p)
{
    uint64_t differ = 0, size = size_of(p->dt);
    fetch(p);
    for (uint64_t i = 0; i < p->n; i++)
        differ += memcmp(p->c + i * size, p->got + i * size, size) != 0;
    if (size == 2 && p->n >= 64 && differ > p->n / 20)
        fail("elements with other bits", differ, (double)differ, 0);
}

/* Equal bits; NaNs may differ in theirs. */
static inline void same(pair *p)
{
    fetch(p);
    uint64_t size = size_of(p->dt);
    for (uint64_t i = 0; i < p->n; i++) {
        float c = value_at(p->dt, p->c, i), g = value_at(p->dt, p->got, i);
        if (memcmp(p->c + i * size, p->got + i * size, size) != 0 && !(isnan(c) && isnan(g))) {
            fail("bits of element", i, (double)g, (double)c);
            return;
        }
    }
}

static inline int32_t *ints_to_gpu(const int32_t *x, uint64_t n)
{
    int32_t *p = gpu->ops->alloc(gpu, (n + 1) * sizeof *x);
    gpu->ops->put(gpu, p, x, n * sizeof *x);
    return p;
}

typedef int new_device(zt_device **out, int ordinal, bool deterministic, ckpt_err *err);
static new_device *new_gpu;

/* Open the plugin that the command line names, and both devices; 0, or the exit status. */
static inline int begin(int argc, char **argv)
{
    ckpt_err err = {0};
    void *plugin = argc == 2 ? dlopen(argv[1], RTLD_NOW | RTLD_LOCAL) : NULL;
    if (!plugin) {
        fprintf(stderr, "usage: %s PLUGIN (%s)\n", argv[0], argc == 2 ? dlerror() : "one argument");
        return 2;
    }
    void *symbol = dlsym(plugin, "zt_cuda_device_new");
    memcpy(&new_gpu, &symbol, sizeof symbol);
    if (!new_gpu || zt_cpu_new(&cpu, 1, &err) != CKPT_OK ||
        new_gpu(&gpu, 0, false, &err) != CKPT_OK) {
        fprintf(stderr, "no device: %s\n", err.text);
        return 2;
    }
    return 0;
}

/* Close them and tell the outcome; the exit status. */
static inline int end(const char *what)
{
    zt_device_free(gpu);
    zt_device_free(cpu);
    printf("gpu %s: %u passed, %u failed\n", what, n_passed, n_failed);
    return n_failed != 0;
}

#endif
