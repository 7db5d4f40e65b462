/* SPDX-License-Identifier: Apache-2.0 */
/*
 * moments8.h: 8-bit moments of bitsandbytes: a byte for each element, which a table of 256 values
 * gives its meaning, and a scale (absmax) for each block of 256 elements of one rank's flat tensor.
 *
 * Source: bitsandbytes 0.50.2, optim/optimizer.py (init_state) and functional.py
 * (dequantize_blockwise): value = qmap[byte] * absmax[block], in F32.
 */
#ifndef CKPT_MAP_MOMENTS8_H
#define CKPT_MAP_MOMENTS8_H

#include "libckpt/map/map.h"

#define CKPT_M8_BLOCK 256u /* elements that one scale is for */
#define CKPT_M8_CODES 256u /* entries of the table */

/* The tensors that moments are made of: all flat, and of one rank. */
typedef struct ckpt_moments8 {
    ckpt_make make;           /* first: makes F32 */
    const ckpt_tensor *codes; /* U8, n elements */
    const ckpt_tensor *scale; /* F32, one for each block, the last of which may be cut */
    const ckpt_tensor *table; /* F32, CKPT_M8_CODES */
    /* U8, one element: the code of 0, for elements that are padding; made here */
    const ckpt_tensor *zero;
} ckpt_moments8;

/* Scales of n elements. */
static inline uint64_t ckpt_m8_blocks(uint64_t n)
{
    return n / CKPT_M8_BLOCK + (n % CKPT_M8_BLOCK != 0);
}

/*
 * Add a source of the F32 moments that codes, scale and table mean: hidden tensors of this map,
 * whose sizes the caller has checked.  name is kept, of->zero is not looked at.
 */
int ckpt_m8_add(ckpt_map *map, const char *name, const ckpt_moments8 *of, uint32_t *source,
                ckpt_err *err);

/* The moments that a source holds; NULL: it is another source. */
const ckpt_moments8 *ckpt_m8_of(const ckpt_source *s);

#endif
