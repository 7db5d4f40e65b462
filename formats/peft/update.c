/* SPDX-License-Identifier: Apache-2.0 */
/*
 * update.c: computes the weights that adapters other than LoRA change.
 *
 * Each thread keeps the factors of one weight.  From them it computes any part of a stored row of
 * the update, in tiles of columns, and adds or multiplies it; OFT computes whole blocks of a row.
 */
#include <assert.h>
#include <inttypes.h>
#include <string.h>

#include "formats/peft/product.h"
#include "formats/peft/update.h"

/* The factors, in the memory that a thread keeps. */
typedef struct ku_factors {
    float *a, *b, *c, *d;
} ku_factors;

typedef struct ku_make ku_make;

/* The functions of a kind. */
typedef struct ku_kind {
    /* Set the numbers of elements of up to four factors and of the scratch; false: too large. */
    bool (*size)(const ckpt_update *o, uint64_t n[4], uint64_t *work);
    int (*fill)(const ckpt_update *o, ckpt_inputs *in, const ku_factors *f, float *work,
                ckpt_err *err);
    /* Compute n elements of a stored row of the update, or of the factors of the weight. */
    void (*row)(const ckpt_update *o, const ku_factors *f, float *to, uint64_t row, uint64_t col,
                uint64_t n);
} ku_kind;

struct ku_make {
    ckpt_make make; /* must be first */
    ckpt_update of;
    const ku_kind *kind;
    uint64_t n[4], work; /* elements of the factors and of the scratch */
    const ckpt_tensor *input[CKPT_PEFT_N_PARTS + 3];
};

/* *n = a * b * c; false: too large. */
static bool ku_size(uint64_t *n, uint64_t a, uint64_t b, uint64_t c)
{
    return ckpt_mul(a, b, n) && ckpt_mul(*n, c, n);
}

static int ku_read(ckpt_inputs *in, const ckpt_tensor *t, float *to, ckpt_err *err)
{
    return in->read(in, t, &(const ckpt_axis){0, t->n_elems, 0}, CKPT_F32, to, err);
}

/* to[cols, rows] = from[rows, cols]. */
static void ku_transpose(float *to, const float *from, uint64_t rows, uint64_t cols)
{
    for (uint64_t i = 0; i < rows; i++) {
        for (uint64_t k = 0; k < cols; k++)
            to[k * rows + i] = from[i * cols + k];
    }
}

/* The sizes of a product of two matrices. */
typedef struct ku_sizes {
    uint64_t rows, rank, cols;
} ku_sizes;

/* to[rows, cols] = left[rows, rank] right[rank, cols], each rounded. */
static void ku_multiply(const ckpt_update *o, float *to, const float *left, const float *right,
                        ku_sizes s)
{
    const uint64_t rows = s.rows, rank = s.rank, cols = s.cols;

    memset(to, 0, rows * cols * sizeof *to);
    for (uint64_t i = 0; i < rows; i++) {
        for (uint64_t at = 0; at < cols; at += CKPT_PEFT_TILE) {
            const uint64_t n = cols - at < CKPT_PEFT_TILE ? cols - at : CKPT_PEFT_TILE;

            ckpt_peft_product(to + i * cols + at, left + i * rank, right + at, cols, rank, n);
        }
    }
    ckpt_peft_round(o->round, to, rows * cols);
}

/* ---- IA3 ---- */

static const ckpt_tensor *ku_ia3(const ckpt_update *o)
{
    return o->part[CKPT_PEFT_IA3];
}

static bool ia3_size(const ckpt_update *o, uint64_t n[4], uint64_t *work)
{
    n[0] = ku_ia3(o)->n_elems;
    *work = 0;
    return true;
}

static int ia3_fill(const ckpt_update *o, ckpt_inputs *in, const ku_factors *f, float *work,
                    ckpt_err *err)
{
    (void)work;
    return ku_read(in, ku_ia3(o), f->a, err);
}

