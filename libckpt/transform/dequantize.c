/* SPDX-License-Identifier: Apache-2.0 */
/*
 * dequantize.c: turns quantized weights into floating tensors.
 *
 * A weight of low-precision numbers and the tensor with its scales, found by their names, become
 * one tensor that is computed during reads:
 *
 *    X, X_scale_inv       DeepSeek, transformers' FineGrainedFP8: a scale per block, F32
 *                         arithmetic, rounded once (integrations/finegrained_fp8.py,
 *                         Fp8Dequantize)
 *    X, X_scale           compressed-tensors and ModelOpt: per tensor, row, group or
 *                         block; computed and rounded in the scale's dtype, then converted
 *                         (quantization/lifecycle/forward_helpers.py, _dequantize)
 *    X_blocks, X_scales   gpt-oss' MXFP4, [experts, out, blocks, 16]: X is [experts, in, out]
 *                         (integrations/mxfp4.py, convert_moe_packed_tensors)
 *
 * Checked against transformers 5.23 and compressed-tensors 0.20.
 */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "ckpt_shape.h"
#include "libckpt/base/cast.h"
#include "libckpt/map/extent.h"
#include "libckpt/map/nest.h"
#include "libckpt/map/quantized.h"
#include "libckpt/map/savepoint.h"
#include "libckpt/transform/keymap/expr.h"
#include "libckpt/transform/quant_scheme.h"

enum {
    DQZ_FP4 = 32,         /* elements of a block of MXFP4 */
    DQZ_PACKED = 16,      /* their bytes */
    DQZ_ROUNDED = 4096,   /* elements that are rounded twice at a time */
    DQZ_MATRIX = 64 << 20 /* limit of an expert's stored bytes, because every thread holds one */
};

typedef struct dqz_form {
    /* suffixes of the names of the two inputs, and of the result */
    const char *weight, *scale, *name;
    bool mxfp4;
    bool own; /* computed in the scale's dtype */
} dqz_form;

static const dqz_form dqz_forms[] = {
    {"_blocks", "_scales", "", true, false},
    {"", "_scale_inv", "", false, false},
    {"", "_scale", "", false, true},
};

/* Suffixes of scales for activations and KV caches, which do not belong to weights. */
static const char *const dqz_others[] = {".activation_scale", ".input_scale", ".output_scale",
                                         ".k_scale",          ".v_scale",     ".q_scale"};

typedef struct dqz_make {
    ckpt_make make; /* first */
    const ckpt_tensor *input[2];
    uint64_t rows, cols;        /* size of a matrix; leading axes count matrices */
    uint64_t block[2], grid[2]; /* elements of a block, and blocks of a matrix */
    ckpt_cast_fn widen;         /* conversion from the scale's dtype to F32; NULL: E8M0 */
    ckpt_cast_fn own;           /* rounds the product to the scale's dtype; NULL: it stays F32 */
    ckpt_cast_fn narrow;        /* makes the result of the product; NULL: the result is F32 */
    ckpt_dtype scale;
} dqz_make;

typedef struct dqz_work {
    ckpt_map *map;
    bool *gone;       /* per tensor of the map: remove it from the list */
    ckpt_dtype model; /* dtype of the model by its configuration, or by other tensors */
    bool rounded;     /* round values to that dtype */
    ckpt_quant_scheme scheme;
    uint64_t n_made, n_others;
    ckpt_err *err;
} dqz_work;

/* ---- the arithmetic ---- */

/*
 * An exponent without a mantissa: 2 to the power of byte - 127. 255 is NaN or, for a byte that is
 * not a float8_e8m0fnu, infinity as in torch.
 */
static float dqz_exponent(uint8_t byte, ckpt_dtype d)
{
    if (byte == 255)
        return d == CKPT_F8_E8M0 ? NAN : INFINITY;
    return ldexpf(1.0f, (int)byte - 127);
}

/* The scales that were read last, so that rows of the same blocks do not read them again. */
typedef struct dqz_window {
    ckpt_inputs *in;
    uint64_t first, n;
    float *scale;
    uint8_t *own; /* buffer for the scales as stored */
} dqz_window;

