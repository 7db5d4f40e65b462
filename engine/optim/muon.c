/* SPDX-License-Identifier: Apache-2.0 */
/*
 * muon.c: computes the orthogonalised update of a matrix (Jordan et al. 2024), by device
 * operations.
 *
 * Five steps X = a X + (b A + c A A) X, A = X X', of the Newton-Schulz iteration bring all singular
 * values of the normalised momentum near 1.  "gram" runs in fp32 and, if the matrix is not square,
 * on the small Gram matrix R = X X' instead of X; "standard" runs in bf16.  Source: DeepSpeed
 * 0.19.8, runtime/zero/muon/original_muon.py; "Gram Newton-Schulz", T.  Dao 2026.
 *
 * A tall matrix is treated as its transpose, without moving elements: the products exchange the
 * sides of the factors and their transposition flags.
 */
#include <assert.h>
#include <math.h>

#include "engine/optim/optim.h"

#define MU_A 3.4445f
#define MU_B (-4.7750f)
#define MU_C 2.0315f

enum { MU_STEPS = 5, MU_RESTART = 2 };

/* A matrix and its scratch.  In the wide view x is n by m, n <= m. */
typedef struct mu_job {
    zt_device *d;
    ckpt_dtype dt;
    bool tall; /* the matrix is stored as m by n */
    uint64_t n, m;
    void *x, *y;         /* n m */
    void *r, *z, *q, *t; /* n n */
    float *ones;         /* n times MU_A */
} mu_job;

static uint64_t mu_room(uint64_t n_bytes)
{
    return (n_bytes + 63) & ~UINT64_C(63);
}

uint64_t zt_muon_scratch(uint64_t rows, uint64_t cols)
{
    uint64_t n = rows < cols ? rows : cols;

    // fp32: one more X, four squares, the diagonal; bf16 needs two X and three squares of half the
    // size
    return mu_room(rows * cols * 4) + 4 * mu_room(n * n * 4) + mu_room(n * 4);
}

static void *mu_take(char **at, uint64_t n_bytes)
{
    void *p = *at;

    assert((uintptr_t)p % 64 == 0);
    *at += mu_room(n_bytes);
    return p;
}

/* c = alpha a b + beta c of squares. */
static void mu_square(const mu_job *j, void *c, float alpha, const void *a, const void *b,
                      float beta)
{
    zt_matmul mm = {
        .m = j->n, .n = j->n, .k = j->n, .alpha = alpha, .beta = beta, .a = a, .b = b, .c = c};

    j->d->ops->matmul(j->d, j->dt, &mm);
}

/* r = x x' (wide view), the Gram matrix of the short side. */
static void mu_gram(const mu_job *j, void *r, const void *x)
{
    zt_matmul mm = {.m = j->n,
                    .n = j->n,
                    .k = j->m,
                    .a_transposed = j->tall,
                    .b_transposed = !j->tall,
                    .alpha = 1,
                    .a = x,
                    .b = x,
                    .c = r};

    j->d->ops->matmul(j->d, j->dt, &mm);
}

/* y = s x + beta y (wide view); for a tall matrix y = x s' + beta y. */
static void mu_apply(const mu_job *j, void *y, const void *s, const void *x, float beta)
{
    zt_matmul mm = {.m = j->tall ? j->m : j->n,
                    .n = j->tall ? j->n : j->m,
                    .k = j->n,
                    .b_transposed = j->tall,
                    .alpha = 1,
                    .beta = beta,
                    .a = j->tall ? x : s,
                    .b = j->tall ? s : x,
                    .c = y};

    j->d->ops->matmul(j->d, j->dt, &mm);
}

/* z = b r + c r r. */
static void mu_polynomial(const mu_job *j, void *z, const void *r)
{
    uint64_t n_bytes = j->n * j->n * (j->dt == CKPT_F32 ? 4 : 2);

    j->d->ops->copy(j->d, z, r, n_bytes);
    mu_square(j, z, MU_C, r, r, MU_B);
}

/* Five steps on X itself; returns the buffer with the result. */
static void *mu_standard(mu_job *j)
{
    uint64_t n_bytes = j->n * j->m * (j->dt == CKPT_F32 ? 4 : 2);

    for (int i = 0; i < MU_STEPS; i++) {
        void *was = j->x;

        mu_gram(j, j->r, j->x);
        mu_polynomial(j, j->z, j->r);
        j->d->ops->copy(j->d, j->y, j->x, n_bytes);
        mu_apply(j, j->y, j->z, j->x, MU_A);
        j->x = j->y;
        j->y = was;
    }
    return j->x;
}

/* One step on R.  Q accumulates the factors by which X is multiplied at the end. */
static void mu_gram_step(mu_job *j, bool first, bool last)
{
    uint64_t square = j->n * j->n * 4;
    zt_rows diagonal = {.rows = j->n,
                        .width = 1,
                        .ld_to = j->n + 1,
                        .ld_from = 1,
                        .add = true,
                        .from = j->ones,
                        .to = j->q};

    mu_polynomial(j, j->z, j->r);
    if (first) { // Q = Z + a I
        j->d->ops->copy(j->d, j->q, j->z, square);
        j->d->ops->rows(j->d, j->dt, &diagonal);
    } else { // Q = a Q + Z Q
        void *was = j->q;

        j->d->ops->copy(j->d, j->t, j->q, square);
        mu_square(j, j->t, 1, j->z, j->q, MU_A);
        j->q = j->t;
        j->t = was;
    }
    if (!last) { // R = a (a R + Z R) + Z (a R + Z R)
        j->d->ops->copy(j->d, j->t, j->r, square);
        mu_square(j, j->t, 1, j->z, j->r, MU_A);
        j->d->ops->copy(j->d, j->r, j->t, square);
        mu_square(j, j->r, 1, j->z, j->t, MU_A);
    }
}

