/* SPDX-License-Identifier: Apache-2.0 */
/*
 * quant_scheme.c: parses quantization_config, and has the list of supported quantizations.
 *
 * The keys are those of transformers 5.23 (utils/quantization_config.py) and compressed-tensors
 * 0.20 (quantization/quant_config.py, quant_args.py).
 */
#include "libckpt/transform/quant_scheme.h"

#include <inttypes.h>
#include <string.h>

/* A method, in one of its formats, with the suffix of its scales' names. */
typedef struct qsc_way {
    const char *method, *format, *scale;
    bool integers;
} qsc_way;

static const qsc_way ways[] = {
    {"fp8", NULL, "_scale_inv", false},
    {"fbgemm_fp8", NULL, "_scale", false},
    {"mxfp4", NULL, "_scales", false},
    {"compressed-tensors", "float-quantized", "_scale", false},
    {"compressed-tensors", "naive-quantized", "_scale", true},
    {"compressed-tensors", "int-quantized", "_scale", true},
};

/* State of the parser. */
typedef struct qsc_reader {
    const char *path;
    ckpt_quant_scheme *way;
    ckpt_err *err;
} qsc_reader;

/* A string of an object, or NULL. */
static const char *qsc_text(const ckpt_value *v, const char *key)
{
    v = ckpt_value_get(v, key);
    return v && v->kind == CKPT_V_STR ? v->as.text.at : NULL;
}

static int qsc_unknown(const qsc_reader *r, const char *what, const char *name)
{
    return ckpt_fail(r->err, CKPT_EUNSUPPORTED,
                     "%s: quantization_config: %s '%.100s' cannot be dequantized here (fp8, "
                     "fbgemm_fp8, mxfp4 and compressed-tensors' float-quantized, naive-quantized "
                     "and int-quantized can): convert without a change to pass the weights on as "
                     "they are",
                     r->path, what, name);
}

/*
 * Choose a method and its format; a configuration must not mix formats that are read differently.
 */
static int qsc_choose(qsc_reader *r, const char *method, const char *format)
{
    const qsc_way *found = NULL;

    for (size_t i = 0; !found && i < sizeof ways / sizeof *ways; i++) {
        const qsc_way *s = &ways[i];
        if (strcmp(s->method, method) == 0 &&
            (!s->format || (format && strcmp(s->format, format) == 0)))
            found = s;
    }
    if (!found)
        return format ? qsc_unknown(r, "format", format) : qsc_unknown(r, "quant_method", method);
    r->way->scale = found->scale;
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

/* compressed-tensors: parse the scales of one group of modules. */
static int qsc_strategy(qsc_reader *r, const ckpt_value *weights)
{
    const char *strategy = qsc_text(weights, "strategy"), *type = qsc_text(weights, "type");
    const ckpt_value *even = ckpt_value_get(weights, "symmetric");
    int64_t size = 0, bits = 0;

    if (!type || (strcmp(type, "float") != 0 && strcmp(type, "int") != 0))
        return qsc_unknown(r, "weights of type", type ? type : "(none)");
    if (!ckpt_value_as_int(ckpt_value_get(weights, "num_bits"), &bits) || bits != 8)
        return qsc_unknown(r, "num_bits", "not 8");
    if (even && even->kind == CKPT_V_BOOL && even->as.i == 0)
        return qsc_unknown(r, "weights", "symmetric: false");
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
    if (rc == CKPT_OK && !any)
        rc = ckpt_fail(r->err, CKPT_EUNSUPPORTED,
                       "%s: quantization_config: no group of config_groups says how weights are "
                       "quantized",
                       r->path);
    return rc;
}

int ckpt_quant_scheme_of(ckpt_quant_scheme *out, const ckpt_value *q, const char *path,
                         ckpt_err *err)
{
    const ckpt_value *block = ckpt_value_get(q, "weight_block_size");
    const char *method = qsc_text(q, "quant_method");
    qsc_reader r = {path, out, err};
    int rc;

    *out = (ckpt_quant_scheme){.plain = !q, .integers = !q};
    if (!q)
        return CKPT_OK;
    if (!method)
        return qsc_unknown(&r, "quant_method", "(none)");
    if (strcmp(method, "compressed-tensors") == 0)
        return qsc_groups(&r, q);
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
