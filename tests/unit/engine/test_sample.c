/* SPDX-License-Identifier: Apache-2.0 */
/* test_sample.c: choices of tokens: shares of many draws, filters, equal logits, numbers that are none. */
#include <math.h>

#include "engine/inside.h"
#include "tests/unit/unit.h"

#define E 2.718281828459045

enum { N = 5, DRAWS = 40000 };

static zt_candidate room[N];

/* Draw many tokens, and compare their shares with `want`. */
static void shares(const zt_sampling *s, const float *logits, const double *want)
{
    int count[N] = {0};

    for (uint32_t i = 0; i < DRAWS; i++) {
        const int32_t got = zt_sample(s, logits, N, (const uint32_t[2]){i / 200, i % 200}, room);

        assert_in_range(got, 0, N - 1);
        count[got]++;
    }
    for (int i = 0; i < N; i++) {
        const double sigma = sqrt(want[i] * (1 - want[i]) / DRAWS);

        if (fabs(count[i] / (double)DRAWS - want[i]) > 5 * sigma)
            fail_msg("token %d: share %g, not %g", i, count[i] / (double)DRAWS, want[i]);
    }
}

/* Logits whose probabilities are 0.5, 0.1, 0.2, 0.15, 0.05. */
static const double part[N] = {0.5, 0.1, 0.2, 0.15, 0.05};

static void logits_of(float *to)
{
    for (int i = 0; i < N; i++)
        to[i] = (float)(log(part[i]) + 3);
}

static void drawn_shares(void **state)
{
    float x[N];
    double hot[N], sum = 0;

    (void)state;
    logits_of(x);
    shares(&(zt_sampling){1, 0, 1, 3}, x, part);
    for (int i = 0; i < N; i++)
        sum += sqrt(part[i]);
    for (int i = 0; i < N; i++)
        hot[i] = sqrt(part[i]) / sum;
    shares(&(zt_sampling){2, 0, 1, 4}, x, hot); // the square root of each probability
    shares(&(zt_sampling){1, 2, 1, 5}, x, (const double[N]){5 / 7.0, 0, 2 / 7.0, 0, 0});
    // 0.5 + 0.2 is below 0.75, so the third one is the last
    shares(&(zt_sampling){1, 0, 0.75, 6}, x,
           (const double[N]){50 / 85.0, 0, 20 / 85.0, 15 / 85.0, 0});
    // of the three, 0.5 and 0.2 are 0.82
    shares(&(zt_sampling){1, 3, 0.8, 7}, x, (const double[N]){5 / 7.0, 0, 2 / 7.0, 0, 0});
}

static void edges(void **state)
{
    float x[N] = {1, 2, 2, 0, 2};
    const uint32_t place[2] = {1, 2};
    const zt_sampling greedy = {0, 0, 1, 1}, one = {1, 1, 1, 1}, tiny = {1, 0, 1e-9, 1};

    (void)state;
    assert_int_equal(zt_sample(&greedy, x, N, place, room), 1);
    // tokens as probable as the last of the first k are kept
    shares(&one, x, (const double[N]){0, 1 / 3.0, 1 / 3.0, 0, 1 / 3.0});
    assert_int_equal(zt_sample(&tiny, x, N, place, room), 1);
    assert_int_equal(zt_sample(&(zt_sampling){1, 99, 1, 1}, x, N, place, room),
                     zt_sample(&(zt_sampling){1, N, 1, 1}, x, N, place, room));
    shares(&one, (const float[N]){7, 7, 7, 7, 7}, (const double[N]){0.2, 0.2, 0.2, 0.2, 0.2});
    x[3] = -INFINITY; // a token that never comes
    shares(
        &(zt_sampling){1, 0, 1, 8}, x,
        (const double[N]){1 / (1 + 3 * E), E / (1 + 3 * E), E / (1 + 3 * E), 0, E / (1 + 3 * E)});
    x[3] = NAN;
    assert_int_equal(zt_sample(&greedy, x, N, place, room), -1);
    x[3] = INFINITY;
    assert_int_equal(zt_sample(&one, x, N, place, room), -1);
    for (int i = 0; i < N; i++)
        x[i] = -INFINITY;
    assert_int_equal(zt_sample(&greedy, x, N, place, room), -1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(drawn_shares), cmocka_unit_test(edges)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
