/* SPDX-License-Identifier: Apache-2.0 */
/*
 * truncate.c: computes the best approximation of a matrix by one of a lower rank.
 *
 * Blocks of 8 vectors are stored as [length, 8], because loops over the 8 are vectorized without
 * another order of sums.  Sums over rows are made per part of the rows, of which there is a fixed
 * number, so that the result does not depend on the number of threads.
 */
#include "formats/peft/truncate.h"

#include <assert.h>
#include <math.h>
#include <string.h>

#include "formats/peft/product.h"
#include "formats/peft/symmetric.h"
#include "libckpt/base/vec.h"
#include "libckpt/io/thread_pool.h"

enum {
    TRN_BLOCK = 8,
    TRN_PARTS = 8 /* parts of the rows */
};

/* The least part of a vector that is new, not rounding. */
#define TRN_NEW 1e-13
/* The part of the result that may come from wrong vectors. */
#define TRN_WRONG 1e-7

/* A block of the space's vectors, which are orthonormal, or zero where the space has no more. */
typedef struct trn_step {
    double *v;    /* [cols, 8] */
    double *coef; /* V' X'X v, [8 (number of blocks up to this one), 8] */
} trn_step;

CKPT_VEC(trn_steps, trn_step);

typedef struct trn_space {
    ckpt_truncation *t;
    trn_steps step;
    double *next;                       /* the coming block, [cols, 8] */
    double *part;                       /* [TRN_PARTS, cols, 8] */
    double link[TRN_BLOCK * TRN_BLOCK]; /* of the last block to the coming one */
    uint64_t n_real;                    /* vectors that are not zero */
    double energy, found;               /* squared norms: of x, and of x on the space */
    uint64_t seed;
    double *value, *vector; /* of the last check: see ckpt_symmetric */
    ckpt_err *err;
} trn_space;

/* ---- products with x ---- */

/* A pass over the rows of x. */
typedef struct trn_pass {
    const trn_space *s;
    const double *v; /* multiply rows by it, [cols, 8]; NULL: take random numbers */
    double *image;   /* x v, [rows, 8]; or NULL */
    bool back;       /* compute x' (x v), too */
} trn_pass;

/* A uniform random number from -1 to 1 (splitmix64: Steele, Lea, Flood 2014). */
static double trn_random(uint64_t seed, uint64_t at)
{
    uint64_t z = seed + (at + 1) * UINT64_C(0x9e3779b97f4a7c15);

    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return (double)((z ^ (z >> 31)) >> 11) * 0x1p-52 - 1;
}

/* sum[8] = row v */
static void trn_forward(double sum[TRN_BLOCK], const float *row, const double *v, uint64_t n)
{
    double own[TRN_BLOCK] = {0};

    for (uint64_t i = 0; i < n; i++) {
        const double x = (double)row[i];

        for (unsigned c = 0; c < TRN_BLOCK; c++)
            own[c] += x * v[i * TRN_BLOCK + c];
    }
    memcpy(sum, own, sizeof own);
}

/* z += row' sum[8] */
static void trn_backward(double *z, const float *row, const double sum[TRN_BLOCK], uint64_t n)
{
    double own[TRN_BLOCK];

    memcpy(own, sum, sizeof own);
    for (uint64_t i = 0; i < n; i++) {
        const double x = (double)row[i];

        for (unsigned c = 0; c < TRN_BLOCK; c++)
            z[i * TRN_BLOCK + c] += x * own[c];
    }
}

static int trn_part(void *ctx, unsigned worker, uint64_t item, ckpt_err *err)
{
    const trn_pass *p = ctx;
    const ckpt_truncation *t = p->s->t;
    const uint64_t from = t->rows * item / TRN_PARTS, to = t->rows * (item + 1) / TRN_PARTS;
    double *z = p->s->part + item * t->cols * TRN_BLOCK, sum[TRN_BLOCK];

    (void)worker;
    (void)err;
    if (p->back)
        memset(z, 0, t->cols * TRN_BLOCK * sizeof *z);
    for (uint64_t i = from; i < to; i++) {
        const float *row = t->x + i * t->cols;

        if (p->v)
            trn_forward(sum, row, p->v, t->cols);
        for (unsigned c = 0; !p->v && c < TRN_BLOCK; c++)
            sum[c] = trn_random(p->s->seed, i * TRN_BLOCK + c);
        if (p->image)
            memcpy(p->image + i * TRN_BLOCK, sum, sizeof sum);
        if (p->back)
            trn_backward(z, row, sum, t->cols);
    }
    return CKPT_OK;
}

