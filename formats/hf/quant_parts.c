/* SPDX-License-Identifier: Apache-2.0 */
/*
 * quant_parts.c: checks that each quantized weight has the tensors that its numbers need.
 *
 * Names are those of transformers 5.23, compressed-tensors 0.20, bitsandbytes 0.50, torchao 0.18,
 * and of GPTQ's and AWQ's kernels.  Other methods are not checked.
 */
#include "formats/hf/whole.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "libckpt/base/dtype.h"
#include "libckpt/map/quantized.h"

/* A kind of quantized weight. */
typedef struct hfq_kind {
    const char *method; /* quant_method in config.json; NULL: the name alone shows the kind */
    const char *end;    /* end of the weight's name */
    ckpt_dtype dtype;   /* of the weight; CKPT_DTYPE_NONE: any */
    size_t cut;         /* the parts' names replace the last `cut` bytes of the weight's name */
    /* Ends of the parts' names; "a|b": one of both is enough. */
    const char *parts[3];
} hfq_kind;

static const hfq_kind hfq_kinds[] = {
    {NULL, ".qweight", CKPT_I32, 7, {"scales"}},
    {NULL, ".weight_packed", CKPT_I32, 6, {"scale", "shape"}},
    {NULL, ".weight_packed", CKPT_DTYPE_NONE, 6, {"scale"}},
    {NULL, "_blocks", CKPT_U8, 6, {"scales"}},
    {"bitsandbytes",
     ".weight",
     CKPT_U8,
     0,
     {".absmax", ".quant_map", ".quant_state.bitsandbytes__nf4|.quant_state.bitsandbytes__fp4"}},
    {"bitsandbytes", ".weight", CKPT_I8, 6, {"SCB"}},
    {"mlx", ".weight", CKPT_U32, 6, {"scales"}},
    {"mlx affine", ".weight", CKPT_U32, 6, {"scales", "biases"}},
    {"compressed-tensors", ".weight", CKPT_I8, 0, {"_scale"}},
    {"compressed-tensors", ".weight", CKPT_F8_E4M3, 0, {"_scale"}},
    {"fbgemm_fp8", "", CKPT_F8_E4M3, 0, {"_scale"}},
    {"modelopt", ".weight", CKPT_F8_E4M3, 0, {"_scale"}},
    {"torchao", "_qdata", CKPT_DTYPE_NONE, 5, {"scale|scale_and_zero|group_scale"}},
    {"fp8", "", CKPT_F8_E4M3, 0, {"_scale_inv|_scale"}},
};

enum { HFQ_NAME = 512, HFQ_LONGEST = 64 /* bytes of the longest part, or more */ };

static bool hfq_ends(const char *name, const char *end)
{
    size_t n = strlen(name), m = strlen(end);

    return n >= m && strcmp(name + n - m, end) == 0;
}

/* True if the weight has a part, under one of its names; `first` becomes the first of them. */
static bool hfq_has_part(const ckpt_map *map, const ckpt_tensor *t, size_t cut, const char *part,
                         char first[HFQ_NAME])
{
    bool found = false;

    for (const char *s = part; s && !found; s = strchr(s, '|')) {
        char name[HFQ_NAME];
        s += *s == '|';
        (void)snprintf(name, sizeof name, "%.*s%.*s", (int)(strlen(t->name) - cut), t->name,
                       (int)strcspn(s, "|"), s);
        if (s == part)
            memcpy(first, name, sizeof name);
        found = ckpt_map_index(map, name, strlen(name)) != SIZE_MAX;
    }
    return found;
}

/* The kind of a tensor, or NULL. */
static const hfq_kind *hfq_kind_of(const ckpt_tensor *t, const char *method)
{
    for (size_t i = 0; i < sizeof hfq_kinds / sizeof *hfq_kinds; i++) {
        const hfq_kind *k = &hfq_kinds[i];
        if ((!k->method || strcmp(k->method, method) == 0) && hfq_ends(t->name, k->end) &&
            (k->dtype == CKPT_DTYPE_NONE || k->dtype == t->dtype))
            return k;
    }
    return NULL;
}

bool ckpt_hf_quant_is_mlx(const ckpt_value *q)
{
    return q && q->kind == CKPT_V_DICT && !ckpt_value_get(q, "quant_method") &&
           ckpt_value_get(q, "group_size") && ckpt_value_get(q, "bits");
}

