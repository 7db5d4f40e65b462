/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gguf.c: the driver of GGUF, the files of llama.cpp and all that build on ggml; its types.
 */
#include "formats/gguf/model.h"

#include <string.h>

#include "libckpt/base/dtype.h"

/* By number, as ggml.h's enum ggml_type; holes are types that were removed. */
static const ckpt_dtype gg_types[] = {
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
    return type < sizeof gg_types / sizeof *gg_types ? gg_types[type] : CKPT_DTYPE_NONE;
}

int ckpt_gguf_type(ckpt_dtype d)
{
    for (size_t i = 0; d != CKPT_DTYPE_NONE && i < sizeof gg_types / sizeof *gg_types; i++) {
        if (gg_types[i] == d)
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
    const ckpt_key *k = ckpt_gguf_key(map, name);

    if (!k || k->list || k->value->kind != CKPT_V_INT || k->value->as.i < 0)
        return false;
    *out = (uint64_t)k->value->as.i;
    return true;
}

static int gg_probe(const uint8_t *head, size_t n, uint64_t size)
{
    (void)size;
    return n >= 4 && memcmp(head, "GGUF", 4) == 0 ? 100 : 0;
}

/* What floats can be written in. */
static const ckpt_dtype gg_dtypes[] = {
    CKPT_F32,  CKPT_F16,  CKPT_BF16, CKPT_F64,  CKPT_Q8_0, CKPT_Q4_0, CKPT_Q4_1,       CKPT_Q5_0,
    CKPT_Q5_1, CKPT_Q2_K, CKPT_Q3_K, CKPT_Q4_K, CKPT_Q5_K, CKPT_Q6_K, CKPT_DTYPE_NONE,
};

const ckpt_format ckpt_format_gguf = {
    .is =
        {
            .name = "gguf",
            .aliases = "llama.cpp ggml",
            .suffixes = ".gguf",
            .note = "llama.cpp's models, version 2 and 3, every type of ggml's",
            .caps = CKPT_CAN_READ | CKPT_CAN_WRITE | CKPT_TAKES_SIDE | CKPT_TAKES_LIMIT,
            .dtypes = gg_dtypes,
            .mixtures = "Q2_K_S Q3_K_S Q3_K_M Q3_K_L Q4_K_S Q4_K_M Q5_K_S Q5_K_M",
            .layout = "gguf",
        },
    .probe = gg_probe,
    .read = ckpt_gguf_read,
    .place = ckpt_gguf_place,
    .scatter = ckpt_gguf_scatter,
};
