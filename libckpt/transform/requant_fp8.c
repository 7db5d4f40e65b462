/* SPDX-License-Identifier: Apache-2.0 */
/*
 * requant_fp8.c: quantizes matrices to fp8 numbers with scales.
 *
 *    fp8-block    a scale for each block of 128 x 128: X_scale_inv, as in DeepSeek and
 *                 transformers' FineGrainedFP8: F32, 1 / s with s = 1 / max |x| * 448,
 *                 and x * s rounded once (integrations/finegrained_fp8.py, Fp8Quantize)
 *    fp8-channel  a scale for each row: X_scale, as compressed-tensors reads it
 *                 ("float-quantized"): F32, max |x| / 448, and x / scale rounded once
 */
#include <assert.h>
#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "libckpt/base/cast.h"
#include "libckpt/transform/requant.h"

enum { RQF_TILE = 1 << 16 }; /* elements examined together */

#define RQF_MAX 448.0f /* the largest number of E4M3 */

typedef struct rqf_make {
    ckpt_make make; /* first */
    const ckpt_tensor *input[1];
    uint64_t rows, cols, block[2], grid[2];
    bool channel; /* divide by the scale instead of multiplying by its inverse */
    ckpt_cast_fn narrow;
} rqf_make;

/* The data of one row of blocks: its number + 1, and the factor or divisor of each block. */
typedef struct rqf_band {
    uint64_t number;
    float by[];
} rqf_band;

/* ---- the arithmetic ---- */

/* A maximum that propagates NaN. */
static float rqf_larger(float a, float b)
{
    return isnan(a) || a >= b ? a : b;
}

/* Find the largest magnitudes in one row of blocks. */
static int rqf_maxima(const rqf_make *m, ckpt_inputs *in, uint64_t band, float *max, ckpt_err *err)
{
    uint64_t first = band * m->block[0], end = first + m->block[0];
    float *x = in->scratch(in, RQF_TILE * sizeof *x);
    int rc = x ? CKPT_OK : ckpt_fail_memory(err);

    end = end > m->rows ? m->rows : end;
    memset(max, 0, (size_t)m->grid[1] * sizeof *max);
    for (uint64_t at = first * m->cols; rc == CKPT_OK && at < end * m->cols; at += RQF_TILE) {
        uint64_t n = end * m->cols - at < RQF_TILE ? end * m->cols - at : RQF_TILE;

        rc = in->read(in, m->input[0], &(const ckpt_axis){at, n, 0}, CKPT_F32, x, err);
        for (uint64_t i = 0; rc == CKPT_OK && i < n; i++) {
            float *of = &max[(at + i) % m->cols / m->block[1]];
            *of = rqf_larger(*of, fabsf(x[i]));
        }
    }
    return rc;
}

/*
 * The factor (blocks) or divisor (rows) of elements, from their maximum. A row whose scale would be
 * zero gets compressed-tensors' smallest (calculate_qparams); a block of zeros gets 1; a block so
 * small that the factor overflows gets one with a normal inverse.
 */
static float rqf_by(const rqf_make *m, float max)
{
    if (m->channel)
        return max / RQF_MAX > 0 ? max / RQF_MAX : FLT_EPSILON;
    // torch divides a number by a tensor in two steps: reciprocal, then product
    float by = 1.0f / max * RQF_MAX;
    return !(max > 0) ? 1.0f : isfinite(by) ? by : 0x1p126f;
}

/* Compute the factors or divisors of a row of blocks; this thread keeps them. */
static int rqf_read_band(const rqf_make *m, ckpt_inputs *in, uint64_t band, rqf_band **out,
                         ckpt_err *err)
{
    bool fresh = false;
    rqf_band *b = in->keep(in, m, sizeof *b + m->grid[1] * sizeof *b->by, &fresh);
    int rc = b ? CKPT_OK : ckpt_fail_memory(err);

    *out = b;
    if (rc != CKPT_OK || (!fresh && b->number == band + 1))
        return rc;
    b->number = 0;
    rc = rqf_maxima(m, in, band, b->by, err);
    for (uint64_t i = 0; rc == CKPT_OK && i < m->grid[1]; i++) {
        if (!isfinite(b->by[i]))
            rc = ckpt_requant_not_finite(m->make.name, band * m->block[0],
                                         (band + 1) * m->block[0] - 1, err);
        else
            b->by[i] = rqf_by(m, b->by[i]);
    }
    if (rc == CKPT_OK)
        b->number = band + 1;
    return rc;
}

static float rqf_clamp(float x)
{
    return x > RQF_MAX ? RQF_MAX : x < -RQF_MAX ? -RQF_MAX : x;
}

