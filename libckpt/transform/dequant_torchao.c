/* SPDX-License-Identifier: Apache-2.0 */
/*
 * dequant_torchao.c: decodes weights that torchao stores in safetensors, or in pickles, which
 * formats/torch/wrapped.c lists in the same form.
 *
 * A parameter X.weight is stored as X._weight_qdata, X._weight_scale and, for some classes,
 * X._weight_zero_point; the file's metadata has a JSON text under the parameter's name, with the
 * class and its attributes (prototype/safetensors of torchao 0.18).  With R rows, C columns and
 * blocks of b rows and c columns:
 *
 *    Int8Tensor, IntxUnpackedToInt8Tensor
 *              qdata [R, C], I8; scale and zero point [R / b, C / c]: (q - zero) * scale
 *              (quant_primitives.py, dequantize_affine)
 *    Float8Tensor
 *              qdata [R, C], F8_E4M3 or F8_E5M2: q * scale (_dequantize_affine_float8)
 *    Int4Tensor
 *              qdata [R, C / 2], two signed numbers in a byte, the first in its lower half; scale
 *              and zero point [C / c, R]: q * scale + zero (int4_tensor.py)
 *    NVFP4Tensor, MXTensor
 *              dequant_mx.c
 *
 * Products are computed in F32 and rounded to the dtype of the parameter.
 */
#include <inttypes.h>
#include <string.h>

#include "libckpt/codec/json/json.h"
#include "libckpt/map/nest.h"
#include "libckpt/transform/dequantize.h"
#include "libckpt/transform/torchao.h"

enum {
    DQT_TEXT = 1 << 16,  /* most bytes of a parameter's metadata */
    DQT_SCALES = 1 << 16 /* scales of a window that are aimed at */
};

/* A class of torchao's tensors. */
typedef struct dqt_class {
    const char *name;
    ckpt_dtype dtype[2]; /* of qdata */
    bool four;           /* two numbers in a byte, scales across, zeros that are added */
    bool zeros;          /* may have zero points */
    bool blocks;         /* numbers of 4 or 8 bits in blocks of a row: dequant_mx.c */
} dqt_class;

static const dqt_class dqt_classes[] = {
    {"Int8Tensor", {CKPT_I8, CKPT_I8}, false, true, false},
    {"IntxUnpackedToInt8Tensor", {CKPT_I8, CKPT_I8}, false, true, false},
    {"Float8Tensor", {CKPT_F8_E4M3, CKPT_F8_E5M2}, false, false, false},
    {"Int4Tensor", {CKPT_I8, CKPT_U8}, true, true, false},
    {"NVFP4Tensor", {CKPT_U8, CKPT_U8}, false, false, true},
    {"MXTensor", {CKPT_U8, CKPT_F8_E4M3}, false, false, true},
    {"MXTensor", {CKPT_F8_E5M2, CKPT_F8_E5M2}, false, false, true},
};

typedef struct dqt_make {
    ckpt_make make; /* first */
    const ckpt_tensor *input[3];
    const ckpt_tensor *q, *scale, *zero; /* inputs; zero: NULL: none */
    bool four;
    uint64_t rows, cols, block[2], grid[2];
    uint64_t window; /* rows of the grid that a thread keeps */
    ckpt_dequant_round round;
} dqt_make;

/* Scales and zeros of some rows of the grid. */
typedef struct dqt_window {
    uint64_t number; /* + 1; 0: nothing is read */
    float x[];       /* [window, grid[1]], twice */
} dqt_window;

bool ckpt_torchao_known(const char *type)
{
    for (size_t i = 0; i < sizeof dqt_classes / sizeof *dqt_classes; i++) {
        if (strcmp(dqt_classes[i].name, type) == 0)
            return true;
    }
    return false;
}

bool ckpt_torchao_pairs(const char *type, ckpt_dtype qdata)
{
    return strcmp(type, "Int4Tensor") == 0 || strcmp(type, "NVFP4Tensor") == 0 ||
           (strcmp(type, "MXTensor") == 0 && qdata == CKPT_U8);
}

