/* SPDX-License-Identifier: Apache-2.0 */
/*
 * requant_group.c: quantizes matrices to numbers with a scale for a group of columns.
 *
 *    w4a16, w8a16  compressed-tensors' "pack-quantized": X_packed, words of integers; X_scale;
 *                  X_shape, the rows and columns
 *    nvfp4a16      "nvfp4-pack-quantized": X_packed, two E2M1 in a byte; X_scale, E4M3 for 16
 *                  columns; X_global_scale, by which scales are divided
 *    mxfp4a16      "mxfp4-pack-quantized": X_packed; X_scale, an exponent + 127 for 32 columns
 *    mlx4, mlx8    MLX's "affine": X, words; scales; biases
 *
 * Groups follow each other in the elements of a matrix, because they divide its columns.  Each
 * computed tensor has a fixed number of elements for a group, and is computed from the values
 * again.
 */
#include <assert.h>
#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <stdatomic.h>
#include <string.h>

#include "libckpt/base/cast.h"
#include "libckpt/transform/requant.h"

/* Values that are read together: a multiple of every group, which is a power of two. */
#define RQG_TILE (1u << 16)

/* The largest magnitude of a matrix, which several operations need (NVFP4). */
typedef struct rqg_peak {
    atomic_bool known;
    _Atomic float max;
} rqg_peak;

typedef struct rqg_make {
    ckpt_make make; /* first */
    const ckpt_tensor *input[1];
    const char *of; /* name of the matrix, for messages */
    uint64_t cols;
    uint64_t per;   /* elements for a group */
    uint64_t bytes; /* of an element */
    ckpt_requant_code *code;
    ckpt_requant_how how;
    rqg_peak *peak; /* NULL: the whole tensor has no factor */
} rqg_make;

/* ---- reading and computing ----------------------------------------------------------------- */

/*
 * The largest magnitude that is quantized.  Rounding makes numbers larger by at most a third, and
 * MLX multiplies up to twice a magnitude when it reads them; both must stay finite in the dtype.
 */
static float rqg_limit(const rqg_make *m)
{
    return 0.375f * (m->how.of == CKPT_F16 ? 65504.0f : FLT_MAX);
}

/* The first of n values that is NaN or beyond the limit; n: none. */
static uint64_t rqg_bad(const float *x, uint64_t n, float limit)
{
    int bad = 0;

    for (uint64_t i = 0; i < n; i++)
        bad |= !(fabsf(x[i]) <= limit);
    for (uint64_t i = 0; bad && i < n; i++) {
        if (!(fabsf(x[i]) <= limit))
            return i;
    }
    return n;
}

/* Read n values from element `at` on, as the dtype of the arithmetic has them. */
static int rqg_read(const rqg_make *m, ckpt_inputs *in, uint64_t at, uint64_t n, float *x,
                    ckpt_err *err)
{
    int rc = in->read(in, m->input[0], &(const ckpt_axis){at, n, 0}, CKPT_F32, x, err);
    uint64_t bad;

    for (uint64_t i = 0; rc == CKPT_OK && m->input[0]->dtype != m->how.of && i < n;
         i += m->how.group)
        ckpt_requant_round(&m->how, x + i, m->how.group);
    bad = rc == CKPT_OK ? rqg_bad(x, n, rqg_limit(m)) : n;
    if (bad == n)
        return rc;
    return ckpt_fail(err, CKPT_EUNSUPPORTED,
                     "%.200s: row %" PRIu64 " has NaN, infinity or a number above %g, which cannot "
                     "be quantized; --quantize-skip leaves the weight as it is",
                     m->of, (at + bad) / m->cols, (double)rqg_limit(m));
}

static int rqg_run(const ckpt_make *make, ckpt_inputs *in, void *to, uint64_t n, uint64_t at,
                   ckpt_err *err)
{
    const rqg_make *m = (const rqg_make *)(const void *)make;
    uint64_t size = m->per * m->bytes, end = at + n, tile = RQG_TILE / m->how.group;
    uint8_t *out = to;
    uint64_t first = at / m->per, last = (end + m->per - 1) / m->per;
    float *x = in->scratch(in, RQG_TILE * sizeof *x + size);
    int rc = x ? CKPT_OK : ckpt_fail_memory(err);

    for (uint64_t g = first; rc == CKPT_OK && g < last; g += tile) {
        uint64_t groups = last - g < tile ? last - g : tile;

        rc = rqg_read(m, in, g * m->how.group, groups * m->how.group, x, err);
        for (uint64_t i = 0; rc == CKPT_OK && i < groups; i++) {
            uint8_t *unit = (uint8_t *)(x + RQG_TILE);
            // the part of the group's elements that was asked for
            uint64_t from = (g + i) * m->per, skip = from < at ? at - from : 0;
            uint64_t stop = from + m->per > end ? end - from : m->per;

            m->code(&m->how, x + i * m->how.group, unit);
            memcpy(out, unit + skip * m->bytes, (size_t)((stop - skip) * m->bytes));
            out += (stop - skip) * m->bytes;
        }
    }
    return rc;
}

