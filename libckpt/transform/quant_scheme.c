/* SPDX-License-Identifier: Apache-2.0 */
/*
 * quant_scheme.c: parses quantization_config, and has the list of supported quantizations.
 *
 * The keys are those of transformers 5.23 (utils/quantization_config.py) and compressed-tensors
 * 0.20 (quantization/quant_config.py, quant_args.py).
 */
#include "libckpt/transform/quant_scheme.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "ckpt_shape.h"

/* A method, in one of its formats, with the suffix of its scales' names. */
typedef struct qsc_way {
    ckpt_quantization kind;
    const char *scale;
    ckpt_quant_ways way;
    bool integers; /* or: zero points are stored less one (GPTQ) */
} qsc_way;

#define QSC_FLOATS  "E4M3 with a scale for a tensor, a row or a block"
#define QSC_INT8    "int8 with a scale for a tensor, a row or a group, also with zero points"
#define QSC_NVFP4   "E2M1 with a scale in E4M3 for 16 columns"
#define QSC_MXFP4   "E2M1 with an exponent for 32 columns"
#define QSC_GPTQ    "2, 3, 4 or 8 bits in groups"
#define QSC_AWQ     "4 bits in groups, packed in AWQ's order"
#define QSC_COMPACT "compressed-tensors"

static const qsc_way ways[] = {
    {{"fp8", "", QSC_FLOATS}, "_scale_inv", CKPT_QUANT_SCALED, false},
    {{"fbgemm_fp8", "", "E4M3 with a scale for each row"}, "_scale", CKPT_QUANT_SCALED, false},
    {{"mxfp4", "", QSC_MXFP4 "; gguf keeps the blocks"}, "_scales", CKPT_QUANT_SCALED, false},
    {{QSC_COMPACT, "float-quantized", QSC_FLOATS}, "_scale", CKPT_QUANT_SCALED, false},
    {{QSC_COMPACT, "naive-quantized", "E4M3 or int8 with such scales"},
     "_scale",
     CKPT_QUANT_SCALED,
     true},
    {{QSC_COMPACT, "int-quantized", QSC_INT8}, "_scale", CKPT_QUANT_SCALED, true},
    {{QSC_COMPACT, "mxfp8-quantized", "E4M3 with an exponent for 32 columns"},
     "_scale",
     CKPT_QUANT_SCALED,
     false},
    {{QSC_COMPACT, "pack-quantized", "1 to 8 bits in groups or rows"},
     "_scale",
     CKPT_QUANT_PACKED,
     false},
    {{QSC_COMPACT, "nvfp4-pack-quantized", QSC_NVFP4}, "_scale", CKPT_QUANT_FP4, false},
    {{QSC_COMPACT, "mxfp4-pack-quantized", QSC_MXFP4}, "_scale", CKPT_QUANT_FP4, false},
    {{"modelopt", "fp8", "E4M3 with a scale for a tensor or a row"},
     ".weight_scale",
     CKPT_QUANT_MODELOPT,
     false},
    {{"modelopt", "nvfp4", QSC_NVFP4}, ".weight_scale", CKPT_QUANT_MODELOPT, false},
    {{"gptq", "gptq", QSC_GPTQ}, ".scales", CKPT_QUANT_GPTQ, true},
    {{"gptq", "gptq_v2", QSC_GPTQ}, ".scales", CKPT_QUANT_GPTQ, false},
    {{"auto-round", "auto_round:gptq", QSC_GPTQ}, ".scales", CKPT_QUANT_GPTQ, true},
    {{"auto-round", "auto_round:auto_gptq", QSC_GPTQ}, ".scales", CKPT_QUANT_GPTQ, true},
    {{"auto-round", "auto_round:awq", QSC_AWQ}, ".scales", CKPT_QUANT_AWQ, false},
    {{"auto-round", "auto_round:auto_awq", QSC_AWQ}, ".scales", CKPT_QUANT_AWQ, false},
    {{"awq", "gemm", QSC_AWQ}, ".scales", CKPT_QUANT_AWQ, false},
    {{"awq", "gemv", "4 bits in groups, rows packed in order"}, ".scales", CKPT_QUANT_GEMV, false},
    {{"bitsandbytes", "load_in_4bit", "NF4 and FP4, also with double quantization"},
     ".absmax",
     CKPT_QUANT_BNB4,
     false},
    {{"bitsandbytes", "load_in_8bit", "int8 with a factor for each row"},
     ".SCB",
     CKPT_QUANT_BNB8,
     true},
    {{"torchao", "",
      "Int8Tensor, IntxUnpackedToInt8Tensor, Float8Tensor, Int4Tensor, NVFP4Tensor, MXTensor"},
     "_scale",
     CKPT_QUANT_TORCHAO,
     false},
    {{"mlx", "", "2 to 6 and 8 bits in groups, mxfp4, nvfp4, mxfp8 (folders without quant_method)"},
     ".scales",
     CKPT_QUANT_MLX,
     false},
};

