/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_quant.c: ggml's quantized types against what ggml itself makes of the same values: CRC-32 of
 * the blocks of its reference quantizers and of the values that its dequantizers give, recorded
 * with ggml 0.25.3 (quantize_row_*_ref, dequantize_row_*; with importance: quantize_*).
 */
#include <math.h>

#include "libckpt/base/digest.h"
#include "libckpt/base/quant_row.h"
#include "libckpt/base/weigh.h"
#include "tests/unit/unit.h"

enum { KINDS = 12, SUPERS = 10 * KINDS, N = SUPERS * 256, ROW = 768 };

static uint32_t qt_state;

static uint32_t qt_draw(void)
{
    qt_state = qt_state * 1664525u + 1013904223u;
    return qt_state >> 8;
}

/* A whole number of -32768..32767, scaled by a power of two: the same float everywhere. */
static float qt_number(int scale)
{
    float x = (float)((int)(qt_draw() & 0xffff) - 32768);

    for (; scale < 0; scale++)
        x *= 0.5f;
    for (; scale > 0; scale--)
        x *= 2.0f;
    return x;
}

/* A number near zero more often than not, as weights are. */
static float qt_weight(int scale)
{
    return qt_number(scale) + qt_number(scale) + qt_number(scale) + qt_number(scale);
}

/* Super-blocks of many kinds: what weights look like, and what algorithms stumble over. */
static float qt_value(int kind, int i)
{
    switch (kind) {
    case 0:
        return qt_weight(-20);
    case 1:
        return qt_number(-16) + 0.5f; // positive
    case 2:
        return qt_number(-16) - 0.5f; // negative
    case 3:
        return 0;
    case 4:
        return qt_weight(qt_draw() % 50 == 0 ? -12 : -22); // outliers
    case 5:
        return 1.5f;
    case 6:
        return qt_weight(-80);
    case 7:
        return qt_weight(-146); // scales are subnormal, or nothing
    case 8:
        return qt_weight(-18 - i / 16 * 2); // runs of different sizes
    case 9:
        return qt_weight(-20 + (int)(qt_draw() % 40));
    case 10:
        return (float)(i % 3 - 1);
    default:
        return i % 7 ? 0 : qt_weight(-20);
    }
}

static float *qt_values(void)
{
    float *x = malloc(N * sizeof *x);

    assert_non_null(x);
    qt_state = 1;
    for (int i = 0; i < N; i++)
        x[i] = qt_value(i / 256 % KINDS, i % 256);
    return x;
}

/* Bytes as blocks, of which no scale is a NaN, whose bits nobody promises. */
static uint8_t *qt_bytes(size_t n)
{
    uint8_t *p = malloc(n);

    assert_non_null(p);
    qt_state = 7;
    for (size_t i = 0; i < n; i++)
        p[i] = (uint8_t)(qt_draw() & 0x3f);
    return p;
}

static size_t qt_size(ckpt_dtype d, size_t n)
{
    uint64_t bytes = 0;

    assert_true(ckpt_dtype_bytes(d, n, &bytes));
    return (size_t)bytes;
}

/* Importance of the same values: also none, and of very different sizes. */
static float *qt_importance(void)
{
    float *w = malloc(N * sizeof *w);

    assert_non_null(w);
    qt_state = 5;
    for (int i = 0; i < N; i++) {
        w[i] = fabsf(qt_number(i / 256 % 3 == 0 ? -15 : -25 + (int)(qt_draw() % 20)));
        w[i] = qt_draw() % 8 == 0 ? 0 : w[i];
    }
    return w;
}

