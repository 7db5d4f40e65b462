/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rotation.c: computes the rotations of OFT from its parameters.
 *
 * A rotation is (I - Q) (I + Q)^-1 for a skew matrix Q, or the first terms of its series as peft
 * 0.18 to 0.21 has them: I + 2 Q + 2 Q^2 + ... + Q^(n - 1).  All is computed in F64.
 */
#include <assert.h>
#include <math.h>
#include <string.h>

#include "formats/peft/update.h"

enum { RN_ROWS = 16 /* of the series that are computed together */ };

/* Scale the parameters of a block to a norm of at most eps over the root of n blocks (COFT). */
static void rn_constrain(const ckpt_update *o, float *v, uint64_t n_values, uint64_t n)
{
    const double eps = o->eps / sqrt((double)n);
    double sum = 0;

    // the matrix has each parameter twice
    for (uint64_t i = 0; i < n_values; i++)
        sum += 2 * (double)v[i] * (double)v[i];
    sum = sqrt(sum);
    for (uint64_t i = 0; i < n_values && !(sum <= eps); i++)
        v[i] = (float)(eps * ((double)v[i] / sum));
}

/* Fill the skew matrix q, [s, s], from its upper triangle. */
static void rn_skew(double *q, const float *v, uint64_t s)
{
    for (uint64_t i = 0; i < s; i++) {
        q[i * s + i] = 0;
        for (uint64_t k = i + 1; k < s; k++) {
            q[i * s + k] = (double)*v++;
            q[k * s + i] = -q[i * s + k];
        }
    }
}

/* The element of row i and column k of a rotation that is stored as the caller needs it. */
static float *rn_at(const ckpt_update *o, float *r, uint64_t i, uint64_t k)
{
    return o->before ? &r[i * o->block + k] : &r[k * o->block + i];
}

/* Rows first..first+n-1 of the series. */
typedef struct rn_rows {
    uint64_t first, n;
    double *power, *next, *sum; /* [n, s] */
} rn_rows;

/* next = power q, for all rows together, because each row of q is then read once. */
static void rn_multiply(const rn_rows *x, const double *q, uint64_t s)
{
    memset(x->next, 0, x->n * s * sizeof *x->next);
    for (uint64_t m = 0; m < s; m++) {
        for (uint64_t i = 0; i < x->n; i++) {
            const double by = x->power[i * s + m];
            double *next = x->next + i * s;

            for (uint64_t k = 0; k < s; k++)
                next[k] += by * q[m * s + k];
        }
    }
}

/* Compute some rows of r, the first terms of the series. */
static void rn_some(const ckpt_update *o, float *r, const double *q, rn_rows *x)
{
    const uint64_t s = o->block;
    const uint32_t n = o->neumann_terms;
    // peft adds at least the third power once it has the second
    const uint32_t last = n <= 2 ? n - 1 : n == 3 ? 3 : n - 1;

    for (uint64_t i = 0; i < x->n * s; i++) {
        x->power[i] = n > 1 ? q[x->first * s + i] : 0;
        x->sum[i] = 2 * x->power[i] + (i / s + x->first == i % s ? 1 : 0);
    }
    for (uint32_t p = 2; p <= last; p++) {
        double *swap = x->power;

        rn_multiply(x, q, s);
        for (uint64_t i = 0; i < x->n * s; i++)
            x->sum[i] += (p == last ? 1 : 2) * x->next[i];
        x->power = x->next;
        x->next = swap;
    }
    for (uint64_t i = 0; i < x->n * s; i++)
        *rn_at(o, r, x->first + i / s, i % s) = (float)x->sum[i];
}

/* r = the first terms of the series; work: room for s + 3 rows. */
static void rn_series(const ckpt_update *o, float *r, const double *q, double *work)
{
    const uint64_t s = o->block, most = (s + 3) / 3, n = most < RN_ROWS ? most : RN_ROWS;

    // a row of the powers follows from the row of the power before
    for (uint64_t first = 0; first < s; first += n) {
        rn_rows x = {.first = first, .n = s - first < n ? s - first : n};

        x.power = work;
        x.next = work + x.n * s;
        x.sum = work + 2 * x.n * s;
        rn_some(o, r, q, &x);
    }
}

/* Subtract the pivot's row from the others, in both matrices; the pivot's column becomes that of I.
 */
static void rn_eliminate(double *m, double *x, uint64_t s, uint64_t pivot)
{
    const double by = 1 / m[pivot * s + pivot];

    for (uint64_t k = 0; k < s; k++) {
        m[pivot * s + k] *= by;
        x[pivot * s + k] *= by;
    }
    for (uint64_t i = 0; i < s; i++) {
        const double factor = m[i * s + pivot];

        if (i == pivot || factor == 0)
            continue;
        // the pivot's row has zeros before the pivot
        for (uint64_t k = pivot; k < s; k++)
            m[i * s + k] -= factor * m[pivot * s + k];
        for (uint64_t k = 0; k < s; k++)
            x[i * s + k] -= factor * x[pivot * s + k];
    }
}

/*
 * r = (I + Q)^-1 (I - Q), which is also (I - Q) (I + Q)^-1; m holds Q.  Rows need no exchange:
 * all leading parts of I + Q are regular, because x' (I + Q) x is x' x for each x.
 */
static void rn_exact(const ckpt_update *o, float *r, double *m, double *x)
{
    const uint64_t s = o->block;

    for (uint64_t i = 0; i < s; i++) {
        for (uint64_t k = 0; k < s; k++)
            x[i * s + k] = (i == k ? 1 : 0) - m[i * s + k];
        m[i * s + i] += 1;
    }
    for (uint64_t i = 0; i < s; i++)
        rn_eliminate(m, x, s, i);
    for (uint64_t i = 0; i < s; i++) {
        for (uint64_t k = 0; k < s; k++)
            *rn_at(o, r, i, k) = (float)x[i * s + k];
    }
}

void ckpt_update_rotations(const ckpt_update *o, float *r, double *work, float *vectors, uint64_t n)
{
    assert(o && r && work && vectors && o->block > 0 && o->neumann_terms > 0);
    const uint64_t s = o->block, n_values = s * (s - 1) / 2;

    for (uint64_t i = 0; i < n; i++, r += s * s, vectors += n_values) {
        if (o->coft)
            rn_constrain(o, vectors, n_values, n);
        rn_skew(work, vectors, s);
        if (o->cayley_neumann)
            rn_series(o, r, work, work + s * s);
        else
            rn_exact(o, r, work, work + s * s);
    }
}
