/* SPDX-License-Identifier: Apache-2.0 */
/*
 * dequant_scaled.c: decodes weights of low-precision numbers with a scale for each block, row or
 * tensor:
 *
 *    X, X_scale_inv       DeepSeek, transformers' FineGrainedFP8: a scale per block, F32
 *                         arithmetic, rounded once (integrations/finegrained_fp8.py,
 *                         Fp8Dequantize)
 *    X, X_scale           compressed-tensors and ModelOpt: per tensor, row, group or
 *                         block; computed and rounded in the scale's dtype, then converted;
 *                         int8 also less X_zero_point; mxfp8 has exponents, of BF16
 *                         (quantization/lifecycle/forward_helpers.py, _dequantize)
 *    X_blocks, X_scales   gpt-oss' MXFP4, [experts, out, blocks, 16]: X is [experts, in, out]
 *                         (integrations/mxfp4.py, convert_moe_packed_tensors)
 *
 * Checked against transformers 5.23 and compressed-tensors 0.20.
 */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "libckpt/map/nest.h"
#include "libckpt/transform/dequantize.h"

enum {
    DQS_FP4 = 32,         /* elements of a block of MXFP4 */
    DQS_PACKED = 16,      /* their bytes */
    DQS_MATRIX = 64 << 20 /* limit of an expert's stored bytes, because every thread holds one */
};

typedef struct dqs_make {
    ckpt_make make; /* first */
    const ckpt_tensor *input[3];
    bool zeros;                 /* input[2] has the zero points, I8 */
    uint64_t rows, cols;        /* size of a matrix; leading axes count matrices */
    uint64_t block[2], grid[2]; /* elements of a block, and blocks of a matrix */
    ckpt_cast_fn widen;         /* conversion from the scale's dtype to F32; NULL: E8M0 */
    ckpt_dequant_round round;
    ckpt_dtype scale;
} dqs_make;

/* ---- the arithmetic ---- */

/*
 * An exponent without a mantissa: 2 to the power of byte - 127. 255 is NaN or, for a byte that is
 * not a float8_e8m0fnu, infinity as in torch.
 */
static float dqs_exponent(uint8_t byte, ckpt_dtype d)
{
    if (byte == 255)
        return d == CKPT_F8_E8M0 ? NAN : INFINITY;
    return ldexpf(1.0f, (int)byte - 127);
}

/* The scales that were read last, so that rows of the same blocks do not read them again. */
typedef struct dqs_window {
    ckpt_inputs *in;
    uint64_t first, n;
    float *scale, *zero;
    uint8_t *own; /* buffer for the scales as stored */
} dqs_window;

/* Read n scales as F32, from `first` on. */
static int dqs_scales(const dqs_make *m, dqs_window *w, uint64_t first, uint64_t n, ckpt_err *err)
{
    int rc;

    if (w->first == first && w->n == n)
        return CKPT_OK;
    rc = w->in->read(w->in, m->input[1], &(const ckpt_axis){first, n, 0}, CKPT_DTYPE_NONE, w->own,
                     err);
    if (rc == CKPT_OK && m->widen)
        m->widen(w->scale, w->own, (size_t)n);
    for (uint64_t i = 0; rc == CKPT_OK && !m->widen && i < n; i++)
        w->scale[i] = dqs_exponent(w->own[i], m->scale);
    if (rc == CKPT_OK && m->zeros)
        rc = w->in->read(w->in, m->input[2], &(const ckpt_axis){first, n, 0}, CKPT_F32, w->zero,
                         err);
    w->first = first;
    w->n = n;
    return rc;
}

/* Multiply elements at, at + 1 ... of the weight, in x, by their scales. */
static int dqs_multiply(const dqs_make *m, dqs_window *w, float *x, uint64_t n, uint64_t at,
                        ckpt_err *err)
{
    int rc = CKPT_OK;

    for (uint64_t i = 0; rc == CKPT_OK && i < n;) {
        uint64_t row = (at + i) / m->cols, col = (at + i) % m->cols;
        uint64_t left = n - i < m->cols - col ? n - i : m->cols - col;
        uint64_t of = row / m->rows * m->grid[0] + row % m->rows / m->block[0];
        uint64_t first = col / m->block[1], last = (col + left - 1) / m->block[1];

        rc = dqs_scales(m, w, of * m->grid[1] + first, last - first + 1, err);
        for (uint64_t b = first; rc == CKPT_OK && b <= last; b++) {
            uint64_t from = b == first ? 0 : b * m->block[1] - col;
            uint64_t end = b == last ? left : (b + 1) * m->block[1] - col;
            float scale = w->scale[b - first], zero = m->zeros ? w->zero[b - first] : 0;

            for (uint64_t k = from; m->zeros && k < end; k++)
                x[i + k] -= zero;
            for (uint64_t k = from; k < end; k++)
                x[i + k] *= scale;
        }
        i += left;
    }
    return rc;
}