static void ia3_row(const ckpt_update *o, const ku_factors *f, float *to, uint64_t row,
                    uint64_t col, uint64_t n)
{
    const float *factor = f->a;
    uint64_t per_group = o->cols / o->kernel;

    if (o->inputs == o->turned) {
        for (uint64_t j = 0; j < n; j++)
            to[j] = factor[row];
        return;
    }
    // of a convolution with groups, the outputs of a group see the inputs of that group
    if (o->groups > 1)
        factor += row / (o->rows / o->groups) * per_group;
    for (uint64_t j = 0; j < n; j++)
        to[j] = factor[(col + j) / o->kernel];
}

/* ---- LoHa ---- */

static const ckpt_tensor *ku_loha(const ckpt_update *o, unsigned pair, char which)
{
    static const ckpt_peft_part part[2][3] = {
        {CKPT_PEFT_HADA_W1_A, CKPT_PEFT_HADA_W1_B, CKPT_PEFT_HADA_T1},
        {CKPT_PEFT_HADA_W2_A, CKPT_PEFT_HADA_W2_B, CKPT_PEFT_HADA_T2},
    };

    return o->part[part[pair][which == 'a' ? 0 : which == 'b' ? 1 : 2]];
}

/* The rank of a pair of factors. */
static uint64_t loha_rank(const ckpt_update *o, unsigned pair)
{
    return ku_loha(o, pair, 'b')->shape[0];
}

static bool loha_size(const ckpt_update *o, uint64_t n[4], uint64_t *work)
{
    *work = 0;
    for (unsigned i = 0; i < 2; i++) {
        const ckpt_tensor *t = ku_loha(o, i, 't');
        uint64_t all = ku_loha(o, i, 'a')->n_elems;

        if (!ku_size(&n[2 * i], o->rows, loha_rank(o, i), 1) ||
            !ku_size(&n[2 * i + 1], loha_rank(o, i), o->cols, 1) ||
            (t && (!ckpt_add(all, ku_loha(o, i, 'b')->n_elems, &all) ||
                   !ckpt_add(all, t->n_elems, &all) ||
                   !ckpt_add(all, ku_loha(o, i, 'b')->n_elems, &all))))
            return false;
        *work = t && all > *work ? all : *work;
    }
    return true;
}

/* Compute a pair whose t [r, r, k] joins w_a [r, out] and w_b [r, in]: left = w_a', right[i] = the
 * sum over j of w_b[j] t[i, j]. */
static int loha_joined(const ckpt_update *o, unsigned pair, ckpt_inputs *in, const ku_factors *f,
                       float *work, ckpt_err *err)
{
    float *left = pair == 0 ? f->a : f->c, *right = pair == 0 ? f->b : f->d;
    const ckpt_tensor *ta = ku_loha(o, pair, 'a'), *tb = ku_loha(o, pair, 'b');
    const ckpt_tensor *tt = ku_loha(o, pair, 't');
    const uint64_t r = loha_rank(o, pair), n_in = tb->shape[1], k = o->kernel;
    float *b = work + ta->n_elems, *turned = b + tb->n_elems, *t = turned + tb->n_elems;
    int rc = ku_read(in, ta, work, err);

    if (rc == CKPT_OK)
        rc = ku_read(in, tb, b, err);
    if (rc == CKPT_OK)
        rc = ku_read(in, tt, t, err);
    if (rc != CKPT_OK)
        return rc;
    ku_transpose(left, work, r, o->rows);
    ku_transpose(turned, b, r, n_in);
    for (uint64_t i = 0; i < r; i++)
        ku_multiply(o, right + i * o->cols, turned, t + i * r * k, (ku_sizes){n_in, r, k});
    return CKPT_OK;
}

static int loha_fill(const ckpt_update *o, ckpt_inputs *in, const ku_factors *f, float *work,
                     ckpt_err *err)
{
    int rc = CKPT_OK;

    for (unsigned i = 0; rc == CKPT_OK && i < 2; i++) {
        float *left = i == 0 ? f->a : f->c, *right = i == 0 ? f->b : f->d;

        if (ku_loha(o, i, 't')) {
            rc = loha_joined(o, i, in, f, work, err);
            continue;
        }
        rc = ku_read(in, ku_loha(o, i, 'a'), left, err);
        if (rc == CKPT_OK)
            rc = ku_read(in, ku_loha(o, i, 'b'), right, err);
    }
    return rc;
}

