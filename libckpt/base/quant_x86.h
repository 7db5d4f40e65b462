/* SPDX-License-Identifier: Apache-2.0 */
/*
 * quant_x86.h: what quant_x86.c offers to cast_x86.c.  Private to base/.
 */
#ifndef CKPT_BASE_QUANT_X86_H
#define CKPT_BASE_QUANT_X86_H

#include "libckpt/base/cast.h"

/* The AVX2 body from F32 to a type of blocks, or NULL; whether this processor runs it is for the
 * caller to know. */
ckpt_cast_fn ckpt_quant_find_x86(ckpt_dtype to);

#endif
