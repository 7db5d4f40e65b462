/* SPDX-License-Identifier: Apache-2.0 */
/*
 * whole.h: identifies the members of a dict that a program saved: {"model": ..., "optimizer": ...}.
 *
 * The form of a member decides, wherever it is: an optimizer has `state` and `param_groups`, a
 * model is a dict of named tensors. Key names only choose between several models: `model` and
 * similar keys win, and others with the same names and shapes are copies (EMA).
 */
#ifndef CKPT_MAP_WHOLE_H
#define CKPT_MAP_WHOLE_H

#include <stddef.h>

#include "libckpt/base/vec.h"
#include "libckpt/map/value.h"

typedef enum ckpt_whole_kind {
    CKPT_WHOLE_MODEL,     /* a dict of named tensors */
    CKPT_WHOLE_COPY,      /* a dict with the names and shapes of the chosen model */
    CKPT_WHOLE_OPTIMIZER, /* a dict with `state` and `param_groups` */
} ckpt_whole_kind;

typedef struct ckpt_whole_part {
    ckpt_whole_kind kind;
    /* keys joined by '.', the prefix of its tensors' names; "": the root itself */
    const char *path;
    ckpt_value *value;
    uint64_t n; /* number of tensors; of an optimizer, of parameters */
    /*
     * Sorted keys of the tensors of a model whose dict also holds an optimizer; `value` then has
     * these members alone.  NULL: every tensor below path belongs to the part.
     */
    const char **direct;
} ckpt_whole_part;

CKPT_VEC(ckpt_whole_parts, ckpt_whole_part);

typedef struct ckpt_whole {
    ckpt_whole_parts part;
    size_t model; /* index in `part` of the chosen model; SIZE_MAX: none, or an ambiguous choice */
    unsigned n_models, n_copies, n_optimizers; /* n_models: without copies */
    bool named; /* the model's key is one that programs use for models, e.g. "state_dict" */
} ckpt_whole;

/*
 * Find the parts of a tree. The caller passes a zeroed struct and frees it with ckpt_whole_free.
 *
 * Errors   CKPT_ELIMIT
 */
int ckpt_whole_of(ckpt_whole *out, ckpt_value *root, ckpt_arena *arena, ckpt_err *err);

/*
 * Choose the model among the parts: called by ckpt_whole_of, and again by a caller that has removed
 * parts.
 */
int ckpt_whole_choose(ckpt_whole *whole, ckpt_err *err);

/*
 * "2 optimizers (optimizer_states.0, optimizer_states.1) and a model (state_dict)"; NULL: out of
 * memory.
 */
const char *ckpt_whole_text(const ckpt_whole *whole, ckpt_arena *arena);

/* The name of a kind in messages: "an optimizer". */
const char *ckpt_whole_kind_text(ckpt_whole_kind kind);

/*
 * Offset in a tensor's full name at which its name inside the part begins; SIZE_MAX: the tensor is
 * not in the part, or the part is the whole file.
 */
size_t ckpt_whole_below(const ckpt_whole_part *part, const char *name);

/* Free the list of parts; values and paths are the caller's. */
void ckpt_whole_free(ckpt_whole *whole);

/* ---- wrappers ---- */

/*
 * Remove the parts that wrappers of torch insert into a name and no model uses, wherever they are:
 * "_orig_mod." (torch.compile), "_fsdp_wrapped_module." and others.
 *
 * out      room for the name and its terminator
 */
void ckpt_wrapper_strip(char *out, const char *name);

/*
 * The same, and remove "module." at the beginning (DistributedDataParallel), which a model may also
 * use for a module of its own: for comparing names that a model and its optimizer have for one
 * parameter, where only one of the two was wrapped.
 */
void ckpt_wrapper_bare(char *out, const char *name);

#endif