/* ---- the arithmetic ---- */

/* Read the scales, or the zeros, of n rows of the grid. */
static int dqt_grid(const dqt_make *m, ckpt_inputs *in, const ckpt_tensor *t, const ckpt_axis *rows,
                    float *to, ckpt_err *err)
{
    uint64_t n = rows->count, groups = m->grid[1];
    float *line = to + n * groups; // the caller has room for one line more
    int rc = CKPT_OK;

    if (!m->four)
        return in->read(in, t, &(const ckpt_axis){rows->start * groups, n * groups, 0}, CKPT_F32,
                        to, err);
    for (uint64_t g = 0; rc == CKPT_OK && g < groups; g++) {
        rc = in->read(in, t, &(const ckpt_axis){g * m->grid[0] + rows->start, n, 0}, CKPT_F32, line,
                      err);
        for (uint64_t r = 0; rc == CKPT_OK && r < n; r++)
            to[r * groups + g] = line[r];
    }
    return rc;
}

/* Get the scales and zeros of a row of the grid. */
static int dqt_scales(const dqt_make *m, ckpt_inputs *in, uint64_t row, const float *of[2],
                      ckpt_err *err)
{
    uint64_t number = row / m->window, first = number * m->window, groups = m->grid[1];
    uint64_t n = m->grid[0] - first < m->window ? m->grid[0] - first : m->window;
    uint64_t half = m->window * groups;
    bool fresh = false;
    dqt_window *w = in->keep(in, m, sizeof *w + (2 * half + m->window) * sizeof *w->x, &fresh);
    int rc = w ? CKPT_OK : ckpt_fail_memory(err);

    if (rc == CKPT_OK && (fresh || w->number != number + 1)) {
        w->number = 0;
        rc = dqt_grid(m, in, m->scale, &(const ckpt_axis){first, n, 0}, w->x, err);
        for (uint64_t i = 0; rc == CKPT_OK && !m->zero && i < half; i++)
            w->x[half + i] = 0;
        if (rc == CKPT_OK && m->zero)
            rc = dqt_grid(m, in, m->zero, &(const ckpt_axis){first, n, 0}, w->x + half, err);
    }
    if (rc != CKPT_OK)
        return rc;
    w->number = number + 1;
    of[0] = w->x + (row - first) * groups;
    of[1] = of[0] + half;
    return CKPT_OK;
}

/* Read n numbers from `at` on; byte: room for them as they are stored. */
static int dqt_numbers(const dqt_make *m, ckpt_inputs *in, const ckpt_axis *part, uint8_t *byte,
                       float *x, ckpt_err *err)
{
    uint64_t first = part->start / 2, end = (part->start + part->count + 1) / 2;
    int rc;

    if (!m->four)
        return in->read(in, m->q, part, CKPT_F32, x, err);
    rc = in->read(in, m->q, &(const ckpt_axis){first, end - first, 0}, CKPT_DTYPE_NONE, byte, err);
    for (uint64_t i = 0; rc == CKPT_OK && i < part->count; i++) {
        uint64_t at = part->start + i;
        int four = byte[at / 2 - first] >> at % 2 * 4 & 15;

        x[i] = (float)(four < 8 ? four : four - 16);
    }
    return rc;
}

/* Combine the numbers of a part of a row with its scales and zeros. */
static void dqt_row(const dqt_make *m, const float *const of[2], const ckpt_axis *part, float *x)
{
    uint64_t col = part->start, n = part->count;

    for (uint64_t i = 0, end; i < n; i = end) {
        uint64_t g = (col + i) / m->block[1], left = (g + 1) * m->block[1] - (col + i);
        float s = of[0][g], z = of[1][g];

        end = left < n - i ? i + left : n;
        for (; m->four && i < end; i++) {
            float y = x[i] * s;

            x[i] = y + z;
        }
        for (; i < end; i++)
            x[i] = m->zero ? (x[i] - z) * s : x[i] * s;
    }
}

