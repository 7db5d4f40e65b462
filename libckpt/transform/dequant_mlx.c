/* SPDX-License-Identifier: Apache-2.0 */
/*
 * dequant_mlx.c: decodes weights of MLX: numbers of 2 to 8 bits in words of 32 bits.
 *
 * X.weight, U32, has the numbers of a row as one string of bits, the first in the lowest bits of
 * the first word; rows fill their words. X.scales has a value for each group of columns. By mode
 * (mlx 0.32, mlx/ops.cpp and mlx/fast.cpp, dequantize):
 *
 *    affine         number * scale + bias, with X.biases; each operation is rounded to the dtype of
 *                   the scales
 *    mxfp4, nvfp4   E2M1 times an exponent (E8M0), or times E4M3; the result is BF16
 *    mxfp8          E4M3 times an exponent; the result is BF16
 *
 * A tensor of any number of dimensions is one row here: groups and words follow each other.
 */
#include <math.h>
#include <string.h>

#include "libckpt/map/nest.h"
#include "libckpt/transform/dequantize.h"

enum { DQM_BLOCK = 32 /* so many numbers fill whole words */, DQM_ROUND = 512 };

typedef struct dqm_make {
    ckpt_make make;              /* first */
    const ckpt_tensor *input[3]; /* words, scales, biases */
    unsigned bits;
    uint64_t group;
    const float *value, *scale;  /* of the codes of numbers and scales; NULL: affine */
    ckpt_cast_fn widen, shorten; /* between the scales' dtype and F32; NULL: it is F32 */
    ckpt_dequant_round round;
} dqm_make;

/* ---- the arithmetic ---- */

/* Read the scales, or the biases, of groups as F32; behind them is room for their bytes. */
static int dqm_factors(const dqm_make *m, ckpt_inputs *in, const ckpt_tensor *t,
                       const ckpt_axis *part, float *to, ckpt_err *err)
{
    uint8_t *code = (uint8_t *)(to + part->count);

    if (!m->scale)
        return in->read(in, t, part, CKPT_F32, to, err);
    int rc = in->read(in, t, part, CKPT_DTYPE_NONE, code, err);

    for (uint64_t i = 0; rc == CKPT_OK && i < part->count; i++)
        to[i] = m->scale[code[i]];
    return rc;
}

/* Round n products to the dtype of the scales. */
static void dqm_round(const dqm_make *m, float *x, uint64_t n)
{
    uint16_t own[DQM_ROUND];

    for (uint64_t i = 0, some; m->widen && i < n; i += some) {
        some = n - i < DQM_ROUND ? n - i : DQM_ROUND;
        m->shorten(own, x + i, (size_t)some);
        m->widen(x + i, own, (size_t)some);
    }
}

/* Compute the n values of a group from its numbers q. */
static void dqm_group(const dqm_make *m, const float *q, uint64_t n, const float factor[2],
                      float *x)
{
    for (uint64_t i = 0; m->value && i < n; i++)
        x[i] = m->value[(unsigned)q[i]] * factor[0];
    if (m->value)
        return;
    for (uint64_t i = 0; i < n; i++)
        x[i] = q[i] * factor[0];
    dqm_round(m, x, n);
    for (uint64_t i = 0; i < n; i++)
        x[i] = x[i] + factor[1];
}

static int dqm_run(const ckpt_make *make, ckpt_inputs *in, void *to, uint64_t n, uint64_t at,
                   ckpt_err *err)
{
    const dqm_make *m = (const dqm_make *)(const void *)make;
    uint64_t block = at / DQM_BLOCK, blocks = n ? (at + n - 1) / DQM_BLOCK - block + 1 : 0;
    uint64_t word = block * m->bits, all = m->input[0]->n_elems, words = blocks * m->bits;
    uint64_t group = at / m->group, groups = n ? (at + n - 1) / m->group - group + 1 : 0;
    const ckpt_axis part = {group, groups, 0};
    uint64_t n_x = m->round.narrow ? n : 0;
    float *q = in->scratch(in, (blocks * DQM_BLOCK + words + 4 * groups + n_x) * sizeof *q);
    float *scale = q + blocks * DQM_BLOCK, *bias = scale + 2 * groups;
    float *x = n_x ? bias + 2 * groups + words : to;
    uint32_t *buf = (uint32_t *)(void *)(bias + 2 * groups);
    int rc = q ? CKPT_OK : ckpt_fail_memory(err);

    if (rc != CKPT_OK || n == 0)
        return rc;
    // the numbers of the last row may end in the middle of a block
    if (words > all - word) {
        memset(buf + (all - word), 0, (size_t)(words - (all - word)) * sizeof *buf);
        words = all - word;
    }
    rc = in->read(in, m->input[0], &(const ckpt_axis){word, words, 0}, CKPT_DTYPE_NONE, buf, err);
    if (rc == CKPT_OK)
        rc = dqm_factors(m, in, m->input[1], &part, scale, err);
    if (rc == CKPT_OK && m->input[2])
        rc = dqm_factors(m, in, m->input[2], &part, bias, err);
    if (rc == CKPT_OK)
        ckpt_dequant_unpack(buf, m->bits, blocks, q);
    for (uint64_t i = 0, some; rc == CKPT_OK && i < n; i += some) {
        uint64_t here = at + i, g = here / m->group - group, left = m->group - here % m->group;

        some = n - i < left ? n - i : left;
        dqm_group(m, q + (here - block * DQM_BLOCK), some,
                  (const float[2]){scale[g], m->input[2] ? bias[g] : 0}, x + i);
    }
    if (rc == CKPT_OK)
        ckpt_dequant_finish(&m->round, to, x, n);
    return rc;
}

