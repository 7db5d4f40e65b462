/* SPDX-License-Identifier: Apache-2.0 */
/*
 * dtypes.h: parses and applies ckpt_target.dtypes, a list of rules: "f32:*norm*,bf16:*".
 */
#ifndef CKPT_TRANSFORM_DTYPES_H
#define CKPT_TRANSFORM_DTYPES_H

#include "ckpt.h"
#include "libckpt/map/map.h"

typedef struct ckpt_dtype_rule {
    ckpt_dtype dtype;
    const char *glob;             /* pattern of names; NUL-terminated, in the list's text */
    uint64_t n_met;               /* number of matching names of any tensor */
    uint64_t n_took;              /* number of floating tensors for which it is the first match */
    const ckpt_tensor *met, *tie; /* a matching name; one that is tied to another */
} ckpt_dtype_rule;

CKPT_VEC(ckpt_dtype_rules, ckpt_dtype_rule);

/*
 * Parse a text. Commas separate items of the form DTYPE:GLOB, or DTYPE alone for all names.
 *
 * out     appended to; the caller frees it, also after a failure
 * arena   owns the strings of the rules
 * Errors  CKPT_EUSAGE: a malformed item; CKPT_ELIMIT
 */
int ckpt_dtypes_parse(ckpt_dtype_rules *out, ckpt_arena *arena, const char *text, ckpt_err *err);

/*
 * The dtype of the first rule that matches a tensor's name; counts the match. NONE: no rule
 * matches.
 */
ckpt_dtype ckpt_dtypes_of(ckpt_dtype_rules *rules, const ckpt_tensor *t);

/*
 * True if a tensor stays in 32 bits although one narrower dtype is wanted for all tensors, because
 * programs hold it in F32 in a model of any dtype: the bias by which routers choose experts, whose
 * differences are smaller than the steps of 16 bits.
 *
 * Source  _maintain_float32_expert_bias (megatron/core/transformer/moe/router.py) and
 *         _keep_in_fp32_modules_strict (e_score_correction_bias) of transformers 5; torchtitan's
 *         buffer expert_bias
 */
bool ckpt_dtype_stays(const char *name, ckpt_dtype has, ckpt_dtype wanted);

/*
 * Check that every rule had an effect.
 *
 * Errors  CKPT_EUSAGE, with the first useless rule and the reason
 */
int ckpt_dtypes_used(const ckpt_dtype_rules *rules, ckpt_err *err);

#endif
