/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cast.h: converts between floating dtypes, and counts values that are not finite.
 *
 * Round to nearest, ties to even, exactly once (also F64 to F8; torch goes through F32 and rounds
 * twice). NaN stays NaN, keeps its sign and the upper bits of its payload, and becomes quiet (only
 * BF16 to F32 is a plain shift). Overflow gives infinity. E4M3 has no infinity and gives its
 * largest number, 448 with the sign, also for infinities (as torch 2.15; earlier releases gave
 * NaN). ckpt_count_lost counts values that did not fit. Equal dtypes are copied bit for bit. The
 * portable bodies are integer code; AVX2/F16C bodies are chosen at run time and give the same bits
 * (tests/unit/base/test_cast.c compares them on every 16-bit pattern).
 */
#ifndef CKPT_BASE_CAST_H
#define CKPT_BASE_CAST_H

#include "libckpt/base/dtype.h"

typedef void (*ckpt_cast_fn)(void *restrict dst, const void *restrict src, size_t n_elems);

/*
 * The function for a pair among F64 F32 F16 BF16 F8_E4M3 F8_E5M2 (equal pairs: memcpy), for an
 * integer or bool to F32, or for one of these floats and a block type, by ggml's reference
 * quantizers and back (n_elems is then a multiple of the block); else NULL.
 */
ckpt_cast_fn ckpt_cast_find(ckpt_dtype to, ckpt_dtype from);

/* The portable reference for the same pair, for tests; it has no block types. */
ckpt_cast_fn ckpt_cast_find_portable(ckpt_dtype to, ckpt_dtype from);

/*
 * Count NaN and infinite elements among n of dtype d (0 for dtypes that are not floating or
 * complex); *n_nan and *n_inf are added to.  All elements of one of ggml's blocks count if its
 * scale is not finite.
 */
void ckpt_count_nonfinite(ckpt_dtype d, const void *p, size_t n_elems, uint64_t *n_nan,
                          uint64_t *n_inf);

/* The losses of a conversion. Each member counts, mostly elements, and is added to. */
typedef struct ckpt_lost {
    /* beyond the range: became infinite, or the largest number of a format without infinity */
    uint64_t n_over;
    uint64_t n_zero; /* not zero before, but zero after */
    /* of blocks that became zero with numbers that are not small, because of their importance */
    uint64_t n_void;
    /* calls with an element that is not zero, before and after: if none is after, all were lost */
    uint64_t n_live_before, n_live;
} ckpt_lost;

/*
 * Compare n elements before and after ckpt_cast_find(to, from). Pairs without losses, such as
 * integers, count nothing; of block types, single elements that became zero are not counted.
 */
void ckpt_count_lost(ckpt_lost *sum, ckpt_dtype to, ckpt_dtype from, const void *dst,
                     const void *src, size_t n_elems);

/* Reverse each unit-byte group in place (big-endian files); unit is 1, 2, 4 or 8. */
void ckpt_swap_bytes(void *p, size_t n_bytes, unsigned unit);

/*
 * Resolve torch's lazy bits in place: flip the sign of every element, or of imaginary parts only.
 */
void ckpt_negate(ckpt_dtype d, void *p, size_t n_elems);
void ckpt_conjugate(ckpt_dtype d, void *p, size_t n_elems);

/* True if ckpt can convert elements of dtype `from` to dtype `to`. Public (ckpt.h). */
CKPT_API bool ckpt_dtype_converts(ckpt_dtype to, ckpt_dtype from);

#endif