/* Read n scales as F32, from `first` on. */
static int dqz_scales(const dqz_make *m, dqz_window *w, uint64_t first, uint64_t n, ckpt_err *err)
{
    int rc;

    if (w->first == first && w->n == n)
        return CKPT_OK;
    rc = w->in->read(w->in, m->input[1], &(const ckpt_axis){first, n, 0}, CKPT_DTYPE_NONE, w->own,
                     err);
    if (rc == CKPT_OK && m->widen)
        m->widen(w->scale, w->own, (size_t)n);
    for (uint64_t i = 0; rc == CKPT_OK && !m->widen && i < n; i++)
        w->scale[i] = dqz_exponent(w->own[i], m->scale);
    w->first = first;
    w->n = n;
    return rc;
}

/* Multiply elements at, at + 1 ... of the weight, in x, by their scales. */
static int dqz_multiply(const dqz_make *m, dqz_window *w, float *x, uint64_t n, uint64_t at,
                        ckpt_err *err)
{
    int rc = CKPT_OK;

    for (uint64_t i = 0; rc == CKPT_OK && i < n;) {
        uint64_t row = (at + i) / m->cols, col = (at + i) % m->cols;
        uint64_t left = n - i < m->cols - col ? n - i : m->cols - col;
        uint64_t of = row / m->rows * m->grid[0] + row % m->rows / m->block[0];
        uint64_t first = col / m->block[1], last = (col + left - 1) / m->block[1];

        rc = dqz_scales(m, w, of * m->grid[1] + first, last - first + 1, err);
        for (uint64_t b = first; rc == CKPT_OK && b <= last; b++) {
            uint64_t from = b == first ? 0 : b * m->block[1] - col;
            uint64_t end = b == last ? left : (b + 1) * m->block[1] - col;
            float scale = w->scale[b - first];

            for (uint64_t k = from; k < end; k++)
                x[i + k] *= scale;
        }
        i += left;
    }
    return rc;
}

/* Convert the products to the dtype of the result. */
static void dqz_finish(const dqz_make *m, uint8_t *to, const float *x, uint64_t n)
{
    uint16_t own[DQZ_ROUNDED];
    uint64_t wide = ckpt_dtype_get(m->make.dtype)->bytes;

    if (!m->own && m->narrow)
        m->narrow(to, x, (size_t)n);
    for (uint64_t i = 0, some; m->own && i < n; i += some) {
        some = n - i < DQZ_ROUNDED ? n - i : DQZ_ROUNDED;
        m->own(own, x + i, (size_t)some);
        m->narrow(to + i * wide, own, (size_t)some);
    }
}

static int dqz_run(const ckpt_make *make, ckpt_inputs *in, void *to, uint64_t n, uint64_t at,
                   ckpt_err *err)
{
    const dqz_make *m = (const dqz_make *)(const void *)make;
    // at most one row's scales are read together, or one per element
    uint64_t n_scale = m->grid[1] < n ? m->grid[1] : n, n_x = m->own || m->narrow ? n : 0;
    float *scratch = in->scratch(in, (2 * n_scale + n_x) * sizeof *scratch);
    dqz_window w = {.in = in, .scale = scratch, .own = (uint8_t *)(scratch + n_scale)};
    float *x = n_x ? scratch + 2 * n_scale : to;
    int rc = scratch ? CKPT_OK : ckpt_fail_memory(err);

    if (rc == CKPT_OK)
        rc = in->read(in, m->input[0], &(const ckpt_axis){at, n, 0}, CKPT_F32, x, err);
    if (rc == CKPT_OK)
        rc = dqz_multiply(m, &w, x, n, at, err);
    if (rc == CKPT_OK)
        dqz_finish(m, to, x, n);
    return rc;
}

/* ---- MXFP4 ---- */

/* Stored data of one expert; bytes: its scales, then its blocks; number: its index + 1. */
typedef struct dqz_expert {
    uint64_t number;
    uint8_t bytes[];
} dqz_expert;

