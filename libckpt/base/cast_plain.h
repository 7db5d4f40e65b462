/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cast_plain.h: what cast.c offers to those that casts of blocks are made of.  Private to base/:
 * others ask for ckpt_cast_find (cast.h).
 */
#ifndef CKPT_BASE_CAST_PLAIN_H
#define CKPT_BASE_CAST_PLAIN_H

#include "libckpt/base/cast.h"

/* ckpt_cast_find among dtypes whose elements do not lie in blocks. */
ckpt_cast_fn ckpt_cast_plain(ckpt_dtype to, ckpt_dtype from);

#endif