/* Run a pass; with `back` its result becomes the coming block. */
static int trn_multiply(trn_space *s, trn_pass *p)
{
    const uint64_t n = s->t->cols * TRN_BLOCK;
    int rc = ckpt_crew_run(s->t->threads, TRN_PARTS, trn_part, p, s->err);

    if (rc != CKPT_OK || !p->back)
        return rc;
    memcpy(s->next, s->part, n * sizeof *s->next);
    for (unsigned k = 1; k < TRN_PARTS; k++) {
        for (uint64_t i = 0; i < n; i++)
            s->next[i] += s->part[k * n + i];
    }
    return CKPT_OK;
}

/* ---- orthogonal vectors ---- */

/* c[8, 8] = v' z */
static void trn_coef(double *c, const double *v, const double *z, uint64_t n)
{
    double sum[TRN_BLOCK * TRN_BLOCK] = {0};

    for (uint64_t i = 0; i < n; i++, v += TRN_BLOCK, z += TRN_BLOCK) {
        for (unsigned a = 0; a < TRN_BLOCK; a++) {
            for (unsigned b = 0; b < TRN_BLOCK; b++)
                sum[a * TRN_BLOCK + b] += v[a] * z[b];
        }
    }
    memcpy(c, sum, sizeof sum);
}

/* z -= v c */
static void trn_subtract(double *z, const double *v, const double *c, uint64_t n)
{
    for (uint64_t i = 0; i < n; i++, v += TRN_BLOCK, z += TRN_BLOCK) {
        for (unsigned a = 0; a < TRN_BLOCK; a++) {
            for (unsigned b = 0; b < TRN_BLOCK; b++)
                z[b] -= v[a] * c[a * TRN_BLOCK + b];
        }
    }
}

/* Remove the space from the coming block; coef (or NULL) gets the removed coefficients. */
static void trn_remove(trn_space *s, double *coef)
{
    double c[TRN_BLOCK * TRN_BLOCK];

    for (size_t k = 0; k < s->step.n; k++) {
        trn_coef(c, s->step.at[k].v, s->next, s->t->cols);
        trn_subtract(s->next, s->step.at[k].v, c, s->t->cols);
        for (unsigned i = 0; coef && i < TRN_BLOCK * TRN_BLOCK; i++)
            coef[k * TRN_BLOCK * TRN_BLOCK + i] += c[i];
    }
}

/* The product of two columns of a block. */
static double trn_dot(const double *z, unsigned a, unsigned b, uint64_t n)
{
    double sum = 0;

    for (uint64_t i = 0; i < n; i++)
        sum += z[i * TRN_BLOCK + a] * z[i * TRN_BLOCK + b];
    return sum;
}

/*
 * Make the columns of the coming block orthonormal; columns shorter than `least` become zero.
 * r (or NULL) gets the triangular factor: old columns = new columns x r. Returns the number of
 * columns that are not zero.
 */
static unsigned trn_normalize(trn_space *s, double least, double *r)
{
    double *z = s->next;
    const uint64_t n = s->t->cols;
    unsigned real = 0;

    for (unsigned b = 0; b < TRN_BLOCK; b++) {
        double length;

        // twice: the first pass leaves rounding errors
        for (unsigned k = 0; k < 2 * b; k++) {
            const unsigned a = k % b;
            const double c = trn_dot(z, a, b, n);

            for (uint64_t i = 0; i < n; i++)
                z[i * TRN_BLOCK + b] -= c * z[i * TRN_BLOCK + a];
            if (r)
                r[a * TRN_BLOCK + b] += c;
        }
        length = sqrt(trn_dot(z, b, b, n));
        if (r)
            r[b * TRN_BLOCK + b] = length;
        for (uint64_t i = 0; i < n; i++)
            z[i * TRN_BLOCK + b] = length > least ? z[i * TRN_BLOCK + b] / length : 0;
        real += length > least;
    }
    return real;
}

/* Finish the coming block, of which the space was removed; *real: its vectors that are not zero. */
static void trn_finish(trn_space *s, double least, unsigned *real)
{
    memset(s->link, 0, sizeof s->link);
    (void)trn_normalize(s, least, s->link);
    // short vectors were mostly rounding, which has a part in the space
    trn_remove(s, NULL);
    *real = trn_normalize(s, 0.5, NULL);
}