/* Read the expert's stored bytes; this thread keeps them. */
static int dqz_read_expert(const dqz_make *m, ckpt_inputs *in, uint64_t number, dqz_expert **out,
                           ckpt_err *err)
{
    uint64_t blocks = m->rows * m->grid[1];
    bool fresh = false;
    dqz_expert *e = in->keep(in, m, sizeof *e + blocks * (1 + DQZ_PACKED), &fresh);
    int rc = e ? CKPT_OK : ckpt_fail_memory(err);

    *out = e;
    if (rc != CKPT_OK || (!fresh && e->number == number + 1))
        return rc;
    e->number = 0;
    rc = in->read(in, m->input[1], &(const ckpt_axis){number * blocks, blocks, 0}, CKPT_DTYPE_NONE,
                  e->bytes, err);
    if (rc == CKPT_OK)
        rc = in->read(in, m->input[0],
                      &(const ckpt_axis){number * blocks * DQZ_PACKED, blocks * DQZ_PACKED, 0},
                      CKPT_DTYPE_NONE, e->bytes + blocks, err);
    if (rc == CKPT_OK)
        e->number = number + 1;
    return rc;
}

/*
 * Convert column col of the stored matrix, rows first ... first + n - 1: a part of a row of the
 * result.
 */
static void dqz_column(const dqz_make *m, const dqz_expert *e, uint64_t col, uint64_t first,
                       uint64_t n, float *to)
{
    static const float e2m1[16] = {+0.0f, 0.5f,  1.0f,  1.5f,  2.0f,  3.0f,  4.0f,  6.0f,
                                   -0.0f, -0.5f, -1.0f, -1.5f, -2.0f, -3.0f, -4.0f, -6.0f};
    const uint8_t *blocks = e->bytes + m->rows * m->grid[1];
    uint64_t block = col / DQZ_FP4, in_block = col % DQZ_FP4;

    for (uint64_t i = 0; i < n; i++) {
        uint64_t at = (first + i) * m->grid[1] + block;
        unsigned byte = blocks[at * DQZ_PACKED + in_block / 2];

        uint8_t scale = e->bytes[at];

        // 2 to the power of 128 does not fit F32, but half of it does
        to[i] = e2m1[in_block % 2 ? byte >> 4 : byte & 15] *
                (scale == 255 ? 0x1p127f : dqz_exponent(scale, CKPT_U8));
        to[i] *= scale == 255 ? 2.0f : 1.0f;
    }
}

static int dqz_run_mxfp4(const ckpt_make *make, ckpt_inputs *in, void *to, uint64_t n, uint64_t at,
                         ckpt_err *err)
{
    const dqz_make *m = (const dqz_make *)(const void *)make;
    dqz_expert *e = NULL;
    float *x = m->narrow ? in->scratch(in, n * sizeof *x) : to;
    int rc = x ? CKPT_OK : ckpt_fail_memory(err);

    for (uint64_t i = 0; rc == CKPT_OK && i < n;) {
        uint64_t line = (at + i) / m->rows, first = (at + i) % m->rows;
        uint64_t left = n - i < m->rows - first ? n - i : m->rows - first;

        rc = dqz_read_expert(m, in, line / m->cols, &e, err);
        if (rc == CKPT_OK)
            dqz_column(m, e, line % m->cols, first, left, x + i);
        i += left;
    }
    if (rc == CKPT_OK)
        dqz_finish(m, to, x, n);
    return rc;
}

/* ---- shapes and dtypes ---- */

static const char *dqz_shape(char text[120], const ckpt_tensor *t)
{
    size_t n = (size_t)snprintf(text, 120, "[");

    for (uint32_t i = 0; i < t->ndim && n < 90; i++)
        n += (size_t)snprintf(text + n, 120 - n, "%s%" PRIu64, i ? ", " : "", t->shape[i]);
    (void)snprintf(text + n, 120 - n, "]");
    return text;
}