const ckpt_value *ckpt_hf_quantization(const ckpt_value *config)
{
    const ckpt_value *text = ckpt_value_get(config, "text_config");
    const ckpt_value *q[] = {ckpt_value_get(config, "quantization_config"),
                             ckpt_value_get(config, "compression_config"),
                             ckpt_value_get(text, "quantization_config")};

    for (size_t i = 0; i < sizeof q / sizeof *q; i++) {
        if (q[i] && q[i]->kind == CKPT_V_DICT)
            return q[i];
    }
    // older folders of MLX have this member only
    return ckpt_hf_quant_is_mlx(ckpt_value_get(config, "quantization"))
               ? ckpt_value_get(config, "quantization")
               : NULL;
}

/* True if a mode of MLX's configuration, or of one of its modules, is not the usual one. */
static bool hfq_has_modes(const ckpt_value *q)
{
    const ckpt_dict all = ckpt_value_map(q);
    bool found = false;

    for (uint64_t i = 0; i < all.n; i++) {
        const ckpt_value *mode = ckpt_value_get(all.at[i].value, "mode");

        found = found || (mode && !ckpt_value_is(mode, "affine"));
    }
    return found ||
           (ckpt_value_get(q, "mode") && !ckpt_value_is(ckpt_value_get(q, "mode"), "affine"));
}

/* The quantization method of config.json, or "". */
static const char *hfq_method(const ckpt_value *config)
{
    const ckpt_value *of = ckpt_hf_quantization(config), *q = ckpt_value_get(of, "quant_method");

    if (ckpt_hf_quant_is_mlx(of))
        return hfq_has_modes(of) ? "mlx" : "mlx affine";
    return q && q->kind == CKPT_V_STR ? q->as.text.at : "";
}

/* The numbers of a method's weights: the end of their names, or their dtypes. */
typedef struct hfq_sign {
    const char *method, *end;
    ckpt_dtype dtype[2];
} hfq_sign;

static const hfq_sign hfq_signs[] = {
    {"gptq", ".qweight", {CKPT_DTYPE_NONE}},     {"awq", ".qweight", {CKPT_DTYPE_NONE}},
    {"mxfp4", "_blocks", {CKPT_DTYPE_NONE}},     {"bitsandbytes", NULL, {CKPT_U8, CKPT_I8}},
    {"mlx", NULL, {CKPT_U32, CKPT_U32}},         {"mlx affine", NULL, {CKPT_U32, CKPT_U32}},
    {"fp8", NULL, {CKPT_F8_E4M3, CKPT_F8_E5M2}}, {"fbgemm_fp8", NULL, {CKPT_F8_E4M3, CKPT_F8_E5M2}},
};

/* The sign of a method, or NULL. */
static const hfq_sign *hfq_sign_of(const char *method)
{
    for (size_t i = 0; i < sizeof hfq_signs / sizeof *hfq_signs; i++) {
        if (strcmp(hfq_signs[i].method, method) == 0)
            return &hfq_signs[i];
    }
    return NULL;
}

/*
 * True for a tensor of quantized numbers, or their scales.  Masks and positions, which models of
 * floats have too, are of 64 bits, bool, or named "bias".
 */
static bool hfq_is_number(const ckpt_tensor *t)
{
    const ckpt_dtype_info *d = ckpt_dtype_get(t->dtype);

    if (hfq_ends(t->name, "bias") || hfq_ends(t->name, "position_ids"))
        return false;
    if (d->kind == CKPT_IS_FLOAT ? d->bits < 16 : d->bits != 64 && d->kind != CKPT_IS_BOOL)
        return true;
    return strstr(t->name, "_scale") || hfq_ends(t->name, ".scales") || hfq_ends(t->name, ".SCB");
}

/* True if a file that was read can have torch's own class of tensors, unlike safetensors. */
static bool hfq_has_classes(const ckpt_map *map)
{
    for (size_t i = 0; !map->into && i < map->files.n; i++) {
        const ckpt_format *format = map->files.at[i].format;
        if (!format || strcmp(format->is.name, "safetensors") != 0)
            return true;
    }
    return !map->into && map->files.n == 0;
}

/* True if a quantization of config.json keeps floats, or quantizes them while a program loads
 * them. */
static bool hfq_takes_floats(const ckpt_map *map, const ckpt_value *q, const char *method)
{
    const ckpt_value *groups = ckpt_value_get(q, "config_groups");
    const ckpt_value *format = ckpt_value_get(q, "format");

    if (strcmp(method, "bitnet") == 0)
        return ckpt_value_is(ckpt_value_get(q, "quantization_mode"), "online") ||
               ckpt_value_is(ckpt_value_get(q, "linear_class"), "autobitlinear");
    if (strcmp(method, "torchao") == 0 || strcmp(method, "quanto") == 0)
        return hfq_has_classes(map);
    return strcmp(method, "compressed-tensors") == 0 &&
           (ckpt_value_is(format, "dense") || !groups || groups->kind != CKPT_V_DICT ||
            groups->as.map.n == 0);
}

