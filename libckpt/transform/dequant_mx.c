/* SPDX-License-Identifier: Apache-2.0 */
/*
 * dequant_mx.c: decodes torchao's NVFP4Tensor and MXTensor (prototype/mx_formats of torchao 0.18).
 *
 * With R rows, C columns and blocks of b columns:
 *
 *    NVFP4Tensor  qdata [R, C / 2], two E2M1 in a byte, the first in its lower half; scale
 *                 [R, C / b], E4M3, times per_tensor_scale: q * scale in F32, rounded once
 *    MXTensor     qdata [R, C], E4M3 or E5M2, or pairs of E2M1; scale, exponents: both are rounded
 *                 to the parameter's dtype first, as is their product (to_dtype)
 *
 * Scales may be swizzled (to_blocked): tiles of 128 rows and 4 columns follow each other, padded;
 * in a tile, row r and column c are at r % 32 * 16 + r / 32 * 4 + c.
 */
#include <math.h>
#include <string.h>

#include "libckpt/map/nest.h"
#include "libckpt/transform/dequantize.h"

enum { DQX_ROWS = 128, DQX_COLS = 4, DQX_TILE = DQX_ROWS * DQX_COLS };

typedef struct dqx_make {
    ckpt_make make; /* first */
    const ckpt_tensor *input[3];
    const ckpt_tensor *q, *scale, *total; /* inputs; total: NULL: none */
    bool pairs, exponents, swizzled;
    uint64_t cols, block, grid[2]; /* rows and columns of scales */
    ckpt_cast_fn narrow, widen;    /* of factors to the result's dtype and back; NULL: exact */
    ckpt_dequant_round round;
} dqx_make;

/* Stored scales of 128 rows. */
typedef struct dqx_stripe {
    uint64_t number; /* + 1; 0: nothing is read */
    uint8_t bytes[];
} dqx_stripe;

static const float dqx_e2m1[16] = {0,     0.5f,  1,  1.5f,  2,  3,  4,  6,
                                   -0.0f, -0.5f, -1, -1.5f, -2, -3, -4, -6};

/* Columns of scales with the padding of swizzled ones. */
static uint64_t dqx_padded(uint64_t n, uint64_t to)
{
    return (n + to - 1) / to * to;
}

/* Read the stored scales first ... first + n - 1, in the order of blocks. */
static int dqx_stored(const dqx_make *m, ckpt_inputs *in, uint64_t first, uint64_t n, uint8_t *to,
                      ckpt_err *err)
{
    uint64_t wide = dqx_padded(m->grid[1], DQX_COLS) * DQX_ROWS;
    int rc = CKPT_OK;

    if (!m->swizzled)
        return in->read(in, m->scale, &(const ckpt_axis){first, n, 0}, CKPT_DTYPE_NONE, to, err);
    for (uint64_t i = 0; rc == CKPT_OK && i < n; i++) {
        uint64_t row = (first + i) / m->grid[1], col = (first + i) % m->grid[1];
        uint64_t number = row / DQX_ROWS, r = row % DQX_ROWS;
        bool fresh = false;
        dqx_stripe *s = in->keep(in, m, sizeof *s + wide, &fresh);

        if (!s)
            return ckpt_fail_memory(err);
        if (fresh || s->number != number + 1) {
            s->number = 0;
            rc = in->read(in, m->scale, &(const ckpt_axis){number * wide, wide, 0}, CKPT_DTYPE_NONE,
                          s->bytes, err);
        }
        if (rc == CKPT_OK) {
            s->number = number + 1;
            to[i] = s->bytes[col / DQX_COLS * DQX_TILE + r % 32 * 16 + r / 32 * 4 + col % DQX_COLS];
        }
    }
    return rc;
}

/* Compute the factors of n blocks; byte: room for n bytes. */
static int dqx_factors(const dqx_make *m, ckpt_inputs *in, const uint8_t *byte, uint64_t n,
                       float *to, ckpt_err *err)
{
    float total = 1;
    int rc = CKPT_OK;

    if (m->total)
        rc = in->read(in, m->total, &(const ckpt_axis){0, 1, 0}, CKPT_DTYPE_NONE, &total, err);
    if (rc == CKPT_OK && !m->exponents)
        ckpt_cast_find(CKPT_F32, CKPT_F8_E4M3)(to, byte, (size_t)n);
    for (uint64_t i = 0; rc == CKPT_OK && m->exponents && i < n; i++)
        to[i] = byte[i] == 255 ? NAN : ldexpf(1.0f, byte[i] - 127);
    for (uint64_t i = 0; rc == CKPT_OK && m->total && i < n; i++)
        to[i] = total * to[i];
    for (uint64_t i = 0; rc == CKPT_OK && m->narrow && i < n; i++) {
        uint16_t half;

        m->narrow(&half, &to[i], 1);
        m->widen(&to[i], &half, 1);
    }
    return rc;
}

