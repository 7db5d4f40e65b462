/* SPDX-License-Identifier: Apache-2.0 */
/*
 * dtypes.h: dtypes by pattern: ckpt_target.dtypes as a list of rules, "f32:*norm*,bf16:*".
 */
#ifndef CKPT_DTYPES_H
#define CKPT_DTYPES_H

#include "ckpt.h"
#include "libckpt/map/map.h"

typedef struct ckpt_dtype_rule {
    ckpt_dtype dtype;
    const char *glob;             /* of names; NUL-terminated, in the list's text */
    uint64_t n_met;               /* names it matches, whatever they are */
    uint64_t n_took;              /* floating tensors whose first match it is */
    const ckpt_tensor *met, *tie; /* a name it matches; one that is tied to another */
} ckpt_dtype_rule;

CKPT_VEC(ckpt_dtype_rules, ckpt_dtype_rule);

/*
 * Understand a text.  Items are divided by commas, each DTYPE:GLOB, or DTYPE alone for all names.
 *
 * out     appended to; whoever calls frees it, on errors too
 * arena   owns what the rules point to
 * Errors  CKPT_EUSAGE: an item that is none; CKPT_ELIMIT
 */
int ckpt_dtypes_parse(ckpt_dtype_rules *out, ckpt_arena *arena, const char *text, ckpt_err *err);

/* The dtype of the first rule that matches a tensor's name, which is counted; NONE: no rule does.
 */
ckpt_dtype ckpt_dtypes_of(ckpt_dtype_rules *rules, const ckpt_tensor *t);

/*
 * Every rule has had an effect.
 *
 * Errors  CKPT_EUSAGE, naming the first one that has not, and why
 */
int ckpt_dtypes_used(const ckpt_dtype_rules *rules, ckpt_err *err);

#endif