static int dqs_run(const ckpt_make *make, ckpt_inputs *in, void *to, uint64_t n, uint64_t at,
                   ckpt_err *err)
{
    const dqs_make *m = (const dqs_make *)(const void *)make;
    // at most one row's scales are read together, or one per element
    uint64_t n_scale = m->grid[1] < n ? m->grid[1] : n,
             n_x = m->round.own || m->round.narrow ? n : 0;
    float *scratch = in->scratch(in, (3 * n_scale + n_x) * sizeof *scratch);
    dqs_window w = {.in = in,
                    .scale = scratch,
                    .zero = scratch + n_scale,
                    .own = (uint8_t *)(scratch + 2 * n_scale)};
    float *x = n_x ? scratch + 3 * n_scale : to;
    int rc = scratch ? CKPT_OK : ckpt_fail_memory(err);

    if (rc == CKPT_OK)
        rc = in->read(in, m->input[0], &(const ckpt_axis){at, n, 0}, CKPT_F32, x, err);
    if (rc == CKPT_OK)
        rc = dqs_multiply(m, &w, x, n, at, err);
    if (rc == CKPT_OK)
        ckpt_dequant_finish(&m->round, to, x, n);
    return rc;
}

/* ---- MXFP4 ---- */

/* Stored data of one expert; bytes: its scales, then its blocks; number: its index + 1. */
typedef struct dqs_expert {
    uint64_t number;
    uint8_t bytes[];
} dqs_expert;

/* Read the expert's stored bytes; this thread keeps them. */
static int dqs_read_expert(const dqs_make *m, ckpt_inputs *in, uint64_t number, dqs_expert **out,
                           ckpt_err *err)
{
    uint64_t blocks = m->rows * m->grid[1];
    bool fresh = false;
    dqs_expert *e = in->keep(in, m, sizeof *e + blocks * (1 + DQS_PACKED), &fresh);
    int rc = e ? CKPT_OK : ckpt_fail_memory(err);

    *out = e;
    if (rc != CKPT_OK || (!fresh && e->number == number + 1))
        return rc;
    e->number = 0;
    rc = in->read(in, m->input[1], &(const ckpt_axis){number * blocks, blocks, 0}, CKPT_DTYPE_NONE,
                  e->bytes, err);
    if (rc == CKPT_OK)
        rc = in->read(in, m->input[0],
                      &(const ckpt_axis){number * blocks * DQS_PACKED, blocks * DQS_PACKED, 0},
                      CKPT_DTYPE_NONE, e->bytes + blocks, err);
    if (rc == CKPT_OK)
        e->number = number + 1;
    return rc;
}

/*
 * Convert column col of the stored matrix, rows first ... first + n - 1: a part of a row of the
 * result.
 */
static void dqs_column(const dqs_make *m, const dqs_expert *e, uint64_t col, uint64_t first,
                       uint64_t n, float *to)
{
    static const float e2m1[16] = {+0.0f, 0.5f,  1.0f,  1.5f,  2.0f,  3.0f,  4.0f,  6.0f,
                                   -0.0f, -0.5f, -1.0f, -1.5f, -2.0f, -3.0f, -4.0f, -6.0f};
    const uint8_t *blocks = e->bytes + m->rows * m->grid[1];
    uint64_t block = col / DQS_FP4, in_block = col % DQS_FP4;

    for (uint64_t i = 0; i < n; i++) {
        uint64_t at = (first + i) * m->grid[1] + block;
        unsigned byte = blocks[at * DQS_PACKED + in_block / 2];

        uint8_t scale = e->bytes[at];

        // 2 to the power of 128 does not fit F32, but half of it does
        to[i] = e2m1[in_block % 2 ? byte >> 4 : byte & 15] *
                (scale == 255 ? 0x1p127f : dqs_exponent(scale, CKPT_U8));
        to[i] *= scale == 255 ? 2.0f : 1.0f;
    }
}

