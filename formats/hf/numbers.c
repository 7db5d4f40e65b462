/* SPDX-License-Identifier: Apache-2.0 */
/*
 * numbers.c: checks sizes and types of layers that config.json states.
 *
 * A size of 0 is copied into each format without a complaint, and fails only when a program loads
 * the output.  Only the types of models in layer_names.c are checked, because none of them has such
 * a size in any configuration of transformers 5.23.
 */
#include "formats/hf/whole.h"

#include <assert.h>
#include <inttypes.h>

#include "formats/hf/layer_names.h"
#include "formats/hf/stacks.h"

/* Sizes that are above 0 in each model that has the key. */
static const char *const nmb_sizes[] = {"num_attention_heads",
                                        "num_key_value_heads",
                                        "hidden_size",
                                        "head_dim",
                                        "n_head",
                                        "n_embd",
                                        "linear_num_key_heads",
                                        "linear_num_value_heads",
                                        "linear_key_head_dim",
                                        "linear_value_head_dim",
                                        "linear_conv_kernel_dim",
                                        "full_attention_interval"};

static int nmb_size(ckpt_map *map, const ckpt_value *config, const char *key, const char *part,
                    ckpt_err *err)
{
    const ckpt_value *v = ckpt_value_get(config, key);
    int64_t n = 0;

    if (!v || v->kind != CKPT_V_INT || (ckpt_value_as_int(v, &n) && n > 0))
        return CKPT_OK;
    return ckpt_map_problem(map, CKPT_EFORMAT, err,
                            "config.json: %s%s is %" PRId64 ", expected 1 or more: correct it, or "
                            "copy the model's own config.json (%s)",
                            part, key, n, ckpt_hf_as_is(map));
}

/* Check that a model without layers has none: some tests of frameworks train embeddings alone. */
static int nmb_layers(ckpt_map *map, const ckpt_value *config, const char *key, const char *part,
                      ckpt_err *err)
{
    ckpt_hf_stacks all = {0};
    bool any = false;
    int64_t n = 1;
    int rc = CKPT_OK;

    if (!ckpt_value_as_int(ckpt_value_get(config, key), &n) || n > 0)
        return rc;
    rc = n == 0 ? ckpt_hf_stacks_find(&all, map, err) : CKPT_OK;
    for (size_t i = 0; i < all.stack.n; i++)
        any = any || ckpt_hf_stack_is_layers(&all.stack.at[i]);
    ckpt_hf_stacks_free(&all);
    return rc == CKPT_OK && (any || n < 0) ? nmb_size(map, config, key, part, err) : rc;
}

/* Check that each layer's type is one of the two of the model's type. */
static int nmb_types(ckpt_map *map, const ckpt_value *config, ckpt_err *err)
{
    const ckpt_value *list = ckpt_value_get(config, "layer_types");
    const ckpt_seq types = ckpt_value_seq(list);
    const char *other = ckpt_hf_kind_other(config);

    if (list && list->kind != CKPT_V_LIST && list->kind != CKPT_V_NONE)
        return ckpt_map_problem(map, CKPT_EFORMAT, err,
                                "config.json: layer_types is not a list: correct it, or copy the "
                                "model's own config.json (%s)",
                                ckpt_hf_as_is(map));
    for (uint64_t i = 0; other && i < types.n; i++) {
        const ckpt_value *v = types.at[i];
        if (ckpt_value_is(v, "full_attention") || ckpt_value_is(v, other))
            continue;
        return ckpt_map_problem(map, CKPT_EFORMAT, err,
                                "config.json: layer_types[%" PRIu64 "] is %s%.60s%s, expected "
                                "\"full_attention\" or \"%s\": correct it, or copy the model's own "
                                "config.json (%s)",
                                i, v->kind == CKPT_V_STR ? "\"" : "",
                                v->kind == CKPT_V_STR ? v->as.text.at : "not a text",
                                v->kind == CKPT_V_STR ? "\"" : "", other, ckpt_hf_as_is(map));
    }
    return CKPT_OK;
}

int ckpt_hf_numbers(ckpt_map *map, const ckpt_value *config, ckpt_err *err)
{
    assert(map);
    const char *type;
    bool part;
    const ckpt_value *text = ckpt_value_get(config, "text_config");
    int rc = CKPT_OK;

    if (!ckpt_hf_layer_row(config, &type, &part) || ckpt_value_get(config, "auto_map"))
        return CKPT_OK;
    const ckpt_value *own = part ? text : config;
    const char *name = part ? "text_config." : "";
    for (size_t i = 0; rc == CKPT_OK && i < sizeof nmb_sizes / sizeof *nmb_sizes; i++)
        rc = nmb_size(map, own, nmb_sizes[i], name, err);
    if (rc == CKPT_OK)
        rc = nmb_layers(map, own, "num_hidden_layers", name, err);
    if (rc == CKPT_OK)
        rc = nmb_layers(map, own, "n_layer", name, err);
    return rc == CKPT_OK && !part ? nmb_types(map, config, err) : rc;
}
