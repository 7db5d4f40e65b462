/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cast_int.h: converts integers and bools to F32; private to base, found through ckpt_cast_find.
 */
#ifndef CKPT_BASE_CAST_INT_H
#define CKPT_BASE_CAST_INT_H

#include "libckpt/base/cast.h"

/* The function for I8..I64, U8..U64 or BOOL to F32, or NULL. */
ckpt_cast_fn ckpt_cast_find_int(ckpt_dtype to, ckpt_dtype from);

#endif
