/* SPDX-License-Identifier: Apache-2.0 */
/*
 * quantized.c: detects quantized weights, by config.json (the fact "quantized") or by the scales
 * beside them.
 *
 * The names are those of DeepSeek's fp8 and transformers' FineGrainedFP8 ("X_scale_inv"), of
 * compressed-tensors, ModelOpt and torchao ("X_scale", also beside "X_packed" and "X_qdata"), of
 * gpt-oss' MXFP4 ("X_blocks", "X_scales"), of GPTQ and AWQ ("X.qweight", "X.scales"), of MLX
 * ("X.weight", "X.scales"), of bitsandbytes ("X.weight.absmax", "X.SCB"), and of the fp8 of
 * DeepSeek's own program and of ComfyUI ("X.weight" beside "X.scale" or "X.scale_weight").
 */
#include "libckpt/map/quantized.h"

#include <string.h>

#include "libckpt/base/dtype.h"

/* True for the numbers that are scaled or looked up: all but wide floats and masks. */
static bool qz_is_small(ckpt_dtype d)
{
    return d == CKPT_F8_E4M3 || d == CKPT_F8_E5M2 || d == CKPT_I8 || d == CKPT_U8 ||
           d == CKPT_I16 || d == CKPT_I32 || d == CKPT_U32 || d == CKPT_I64;
}

/* True for dtypes of numbers that only kinds with names of their own have. */
static bool qz_is_wide(ckpt_dtype d)
{
    return d == CKPT_I16 || d == CKPT_I64;
}

/* Set *yes if the map has this name with its last `cut` bytes replaced by `end`. */
static int qz_has(const ckpt_map *map, const char *name, size_t cut, const char *end, bool *yes)
{
    size_t keep = strlen(name) - cut, n = strlen(end);
    char *other = ckpt_alloc(keep + n + 1);

    if (!other)
        return CKPT_ELIMIT;
    memcpy(other, name, keep);
    memcpy(other + keep, end, n + 1);
    *yes = ckpt_map_index(map, other, keep + n) != SIZE_MAX;
    ckpt_free(other);
    return CKPT_OK;
}

/* The kind of a form's numbers. */
typedef enum qz_of { QZ_ANY, QZ_CODES, QZ_BYTES, QZ_MATRIX, QZ_FLOAT8 } qz_of;

/* True if a tensor can be the numbers of such a form. */
static bool qz_fits(const ckpt_tensor *t, qz_of of)
{
    switch (of) {
    case QZ_CODES: // a matrix of them; models have lists of indices, and I64
        return t->ndim >= 2 && t->dtype != CKPT_I64;
    case QZ_BYTES:
        return t->dtype == CKPT_I8 || t->dtype == CKPT_U8;
    case QZ_MATRIX:
        return t->ndim >= 2 && (t->dtype == CKPT_I8 || t->dtype == CKPT_U8);
    case QZ_FLOAT8:
        return t->dtype == CKPT_F8_E4M3 || t->dtype == CKPT_F8_E5M2;
    case QZ_ANY:
        break;
    }
    return true;
}

static int qz_scaled(const ckpt_map *map, const ckpt_tensor *t, bool *yes)
{
    static const struct {
        const char *end, *scales;
        qz_of of;
    } forms[] = {
        // kinds that are refused: EXL2, EXL3, HQQ and SINQ, AQLM, VPTQ, quanto, EETQ, Marlin's 2:4,
        // HIGGS, SpQR, Four Over Six, int8, the fp8 of DeepSeek's own program and of ComfyUI
        {".q_weight", ".q_scale", QZ_ANY},
        {".trellis", ".suh", QZ_ANY},
        {".W_q", ".scale", QZ_ANY},
        {".codes", ".codebooks", QZ_CODES},
        {".indices", ".centroids.weight", QZ_CODES},
        {"._data", "._scale", QZ_ANY},
        {".weight", ".weight_scales", QZ_BYTES},
        {".weight_packed", ".scale_packed", QZ_ANY},
        {".weight", ".tables2", QZ_ANY},
        {".dense_weights", ".row_offsets", QZ_ANY},
        {".quantized_weight_values", ".quantized_weight_scale_factors", QZ_ANY},
        {".weight", ".scale", QZ_FLOAT8},
        {".weight", ".scale", QZ_MATRIX},
        {".weight", ".scales", QZ_MATRIX},
        {".weight", ".scale_weight", QZ_FLOAT8},
        {"", "_scale_inv", QZ_ANY},
        {"", "_scale", QZ_ANY},
        {"_packed", "_scale", QZ_ANY},
        {"_qdata", "_scale", QZ_ANY},
        {"_blocks", "_scales", QZ_ANY},
        {".qweight", ".scales", QZ_ANY},
        {".weight", ".weight.absmax", QZ_ANY},
        {".weight", ".SCB", QZ_ANY},
        {".weight", ".scales", QZ_ANY}};
    size_t n = strlen(t->name);
    int rc = CKPT_OK;

    *yes = false;
    for (size_t i = 0; rc == CKPT_OK && !*yes && i < sizeof forms / sizeof *forms; i++) {
        size_t cut = strlen(forms[i].end);
        if (cut == 0 && (qz_is_wide(t->dtype) || (t->dtype == CKPT_I32 && t->ndim < 2)))
            continue;
        if (!qz_fits(t, forms[i].of))
            continue;
        // only MLX's words are unsigned, and only they have the last form
        if ((t->dtype == CKPT_U32) != (i + 1 == sizeof forms / sizeof *forms))
            continue;
        if (n > cut && strcmp(t->name + n - cut, forms[i].end) == 0)
            rc = qz_has(map, t->name, cut, forms[i].scales, yes);
    }
    return rc;
}

