/* SPDX-License-Identifier: Apache-2.0 */
/*
 * dtype.c: has the table of element types and the look-ups by name.
 *
 * Sources: safetensors' list of dtypes and its order (used to sort tensors, the larger first); the
 * storage classes of torch, and the dtypes that torch writes with an untyped storage.
 */
#include <assert.h>

#include "libckpt/base/dtype.h"

#include <ctype.h>
#include <string.h>

/* Rank of types that the safetensors format does not have. */
#define NO_ORDER 255

/* X(dtype, name, torch, storage class, in safetensors, bits, swap, safetensors' rank, kind) */
#define DTYPES(X)                                                                                  \
    X(NONE_, "NONE", NULL, NULL, false, 0, 1, NO_ORDER, BITS)                                      \
    X(F64, "F64", "float64", "DoubleStorage", true, 64, 8, 19, FLOAT)                              \
    X(F32, "F32", "float32", "FloatStorage", true, 32, 4, 17, FLOAT)                               \
    X(F16, "F16", "float16", "HalfStorage", true, 16, 2, 13, FLOAT)                                \
    X(BF16, "BF16", "bfloat16", "BFloat16Storage", true, 16, 2, 14, FLOAT)                         \
    X(F8_E4M3, "F8_E4M3", "float8_e4m3fn", NULL, true, 8, 1, 7, FLOAT)                             \
    X(F8_E5M2, "F8_E5M2", "float8_e5m2", NULL, true, 8, 1, 6, FLOAT)                               \
    X(F8_E4M3FNUZ, "F8_E4M3FNUZ", "float8_e4m3fnuz", NULL, true, 8, 1, 9, FLOAT)                   \
    X(F8_E5M2FNUZ, "F8_E5M2FNUZ", "float8_e5m2fnuz", NULL, true, 8, 1, 10, FLOAT)                  \
    X(F8_E8M0, "F8_E8M0", "float8_e8m0fnu", NULL, true, 8, 1, 8, FLOAT)                            \
    X(F6_E2M3, "F6_E2M3", NULL, NULL, true, 6, 1, 2, FLOAT)                                        \
    X(F6_E3M2, "F6_E3M2", NULL, NULL, true, 6, 1, 3, FLOAT)                                        \
    X(F4, "F4", "float4_e2m1fn_x2", NULL, true, 4, 1, 1, FLOAT)                                    \
    X(I64, "I64", "int64", "LongStorage", true, 64, 8, 20, INT)                                    \
    X(I32, "I32", "int32", "IntStorage", true, 32, 4, 15, INT)                                     \
    X(I16, "I16", "int16", "ShortStorage", true, 16, 2, 11, INT)                                   \
    X(I8, "I8", "int8", "CharStorage", true, 8, 1, 5, INT)                                         \
    X(U64, "U64", "uint64", NULL, true, 64, 8, 21, UINT)                                           \
    X(U32, "U32", "uint32", NULL, true, 32, 4, 16, UINT)                                           \
    X(U16, "U16", "uint16", NULL, true, 16, 2, 12, UINT)                                           \
    X(U8, "U8", "uint8", "ByteStorage", true, 8, 1, 4, UINT)                                       \
    X(BOOL, "BOOL", "bool", "BoolStorage", true, 8, 1, 0, BOOL)                                    \
    X(C128, "C128", "complex128", "ComplexDoubleStorage", false, 128, 8, NO_ORDER, COMPLEX)        \
    X(C64, "C64", "complex64", "ComplexFloatStorage", true, 64, 4, 18, COMPLEX)                    \
    X(C32, "C32", "complex32", NULL, false, 32, 2, NO_ORDER, COMPLEX)                              \
    X(BITS8, "BITS8", "bits8", NULL, false, 8, 1, NO_ORDER, BITS)                                  \
    X(BITS16, "BITS16", "bits16", NULL, false, 16, 2, NO_ORDER, BITS)

