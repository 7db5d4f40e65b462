/* SPDX-License-Identifier: Apache-2.0 */
/*
 * copies.h: finds copies of a model's weights that a program saved under a key of their own beside
 * the weights, without a dict that separates the two: {"w": ..., "ema.w": ...}.
 */
#ifndef CKPT_MAP_COPIES_H
#define CKPT_MAP_COPIES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "libckpt/base/err.h"

/* A tensor of a model, or of a copy of it. */
typedef struct ckpt_copies_name {
    const char *name;
    const uint64_t *shape;
    uint32_t ndim;
    bool weight;  /* it has axes and floats; counters and scalars are not compared */
    bool trained; /* an optimizer has it, so it belongs to the model */
    bool copy;    /* out: it belongs to a copy */
} ckpt_copies_name;

/*
 * Set `copy` for the tensors of each copy. All names below one of the usual keys of averaged
 * weights ("ema.", "ema_model.", "shadow." and others) are a copy if no optimizer trains them, and
 * if most of the weights among them have the name (apart from wrappers such as "module.") and the
 * shape of a tensor outside. A module of the model that has such a name therefore stays.
 *
 * Errors   CKPT_ELIMIT
 */
int ckpt_copies_mark(ckpt_copies_name *at, size_t n, ckpt_err *err);

/* A name inside a copy without the keys that programs add in front of it ("module."). */
const char *ckpt_copies_bare(const char *name);

/*
 * True if a path of keys has a word for averaged weights ("ema", "shadow", ...); for the float32
 * masters of 16-bit weights ("master", "fp32_params", ...), not averaged ones; or for float32
 * alone, which moments and other values have, too. Digits after a word do not count ("ema2").
 */
bool ckpt_copies_is_average(const char *path);
bool ckpt_copies_is_master(const char *path);
bool ckpt_copies_is_float32(const char *path);

#endif
