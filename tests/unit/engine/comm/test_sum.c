/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_sum.c: compares reductions over ranks with element-wise loops, for each type and operation,
 * sizes around the block of the implementation, and outputs that are one of the sources.
 */
#include <math.h>

#include "engine/comm/sum.h"
#include "libckpt/base/cast.h"
#include "tests/unit/unit.h"

enum { MOST = 2048 * 2 + 5, RANKS = 4 };

static uint64_t seed = 17;

static uint64_t draw(void)
{
    seed = seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return seed >> 20;
}

static union {
    float f32[MOST];
    double f64[MOST];
    int32_t i32[MOST];
    int64_t i64[MOST];
    uint16_t u16[MOST];
} from[RANKS], to;

/* Bytes of an element, which tell the types of the union apart with the dtype. */
static size_t size_of(ckpt_dtype dt)
{
    return dt == CKPT_F64 || dt == CKPT_I64 ? 8 : dt == CKPT_F32 || dt == CKPT_I32 ? 4 : 2;
}

static void fill(ckpt_dtype dt)
{
    ckpt_cast_fn narrow = size_of(dt) == 2 ? ckpt_cast_find(dt, CKPT_F32) : NULL;

    for (unsigned q = 0; q < RANKS; q++) {
        for (size_t i = 0; i < MOST; i++) {
            float x = (float)((double)(draw() & 0xffff) / 256 - 128);
            if (dt == CKPT_F32)
                from[q].f32[i] = x;
            else if (dt == CKPT_F64)
                from[q].f64[i] = (double)x / 3;
            else if (dt == CKPT_I32)
                from[q].i32[i] = (int32_t)(uint32_t)draw();
            else if (dt == CKPT_I64)
                from[q].i64[i] = (int64_t)(draw() << 21);
            else
                narrow(&from[q].u16[i], &x, 1);
        }
    }
}

static double pick(double a, double b, zt_reduce op)
{
    if (isnan(a) || isnan(b))
        return (double)NAN;
    return op == ZT_MAX ? (b > a ? b : a) : (b < a ? b : a);
}

/* Element i of the result of `world` ranks, by the definition. */
static void expected(void *out, ckpt_dtype dt, size_t i, int world, zt_reduce op)
{
    float f = 0, x = 0;
    double d = 0;
    uint64_t u = 0;

    for (int q = 0; q < world; q++) {
        if (dt == CKPT_I32 || dt == CKPT_I64) {
            int64_t next = dt == CKPT_I32 ? from[q].i32[i] : from[q].i64[i], now = (int64_t)u;
            bool take = q == 0 || (op == ZT_MAX ? next > now : next < now);
            u = op == ZT_SUM ? u + (uint64_t)next : take ? (uint64_t)next : u;
            continue;
        }
        if (dt == CKPT_F64) {
            double next = from[q].f64[i];
            d = q == 0 ? next : op == ZT_SUM ? d + next : pick(d, next, op);
            continue;
        }
        if (dt == CKPT_F32)
            x = from[q].f32[i];
        else
            ckpt_cast_find(CKPT_F32, dt)(&x, &from[q].u16[i], 1);
        f = q == 0 ? x : op == ZT_SUM ? f + x : (float)pick((double)f, (double)x, op);
    }
    if (dt == CKPT_F64)
        memcpy(out, &d, 8);
    else if (dt == CKPT_F32)
        memcpy(out, &f, 4);
    else if (size_of(dt) == 2)
        ckpt_cast_find(dt, CKPT_F32)(out, &f, 1);
    else
        memcpy(out, &u, size_of(dt)); // little-endian: the low half wraps
}

static void check(ckpt_dtype dt, zt_reduce op, int world, size_t n)
{
    const void *source[RANKS] = {&from[0], &from[1], &from[2], &from[3]};
    size_t size = size_of(dt);
    unsigned char want[8];

    memset(&to, 0xa5, sizeof to);
    zt_sum(&to, source, world, n, dt, op);
    for (size_t i = 0; i < n; i++) {
        expected(want, dt, i, world, op);
        if (memcmp((unsigned char *)&to + i * size, want, size) != 0)
            fail_msg("dtype %d, operation %d, %d ranks: element %zu of %zu", (int)dt, (int)op,
                     world, i, n);
    }
    // nothing behind the last element is written
    for (size_t i = n * size; i < sizeof to; i++)
        assert_int_equal(((unsigned char *)&to)[i], 0xa5);
}

static const ckpt_dtype dtypes[] = {CKPT_F32, CKPT_F64, CKPT_F16, CKPT_BF16, CKPT_I32, CKPT_I64};
static const zt_reduce operations[] = {ZT_SUM, ZT_MAX, ZT_MIN};

static void test_all(void **state)
{
    static const size_t sizes[] = {0, 1, 2047, 2048, 2049, MOST - 1};

    (void)state;
    for (size_t k = 0; k < sizeof dtypes / sizeof *dtypes; k++) {
        fill(dtypes[k]);
        for (size_t o = 0; o < sizeof operations / sizeof *operations; o++) {
            for (int world = 1; world <= RANKS; world++) {
                for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
                    check(dtypes[k], operations[o], world, sizes[i]);
            }
        }
    }
}

/* The output may be the memory of any rank. */
static void test_in_place(void **state)
{
    (void)state;
    for (unsigned q = 0; q < RANKS; q++) {
        const void *source[RANKS] = {&from[0], &from[1], &from[2], &from[3]};

        fill(CKPT_F32);
        zt_sum(&to, source, RANKS, MOST, CKPT_F32, ZT_SUM);
        zt_sum(&from[q], source, RANKS, MOST, CKPT_F32, ZT_SUM);
        assert_memory_equal(to.f32, from[q].f32, sizeof to.f32);
    }
}

/* The order of the ranks decides the rounding: 1e8 + 1 - 1e8 is 0 in fp32. */
static void test_order(void **state)
{
    const float a = 1e8F, b = 1, c = -1e8F;
    const void *left[] = {&a, &b, &c}, *right[] = {&a, &c, &b};
    float sum = 9;

    (void)state;
    zt_sum(&sum, left, 3, 1, CKPT_F32, ZT_SUM);
    assert_true(sum == 0);
    zt_sum(&sum, right, 3, 1, CKPT_F32, ZT_SUM);
    assert_true(sum == 1);
}

/* A narrow type is rounded once, at the end. */
static void test_one_rounding(void **state)
{
    const uint16_t large = 0x4380 /* 256 */, one = 0x3f80, half = 0x3f00;
    const void *source[] = {&large, &one, &half, &half};
    uint16_t sum = 0;

    (void)state;
    // bf16 has 8 bits: 256 + 1 would round to 256 at each step
    zt_sum(&sum, source, 4, 1, CKPT_BF16, ZT_SUM);
    assert_int_equal(sum, 0x4381); // 258
}

static void test_nan(void **state)
{
    const float number = 3, none = NAN;
    const void *first[] = {&none, &number}, *last[] = {&number, &none};
    float out = 0;

    (void)state;
    for (size_t o = 0; o < sizeof operations / sizeof *operations; o++) {
        zt_sum(&out, first, 2, 1, CKPT_F32, operations[o]);
        assert_true(isnan(out));
        out = 0;
        zt_sum(&out, last, 2, 1, CKPT_F32, operations[o]);
        assert_true(isnan(out));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_all),   cmocka_unit_test(test_in_place),
        cmocka_unit_test(test_order), cmocka_unit_test(test_one_rounding),
        cmocka_unit_test(test_nan),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