/* The quantization of the weights, for messages. */
static const char *dqz_how(const dqz_work *w)
{
    return w->map->known.quantized ? w->map->known.quantized
                                   : "no config.json says how the weights are quantized";
}

static int dqz_misfit(const dqz_work *w, const ckpt_tensor *t, const ckpt_tensor *scale)
{
    char a[120], b[120];

    return ckpt_fail(w->err, CKPT_EMISMATCH,
                     "%.200s is %s of %s, and '%.150s', its scales, are %s of %s: these are no "
                     "scales for it (%.200s)",
                     t->name, dqz_shape(a, t), ckpt_dtype_name(t->dtype), scale->name,
                     dqz_shape(b, scale), ckpt_dtype_name(scale->dtype), dqz_how(w));
}

/*
 * Compute how many elements of a weight share a scale. Scales may have the shapes [] and [1] (one
 * per tensor), [rows], or [leading axes of the weight, rows, groups]; false: any other shape.
 */
static bool dqz_grid(const dqz_work *w, dqz_make *m, const ckpt_tensor *t, const ckpt_tensor *s)
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
 * Choose how products are rounded: to the dtype `own` in which the format computes, then to the
 * model's dtype if the caller wants that.
 */
static void dqz_round(const dqz_work *w, dqz_make *m, ckpt_dtype own)
{
    m->make.dtype = w->rounded ? w->model : own;
    m->own = own != CKPT_F32 && own != m->make.dtype ? ckpt_cast_find(own, CKPT_F32) : NULL;
    if (m->make.dtype != CKPT_F32)
        m->narrow = ckpt_cast_find(m->make.dtype, m->own ? own : CKPT_F32);
    else if (m->own)
        m->narrow = ckpt_cast_find(CKPT_F32, own);
}

/* Check the dtypes: numbers that convert to floats, and scales that are floats or exponents. */
static bool dqz_dtypes(const dqz_work *w, const dqz_form *f, dqz_make *m, const ckpt_tensor *t,
                       const ckpt_tensor *s)
{
    bool exponents = s->dtype == CKPT_F8_E8M0 || (s->dtype == CKPT_U8 && !f->own),
         fp8 = t->dtype == CKPT_F8_E4M3 || t->dtype == CKPT_F8_E5M2,
         wide = s->dtype == CKPT_F32 || s->dtype == CKPT_BF16 || s->dtype == CKPT_F16;

    m->scale = s->dtype;
    if (wide)
        m->widen = ckpt_cast_find(CKPT_F32, s->dtype);
    if (wide && f->own && s->dtype != CKPT_F32)
        dqz_round(w, m, s->dtype);
    else
        dqz_round(w, m, CKPT_F32);
    return (fp8 || (f->own && w->scheme.integers && t->dtype == CKPT_I8)) && (wide || exponents);
}

/* ---- making the tensors ---- */

/* Replace the values of t by those of the operation. */
static int dqz_put(dqz_work *w, ckpt_tensor *t, dqz_make *m)
{
    uint32_t source = 0;
    int rc;

    m->make.name = t->name;
    m->make.n_inputs = 2;
    m->make.input = m->input;
    rc = ckpt_map_add_made(w->map, &m->make, t->n_elems, &source, w->err);
    t->dtype = m->make.dtype;
    t->export_dtype = w->model;
    t->twin = t->addend = NULL;
    t->flags &= CKPT_TENSOR_GRAD | CKPT_TENSOR_PARAMETER;
    w->n_made++;
    return rc == CKPT_OK ? ckpt_map_back_whole(w->map, t, source, 0, w->err) : rc;
}

