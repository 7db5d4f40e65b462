/* SPDX-License-Identifier: Apache-2.0 */
/*
 * requantize.c: quantizes weights to fp8 numbers with scales.
 *
 *    fp8-block    a scale for each block of 128 x 128: X_scale_inv, as in DeepSeek and
 *                 transformers' FineGrainedFP8: F32, 1 / s with s = 1 / max |x| * 448,
 *                 and x * s rounded once (integrations/finegrained_fp8.py, Fp8Quantize)
 *    fp8-channel  a scale for each row: X_scale, as compressed-tensors reads it
 *                 ("float-quantized"): F32, max |x| / 448, and x / scale rounded once
 *
 * Matrices of linear layers are quantized. Embeddings, heads, norms and routers are not, because
 * the programs that make such models do not quantize them, nor are matrices that blocks do not
 * divide.
 */
#include <assert.h>
#include <float.h>
#include <fnmatch.h>
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "ckpt_extra.h"
#include "libckpt/base/cast.h"
#include "libckpt/base/number.h"
#include "libckpt/base/opts.h"
#include "libckpt/map/extent.h"
#include "libckpt/map/nest.h"
#include "libckpt/map/quantized.h"
#include "libckpt/map/savepoint.h"

enum {
    RQ_TILE = 1 << 16, /* elements examined together */
    RQ_GLOBS = 64,     /* limit of patterns of unchanged weights */
    RQ_SIDE_MAX = 9999 /* limit of rows or columns of a block */
};

#define RQ_MAX 448.0f /* the largest number of E4M3 */

typedef struct rq_make {
    ckpt_make make; /* first */
    const ckpt_tensor *input[1];
    uint64_t rows, cols, block[2], grid[2];
    bool channel; /* divide by the scale instead of multiplying by its inverse */
    ckpt_cast_fn narrow;
} rq_make;

/* The data of one row of blocks: its number + 1, and the factor or divisor of each block. */
typedef struct rq_band {
    uint64_t number;
    float by[];
} rq_band;

typedef struct rq_work {
    ckpt_map *map;
    ckpt_quantize opts;
    uint64_t block[2];  /* rows and columns of a block; 0: a whole row */
    ckpt_tensors made;  /* the new list */
    ckpt_bytes skipped; /* linear layers that stay unchanged, as JSON */
    uint64_t n_made, n_skipped;
    uint64_t matched; /* one bit per pattern of unchanged weights: it has matched a matrix */
    ckpt_err *err;
} rq_work;

/* ---- the arithmetic ---- */

/* A maximum that propagates NaN. */
static float rq_larger(float a, float b)
{
    return isnan(a) || a >= b ? a : b;
}

/* Find the largest magnitudes in one row of blocks. */
static int rq_maxima(const rq_make *m, ckpt_inputs *in, uint64_t band, float *max, ckpt_err *err)
{
    uint64_t first = band * m->block[0], end = first + m->block[0];
    float *x = in->scratch(in, RQ_TILE * sizeof *x);
    int rc = x ? CKPT_OK : ckpt_fail_memory(err);

    end = end > m->rows ? m->rows : end;
    memset(max, 0, (size_t)m->grid[1] * sizeof *max);
    for (uint64_t at = first * m->cols; rc == CKPT_OK && at < end * m->cols; at += RQ_TILE) {
        uint64_t n = end * m->cols - at < RQ_TILE ? end * m->cols - at : RQ_TILE;

        rc = in->read(in, m->input[0], &(const ckpt_axis){at, n, 0}, CKPT_F32, x, err);
        for (uint64_t i = 0; rc == CKPT_OK && i < n; i++) {
            float *of = &max[(at + i) % m->cols / m->block[1]];
            *of = rq_larger(*of, fabsf(x[i]));
        }
    }
    return rc;
}

/*
 * The factor (blocks) or divisor (rows) of elements, from their maximum. A row whose scale would be
 * zero gets compressed-tensors' smallest (calculate_qparams); a block of zeros gets 1; a block so
 * small that the factor overflows gets one with a normal inverse.
 */
