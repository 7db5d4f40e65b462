/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mlx.c: warns if MLX wrote a folder and may have changed its tensors.
 *
 * When mlx-lm converts a model, the function `sanitize` of its class may rename tensors (experts
 * become one tensor), transpose them (convolutions, GPT-2's matrices) or change values (1 is added
 * to norms of Qwen3-Next).  The folder keeps transformers' config.json.
 */
#include "formats/hf/whole.h"

#include <assert.h>
#include <string.h>

/* Types of which mlx-lm 0.32 keeps all tensors but rotary frequencies and tied heads. */
static const char *const hfm_same[] = {
    "cohere",   "cohere2",  "exaone",      "exaone4",   "gemma",  "gemma2",
    "glm",      "glm4",     "gpt_bigcode", "granite",   "helium", "hunyuan_v1_dense",
    "llama",    "minicpm3", "mistral",     "nemotron",  "olmo",   "olmo2",
    "olmo3",    "openelm",  "phi",         "phi3",      "qwen2",  "qwen3",
    "seed_oss", "smollm3",  "stablelm",    "starcoder2"};

/* True if MLX wrote the tensors: their file or their quantization is MLX's. */
static bool hfm_is_mlx(const ckpt_map *map, const ckpt_value *config)
{
    bool found = ckpt_hf_quant_is_mlx(ckpt_hf_quantization(config));

    for (uint64_t i = 0; i < map->metadata.n; i++) {
        const ckpt_pair *p = &map->metadata.at[i];

        found = found || (ckpt_value_is(p->key, "format") && ckpt_value_is(p->value, "mlx"));
    }
    return found;
}

/* True for a type of model whose tensors are the same in MLX. */
static bool hfm_is_same(const ckpt_value *config)
{
    const ckpt_value *type = ckpt_value_get(config, "model_type");

    for (size_t i = 0; i < sizeof hfm_same / sizeof *hfm_same; i++) {
        if (ckpt_value_is(type, hfm_same[i]))
            return true;
    }
    return false;
}

int ckpt_hf_mlx_written(const ckpt_value *config, ckpt_err *err)
{
    const ckpt_value *type = ckpt_value_get(config, "model_type");

    if (!config || hfm_is_same(config))
        return CKPT_OK;
    return ckpt_fail(err, CKPT_EUNSUPPORTED,
                     "mlx-lm may have other tensors for models of type %.60s than transformers, so "
                     "ckpt does not quantize them for MLX; convert to floats, and quantize with "
                     "mlx_lm.convert",
                     type && type->kind == CKPT_V_STR ? type->as.text.at : "(none)");
}

int ckpt_hf_mlx(ckpt_map *map, const ckpt_value *config, const char *name, ckpt_err *err)
{
    const ckpt_value *type = ckpt_value_get(config, "model_type");

    assert(map && name);
    if (!hfm_is_mlx(map, config) || hfm_is_same(config))
        return CKPT_OK;
    return ckpt_map_note(map, CKPT_WARNING, err,
                         "%s: MLX wrote these weights, and for models of type %.60s it may have "
                         "other names, transposed tensors or other values than transformers: "
                         "compare a result with the original model (ckpt diff) before you use it "
                         "outside MLX",
                         name, type && type->kind == CKPT_V_STR ? type->as.text.at : "(none)");
}
