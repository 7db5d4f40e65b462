/* SPDX-License-Identifier: Apache-2.0 */
/*
 * lora.c: computes low-rank updates.
 *
 * Any range of the flattened weight is base + L R, with one row of L for each stored row.  The two
 * factors are prepared once per thread and weight.  Products are computed in tiles of columns, so
 * that a tile of R stays in the cache for all rows of the range.
 */
#include <assert.h>
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "formats/peft/lora.h"
#include "formats/peft/product.h"

enum {
    LW_TILE = CKPT_PEFT_TILE, /* columns */
    LW_STRETCH = 1 << 16      /* elements read at a time for norms */
};

typedef struct lw_make {
    ckpt_make make; /* must be first */
    ckpt_lora of;
    const ckpt_tensor *input[4];
    float *factor; /* DoRA: factor of each output */
} lw_make;

/* ---- the factors ---- */

/* Read A, [n_mats * rank, in], into one factor, unchanged or with each matrix transposed. */
static int lw_put_a(const ckpt_lora *o, ckpt_inputs *in, float *left, float *right, ckpt_err *err)
{
    uint64_t n_in = o->turned ? o->rows : o->cols, size = o->rank * n_in;
    float *x = right;
    int rc = CKPT_OK;

    if (!o->a) {
        for (uint64_t i = 0; i < o->n_mats * size; i++)
            (o->turned ? left : right)[i] = 1;
        return CKPT_OK;
    }
    if (!o->turned)
        return in->read(in, o->a, &(const ckpt_axis){0, o->n_mats * size, 0}, CKPT_F32, right, err);
    x = in->scratch(in, size * sizeof *x);
    for (uint64_t e = 0; rc == CKPT_OK && e < o->n_mats; e++) {
        rc = x ? in->read(in, o->a, &(const ckpt_axis){e * size, size, 0}, CKPT_F32, x, err)
               : ckpt_fail_memory(err);
        for (uint64_t i = 0; rc == CKPT_OK && i < n_in; i++) {
            for (uint64_t k = 0; k < o->rank; k++)
                left[e * size + i * o->rank + k] = x[k * n_in + i];
        }
    }
    return rc;
}

/* Read B, [out, rank * n_mats], in which the matrices' columns are interleaved. */
static int lw_put_b(const ckpt_lora *o, ckpt_inputs *in, float *left, float *right, ckpt_err *err)
{
    uint64_t n_out = o->turned ? o->cols : o->rows, width = o->rank * o->n_mats;
    float *x = in->scratch(in, n_out * width * sizeof *x);
    int rc = x ? in->read(in, o->b, &(const ckpt_axis){0, n_out * width, 0}, CKPT_F32, x, err)
               : ckpt_fail_memory(err);

    for (uint64_t i = 0; rc == CKPT_OK && i < n_out; i++) {
        for (uint64_t k = 0; k < o->rank; k++) {
            for (uint64_t e = 0; e < o->n_mats; e++) {
                float v = x[i * width + k * o->n_mats + e];
                if (o->turned)
                    right[(e * o->rank + k) * n_out + i] = v;
                else
                    left[(e * n_out + i) * o->rank + k] = v;
            }
        }
    }
    return rc;
}

/* Get both factors: left [n_mats, rows, rank], right [n_mats, rank, cols]; cached per thread. */
static int lw_factors(const lw_make *m, ckpt_inputs *in, float **left, float **right, ckpt_err *err)
{
    const ckpt_lora *o = &m->of;
    uint64_t n_left = o->n_mats * o->rows * o->rank, n_right = o->n_mats * o->rank * o->cols;
    bool fresh = false;
    float *kept = in->keep(in, m, (n_left + n_right) * sizeof *kept, &fresh);
    int rc;

    if (!kept)
        return ckpt_fail_memory(err);
    *left = kept;
    *right = kept + n_left;
    if (!fresh)
        return CKPT_OK;
    rc = lw_put_a(o, in, *left, *right, err);
    if (rc == CKPT_OK)
        rc = lw_put_b(o, in, *left, *right, err);
    ckpt_peft_round(o->all, kept, n_left + n_right);
    return rc;
}

/* ---- ranges ---- */

/* The dtype of intermediate steps: DoRA of a 16-bit adapter on a base of that dtype rounds each
 * step in torch. */
static ckpt_dtype lw_steps(const ckpt_lora *o)
{
    return o->base->dtype == o->round ? o->round : CKPT_DTYPE_NONE;
}

/* Add the update of up to LW_TILE columns to a part of a stored row. */
static void lw_tile(const ckpt_lora *o, float *to, const float *left, const float *right,
                    uint64_t n)
{
    float acc[LW_TILE] = {0};

    ckpt_peft_product(acc, left, right, o->cols, o->rank, n);
    for (uint64_t j = 0; j < n; j++)
        acc[j] *= (float)o->scale;
    ckpt_peft_round(o->round, acc, n);
    for (uint64_t j = 0; j < n; j++)
        to[j] += acc[j];
}