/* Combine [experts, out, blocks, 16], with two numbers in a byte, to [experts, in, out]. */
static int dqz_mxfp4(dqz_work *w, ckpt_tensor *t, const ckpt_tensor *s, dqz_make *m)
{
    uint64_t *shape = ckpt_arena_array(w->map->arena, 3, sizeof *shape), n;
    size_t keep = strlen(t->name) - strlen(dqz_forms[0].weight);
    char *name = ckpt_arena_string(w->map->arena, t->name, keep);

    if (!shape || !name)
        return ckpt_fail_memory(w->err);
    if (t->ndim != 4 || s->ndim != 3 || t->shape[3] != DQZ_PACKED ||
        memcmp(t->shape, s->shape, 3 * sizeof *shape) != 0 || t->dtype != CKPT_U8 ||
        (s->dtype != CKPT_U8 && s->dtype != CKPT_F8_E8M0) || !ckpt_mul(t->n_elems, 2, &n))
        return dqz_misfit(w, t, s);
    m->rows = t->shape[1];
    m->grid[1] = t->shape[2];
    m->cols = m->grid[1] * DQZ_FP4;
    if (t->n_elems > 0 && t->n_elems / t->shape[0] > DQZ_MATRIX)
        return ckpt_fail(w->err, CKPT_EUNSUPPORTED,
                         "%.200s: each of its matrices has %" PRIu64
                         " bytes, more than ckpt can transpose at once (%d)",
                         t->name, t->n_elems / t->shape[0], DQZ_MATRIX);
    dqz_round(w, m, CKPT_F32);
    m->make.make = dqz_run_mxfp4;
    shape[0] = t->shape[0];
    shape[1] = m->cols;
    shape[2] = m->rows;
    t->name = name;
    t->ndim = 3;
    t->shape = shape;
    t->n_elems = n;
    return dqz_put(w, t, m);
}

static int dqz_weight(dqz_work *w, const dqz_form *f, ckpt_tensor *t, ckpt_tensor *s)
{
    dqz_make *m = ckpt_arena_alloc(w->map->arena, sizeof *m);
    int rc = m ? ckpt_map_hide(w->map, t, &m->input[0], w->err) : ckpt_fail_memory(w->err);

    if (rc == CKPT_OK)
        rc = ckpt_map_hide(w->map, s, &m->input[1], w->err);
    if (rc != CKPT_OK)
        return rc;
    if (f->mxfp4)
        return dqz_mxfp4(w, t, s, m);
    if (!dqz_grid(w, m, t, s) || !dqz_dtypes(w, f, m, t, s))
        return dqz_misfit(w, t, s);
    m->make.make = dqz_run;
    return dqz_put(w, t, m);
}

/* ---- all tensors ---- */

static bool dqz_ends(const char *name, const char *end, size_t *keep)
{
    size_t n = strlen(name), m = strlen(end);

    *keep = n - m;
    return n > m && strcmp(name + n - m, end) == 0;
}

/* The index of the tensor with the same name but for its suffix; SIZE_MAX: there is none. */
static int dqz_at(const dqz_work *w, const char *name, size_t keep, const char *end, size_t *at)
{
    size_t n = strlen(end);
    char *other = ckpt_alloc(keep + n + 1);

    if (!other)
        return ckpt_fail_memory(w->err);
    memcpy(other, name, keep);
    memcpy(other + keep, end, n + 1);
    *at = ckpt_map_index(w->map, other, keep + n);
    ckpt_free(other);
    return CKPT_OK;
}

/*
 * True for scales of activations, and of the keys and values of attention, which no weight needs.
 */
static bool dqz_is_other(const char *name)
{
    size_t keep;

    for (size_t k = 0; k < sizeof dqz_others / sizeof *dqz_others; k++) {
        if (dqz_ends(name, dqz_others[k], &keep))
            return true;
    }
    return false;
}