static int rqf_run(const ckpt_make *make, ckpt_inputs *in, void *to, uint64_t n, uint64_t at,
                   ckpt_err *err)
{
    const rqf_make *m = (const rqf_make *)(const void *)make;
    uint8_t *out = to;
    int rc = CKPT_OK;

    for (uint64_t i = 0; rc == CKPT_OK && i < n;) {
        uint64_t row = (at + i) / m->cols, col = (at + i) % m->cols;
        uint64_t left = m->cols - col < n - i ? m->cols - col : n - i;
        rqf_band *b = NULL;

        left = left < RQF_TILE ? left : RQF_TILE;
        rc = rqf_read_band(m, in, row / m->block[0], &b, err);
        float *x = rc == CKPT_OK ? in->scratch(in, RQF_TILE * sizeof *x) : NULL;
        if (rc == CKPT_OK && !x)
            rc = ckpt_fail_memory(err);
        if (rc == CKPT_OK)
            rc = in->read(in, m->input[0], &(const ckpt_axis){at + i, left, 0}, CKPT_F32, x, err);
        for (uint64_t k = 0; rc == CKPT_OK && k < left; k++) {
            float by = b->by[(col + k) / m->block[1]];
            x[k] = rqf_clamp(m->channel ? x[k] / by : x[k] * by);
        }
        if (rc == CKPT_OK)
            m->narrow(out + i, x, (size_t)left);
        i += left;
    }
    return rc;
}

/* Compute the stored scales. */
static int rqf_run_scales(const ckpt_make *make, ckpt_inputs *in, void *to, uint64_t n, uint64_t at,
                          ckpt_err *err)
{
    const rqf_make *m = (const rqf_make *)(const void *)make;
    float *out = to;
    int rc = CKPT_OK;

    for (uint64_t i = 0; rc == CKPT_OK && i < n; i++) {
        rqf_band *b = NULL;

        rc = rqf_read_band(m, in, (at + i) / m->grid[1], &b, err);
        if (rc == CKPT_OK)
            out[i] =
                m->channel ? b->by[(at + i) % m->grid[1]] : 1.0f / b->by[(at + i) % m->grid[1]];
    }
    return rc;
}

/* ---- the tensors of a matrix ---- */

/* Add the tensor of scales, with an operation like the weight's. */
static int rqf_scales(ckpt_requant *w, const ckpt_tensor *t, const rqf_make *like)
{
    rqf_make *m = ckpt_arena_copy(w->map->arena, like, sizeof *m);
    const char *name =
        ckpt_arena_printf(w->map->arena, "%s%s", t->name, like->channel ? "_scale" : "_scale_inv");
    const ckpt_tensor as = {.dtype = CKPT_F32, .ndim = 2, .shape = like->grid};

    if (!m || !name)
        return ckpt_fail_memory(w->err);
    m->make.input = m->input;
    m->make.make = rqf_run_scales;
    return ckpt_requant_add(w, t, name, &as, &m->make);
}

int ckpt_requant_fp8(ckpt_requant *w, ckpt_tensor *t)
{
    rqf_make *m = ckpt_arena_alloc(w->map->arena, sizeof *m);
    const ckpt_tensor as = {.dtype = CKPT_F8_E4M3, .ndim = 2, .shape = t->shape};
    int rc = m ? ckpt_map_hide(w->map, t, &m->input[0], w->err) : ckpt_fail_memory(w->err);

    if (rc != CKPT_OK)
        return rc;
    m->make = (ckpt_make){.n_inputs = 1, .input = m->input, .make = rqf_run};
    m->rows = t->shape[0];
    m->cols = t->shape[1];
    m->block[0] = w->block[0] ? w->block[0] : 1;
    m->block[1] = w->block[1] ? w->block[1] : m->cols;
    assert(m->rows % m->block[0] == 0 && m->cols % m->block[1] == 0);
    m->grid[0] = m->rows / m->block[0];
    m->grid[1] = m->cols / m->block[1];
    m->channel = w->block[0] == 0;
    m->narrow = ckpt_cast_find(CKPT_F8_E4M3, CKPT_F32);
    rc = ckpt_requant_replace(w, t, t->name, &as, &m->make);
    return rc == CKPT_OK ? rqf_scales(w, t, m) : rc;
}

/* ---- the configurations ---- */

int ckpt_requant_fp8_channel_config(ckpt_requant *w, const char *list)
{
    w->map->quantization_key = "quantization_config";
    w->map->quantization = ckpt_arena_printf(
        w->map->arena,
        "{\"quant_method\": \"compressed-tensors\", \"format\": \"float-quantized\", "
        "\"quantization_status\": \"compressed\", \"ignore\": [%s], \"config_groups\": "
        "{\"group_0\": {\"targets\": [\"Linear\"], \"weights\": {\"num_bits\": 8, \"type\": "
        "\"float\", \"symmetric\": true, \"strategy\": \"channel\", \"dynamic\": false}, "
        "\"input_activations\": {\"num_bits\": 8, \"type\": \"float\", \"symmetric\": true, "
        "\"strategy\": \"token\", \"dynamic\": true}}}}",
        list);
    return w->map->quantization ? CKPT_OK : ckpt_fail_memory(w->err);
}

int ckpt_requant_fp8_block_config(ckpt_requant *w, const char *list)
{
    w->map->quantization_key = "quantization_config";
    w->map->quantization = ckpt_arena_printf(
        w->map->arena,
        "{\"quant_method\": \"fp8\", \"activation_scheme\": \"dynamic\", "
        "\"weight_block_size\": [%" PRIu64 ", %" PRIu64 "], \"modules_to_not_convert\": [%s]}",
        w->block[0], w->block[1], list);
    return w->map->quantization ? CKPT_OK : ckpt_fail_memory(w->err);
}