/* ---- the parts of a weight ---- */

/* The values of all codes of a kind of numbers in one byte; NULL: no memory. */
static const float *dqm_table(ckpt_arena *arena, const char *kind)
{
    static const float e2m1[8] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6};
    float *table = ckpt_arena_array(arena, 256, sizeof *table);
    uint8_t code[256];

    for (int i = 0; table && i < 256; i++) {
        code[i] = (uint8_t)i;
        if (strcmp(kind, "e8m0") == 0)
            table[i] = i == 255 ? INFINITY : ldexpf(1, i - 127);
        else
            table[i] = i & 8 ? -e2m1[i & 7] : e2m1[i & 7];
    }
    if (table && strcmp(kind, "e4m3") == 0)
        ckpt_cast_find(CKPT_F32, CKPT_F8_E4M3)(table, code, 256);
    return table;
}

/* True if two tensors have the same shape but for their last sizes. */
static bool dqm_alike(const ckpt_tensor *a, const ckpt_tensor *b)
{
    return a->ndim > 0 && a->ndim == b->ndim &&
           memcmp(a->shape, b->shape, (a->ndim - 1) * sizeof *a->shape) == 0;
}

/* Check the biases, which only the affine mode has. */
static int dqm_biases(ckpt_dequantizing *w, const ckpt_dequant_parts *p, bool affine)
{
    const ckpt_tensor *b = p->other[0], *s = p->scale;

    if (!affine)
        return b ? ckpt_dequant_unfit(w, p, b) : CKPT_OK;
    if (!b)
        return ckpt_fail(w->err, CKPT_EMISSING, "%s: %.200s needs a tensor .biases",
                         ckpt_dequant_path(w), p->weight->name);
    return dqm_alike(s, b) && s->shape[s->ndim - 1] == b->shape[b->ndim - 1] && s->dtype == b->dtype
               ? CKPT_OK
               : ckpt_dequant_unfit(w, p, b);
}

/* The columns of a row, from its groups; false: the words have others. */
static bool dqm_columns(const ckpt_dequant_parts *p, const ckpt_quant_mlx *how, uint64_t *cols)
{
    const ckpt_tensor *t = p->weight, *s = p->scale;
    uint64_t bits, have;

    return t->dtype == CKPT_U32 && dqm_alike(t, s) &&
           ckpt_mul(s->shape[s->ndim - 1], how->group, cols) && *cols > 0 &&
           ckpt_mul(*cols, how->bits, &bits) && ckpt_mul(t->shape[t->ndim - 1], 32, &have) &&
           bits == have;
}

/* Choose the arithmetic of the mode. */
static int dqm_mode(ckpt_dequantizing *w, const ckpt_dequant_parts *p, dqm_make *m,
                    const char *mode)
{
    ckpt_dtype scales = p->scale->dtype;

    if (strcmp(mode, "affine") == 0) {
        if (scales != CKPT_F32 && scales != CKPT_F16 && scales != CKPT_BF16)
            return ckpt_dequant_unfit(w, p, p->scale);
        m->widen = scales == CKPT_F32 ? NULL : ckpt_cast_find(CKPT_F32, scales);
        m->shorten = scales == CKPT_F32 ? NULL : ckpt_cast_find(scales, CKPT_F32);
        ckpt_dequant_rounding(w, &m->round, scales);
        return CKPT_OK;
    }
    if (scales != CKPT_U8)
        return ckpt_dequant_unfit(w, p, p->scale);
    m->value = dqm_table(w->map->arena, strcmp(mode, "mxfp8") == 0 ? "e4m3" : "e2m1");
    m->scale = dqm_table(w->map->arena, strcmp(mode, "nvfp4") == 0 ? "e4m3" : "e8m0");
    ckpt_dequant_rounding(w, &m->round, CKPT_BF16);
    return m->value && m->scale ? CKPT_OK : ckpt_fail_memory(w->err);
}

int ckpt_dequant_mlx(ckpt_dequantizing *w, const ckpt_dequant_parts *p)
{
    const ckpt_tensor *from[3] = {p->weight, p->scale, p->other[0]};
    dqm_make *m = ckpt_arena_alloc(w->map->arena, sizeof *m);
    uint64_t *shape = ckpt_arena_array(w->map->arena, p->weight->ndim, sizeof *shape), cols = 0;
    size_t n = strlen(p->name) - (sizeof ".weight" - 1);
    ckpt_quant_mlx how;
    int rc = m && shape ? CKPT_OK : ckpt_fail_memory(w->err);

    if (rc == CKPT_OK)
        rc = ckpt_quant_mlx_of(&w->scheme, p->name, n, &how, ckpt_dequant_path(w), w->err);
    if (rc == CKPT_OK)
        rc = dqm_columns(p, &how, &cols) ? dqm_mode(w, p, m, how.mode)
                                         : ckpt_dequant_unfit(w, p, p->scale);
    if (rc == CKPT_OK)
        rc = dqm_biases(w, p, !m->value);
    for (size_t i = 0; rc == CKPT_OK && i < 3 && from[i]; i++) {
        rc = ckpt_map_hide(w->map, from[i], &m->input[i], w->err);
        m->make.n_inputs++;
    }
    if (rc != CKPT_OK)
        return rc;
    m->make.input = m->input;
    m->make.make = dqm_run;
    m->bits = how.bits;
    m->group = how.group;
    memcpy(shape, p->weight->shape, p->weight->ndim * sizeof *shape);
    shape[p->weight->ndim - 1] = cols;
    return ckpt_dequant_put(w, p, &m->make, m->round.dtype, shape, p->weight->ndim);
}