static float rq_by(const rq_make *m, float max)
{
    if (m->channel)
        return max / RQ_MAX > 0 ? max / RQ_MAX : FLT_EPSILON;
    // torch divides a number by a tensor in two steps: reciprocal, then product
    float by = 1.0f / max * RQ_MAX;
    return !(max > 0) ? 1.0f : isfinite(by) ? by : 0x1p126f;
}

/* Compute the factors or divisors of a row of blocks; this thread keeps them. */
static int rq_read_band(const rq_make *m, ckpt_inputs *in, uint64_t band, rq_band **out,
                        ckpt_err *err)
{
    bool fresh = false;
    rq_band *b = in->keep(in, m, sizeof *b + m->grid[1] * sizeof *b->by, &fresh);
    int rc = b ? CKPT_OK : ckpt_fail_memory(err);

    *out = b;
    if (rc != CKPT_OK || (!fresh && b->number == band + 1))
        return rc;
    b->number = 0;
    rc = rq_maxima(m, in, band, b->by, err);
    for (uint64_t i = 0; rc == CKPT_OK && i < m->grid[1]; i++) {
        if (!isfinite(b->by[i]))
            rc = ckpt_fail(err, CKPT_EUNSUPPORTED,
                           "%.200s: NaN or infinity in rows %" PRIu64 " to %" PRIu64
                           " cannot be quantized; --quantize-skip leaves the weight as it is",
                           m->make.name, band * m->block[0], (band + 1) * m->block[0] - 1);
        else
            b->by[i] = rq_by(m, b->by[i]);
    }
    if (rc == CKPT_OK)
        b->number = band + 1;
    return rc;
}

static float rq_clamp(float x)
{
    return x > RQ_MAX ? RQ_MAX : x < -RQ_MAX ? -RQ_MAX : x;
}

static int rq_run(const ckpt_make *make, ckpt_inputs *in, void *to, uint64_t n, uint64_t at,
                  ckpt_err *err)
{
    const rq_make *m = (const rq_make *)(const void *)make;
    uint8_t *out = to;
    int rc = CKPT_OK;

    for (uint64_t i = 0; rc == CKPT_OK && i < n;) {
        uint64_t row = (at + i) / m->cols, col = (at + i) % m->cols;
        uint64_t left = m->cols - col < n - i ? m->cols - col : n - i;
        rq_band *b = NULL;

        left = left < RQ_TILE ? left : RQ_TILE;
        rc = rq_read_band(m, in, row / m->block[0], &b, err);
        float *x = rc == CKPT_OK ? in->scratch(in, RQ_TILE * sizeof *x) : NULL;
        if (rc == CKPT_OK && !x)
            rc = ckpt_fail_memory(err);
        if (rc == CKPT_OK)
            rc = in->read(in, m->input[0], &(const ckpt_axis){at + i, left, 0}, CKPT_F32, x, err);
        for (uint64_t k = 0; rc == CKPT_OK && k < left; k++) {
            float by = b->by[(col + k) / m->block[1]];
            x[k] = rq_clamp(m->channel ? x[k] / by : x[k] * by);
        }
        if (rc == CKPT_OK)
            m->narrow(out + i, x, (size_t)left);
        i += left;
    }
    return rc;
}

/* Compute the stored scales. */
static int rq_run_scales(const ckpt_make *make, ckpt_inputs *in, void *to, uint64_t n, uint64_t at,
                         ckpt_err *err)
{
    const rq_make *m = (const rq_make *)(const void *)make;
    float *out = to;
    int rc = CKPT_OK;

    for (uint64_t i = 0; rc == CKPT_OK && i < n; i++) {
        rq_band *b = NULL;

        rc = rq_read_band(m, in, (at + i) / m->grid[1], &b, err);
        if (rc == CKPT_OK)
            out[i] =
                m->channel ? b->by[(at + i) % m->grid[1]] : 1.0f / b->by[(at + i) % m->grid[1]];
    }
    return rc;
}

/* ---- choosing the tensors ---- */

