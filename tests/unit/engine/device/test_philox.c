/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_philox.c: dropout's factors against the generator's known answers and the
 * definition of its streams, and the moments of what is drawn.
 */
#include <math.h>

#include "engine/device/formulas.h"
#include "engine/device/philox.h"
#include "engine/model/model.h"
#include "tests/unit/unit.h"

/* Element i of a seed's words, by the definition in philox.h. */
static uint32_t word(uint64_t seed, uint64_t i)
{
    return zt_philox_block(seed, i / 64 * 16 + i % 16, 0).v[i % 64 / 16];
}

/* A word's upper 24 bits as a number in [0, 1). */
static float uniform(uint32_t w)
{
    return (float)(w >> 8) * 0x1p-24F;
}

/* The first line "philox4x32 10" of kat_vectors in Random123: block 0 of seed 0. */
static void known_answers(void **state)
{
    static const uint32_t answers[] = {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8};

    (void)state;
    for (uint64_t i = 0; i < 4; i++) {
        const float at = uniform(answers[i]);
        float low = 0, high = 0;

        assert_int_equal(word(0, i * 16), answers[i]);
        zt_philox_keep(0, at, i * 16, 1, &low);
        zt_philox_keep(0, at + 0x1p-24F, i * 16, 1, &high);
        assert_true(low > 1 && high == 0);
    }
}

static void keep_is_a_comparison(void **state)
{
    const uint64_t seed = UINT64_C(0x9234567890abcdef);
    // the last ones cross a carry into the counter's upper word
    const uint64_t starts[] = {0, 1, 63, 64, 130, (UINT64_C(1) << 34) - 7, (UINT64_C(1) << 34)};
    const float rates[] = {0.0F, 1e-8F, 0.1F, 0.5F, 0.999F, 1.0F};

    (void)state;
    for (size_t r = 0; r < sizeof rates / sizeof *rates; r++) {
        const float p = rates[r];
        const float factor = p < 1 ? (float)(1.0 / (1.0 - (double)p)) : 0;

        for (size_t s = 0; s < sizeof starts / sizeof *starts; s++) {
            for (uint64_t n = 0; n < 150; n += 29) {
                float out[151];

                out[n] = -1;
                zt_philox_keep(seed, p, starts[s], n, out);
                for (uint64_t i = 0; i < n; i++)
                    assert_true(out[i] == (uniform(word(seed, starts[s] + i)) >= p ? factor : 0));
                assert_true(out[n] == -1);
            }
        }
    }
}

enum { MANY = 200000 };

/* Means of n draws lie within five standard errors. */
static void moments(void **state)
{
    float *x = (float *)malloc(MANY * sizeof *x);
    double sum = 0, square = 0, cube = 0, fourth = 0, beside = 0, kept = 0;
    const double n = MANY;

    (void)state;
    assert_non_null(x);
    zt_philox_normal(42, 1.0, 0, MANY, x);
    for (int i = 0; i < MANY; i++) {
        const double v = (double)x[i];

        sum += v;
        square += v * v;
        cube += v * v * v;
        fourth += v * v * v * v;
        beside += i > 0 ? v * (double)x[i - 1] : 0;
    }
    assert_true(fabs(sum / n) < 5 / sqrt(n));
    assert_true(fabs(square / n - 1) < 5 * sqrt(2 / n));
    assert_true(fabs(cube / n) < 5 * sqrt(15 / n));
    assert_true(fabs(fourth / n - 3) < 5 * sqrt(96 / n));
    assert_true(fabs(beside / n) < 5 / sqrt(n));
    zt_philox_keep(42, 0.1F, 0, MANY, x);
    for (int i = 0; i < MANY; i++)
        kept += x[i] > 0;
    assert_true(fabs(kept / n - 0.9) < 5 * sqrt(0.09 / n));
    free(x);
}