static void loha_row(const ckpt_update *o, const ku_factors *f, float *to, uint64_t row,
                     uint64_t col, uint64_t n)
{
    const uint64_t r1 = loha_rank(o, 0), r2 = loha_rank(o, 1);
    float other[CKPT_PEFT_TILE] = {0};

    memset(to, 0, n * sizeof *to);
    ckpt_peft_product(to, f->a + row * r1, f->b + col, o->cols, r1, n);
    ckpt_peft_product(other, f->c + row * r2, f->d + col, o->cols, r2, n);
    ckpt_peft_round(o->round, to, n);
    ckpt_peft_round(o->round, other, n);
    for (uint64_t j = 0; j < n; j++)
        to[j] *= other[j];
    ckpt_peft_round(o->round, to, n);
    for (uint64_t j = 0; j < n; j++)
        to[j] *= (float)o->scale;
}

/* ---- LoKr ---- */

/* The shape of a Kronecker factor: rows, and columns with the kernel. */
typedef struct lokr_shape {
    uint64_t rows, cols;
} lokr_shape;

static lokr_shape lokr_first(const ckpt_update *o)
{
    const ckpt_tensor *w = o->part[CKPT_PEFT_LOKR_W1], *a = o->part[CKPT_PEFT_LOKR_W1_A];

    return w ? (lokr_shape){w->shape[0], w->shape[1]}
             : (lokr_shape){a->shape[0], o->part[CKPT_PEFT_LOKR_W1_B]->shape[1]};
}

static lokr_shape lokr_second(const ckpt_update *o)
{
    const ckpt_tensor *w = o->part[CKPT_PEFT_LOKR_W2], *a = o->part[CKPT_PEFT_LOKR_W2_A];
    const ckpt_tensor *b = o->part[CKPT_PEFT_LOKR_W2_B];

    if (w)
        return (lokr_shape){w->shape[0], w->n_elems / w->shape[0]};
    // t2 joins [r, rows] and [r, cols]
    return o->part[CKPT_PEFT_LOKR_T2] ? (lokr_shape){a->shape[1], b->shape[1] * o->kernel}
                                      : (lokr_shape){a->shape[0], b->shape[1]};
}

static bool lokr_size(const ckpt_update *o, uint64_t n[4], uint64_t *work)
{
    const ckpt_peft_part parts[] = {CKPT_PEFT_LOKR_W1_A, CKPT_PEFT_LOKR_W1_B, CKPT_PEFT_LOKR_W2_A,
                                    CKPT_PEFT_LOKR_W2_B, CKPT_PEFT_LOKR_T2};
    const lokr_shape first = lokr_first(o), second = lokr_second(o);
    const ckpt_tensor *t = o->part[CKPT_PEFT_LOKR_T2];
    uint64_t joined = 0;

    *work = 0;
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        if (o->part[parts[i]] && !ckpt_add(*work, o->part[parts[i]]->n_elems, work))
            return false;
    }
    // the transposed matrices of t2, and its product with the first
    if (t &&
        (!ckpt_add(*work, *work, work) || !ku_size(&joined, second.rows, t->shape[0], o->kernel) ||
         !ckpt_add(*work, joined, work)))
        return false;
    return ku_size(&n[0], first.rows, first.cols, 1) && ku_size(&n[1], second.rows, second.cols, 1);
}

/* to = the product of part `first`, which ends in _a, and the part after it, which ends in _b. */
static int lokr_product(const ckpt_update *o, ckpt_inputs *in, float *to, ckpt_peft_part first,
                        float *w, ckpt_err *err)
{
    const ckpt_tensor *a = o->part[first], *b = o->part[first + 1];
    int rc = ku_read(in, a, w, err);

    if (rc == CKPT_OK)
        rc = ku_read(in, b, w + a->n_elems, err);
    if (rc == CKPT_OK)
        ku_multiply(o, to, w, w + a->n_elems, (ku_sizes){a->shape[0], a->shape[1], b->shape[1]});
    return rc;
}

