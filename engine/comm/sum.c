/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sum.c: implements the loops that reduce the values of several ranks.
 *
 * Blocks that fit the first-level cache are summed in a local array and then stored, so `to` may be
 * one of the sources and the compiler still sees loops without aliases, which it vectorises (-O3).
 * There is one body per type for all machines, because the loops wait for memory: wider vectors
 * gained nothing in measurements.
 */
#include "engine/comm/sum.h"

#include <assert.h>
#include <string.h>

#include "libckpt/base/cast.h"

enum { SUM_BLOCK = 2048 }; /* elements: at most 16 KiB */

/*
 * A block's running result, and room for a converted source.  Aligned to 64, so vectors never
 * straddle cache lines.
 */
typedef struct sum_block {
    _Alignas(64) union {
        float f32[SUM_BLOCK];
        double f64[SUM_BLOCK];
        uint32_t u32[SUM_BLOCK];
        uint64_t u64[SUM_BLOCK];
    } acc;
    _Alignas(64) float wide[SUM_BLOCK];
} sum_block;

/*
 * acc = acc op x for one type.  `sum`, `larger`, `smaller` are expressions of a (the result so far)
 * and b (the next rank's element); the latter two are true if b is taken.
 */
#define SUM_FOLD(name, type, sum, larger, smaller)                                                 \
    static void name(type *restrict acc, const type *restrict x, size_t n, zt_reduce op)           \
    {                                                                                              \
        if (op == ZT_SUM) {                                                                        \
            for (size_t i = 0; i < n; i++) {                                                       \
                type a = acc[i], b = x[i];                                                         \
                acc[i] = (sum);                                                                    \
            }                                                                                      \
        } else if (op == ZT_MAX) {                                                                 \
            for (size_t i = 0; i < n; i++) {                                                       \
                type a = acc[i], b = x[i];                                                         \
                acc[i] = (larger) ? b : a;                                                         \
            }                                                                                      \
        } else {                                                                                   \
            for (size_t i = 0; i < n; i++) {                                                       \
                type a = acc[i], b = x[i];                                                         \
                acc[i] = (smaller) ? b : a;                                                        \
            }                                                                                      \
        }                                                                                          \
    }

// a NaN in b is taken; a NaN in a stays, because no comparison with it holds
SUM_FOLD(sum_fold_f32, float, a + b, b > a || b != b, b < a || b != b)
SUM_FOLD(sum_fold_f64, double, a + b, b > a || b != b, b < a || b != b)
// unsigned, so sums wrap; flipping the sign bit gives the order of signed numbers
SUM_FOLD(sum_fold_i32, uint32_t, a + b, (b ^ 0x80000000u) > (a ^ 0x80000000u),
         (b ^ 0x80000000u) < (a ^ 0x80000000u))
SUM_FOLD(sum_fold_i64, uint64_t, a + b, (b ^ 1ull << 63) > (a ^ 1ull << 63),
         (b ^ 1ull << 63) < (a ^ 1ull << 63))

/* Sum two sources in one pass, because two are the usual case. */
static void sum_pair_f32(float *restrict acc, const float *restrict a, const float *restrict b,
                         size_t n)
{
    for (size_t i = 0; i < n; i++)
        acc[i] = a[i] + b[i];
}

static void sum_fold(sum_block *s, const unsigned char *x, size_t n, ckpt_dtype dt, zt_reduce op)
{
    ckpt_cast_fn widen;

    // x may have only the alignment of its type
    if (dt == CKPT_F32) {
        sum_fold_f32(s->acc.f32, (const float *)(const void *)x, n, op);
    } else if (dt == CKPT_F64) {
        sum_fold_f64(s->acc.f64, (const double *)(const void *)x, n, op);
    } else if (dt == CKPT_I32) {
        sum_fold_i32(s->acc.u32, (const uint32_t *)(const void *)x, n, op);
    } else if (dt == CKPT_I64) {
        sum_fold_i64(s->acc.u64, (const uint64_t *)(const void *)x, n, op);
    } else {
        widen = ckpt_cast_find(CKPT_F32, dt);
        widen(s->wide, x, n);
        sum_fold_f32(s->acc.f32, s->wide, n, op);
    }
}

void zt_sum(void *to, const void *const *from, int world, uint64_t n, ckpt_dtype dt, zt_reduce op)
{
    sum_block s;
    bool narrow = dt == CKPT_F16 || dt == CKPT_BF16;
    size_t size = ckpt_dtype_get(dt)->bits / 8;
    ckpt_cast_fn widen = narrow ? ckpt_cast_find(CKPT_F32, dt) : NULL;
    ckpt_cast_fn back = narrow ? ckpt_cast_find(dt, CKPT_F32) : NULL;

    assert(world > 0 && (op == ZT_SUM || op == ZT_MAX || op == ZT_MIN));
    assert(narrow || dt == CKPT_F32 || dt == CKPT_F64 || dt == CKPT_I32 || dt == CKPT_I64);
    for (uint64_t at = 0; at < n; at += SUM_BLOCK) {
        size_t m = n - at < SUM_BLOCK ? (size_t)(n - at) : SUM_BLOCK, skip = (size_t)at * size;
        unsigned char *out = (unsigned char *)to + skip;
        const unsigned char *x = (const unsigned char *)from[0] + skip;
        int q = 1;

        if (narrow) {
            widen(s.acc.f32, x, m);
        } else if (dt == CKPT_F32 && op == ZT_SUM && world > 1) {
            const unsigned char *y = (const unsigned char *)from[q++] + skip;

            sum_pair_f32(s.acc.f32, (const float *)(const void *)x, (const float *)(const void *)y,
                         m);
        } else {
            memcpy(&s.acc, x, m * size);
        }
        for (; q < world; q++)
            sum_fold(&s, (const unsigned char *)from[q] + skip, m, dt, op);
        if (narrow)
            back(out, s.acc.f32, m);
        else
            memcpy(out, &s.acc, m * size);
    }
}