/* ---- growing the space ---- */

/* Append the coming block to the space. */
static int trn_append(trn_space *s, unsigned real)
{
    const uint64_t n = s->t->cols * TRN_BLOCK;
    double *v = ckpt_alloc(n * sizeof *v);
    double *coef = ckpt_alloc((s->step.n + 1) * TRN_BLOCK * TRN_BLOCK * sizeof *coef);
    trn_step *step = v && coef ? ckpt_vec_push(&s->step) : NULL;

    if (!step) {
        ckpt_free(v);
        ckpt_free(coef);
        return ckpt_fail_memory(s->err);
    }
    memcpy(v, s->next, n * sizeof *v);
    *step = (trn_step){v, coef};
    s->n_real += real;
    return CKPT_OK;
}

/* Make the coming block from random rows; the space does not lead further. */
static int trn_restart(trn_space *s, unsigned *real)
{
    const double least = TRN_NEW * sqrt(s->energy);
    int rc;

    s->seed++;
    rc = trn_multiply(s, &(trn_pass){.s = s, .back = true});
    if (rc != CKPT_OK)
        return rc;
    trn_remove(s, NULL);
    trn_remove(s, NULL);
    trn_finish(s, least, real);
    memset(s->link, 0, sizeof s->link);
    return CKPT_OK;
}

/* Make the coming block from the last one. */
static int trn_advance(trn_space *s, unsigned *real)
{
    const trn_step *last = &s->step.at[s->step.n - 1];
    const double *own = last->coef + (s->step.n - 1) * TRN_BLOCK * TRN_BLOCK;
    int rc = trn_multiply(s, &(trn_pass){.s = s, .v = last->v, .back = true});

    if (rc != CKPT_OK)
        return rc;
    trn_remove(s, last->coef);
    trn_remove(s, last->coef);
    // the squared length of x on the block is the trace of v' X'X v
    for (unsigned c = 0; c < TRN_BLOCK; c++)
        s->found += own[c * TRN_BLOCK + c];
    trn_finish(s, TRN_NEW * s->energy, real);
    return CKPT_OK;
}

/* ---- the end ---- */

/* Compute the eigenvalues of X'X on the space. */
static int trn_solve(trn_space *s)
{
    const size_t n = s->step.n * TRN_BLOCK;
    double *a = ckpt_alloc(n * n * sizeof *a), *work = ckpt_alloc(2 * n * sizeof *work);

    ckpt_free(s->value);
    ckpt_free(s->vector);
    s->value = ckpt_alloc(n * sizeof *s->value);
    s->vector = ckpt_alloc(n * n * sizeof *s->vector);
    for (size_t k = 0; a && k < s->step.n; k++) {
        for (size_t i = 0; i < (k + 1) * TRN_BLOCK; i++) {
            for (size_t c = 0; c < TRN_BLOCK; c++) {
                const double x = s->step.at[k].coef[i * TRN_BLOCK + c];

                a[i * n + k * TRN_BLOCK + c] = a[(k * TRN_BLOCK + c) * n + i] = x;
            }
        }
    }
    const bool ok = a && work && s->value && s->vector;
    if (ok)
        ckpt_symmetric(a, n, s->value, s->vector, work);
    ckpt_free(a);
    ckpt_free(work);
    return ok ? CKPT_OK : ckpt_fail_memory(s->err);
}

/* The length of X'X v - value v for the i-th eigenvector, from the coming block. */
static double trn_residual(const trn_space *s, size_t i)
{
    const size_t n = s->step.n * TRN_BLOCK;
    const double *end = s->vector + i * n + n - TRN_BLOCK;
    double sum = 0;

    for (unsigned a = 0; a < TRN_BLOCK; a++) {
        double x = 0;

        for (unsigned b = 0; b < TRN_BLOCK; b++)
            x += s->link[a * TRN_BLOCK + b] * end[b];
        sum += x * x;
    }
    return sqrt(sum);
}

/*
 * True if the largest eigenvalues have settled: residual over distance to the next eigenvalue
 * bounds the angle of a vector, and so the part of the result that is wrong.
 */