/* to[p, q] = the sum over i, j of t2[i, j] w2_a[i, p] w2_b[j, q], first over i as torch.einsum. */
static int lokr_joined(const ckpt_update *o, ckpt_inputs *in, float *to, float *work, ckpt_err *err)
{
    const ckpt_tensor *ta = o->part[CKPT_PEFT_LOKR_W2_A], *tb = o->part[CKPT_PEFT_LOKR_W2_B];
    const ckpt_tensor *tt = o->part[CKPT_PEFT_LOKR_T2];
    const uint64_t r = ta->shape[0], k = o->kernel, n_p = ta->shape[1], n_q = tb->shape[1];
    float *a = work, *b = a + ta->n_elems, *t = b + tb->n_elems, *at = t + tt->n_elems;
    float *bt = at + ta->n_elems, *sum = bt + tb->n_elems;
    int rc = ku_read(in, ta, a, err);

    if (rc == CKPT_OK)
        rc = ku_read(in, tb, b, err);
    if (rc == CKPT_OK)
        rc = ku_read(in, tt, t, err);
    if (rc != CKPT_OK)
        return rc;
    ku_transpose(at, a, r, n_p);
    ku_transpose(bt, b, r, n_q);
    ku_multiply(o, sum, at, t, (ku_sizes){n_p, r, r * k});
    for (uint64_t p = 0; p < n_p; p++)
        ku_multiply(o, to + p * n_q * k, bt, sum + p * r * k, (ku_sizes){n_q, r, k});
    return CKPT_OK;
}

static int lokr_fill(const ckpt_update *o, ckpt_inputs *in, const ku_factors *f, float *work,
                     ckpt_err *err)
{
    const ckpt_tensor *const *p = o->part;
    int rc = p[CKPT_PEFT_LOKR_W1] ? ku_read(in, p[CKPT_PEFT_LOKR_W1], f->a, err)
                                  : lokr_product(o, in, f->a, CKPT_PEFT_LOKR_W1_A, work, err);

    if (rc != CKPT_OK)
        return rc;
    if (p[CKPT_PEFT_LOKR_W2])
        return ku_read(in, p[CKPT_PEFT_LOKR_W2], f->b, err);
    return p[CKPT_PEFT_LOKR_T2] ? lokr_joined(o, in, f->b, work, err)
                                : lokr_product(o, in, f->b, CKPT_PEFT_LOKR_W2_A, work, err);
}

/*
 * A w2 of three axes [b, d, k], of a 1-D convolution: peft's torch.kron gives it with w1 [a, c] the
 * shape [b, a d, c k], and reads that as [out, in, k].
 */
static void lokr_odd(const ckpt_update *o, const ku_factors *f, float *to, uint64_t at, uint64_t n)
{
    const lokr_shape first = lokr_first(o), second = lokr_second(o);
    const uint64_t k = o->kernel, d = second.cols / k, wide = first.cols * k;

    for (uint64_t j = 0; j < n; j++) {
        const uint64_t i = at + j, x = i / (first.rows * d * wide);
        const uint64_t y = i / wide % (first.rows * d), z = i % wide;

        to[j] = f->a[y / d * first.cols + z / k] * f->b[(x * d + y % d) * k + z % k];
    }
}

static void lokr_row(const ckpt_update *o, const ku_factors *f, float *to, uint64_t row,
                     uint64_t col, uint64_t n)
{
    const lokr_shape first = lokr_first(o), second = lokr_second(o);
    const ckpt_tensor *w2 = o->part[CKPT_PEFT_LOKR_W2];
    const float *left = f->a + row / second.rows * first.cols;
    const float *right = f->b + row % second.rows * second.cols;

    if (w2 && w2->ndim == 3) {
        lokr_odd(o, f, to, row * o->cols + col, n);
    } else {
        for (uint64_t j = 0, some; j < n; j += some) {
            const float by = left[(col + j) / second.cols];
            const float *from = right + (col + j) % second.cols;

            some = second.cols - (col + j) % second.cols;
            some = some < n - j ? some : n - j;
            for (uint64_t i = 0; i < some; i++)
                to[j + i] = by * from[i];
        }
    }
    ckpt_peft_round(o->round, to, n);
    for (uint64_t j = 0; j < n; j++)
        to[j] *= (float)o->scale;
}

