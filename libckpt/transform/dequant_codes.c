/* SPDX-License-Identifier: Apache-2.0 */
/*
 * dequant_codes.c: decodes weights of codes of 4 bits, which stand for 16 numbers, with a factor
 * for each block of elements; and bitsandbytes' rows of 8 bits.
 *
 *    bitsandbytes 0.50 (functional.py)
 *      4 bits  X, two codes in a byte, the first in its upper half, elements of the flattened
 *              matrix; blocks have a factor in X.absmax, F32. In double quantization factors are
 *              codes, too: their blocks have factors in X.nested_absmax, and an offset is added.
 *              X.quant_state.bitsandbytes__nf4 (or fp4) is JSON with the shape, the sizes of
 *              blocks, the offset, and the dtype of the result (QuantState.as_dict,
 *              dequantize_4bit)
 *      8 bits  X.weight, I8, and X.SCB, F32, a factor for each row: 127 is the factor itself
 *              (int8_vectorwise_dequant)
 *    compressed-tensors 0.20 (compressors/nvfp4, mxfp4)
 *              X_packed, U8, two E2M1 in a byte, the first in its lower half. NVFP4: X_scale,
 *              F8_E4M3, for 16 columns, divided by X_global_scale, F32. MXFP4: X_scale, exponents,
 *              for 32 columns. The result is BF16
 *    ModelOpt  NVFP4 as X, with X_scale times X_scale_2; the result is F32 (quantization/qtensor,
 *              nvfp4_tensor.py, dequantize); FP8 is in dequant_scaled.c (fp8_tensor.py)
 */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "libckpt/codec/json/json.h"
#include "libckpt/map/nest.h"
#include "libckpt/transform/dequantize.h"

enum { DQB_STATE = 1 << 16 /* most bytes of a quant_state */ };

/* Sets of numbers. */
typedef enum dqb_set { DQB_NF4, DQB_FP4, DQB_E2M1, DQB_E2M1_POSITIVE, DQB_SETS } dqb_set;

/*
 * The values of the codes of four bits. FP4 (get_4bit_type) has a negative zero, as in the kernels
 * of CPUs and GPUs; the map of the file has a positive one. ModelOpt's E2M1 has none.
 */
static const float dqb_codes[DQB_SETS][16] = {
    {-0x1p+0f, -0x1.647362p-1f, -0x1.0cd66p-1f, -0x1.94654p-2f, -0x1.23449ap-2f, -0x1.7a6a7ep-3f,
     -0x1.74f0e2p-4f, 0x0p+0f, 0x1.45f5fep-4f, 0x1.4995c6p-3f, 0x1.f809bap-3f, 0x1.5a0674p-2f,
     0x1.c3497p-2f, 0x1.200f56p-1f, 0x1.722766p-1f, 0x1p+0f},
    {0x0p+0f, 0x1.555556p-8f, 0x1.555556p-1f, 0x1p+0f, 0x1.555556p-2f, 0x1p-1f, 0x1.555556p-3f,
     0x1p-2f, -0x0p+0f, -0x1.555556p-8f, -0x1.555556p-1f, -0x1p+0f, -0x1.555556p-2f, -0x1p-1f,
     -0x1.555556p-3f, -0x1p-2f},
    {0, 0.5f, 1, 1.5f, 2, 3, 4, 6, -0.0f, -0.5f, -1, -1.5f, -2, -3, -4, -6},
    {0, 0.5f, 1, 1.5f, 2, 3, 4, 6, 0, -0.5f, -1, -1.5f, -2, -3, -4, -6},
};

typedef struct dqb_make {
    ckpt_make make;              /* first */
    const ckpt_tensor *input[3]; /* codes, factors, and their factors */
    const float *code;           /* 16 numbers, or NULL: 8 bits */
    uint64_t cols, block;        /* elements with one factor */
    float nested[256];           /* the values of the codes of factors */
    uint64_t nested_block;       /* factors with one factor; 0: factors are numbers */
    float offset;
    float divisor, times; /* of all factors */
    bool exponents;       /* factors are powers of two */
    bool low_first;       /* the first code is in a byte's lower half */
    ckpt_dequant_round round;
} dqb_make;

/* ---- the arithmetic ---- */

