/* SPDX-License-Identifier: Apache-2.0 */
/*
 * whole.h: what the members of a program's whole dict are: {"model": ..., "optimizer": ...}.
 *
 * The form of a member decides, wherever it stands: an optimizer has `state` and `param_groups`, a
 * model is a dict of named tensors.  Names of keys only choose between several models: `model` and
 * its kin before others, of which those with the model's own names and shapes are copies (EMA).
 */
#ifndef CKPT_MAP_WHOLE_H
#define CKPT_MAP_WHOLE_H

#include "libckpt/base/vec.h"
#include "libckpt/map/value.h"

typedef enum ckpt_whole_kind {
    CKPT_WHOLE_MODEL,     /* a dict of named tensors */
    CKPT_WHOLE_COPY,      /* one with the names and shapes of the model that was chosen */
    CKPT_WHOLE_OPTIMIZER, /* a dict with `state` and `param_groups` */
} ckpt_whole_kind;

typedef struct ckpt_whole_part {
    ckpt_whole_kind kind;
    const char *path; /* keys joined by '.', as names of tensors begin; "": the root itself */
    ckpt_value *value;
    uint64_t n; /* its tensors; of an optimizer, its parameters */
} ckpt_whole_part;

CKPT_VEC(ckpt_whole_parts, ckpt_whole_part);

typedef struct ckpt_whole {
    ckpt_whole_parts part;
    size_t model; /* in part; SIZE_MAX: none, or none that is certain */
    unsigned n_models, n_copies, n_optimizers; /* n_models: without copies */
    bool named; /* the model stands under a key that programs use for it */
} ckpt_whole;

/*
 * Take a tree apart; a zeroed struct is to be given, and freed with ckpt_whole_free.
 *
 * Errors   CKPT_ELIMIT
 */
int ckpt_whole_of(ckpt_whole *out, ckpt_value *root, ckpt_arena *arena, ckpt_err *err);

/*
 * Choose the model among the parts that are there: called by ckpt_whole_of, and again by a caller
 * that has removed parts.
 */
int ckpt_whole_choose(ckpt_whole *whole, ckpt_err *err);

/* "2 optimizers (optimizer_states.0, optimizer_states.1) and a model (state_dict)"; NULL: no
 * memory. */
const char *ckpt_whole_text(const ckpt_whole *whole, ckpt_arena *arena);

/* What a kind is called in messages: "an optimizer". */
const char *ckpt_whole_kind_text(ckpt_whole_kind kind);

/* Free the list of parts; values and paths are the caller's. */
void ckpt_whole_free(ckpt_whole *whole);

/* ---- wrappers ---- */

/*
 * A name without the parts that wrappers of torch add and no model has of its own, wherever they
 * stand: "_orig_mod." (torch.compile), "_fsdp_wrapped_module." and others.
 *
 * out   room for the name and its terminator
 */
void ckpt_wrapper_strip(char *out, const char *name);

#endif