const ckpt_quantization *ckpt_quantization_at(size_t i)
{
    return i < sizeof ways / sizeof *ways ? &ways[i].kind : NULL;
}

/* State of the parser. */
typedef struct qsc_reader {
    const char *path;
    ckpt_quant_scheme *way;
    ckpt_quant_ways now; /* chosen last */
    ckpt_err *err;
} qsc_reader;

/* A string of an object, or NULL. */
static const char *qsc_text(const ckpt_value *v, const char *key)
{
    v = ckpt_value_get(v, key);
    return v && v->kind == CKPT_V_STR ? v->as.text.at : NULL;
}

/* True if an object has this key with the value true. */
static bool qsc_is_true(const ckpt_value *v, const char *key)
{
    v = ckpt_value_get(v, key);
    return v && v->kind == CKPT_V_BOOL && v->as.i;
}

static int qsc_unknown(const qsc_reader *r, const char *what, const char *name)
{
    return ckpt_fail(r->err, CKPT_EUNSUPPORTED,
                     "%s: quantization_config: ckpt cannot dequantize %s '%.100s' (ckpt formats "
                     "lists the kinds that it can); a conversion that needs no floats (--to hf "
                     "without --dtype) copies the weights as they are",
                     r->path, what, name);
}

/* Refuse a number of bits. */
static int qsc_bits(const qsc_reader *r, const char *key, int64_t bits)
{
    char text[24];

    (void)snprintf(text, sizeof text, "%" PRId64, bits);
    return qsc_unknown(r, key, text);
}

/*
 * Choose a method and its format; a configuration must not mix formats that are read differently.
 */
static int qsc_choose(qsc_reader *r, const char *method, const char *format)
{
    const qsc_way *found = NULL;

    for (size_t i = 0; !found && i < sizeof ways / sizeof *ways; i++) {
        const qsc_way *s = &ways[i];
        if (strcmp(s->kind.method, method) == 0 &&
            (!*s->kind.format || (format && strcmp(s->kind.format, format) == 0)))
            found = s;
    }
    if (!found)
        return format ? qsc_unknown(r, "format", format) : qsc_unknown(r, "quant_method", method);
    r->way->scale = found->scale;
    r->way->ways |= found->way;
    r->now = found->way;
    r->way->exponents = r->way->exponents || strcmp(found->kind.format, "mxfp8-quantized") == 0;
    if (found->way == CKPT_QUANT_GPTQ)
        r->way->less_one = found->integers;
    else
        r->way->integers = r->way->integers || found->integers;
    return CKPT_OK;
}

static int qsc_block(qsc_reader *r, uint64_t rows, uint64_t cols)
{
    ckpt_quant_scheme *w = r->way;

    for (uint32_t i = 0; i < w->n_blocks; i++) {
        if (w->block[i][0] == rows && w->block[i][1] == cols)
            return CKPT_OK;
    }
    if (w->n_blocks == CKPT_QUANT_BLOCKS)
        return ckpt_fail(r->err, CKPT_ELIMIT,
                         "%s: quantization_config: blocks of more than %u sizes", r->path,
                         CKPT_QUANT_BLOCKS);
    w->block[w->n_blocks][0] = rows;
    w->block[w->n_blocks++][1] = cols;
    return CKPT_OK;
}

/* Read a pair of sizes: [128, 128]. */
static int qsc_pair(qsc_reader *r, const ckpt_value *list, const char *key)
{
    ckpt_seq s = list && list->kind == CKPT_V_LIST ? list->as.seq : (ckpt_seq){0};
    int64_t rows = 0, cols = 0;

    if (s.n != 2 || !ckpt_value_as_int(s.at[0], &rows) || !ckpt_value_as_int(s.at[1], &cols) ||
        rows < 1 || cols < 1)
        return ckpt_fail(r->err, CKPT_EFORMAT, "%s: quantization_config: %s is not a pair of sizes",
                         r->path, key);
    return qsc_block(r, (uint64_t)rows, (uint64_t)cols);
}