/* Read factors that are numbers or exponents. */
static int dqb_scales(const dqb_make *m, ckpt_inputs *in, const ckpt_axis *part, float *to,
                      ckpt_err *err)
{
    uint8_t *byte = (uint8_t *)(to + part->count);
    int rc = m->exponents ? in->read(in, m->input[1], part, CKPT_DTYPE_NONE, byte, err)
                          : in->read(in, m->input[1], part, CKPT_F32, to, err);

    for (uint64_t i = 0; rc == CKPT_OK && m->exponents && i < part->count; i++)
        to[i] = byte[i] == 255 ? INFINITY : ldexpf(1.0f, byte[i] - 127);
    for (uint64_t i = 0; rc == CKPT_OK && m->divisor != 0 && i < part->count; i++)
        to[i] = to[i] / m->divisor;
    for (uint64_t i = 0; rc == CKPT_OK && m->times != 0 && i < part->count; i++)
        to[i] = to[i] * m->times;
    return rc;
}

/* Read factors; after them, `to` has room for as many numbers and bytes, and one more. */
static int dqb_factors(const dqb_make *m, ckpt_inputs *in, const ckpt_axis *part, float *to,
                       ckpt_err *err)
{
    uint64_t n = part->count, first = part->start;

    if (m->nested_block == 0)
        return dqb_scales(m, in, part, to, err);
    uint64_t from = first / m->nested_block, end = (first + n - 1) / m->nested_block + 1;
    float *of = to + n;
    uint8_t *codes = (uint8_t *)(of + n + 1);
    int rc = in->read(in, m->input[1], part, CKPT_DTYPE_NONE, codes, err);

    if (rc == CKPT_OK)
        rc = in->read(in, m->input[2], &(const ckpt_axis){from, end - from, 0}, CKPT_DTYPE_NONE, of,
                      err);
    for (uint64_t i = 0; rc == CKPT_OK && i < n; i++)
        to[i] = m->nested[codes[i]] * of[(first + i) / m->nested_block - from] + m->offset;
    return rc;
}

/* Decode n elements from `at` on, with a factor; *byte has the first of them. */
static void dqb_block(const dqb_make *m, const uint8_t *byte, uint64_t at, uint64_t n, float factor,
                      float *x)
{
    unsigned first = m->low_first ? 0 : 4, second = 4 - first;
    float of[16];
    uint64_t i = 0;

    for (unsigned k = 0; k < 16; k++)
        of[k] = m->code[k] * factor;
    if (at % 2 && n > 0)
        x[i++] = of[*byte++ >> second & 15];
    for (; i + 2 <= n; i += 2, byte++) {
        x[i] = of[*byte >> first & 15];
        x[i + 1] = of[*byte >> second & 15];
    }
    if (i < n)
        x[i] = of[*byte >> first & 15];
}

static int dqb_run(const ckpt_make *make, ckpt_inputs *in, void *to, uint64_t n, uint64_t at,
                   ckpt_err *err)
{
    const dqb_make *m = (const dqb_make *)(const void *)make;
    uint64_t first = at / m->block, blocks = n ? (at + n - 1) / m->block - first + 1 : 0;
    uint64_t unit = ckpt_dtype_get(m->input[0]->dtype)->bytes, byte = at / 2 / unit * unit;
    uint64_t bytes = ((at + n + 1) / 2 - byte + unit - 1) / unit * unit;
    uint64_t n_x = m->round.narrow ? n : 0, n_f = blocks * 3 + 2;
    float *factor = in->scratch(in, (n_x + n_f) * sizeof *factor + bytes);
    float *x = n_x ? factor + n_f : to;
    uint8_t *codes = (uint8_t *)(factor + n_f + n_x);
    int rc = factor ? CKPT_OK : ckpt_fail_memory(err);

    if (rc == CKPT_OK && n > 0)
        rc = dqb_factors(m, in, &(const ckpt_axis){first, blocks, 0}, factor, err);
    if (rc == CKPT_OK && n > 0)
        rc = in->read(in, m->input[0], &(const ckpt_axis){byte / unit, bytes / unit, 0},
                      CKPT_DTYPE_NONE, codes, err);
    for (uint64_t i = 0; rc == CKPT_OK && i < n;) {
        uint64_t here = at + i, left = m->block - here % m->block;

        left = left < n - i ? left : n - i;
        dqb_block(m, codes + (here / 2 - byte), here, left, factor[here / m->block - first], x + i);
        i += left;
    }
    if (rc == CKPT_OK)
        ckpt_dequant_finish(&m->round, to, x, n);
    return rc;
}

