/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cast_int.c: converts integers and bools to F32, rounded to nearest even.
 *
 * It has one use: DeepSpeed's scripts up to 0.19.7 write integer buffers as float32, and ckpt does
 * the same for their checkpoints.
 */
#include <string.h>

#include "libckpt/base/cast.h"
#include "libckpt/base/cast_int.h"

#define CAST_INT(name, type)                                                                       \
    static void cast_int_##name(void *restrict dst, const void *restrict src, size_t n)            \
    {                                                                                              \
        const char *from = src;                                                                    \
        char *to = dst;                                                                            \
                                                                                                   \
        for (size_t i = 0; i < n; i++) {                                                           \
            type v;                                                                                \
            memcpy(&v, from + i * sizeof v, sizeof v);                                             \
            const float f = (float)v;                                                              \
            memcpy(to + i * sizeof f, &f, sizeof f);                                               \
        }                                                                                          \
    }

CAST_INT(i64, int64_t)
CAST_INT(i32, int32_t)
CAST_INT(i16, int16_t)
CAST_INT(i8, int8_t)
CAST_INT(u64, uint64_t)
CAST_INT(u32, uint32_t)
CAST_INT(u16, uint16_t)
CAST_INT(u8, uint8_t)

ckpt_cast_fn ckpt_cast_find_int(ckpt_dtype to, ckpt_dtype from)
{
    static const struct {
        ckpt_dtype from;
        ckpt_cast_fn fn;
    } table[] = {{CKPT_I64, cast_int_i64}, {CKPT_I32, cast_int_i32}, {CKPT_I16, cast_int_i16},
                 {CKPT_I8, cast_int_i8},   {CKPT_U64, cast_int_u64}, {CKPT_U32, cast_int_u32},
                 {CKPT_U16, cast_int_u16}, {CKPT_U8, cast_int_u8},   {CKPT_BOOL, cast_int_u8}};

    for (size_t i = 0; to == CKPT_F32 && i < sizeof table / sizeof *table; i++) {
        if (table[i].from == from)
            return table[i].fn;
    }
    return NULL;
}