/* Parse weights of E2M1: blocks of a row. */
static int qsc_fp4(qsc_reader *r, const ckpt_value *weights)
{
    const ckpt_value *even = ckpt_value_get(weights, "symmetric");
    int64_t size = 0, bits = 0;

    if (!ckpt_value_as_int(ckpt_value_get(weights, "num_bits"), &bits) || bits != 4)
        return qsc_bits(r, "num_bits", bits);
    if (!ckpt_value_is(ckpt_value_get(weights, "type"), "float"))
        return qsc_unknown(r, "weights of type", "not float");
    if (even && even->kind == CKPT_V_BOOL && even->as.i == 0)
        return qsc_unknown(r, "weights", "symmetric: false");
    if (!ckpt_value_as_int(ckpt_value_get(weights, "group_size"), &size) || size < 1)
        return ckpt_fail(r->err, CKPT_EFORMAT, "%s: quantization_config: group_size is not a size",
                         r->path);
    return qsc_block(r, 1, (uint64_t)size);
}

/* compressed-tensors: parse the scales of one group of modules. */
static int qsc_strategy(qsc_reader *r, const ckpt_value *weights)
{
    const char *strategy = qsc_text(weights, "strategy"), *type = qsc_text(weights, "type");
    const ckpt_value *even = ckpt_value_get(weights, "symmetric");
    int64_t size = 0, bits = 0;

    bool uneven = even && even->kind == CKPT_V_BOOL && even->as.i == 0,
         packed = r->now == CKPT_QUANT_PACKED;

    if (r->now == CKPT_QUANT_FP4)
        return qsc_fp4(r, weights);
    if (!type || (strcmp(type, "int") != 0 && (packed || strcmp(type, "float") != 0)))
        return qsc_unknown(r, "weights of type", type ? type : "(none)");
    if (!ckpt_value_as_int(ckpt_value_get(weights, "num_bits"), &bits) || bits < 1 || bits > 8 ||
        (bits != 8 && strcmp(type, "int") != 0))
        return qsc_bits(r, "num_bits", bits);
    if (uneven && strcmp(type, "int") != 0)
        return qsc_unknown(r, "weights", "symmetric: false");
    r->way->bits |= packed ? 1u << bits : 0;
    *(packed ? &r->way->even : &r->way->even8) |= !uneven;
    *(packed ? &r->way->uneven : &r->way->uneven8) |= uneven;
    if (!strategy || strcmp(strategy, "tensor") == 0 || strcmp(strategy, "channel") == 0) {
        r->way->plain = true;
        return CKPT_OK;
    }
    if (strcmp(strategy, "block") == 0)
        return qsc_pair(r, ckpt_value_get(weights, "block_structure"), "block_structure");
    if (strcmp(strategy, "group") != 0)
        return qsc_unknown(r, "strategy", strategy);
    if (!ckpt_value_as_int(ckpt_value_get(weights, "group_size"), &size) || size < 1)
        return ckpt_fail(r->err, CKPT_EFORMAT, "%s: quantization_config: group_size is not a size",
                         r->path);
    return qsc_block(r, 1, (uint64_t)size);
}

/* Refuse settings that change the values besides the scales; an empty object counts as none. */
static int qsc_others(const qsc_reader *r, const ckpt_value *q)
{
    static const char *const keys[] = {"transform_config", "sparsity_config"};

    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        const ckpt_value *v = ckpt_value_get(q, keys[i]);
        const char *format = qsc_text(v, "format");
        if (v && v->kind == CKPT_V_DICT && v->as.map.n > 0 &&
            !(format && strcmp(format, "dense") == 0))
            return qsc_unknown(r, keys[i], format ? format : "config_groups");
    }
    return CKPT_OK;
}

