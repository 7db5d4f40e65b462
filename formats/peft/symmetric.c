/* SPDX-License-Identifier: Apache-2.0 */
/*
 * symmetric.c: computes the eigenvalues of a symmetric matrix.
 *
 * Eigenvectors are kept as rows, because rotations then run along memory.
 */
#include "formats/peft/symmetric.h"

#include <assert.h>
#include <math.h>
#include <string.h>

enum { EIG_ROUNDS = 60 /* QR steps for one value; two or three are usual */ };

/*
 * Make v, of n values, the vector of the reflection I - beta v v' that maps x to a multiple of the
 * first unit vector; returns beta, and sets *first to the multiple.
 */
static double eig_reflect(double *v, size_t n, double *first)
{
    double sum = 0, root, head;

    for (size_t i = 1; i < n; i++)
        sum += v[i] * v[i];
    *first = v[0];
    if (!(sum > 0))
        return 0;
    root = sqrt(v[0] * v[0] + sum);
    head = v[0] > 0 ? v[0] + root : v[0] - root;
    *first = v[0] > 0 ? -root : root;
    v[0] = head;
    return 2 / (head * head + sum);
}

/* a -= v w' + w v', for the last m rows and columns of a. */
static void eig_update(double *a, size_t n, size_t m, const double *v, const double *w)
{
    for (size_t i = 0; i < m; i++) {
        double *row = a + (n - m + i) * n + (n - m);

        for (size_t k = 0; k < m; k++)
            row[k] -= v[i] * w[k] + w[i] * v[k];
    }
}

/*
 * Reduce a to a tridiagonal matrix with the diagonal d and the other diagonal e.  Row j of a keeps
 * the vector of its reflection, and scale[j] its beta.
 */
static void eig_tridiagonal(double *a, size_t n, double *d, double *e, double *scale, double *w)
{
    for (size_t j = 0; j + 1 < n; j++) {
        const size_t m = n - j - 1;
        double *v = a + j * n + j + 1, beta, half = 0;

        d[j] = a[j * n + j];
        scale[j] = beta = eig_reflect(v, m, &e[j]);
        if (beta == 0)
            continue;
        for (size_t i = 0; i < m; i++) {
            const double *row = a + (j + 1 + i) * n + j + 1;
            double sum = 0;

            for (size_t k = 0; k < m; k++)
                sum += row[k] * v[k];
            w[i] = beta * sum;
            half += w[i] * v[i];
        }
        for (size_t i = 0; i < m; i++)
            w[i] -= beta / 2 * half * v[i];
        eig_update(a, n, m, v, w);
    }
    d[n - 1] = a[n * n - 1];
}

/* vector = the product of all reflections, transposed. */
static void eig_product(const double *a, size_t n, const double *scale, double *vector)
{
    memset(vector, 0, n * n * sizeof *vector);
    for (size_t i = 0; i < n; i++)
        vector[i * n + i] = 1;
    for (size_t j = n - 1; j-- > 0;) {
        const double *v = a + j * n + j + 1;

        for (size_t i = j + 1; scale[j] != 0 && i < n; i++) {
            double *row = vector + i * n + j + 1, sum = 0;

            for (size_t k = 0; k + j + 1 < n; k++)
                sum += row[k] * v[k];
            for (size_t k = 0; k + j + 1 < n; k++)
                row[k] -= scale[j] * sum * v[k];
        }
    }
}

/* Rotate two rows of n values. */
static void eig_rotate(double *x, double *y, size_t n, double c, double s)
{
    for (size_t k = 0; k < n; k++) {
        const double a = x[k], b = y[k];

        x[k] = c * a + s * b;
        y[k] = c * b - s * a;
    }
}

/* One implicit QR step with Wilkinson's shift on rows low..high of the tridiagonal matrix. */
static void eig_step(double *d, double *e, size_t low, size_t high, double *vector, size_t n)
{
    const double half = (d[high - 1] - d[high]) / 2, last = e[high - 1];
    const double root = hypot(half, last), away = half < 0 ? half - root : half + root;
    double x = d[low] - d[high] + (away != 0 ? last / away * last : last), z = e[low];

    for (size_t k = low; k < high; k++) {
        const double r = hypot(x, z), c = r > 0 ? x / r : 1, s = r > 0 ? z / r : 0;
        const double a = d[k], b = d[k + 1], f = e[k];

        if (k > low)
            e[k - 1] = r;
        d[k] = c * c * a + 2 * c * s * f + s * s * b;
        d[k + 1] = s * s * a - 2 * c * s * f + c * c * b;
        e[k] = c * s * (b - a) + (c * c - s * s) * f;
        x = e[k];
        if (k + 1 < high) {
            z = s * e[k + 1];
            e[k + 1] *= c;
        }
        eig_rotate(vector + k * n, vector + (k + 1) * n, n, c, s);
    }
}

/* Make the tridiagonal matrix diagonal. */
static void eig_diagonal(double *d, double *e, size_t n, double *vector)
{
    size_t high = n - 1, rounds = 0;

    while (high > 0) {
        size_t low;

        for (size_t k = 0; k < high; k++) {
            if (fabs(e[k]) <= 1e-16 * (fabs(d[k]) + fabs(d[k + 1])))
                e[k] = 0;
        }
        if (e[high - 1] == 0 || ++rounds > EIG_ROUNDS) {
            high--;
            rounds = 0;
            continue;
        }
        for (low = high - 1; low > 0 && e[low - 1] != 0;)
            low--;
        eig_step(d, e, low, high, vector, n);
    }
}

/* Sort values in descending order, with their vectors; few exchanges, because n is small. */
static void eig_sort(double *value, double *vector, size_t n)
{
    for (size_t i = 0; i + 1 < n; i++) {
        size_t best = i;

        for (size_t k = i + 1; k < n; k++)
            best = value[k] > value[best] ? k : best;
        if (best == i)
            continue;
        const double swap = value[i];
        value[i] = value[best];
        value[best] = swap;
        // a quarter turn exchanges the rows; the sign of a vector does not matter
        eig_rotate(vector + i * n, vector + best * n, n, 0, 1);
    }
}

void ckpt_symmetric(double *a, size_t n, double *value, double *vector, double *work)
{
    assert(a && value && vector && work && n > 0);
    // w is needed before the vectors are
    eig_tridiagonal(a, n, value, work, work + n, vector);
    eig_product(a, n, work + n, vector);
    eig_diagonal(value, work, n, vector);
    eig_sort(value, vector, n);
}
