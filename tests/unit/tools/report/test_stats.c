/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_stats.c: compares the statistics of tensors with sums over all elements in long double, and
 * checks counts, extremes and histograms of special values.
 */
#include <math.h>

#include "tests/unit/tools/report/help.h"
#include "tools/report/stats.h"

enum { LARGE = 3 * 65536 + 17 }; /* several blocks, and a rest */

static ckpt_err err;

static stats make(ckpt_map *map, unsigned jobs)
{
    const ckpt_run_opts run = {.jobs = jobs};
    stats s;

    err = (ckpt_err){0};
    if (stats_make(&s, map, &run, &err) != CKPT_OK)
        fail_msg("%s", err.text);
    return s;
}

static bool near(double a, double b, double tolerance)
{
    return fabs(a - b) <= tolerance * fabs(b);
}

/* Compare with the definitions, in one pass for each. */
static void check_against_sums(const tensor_stats *t, const double *x, size_t n)
{
    long double sum = 0, m2 = 0, squares = 0;
    double least = x[0], most = x[0];
    uint64_t in_bins = 0;

    for (size_t i = 0; i < n; i++) {
        const long double v = (long double)x[i];
        sum += v;
        squares += v * v;
        least = x[i] < least ? x[i] : least;
        most = x[i] > most ? x[i] : most;
    }
    for (size_t i = 0; i < n; i++)
        m2 += ((long double)x[i] - sum / n) * ((long double)x[i] - sum / n);
    assert_true(t->known);
    assert_int_equal(t->n, n);
    assert_true(t->min == least && t->max == most);
    assert_true(near(t->mean, (double)(sum / n), 1e-12));
    assert_true(near(t->std, (double)sqrtl(m2 / n), 1e-9));
    assert_true(near(t->norm, (double)sqrtl(squares), 1e-12));
    for (unsigned i = 0; i < t->n_bins; i++)
        in_bins += t->bin[i];
    assert_int_equal(in_bins, n - t->n_zero);
}

static void test_sums(void **state)
{
    static double x[LARGE];
    static float single[LARGE], back[LARGE];
    uint64_t seed = 3;
    ckpt_map *map = map_new();

    (void)state;
    // a small deviation around a large mean, which a plain sum of squares would lose
    for (size_t i = 0; i < LARGE; i++) {
        seed = seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        x[i] = 1e6 + (double)(seed >> 40) / (1 << 24);
        single[i] = (float)((double)(seed >> 40) / (1 << 24) - 0.5);
    }
    for (size_t i = 0; i < LARGE; i++)
        back[i] = -3;
    back[7] = 0;
    map_add(map, "x", CKPT_F64, LARGE, x);
    map_add(map, "single", CKPT_F32, LARGE, single);
    map_add(map, "back", CKPT_F32, LARGE, back);
    stats a = make(map, 1), b = make(map, 8);
    check_against_sums(&a.at[0], x, LARGE);
    for (size_t i = 0; i < LARGE; i++)
        x[i] = (double)single[i];
    check_against_sums(&a.at[1], x, LARGE);
    assert_int_equal(a.at[2].n_zero, 1);
    assert_int_equal(a.at[2].n_bins, 1);
    assert_int_equal(a.at[2].bin[0], LARGE - 1);
    // the number of threads does not matter, to the last bit
    for (size_t i = 0; i < 3; i++) {
        const tensor_stats *p = &a.at[i], *q = &b.at[i];
        assert_memory_equal(&p->mean, &q->mean, sizeof p->mean);
        assert_memory_equal(&p->std, &q->std, sizeof p->std);
        assert_memory_equal(&p->norm, &q->norm, sizeof p->norm);
        assert_int_equal(p->n_bins, q->n_bins);
        assert_memory_equal(p->bin, q->bin, p->n_bins * sizeof *p->bin);
    }
    stats_free(&a);
    stats_free(&b);
    ckpt_map_free(map);
}