/* ---- VeRA ---- */

static uint64_t vera_rank(const ckpt_update *o)
{
    return o->shared_a->shape[0];
}

static bool vera_size(const ckpt_update *o, uint64_t n[4], uint64_t *work)
{
    const uint64_t n_in = o->turned ? o->rows : o->cols, n_out = o->turned ? o->cols : o->rows;
    uint64_t n_a = 0, n_b = 0;

    // the parts of A and B, and the factors of outputs and ranks
    if (!ku_size(&n_a, vera_rank(o), n_in, 1) || !ku_size(&n_b, n_out, vera_rank(o), 1) ||
        !ckpt_add(n_a, n_b, work) || !ckpt_add(*work, vera_rank(o), work) ||
        !ckpt_add(*work, n_out, work))
        return false;
    n[0] = o->turned ? n_a : n_b;
    n[1] = o->turned ? n_b : n_a;
    return true;
}

static int vera_fill(const ckpt_update *o, ckpt_inputs *in, const ku_factors *f, float *work,
                     ckpt_err *err)
{
    const uint64_t n_in = o->turned ? o->rows : o->cols, n_out = o->turned ? o->cols : o->rows;
    const uint64_t r = vera_rank(o), wide = o->shared_a->shape[1];
    float *b = work + r * n_in, *of_rank = b + r * n_out, *of_out = of_rank + r;
    int rc = ku_read(in, o->part[CKPT_PEFT_VERA_D], of_rank, err);

    if (rc == CKPT_OK)
        rc = ku_read(in, o->part[CKPT_PEFT_VERA_B], of_out, err);
    if (rc == CKPT_OK)
        rc = in->read(in, o->shared_b, &(const ckpt_axis){0, n_out * r, 0}, CKPT_F32, b, err);
    for (uint64_t i = 0; rc == CKPT_OK && i < r; i++)
        rc = in->read(in, o->shared_a, &(const ckpt_axis){i * wide, n_in, 0}, CKPT_F32,
                      work + i * n_in, err);
    if (rc != CKPT_OK)
        return rc;
    for (uint64_t i = 0; i < r * n_in; i++)
        work[i] *= of_rank[i / n_in];
    for (uint64_t i = 0; i < n_out * r; i++)
        b[i] *= of_out[i / r];
    if (o->turned) {
        ku_transpose(f->a, work, r, n_in);
        ku_transpose(f->b, b, n_out, r);
    } else {
        memcpy(f->a, b, n_out * r * sizeof *b);
        memcpy(f->b, work, r * n_in * sizeof *work);
    }
    return CKPT_OK;
}

static void vera_row(const ckpt_update *o, const ku_factors *f, float *to, uint64_t row,
                     uint64_t col, uint64_t n)
{
    const uint64_t r = vera_rank(o);

    memset(to, 0, n * sizeof *to);
    ckpt_peft_product(to, f->a + row * r, f->b + col, o->cols, r, n);
    for (uint64_t j = 0; o->scale != 1 && j < n; j++)
        to[j] *= (float)o->scale;
}

/* ---- OFT ---- */

static const ckpt_tensor *ku_oft(const ckpt_update *o)
{
    return o->part[o->before ? CKPT_PEFT_OFT_TABLE : CKPT_PEFT_OFT];
}

static bool oft_size(const ckpt_update *o, uint64_t n[4], uint64_t *work)
{
    uint64_t wide = 0;

    // values of F64, aligned by a spare value
    if (!ku_size(&n[0], ku_oft(o)->shape[0], o->block, o->block) ||
        !ku_size(&wide, 2 * o->block + 3, o->block, 2) ||
        !ckpt_add(wide, ku_oft(o)->n_elems, work) || !ckpt_add(*work, 2, work))
        return false;
    return true;
}