/* compressed-tensors: parse the groups of modules, each with a format and a strategy. */
static int qsc_groups(qsc_reader *r, const ckpt_value *q)
{
    const ckpt_dict groups = ckpt_value_map(ckpt_value_get(q, "config_groups"));
    const char *format = qsc_text(q, "format");
    bool any = false;
    int rc = qsc_others(r, q);

    // without groups the configuration gives only the format, and no block sizes
    r->way->plain = groups.n == 0;
    if (rc == CKPT_OK && groups.n == 0)
        return qsc_choose(r, "compressed-tensors", format ? format : "(none)");

    for (uint64_t i = 0; rc == CKPT_OK && i < groups.n; i++) {
        const ckpt_value *group = groups.at[i].value, *weights = ckpt_value_get(group, "weights");
        const char *own = qsc_text(group, "format");

        // only activations are quantized: weights have no scales
        if (!weights || weights->kind != CKPT_V_DICT)
            continue;
        any = true;
        rc = qsc_choose(r, "compressed-tensors", own ? own : format ? format : "(none)");
        if (rc == CKPT_OK)
            rc = qsc_strategy(r, weights);
    }
    // both have weights of the same names
    if (rc == CKPT_OK && (r->way->ways & CKPT_QUANT_PACKED) && (r->way->ways & CKPT_QUANT_FP4))
        return qsc_unknown(r, "config_groups", "words and NVFP4 or MXFP4");
    if (rc == CKPT_OK && !any)
        rc = ckpt_fail(r->err, CKPT_EUNSUPPORTED,
                       "%s: quantization_config: no group of config_groups says how weights are "
                       "quantized",
                       r->path);
    return rc;
}

/* ---- GPTQ, AWQ and AutoRound ---- */

/* Settings of a module that change nothing that its tensors do not show. */
static bool qsc_is_shown(const char *key)
{
    static const char *const keys[] = {"act_group_aware",
                                       "bits",
                                       "damp_auto_increment",
                                       "damp_percent",
                                       "desc_act",
                                       "group_size",
                                       "mse",
                                       "static_groups",
                                       "sym",
                                       "true_sequential",
                                       "act_bits",
                                       "act_data_type",
                                       "act_dynamic",
                                       "act_group_size",
                                       "act_sym",
                                       "scale_dtype"};

    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        if (strcmp(keys[i], key) == 0)
            return true;
    }
    return false;
}

/* True for integers: "int", "int_sym". */
static bool qsc_is_integer(const ckpt_value *type)
{
    return type && type->kind == CKPT_V_STR && strncmp(type->as.text.at, "int", 3) == 0;
}

/* Check the settings of single modules: GPTQModel's "dynamic", AutoRound's "extra_config". */
static int qsc_modules(const qsc_reader *r, const ckpt_value *q, const char *name)
{
    const ckpt_dict all = ckpt_value_map(ckpt_value_get(q, name));

    for (uint64_t i = 0; i < all.n; i++) {
        const ckpt_dict one = ckpt_value_map(all.at[i].value);

        r->way->varies = true;
        r->way->reorders = r->way->reorders || qsc_is_true(all.at[i].value, "desc_act");
        for (uint64_t k = 0; k < one.n; k++) {
            const ckpt_value *key = one.at[k].key;
            const char *text = key->kind == CKPT_V_STR ? key->as.text.at : "(a key)";

            if (strcmp(text, "data_type") == 0 ? !qsc_is_integer(one.at[k].value)
                                               : !qsc_is_shown(text))
                return qsc_unknown(r, name, text);
        }
    }
    return CKPT_OK;
}

/* Refuse settings of other layouts, and of adapters and rotations that the weights need. */
static int qsc_words_others(const qsc_reader *r, const ckpt_value *q)
{
    static const char *const none[] = {"adapter", "is_marlin_format", "rotation"};
    const ckpt_value *type = ckpt_value_get(q, "data_type");
    const char *pack = qsc_text(q, "pack_dtype"), *backend = qsc_text(q, "backend");

    for (size_t i = 0; i < sizeof none / sizeof *none; i++) {
        const ckpt_value *v = ckpt_value_get(q, none[i]);

        if (v && v->kind != CKPT_V_NONE && !(v->kind == CKPT_V_BOOL && v->as.i == 0))
            return qsc_unknown(r, none[i], v->kind == CKPT_V_STR ? v->as.text.at : "(set)");
    }
    if (pack && strcmp(pack, "int32") != 0)
        return qsc_unknown(r, "pack_dtype", pack);
    if (type && !qsc_is_integer(type))
        return qsc_unknown(r, "data_type", type->kind == CKPT_V_STR ? type->as.text.at : "(none)");
    if (backend && strcmp(backend, "llm-awq") == 0)
        return qsc_unknown(r, "backend", backend);
    return CKPT_OK;
}