static int dqb_run_rows(const ckpt_make *make, ckpt_inputs *in, void *to, uint64_t n, uint64_t at,
                        ckpt_err *err)
{
    const dqb_make *m = (const dqb_make *)(const void *)make;
    uint64_t first = at / m->cols, rows = n ? (at + n - 1) / m->cols - first + 1 : 0;
    uint64_t n_x = m->round.narrow ? n : 0;
    float *factor = in->scratch(in, (n_x + rows) * sizeof *factor);
    float *x = n_x ? factor + rows : to;
    int rc = factor ? CKPT_OK : ckpt_fail_memory(err);

    if (rc == CKPT_OK)
        rc = in->read(in, m->input[1], &(const ckpt_axis){first, rows, 0}, CKPT_DTYPE_NONE, factor,
                      err);
    if (rc == CKPT_OK)
        rc = in->read(in, m->input[0], &(const ckpt_axis){at, n, 0}, CKPT_F32, x, err);
    for (uint64_t i = 0, end; rc == CKPT_OK && i < n; i = end) {
        uint64_t left = m->cols - (at + i) % m->cols;
        float by = factor[(at + i) / m->cols - first];

        end = left < n - i ? i + left : n;
        // the reciprocal of 127, as the library has it: two roundings
        for (; i < end; i++)
            x[i] = x[i] * by * 7.874015718698502e-3f;
    }
    if (rc == CKPT_OK)
        ckpt_dequant_finish(&m->round, to, x, n);
    return rc;
}

/* ---- the state of a weight ---- */

/* Refuse a weight with something in its quant_state that is not read. */
static int dqb_unknown(const ckpt_dequantizing *w, const ckpt_dequant_parts *p, const char *what)
{
    return ckpt_fail(w->err, CKPT_EUNSUPPORTED,
                     "%s: %.200s: ckpt cannot read the %s in its quant_state (%.100s)",
                     ckpt_dequant_path(w), p->weight->name, what, ckpt_dequant_how(w));
}

/* A positive size of the state; false: it is none. */
static bool dqb_size(const ckpt_value *state, const char *key, uint64_t *out)
{
    int64_t n = 0;

    if (!ckpt_value_as_int(ckpt_value_get(state, key), &n) || n < 1)
        return false;
    *out = (uint64_t)n;
    return true;
}

/* Read the JSON text of the state. */
static int dqb_state(ckpt_dequantizing *w, const ckpt_dequant_parts *p, const ckpt_value **out)
{
    const ckpt_tensor *t = p->other[0] ? p->other[0] : p->other[1];
    ckpt_json_text json = {.max = DQB_STATE};
    ckpt_value *v = NULL;
    char *text;
    int rc;

    if (!t || (p->other[0] && p->other[1]) || !p->other[2])
        return ckpt_fail(w->err, CKPT_EMISSING,
                         "%s: %.200s needs one tensor .quant_state.bitsandbytes__nf4 or "
                         ".quant_state.bitsandbytes__fp4, and .quant_map",
                         ckpt_dequant_path(w), p->weight->name);
    if (t->dtype != CKPT_U8 || t->n_elems == 0 || t->n_elems > DQB_STATE)
        return ckpt_dequant_unfit(w, p, t);
    text = ckpt_arena_alloc(w->map->arena, t->n_elems);
    json.at = text;
    json.n = (size_t)t->n_elems;
    json.name = ckpt_arena_printf(w->map->arena, "%s: %s", ckpt_dequant_path(w), t->name);
    rc = text && json.name ? ckpt_dequant_small(w, t, CKPT_DTYPE_NONE, text)
                           : ckpt_fail_memory(w->err);
    if (rc == CKPT_OK)
        rc = ckpt_json_parse(&v, w->map->arena, &json, w->err);
    *out = v;
    return rc;
}