/* ---- NVFP4: the factor of the whole tensor ------------------------------------------------- */

static int rqg_find_peak(ckpt_make *make, ckpt_inputs *in, ckpt_err *err)
{
    rqg_make *m = (rqg_make *)(void *)make;
    float *x = in->scratch(in, RQG_TILE * sizeof *x), max = 0;
    uint64_t n = m->input[0]->n_elems;
    int rc = x ? CKPT_OK : ckpt_fail_memory(err);

    if (rc == CKPT_OK && atomic_load(&m->peak->known))
        max = atomic_load(&m->peak->max);
    else {
        for (uint64_t at = 0; rc == CKPT_OK && at < n; at += RQG_TILE) {
            uint64_t some = n - at < RQG_TILE ? n - at : RQG_TILE;

            rc = rqg_read(m, in, at, some, x, err);
            for (uint64_t i = 0; rc == CKPT_OK && i < some; i++)
                max = fabsf(x[i]) > max ? fabsf(x[i]) : max;
        }
    }
    if (rc != CKPT_OK)
        return rc;
    atomic_store(&m->peak->max, max);
    atomic_store(&m->peak->known, true);
    m->how.whole = ckpt_requant_nvfp4_whole(&m->how, max);
    return CKPT_OK;
}

/* The one element of the factor. */
static int rqg_run_whole(const ckpt_make *make, ckpt_inputs *in, void *to, uint64_t n, uint64_t at,
                         ckpt_err *err)
{
    const rqg_make *m = (const rqg_make *)(const void *)make;

    (void)in;
    (void)n;
    (void)at;
    (void)err;
    assert(n == 1 && at == 0);
    memcpy(to, &m->how.whole, sizeof m->how.whole);
    return CKPT_OK;
}

/* ---- the shape of pack-quantized weights ---------------------------------------------------- */

static int rqg_run_shape(const ckpt_make *make, ckpt_inputs *in, void *to, uint64_t n, uint64_t at,
                         ckpt_err *err)
{
    const rqg_make *m = (const rqg_make *)(const void *)make;
    const int64_t shape[2] = {(int64_t)(m->input[0]->n_elems / m->cols), (int64_t)m->cols};

    (void)in;
    (void)err;
    memcpy(to, shape + at, (size_t)n * sizeof *shape);
    return CKPT_OK;
}

/* ---- the tensors of a matrix --------------------------------------------------------------- */

typedef int rqg_run_fn(const ckpt_make *make, ckpt_inputs *in, void *to, uint64_t n, uint64_t at,
                       ckpt_err *err);

/* One tensor of a form; the first of a form takes the place of the matrix. */
typedef struct rqg_part {
    const char *name;        /* after the module's name: ".weight_packed" */
    ckpt_dtype dtype;        /* NONE: that of the arithmetic */
    unsigned bits;           /* of each value in it; 0: one element for a group */
    ckpt_requant_code *code; /* NULL: run makes elements that belong to no group */
    rqg_run_fn *run;
    uint64_t n; /* their number */
} rqg_part;

static int rqg_tensor(ckpt_requant *w, ckpt_tensor *t, const rqg_make *like, const rqg_part *p,
                      bool first)
{
    ckpt_arena *arena = w->map->arena;
    rqg_make *m = ckpt_arena_copy(arena, like, sizeof *m);
    int n = (int)(strlen(like->of) - strlen(".weight"));
    const char *name = ckpt_arena_printf(arena, "%.*s%s", n, like->of, p->name);
    ckpt_dtype dtype = p->dtype != CKPT_DTYPE_NONE ? p->dtype : like->how.of;
    uint64_t shape[2] = {like->input[0]->n_elems / like->cols, like->cols / like->how.group};
    const ckpt_tensor as = {.dtype = dtype, .ndim = p->code ? 2 : 1, .shape = shape};

    if (!m || !name)
        return ckpt_fail_memory(w->err);
    m->bytes = ckpt_dtype_get(dtype)->bytes;
    m->per = p->bits ? like->how.group * p->bits / (8 * m->bytes) : 1;
    m->code = p->code;
    m->make.input = m->input;
    m->make.make = p->code ? rqg_run : p->run;
    shape[1] *= m->per;
    if (!p->code)
        shape[0] = p->n;
    return first ? ckpt_requant_replace(w, t, name, &as, &m->make)
                 : ckpt_requant_add(w, t, name, &as, &m->make);
}