/* A method with weights of words, the keys of its layout's name, and the usual layout. */
typedef struct qsc_method {
    const char *name, *key[3], *usual;
} qsc_method;

static const qsc_method qsc_methods[] = {
    {"gptq", {"checkpoint_format", "format"}, "gptq"},
    {"awq", {"version", "format", "checkpoint_format"}, "gemm"},
    {"auto-round", {"packing_format"}, "(none)"},
};

/* The layout's name in lower case; two keys must not differ. */
static int qsc_layout(const qsc_reader *r, const ckpt_value *q, const qsc_method *m, char name[32])
{
    bool found = false;

    (void)snprintf(name, 32, "%s", m->usual);
    for (size_t i = 0; i < 3 && m->key[i]; i++) {
        const char *text = qsc_text(q, m->key[i]);
        char lower[32] = "";

        for (size_t k = 0; text && text[k] && k + 1 < sizeof lower; k++)
            lower[k] = text[k] >= 'A' && text[k] <= 'Z' ? (char)(text[k] - 'A' + 'a') : text[k];
        if (text && found && strcmp(lower, name) != 0)
            return qsc_unknown(r, m->key[i], text);
        if (text)
            memcpy(name, lower, sizeof lower);
        found = found || text;
    }
    return CKPT_OK;
}

/* Parse a method with weights of words in .qweight. */
static int qsc_words(qsc_reader *r, const ckpt_value *q, const qsc_method *m)
{
    int64_t bits = 0, size = 0;
    char layout[32];
    int rc = qsc_layout(r, q, m, layout);

    if (rc == CKPT_OK)
        rc = qsc_choose(r, m->name, layout);
    if (rc == CKPT_OK)
        rc = qsc_words_others(r, q);
    if (rc == CKPT_OK)
        rc = qsc_modules(r, q, "dynamic");
    if (rc == CKPT_OK)
        rc = qsc_modules(r, q, "extra_config");
    if (rc != CKPT_OK)
        return rc;
    if (!ckpt_value_as_int(ckpt_value_get(q, "bits"), &bits) ||
        (bits != 4 && (r->now != CKPT_QUANT_GPTQ || (bits != 2 && bits != 3 && bits != 8))))
        return qsc_bits(r, "bits", bits);
    if (!ckpt_value_as_int(ckpt_value_get(q, "group_size"), &size) || size < -1 || size == 0)
        return ckpt_fail(r->err, CKPT_EFORMAT, "%s: quantization_config: group_size is not a size",
                         r->path);
    r->way->bits = r->way->varies ? 1u << 2 | 1u << 3 | 1u << 4 | 1u << 8 : 1u << bits;
    r->way->group = size < 0 ? 0 : (uint64_t)size;
    r->way->reorders = r->way->reorders || qsc_is_true(q, "desc_act");
    return CKPT_OK;
}

/* ---- bitsandbytes ---- */

static int qsc_bitsandbytes(qsc_reader *r, const ckpt_value *q)
{
    bool is_four = qsc_is_true(q, "load_in_4bit"), is_eight = qsc_is_true(q, "load_in_8bit");

    if (is_four == is_eight)
        return qsc_unknown(r, "bitsandbytes",
                           is_four ? "load_in_4bit and load_in_8bit" : "neither 4 nor 8 bits");
    return qsc_choose(r, "bitsandbytes", is_four ? "load_in_4bit" : "load_in_8bit");
}

/* ---- ModelOpt ---- */

/* Names of ModelOpt (0.47, export/quant_utils.py), and the formats of their weights. */
static const struct {
    const char *algo, *format;
} qsc_algos[] = {{"FP8", "fp8"},
                 {"FP8_PER_CHANNEL_PER_TOKEN", "fp8"},
                 {"NVFP4", "nvfp4"},
                 {"W4A16_NVFP4", "nvfp4"}};

/* Choose the format of an object with quant_algo; *fp4: its weights are E2M1. */
static int qsc_algo(qsc_reader *r, const ckpt_value *q, bool *fp4)
{
    const char *algo = qsc_text(q, "quant_algo"), *format = NULL;

    for (size_t i = 0; algo && i < sizeof qsc_algos / sizeof *qsc_algos; i++) {
        if (strcmp(qsc_algos[i].algo, algo) == 0)
            format = qsc_algos[i].format;
    }
    if (!format)
        return qsc_unknown(r, "quant_algo", algo ? algo : "(none)");
    *fp4 = strcmp(format, "nvfp4") == 0;
    r->way->plain = r->way->plain || !*fp4;
    return qsc_choose(r, "modelopt", format);
}

