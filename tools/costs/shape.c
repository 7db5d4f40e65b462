/* SPDX-License-Identifier: Apache-2.0 */
/* shape.c: finds the sizes of a model's layers in a checkpoint. */
#include "tools/costs/shape.h"
#include "libckpt/base/number.h"

#include <string.h>

/* A fact that is a number; 0: there is none. */
static uint64_t ml_fact(const ckpt_map *map, const char *want)
{
    const char *key, *text;
    uint64_t n = 0;
    bool number;

    for (size_t i = 0; ckpt_map_fact_at(map, i, &key, &text, &number); i++) {
        if (number && strcmp(key, want) == 0)
            return ckpt_parse_u64(text, &n) ? n : 0;
    }
    return 0;
}

/* The first numeric part of a name, plus one; 0: there is none. */
static uint64_t ml_number(const char *name)
{
    for (const char *at = name; at; at = strchr(at, '.')) {
        at += *at == '.';
        uint64_t n = 0;
        const char *end = ckpt_scan_u64(at, &n);
        if (end && end - at < 6 && *end == '.')
            return n + 1;
    }
    return 0;
}

enum { ML_SIZES = 64 }; /* maximum number of distinguished sizes */

void shape_of(model_shape *out, const ckpt_map *map)
{
    uint64_t size[ML_SIZES], count[ML_SIZES] = {0}, layers = 0;
    size_t n_sizes = 0, most = 0;

    for (size_t i = 0; i < ckpt_map_tensor_count(map); i++) {
        const ckpt_tensor *t = ckpt_map_tensor_at(map, i);
        size_t k = 0;

        if (t->owner || t->role == CKPT_ROLE_STATE || t->role == CKPT_ROLE_BUFFER ||
            t->role == CKPT_ROLE_OTHER)
            continue;
        layers = ml_number(t->name) > layers ? ml_number(t->name) : layers;
        if (t->ndim != 1)
            continue;
        while (k < n_sizes && size[k] != t->shape[0])
            k++;
        if (k == ML_SIZES)
            continue;
        size[k] = t->shape[0];
        n_sizes += k == n_sizes;
        count[k]++;
        most = count[k] > count[most] ? k : most;
    }
    *out = (model_shape){.layers = ml_fact(map, "hidden layers"),
                         .hidden = ml_fact(map, "hidden size"),
                         .heads = ml_fact(map, "attention heads")};
    out->layers = out->layers ? out->layers : layers;
    out->hidden = out->hidden ? out->hidden : n_sizes ? size[most] : 0;
}