/* True for linear layers that are never quantized: heads, embeddings, routers. */
static bool rq_is_left(const char *name)
{
    static const char *const left[] = {"*embed*", "*lm_head*", "*embed_out*", "*wte*",
                                       "*wpe*",   "*norm*",    "*.gate.*",    "*router*",
                                       "*score*", "*_gate.*",  "*pooler*",    "*classifier*"};

    for (size_t i = 0; i < sizeof left / sizeof *left; i++) {
        if (fnmatch(left[i], name, 0) == 0)
            return true;
    }
    return false;
}

/* True if a pattern of unchanged weights matches. */
static bool rq_is_skipped(rq_work *w, const char *name)
{
    bool skipped = false;

    for (size_t i = 0; w->opts.skip && w->opts.skip[i]; i++) {
        if (fnmatch(w->opts.skip[i], name, 0) != 0)
            continue;
        skipped = true;
        if (i < RQ_GLOBS)
            w->matched |= UINT64_C(1) << i;
    }
    return skipped;
}

/* Check that each pattern has matched a matrix. */
static int rq_check_skip(const rq_work *w)
{
    for (size_t i = 0; w->opts.skip && w->opts.skip[i]; i++) {
        if (i >= RQ_GLOBS || !(w->matched >> i & 1))
            return ckpt_fail(w->err, CKPT_EUSAGE,
                             i >= RQ_GLOBS
                                 ? "quantize: more than 64 patterns of weights that stay ('%.200s')"
                                 : "quantize: '%.200s' matches no matrix of a linear layer",
                             w->opts.skip[i]);
    }
    return CKPT_OK;
}

static bool rq_ends(const char *name, const char *end)
{
    size_t n = strlen(name), m = strlen(end);

    return n > m && strcmp(name + n - m, end) == 0;
}

/* True for a floating matrix with the name of a layer's weight. */
static bool rq_is_matrix(const ckpt_tensor *t)
{
    return t->ndim == 2 && t->n_elems > 0 && t->role != CKPT_ROLE_STATE && !t->owner &&
           rq_ends(t->name, ".weight") && ckpt_dtype_get(t->dtype)->kind == CKPT_IS_FLOAT &&
           ckpt_dtype_converts(CKPT_F32, t->dtype);
}

/* Add the module's name to the configuration's list of unquantized modules. */
static int rq_skip(rq_work *w, const ckpt_tensor *t)
{
    size_t n = strlen(t->name) - strlen(".weight");

    w->n_skipped++;
    if (strpbrk(t->name, "\"\\") ||
        !ckpt_bytes_add(&w->skipped, w->n_skipped > 1 ? ", \"" : "\"", w->n_skipped > 1 ? 3 : 1) ||
        !ckpt_bytes_add(&w->skipped, t->name, n) || !ckpt_bytes_add(&w->skipped, "\"", 1))
        return ckpt_fail_memory(w->err);
    return CKPT_OK;
}

/* ---- making the tensors ---- */

static int rq_push(rq_work *w, ckpt_tensor *t)
{
    ckpt_tensor **slot = ckpt_vec_push(&w->made);

    if (!slot)
        return ckpt_fail_memory(w->err);
    *slot = t;
    return CKPT_OK;
}

/* Make the tensor of scales for t, with an operation like t's. */
static int rq_scales(rq_work *w, const ckpt_tensor *t, const rq_make *like)
{
    rq_make *m = ckpt_arena_copy(w->map->arena, like, sizeof *m);
    const char *name =
        ckpt_arena_printf(w->map->arena, "%s%s", t->name, like->channel ? "_scale" : "_scale_inv");
    const ckpt_tensor scale = {
        .dtype = CKPT_F32, .ndim = 2, .shape = like->grid, .role = t->role, .file = t->file};
    ckpt_tensor *made = NULL;
    uint32_t source = 0;
    int rc = m && name ? CKPT_OK : ckpt_fail_memory(w->err);

    if (rc == CKPT_OK && ckpt_map_index(w->map, name, strlen(name)) != SIZE_MAX)
        rc = ckpt_fail(w->err, CKPT_EMISMATCH, "a tensor %.200s exists already", name);
    if (rc == CKPT_OK)
        rc = ckpt_map_add_hidden(w->map, name, strlen(name), &scale, &made, w->err);
    if (rc != CKPT_OK)
        return rc;
    m->make.name = name;
    m->make.dtype = CKPT_F32;
    m->make.input = m->input;
    m->make.make = rq_run_scales;
    rc = ckpt_map_add_made(w->map, &m->make, made->n_elems, &source, w->err);
    if (rc == CKPT_OK)
        rc = ckpt_map_back_whole(w->map, made, source, 0, w->err);
    return rc == CKPT_OK ? rq_push(w, made) : rc;
}