/* Read the size of the blocks of E2M1. */
static int qsc_fp4_size(qsc_reader *r, const ckpt_value *q)
{
    int64_t size = 0;

    if (!ckpt_value_as_int(ckpt_value_get(q, "group_size"), &size) || size < 1)
        return ckpt_fail(r->err, CKPT_EFORMAT, "%s: quantization_config: group_size is not a size",
                         r->path);
    return qsc_block(r, 1, (uint64_t)size);
}

/* Parse the layers of a model in which they differ. */
static int qsc_mixed(qsc_reader *r, const ckpt_value *q)
{
    const ckpt_dict layers = ckpt_value_map(ckpt_value_get(q, "quantized_layers"));
    bool fp4 = false;
    int rc = layers.n > 0 ? CKPT_OK : qsc_unknown(r, "quant_algo", "MIXED_PRECISION");

    for (uint64_t i = 0; rc == CKPT_OK && i < layers.n; i++) {
        rc = qsc_algo(r, layers.at[i].value, &fp4);
        if (rc == CKPT_OK && fp4)
            rc = qsc_fp4_size(r, layers.at[i].value);
    }
    return rc;
}

/* Check a group of modules with weights of eight bits. */
static int qsc_fp8(const qsc_reader *r, const ckpt_value *weights)
{
    int64_t bits = 0;

    if (!ckpt_value_as_int(ckpt_value_get(weights, "num_bits"), &bits) || bits != 8)
        return qsc_bits(r, "num_bits", bits);
    if (!ckpt_value_is(ckpt_value_get(weights, "type"), "float"))
        return qsc_unknown(r, "weights of type", "not float");
    return CKPT_OK;
}

static int qsc_modelopt(qsc_reader *r, const ckpt_value *q)
{
    const ckpt_dict groups = ckpt_value_map(ckpt_value_get(q, "config_groups"));
    bool fp4 = false;
    int rc;

    if (ckpt_value_is(ckpt_value_get(q, "quant_algo"), "MIXED_PRECISION"))
        return qsc_mixed(r, q);
    rc = qsc_algo(r, q, &fp4);
    for (uint64_t i = 0; rc == CKPT_OK && i < groups.n; i++) {
        const ckpt_value *weights = ckpt_value_get(groups.at[i].value, "weights");

        rc = fp4 ? qsc_fp4(r, weights) : qsc_fp8(r, weights);
    }
    return rc == CKPT_OK && fp4 && groups.n == 0 ? qsc_fp4_size(r, q) : rc;
}

/* ---- MLX ---- */

/* Settings of MLX (mlx 0.32, python/mlx/nn/layers/quantized.py, _defaults_for_mode). */
static const ckpt_quant_mlx qsc_modes[] = {
    {"affine", 64, 4}, {"mxfp4", 32, 4}, {"nvfp4", 16, 4}, {"mxfp8", 32, 8}};

/* Read the settings of one object; missing ones have the values of its mode. */
static int qsc_mlx_one(const qsc_reader *r, const ckpt_value *q, ckpt_quant_mlx *out)
{
    const char *mode = qsc_text(q, "mode");
    const ckpt_value *size = ckpt_value_get(q, "group_size"), *bits = ckpt_value_get(q, "bits");
    const ckpt_quant_mlx *usual = NULL;
    int64_t n = 0;

    for (size_t i = 0; i < sizeof qsc_modes / sizeof *qsc_modes; i++) {
        if (strcmp(qsc_modes[i].mode, mode ? mode : "affine") == 0)
            usual = &qsc_modes[i];
    }
    if (!usual)
        return qsc_unknown(r, "mode", mode);
    *out = *usual;
    if (size && size->kind != CKPT_V_NONE) {
        if (!ckpt_value_as_int(size, &n) || n < 1)
            return ckpt_fail(r->err, CKPT_EFORMAT,
                             "%s: quantization_config: group_size is not a size", r->path);
        out->group = (uint64_t)n;
    }
    if (!bits || bits->kind == CKPT_V_NONE)
        return CKPT_OK;
    if (!ckpt_value_as_int(bits, &n) || n < 2 || n > 8 || n == 7 ||
        (usual != qsc_modes && n != (int64_t)usual->bits))
        return qsc_bits(r, "bits", n);
    out->bits = (unsigned)n;
    return CKPT_OK;
}