/* Choose the numbers of the codes, which the file has, too. */
static int dqb_map(ckpt_dequantizing *w, const ckpt_dequant_parts *p, const ckpt_value *state,
                   dqb_make *m)
{
    const ckpt_tensor *map = p->other[2];
    bool nf4 = p->other[0];
    float stored[16];
    int rc;

    if (!ckpt_value_is(ckpt_value_get(state, "quant_type"), nf4 ? "nf4" : "fp4"))
        return dqb_unknown(w, p, "quant_type");
    if (map->dtype != CKPT_F32 || map->n_elems != 16)
        return ckpt_dequant_unfit(w, p, map);
    m->code = dqb_codes[nf4 ? DQB_NF4 : DQB_FP4];
    rc = ckpt_dequant_small(w, map, CKPT_DTYPE_NONE, stored);
    for (unsigned i = 0; rc == CKPT_OK && i < 16; i++) {
        // zeros of both signs are equal
        if (stored[i] < m->code[i] || stored[i] > m->code[i] || stored[i] != stored[i])
            rc = ckpt_fail(w->err, CKPT_EMISMATCH,
                           "%s: '%.200s' has other numbers than bitsandbytes' %s",
                           ckpt_dequant_path(w), map->name, nf4 ? "NF4" : "FP4");
    }
    return rc;
}

/* Double quantization: read how the factors are stored. */
static int dqb_nested(ckpt_dequantizing *w, const ckpt_dequant_parts *p, const ckpt_value *state,
                      dqb_make *m)
{
    const ckpt_tensor *factors = p->other[3], *map = p->other[4];
    const ckpt_value *offset = ckpt_value_get(state, "nested_offset");
    uint64_t n = p->scale->n_elems;
    int64_t whole = 0;

    if (!factors && !map && !offset)
        return p->scale->dtype == CKPT_F32 ? CKPT_OK : ckpt_dequant_unfit(w, p, p->scale);
    if (!factors || !map)
        return ckpt_fail(w->err, CKPT_EMISSING,
                         "%s: %.200s needs both .nested_absmax and .nested_quant_map",
                         ckpt_dequant_path(w), p->weight->name);
    if (!dqb_size(state, "nested_blocksize", &m->nested_block) ||
        !ckpt_value_is(ckpt_value_get(state, "nested_dtype"), "float32"))
        return dqb_unknown(w, p, "nested_blocksize or nested_dtype");
    if (!offset || (offset->kind != CKPT_V_FLOAT && !ckpt_value_as_int(offset, &whole)))
        return dqb_unknown(w, p, "nested_offset");
    m->offset = offset->kind == CKPT_V_FLOAT ? (float)offset->as.f : (float)whole;
    if (p->scale->dtype != CKPT_U8)
        return ckpt_dequant_unfit(w, p, p->scale);
    if (factors->dtype != CKPT_F32 ||
        factors->n_elems != n / m->nested_block + (n % m->nested_block != 0))
        return ckpt_dequant_unfit(w, p, factors);
    if (map->dtype != CKPT_F32 || map->n_elems != 256)
        return ckpt_dequant_unfit(w, p, map);
    return ckpt_dequant_small(w, map, CKPT_DTYPE_NONE, m->nested);
}

/* The shape of the matrix, and the number of its elements; false: it is none. */
static bool dqb_shape(const ckpt_dequantizing *w, const ckpt_value *state, uint64_t **out,
                      uint32_t *ndim, uint64_t *n)
{
    const ckpt_value *list = ckpt_value_get(state, "shape");
    ckpt_seq s = list && list->kind == CKPT_V_LIST ? list->as.seq : (ckpt_seq){0};
    uint64_t *shape = ckpt_arena_array(w->map->arena, s.n, sizeof *shape);

    *n = 1;
    *out = shape;
    *ndim = (uint32_t)s.n;
    if (!shape || s.n < 1 || s.n > CKPT_MAX_DIM)
        return false;
    for (uint64_t i = 0; i < s.n; i++) {
        int64_t size = 0;

        if (!ckpt_value_as_int(s.at[i], &size) || size < 1 || !ckpt_mul(*n, (uint64_t)size, n))
            return false;
        shape[i] = (uint64_t)size;
    }
    return true;
}

/* ---- making the tensors ---- */