static const struct {
    ckpt_dtype d;
    uint32_t blocks, values; /* CRC-32; blocks 0: never written */
} qt_want[] = {
    {CKPT_Q4_0, 0xef694cc0, 0xb206cbd7}, {CKPT_Q4_1, 0xa00c9382, 0xd5440cce},
    {CKPT_Q5_0, 0xce1e87f5, 0x31ef15f9}, {CKPT_Q5_1, 0x0ca64d73, 0x3b358120},
    {CKPT_Q8_0, 0x078d0f2a, 0x0a2cb776}, {CKPT_Q2_K, 0xca44e67f, 0xdfdb5833},
    {CKPT_Q3_K, 0x5a236580, 0x5bccdea0}, {CKPT_Q4_K, 0x9ea54372, 0xb6593a02},
    {CKPT_Q5_K, 0x12cc261b, 0xe8bfa598}, {CKPT_Q6_K, 0xa9a3c202, 0x917f874a},
    {CKPT_Q8_K, 0, 0xe90188c6},          {CKPT_IQ4_NL, 0, 0x18206ae7},
    {CKPT_IQ4_XS, 0, 0x364bf1a9},        {CKPT_TQ1_0, 0, 0x9aa1a13a},
    {CKPT_TQ2_0, 0, 0xa2614505},         {CKPT_MXFP4, 0x06609940, 0xa0d5d6e4},
    {CKPT_NVFP4, 0, 0x421aff07},
};

enum { TYPES = sizeof qt_want / sizeof *qt_want };

/* The portable quantizer of a type, or NULL. */
static ckpt_cast_fn qt_portable(ckpt_dtype d)
{
    static const ckpt_cast_fn fn[] = {
        ckpt_quant_q4_0, ckpt_quant_q4_1, ckpt_quant_q5_0, ckpt_quant_q5_1, ckpt_quant_q8_0,
        ckpt_quant_q2_k, ckpt_quant_q3_k, ckpt_quant_q4_k, ckpt_quant_q5_k, ckpt_quant_q6_k};

    if (d == CKPT_MXFP4)
        return ckpt_quant_mxfp4;
    return d >= CKPT_Q4_0 && d <= CKPT_Q6_K ? fn[d - CKPT_Q4_0] : NULL;
}

static void blocks_are_those_of_ggml(void **state)
{
    float *x = qt_values();

    (void)state;
    for (size_t t = 0; t < TYPES; t++) {
        size_t n = qt_size(qt_want[t].d, N);
        ckpt_cast_fn fn = qt_portable(qt_want[t].d);
        uint8_t *out = malloc(n);

        assert_non_null(out);
        assert_int_equal(fn != NULL, qt_want[t].blocks != 0);
        if (fn) {
            fn(out, x, N);
            if (ckpt_crc32(0, out, n) != qt_want[t].blocks)
                fail_msg("%s: other blocks", ckpt_dtype_name(qt_want[t].d));
        }
        free(out);
    }
    free(x);
}

static void values_are_those_of_ggml(void **state)
{
    (void)state;
    for (size_t t = 0; t < TYPES; t++) {
        size_t n = qt_size(qt_want[t].d, N);
        uint8_t *p = qt_bytes(n);
        float *x = malloc(N * sizeof *x);

        assert_non_null(x);
        ckpt_dequant_find(qt_want[t].d)(x, p, N);
        if (ckpt_crc32(0, x, N * sizeof *x) != qt_want[t].values)
            fail_msg("%s: other values", ckpt_dtype_name(qt_want[t].d));
        free(x);
        free(p);
    }
}

/* Rows of super-blocks and of blocks whose number the bodies' sixteen runs do not divide. */
static void weighted_blocks_are_those_of_ggml(void **state)
{
    static const struct {
        ckpt_dtype d;
        uint32_t blocks;
    } want[] = {
        {CKPT_Q4_0, 0x8cdeada9}, {CKPT_Q4_1, 0x4a9b31ff}, {CKPT_Q5_0, 0x0e395127},
        {CKPT_Q5_1, 0x6b64edd1}, {CKPT_Q2_K, 0x17ea2f90}, {CKPT_Q3_K, 0x30e80a3e},
        {CKPT_Q4_K, 0x9e8fe9f6}, {CKPT_Q5_K, 0x851e00fb}, {CKPT_Q6_K, 0x4bac5920},
    };
    unsigned bodies = 0;
    float *x = qt_values(), *w = qt_importance();

    (void)state;
    while (ckpt_qk_body_at(bodies))
        bodies++;
    for (size_t t = 0; t < bodies * sizeof want / sizeof *want; t++) {
        const ckpt_dtype d = want[t / bodies].d;
        const ckpt_qk_body *body = ckpt_qk_body_at((unsigned)(t % bodies));
        size_t n = qt_size(d, N), row = qt_size(d, ROW);
        uint8_t *out = malloc(n);

        assert_non_null(out);
        assert_true(ckpt_dtype_weighs(d));
        for (size_t i = 0; i < N / ROW; i++)
            ckpt_quant_row(d, body, out + i * row, x + i * ROW, w + i * ROW, ROW);
        if (ckpt_crc32(0, out, n) != want[t / bodies].blocks)
            fail_msg("%s: other blocks, with body %d of %u: %08x", ckpt_dtype_name(d),
                     (int)(t % bodies), bodies, ckpt_crc32(0, out, n));
        free(out);
    }
    assert_false(ckpt_dtype_weighs(CKPT_Q8_0));
    free(w);
    free(x);
}