/* Compute elements at..at+n-1 without DoRA's factors. */
static int lw_stretch(const lw_make *m, ckpt_inputs *in, float *to, uint64_t n, uint64_t at,
                      ckpt_err *err)
{
    const ckpt_lora *o = &m->of;
    uint64_t first = at / o->cols, last = (at + n - 1) / o->cols;
    float *left = NULL, *right = NULL;
    int rc = lw_factors(m, in, &left, &right, err);

    if (rc == CKPT_OK)
        rc = in->read(in, o->base, &(const ckpt_axis){at, n, 0}, CKPT_F32, to, err);
    if (rc == CKPT_OK)
        ckpt_peft_round(o->all, to, n);
    for (uint64_t tile = 0; rc == CKPT_OK && tile < o->cols; tile += LW_TILE) {
        uint64_t end = o->cols - tile < LW_TILE ? o->cols : tile + LW_TILE;

        for (uint64_t row = first; row <= last; row++) {
            uint64_t from = row == first && at % o->cols > tile ? at % o->cols : tile;
            uint64_t stop = at + n - row * o->cols < end ? at + n - row * o->cols : end;
            const float *r = right + row / o->rows * o->rank * o->cols;

            if (from < stop)
                lw_tile(o, to + (row * o->cols + from - at), left + row * o->rank, r + from,
                        stop - from);
        }
    }
    return rc;
}

static int lw_run(const ckpt_make *make, ckpt_inputs *in, void *to, uint64_t n, uint64_t at,
                  ckpt_err *err)
{
    const lw_make *m = (const lw_make *)(const void *)make;
    const ckpt_lora *o = &m->of;
    float *x = to;
    int rc = n > 0 ? lw_stretch(m, in, x, n, at, err) : CKPT_OK;

    if (rc == CKPT_OK && m->factor)
        ckpt_peft_round(lw_steps(o), x, n);
    for (uint64_t i = 0; rc == CKPT_OK && m->factor && i < n; i++)
        x[i] *= m->factor[o->turned ? (at + i) % o->cols : (at + i) / o->cols % o->rows];
    return rc;
}

/* ---- DoRA ---- */

/* Sum the squares of each output's weights; one thread reads the ranges in order. */
static int lw_squares(const lw_make *m, ckpt_inputs *in, double *sum, ckpt_err *err)
{
    const ckpt_lora *o = &m->of;
    float *x = ckpt_alloc(LW_STRETCH * sizeof *x);
    int rc = x ? CKPT_OK : ckpt_fail_memory(err);

    for (uint64_t at = 0; rc == CKPT_OK && at < o->base->n_elems; at += LW_STRETCH) {
        uint64_t left = o->base->n_elems - at, n = left < LW_STRETCH ? left : LW_STRETCH;

        rc = lw_stretch(m, in, x, n, at, err);
        if (rc == CKPT_OK)
            ckpt_peft_round(lw_steps(o), x, n);
        for (uint64_t i = 0; rc == CKPT_OK && i < n; i++)
            sum[o->turned ? (at + i) % o->cols : (at + i) / o->cols] += (double)x[i] * (double)x[i];
    }
    ckpt_free(x);
    return rc;
}

static int lw_prepare(ckpt_make *make, ckpt_inputs *in, ckpt_err *err)
{
    lw_make *m = (lw_make *)(void *)make;
    uint64_t n_out = m->of.turned ? m->of.cols : m->of.rows;
    double *sum = ckpt_alloc(n_out * sizeof *sum);
    int rc = CKPT_OK;

    ckpt_free(m->factor);
    m->factor = ckpt_alloc(n_out * sizeof *m->factor);
    if (!sum || !m->factor)
        rc = ckpt_fail_memory(err);
    if (rc == CKPT_OK)
        rc = lw_squares(m, in, sum, err);
    if (rc == CKPT_OK)
        rc = in->read(in, m->of.magnitude, &(const ckpt_axis){0, n_out, 0}, CKPT_F32, m->factor,
                      err);
    for (uint64_t i = 0; rc == CKPT_OK && i < n_out; i++) {
        float norm = (float)sqrt(sum[i]);

        ckpt_peft_round(lw_steps(&m->of), &norm, 1);
        m->factor[i] /= norm;
        ckpt_peft_round(lw_steps(&m->of), &m->factor[i], 1);
    }
    ckpt_free(sum);
    return rc;
}

static void lw_release(ckpt_make *make)
{
    lw_make *m = (lw_make *)(void *)make;

    ckpt_free(m->factor);
    m->factor = NULL;
}

/* ---- set-up ---- */

int ckpt_lora_put(ckpt_map *map, ckpt_tensor *t, const ckpt_lora *lora, ckpt_err *err)
{
    assert(map && t && lora && lora->base && lora->b && lora->rank > 0);
    lw_make *m = ckpt_arena_alloc(map->arena, sizeof *m);
    const ckpt_tensor *all[4] = {lora->base, lora->b, lora->a, lora->magnitude};
    uint32_t source = 0, n = 0;
    int rc;

    if (!m)
        return ckpt_fail_memory(err);
    for (unsigned i = 0; i < 4; i++) {
        if (all[i])
            m->input[n++] = all[i];
    }
    m->of = *lora;
    m->make = (ckpt_make){.name = lora->name,
                          .dtype = CKPT_F32,
                          .n_inputs = n,
                          .input = m->input,
                          .prepare = lora->magnitude ? lw_prepare : NULL,
                          .make = lw_run,
                          .release = lw_release};
    m->make.terms = ckpt_arena_printf(map->arena, "lora %.17g %d %d %d %" PRIu64, lora->scale,
                                      lora->turned, (int)lora->round, (int)lora->all, lora->rank);
    if (!m->make.terms)
        return ckpt_fail_memory(err);
    rc = ckpt_map_add_made(map, &m->make, lora->base->n_elems, &source, err);
    if (t->export_dtype == CKPT_DTYPE_NONE)
        t->export_dtype = t->dtype;
    t->dtype = CKPT_F32;
    t->twin = t->addend = NULL;
    return rc == CKPT_OK ? ckpt_map_back_whole(map, t, source, 0, err) : rc;
}
