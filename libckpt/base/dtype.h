/* SPDX-License-Identifier: Apache-2.0 */
/*
 * dtype.h: describes the element types: names in each format, widths, kinds.
 */
#ifndef CKPT_BASE_DTYPE_H
#define CKPT_BASE_DTYPE_H

#include "libckpt/base/err.h"

typedef enum ckpt_kind_of {
    CKPT_IS_FLOAT,
    CKPT_IS_INT,
    CKPT_IS_UINT,
    CKPT_IS_BOOL,
    CKPT_IS_COMPLEX,
    CKPT_IS_BITS
} ckpt_kind_of;

typedef struct ckpt_dtype_info {
    /*
     * our name, which is safetensors' too: "F32"; for types that safetensors lacks: "C128", "BITS8"
     */
    const char *name;
    /* attribute of the module torch: "float32"; NULL if torch has none */
    const char *torch;
    /* typed storage class: "FloatStorage"; NULL if torch writes it untyped */
    const char *torch_storage;
    bool safetensors; /* the safetensors format has it */
    uint8_t bits;     /* per element; 0: elements only exist in blocks */
    /*
     * elements of a block, and its bytes: 1 and bits / 8, except for packed elements (F4: 2 and 1)
     */
    uint16_t per, bytes;
    /* bytes to reverse together in a big-endian file (C64: 4); 1 = none */
    uint8_t swap;
    uint8_t st_order; /* rank in safetensors' own order of dtypes, for its writer */
    ckpt_kind_of kind;
} ckpt_dtype_info;

/* Borrowed, static; never NULL (CKPT_DTYPE_NONE has blocks of 0 bytes). */
const ckpt_dtype_info *ckpt_dtype_get(ckpt_dtype d);

/*
 * True if elements share bytes or blocks (info->per > 1): then only whole blocks can be read and
 * written.
 */
bool ckpt_dtype_packed(ckpt_dtype d);

/* Look-ups by exact name; CKPT_DTYPE_NONE when unknown. */
ckpt_dtype ckpt_dtype_from_safetensors(const char *name, size_t n);
/* "bfloat16"; aliases "half", "float" ... */
ckpt_dtype ckpt_dtype_from_torch(const char *name, size_t n);
ckpt_dtype ckpt_dtype_from_torch_storage(const char *name, size_t n); /* "BFloat16Storage" */

/*
 * The names that users type: bf16, bfloat16, fp16, float16, half, fp32, float32, fp64, fp8_e4m3 ...
 * ; any case.
 */
CKPT_API ckpt_dtype ckpt_dtype_parse(const char *text);
CKPT_API const char *ckpt_dtype_name(ckpt_dtype d); /* "F32" */

/* Bytes of n elements; false on overflow, or if packed elements do not fill whole blocks. */
bool ckpt_dtype_bytes(ckpt_dtype d, uint64_t n_elems, uint64_t *out);

#endif