/* Combine a tensor of scales with its weight. */
static int dqz_scale(dqz_work *w, size_t i, const dqz_form *f)
{
    ckpt_tensor *s = w->map->tensors.at[i];
    size_t keep, at = SIZE_MAX, zero = SIZE_MAX;
    int rc;

    if (!dqz_ends(s->name, f->scale, &keep))
        return CKPT_OK;
    rc = dqz_at(w, s->name, keep, f->weight, &at);
    if (rc == CKPT_OK)
        rc = dqz_at(w, s->name, keep, "_zero_point", &zero);
    if (rc == CKPT_OK && at == SIZE_MAX && w->scheme.scale && !dqz_is_other(s->name))
        return ckpt_fail(w->err, CKPT_EMISSING,
                         "'%.200s' has no weight that it would scale (%.200s)", s->name,
                         dqz_how(w));
    if (rc != CKPT_OK || at == SIZE_MAX || w->gone[at])
        return rc;
    if (zero != SIZE_MAX)
        return ckpt_fail(w->err, CKPT_EUNSUPPORTED,
                         "%.200s has zero points ('%.150s'): only symmetric quantization is read",
                         w->map->tensors.at[at]->name, w->map->tensors.at[zero]->name);
    w->gone[i] = true;
    return dqz_weight(w, f, w->map->tensors.at[at], s);
}

/* Tensors are renamed during the loop; a renamed one is never looked up again. */
static int dqz_all(dqz_work *w)
{
    int rc = CKPT_OK;

    for (size_t i = 0; rc == CKPT_OK && i < w->map->tensors.n; i++) {
        for (size_t k = 0; rc == CKPT_OK && !w->gone[i] && k < sizeof dqz_forms / sizeof *dqz_forms;
             k++) {
            if (!w->scheme.scale || strcmp(w->scheme.scale, dqz_forms[k].scale) == 0)
                rc = dqz_scale(w, i, &dqz_forms[k]);
        }
    }
    for (size_t i = 0; rc == CKPT_OK && i < w->map->tensors.n; i++) {
        if (!w->gone[i] && dqz_is_other(w->map->tensors.at[i]->name)) {
            w->gone[i] = true;
            w->n_others++;
        }
    }
    return rc;
}

/* True for a low-precision tensor that cannot be converted to floats without scales. */
static bool dqz_is_stored(const dqz_work *w, const ckpt_tensor *t)
{
    size_t keep;

    if (w->scheme.integers && t->dtype == CKPT_I8)
        return w->scheme.scale && dqz_ends(t->name, ".weight", &keep);
    if (t->dtype == CKPT_U8)
        return w->scheme.scale && strcmp(w->scheme.scale, dqz_forms[0].scale) == 0 &&
               dqz_ends(t->name, dqz_forms[0].weight, &keep);
    return t->dtype == CKPT_F8_E4M3 || t->dtype == CKPT_F8_E5M2 || t->dtype == CKPT_F8_E4M3FNUZ ||
           t->dtype == CKPT_F8_E5M2FNUZ;
}

/* Remove the scales from the list, and fail if a low-precision tensor without scales remains. */
static int dqz_drop(dqz_work *w)
{
    size_t n = 0;

    for (size_t i = 0; i < w->map->tensors.n; i++) {
        ckpt_tensor *t = w->map->tensors.at[i];

        if (!w->gone[i] && dqz_is_stored(w, t))
            return ckpt_fail(w->err, CKPT_EMISSING,
                             "tensor %.200s has dtype %s like the quantized weights, but no scales",
                             t->name, ckpt_dtype_name(t->dtype));
        if (!w->gone[i])
            w->map->tensors.at[n++] = t;
    }
    w->map->tensors.n = n;
    return ckpt_map_reindex(w->map, w->err);
}

/* Read the configuration: the model's dtype and the quantization. */
static int dqz_config(dqz_work *w)
{
    static const char *const keys[] = {"quantization_config", "compression_config",
                                       "text_config.quantization_config"};
    const ckpt_value *q = NULL;
    ckpt_remap none = {0};
    const ckpt_remap_how how = {0};
    ckpt_rm_facts facts;
    int rc = ckpt_rm_facts_open(&facts, &none, w->map, &how, w->err);

    for (size_t i = 0; rc == CKPT_OK && !q && i < sizeof keys / sizeof *keys; i++) {
        const ckpt_value *v = ckpt_rm_fact(&facts, keys[i]);
        q = v && v->kind == CKPT_V_DICT ? v : NULL;
    }
    if (rc == CKPT_OK)
        rc = ckpt_quant_scheme_of(&w->scheme, q, w->map->path ? w->map->path : "memory", w->err);
    for (size_t i = 0; rc == CKPT_OK && i < 2 && w->model == CKPT_DTYPE_NONE; i++) {
        const ckpt_value *v = ckpt_rm_fact(&facts, i ? "torch_dtype" : "dtype");
        if (v && v->kind == CKPT_V_STR)
            w->model = ckpt_dtype_parse(v->as.text.at);
    }
    for (size_t i = 0; w->model == CKPT_DTYPE_NONE && i < w->map->tensors.n; i++) {
        ckpt_dtype d = w->map->tensors.at[i]->dtype;
        if (d == CKPT_BF16 || d == CKPT_F16)
            w->model = d;
    }
    if (w->model != CKPT_F32 && w->model != CKPT_F16)
        w->model = CKPT_BF16;
    return rc;
}