/* ggml's types, Y(dtype, elements of a block, bytes of a block): ggml-common.h's structs. */
#define DTYPE_BLOCKS(Y)                                                                            \
    Y(Q4_0, 32, 18)                                                                                \
    Y(Q4_1, 32, 20)                                                                                \
    Y(Q5_0, 32, 22)                                                                                \
    Y(Q5_1, 32, 24)                                                                                \
    Y(Q8_0, 32, 34)                                                                                \
    Y(Q2_K, 256, 84)                                                                               \
    Y(Q3_K, 256, 110)                                                                              \
    Y(Q4_K, 256, 144)                                                                              \
    Y(Q5_K, 256, 176)                                                                              \
    Y(Q6_K, 256, 210)                                                                              \
    Y(Q8_K, 256, 292)                                                                              \
    Y(IQ2_XXS, 256, 66)                                                                            \
    Y(IQ2_XS, 256, 74)                                                                             \
    Y(IQ3_XXS, 256, 98)                                                                            \
    Y(IQ1_S, 256, 50)                                                                              \
    Y(IQ4_NL, 32, 18)                                                                              \
    Y(IQ3_S, 256, 110)                                                                             \
    Y(IQ2_S, 256, 82)                                                                              \
    Y(IQ4_XS, 256, 136)                                                                            \
    Y(IQ1_M, 256, 56)                                                                              \
    Y(TQ1_0, 256, 54)                                                                              \
    Y(TQ2_0, 256, 66)                                                                              \
    Y(MXFP4, 32, 17)                                                                               \
    Y(NVFP4, 64, 36)                                                                               \
    Y(Q1_0, 128, 18)