static int dqt_run(const ckpt_make *make, ckpt_inputs *in, void *to, uint64_t n, uint64_t at,
                   ckpt_err *err)
{
    const dqt_make *m = (const dqt_make *)(const void *)make;
    uint64_t n_x = m->round.narrow ? n : 0;
    uint8_t *byte = in->scratch(in, n_x * sizeof(float) + (m->four ? n / 2 + 1 : 0) + 1);
    float *x = n_x ? (float *)(void *)byte : to;
    int rc = byte ? CKPT_OK : ckpt_fail_memory(err);

    if (rc == CKPT_OK)
        rc = dqt_numbers(m, in, &(const ckpt_axis){at, n, 0}, byte + n_x * sizeof *x, x, err);
    for (uint64_t i = 0; rc == CKPT_OK && i < n;) {
        uint64_t row = (at + i) / m->cols, col = (at + i) % m->cols;
        uint64_t left = n - i < m->cols - col ? n - i : m->cols - col;
        const float *of[2] = {NULL, NULL};

        rc = dqt_scales(m, in, row / m->block[0], of, err);
        if (rc == CKPT_OK)
            dqt_row(m, of, &(const ckpt_axis){col, left, 0}, x + i);
        i += left;
    }
    if (rc == CKPT_OK)
        ckpt_dequant_finish(&m->round, to, x, n);
    return rc;
}

/* ---- a parameter's metadata ---- */

static int dqt_unknown(const ckpt_dequantizing *w, const char *name, const char *what,
                       const char *text)
{
    return ckpt_fail(w->err, CKPT_EUNSUPPORTED,
                     "%s: %.200s: ckpt cannot dequantize torchao's %s %.100s (ckpt formats lists "
                     "the kinds that it can)",
                     ckpt_dequant_path(w), name, what, text);
}

/* The name of the parameter of X._weight_qdata: X.weight. */
static int dqt_name(const ckpt_dequantizing *w, const ckpt_dequant_parts *p, const char **out)
{
    const char *dot = strrchr(p->name, '.'), *last = dot ? dot + 1 : p->name, *name;

    if (last[0] != '_' || !last[1])
        return dqt_unknown(w, p->weight->name, "tensor", "without a parameter's name");
    name = ckpt_arena_printf(w->map->arena, "%.*s%s", (int)(last - p->name), p->name, last + 1);
    if (!name)
        return ckpt_fail_memory(w->err);
    if (ckpt_map_index(w->map, name, strlen(name)) != SIZE_MAX)
        return ckpt_fail(w->err, CKPT_EMISMATCH,
                         "%.200s is stored as floats and, quantized, as '%.150s'", name,
                         p->weight->name);
    *out = name;
    return CKPT_OK;
}

/* ckpt_same_fn: the key of a pair of the metadata */
static bool dqt_same(const void *ctx, uint32_t number, const void *key)
{
    const ckpt_dict *d = ctx;

    return ckpt_value_is(d->at[number].key, key);
}

/* Index the metadata once, because each weight has an entry. */
static int dqt_index(ckpt_dequantizing *w)
{
    const ckpt_dict *d = &w->map->metadata;

    for (uint64_t i = w->said.n; i < d->n && i < INT32_MAX; i++) {
        const ckpt_value *key = d->at[i].key;
        const uint32_t hash = ckpt_hash_bytes(key->as.text.at, key->as.text.n, 0);

        if (!ckpt_index_add(&w->said, hash, (uint32_t)i))
            return ckpt_fail_memory(w->err);
    }
    return CKPT_OK;
}

/* Read the entry of a parameter in the metadata. */
static int dqt_said(ckpt_dequantizing *w, const char *name, const ckpt_value **out)
{
    const ckpt_value *text = NULL;
    ckpt_json_text json = {.name = name, .max = DQT_TEXT};
    ckpt_value *v = NULL;
    uint32_t at;
    int rc = dqt_index(w);

    if (rc != CKPT_OK)
        return rc;
    at = ckpt_index_find(&w->said, ckpt_hash_bytes(name, strlen(name), 0), dqt_same,
                         &w->map->metadata, name);
    if (at != CKPT_INDEX_NONE)
        text = w->map->metadata.at[at].value;
    if (!text || text->kind != CKPT_V_STR)
        return ckpt_fail(w->err, CKPT_EMISSING,
                         "%s: %.200s: the metadata of the file says nothing of this parameter, so "
                         "ckpt cannot know how torchao stored it",
                         ckpt_dequant_path(w), name);
    json.at = text->as.text.at;
    json.n = text->as.text.n;
    rc = ckpt_json_parse(&v, w->map->arena, &json, w->err);
    *out = v;
    return rc;
}