/* Every body for this processor, without weights. */
static void k_bodies_give_the_same_bits(void **state)
{
    static const ckpt_dtype types[] = {CKPT_Q2_K, CKPT_Q3_K, CKPT_Q4_K, CKPT_Q5_K, CKPT_Q6_K};
    float *x = qt_values();

    (void)state;
    for (size_t t = 0; t < sizeof types / sizeof *types; t++) {
        const size_t n = qt_size(types[t], N);
        uint8_t *a = malloc(n), *b = malloc(n);

        assert_true(a && b);
        ckpt_quant_k(types[t], &ckpt_qk_portable, a, x, NULL, N);
        for (unsigned i = 0; ckpt_qk_body_at(i); i++) {
            memset(b, 0, n);
            ckpt_quant_k(types[t], ckpt_qk_body_at(i), b, x, NULL, N);
            assert_memory_equal(a, b, n);
        }
        free(a);
        free(b);
    }
    free(x);
}

/* The bodies for this processor, at every length and alignment. */
static void bodies_give_the_same_bits(void **state)
{
    float *x = qt_values();
    uint8_t *raw = malloc(N * sizeof *x + 1);

    (void)state;
    assert_non_null(raw);
    memcpy(raw + 1, x, N * sizeof *x);
    for (size_t t = 0; t < TYPES; t++) {
        ckpt_cast_fn fast = ckpt_cast_find(qt_want[t].d, CKPT_F32);
        ckpt_cast_fn slow = qt_portable(qt_want[t].d);
        size_t per = ckpt_dtype_get(qt_want[t].d)->per, n = qt_size(qt_want[t].d, N);
        uint8_t *a = malloc(n), *b = malloc(n);

        assert_non_null(a);
        assert_non_null(b);
        for (size_t some = N; slow && some >= per; some = some / 2 / per * per) {
            slow(a, x, some);
            fast(b, raw + 1, some);
            if (memcmp(a, b, qt_size(qt_want[t].d, some)) != 0)
                fail_msg("%s: another body gives other bits", ckpt_dtype_name(qt_want[t].d));
        }
        free(a);
        free(b);
    }
    free(raw);
    free(x);
}

/*
 * Values that are not finite, and any other bits: the same from both bodies, and no trap.  NaN is of
 * one kind, as a sum of two kinds has the bits of either, by the compiler's choice.
 */
static void any_bits_are_taken(void **state)
{
    uint8_t *raw = malloc(N * sizeof(float));

    (void)state;
    assert_non_null(raw);
    qt_state = 99;
    for (size_t i = 0; i < N * sizeof(float); i++)
        raw[i] = (uint8_t)qt_draw();
    for (size_t i = 0; i < N; i++) {
        float x;
        memcpy(&x, raw + i * sizeof x, sizeof x);
        if (isnan(x))
            memcpy(raw + i * sizeof x, &(uint32_t){0xffc00000u}, sizeof x);
    }
    for (size_t t = 0; t < TYPES; t++) {
        ckpt_cast_fn fast = ckpt_cast_find(qt_want[t].d, CKPT_F32);
        ckpt_cast_fn slow = qt_portable(qt_want[t].d);
        size_t n = qt_size(qt_want[t].d, N);
        uint8_t *a = malloc(n), *b = malloc(n);

        assert_non_null(a);
        assert_non_null(b);
        if (slow) {
            slow(a, raw, N);
            fast(b, raw, N);
            assert_memory_equal(a, b, n);
        }
        free(a);
        free(b);
    }
    free(raw);
}