static int dqx_run(const ckpt_make *make, ckpt_inputs *in, void *to, uint64_t n, uint64_t at,
                   ckpt_err *err)
{
    const dqx_make *m = (const dqx_make *)(const void *)make;
    uint64_t first = at / m->block, blocks = n ? (at + n - 1) / m->block - first + 1 : 0;
    uint64_t n_x = m->round.narrow ? n : 0, byte = at / 2, n_bytes = (at + n + 1) / 2 - byte;
    float *factor = in->scratch(in, (n_x + blocks) * sizeof *factor + blocks + n_bytes);
    float *x = n_x ? factor + blocks : to;
    uint8_t *stored = (uint8_t *)(factor + blocks + n_x), *codes = stored + blocks;
    int rc = factor ? CKPT_OK : ckpt_fail_memory(err);

    if (rc == CKPT_OK)
        rc = dqx_stored(m, in, first, blocks, stored, err);
    if (rc == CKPT_OK)
        rc = dqx_factors(m, in, stored, blocks, factor, err);
    if (rc == CKPT_OK && !m->pairs)
        rc = in->read(in, m->q, &(const ckpt_axis){at, n, 0}, CKPT_F32, x, err);
    if (rc == CKPT_OK && m->pairs)
        rc = in->read(in, m->q, &(const ckpt_axis){byte, n_bytes, 0}, CKPT_DTYPE_NONE, codes, err);
    for (uint64_t i = 0; rc == CKPT_OK && m->pairs && i < n; i++)
        x[i] = dqx_e2m1[codes[(at + i) / 2 - byte] >> (at + i) % 2 * 4 & 15];
    for (uint64_t i = 0; rc == CKPT_OK && i < n; i++)
        x[i] = x[i] * factor[(at + i) / m->block - first];
    if (rc == CKPT_OK)
        ckpt_dequant_finish(&m->round, to, x, n);
    return rc;
}

/* ---- making the tensors ---- */

/* True if the scales have one number for each block, or those of whole tiles. */
static bool dqx_fits(const dqx_make *m, const ckpt_tensor *t)
{
    uint64_t n;

    if (!m->swizzled)
        return t->ndim > 0 && t->shape[t->ndim - 1] == m->grid[1] &&
               t->n_elems == m->grid[0] * m->grid[1];
    return ckpt_mul(dqx_padded(m->grid[0], DQX_ROWS), dqx_padded(m->grid[1], DQX_COLS), &n) &&
           n <= UINT32_MAX * UINT64_C(4096) && t->n_elems == n;
}

int ckpt_dequant_mx(ckpt_dequantizing *w, const ckpt_dequant_parts *p, const ckpt_dequant_ao *a)
{
    const ckpt_tensor *t = p->weight, *s = p->scale, *total = p->other[4];
    const ckpt_tensor *const from[] = {t, s, total};
    uint64_t *shape = ckpt_arena_array(w->map->arena, t->ndim + 1ull, sizeof *shape);
    dqx_make *m = ckpt_arena_alloc(w->map->arena, sizeof *m);
    int rc = m && shape ? CKPT_OK : ckpt_fail_memory(w->err);

    if (rc != CKPT_OK)
        return rc;
    m->pairs = t->dtype == CKPT_U8;
    m->exponents = !a->nvfp4;
    m->swizzled = a->swizzled;
    m->block = a->n_block;
    if (t->ndim < 2 || t->n_elems == 0 || m->block == 0)
        return ckpt_dequant_unfit(w, p, s);
    m->cols = t->shape[t->ndim - 1];
    m->grid[0] = t->n_elems / m->cols;
    if (m->pairs && !ckpt_mul(m->cols, 2, &m->cols))
        return ckpt_dequant_unfit(w, p, s);
    m->grid[1] = m->cols / m->block;
    if (m->cols % m->block || !dqx_fits(m, s) ||
        (a->nvfp4 ? s->dtype != CKPT_F8_E4M3 : s->dtype != CKPT_F8_E8M0 && s->dtype != CKPT_U8))
        return ckpt_dequant_unfit(w, p, s);
    if (total && (!a->nvfp4 || total->dtype != CKPT_F32 || total->n_elems != 1))
        return ckpt_dequant_unfit(w, p, total);
    const ckpt_tensor **const to[] = {&m->q, &m->scale, &m->total};
    for (size_t i = 0; rc == CKPT_OK && i < 3 && from[i]; i++) {
        rc = ckpt_map_hide(w->map, from[i], &m->input[i], w->err);
        *to[i] = m->input[i];
        m->make.n_inputs++;
    }
    if (rc != CKPT_OK)
        return rc;
    m->make.input = m->input;
    m->make.make = dqx_run;
    ckpt_dequant_rounding(w, &m->round, a->dtype);
    // powers of two are exact but in F16
    m->narrow = a->nvfp4 || a->dtype != CKPT_F16 ? NULL : ckpt_cast_find(CKPT_F16, CKPT_F32);
    m->widen = ckpt_cast_find(CKPT_F32, CKPT_F16);
    memcpy(shape, t->shape, t->ndim * sizeof *shape);
    shape[t->ndim - 1] = m->cols;
    return ckpt_dequant_put(w, p, &m->make, m->round.dtype, shape, t->ndim);
}