/* The class of a parameter. */
static int dqt_class_of(const ckpt_dequantizing *w, const ckpt_tensor *q, const char *name,
                        const ckpt_value *said, const dqt_class **out)
{
    const ckpt_value *type = ckpt_value_get(said, "_type");

    for (size_t i = 0; i < sizeof dqt_classes / sizeof *dqt_classes; i++) {
        const dqt_class *c = &dqt_classes[i];

        // a class with several dtypes has several entries
        if (ckpt_value_is(type, c->name) &&
            (!*out || q->dtype == c->dtype[0] || q->dtype == c->dtype[1]))
            *out = c;
    }
    if (*out)
        return CKPT_OK;
    return dqt_unknown(w, name, "class",
                       type && type->kind == CKPT_V_STR ? type->as.text.at : "(none)");
}

/* The dtype of the parameter: an attribute, or that of Int4Tensor's scales. */
static int dqt_dtype(const ckpt_dequantizing *w, const ckpt_dequant_parts *p, const char *name,
                     const ckpt_value *data, ckpt_dtype *out)
{
    const ckpt_value *v = ckpt_value_get(ckpt_value_get(data, "dtype"), "_data");

    if (!v)
        v = ckpt_value_get(ckpt_value_get(data, "orig_dtype"), "_data");
    *out = v && v->kind == CKPT_V_STR ? ckpt_dtype_parse(v->as.text.at)
           : v                        ? CKPT_DTYPE_NONE
                                      : p->scale->dtype;
    if (*out != CKPT_F32 && *out != CKPT_F16 && *out != CKPT_BF16)
        return dqt_unknown(w, name, "dtype", v && v->kind == CKPT_V_STR ? v->as.text.at : "(none)");
    return CKPT_OK;
}

/* Set the sizes of a matrix and of its blocks; false: they do not fit. */
static bool dqt_sizes(dqt_make *m, const ckpt_tensor *t, const ckpt_value *data)
{
    const ckpt_value *list = ckpt_value_get(data, "block_size");
    ckpt_seq s = list && list->kind == CKPT_V_LIST ? list->as.seq : (ckpt_seq){0};
    int64_t size = 0;

    if (t->ndim < 2 || s.n != t->ndim || (m->four && t->ndim != 2))
        return false;
    m->cols = t->shape[t->ndim - 1];
    if (m->four && !ckpt_mul(m->cols, 2, &m->cols))
        return false;
    for (uint64_t i = 0; i < s.n; i++) {
        uint64_t *block = &m->block[i + 1 == s.n];

        if (!ckpt_value_as_int(s.at[i], &size) || size < 1 || (i + 2 < s.n && size != 1))
            return false;
        *block = (uint64_t)size;
    }
    m->rows = m->cols ? t->n_elems / t->shape[t->ndim - 1] : 0;
    if (m->rows == 0 || t->shape[t->ndim - 2] % m->block[0] || m->cols % m->block[1])
        return false;
    m->grid[0] = m->rows / m->block[0];
    m->grid[1] = m->cols / m->block[1];
    return !m->four || m->block[0] == 1;
}

/* True if a tensor has a number for each block. */
static bool dqt_fits(const dqt_make *m, const ckpt_tensor *t)
{
    uint64_t n = m->grid[0] * m->grid[1];

    if (m->four)
        return t->ndim == 2 && t->shape[0] == m->grid[1] && t->shape[1] == m->grid[0];
    return t->n_elems == n &&
           (t->ndim < 2 ? n == m->grid[0] || n == m->grid[1] : t->shape[t->ndim - 1] == m->grid[1]);
}