static int oft_fill(const ckpt_update *o, ckpt_inputs *in, const ku_factors *f, float *work,
                    ckpt_err *err)
{
    const ckpt_tensor *t = ku_oft(o);
    float *vectors = work + 2 * (2 * o->block + 3) * o->block;
    int rc = ku_read(in, t, vectors, err);

    if (rc == CKPT_OK) {
        ckpt_update_rotations(o, f->a, (double *)(void *)work, vectors, t->shape[0]);
        ckpt_peft_round(o->round, f->a, t->shape[0] * o->block * o->block);
    }
    return rc;
}

static const ku_kind ku_kinds[CKPT_PEFT_N_KINDS] = {
    [CKPT_PEFT_KIND_IA3] = {ia3_size, ia3_fill, ia3_row},
    [CKPT_PEFT_KIND_LOHA] = {loha_size, loha_fill, loha_row},
    [CKPT_PEFT_KIND_LOKR] = {lokr_size, lokr_fill, lokr_row},
    [CKPT_PEFT_KIND_VERA] = {vera_size, vera_fill, vera_row},
    [CKPT_PEFT_KIND_OFT] = {oft_size, oft_fill, NULL},
};

/* ---- ranges ---- */

/* Get the factors of a weight; a thread computes them once. */
static int ku_get(const ku_make *m, ckpt_inputs *in, ku_factors *f, ckpt_err *err)
{
    bool fresh = false;
    float *kept = in->keep(in, m, (m->n[0] + m->n[1] + m->n[2] + m->n[3]) * sizeof *kept, &fresh);
    float *work;

    if (!kept)
        return ckpt_fail_memory(err);
    f->a = kept;
    f->b = f->a + m->n[0];
    f->c = f->b + m->n[1];
    f->d = f->c + m->n[2];
    if (!fresh)
        return CKPT_OK;
    work = in->scratch(in, (m->work + 1) * sizeof *work);
    return work ? m->kind->fill(&m->of, in, f, work, err) : ckpt_fail_memory(err);
}

/* Add an update to part of a stored row, or multiply the row by it. */
static void ku_row(const ku_make *m, const ku_factors *f, float *to, uint64_t row, uint64_t col,
                   uint64_t n)
{
    float by[CKPT_PEFT_TILE];

    m->kind->row(&m->of, f, by, row, col, n);
    if (m->of.kind == CKPT_PEFT_KIND_IA3) {
        for (uint64_t j = 0; j < n; j++)
            to[j] *= by[j];
        return;
    }
    ckpt_peft_round(m->of.round, by, n);
    for (uint64_t j = 0; j < n; j++)
        to[j] += by[j];
}

static int ku_run(const ckpt_make *make, ckpt_inputs *in, void *to, uint64_t n, uint64_t at,
                  ckpt_err *err)
{
    const ku_make *m = (const ku_make *)(const void *)make;
    const ckpt_update *o = &m->of;
    ku_factors f = {0};
    float *x = to;
    int rc = ku_get(m, in, &f, err);

    if (rc == CKPT_OK && n > 0)
        rc = in->read(in, o->base, &(const ckpt_axis){at, n, 0}, CKPT_F32, x, err);
    for (uint64_t i = 0, some; rc == CKPT_OK && i < n; i += some) {
        const uint64_t col = (at + i) % o->cols;

        some = o->cols - col < n - i ? o->cols - col : n - i;
        some = some < CKPT_PEFT_TILE ? some : CKPT_PEFT_TILE;
        ku_row(m, &f, x + i, (at + i) / o->cols, col, some);
    }
    return rc;
}