/* The first tensor with scales in another tensor; NULL: none. */
static const ckpt_tensor *qz_tensor(const ckpt_map *map)
{
    for (size_t i = 0; i < map->tensors.n; i++) {
        const ckpt_tensor *t = map->tensors.at[i];
        bool yes = false;

        // without memory for a name, assume that it has scales
        if (qz_is_small(t->dtype) && (qz_scaled(map, t, &yes) != CKPT_OK || yes))
            return t;
    }
    return NULL;
}

bool ckpt_quantized(const ckpt_map *map)
{
    return map->known.quantized || qz_tensor(map);
}

int ckpt_quantized_refuse(const ckpt_map *map, const char *doing, ckpt_err *err)
{
    const ckpt_tensor *t = qz_tensor(map);
    const char *how = map->known.quantized;

    if (!how && !t)
        return CKPT_OK;
    if (map->quantized_part)
        return ckpt_fail(err, CKPT_EUNSUPPORTED,
                         "%s has quantized weights, by its own config.json: %s would use the "
                         "stored numbers as weights; convert that folder alone",
                         map->quantized_part, doing);
    return ckpt_fail(
        err, CKPT_EUNSUPPORTED,
        "%s: ckpt cannot dequantize these weights (%s%.200s): %s would use the stored "
        "numbers as weights; convert without it to copy them unchanged, or dequantize them first "
        "with the program that made them",
        map->path ? map->path : "memory", how ? "config.json: " : "tensor ", how ? how : t->name,
        doing);
}

/* True for a matrix of weights. */
static bool qz_is_matrix(const ckpt_tensor *t)
{
    static const char end[] = ".weight";
    const size_t n = strlen(t->name), m = sizeof end - 1;

    return t->ndim >= 2 && n > m && strcmp(t->name + n - m, end) == 0;
}

const ckpt_tensor *ckpt_quantized_code(const ckpt_map *map)
{
    const ckpt_tensor *codes = NULL;
    bool floats = false;

    for (size_t i = 0; i < map->tensors.n; i++) {
        const ckpt_tensor *t = map->tensors.at[i];
        const ckpt_dtype_info *d = ckpt_dtype_get(t->dtype);

        if (!qz_is_matrix(t))
            continue;
        floats = floats || d->kind == CKPT_IS_FLOAT;
        // tables of positions and of hashes have 64 bits
        if (!codes && (d->kind == CKPT_IS_INT || d->kind == CKPT_IS_UINT) && d->bits < 64)
            codes = t;
    }
    return floats && codes && !ckpt_quantized(map) ? codes : NULL;
}

int ckpt_quantized_codes(const ckpt_map *map, const char *doing, ckpt_err *err)
{
    const ckpt_tensor *t = ckpt_quantized_code(map);

    return t ? ckpt_fail(err, CKPT_EUNSUPPORTED,
                         "%s: tensor %.200s has integers (%s), but neither scales nor config.json "
                         "show what they mean: %s would leave them among the floats; copy the "
                         "whole quantized model, leave the tensor out, or convert without it to "
                         "copy the tensors unchanged",
                         map->path ? map->path : "memory", t->name, ckpt_dtype_name(t->dtype),
                         doing)
             : CKPT_OK;
}