/* Any part can be drawn alone; the deviation only scales. */
static void normal_in_parts(void **state)
{
    float whole[101], part[101];

    (void)state;
    zt_philox_normal(7, 0.02, 1000, 101, whole);
    for (uint64_t from = 0; from < 101; from += 7) {
        const uint64_t n = from + 7 <= 101 ? 7 : 101 - from;

        zt_philox_normal(7, 0.02, 1000 + from, n, part + from);
    }
    assert_memory_equal(whole, part, sizeof whole);
    zt_philox_normal(8, 0.02, 1000, 101, part);
    assert_memory_not_equal(whole, part, sizeof whole);
    zt_philox_normal(7, 2.0, 1000, 101, part);
    for (int i = 0; i < 101; i++)
        assert_true(fabs((double)part[i] - 100 * (double)whole[i]) <= 1e-6 * fabs((double)part[i]));
}

/* ---- initial values of parameters -------------------------------------------------------- */

enum { WEIGHT, BIAS, NORM, WORDS, OTHER };

static zt_param params[] = {
    {.name = "bert.encoder.layer.0.output.dense.weight", .n_elems = 60, .init_std = 0.02F},
    {.name = "bert.pooler.dense.bias", .n_elems = 60, .init = ZT_INIT_ZERO, .init_std = 0.02F},
    {.name = "bert.embeddings.LayerNorm.weight", .n_elems = 60, .init = ZT_INIT_ONE},
    {.name = "bert.embeddings.word_embeddings.weight",
     .ndim = 2,
     .shape = {10, 6},
     .n_elems = 60,
     .init_std = 0.02F},
    {.name = "bert.encoder.layer.1.output.dense.weight", .n_elems = 60, .init_std = 0.02F},
};

static zt_model model(void)
{
    zt_model m = {.params = {.at = params, .n = 5}};

    m.config.vocab = 10;
    m.config.hidden = 6;
    m.config.padding = 3;
    return m;
}

static void initial_values(void **state)
{
    const zt_model m = model();
    float x[60], y[60];

    (void)state;
    zt_model_draw(&m, BIAS, 1, 0, 60, x);
    zt_model_draw(&m, NORM, 1, 0, 60, y);
    for (int i = 0; i < 60; i++)
        assert_true(x[i] == 0 && y[i] == 1);
    zt_model_draw(&m, WEIGHT, 1, 0, 60, x);
    for (int i = 0; i < 60; i++)
        assert_true(x[i] != 0 && fabs((double)x[i]) < 0.02 * 6);
    zt_model_draw(&m, OTHER, 1, 0, 60, y);
    assert_memory_not_equal(x, y, sizeof x);
    zt_model_draw(&m, WEIGHT, 2, 0, 60, y);
    assert_memory_not_equal(x, y, sizeof x);
    // in parts, as ranks do
    zt_model_draw(&m, WEIGHT, 1, 0, 13, y);
    zt_model_draw(&m, WEIGHT, 1, 13, 47, y + 13);
    assert_memory_equal(x, y, sizeof x);
}

/* The row of the padding token is zero, wherever a part begins; tables of others are not. */
static void padding_row(void **state)
{
    zt_model m = model();
    float whole[60], part[60];

    (void)state;
    zt_model_draw(&m, WORDS, 1, 0, 60, whole);
    for (uint64_t i = 0; i < 60; i++)
        assert_int_equal(whole[i] == 0, i / 6 == 3);
    for (uint64_t i = 0; i < 60; i += 5)
        zt_model_draw(&m, WORDS, 1, i, 5, part + i);
    assert_memory_equal(whole, part, sizeof whole);
    m.config.padding = -1;
    zt_model_draw(&m, WORDS, 1, 0, 60, whole);
    for (uint64_t i = 0; i < 60; i++)
        assert_true(whole[i] != 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(known_answers),  cmocka_unit_test(keep_is_a_comparison),
        cmocka_unit_test(moments),        cmocka_unit_test(normal_in_parts),
        cmocka_unit_test(initial_values), cmocka_unit_test(padding_row),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
