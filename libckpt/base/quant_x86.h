/* SPDX-License-Identifier: Apache-2.0 */
/*
 * quant_x86.h: declares the function of quant_x86.c for cast_x86.c. Private to base/.
 */
#ifndef CKPT_BASE_QUANT_X86_H
#define CKPT_BASE_QUANT_X86_H

#include "libckpt/base/cast.h"

/*
 * The AVX2 body from F32 to a block type, or NULL; the caller must check that this processor can
 * run it.
 */
ckpt_cast_fn ckpt_quant_find_x86(ckpt_dtype to);

#endif
