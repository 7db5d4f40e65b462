/* SPDX-License-Identifier: Apache-2.0 */
/*
 * moments8.h: turns 8-bit moments of bitsandbytes into F32: a byte for each element is an index in
 * a table of 256 values, and each block of 256 elements of one rank's flat tensor has a scale
 * (absmax).
 *
 * Source: bitsandbytes 0.50.2, optim/optimizer.py (init_state) and functional.py
 * (dequantize_blockwise): value = qmap[byte] * absmax[block], in F32.
 */
#ifndef CKPT_MAP_MOMENTS8_H
#define CKPT_MAP_MOMENTS8_H

#include "libckpt/map/map.h"

#define CKPT_M8_BLOCK 256u /* elements with one scale */
#define CKPT_M8_CODES 256u /* entries of the table */

/* The tensors from which moments are computed: all flat, and of one rank. */
typedef struct ckpt_moments8 {
    ckpt_make make;           /* first: makes F32 */
    const ckpt_tensor *codes; /* U8, n elements */
    const ckpt_tensor *scale; /* F32, one for each block, the last of which may be cut */
    const ckpt_tensor *table; /* F32, CKPT_M8_CODES */
    /* U8, one element: the code of 0, for elements that are padding; ckpt_m8_add makes it */
    const ckpt_tensor *zero;
} ckpt_moments8;

/* Number of scales for n elements. */
static inline uint64_t ckpt_m8_blocks(uint64_t n)
{
    return n / CKPT_M8_BLOCK + (n % CKPT_M8_BLOCK != 0);
}

/*
 * Add a source that computes the F32 moments from codes, scale and table. These are hidden tensors
 * of this map, and the caller has checked their sizes. name must live as long as the map; of->zero
 * is ignored.
 */
int ckpt_m8_add(ckpt_map *map, const char *name, const ckpt_moments8 *of, uint32_t *source,
                ckpt_err *err);

/* The moments of a source; NULL: it is a source of another kind. */
const ckpt_moments8 *ckpt_m8_of(const ckpt_source *s);

#endif