static int rq_weight(rq_work *w, ckpt_tensor *t)
{
    rq_make *m = ckpt_arena_alloc(w->map->arena, sizeof *m);
    uint32_t source = 0;
    int rc = m ? ckpt_map_hide(w->map, t, &m->input[0], w->err) : ckpt_fail_memory(w->err);

    if (rc != CKPT_OK)
        return rc;
    m->make = (ckpt_make){
        .name = t->name, .dtype = CKPT_F8_E4M3, .n_inputs = 1, .input = m->input, .make = rq_run};
    m->rows = t->shape[0];
    m->cols = t->shape[1];
    m->block[0] = w->block[0] ? w->block[0] : 1;
    m->block[1] = w->block[1] ? w->block[1] : m->cols;
    assert(m->rows % m->block[0] == 0 && m->cols % m->block[1] == 0);
    m->grid[0] = m->rows / m->block[0];
    m->grid[1] = m->cols / m->block[1];
    m->channel = w->block[0] == 0;
    m->narrow = ckpt_cast_find(CKPT_F8_E4M3, CKPT_F32);
    rc = ckpt_map_add_made(w->map, &m->make, t->n_elems, &source, w->err);
    if (rc == CKPT_OK)
        rc = rq_scales(w, t, m);
    t->dtype = CKPT_F8_E4M3;
    t->export_dtype = CKPT_DTYPE_NONE;
    t->twin = t->addend = NULL;
    t->flags &= CKPT_TENSOR_GRAD | CKPT_TENSOR_PARAMETER;
    w->n_made++;
    return rc == CKPT_OK ? ckpt_map_back_whole(w->map, t, source, 0, w->err) : rc;
}

/* ---- all tensors ---- */

static int rq_all(rq_work *w)
{
    int rc = CKPT_OK;

    for (size_t i = 0; rc == CKPT_OK && i < w->map->tensors.n; i++) {
        ckpt_tensor *t = w->map->tensors.at[i];
        bool matrix = rq_is_matrix(t);

        rc = rq_push(w, t);
        if (rc != CKPT_OK)
            return rc;
        if (matrix && (rq_is_skipped(w, t->name) || rq_is_left(t->name) ||
                       (w->block[0] && (t->shape[0] % w->block[0] || t->shape[1] % w->block[1]))))
            rc = rq_skip(w, t);
        else if (matrix)
            rc = rq_weight(w, t);
        else if (w->opts.dtype != CKPT_DTYPE_NONE &&
                 ckpt_dtype_get(t->dtype)->kind == CKPT_IS_FLOAT)
            t->export_dtype = w->opts.dtype;
        if (rc == CKPT_OK && matrix && t->dtype != CKPT_F8_E4M3 && w->opts.dtype != CKPT_DTYPE_NONE)
            t->export_dtype = w->opts.dtype;
    }
    return rc;
}

/* Make the quantization_config of config.json. */
static int rq_config(rq_work *w)
{
    static const char channel[] =
        "{\"quant_method\": \"compressed-tensors\", \"format\": \"float-quantized\", "
        "\"quantization_status\": \"compressed\", \"ignore\": [%.*s], \"config_groups\": "
        "{\"group_0\": {\"targets\": [\"Linear\"], \"weights\": {\"num_bits\": 8, \"type\": "
        "\"float\", \"symmetric\": true, \"strategy\": \"channel\", \"dynamic\": false}, "
        "\"input_activations\": {\"num_bits\": 8, \"type\": \"float\", \"symmetric\": true, "
        "\"strategy\": \"token\", \"dynamic\": true}}}}";
    static const char block[] =
        "{\"quant_method\": \"fp8\", \"activation_scheme\": \"dynamic\", \"weight_block_size\": "
        "[%" PRIu64 ", %" PRIu64 "], \"modules_to_not_convert\": [%.*s]}";
    int n = (int)w->skipped.n;
    const char *list = w->skipped.n ? (const char *)w->skipped.at : "";

    w->map->quantization =
        w->block[0] ? ckpt_arena_printf(w->map->arena, block, w->block[0], w->block[1], n, list)
                    : ckpt_arena_printf(w->map->arena, channel, n, list);
    return w->map->quantization ? CKPT_OK : ckpt_fail_memory(w->err);
}