static void test_special(void **state)
{
    const double nan = (double)NAN, inf = (double)INFINITY;
    double x[] = {nan, -nan, inf, -inf, -inf, 0, -0.0, 3, -4};
    double none[] = {nan, inf};
    double huge[] = {1e300, -1e300, 1e300, 1e300};
    ckpt_map *map = map_new();

    (void)state;
    map_add(map, "x", CKPT_F64, 9, x);
    map_add(map, "none", CKPT_F64, 2, none);
    map_add(map, "huge", CKPT_F64, 4, huge);
    map_add(map, "empty", CKPT_F64, 0, x);
    stats s = make(map, 2);
    const tensor_stats *t = &s.at[0];
    assert_int_equal(t->n_nan, 2);
    assert_int_equal(t->n_above, 1);
    assert_int_equal(t->n_below, 2);
    assert_int_equal(t->n_zero, 2);
    assert_true(t->min == -4 && t->max == 3);
    assert_true(near(t->mean, -0.25, 1e-15)); // of the four finite elements
    assert_true(near(t->norm, 5, 1e-15));
    t = &s.at[1];
    assert_true(t->known && isnan(t->min) && isnan(t->max) && isnan(t->mean) && isnan(t->std));
    assert_true(isnan(t->norm));
    assert_int_equal(t->n_bins, 0);
    // squares of these overflow a double
    t = &s.at[2];
    assert_true(near(t->mean, 5e299, 1e-12));
    assert_true(near(t->norm, 2e300, 1e-12));
    assert_true(near(t->std, sqrt(0.75) * 1e300, 1e-12));
    t = &s.at[3];
    assert_true(t->known && t->n == 0 && isnan(t->mean));
    assert_int_equal(s.n_nan, 3);
    assert_int_equal(s.n_inf, 4);
    stats_free(&s);
    ckpt_map_free(map);
}

/* The bin of one element of this value. */
static int bin_of(double value)
{
    ckpt_map *map = map_new();

    map_add(map, "x", CKPT_F64, 1, &value);
    stats s = make(map, 1);
    int bin = s.at[0].n_bins == 1 && s.at[0].bin[0] == 1 ? (int)s.at[0].first : -1;
    stats_free(&s);
    ckpt_map_free(map);
    return bin;
}

static void test_bins(void **state)
{
    const int one = STATS_HALF - STATS_EXPONENT; // the bin of 1 to 2

    (void)state;
    assert_int_equal(bin_of(1), one);
    assert_int_equal(bin_of(nextafter(2, 0)), one);
    assert_int_equal(bin_of(2), one + 1);
    assert_int_equal(bin_of(nextafter(1, 0)), one - 1);
    assert_int_equal(bin_of(-1), STATS_BINS - 1 - one);
    assert_int_equal(bin_of(ldexp(1, STATS_EXPONENT)), STATS_HALF);
    assert_int_equal(bin_of(ldexp(1, STATS_EXPONENT - 1)), STATS_HALF); // smaller ones
    assert_int_equal(bin_of(4.9e-324), STATS_HALF);                     // subnormal
    assert_int_equal(bin_of(-4.9e-324), STATS_HALF - 1);
    assert_int_equal(bin_of(1e300), STATS_BINS - 1);
    assert_int_equal(bin_of(-1e300), 0);
    assert_int_equal(bin_of(0), -1);
}

static void test_dtypes(void **state)
{
    int8_t i8[] = {-128, 127, 0};
    uint64_t u64[] = {UINT64_MAX, 0};
    uint8_t flags[] = {0, 1, 1};
    uint16_t bf16[] = {0x3f80, 0xc000, 0x7f80}; // 1, -2, infinity
    ckpt_map *map = map_new();

    (void)state;
    map_add(map, "i8", CKPT_I8, 3, i8);
    map_add(map, "u64", CKPT_U64, 2, u64);
    map_add(map, "flags", CKPT_BOOL, 3, flags);
    map_add(map, "bf16", CKPT_BF16, 3, bf16);
    ckpt_tensor *tied = map_add(map, "tied", CKPT_I8, 3, i8);
    tied->owner = map->tensors.at[0];
    stats s = make(map, 3);
    assert_true(s.at[0].min == -128 && s.at[0].max == 127 && s.at[0].n_zero == 1);
    assert_true(near(s.at[1].max, 18446744073709551615.0, 1e-15));
    assert_true(s.at[2].max == 1 && s.at[2].n_zero == 1);
    assert_true(s.at[3].min == -2 && s.at[3].max == 1 && s.at[3].n_above == 1);
    assert_false(s.at[4].known); // its owner is counted
    stats_free(&s);
    ckpt_map_free(map);
}

static int stop_at_once(void *ctx, uint64_t done, uint64_t total)
{
    uint64_t *seen = ctx;

    assert_true(done <= total);
    (*seen)++;
    return 1;
}

static void test_interrupted(void **state)
{
    static float x[LARGE];
    uint64_t seen = 0;
    const ckpt_run_opts run = {.jobs = 1, .progress = stop_at_once, .progress_ctx = &seen};
    ckpt_map *map = map_new();
    stats s;

    (void)state;
    map_add(map, "x", CKPT_F32, LARGE, x);
    err = (ckpt_err){0};
    assert_int_equal(stats_make(&s, map, &run, &err), CKPT_ECANCELED);
    assert_string_equal(err.text, "interrupted");
    assert_int_equal(seen, 1);
    stats_free(&s);
    ckpt_map_free(map);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sums),        cmocka_unit_test(test_special),
        cmocka_unit_test(test_bins),        cmocka_unit_test(test_dtypes),
        cmocka_unit_test(test_interrupted),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
