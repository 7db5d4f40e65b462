/* SPDX-License-Identifier: Apache-2.0 */
/*
 * quantized.c: detects quantized weights, by config.json (the fact "quantized") or by the scales
 * beside them.
 *
 * The names are those of DeepSeek's fp8 and transformers' FineGrainedFP8 ("X_scale_inv"), of
 * compressed-tensors, ModelOpt and torchao ("X_scale", also beside "X_packed" and "X_qdata"), of
 * gpt-oss' MXFP4 ("X_blocks", "X_scales"), of GPTQ and AWQ ("X.qweight", "X.scales"), of MLX
 * ("X.weight", "X.scales"), and of bitsandbytes ("X.weight.absmax", "X.SCB").
 */
#include "libckpt/map/quantized.h"

#include <string.h>

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

static int qz_scaled(const ckpt_map *map, const ckpt_tensor *t, bool *yes)
{
    static const struct {
        const char *end, *scales;
    } forms[] = {
        // kinds that are refused: EXL2, EXL3, HQQ and SINQ, AQLM, VPTQ, quanto, EETQ, Marlin's 2:4,
        // HIGGS, SpQR, Four Over Six
        {".q_weight", ".q_scale"},
        {".trellis", ".suh"},
        {".W_q", ".scale"},
        {".codes", ".codebooks"},
        {".indices", ".centroids.weight"},
        {"._data", "._scale"},
        {".weight", ".weight_scales"},
        {".weight_packed", ".scale_packed"},
        {".weight", ".tables2"},
        {".dense_weights", ".row_offsets"},
        {".quantized_weight_values", ".quantized_weight_scale_factors"},
        {"", "_scale_inv"},
        {"", "_scale"},
        {"_packed", "_scale"},
        {"_qdata", "_scale"},
        {"_blocks", "_scales"},
        {".qweight", ".scales"},
        {".weight", ".weight.absmax"},
        {".weight", ".SCB"},
        {".weight", ".scales"}};
    size_t n = strlen(t->name);
    int rc = CKPT_OK;

    *yes = false;
    for (size_t i = 0; rc == CKPT_OK && !*yes && i < sizeof forms / sizeof *forms; i++) {
        size_t cut = strlen(forms[i].end);
        if (cut == 0 && qz_is_wide(t->dtype))
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
    return ckpt_fail(
        err, CKPT_EUNSUPPORTED,
        "%s: ckpt cannot dequantize these weights (%s%.200s): %s would use the stored "
        "numbers as weights; convert without it to copy them unchanged, or dequantize them first "
        "with the program that made them",
        map->path ? map->path : "memory", how ? "config.json: " : "tensor ", how ? how : t->name,
        doing);
}