/* True for a possible number of a block's rows or columns. */
static bool rq_side(uint64_t n)
{
    return n > 0 && n <= RQ_SIDE_MAX;
}

/* Parse the form: "fp8-channel", "fp8-block", "fp8-block:64x128". */
static int rq_take(rq_work *w)
{
    static const char block[] = "fp8-block";
    const char *form = w->opts.form ? w->opts.form : "";
    uint64_t size[2] = {128, 128};
    bool ok = true;

    if (strcmp(form, "fp8-channel") == 0)
        return CKPT_OK;
    if (strncmp(form, block, sizeof block - 1) == 0) {
        form += sizeof block - 1;
        if (*form) {
            form = *form == ':' ? ckpt_scan_u64(form + 1, &size[0]) : NULL;
            ok = form && *form == 'x' && ckpt_parse_u64(form + 1, &size[1]);
        }
        if (ok && rq_side(size[0]) && rq_side(size[1])) {
            w->block[0] = size[0];
            w->block[1] = size[1];
            return CKPT_OK;
        }
    }
    return ckpt_fail(w->err, CKPT_EUSAGE,
                     "quantize: '%.60s' is none of fp8-block, fp8-block:ROWSxCOLUMNS, fp8-channel",
                     w->opts.form ? w->opts.form : "");
}

/* Add a fact for the closing line. */
static int rq_say(const rq_work *w)
{
    return ckpt_map_fact(
        w->map, w->err, "quantized to",
        "%.40s: %" PRIu64 " matrices of linear layers; %" PRIu64
        " stay unquantized (heads, embeddings, routers, shapes that blocks do not divide)",
        w->opts.form, w->n_made, w->n_skipped);
}

/* Replace the map's tensors; a failure leaves the map half changed. */
static int rq_change(rq_work *w)
{
    int rc = rq_all(w);

    if (rc == CKPT_OK)
        rc = rq_check_skip(w);
    if (rc == CKPT_OK && w->n_made == 0)
        rc = ckpt_fail(w->err, CKPT_EMISMATCH,
                       "%s: quantize: no tensor is a matrix of a linear layer (a name that ends in "
                       "'.weight'%s): nothing would be quantized",
                       w->map->path, w->block[0] ? ", of rows and columns that blocks divide" : "");
    if (rc == CKPT_OK) {
        ckpt_vec_free(&w->map->tensors);
        w->map->tensors = w->made;
        w->made = (ckpt_tensors){0};
        rc = ckpt_map_reindex(w->map, w->err);
    }
    if (rc == CKPT_OK)
        rc = rq_config(w);
    return rc == CKPT_OK ? rq_say(w) : rc;
}

int ckpt_map_quantize(ckpt_map *map, const ckpt_quantize *opts, ckpt_err *err)
{
    ckpt_err_clear(err);
    rq_work w = {.map = map, .err = err};
    ckpt_savepoint *saved = NULL;
    int rc = ckpt_opts_take(&w.opts, sizeof w.opts, opts, "ckpt_quantize", err);

    if (rc == CKPT_OK && !map)
        rc = ckpt_fail(err, CKPT_EUSAGE, "no map to quantize");
    if (rc == CKPT_OK)
        rc = rq_take(&w);
    if (rc == CKPT_OK)
        rc = ckpt_quantized_refuse(map, "quantizing them again", err);
    if (rc == CKPT_OK)
        rc = ckpt_savepoint_new(&saved, map, err);
    if (rc == CKPT_OK)
        rc = ckpt_savepoint_end(saved, rq_change(&w));
    ckpt_vec_free(&w.made);
    ckpt_vec_free(&w.skipped);
    return rc;
}