static int dqs_run_mxfp4(const ckpt_make *make, ckpt_inputs *in, void *to, uint64_t n, uint64_t at,
                         ckpt_err *err)
{
    const dqs_make *m = (const dqs_make *)(const void *)make;
    dqs_expert *e = NULL;
    float *x = m->round.narrow ? in->scratch(in, n * sizeof *x) : to;
    int rc = x ? CKPT_OK : ckpt_fail_memory(err);

    for (uint64_t i = 0; rc == CKPT_OK && i < n;) {
        uint64_t line = (at + i) / m->rows, first = (at + i) % m->rows;
        uint64_t left = n - i < m->rows - first ? n - i : m->rows - first;

        rc = dqs_read_expert(m, in, line / m->cols, &e, err);
        if (rc == CKPT_OK)
            dqs_column(m, e, line % m->cols, first, left, x + i);
        i += left;
    }
    if (rc == CKPT_OK)
        ckpt_dequant_finish(&m->round, to, x, n);
    return rc;
}

/* ---- shapes and dtypes ---- */

/*
 * Compute how many elements of a weight share a scale. Scales may have the shapes [] and [1] (one
 * per tensor), [rows], or [leading axes of the weight, rows, groups]; false: any other shape.
 */
static bool dqs_grid(const ckpt_dequantizing *w, dqs_make *m, const ckpt_tensor *t,
                     const ckpt_tensor *s)
{
    uint64_t size[2];
    uint32_t lead = t->ndim > 2 ? t->ndim - 2 : 0;

    m->cols = t->ndim > 0 ? t->shape[t->ndim - 1] : 1;
    m->rows = t->ndim > 1 ? t->shape[t->ndim - 2] : 1;
    m->grid[0] = m->grid[1] = 1;
    size[0] = m->block[0] = m->rows;
    size[1] = m->block[1] = m->cols;
    // a single number, not a grid with one entry
    if (s->n_elems == 1 && s->ndim < 2 && lead == 0)
        return true;
    if (s->ndim == t->ndim && t->ndim >= 2) {
        m->grid[0] = s->shape[s->ndim - 2];
        m->grid[1] = s->shape[s->ndim - 1];
        if (memcmp(s->shape, t->shape, lead * sizeof *s->shape) != 0)
            return false;
    } else if (s->ndim == 1 && t->ndim == 2)
        m->grid[0] = s->shape[0];
    else
        return false;
    // a weight without elements has no block that could fail to divide it
    return t->n_elems == 0 || ckpt_quant_block_of(&w->scheme, size, m->grid, m->block) == CKPT_OK;
}

/*
 * Check the dtypes: numbers that convert to floats, and scales that are floats or exponents.
 *
 * own    results are computed in the scales' dtype, and integers may be weights
 */
static bool dqs_dtypes(const ckpt_dequantizing *w, bool own, dqs_make *m,
                       const ckpt_dequant_parts *p)
{
    const ckpt_tensor *t = p->weight, *s = p->scale;
    bool mx = own && w->scheme.exponents && s->dtype == CKPT_U8,
         exponents = s->dtype == CKPT_F8_E8M0 || mx || (s->dtype == CKPT_U8 && !own),
         fp8 = t->dtype == CKPT_F8_E4M3 || t->dtype == CKPT_F8_E5M2,
         wide = s->dtype == CKPT_F32 || s->dtype == CKPT_BF16 || s->dtype == CKPT_F16;

    m->scale = s->dtype;
    if (wide)
        m->widen = ckpt_cast_find(CKPT_F32, s->dtype);
    ckpt_dequant_rounding(w, &m->round, mx ? CKPT_BF16 : wide && own ? s->dtype : CKPT_F32);
    return (fp8 || (own && w->scheme.integers && t->dtype == CKPT_I8)) && (wide || exponents);
}

/* ---- making the tensors ---- */

/* Refuse zero points. */
static int dqs_symmetric(const ckpt_dequantizing *w, const ckpt_dequant_parts *p)
{
    return p->other[0] ? ckpt_fail(w->err, CKPT_EUNSUPPORTED,
                                   "%.200s has zero points ('%.150s'): only symmetric "
                                   "quantization is read",
                                   p->weight->name, p->other[0]->name)
                       : CKPT_OK;
}