static int rqg_weight(ckpt_requant *w, ckpt_tensor *t, const rqg_part *part, size_t n, bool whole)
{
    rqg_make like = {.make = {.n_inputs = 1, .prepare = whole ? rqg_find_peak : NULL},
                     .of = t->name,
                     .cols = t->shape[1]};
    ckpt_dtype of = ckpt_requant_dtype(w, t);
    int rc = ckpt_map_hide(w->map, t, &like.input[0], w->err);

    if (rc == CKPT_OK && whole) {
        like.peak = ckpt_arena_alloc(w->map->arena, sizeof *like.peak);
        rc = like.peak ? CKPT_OK : ckpt_fail_memory(w->err);
    }
    like.how = (ckpt_requant_how){.group = w->block[1],
                                  .bits = w->form->bits,
                                  .of = of,
                                  .to_fp8 = ckpt_cast_find(CKPT_F8_E4M3, CKPT_F32),
                                  .from_fp8 = ckpt_cast_find(CKPT_F32, CKPT_F8_E4M3)};
    if (of != CKPT_F32) {
        like.how.narrow = ckpt_cast_find(of, CKPT_F32);
        like.how.widen = ckpt_cast_find(CKPT_F32, of);
    }
    for (size_t i = 0; rc == CKPT_OK && i < n; i++)
        rc = rqg_tensor(w, t, &like, &part[i], i == 0);
    return rc;
}

int ckpt_requant_int(ckpt_requant *w, ckpt_tensor *t)
{
    const rqg_part part[] = {
        {".weight_packed", CKPT_I32, w->form->bits, ckpt_requant_int_words, NULL, 0},
        {".weight_scale", CKPT_DTYPE_NONE, 0, ckpt_requant_int_scale, NULL, 0},
        {".weight_shape", CKPT_I64, 0, NULL, rqg_run_shape, 2},
    };
    return rqg_weight(w, t, part, 3, false);
}

int ckpt_requant_nvfp4(ckpt_requant *w, ckpt_tensor *t)
{
    static const rqg_part part[] = {
        {".weight_packed", CKPT_U8, 4, ckpt_requant_nvfp4_pairs, NULL, 0},
        {".weight_scale", CKPT_F8_E4M3, 0, ckpt_requant_nvfp4_scale, NULL, 0},
        {".weight_global_scale", CKPT_F32, 0, NULL, rqg_run_whole, 1},
    };
    return rqg_weight(w, t, part, 3, true);
}

int ckpt_requant_mxfp4(ckpt_requant *w, ckpt_tensor *t)
{
    static const rqg_part part[] = {
        {".weight_packed", CKPT_U8, 4, ckpt_requant_mxfp4_pairs, NULL, 0},
        {".weight_scale", CKPT_U8, 0, ckpt_requant_mxfp4_scale, NULL, 0},
    };
    return rqg_weight(w, t, part, 2, false);
}

int ckpt_requant_mlx(ckpt_requant *w, ckpt_tensor *t)
{
    const rqg_part part[] = {
        {".weight", CKPT_U32, w->form->bits, ckpt_requant_mlx_words, NULL, 0},
        {".scales", CKPT_DTYPE_NONE, 0, ckpt_requant_mlx_scale, NULL, 0},
        {".biases", CKPT_DTYPE_NONE, 0, ckpt_requant_mlx_bias, NULL, 0},
    };
    return rqg_weight(w, t, part, 3, false);
}

/* ---- the configurations -------------------------------------------------------------------- */

/* compressed-tensors': settings of the weights, as members of JSON. */
static int rqg_config(ckpt_requant *w, const char *format, const char *weights, const char *list)
{
    w->map->quantization_key = "quantization_config";
    w->map->quantization = ckpt_arena_printf(
        w->map->arena,
        "{\"quant_method\": \"compressed-tensors\", \"format\": \"%s\", "
        "\"quantization_status\": \"compressed\", \"ignore\": [%s], \"config_groups\": "
        "{\"group_0\": {\"format\": \"%s\", \"targets\": [\"Linear\"], \"weights\": "
        "{\"num_bits\": %u, \"group_size\": %" PRIu64
        ", \"symmetric\": true, \"dynamic\": false, %s}}}}",
        format, list, format, w->form->bits, w->block[1], weights);
    return w->map->quantization ? CKPT_OK : ckpt_fail_memory(w->err);
}

int ckpt_requant_int_config(ckpt_requant *w, const char *list)
{
    return rqg_config(w, "pack-quantized", "\"type\": \"int\", \"strategy\": \"group\"", list);
}

int ckpt_requant_nvfp4_config(ckpt_requant *w, const char *list)
{
    return rqg_config(w, "nvfp4-pack-quantized",
                      "\"type\": \"float\", \"strategy\": \"tensor_group\", \"scale_dtype\": "
                      "\"torch.float8_e4m3fn\", \"zp_dtype\": \"torch.float8_e4m3fn\"",
                      list);
}

int ckpt_requant_mxfp4_config(ckpt_requant *w, const char *list)
{
    return rqg_config(w, "mxfp4-pack-quantized",
                      "\"type\": \"float\", \"strategy\": \"group\", \"scale_dtype\": "
                      "\"torch.uint8\", \"zp_dtype\": \"torch.uint8\"",
                      list);
}

int ckpt_requant_mlx_config(ckpt_requant *w, const char *list)
{
    (void)list; // MLX quantizes the modules that have scales
    w->map->quantization_key = "quantization";
    w->map->quantization = ckpt_arena_printf(
        w->map->arena, "{\"group_size\": %" PRIu64 ", \"bits\": %u, \"mode\": \"affine\"}",
        w->block[1], w->form->bits);
    return w->map->quantization ? CKPT_OK : ckpt_fail_memory(w->err);
}
