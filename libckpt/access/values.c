/* SPDX-License-Identifier: Apache-2.0 */
/*
 * values.c: implements the public functions that read the tree of values; results are borrowed,
 * nothing is allocated.
 */
#include <string.h>

#include "ckpt_extra.h"
#include "libckpt/map/map.h"

const ckpt_value *ckpt_map_values(const ckpt_map *map)
{
    return map ? map->values : NULL;
}

ckpt_kind ckpt_value_type(const ckpt_value *v)
{
    static const ckpt_kind kinds[] = {
        [CKPT_V_NONE] = CKPT_KIND_NONE,      [CKPT_V_BOOL] = CKPT_KIND_BOOL,
        [CKPT_V_INT] = CKPT_KIND_INT,        [CKPT_V_LONG] = CKPT_KIND_OTHER,
        [CKPT_V_FLOAT] = CKPT_KIND_FLOAT,    [CKPT_V_STR] = CKPT_KIND_TEXT,
        [CKPT_V_BYTES] = CKPT_KIND_BYTES,    [CKPT_V_BYTEARRAY] = CKPT_KIND_BYTES,
        [CKPT_V_LIST] = CKPT_KIND_LIST,      [CKPT_V_TUPLE] = CKPT_KIND_LIST,
        [CKPT_V_SIZE] = CKPT_KIND_LIST,      [CKPT_V_SET] = CKPT_KIND_LIST,
        [CKPT_V_FROZENSET] = CKPT_KIND_LIST, [CKPT_V_DICT] = CKPT_KIND_DICT,
        [CKPT_V_ODICT] = CKPT_KIND_DICT,     [CKPT_V_GLOBAL] = CKPT_KIND_OTHER,
        [CKPT_V_DTYPE] = CKPT_KIND_OTHER,    [CKPT_V_STORAGE] = CKPT_KIND_OTHER,
        [CKPT_V_TENSOR] = CKPT_KIND_TENSOR,  [CKPT_V_OBJECT] = CKPT_KIND_OTHER,
    };

    return v ? kinds[v->kind] : CKPT_KIND_NONE;
}

bool ckpt_value_to_int(const ckpt_value *v, int64_t *out)
{
    int64_t i = 0;
    bool ok = v && ckpt_value_as_int(v, &i);

    if (out)
        *out = ok ? i : 0;
    return ok;
}

bool ckpt_value_to_float(const ckpt_value *v, double *out)
{
    int64_t i = 0;
    bool is_float = v && v->kind == CKPT_V_FLOAT, ok = is_float || ckpt_value_to_int(v, &i);

    if (out)
        *out = is_float ? v->as.f : (double)i;
    return ok;
}

bool ckpt_value_to_text(const ckpt_value *v, const char **text, size_t *n)
{
    ckpt_kind kind = ckpt_value_type(v);
    bool ok = kind == CKPT_KIND_TEXT || kind == CKPT_KIND_BYTES;

    if (text)
        *text = ok ? v->as.text.at : NULL;
    if (n)
        *n = ok ? (size_t)v->as.text.n : 0;
    return ok;
}

size_t ckpt_value_count(const ckpt_value *v)
{
    return v ? (size_t)(ckpt_value_seq(v).n + ckpt_value_map(v).n) : 0;
}

const ckpt_value *ckpt_value_at(const ckpt_value *v, size_t i)
{
    ckpt_seq seq = v ? ckpt_value_seq(v) : (ckpt_seq){0};
    ckpt_dict map = v ? ckpt_value_map(v) : (ckpt_dict){0};

    return i < seq.n ? seq.at[i] : i < map.n ? map.at[i].value : NULL;
}

const ckpt_value *ckpt_value_key_at(const ckpt_value *v, size_t i)
{
    ckpt_dict map = v ? ckpt_value_map(v) : (ckpt_dict){0};

    return i < map.n ? map.at[i].key : NULL;
}

const ckpt_value *ckpt_value_find(const ckpt_value *v, const char *key)
{
    return v && key ? ckpt_value_get(v, key) : NULL;
}