int ckpt_quant_mlx_of(const ckpt_quant_scheme *scheme, const char *module, size_t n,
                      ckpt_quant_mlx *out, const char *path, ckpt_err *err)
{
    const ckpt_dict all = ckpt_value_map(scheme->modules);
    const qsc_reader r = {.path = path, .err = err};
    const ckpt_value *own = NULL;

    for (uint64_t i = 0; i < all.n; i++) {
        const ckpt_value *key = all.at[i].key;

        if (key->kind == CKPT_V_STR && key->as.text.n == n &&
            memcmp(key->as.text.at, module, n) == 0)
            own = all.at[i].value;
    }
    if (own && own->kind == CKPT_V_BOOL && own->as.i == 0)
        return ckpt_fail(err, CKPT_EMISMATCH,
                         "%s: %.*s has scales, but the quantization in config.json excludes it",
                         path, (int)(n < 200 ? n : 200), module);
    return qsc_mlx_one(&r, own && own->kind == CKPT_V_DICT ? own : scheme->modules, out);
}

/* MLX's configuration has no name of a method. */
static int qsc_mlx(qsc_reader *r, const ckpt_value *q)
{
    ckpt_quant_mlx usual;
    int rc = qsc_mlx_one(r, q, &usual);

    r->way->modules = q;
    return rc == CKPT_OK ? qsc_choose(r, "mlx", NULL) : rc;
}

int ckpt_quant_scheme_of(ckpt_quant_scheme *out, const ckpt_value *q, const char *path,
                         ckpt_err *err)
{
    const ckpt_value *block = ckpt_value_get(q, "weight_block_size");
    const char *method = qsc_text(q, "quant_method");
    qsc_reader r = {.path = path, .way = out, .err = err};
    int rc;

    *out = (ckpt_quant_scheme){
        .plain = !q, .integers = !q, .ways = q ? 0 : (unsigned)CKPT_QUANT_SCALED};
    if (!q)
        return CKPT_OK;
    if (!method && ckpt_value_get(q, "group_size") && ckpt_value_get(q, "bits"))
        return qsc_mlx(&r, q);
    // hf_quant_config.json of ModelOpt
    if (!method && ckpt_value_get(q, "quant_algo"))
        return qsc_modelopt(&r, q);
    if (!method)
        return qsc_unknown(&r, "quant_method", "(none)");
    if (strcmp(method, "compressed-tensors") == 0)
        return qsc_groups(&r, q);
    if (strcmp(method, "bitsandbytes") == 0)
        return qsc_bitsandbytes(&r, q);
    if (strcmp(method, "modelopt") == 0)
        return qsc_modelopt(&r, q);
    for (size_t i = 0; i < sizeof qsc_methods / sizeof *qsc_methods; i++) {
        const char *name = qsc_methods[i].name, *at = strstr(method, name);

        // "intel/auto-round", too
        if (at && strcmp(at, name) == 0 && (at == method || at[-1] == '/'))
            return qsc_words(&r, q, &qsc_methods[i]);
    }
    rc = qsc_choose(&r, method, NULL);
    if (rc == CKPT_OK && block && block->kind != CKPT_V_NONE)
        return qsc_pair(&r, block, "weight_block_size");
    out->plain = true;
    return rc;
}

/* n / by, rounded up. */
static uint64_t qsc_parts(uint64_t n, uint64_t by)
{
    return n / by + (n % by != 0);
}

int ckpt_quant_block_of(const ckpt_quant_scheme *scheme, const uint64_t size[2],
                        const uint64_t grid[2], uint64_t block[2])
{
    uint32_t found = 0;

    for (uint32_t i = 0; i < scheme->n_blocks; i++) {
        const uint64_t *b = scheme->block[i];

        if (qsc_parts(size[0], b[0]) != grid[0] || qsc_parts(size[1], b[1]) != grid[1])
            continue;
        found++;
        memcpy(block, b, 2 * sizeof *block);
    }
    if (found == 0 && scheme->plain && grid[1] == 1 && (grid[0] == 1 || grid[0] == size[0])) {
        block[0] = grid[0] == 1 ? size[0] : 1;
        block[1] = size[1];
        found = 1;
    }
    return found == 1 ? CKPT_OK : CKPT_EMISMATCH;
}