static bool trn_settled(const trn_space *s)
{
    const size_t n = s->step.n * TRN_BLOCK, rank = (size_t)s->t->rank;
    double wrong = 0, all = 0;

    if (n <= rank)
        return false;
    for (size_t i = 0; i < rank; i++) {
        const double value = s->value[i] > 0 ? s->value[i] : 0;
        double gap = value - s->value[rank], angle;

        // vectors of nearly equal values are equally good
        gap = gap > 1e-4 * value ? gap : 1e-4 * value;
        angle = gap > 0 ? trn_residual(s, i) / gap : 0;
        angle = angle < 1 ? angle : 1;
        wrong += angle * angle * value;
        all += value;
    }
    return wrong <= TRN_WRONG * TRN_WRONG * all;
}

/*
 * Set *done if no further block is needed.  If the coming block is empty, the space contains all
 * that x makes of it; x beyond it, of which the squared norm is known, may still have a larger
 * value than the smallest one to keep.
 */
static int trn_check(trn_space *s, unsigned real, bool *done)
{
    const uint64_t least = s->t->rows < s->t->cols ? s->t->rows : s->t->cols;
    const double beyond = s->energy - s->found, tiny = TRN_NEW * s->energy;
    int rc;

    *done = s->n_real >= least || beyond <= tiny;
    if (!*done && s->n_real <= s->t->rank)
        return CKPT_OK;
    rc = trn_solve(s);
    if (rc != CKPT_OK || *done)
        return rc;
    *done = real > 0 ? trn_settled(s) : beyond <= s->value[s->t->rank - 1];
    return CKPT_OK;
}

/* Grow the space until it contains the result.  Checks cost n^3, so each space is larger. */
static int trn_grow(trn_space *s)
{
    unsigned real = 0;
    uint64_t next = 0;
    bool done = false;
    int rc = trn_restart(s, &real);

    for (unsigned empty = 0; rc == CKPT_OK && !done;) {
        if (real > 0)
            rc = trn_append(s, real);
        // random rows have a part outside the space, unless it contains all of x
        empty = real > 0 ? 0 : empty + 1;
        if (rc == CKPT_OK && real > 0)
            rc = trn_advance(s, &real);
        if (rc == CKPT_OK && (real == 0 || s->step.n >= next)) {
            rc = trn_check(s, real, &done);
            next = s->step.n + s->step.n / 4 + 1;
        }
        if (rc == CKPT_OK && !done && real == 0 && empty < 3)
            rc = trn_restart(s, &real);
        else if (rc == CKPT_OK && !done && real == 0)
            done = true;
    }
    return rc == CKPT_OK && !s->value && s->step.n > 0 ? trn_solve(s) : rc;
}

/* ---- the factors ---- */

/* v[cols, 8] = the eigenvectors first..first+7 of the space, or zeros after the rank. */
static void trn_vectors(const trn_space *s, double *v, size_t first)
{
    const size_t n = s->step.n * TRN_BLOCK;

    memset(v, 0, s->t->cols * TRN_BLOCK * sizeof *v);
    for (size_t k = 0; k < s->step.n; k++) {
        double c[TRN_BLOCK * TRN_BLOCK];

        for (unsigned a = 0; a < TRN_BLOCK; a++) {
            for (unsigned b = 0; b < TRN_BLOCK; b++)
                c[a * TRN_BLOCK + b] = first + b < s->t->rank && first + b < n
                                           ? -s->vector[(first + b) * n + k * TRN_BLOCK + a]
                                           : 0;
        }
        trn_subtract(v, s->step.at[k].v, c, s->t->cols);
    }
}

/* Write the columns first..first+7 of the factors, from v and its image x v. */
static void trn_write(const ckpt_truncation *t, const double *v, const double *image,
                      uint64_t first)
{
    for (unsigned c = 0; c < TRN_BLOCK && first + c < t->rank; c++) {
        const double length = sqrt(trn_dot(image, c, c, t->rows)), root = sqrt(length);
        const double by = root > 0 ? 1 / root : 0;

        for (uint64_t i = 0; i < t->rows; i++)
            t->left[i * t->rank + first + c] = (float)(image[i * TRN_BLOCK + c] * by);
        for (uint64_t i = 0; i < t->cols; i++)
            t->right[(first + c) * t->cols + i] = (float)(v[i * TRN_BLOCK + c] * root);
    }
}