/* Rotate the blocks of rows that have elements at..at+n-1. */
static int ku_rotate(const ckpt_make *make, ckpt_inputs *in, void *to, uint64_t n, uint64_t at,
                     ckpt_err *err)
{
    const ku_make *m = (const ku_make *)(const void *)make;
    const ckpt_update *o = &m->of;
    const uint64_t s = o->block, first = at / s * s, all = (at + n - first + s - 1) / s * s;
    ku_factors f = {0};
    float *rows, *result, *x = to;
    int rc = ku_get(m, in, &f, err);

    rows = rc == CKPT_OK ? in->scratch(in, (all + s) * sizeof *rows) : NULL;
    if (rc == CKPT_OK)
        rc = rows ? in->read(in, o->base, &(const ckpt_axis){first, all, 0}, CKPT_F32, rows, err)
                  : ckpt_fail_memory(err);
    if (rc != CKPT_OK)
        return rc;
    result = rows + all;
    ckpt_peft_round(o->round, rows, all);
    for (uint64_t i = first; i < first + all; i += s) {
        const float *r = f.a + (o->block_share ? 0 : i % o->cols / s * s * s);
        const uint64_t from = i < at ? at - i : 0, end = at + n - i < s ? at + n - i : s;

        memset(result, 0, s * sizeof *result);
        ckpt_peft_product(result, rows + (i - first), r, s, s, s);
        ckpt_peft_round(o->round, result, s);
        memcpy(x + (i + from - at), result + from, (end - from) * sizeof *x);
    }
    return CKPT_OK;
}

/* ---- set-up ---- */

/* List all tensors that the operation reads. */
static uint32_t ku_inputs(ku_make *m)
{
    const ckpt_update *o = &m->of;
    const ckpt_tensor *others[3] = {o->base, o->shared_a, o->shared_b};
    uint32_t n = 0;

    for (unsigned i = 0; i < 3; i++) {
        if (others[i])
            m->input[n++] = others[i];
    }
    for (unsigned i = 0; i < CKPT_PEFT_BASE_WEIGHT; i++) {
        if (o->part[i])
            m->input[n++] = o->part[i];
    }
    return n;
}

int ckpt_update_put(ckpt_map *map, ckpt_tensor *t, const ckpt_update *update, ckpt_err *err)
{
    assert(map && t && update && update->base && update->cols > 0 && update->kernel > 0);
    const ckpt_update *o = update;
    const bool oft = o->kind == CKPT_PEFT_KIND_OFT;
    ku_make *m = ckpt_arena_alloc(map->arena, sizeof *m);
    uint64_t all = 0;
    uint32_t source = 0;
    int rc;

    if (!m)
        return ckpt_fail_memory(err);
    m->of = *o;
    m->kind = &ku_kinds[o->kind];
    if (!m->kind->size(o, m->n, &m->work) || !ckpt_add(m->n[0], m->n[1], &all) ||
        !ckpt_add(all, m->n[2], &all) || !ckpt_add(all, m->n[3], &all) || all > SIZE_MAX / 16 ||
        m->work > SIZE_MAX / 16)
        return ckpt_fail(err, CKPT_ELIMIT, "%.200s: the adapter's factors of it are too large",
                         o->name);
    m->make = (ckpt_make){.name = o->name,
                          .dtype = CKPT_F32,
                          .n_inputs = ku_inputs(m),
                          .input = m->input,
                          .make = oft ? ku_rotate : ku_run};
    m->make.terms = ckpt_arena_printf(
        map->arena, "%s %.17g %d %d %d %d %" PRIu64 " %" PRIu64 " %d %d %d %.17g %u",
        ckpt_peft_kind_name(o->kind), o->scale, (int)o->turned, (int)o->inputs, (int)o->before,
        (int)o->round, o->groups, o->block, (int)o->coft, (int)o->block_share,
        (int)o->cayley_neumann, o->eps, (unsigned)o->neumann_terms);
    if (!m->make.terms)
        return ckpt_fail_memory(err);
    rc = ckpt_map_add_made(map, &m->make, o->base->n_elems, &source, err);
    if (t->export_dtype == CKPT_DTYPE_NONE)
        t->export_dtype = t->dtype;
    t->dtype = CKPT_F32;
    t->twin = t->addend = NULL;
    return rc == CKPT_OK ? ckpt_map_back_whole(map, t, source, 0, err) : rc;
}