bool ckpt_hf_quant_floats(const ckpt_map *map, const ckpt_value *config)
{
    const ckpt_value *q = ckpt_hf_quantization(config);

    assert(map);
    if (!q || map->tensors.n == 0 || hfq_takes_floats(map, q, hfq_method(config)))
        return false;
    for (size_t i = 0; i < map->tensors.n; i++) {
        if (hfq_is_number(map->tensors.at[i]))
            return false;
    }
    return true;
}

/* Warn if config.json and the tensors disagree about the quantization. */
static int hfq_agree(ckpt_map *map, const ckpt_value *config, const char *name, ckpt_err *err)
{
    const char *method = hfq_method(config);
    const hfq_sign *sign = hfq_sign_of(method);
    bool found = !sign;

    if (ckpt_hf_quant_floats(map, config))
        return ckpt_map_note(
            map, CKPT_WARNING, err,
            "%s: config.json says that the weights are quantized "
            "(quantization_config%s%.100s), but all weights are floats: "
            "programs expect quantized weights; remove quantization_config, or copy "
            "the quantized weights",
            name, *method ? ": " : "", method);
    for (size_t i = 0; !found && i < map->tensors.n; i++) {
        const ckpt_tensor *t = map->tensors.at[i];
        found = sign->end ? hfq_ends(t->name, sign->end)
                          : t->dtype == sign->dtype[0] || t->dtype == sign->dtype[1];
    }
    return found ? CKPT_OK
                 : ckpt_map_note(map, CKPT_WARNING, err,
                                 "%s: config.json says that the weights are quantized by %.100s, "
                                 "but no tensor has its form: config.json may be from another "
                                 "model",
                                 name, method);
}

/*
 * The kind of a tensor of a map, or NULL. Codes of 4 bits may be stored as any dtype
 * (bnb_4bit_quant_storage): one of their parts shows them.
 */
static const hfq_kind *hfq_kind_in(const ckpt_map *map, const ckpt_tensor *t, const char *method)
{
    static const char *const parts[] = {
        ".absmax", ".quant_map", ".quant_state.bitsandbytes__nf4|.quant_state.bitsandbytes__fp4"};
    char first[HFQ_NAME];
    ckpt_tensor bytes = *t;

    if (t->ndim == 0)
        return NULL;
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        if (strcmp(method, "bitsandbytes") == 0 && hfq_ends(t->name, ".weight") &&
            strlen(t->name) + HFQ_LONGEST <= sizeof first &&
            hfq_has_part(map, t, 0, parts[i], first))
            bytes.dtype = CKPT_U8;
    }
    return hfq_kind_of(&bytes, method);
}

/* Warn of integers among the weights of a model that is not quantized by its config.json. */
static int hfq_codes(ckpt_map *map, const ckpt_value *config, const char *name, ckpt_err *err)
{
    const ckpt_tensor *t = ckpt_hf_quantization(config) ? NULL : ckpt_quantized_code(map);

    return t ? ckpt_map_note(map, CKPT_WARNING, err,
                             "%s: %.200s has integers (%s), but neither scales nor config.json "
                             "show what they mean: a part of a quantized model may be missing",
                             name, t->name, ckpt_dtype_name(t->dtype))
             : CKPT_OK;
}

int ckpt_hf_quant_parts(ckpt_map *map, const ckpt_value *config, const char *name, ckpt_err *err)
{
    const char *method = hfq_method(config);
    int rc = hfq_agree(map, config, name, err);

    assert(map && name);
    if (rc == CKPT_OK)
        rc = hfq_codes(map, config, name, err);
    for (size_t i = 0; rc == CKPT_OK && i < map->tensors.n; i++) {
        const ckpt_tensor *t = map->tensors.at[i];
        const hfq_kind *kind = hfq_kind_in(map, t, method);
        char missing[HFQ_NAME];

        if (!kind || strlen(t->name) + HFQ_LONGEST > sizeof missing ||
            (hfq_ends(t->name, ".weight_packed") &&
             hfq_has_part(map, t, sizeof "weight_packed" - 1, "scale_packed", missing)))
            continue; // Marlin's 2:4 layout has other parts
        for (size_t k = 0; rc == CKPT_OK && k < 3 && kind->parts[k]; k++) {
            if (!hfq_has_part(map, t, kind->cut, kind->parts[k], missing))
                rc = ckpt_map_problem(map, CKPT_EMISSING, err,
                                      "%s: %.400s is missing, which the quantized weight %.400s "
                                      "needs: copy the whole model (%s)",
                                      name, missing, t->name, ckpt_hf_as_is(map));
        }
    }
    return rc;
}
