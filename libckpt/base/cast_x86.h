/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cast_x86.h: declares the functions of cast_x86.c for cast.c. Private to base/.
 *
 * On other processors, and on x86 without AVX2 and F16C, these functions exist too but find
 * nothing.
 */
#ifndef CKPT_BASE_CAST_X86_H
#define CKPT_BASE_CAST_X86_H

#include "libckpt/base/cast.h"

/* True if this processor has AVX2 and F16C, and the system keeps their registers. */
bool ckpt_x86_usable(void);

/* The body for this processor, or NULL; its bits equal those of ckpt_cast_find_portable. */
ckpt_cast_fn ckpt_cast_find_x86(ckpt_dtype to, ckpt_dtype from);

/*
 * The number of elements at the start of p that are certainly finite: a multiple of 16, or 0. d is
 * F64, F32, F16, BF16, F8_E4M3 or F8_E5M2 (others give 0).
 */
size_t ckpt_finite_prefix_x86(ckpt_dtype d, const void *p, size_t n_elems);

/*
 * Add the +0 and -0 among the first elements of `bits` bits to *found.
 *
 * Returns  the number of these elements: a multiple of 8, or 0 (other widths than 16 and 32)
 */
size_t ckpt_zeros_x86(unsigned bits, const void *p, size_t n_elems, uint64_t *found);

#endif