/* Update the facts to the new tensors. */
static int dqz_facts(const dqz_work *w)
{
    ckpt_facts *facts = &w->map->facts;
    size_t n = 0;
    int rc = ckpt_map_fact(w->map, w->err, "dequantized", "%" PRIu64 " weight%s (%.100s)",
                           w->n_made, w->n_made == 1 ? "" : "s",
                           w->map->known.quantized ? w->map->known.quantized : "by their scales");

    for (size_t i = 0; i < facts->n; i++) {
        if (strcmp(facts->at[i].key, "quantized") != 0)
            facts->at[n++] = facts->at[i];
    }
    facts->n = n;
    return rc;
}

static int dqz_say(const dqz_work *w)
{
    int rc =
        ckpt_map_note(w->map, CKPT_INFO, w->err,
                      "%s: dequantized: %" PRIu64 " weight%s (%.100s), %s where nothing "
                      "else is asked for",
                      w->map->path ? w->map->path : "memory", w->n_made, w->n_made == 1 ? "" : "s",
                      w->map->known.quantized ? w->map->known.quantized : "by their scales",
                      ckpt_dtype_name(w->model));

    if (rc == CKPT_OK && w->n_others > 0)
        rc = ckpt_map_note(w->map, CKPT_INFO, w->err,
                           "%s: left out %" PRIu64
                           " scales of activations and KV caches, because the "
                           "output's weights are not quantized",
                           w->map->path ? w->map->path : "memory", w->n_others);
    return rc;
}

bool ckpt_map_is_quantized(const ckpt_map *map)
{
    return map && ckpt_quantized(map);
}

/* Replace weights and drop scales; a failure leaves the map half changed. */
static int dqz_change(dqz_work *w)
{
    int rc = dqz_config(w);

    if (rc == CKPT_OK)
        rc = dqz_all(w);
    if (rc == CKPT_OK && w->n_made > 0)
        rc = dqz_drop(w);
    if (rc == CKPT_OK && w->n_made > 0)
        rc = dqz_say(w);
    if (rc == CKPT_OK && w->n_made > 0)
        rc = dqz_facts(w);
    if (rc == CKPT_OK && w->n_made > 0) {
        w->map->known.quantized = NULL;
        w->map->dequantized = true;
    }
    return rc == CKPT_OK ? ckpt_quantized_refuse(w->map, "asking for floats", w->err) : rc;
}

int ckpt_map_dequantize(ckpt_map *map, bool rounded, ckpt_err *err)
{
    ckpt_err_clear(err);
    dqz_work w = {.map = map, .model = CKPT_DTYPE_NONE, .rounded = rounded, .err = err};
    ckpt_savepoint *saved = NULL;
    int rc;

    if (!map)
        return ckpt_fail(err, CKPT_EUSAGE, "no map to dequantize");
    if (!ckpt_quantized(map))
        return CKPT_OK;
    w.gone = ckpt_alloc(map->tensors.n + 1);
    rc = w.gone ? ckpt_savepoint_new(&saved, map, err) : ckpt_fail_memory(err);
    if (rc == CKPT_OK)
        rc = ckpt_savepoint_end(saved, dqz_change(&w));
    ckpt_free(w.gone);
    return rc;
}