/* A block of values around those where MXFP4 changes codes, some of them `extreme`. */
static void qt_edges(float x[32], int scale, float extreme)
{
    static const float edge[] = {0, 0.5f, 1, 1.5f, 2, 2.5f, 3, 3.5f, 4, 5, 6, 7, 8, 10, 12};

    for (int i = 0; i < 32; i++) {
        const uint32_t draw = qt_draw();
        const float v = ldexpf(edge[draw % 15], scale);

        x[i] = draw & 16 ? nextafterf(v, draw & 32 ? INFINITY : 0) : v;
        x[i] = draw & 64 ? -x[i] : x[i];
        x[i] = draw & 128 && scale > 124 ? extreme : x[i];
    }
}

/* Each code of MXFP4 is the nearest, by the definition: the first of equals in the order of codes. */
static void codes_are_the_nearest(void **state)
{
    static const float codes[] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

    static const float extreme[] = {3.4028234e38f, -3e38f, INFINITY, NAN};

    (void)state;
    qt_state = 3;
    for (int scale = -150; scale < 128; scale++) {
        for (int turn = 0; turn < 20; turn++) {
            float x[32], d;
            uint8_t block[17];

            qt_edges(x, scale, extreme[turn % 4]);
            ckpt_quant_mxfp4(block, x, 32);
            d = ckpt_quant_e8m0_half(block[0]);
            for (int i = 0; i < 32; i++) {
                int got = block[1 + i % 16] >> (i < 16 ? 0 : 4) & 15, best = 0;

                for (int k = 1; k < 16; k++)
                    best = fabsf(codes[k] * d - x[i]) < fabsf(codes[best] * d - x[i]) ? k : best;
                if (got != best)
                    fail_msg("%.9g by 2^%d: %d, expected %d", (double)x[i], block[0] - 128, got,
                             best);
            }
        }
    }
}

/* Other floats go through F32, in either direction. */
static void other_floats_go_through_f32(void **state)
{
    static const ckpt_dtype other[] = {CKPT_F64, CKPT_F16, CKPT_BF16};
    enum { SOME = 2304 };
    static float x[SOME], y[SOME];
    static uint8_t narrow[SOME * 8], a[SOME * 8], b[SOME * 8];
    float *all = qt_values();

    (void)state;
    for (size_t k = 0; k < sizeof other / sizeof *other; k++) {
        memcpy(x, all, sizeof x);
        ckpt_cast_find(other[k], CKPT_F32)(narrow, x, SOME);
        ckpt_cast_find(CKPT_F32, other[k])(x, narrow, SOME);
        ckpt_cast_find(CKPT_Q4_K, CKPT_F32)(a, x, SOME);
        ckpt_cast_find(CKPT_Q4_K, other[k])(b, narrow, SOME);
        assert_memory_equal(a, b, qt_size(CKPT_Q4_K, SOME));
        ckpt_cast_find(CKPT_F32, CKPT_Q4_K)(y, a, SOME);
        ckpt_cast_find(other[k], CKPT_F32)(b, y, SOME);
        ckpt_cast_find(other[k], CKPT_Q4_K)(narrow, a, SOME);
        assert_memory_equal(b, narrow, qt_size(other[k], SOME));
    }
    assert_null(ckpt_cast_find(CKPT_Q4_K, CKPT_Q8_0));
    assert_null(ckpt_cast_find(CKPT_F32, CKPT_IQ2_XS));
    assert_null(ckpt_cast_find(CKPT_Q8_K, CKPT_F32));
    free(all);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(blocks_are_those_of_ggml),
        cmocka_unit_test(weighted_blocks_are_those_of_ggml),
        cmocka_unit_test(values_are_those_of_ggml),
        cmocka_unit_test(bodies_give_the_same_bits),
        cmocka_unit_test(k_bodies_give_the_same_bits),
        cmocka_unit_test(any_bits_are_taken),
        cmocka_unit_test(codes_are_the_nearest),
        cmocka_unit_test(other_floats_go_through_f32),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