/* ---- making the tensors ---- */

static bool dqt_is_wide(ckpt_dtype d)
{
    return d == CKPT_F32 || d == CKPT_F16 || d == CKPT_BF16;
}

/* Refuse a weight without the zero points that its metadata list; they would be read as zeros. */
static int dqt_zeros(const ckpt_dequantizing *w, const ckpt_dequant_parts *p, const dqt_class *c,
                     const ckpt_value *said)
{
    const ckpt_seq names = ckpt_value_seq(ckpt_value_get(said, "_tensor_data_names"));
    bool listed = c->four;

    for (uint64_t i = 0; i < names.n; i++)
        listed = listed || ckpt_value_is(names.at[i], "zero_point");
    if (!listed || p->other[0])
        return CKPT_OK;
    return ckpt_fail(w->err, CKPT_EMISSING, "%s: %.200s needs a tensor _zero_point",
                     ckpt_dequant_path(w), p->weight->name);
}

/* Check the parts against the class, and hide them. */
static int dqt_parts(ckpt_dequantizing *w, const ckpt_dequant_parts *p, const dqt_class *c,
                     dqt_make *m)
{
    const ckpt_tensor *zero = p->other[0];

    if (p->weight->dtype != c->dtype[0] && p->weight->dtype != c->dtype[1])
        return dqt_unknown(w, p->weight->name, c->name, ckpt_dtype_name(p->weight->dtype));
    if (!dqt_is_wide(p->scale->dtype) || !dqt_fits(m, p->scale))
        return ckpt_dequant_unfit(w, p, p->scale);
    if (zero && (!c->zeros || !dqt_fits(m, zero) ||
                 (c->four ? !dqt_is_wide(zero->dtype) : zero->dtype != CKPT_I8)))
        return ckpt_dequant_unfit(w, p, zero);
    // these change the inputs of the layer before they meet the weight
    if (p->other[1])
        return dqt_unknown(w, p->weight->name, "part", p->other[1]->name);
    const ckpt_tensor *const from[] = {p->weight, p->scale, zero};
    const ckpt_tensor **const to[] = {&m->q, &m->scale, &m->zero};
    int rc = CKPT_OK;

    for (size_t i = 0; rc == CKPT_OK && i < 3 && from[i]; i++) {
        rc = ckpt_map_hide(w->map, from[i], &m->input[i], w->err);
        *to[i] = m->input[i];
        m->make.n_inputs++;
    }
    m->make.input = m->input;
    return rc;
}

/* Decode a tensor of numbers in blocks of a row; p has the parameter's name. */
static int dqt_blocks(ckpt_dequantizing *w, const ckpt_dequant_parts *p, const dqt_class *c,
                      const ckpt_value *data, ckpt_dtype own)
{
    const ckpt_value *swizzled = ckpt_value_get(data, "is_swizzled_scales");
    const ckpt_value *element = ckpt_value_get(data, "elem_dtype");
    const ckpt_value *of = ckpt_value_get(element, "_data");
    ckpt_dequant_ao a = {.dtype = own, .nvfp4 = strcmp(c->name, "NVFP4Tensor") == 0};
    ckpt_dtype want = p->weight->dtype == CKPT_U8 ? CKPT_F4 : p->weight->dtype;
    int64_t size = 0;

    if (p->weight->dtype != c->dtype[0] && p->weight->dtype != c->dtype[1])
        return dqt_unknown(w, p->name, c->name, ckpt_dtype_name(p->weight->dtype));
    if (!a.nvfp4 && (!of || of->kind != CKPT_V_STR || ckpt_dtype_parse(of->as.text.at) != want))
        return dqt_unknown(w, p->name, "MXTensor with elem_dtype",
                           of && of->kind == CKPT_V_STR ? of->as.text.at : "(another)");
    if (!ckpt_value_as_int(ckpt_value_get(data, "block_size"), &size) || size < 1)
        return dqt_unknown(w, p->name, c->name, "without block_size");
    if (p->other[0])
        return ckpt_dequant_unfit(w, p, p->other[0]);
    a.n_block = (uint64_t)size;
    a.swizzled = swizzled && swizzled->kind == CKPT_V_BOOL && swizzled->as.i;
    return ckpt_dequant_mx(w, p, &a);
}

