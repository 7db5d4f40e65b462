/* SPDX-License-Identifier: Apache-2.0 */
/*
 * keys.c: converts ggml's type numbers, and finds and adds keys.
 */
#include "formats/gguf/model.h"

#include <assert.h>
#include <string.h>

#include "libckpt/base/dtype.h"

/* By number, as in ggml.h's enum ggml_type; gaps are removed types. */
static const ckpt_dtype gk_types[] = {
    [0] = CKPT_F32,     [1] = CKPT_F16,      [2] = CKPT_Q4_0,    [3] = CKPT_Q4_1,
    [6] = CKPT_Q5_0,    [7] = CKPT_Q5_1,     [8] = CKPT_Q8_0,    [10] = CKPT_Q2_K,
    [11] = CKPT_Q3_K,   [12] = CKPT_Q4_K,    [13] = CKPT_Q5_K,   [14] = CKPT_Q6_K,
    [15] = CKPT_Q8_K,   [16] = CKPT_IQ2_XXS, [17] = CKPT_IQ2_XS, [18] = CKPT_IQ3_XXS,
    [19] = CKPT_IQ1_S,  [20] = CKPT_IQ4_NL,  [21] = CKPT_IQ3_S,  [22] = CKPT_IQ2_S,
    [23] = CKPT_IQ4_XS, [24] = CKPT_I8,      [25] = CKPT_I16,    [26] = CKPT_I32,
    [27] = CKPT_I64,    [28] = CKPT_F64,     [29] = CKPT_IQ1_M,  [30] = CKPT_BF16,
    [34] = CKPT_TQ1_0,  [35] = CKPT_TQ2_0,   [39] = CKPT_MXFP4,  [40] = CKPT_NVFP4,
    [41] = CKPT_Q1_0,
};

ckpt_dtype ckpt_gguf_dtype(uint32_t type)
{
    return type < sizeof gk_types / sizeof *gk_types ? gk_types[type] : CKPT_DTYPE_NONE;
}

int ckpt_gguf_type(ckpt_dtype d)
{
    for (size_t i = 0; d != CKPT_DTYPE_NONE && i < sizeof gk_types / sizeof *gk_types; i++) {
        if (gk_types[i] == d)
            return (int)i;
    }
    return -1;
}

const ckpt_key *ckpt_gguf_key(const ckpt_map *map, const char *name)
{
    for (size_t i = 0; i < map->keys.n; i++) {
        if (strcmp(map->keys.at[i].name, name) == 0)
            return &map->keys.at[i];
    }
    return NULL;
}

bool ckpt_gguf_number(const ckpt_map *map, const char *name, uint64_t *out)
{
    assert(map && name && out);
    const ckpt_key *k = ckpt_gguf_key(map, name);

    if (!k || k->list || k->value->kind != CKPT_V_INT || k->value->as.i < 0)
        return false;
    *out = (uint64_t)k->value->as.i;
    return true;
}

bool ckpt_gguf_is_token(const ckpt_key *key)
{
    static const char start[] = "tokenizer.ggml.", end[] = "_token_id";
    assert(key);
    const size_t n = strlen(key->name);

    return n > sizeof start + sizeof end && strncmp(key->name, start, sizeof start - 1) == 0 &&
           strcmp(key->name + n - (sizeof end - 1), end) == 0 && key->type == CKPT_KEY_STRING &&
           !key->list && key->value->kind == CKPT_V_STR;
}

int ckpt_gguf_add(ckpt_map *to, const char *name, uint8_t type, bool list, const ckpt_value *value,
                  ckpt_err *err)
{
    assert(to && name);
    ckpt_key *key = value ? ckpt_vec_push(&to->keys) : NULL;

    if (!key)
        return ckpt_fail_memory(err);
    *key = (ckpt_key){.name = name, .type = type, .list = list, .value = value};
    return CKPT_OK;
}

int ckpt_gguf_put(ckpt_map *to, const ckpt_key *key, ckpt_err *err)
{
    assert(to && key);
    for (size_t i = 0; i < to->keys.n; i++) {
        if (strcmp(to->keys.at[i].name, key->name) != 0)
            continue;
        to->keys.at[i] = *key;
        return CKPT_OK;
    }
    return ckpt_gguf_add(to, key->name, key->type, key->list, key->value, err);
}

int ckpt_gguf_add_text(ckpt_map *to, const char *name, const char *text, ckpt_err *err)
{
    return ckpt_gguf_add(to, name, CKPT_KEY_STRING, false, ckpt_value_cstr(to->arena, text), err);
}

int ckpt_gguf_add_u32(ckpt_map *to, const char *name, uint64_t number, ckpt_err *err)
{
    return ckpt_gguf_add(to, name, CKPT_KEY_U32, false, ckpt_value_int(to->arena, (int64_t)number),
                         err);
}

int ckpt_gguf_add_bool(ckpt_map *to, const char *name, bool value, ckpt_err *err)
{
    return ckpt_gguf_add(to, name, CKPT_KEY_BOOL, false, ckpt_value_bool(to->arena, value), err);
}
