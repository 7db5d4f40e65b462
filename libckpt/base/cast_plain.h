/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cast_plain.h: declares functions of cast.c for the conversion of blocks. Private to base/: other
 * folders use ckpt_cast_find (cast.h).
 */
#ifndef CKPT_BASE_CAST_PLAIN_H
#define CKPT_BASE_CAST_PLAIN_H

#include "libckpt/base/cast.h"

/* ckpt_cast_find without block types. */
ckpt_cast_fn ckpt_cast_plain(ckpt_dtype to, ckpt_dtype from);

#endif