/* Five steps on the Gram matrix.  They restart from X once, which limits the rounding errors. */
static void *mu_by_gram(mu_job *j)
{
    void *was;

    mu_gram(j, j->r, j->x);
    for (int i = 0; i < MU_STEPS; i++) {
        if (i == MU_RESTART) {
            mu_apply(j, j->y, j->q, j->x, 0);
            was = j->x;
            j->x = j->y;
            j->y = was;
            mu_gram(j, j->r, j->x);
        }
        mu_gram_step(j, i == 0 || i == MU_RESTART, i == MU_STEPS - 1 || i + 1 == MU_RESTART);
    }
    mu_apply(j, j->y, j->q, j->x, 0);
    return j->y;
}

static void mu_fill(const mu_job *j)
{
    float block[256];

    for (size_t i = 0; i < 256; i++)
        block[i] = MU_A;
    for (uint64_t i = 0; i < j->n; i += 256) {
        uint64_t n = j->n - i < 256 ? j->n - i : 256;

        j->d->ops->put(j->d, j->ones + i, block, n * sizeof *block);
    }
}

/* Replace g by its orthogonal factor, in fp32. */
static void mu_gram_method(zt_device *d, mu_job *j, float *g, char *scratch)
{
    uint64_t whole = j->n * j->m * 4, square = j->n * j->n * 4;
    double norm = sqrt(d->ops->sum_squares(d, CKPT_F32, j->n * j->m, g));
    void *result;

    j->dt = CKPT_F32;
    j->x = g;
    j->y = mu_take(&scratch, whole);
    j->r = mu_take(&scratch, square);
    j->z = mu_take(&scratch, square);
    j->q = mu_take(&scratch, square);
    j->t = mu_take(&scratch, square);
    j->ones = mu_take(&scratch, j->n * 4);
    d->ops->scale(d, CKPT_F32, j->n * j->m, g, (float)(1 / (norm + 1e-7)));
    if (j->n == j->m) {
        result = mu_standard(j);
    } else {
        mu_fill(j);
        result = mu_by_gram(j);
    }
    if (result != g)
        d->ops->copy(d, g, result, whole);
}

/* Newton-Schulz in bf16 on X itself. */
static void mu_standard_method(zt_device *d, mu_job *j, float *g, char *scratch)
{
    uint64_t count = j->n * j->m, square = j->n * j->n * 2;
    double norm;

    j->dt = CKPT_BF16;
    j->x = mu_take(&scratch, count * 2);
    j->y = mu_take(&scratch, count * 2);
    j->r = mu_take(&scratch, square);
    j->z = mu_take(&scratch, square);
    d->ops->cast(d, count, j->x, CKPT_BF16, g, CKPT_F32);
    norm = sqrt(d->ops->sum_squares(d, CKPT_BF16, count, j->x));
    d->ops->scale(d, CKPT_BF16, count, j->x, (float)(1 / (norm + 1e-7)));
    d->ops->cast(d, count, g, CKPT_F32, mu_standard(j), CKPT_BF16);
}

/* m = b m + (1 - b) g, then g = (1 - b) g + b m: momentum with Nesterov's look-ahead. */
static void mu_blend(zt_device *d, double b, uint64_t n, float *g, float *momentum)
{
    zt_accumulate to_m = {.n = n,
                          .acc = momentum,
                          .acc_dtype = CKPT_F32,
                          .x = g,
                          .x_dtype = CKPT_F32,
                          .factor = (float)(1 - b),
                          .add = true};
    zt_accumulate to_g = to_m;

    to_g.acc = g;
    to_g.x = momentum;
    to_g.factor = (float)b;
    d->ops->scale(d, CKPT_F32, n, momentum, (float)b);
    d->ops->accumulate(d, &to_m);
    d->ops->scale(d, CKPT_F32, n, g, (float)(1 - b));
    d->ops->accumulate(d, &to_g);
}

// LIMIT: seven parameters; a struct for this one call of the ZeRO runtime would say less
void zt_muon_direction(zt_device *d, const zt_hyper *h, uint64_t rows, uint64_t cols, float *g,
                       float *momentum, void *scratch)
{
    mu_job j = {.d = d, .tall = rows > cols};

    if (rows == 0 || cols == 0 || !isfinite(d->ops->sum_squares(d, CKPT_F32, rows * cols, g))) {
        return; // an overflow: the step will be skipped, so the momentum must not change
    }
    j.n = j.tall ? cols : rows;
    j.m = j.tall ? rows : cols;
    assert(j.n <= j.m && g && momentum && scratch);
    mu_blend(d, h->momentum, rows * cols, g, momentum);
    if (h->muon_gram)
        mu_gram_method(d, &j, g, scratch);
    else
        mu_standard_method(d, &j, g, scratch);
    if (j.tall)
        d->ops->scale(d, CKPT_F32, rows * cols, g, (float)sqrt((double)rows / (double)cols));
}
