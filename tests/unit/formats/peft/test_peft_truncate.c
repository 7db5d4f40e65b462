/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_peft_truncate.c: the best approximation of a matrix by one of a lower rank, against matrices
 * whose singular values are known.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "formats/peft/symmetric.h"
#include "formats/peft/truncate.h"
#include "libckpt/base/mem.h"
#include "tests/unit/unit.h"

enum { ROOM = 128 * 128 };

/* Make x the matrix [rows, cols] with these singular values, by reflections on both sides. */
static void make(float *x, size_t rows, size_t cols, const double *value, size_t n)
{
    double *u = calloc(rows + cols, sizeof *u), *v = u + rows, uu = 0, vv = 0;

    for (size_t i = 0; i < rows + cols; i++)
        u[i] = sin(3.0 * (double)i + 1);
    for (size_t i = 0; i < rows; i++)
        uu += u[i] * u[i];
    for (size_t i = 0; i < cols; i++)
        vv += v[i] * v[i];
    for (size_t i = 0; i < rows; i++) {
        for (size_t k = 0; k < cols; k++) {
            double sum = 0;

            for (size_t s = 0; s < n; s++)
                sum += value[s] * ((i == s) - 2 * u[i] * u[s] / uu) *
                       ((k == s) - 2 * v[k] * v[s] / vv);
            x[i * cols + k] = (float)sum;
        }
    }
    free(u);
}

/* Truncate with 1 and with 3 threads, which must agree; what is left must be the other values. */
static void check(size_t rows, size_t cols, const double *value, size_t n, size_t rank)
{
    float *x = calloc(5 * ROOM, sizeof *x);
    ckpt_truncation t = {.x = x, .rows = rows, .cols = cols, .rank = rank, .threads = 1};
    double rest = 0, norm = 0, real = 0;

    make(x, rows, cols, value, n);
    for (size_t i = 0; i < n; i++) {
        norm += value[i] * value[i];
        rest += i < rank ? 0 : value[i] * value[i];
    }
    t.left = x + ROOM;
    t.right = x + 2 * ROOM;
    assert_int_equal(ckpt_truncate(&t, NULL), CKPT_OK);
    assert_true(fabs(t.norm - sqrt(norm)) <= 1e-6 * sqrt(norm));
    assert_true(fabs(t.rest - sqrt(rest)) <= 1e-6 * sqrt(norm));
    for (size_t i = 0; i < rows; i++) {
        for (size_t k = 0; k < cols; k++) {
            double left = (double)x[i * cols + k];

            for (size_t r = 0; r < rank; r++)
                left -= (double)t.left[i * rank + r] * (double)t.right[r * cols + k];
            real += left * left;
        }
    }
    assert_true(fabs(sqrt(real) - t.rest) <= 1e-12 * sqrt(norm));
    t.threads = 3;
    t.left = x + 3 * ROOM;
    t.right = x + 4 * ROOM;
    assert_int_equal(ckpt_truncate(&t, NULL), CKPT_OK);
    assert_memory_equal(x + ROOM, x + 3 * ROOM, 2 * ROOM * sizeof *x);
    free(x);
}

static void known_values(void **state)
{
    double value[100];

    (void)state;
    for (size_t i = 0; i < 100; i++)
        value[i] = pow(0.9, (double)i);
    check(100, 120, value, 100, 8);
    check(120, 100, value, 100, 20);
    check(5, 7, value, 5, 2);
    check(1, 9, value, 1, 1);
    check(9, 1, value, 1, 1);
}

/* Values that are equal, more than a block of the method has; and a gap after them. */
static void equal_values(void **state)
{
    double value[100];

    (void)state;
    for (size_t i = 0; i < 100; i++)
        value[i] = i < 20 ? 2 : 1;
    check(100, 100, value, 100, 20);
    check(100, 100, value, 100, 21);
    check(100, 110, value, 20, 12);
}

/* A rank that the matrix lacks gives zeros. */
static void low_rank(void **state)
{
    const double value[] = {3, 2, 1e-3, 1e-4};

    (void)state;
    check(60, 80, value, 4, 4);
    check(60, 80, value, 4, 9);
    check(60, 80, value, 4, 3);
    check(4, 6, value, 4, 20);
}

static void zeros(void **state)
{
    float x[12] = {0}, left[3] = {1, 1, 1}, right[4] = {1, 1, 1, 1};
    ckpt_truncation t = {
        .x = x, .rows = 3, .cols = 4, .rank = 1, .threads = 2, .left = left, .right = right};

    (void)state;
    assert_int_equal(ckpt_truncate(&t, NULL), CKPT_OK);
    assert_true(t.norm == 0 && t.rest == 0);
    for (size_t i = 0; i < 3; i++)
        assert_true(left[i] == 0 && right[i] == 0);
}

/* Factors of 16 bits: what is left is that of the rounded factors. */
static void rounded(void **state)
{
    const double value[] = {1, 0.5};
    float x[ROOM], left[ROOM], right[ROOM];
    ckpt_truncation t = {.x = x,
                         .rows = 30,
                         .cols = 40,
                         .rank = 2,
                         .round = CKPT_BF16,
                         .threads = 1,
                         .left = left,
                         .right = right};

    (void)state;
    make(x, 30, 40, value, 2);
    assert_int_equal(ckpt_truncate(&t, NULL), CKPT_OK);
    assert_true(t.rest > 1e-4 && t.rest < 1e-2);
    for (size_t i = 0; i < 60; i++) {
        uint32_t bits;

        memcpy(&bits, &left[i], sizeof bits);
        assert_int_equal(bits & 0xffff, 0);
    }
}

static void eigenvalues(void **state)
{
    // a path of 3 vertices: 2 - sqrt(2), 2, 2 + sqrt(2)
    double a[] = {2, -1, 0, -1, 2, -1, 0, -1, 2}, value[3], vector[9], work[6], one = 5, alone, v;

    (void)state;
    ckpt_symmetric(a, 3, value, vector, work);
    for (int i = 0; i < 3; i++)
        assert_true(fabs(value[i] - (2 + (1 - i) * sqrt(2))) < 1e-14);
    assert_true(fabs(vector[3] + vector[5]) < 1e-14 && fabs(vector[4]) < 1e-14);
    ckpt_symmetric(&one, 1, &alone, &v, work);
    assert_true(alone == 5 && v == 1);
}

static void no_memory(void **state)
{
    const double value[] = {3, 2, 1};
    float x[200], left[40], right[40];
    ckpt_truncation t = {
        .x = x, .rows = 10, .cols = 12, .rank = 2, .threads = 1, .left = left, .right = right};
    uint64_t at = 0;

    (void)state;
    make(x, 10, 12, value, 3);
    for (int rc = CKPT_ELIMIT; rc != CKPT_OK; at++) {
        ckpt_alloc_fail_at(at);
        rc = ckpt_truncate(&t, NULL);
        ckpt_alloc_fail_at(UINT64_MAX);
        assert_true(rc == CKPT_OK || rc == CKPT_ELIMIT);
    }
    assert_true(at > 5);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(known_values), cmocka_unit_test(equal_values),
        cmocka_unit_test(low_rank),     cmocka_unit_test(zeros),
        cmocka_unit_test(rounded),      cmocka_unit_test(eigenvalues),
        cmocka_unit_test(no_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