/* Start an operation: hide the inputs; factors: those of factors, or NULL. */
static int dqb_new(const ckpt_dequantizing *w, const ckpt_dequant_parts *p,
                   const ckpt_tensor *factors, dqb_make **out)
{
    const ckpt_tensor *from[] = {p->weight, p->scale, factors};
    dqb_make *m = *out = ckpt_arena_alloc(w->map->arena, sizeof *m);
    int rc = m ? CKPT_OK : ckpt_fail_memory(w->err);

    for (uint32_t i = 0; rc == CKPT_OK && i < 3 && from[i]; i++) {
        rc = ckpt_map_hide(w->map, from[i], &m->input[i], w->err);
        m->make.n_inputs++;
    }
    if (rc == CKPT_OK)
        m->make.input = m->input;
    return rc;
}

int ckpt_dequant_codes(ckpt_dequantizing *w, const ckpt_dequant_parts *p)
{
    const ckpt_tensor *t = p->weight;
    const ckpt_value *state = NULL, *v;
    uint64_t *shape = NULL, n = 0, bytes = 0;
    ckpt_dtype own = CKPT_DTYPE_NONE;
    uint32_t ndim = 0;
    dqb_make *m = NULL;
    int rc = dqb_new(w, p, p->other[3], &m);

    if (rc == CKPT_OK)
        rc = dqb_state(w, p, &state);
    if (rc == CKPT_OK)
        rc = dqb_map(w, p, state, m);
    if (rc == CKPT_OK)
        rc = dqb_nested(w, p, state, m);
    if (rc != CKPT_OK)
        return rc;
    v = ckpt_value_get(state, "dtype");
    if (v && v->kind == CKPT_V_STR)
        own = ckpt_dtype_parse(v->as.text.at);
    if (own != CKPT_F32 && own != CKPT_F16 && own != CKPT_BF16)
        return dqb_unknown(w, p, "dtype");
    if (!dqb_size(state, "blocksize", &m->block))
        return dqb_unknown(w, p, "blocksize");
    if (!dqb_shape(w, state, &shape, &ndim, &n))
        return dqb_unknown(w, p, "shape");
    // a first axis of one element stands for a transposed matrix
    if (!ckpt_dtype_bytes(t->dtype, t->n_elems, &bytes) || ckpt_dtype_packed(t->dtype) ||
        bytes != n / 2 + n % 2 || (t->ndim == 2 && t->shape[0] == 1 && t->shape[1] > 1))
        return ckpt_fail(w->err, CKPT_EMISMATCH,
                         "%s: %.200s has %" PRIu64 " bytes, and its quant_state a shape of %" PRIu64
                         " elements of 4 bits",
                         ckpt_dequant_path(w), t->name, bytes, n);
    if (p->scale->n_elems != n / m->block + (n % m->block != 0))
        return ckpt_dequant_unfit(w, p, p->scale);
    ckpt_dequant_rounding(w, &m->round, own);
    m->make.make = dqb_run;
    return ckpt_dequant_put(w, p, &m->make, m->round.dtype, shape, ndim);
}

int ckpt_dequant_rows(ckpt_dequantizing *w, const ckpt_dequant_parts *p)
{
    const ckpt_tensor *t = p->weight, *s = p->scale, *form = p->other[0];
    uint8_t order = 0;
    dqb_make *m = NULL;
    int rc = dqb_new(w, p, NULL, &m);

    if (rc != CKPT_OK)
        return rc;
    if (t->dtype != CKPT_I8 || t->ndim != 2 || s->dtype != CKPT_F32 || s->n_elems != t->shape[0])
        return ckpt_dequant_unfit(w, p, s);
    if (form && (form->dtype != CKPT_U8 || form->n_elems != 1))
        return ckpt_dequant_unfit(w, p, form);
    rc = form ? ckpt_dequant_small(w, form, CKPT_DTYPE_NONE, &order) : CKPT_OK;
    if (rc == CKPT_OK && order != 0)
        rc = ckpt_fail(w->err, CKPT_EUNSUPPORTED,
                       "%s: '%.200s' is %u: only rows in order (0) are read", ckpt_dequant_path(w),
                       form->name, order);
    if (rc != CKPT_OK)
        return rc;
    m->cols = t->shape[1];
    ckpt_dequant_rounding(w, &m->round, CKPT_F32);
    m->make.make = dqb_run_rows;
    return ckpt_dequant_put(w, p, &m->make, m->round.dtype, NULL, 0);
}

/* ---- E2M1 ---- */

/*
 * A matrix of two E2M1 in a byte.
 *
 * global  one number for all scales; NULL: scales are exponents, or it is missing
 */