/* Make an operation with its two inputs. */
static int dqs_new(const ckpt_dequantizing *w, const ckpt_dequant_parts *p, dqs_make **out)
{
    dqs_make *m = *out = ckpt_arena_alloc(w->map->arena, sizeof *m);
    int rc = m ? ckpt_map_hide(w->map, p->weight, &m->input[0], w->err) : ckpt_fail_memory(w->err);

    if (rc == CKPT_OK)
        rc = ckpt_map_hide(w->map, p->scale, &m->input[1], w->err);
    if (rc == CKPT_OK && !(w->scheme.uneven8 && p->weight->dtype == CKPT_I8))
        rc = dqs_symmetric(w, p);
    if (rc == CKPT_OK && p->other[0])
        rc = ckpt_map_hide(w->map, p->other[0], &m->input[2], w->err);
    if (rc == CKPT_OK)
        m->zeros = p->other[0];
    if (rc == CKPT_OK)
        m->make = (ckpt_make){.n_inputs = m->zeros ? 3 : 2, .input = m->input};
    return rc;
}

int ckpt_dequant_mxfp4_check(const ckpt_dequantizing *w, const ckpt_dequant_parts *p)
{
    const ckpt_tensor *t = p->weight, *s = p->scale;

    if (t->ndim != 4 || s->ndim != 3 || t->shape[3] != DQS_PACKED ||
        memcmp(t->shape, s->shape, 3 * sizeof *t->shape) != 0 || t->dtype != CKPT_U8 ||
        (s->dtype != CKPT_U8 && s->dtype != CKPT_F8_E8M0))
        return ckpt_dequant_misfit(w, t, s);
    return dqs_symmetric(w, p);
}

/* Combine [experts, out, blocks, 16], with two numbers in a byte, to [experts, in, out]. */
int ckpt_dequant_mxfp4(ckpt_dequantizing *w, const ckpt_dequant_parts *p)
{
    const ckpt_tensor *t = p->weight;
    uint64_t *shape = ckpt_arena_array(w->map->arena, 3, sizeof *shape);
    dqs_make *m = NULL;
    int rc = shape ? dqs_new(w, p, &m) : ckpt_fail_memory(w->err);

    if (rc == CKPT_OK)
        rc = ckpt_dequant_mxfp4_check(w, p);
    if (rc != CKPT_OK)
        return rc;
    m->rows = t->shape[1];
    m->grid[1] = t->shape[2];
    m->cols = m->grid[1] * DQS_FP4;
    if (t->n_elems > 0 && t->n_elems / t->shape[0] > DQS_MATRIX)
        return ckpt_fail(w->err, CKPT_EUNSUPPORTED,
                         "%.200s: each of its matrices has %" PRIu64
                         " bytes, more than ckpt can transpose at once (%d)",
                         t->name, t->n_elems / t->shape[0], DQS_MATRIX);
    ckpt_dequant_rounding(w, &m->round, CKPT_F32);
    m->make.make = dqs_run_mxfp4;
    shape[0] = t->shape[0];
    shape[1] = m->cols;
    shape[2] = m->rows;
    return ckpt_dequant_put(w, p, &m->make, m->round.dtype, shape, 3);
}

static int dqs_scaled(ckpt_dequantizing *w, const ckpt_dequant_parts *p, bool own)
{
    const ckpt_tensor *zero = p->other[0];
    dqs_make *m = NULL;
    int rc = dqs_new(w, p, &m);

    if (rc != CKPT_OK)
        return rc;
    if (!dqs_grid(w, m, p->weight, p->scale) || !dqs_dtypes(w, own, m, p))
        return ckpt_dequant_misfit(w, p->weight, p->scale);
    if (!zero && p->weight->dtype == CKPT_I8 && w->scheme.uneven8 && !w->scheme.even8)
        return ckpt_fail(w->err, CKPT_EMISSING,
                         "%s: %.200s has no zero points: config.json has symmetric: false, and a "
                         "tensor _zero_point is missing beside it",
                         ckpt_dequant_path(w), p->weight->name);
    if (zero && (zero->dtype != CKPT_I8 || zero->ndim != p->scale->ndim ||
                 memcmp(zero->shape, p->scale->shape, zero->ndim * sizeof *zero->shape) != 0))
        return ckpt_dequant_unfit(w, p, zero);
    m->make.make = dqs_run;
    return ckpt_dequant_put(w, p, &m->make, m->round.dtype, NULL, 0);
}

int ckpt_dequant_blocks(ckpt_dequantizing *w, const ckpt_dequant_parts *p)
{
    return dqs_scaled(w, p, false);
}

int ckpt_dequant_scaled(ckpt_dequantizing *w, const ckpt_dequant_parts *p)
{
    return dqs_scaled(w, p, true);
}