/* A parameter that is the same object as one before: it is tied to its floats. */
static int dqt_tied(ckpt_dequantizing *w, ckpt_tensor *t, const char *name)
{
    const ckpt_tensor *o = t->owner;

    t->name = name;
    t->dtype = o->dtype;
    t->export_dtype = o->export_dtype;
    t->ndim = o->ndim;
    t->shape = o->shape;
    t->n_elems = o->n_elems;
    w->n_made++;
    return CKPT_OK;
}

int ckpt_dequant_torchao(ckpt_dequantizing *w, const ckpt_dequant_parts *p)
{
    uint32_t ndim = p->weight->ndim;
    uint64_t *shape = ckpt_arena_array(w->map->arena, ndim + 1, sizeof *shape);
    dqt_make *m = ckpt_arena_alloc(w->map->arena, sizeof *m);
    const ckpt_value *said = NULL, *data;
    const dqt_class *c = NULL;
    ckpt_dequant_parts named = *p;
    ckpt_dtype own = CKPT_DTYPE_NONE;
    int rc = m && shape ? dqt_name(w, p, &named.name) : ckpt_fail_memory(w->err);

    if (rc == CKPT_OK && w->own && p->weight->owner && dqt_is_wide(p->weight->owner->dtype))
        return dqt_tied(w, p->weight, named.name);
    if (rc == CKPT_OK)
        rc = dqt_said(w, named.name, &said);
    if (rc == CKPT_OK)
        rc = dqt_class_of(w, p->weight, named.name, said, &c);
    if (rc != CKPT_OK)
        return rc;
    data = ckpt_value_get(said, "_data");
    if (c->blocks) {
        rc = dqt_dtype(w, p, named.name, data, &own);
        return rc == CKPT_OK ? dqt_blocks(w, &named, c, data, own) : rc;
    }
    m->four = c->four;
    if (!dqt_sizes(m, p->weight, data))
        return ckpt_dequant_unfit(w, p, p->scale);
    rc = dqt_dtype(w, p, named.name, data, &own);
    if (rc == CKPT_OK)
        rc = dqt_zeros(w, p, c, said);
    if (rc == CKPT_OK)
        rc = dqt_parts(w, p, c, m);
    if (rc != CKPT_OK)
        return rc;
    m->window = DQT_SCALES / m->grid[1] + 1;
    m->window = m->window < m->grid[0] ? m->window : m->grid[0];
    ckpt_dequant_rounding(w, &m->round, own);
    m->make.make = dqt_run;
    for (uint32_t i = 0; i < ndim; i++)
        shape[i] = p->weight->shape[i];
    shape[ndim - 1] = m->cols;
    return ckpt_dequant_put(w, &named, &m->make, m->round.dtype, shape, ndim);
}

/* The first bytes of an entry in the metadata. */
static const char dqt_begin[] = "{\"_type\"";

static bool dqt_is_entry(const ckpt_pair *pair)
{
    return pair->value->kind == CKPT_V_STR &&
           strncmp(pair->value->as.text.at, dqt_begin, sizeof dqt_begin - 1) == 0;
}

bool ckpt_dequant_torchao_has(const ckpt_map *map)
{
    bool has = false;

    for (uint64_t i = 0; !has && i < map->metadata.n; i++)
        has = dqt_is_entry(&map->metadata.at[i]);
    return has;
}

void ckpt_dequant_torchao_forget(ckpt_map *map)
{
    uint64_t n = 0;

    for (uint64_t i = 0; i < map->metadata.n; i++) {
        const ckpt_pair *pair = &map->metadata.at[i];

        if (!ckpt_value_is(pair->key, "tensor_names") && !dqt_is_entry(pair))
            map->metadata.at[n++] = *pair;
    }
    map->metadata.n = n;
}