/* Round a factor of n elements, and note the part of its norm that this changes. */
static void trn_round(ckpt_truncation *t, float *x, uint64_t n)
{
    float was[CKPT_PEFT_TILE];
    double lost = 0, all = 0;

    for (uint64_t at = 0; t->round != CKPT_DTYPE_NONE && at < n; at += CKPT_PEFT_TILE) {
        const uint64_t some = n - at < CKPT_PEFT_TILE ? n - at : CKPT_PEFT_TILE;

        memcpy(was, x + at, some * sizeof *was);
        ckpt_peft_round(t->round, x + at, some);
        for (uint64_t i = 0; i < some; i++) {
            const double by = (double)was[i] - (double)x[at + i];

            lost += by * by;
            all += (double)was[i] * (double)was[i];
        }
    }
    if (all > 0 && sqrt(lost / all) > t->rounded)
        t->rounded = sqrt(lost / all);
}

/* Compute both factors, 8 columns at a time. */
static int trn_factors(trn_space *s)
{
    ckpt_truncation *t = s->t;
    double *image = ckpt_alloc((t->rows + 1) * TRN_BLOCK * sizeof *image);
    int rc = image ? CKPT_OK : ckpt_fail_memory(s->err);

    // columns beyond the space stay zero
    for (uint64_t first = 0; rc == CKPT_OK && first < t->rank && first < s->step.n * TRN_BLOCK;
         first += TRN_BLOCK) {
        trn_vectors(s, s->next, first);
        rc = trn_multiply(s, &(trn_pass){.s = s, .v = s->next, .image = image});
        if (rc == CKPT_OK)
            trn_write(t, s->next, image, first);
    }
    ckpt_free(image);
    if (rc == CKPT_OK) {
        trn_round(t, t->left, t->rows * t->rank);
        trn_round(t, t->right, t->rank * t->cols);
    }
    return rc;
}

/* Compute the rest of x without the product of the factors, as they are written. */
static int trn_rest(ckpt_truncation *t, ckpt_err *err)
{
    double *row = ckpt_alloc((t->cols + 1) * sizeof *row), sum = 0;

    if (!row)
        return ckpt_fail_memory(err);
    for (uint64_t i = 0; i < t->rows; i++) {
        for (uint64_t k = 0; k < t->cols; k++)
            row[k] = (double)t->x[i * t->cols + k];
        for (uint64_t r = 0; r < t->rank; r++) {
            const double by = (double)t->left[i * t->rank + r];

            for (uint64_t k = 0; by != 0 && k < t->cols; k++)
                row[k] -= by * (double)t->right[r * t->cols + k];
        }
        for (uint64_t k = 0; k < t->cols; k++)
            sum += row[k] * row[k];
    }
    ckpt_free(row);
    t->rest = sqrt(sum);
    return CKPT_OK;
}

static void trn_free(trn_space *s)
{
    for (size_t i = 0; i < s->step.n; i++) {
        ckpt_free(s->step.at[i].v);
        ckpt_free(s->step.at[i].coef);
    }
    ckpt_vec_free(&s->step);
    ckpt_free(s->next);
    ckpt_free(s->part);
    ckpt_free(s->value);
    ckpt_free(s->vector);
}

int ckpt_truncate(ckpt_truncation *t, ckpt_err *err)
{
    assert(t && t->x && t->left && t->right && t->rank > 0 && t->threads > 0);
    trn_space s = {.t = t, .err = err};
    int rc = CKPT_OK;

    memset(t->left, 0, t->rows * t->rank * sizeof *t->left);
    memset(t->right, 0, t->rank * t->cols * sizeof *t->right);
    for (uint64_t i = 0; i < t->rows * t->cols; i++)
        s.energy += (double)t->x[i] * (double)t->x[i];
    t->norm = sqrt(s.energy);
    t->rest = t->rounded = 0;
    if (s.energy == 0)
        return CKPT_OK;
    s.next = ckpt_alloc(t->cols * TRN_BLOCK * sizeof *s.next);
    s.part = ckpt_alloc(TRN_PARTS * t->cols * TRN_BLOCK * sizeof *s.part);
    if (!s.next || !s.part)
        rc = ckpt_fail_memory(err);
    if (rc == CKPT_OK)
        rc = trn_grow(&s);
    if (rc == CKPT_OK)
        rc = trn_factors(&s);
    if (rc == CKPT_OK)
        rc = trn_rest(t, err);
    trn_free(&s);
    return rc;
}