static int dqb_e2m1(ckpt_dequantizing *w, const ckpt_dequant_parts *p, dqb_make *m,
                    const ckpt_tensor *global, float *number)
{
    const ckpt_tensor *t = p->weight, *s = p->scale;
    uint64_t *shape = ckpt_arena_array(w->map->arena, 2, sizeof *shape), block[2];
    int rc = shape ? CKPT_OK : ckpt_fail_memory(w->err);

    if (rc != CKPT_OK)
        return rc;
    m->exponents = s->dtype == CKPT_U8 || s->dtype == CKPT_F8_E8M0;
    if (t->dtype != CKPT_U8 || t->ndim != 2 || s->ndim != 2 ||
        (s->dtype != CKPT_F8_E4M3 && !m->exponents) || !ckpt_mul(t->shape[1], 2, &shape[1]))
        return ckpt_dequant_unfit(w, p, s);
    shape[0] = t->shape[0];
    if (ckpt_quant_block_of(&w->scheme, shape, s->shape, block) != CKPT_OK || block[0] != 1 ||
        shape[1] % block[1])
        return ckpt_dequant_unfit(w, p, s);
    if (m->exponents ? global != NULL : !global)
        return ckpt_fail(w->err, CKPT_EMISMATCH,
                         "%s: %.200s has scales of %s, %s a global scale (%.100s)",
                         ckpt_dequant_path(w), t->name, ckpt_dtype_name(s->dtype),
                         global ? "and" : "without", ckpt_dequant_how(w));
    if (global && (global->dtype != CKPT_F32 || global->n_elems != 1))
        return ckpt_dequant_unfit(w, p, global);
    rc = global ? ckpt_dequant_small(w, global, CKPT_DTYPE_NONE, number) : CKPT_OK;
    if (rc == CKPT_OK && global && !(*number > 0 && isfinite(*number)))
        rc = ckpt_fail(w->err, CKPT_EFORMAT, "%s: '%.200s' is %g, no positive number",
                       ckpt_dequant_path(w), global->name, (double)*number);
    if (rc != CKPT_OK)
        return rc;
    m->low_first = true;
    m->block = block[1];
    m->make.make = dqb_run;
    return ckpt_dequant_put(w, p, &m->make, m->round.dtype, shape, 2);
}

int ckpt_dequant_fp4(ckpt_dequantizing *w, const ckpt_dequant_parts *p)
{
    dqb_make *m = NULL;
    int rc = dqb_new(w, p, NULL, &m);

    if (rc == CKPT_OK && p->other[1])
        rc = ckpt_dequant_unfit(w, p, p->other[1]);
    if (rc != CKPT_OK)
        return rc;
    m->code = dqb_codes[DQB_E2M1];
    ckpt_dequant_rounding(w, &m->round, CKPT_BF16);
    return dqb_e2m1(w, p, m, p->other[0], &m->divisor);
}

/* True if the configuration has blocks of E2M1 for these scales. */
static bool dqb_has_blocks(const ckpt_dequantizing *w, const ckpt_dequant_parts *p)
{
    const ckpt_tensor *t = p->weight, *s = p->scale;
    bool found = false;

    for (uint32_t i = 0; t->ndim == 2 && s->ndim == 2 && s->shape[1] > 0 && i < w->scheme.n_blocks;
         i++)
        found = found || t->shape[1] / s->shape[1] == w->scheme.block[i][1] / 2;
    return found;
}

int ckpt_dequant_modelopt(ckpt_dequantizing *w, const ckpt_dequant_parts *p)
{
    dqb_make *m = NULL;
    int rc;

    if (p->weight->dtype == CKPT_F8_E4M3 && w->scheme.plain)
        return p->other[0] ? ckpt_dequant_unfit(w, p, p->other[0]) : ckpt_dequant_scaled(w, p);
    // a row's scale, which FP8 may have, is none of E2M1
    if (!dqb_has_blocks(w, p))
        return ckpt_dequant_unfit(w, p, p->scale);
    rc = dqb_new(w, p, NULL, &m);
    if (rc != CKPT_OK)
        return rc;
    m->code = dqb_codes[DQB_E2M1_POSITIVE];
    ckpt_dequant_rounding(w, &m->round, CKPT_F32);
    return dqb_e2m1(w, p, m, p->other[0], &m->times);
}