#define CKPT_NONE_ CKPT_DTYPE_NONE /* the enum has another name for this one */
#define DTYPE_ROW(id, our, tor, cls, in_st, width, unit, rank, what)                               \
    [CKPT_##id] = {.name = our,                                                                    \
                   .torch = tor,                                                                   \
                   .torch_storage = cls,                                                           \
                   .safetensors = in_st,                                                           \
                   .bits = width,                                                                  \
                   .per = (width) == 4   ? 2                                                       \
                          : (width) == 6 ? 4                                                       \
                                         : 1,                                                      \
                   .bytes = (width) == 4   ? 1                                                     \
                            : (width) == 6 ? 3                                                     \
                                           : (width) / 8,                                          \
                   .swap = unit,                                                                   \
                   .st_order = rank,                                                               \
                   .kind = CKPT_IS_##what},

#define DTYPE_BLOCK_ROW(id, elements, size)                                                        \
    [CKPT_##id] = {.name = #id,                                                                    \
                   .per = elements,                                                                \
                   .bytes = size,                                                                  \
                   .swap = 1,                                                                      \
                   .st_order = NO_ORDER,                                                           \
                   .kind = CKPT_IS_FLOAT},

static const ckpt_dtype_info dtype_table[CKPT_N_DTYPES] = {DTYPES(DTYPE_ROW)
                                                               DTYPE_BLOCKS(DTYPE_BLOCK_ROW)};

typedef struct dtype_alias {
    const char *name;
    ckpt_dtype dtype;
} dtype_alias;

/* torch's aliases of its dtypes; the packed bit types differ only in the way torch prints them. */
static const dtype_alias dtype_torch_alias[] = {
    {"double", CKPT_F64}, {"float", CKPT_F32},     {"half", CKPT_F16},      {"long", CKPT_I64},
    {"int", CKPT_I32},    {"short", CKPT_I16},     {"cdouble", CKPT_C128},  {"cfloat", CKPT_C64},
    {"chalf", CKPT_C32},  {"bits1x8", CKPT_BITS8}, {"bits2x4", CKPT_BITS8}, {"bits4x2", CKPT_BITS8},
};

/* Names that users type besides those of the table. */
static const dtype_alias dtype_user_alias[] = {
    {"fp64", CKPT_F64},
    {"fp32", CKPT_F32},
    {"fp16", CKPT_F16},
    {"bfp16", CKPT_BF16},
    {"e4m3", CKPT_F8_E4M3},
    {"e4m3fn", CKPT_F8_E4M3},
    {"fp8_e4m3", CKPT_F8_E4M3},
    {"e5m2", CKPT_F8_E5M2},
    {"fp8_e5m2", CKPT_F8_E5M2},
    {"fp8e4m3", CKPT_F8_E4M3},
    {"float8_e4m3", CKPT_F8_E4M3},
    {"fp8e5m2", CKPT_F8_E5M2},
    {"f8_e4m3fn", CKPT_F8_E4M3},
    {"fp8_e4m3fn", CKPT_F8_E4M3},
};

const ckpt_dtype_info *ckpt_dtype_get(ckpt_dtype d)
{
    return &dtype_table[(unsigned)d < CKPT_N_DTYPES ? (unsigned)d : CKPT_DTYPE_NONE];
}

/* True if the n bytes at s are the terminated text name, which may be NULL. */
static bool dtype_same(const char *name, const char *s, size_t n)
{
    return name && strlen(name) == n && memcmp(name, s, n) == 0;
}

ckpt_dtype ckpt_dtype_from_safetensors(const char *name, size_t n)
{
    assert(name || n == 0);
    for (unsigned d = 0; d < CKPT_N_DTYPES; d++) {
        if (dtype_table[d].safetensors && dtype_same(dtype_table[d].name, name, n))
            return (ckpt_dtype)d;
    }
    return CKPT_DTYPE_NONE;
}

ckpt_dtype ckpt_dtype_from_torch(const char *name, size_t n)
{
    assert(name || n == 0);
    for (unsigned d = 0; d < CKPT_N_DTYPES; d++) {
        if (dtype_same(dtype_table[d].torch, name, n))
            return (ckpt_dtype)d;
    }
    for (size_t i = 0; i < sizeof dtype_torch_alias / sizeof *dtype_torch_alias; i++) {
        if (dtype_same(dtype_torch_alias[i].name, name, n))
            return dtype_torch_alias[i].dtype;
    }
    return CKPT_DTYPE_NONE;
}

ckpt_dtype ckpt_dtype_from_torch_storage(const char *name, size_t n)
{
    assert(name || n == 0);
    for (unsigned d = 0; d < CKPT_N_DTYPES; d++) {
        if (dtype_same(dtype_table[d].torch_storage, name, n))
            return (ckpt_dtype)d;
    }
    return CKPT_DTYPE_NONE;
}

ckpt_dtype ckpt_dtype_parse(const char *text)
{
    char low[32]; // longer than every name
    size_t n = 0;

    if (!text)
        return CKPT_DTYPE_NONE;
    if (strncmp(text, "torch.", 6) == 0)
        text += 6;
    for (; text[n] != '\0'; n++) {
        if (n == sizeof low)
            return CKPT_DTYPE_NONE;
        low[n] = (char)tolower((unsigned char)text[n]);
    }
    // only our own names have capitals
    for (unsigned d = CKPT_DTYPE_NONE + 1; d < CKPT_N_DTYPES; d++) {
        const char *name = dtype_table[d].name;
        size_t i = 0;

        while (i < n && tolower((unsigned char)name[i]) == low[i])
            i++;
        if (i == n && name[n] == '\0')
            return (ckpt_dtype)d;
    }
    for (size_t i = 0; i < sizeof dtype_user_alias / sizeof *dtype_user_alias; i++) {
        if (dtype_same(dtype_user_alias[i].name, low, n))
            return dtype_user_alias[i].dtype;
    }
    return ckpt_dtype_from_torch(low, n);
}

const char *ckpt_dtype_name(ckpt_dtype d)
{
    return ckpt_dtype_get(d)->name;
}

bool ckpt_dtype_packed(ckpt_dtype d)
{
    return ckpt_dtype_get(d)->per > 1;
}

bool ckpt_dtype_bytes(ckpt_dtype d, uint64_t n_elems, uint64_t *out)
{
    assert(out);
    const ckpt_dtype_info *info = ckpt_dtype_get(d);

    return info->bytes > 0 && n_elems % info->per == 0 &&
           ckpt_mul(n_elems / info->per, info->bytes, out);
}
