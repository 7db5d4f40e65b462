/* SPDX-License-Identifier: Apache-2.0 */
/*
 * instance.h: represents one rule with names and sizes filled in, for example the tensors of one
 * layer.
 *
 * Both sides are lists of *members*: a tensor with the term that names it. Captures that occur in
 * every term of the rule belong to the instance (the layer); a capture that is an axis on the other
 * side (the expert) numbers the members of its term.
 *
 *    ckpt_rm_bind   computes the sizes of all names, from the layout map and the source's shapes
 *    ckpt_rm_back   computes a target's extents, and checks that they cover it exactly once
 *    ckpt_rm_prove  checks that each element of a source is used exactly once
 */
#ifndef CKPT_TRANSFORM_KEYMAP_INSTANCE_H
#define CKPT_TRANSFORM_KEYMAP_INSTANCE_H

#include "libckpt/transform/keymap/expr.h"

enum { CKPT_RM_INDEXES = 4 /* captures of one term that are axes on the other side */ };

/* A term with `...` expanded and sizes filled in. */
typedef struct ckpt_rm_view {
    uint32_t n_axes, n_atoms;
    ckpt_rm_atom atom[CKPT_MAX_DIM];
    uint64_t size[CKPT_MAX_DIM]; /* size of each atom */
} ckpt_rm_view;

typedef struct ckpt_rm_member {
    uint32_t term; /* index of its term on its side of the rule */
    uint32_t n_indexes;
    uint32_t name[CKPT_RM_INDEXES]; /* captures whose values tell this tensor from the others */
    uint64_t value[CKPT_RM_INDEXES];
    ckpt_tensor *t;
    uint64_t row; /* of a term of rows: the first of its rows in the tensor; else 0 */
    /* members of the source: location of the elements, if each axis has one stride */
    uint32_t source;
    uint64_t at;
    uint64_t stride[CKPT_MAX_DIM]; /* bytes, per axis */
} ckpt_rm_member;

CKPT_VEC(ckpt_rm_members, ckpt_rm_member);

typedef struct ckpt_rm_instance {
    const ckpt_rm_facts *f;
    ckpt_map *map;
    ckpt_rm_rule *rule;
    unsigned from, to;  /* sides: source, target */
    const char *moment; /* "exp_avg/" of optimizer state, n_moment bytes */
    size_t n_moment;
    ckpt_rm_capture own;       /* captures in all terms */
    ckpt_rm_members member[2]; /* one list for each side of the rule */
    ckpt_rm_view view[2][CKPT_RM_TERMS];
    uint32_t n_rest;             /* number of axes of `...` */
    uint32_t rest[CKPT_MAX_DIM]; /* their names */
    uint64_t *size; /* size of each name (NAMES + MAX_DIM of them) in elements, or UNKNOWN */
    bool blocks;    /* packed elements are copied in their blocks (ckpt_rm_keeps_rows) */
} ckpt_rm_instance;

/*
 * Compute the size of every name of the rule, and fill in the views. The caller has set the
 * source's members, and the sizes of captures that number them.
 *
 * Errors   CKPT_EMISMATCH: a shape that does not fit, with the line, the tensor and the axis;
 *          CKPT_EMISSING: an unknown size
 */
int ckpt_rm_bind(ckpt_rm_instance *in, ckpt_err *err);

/* Give a target's tensor (with shape and dtype) its extents. Errors: CKPT_EMISMATCH */
int ckpt_rm_back(ckpt_rm_instance *in, ckpt_rm_member *target, ckpt_err *err);

/* Errors   CKPT_EMISMATCH: no target, or two of them, use an element of the source */
int ckpt_rm_prove(ckpt_rm_instance *in, const ckpt_rm_member *source, ckpt_err *err);

/*
 * Make the tensor of a fill rule, in F32; NULL in *out: its expression has no value.
 *
 * Errors   CKPT_EMISSING: an unknown size; CKPT_EUSAGE: an element that is not a number;
 *          CKPT_ELIMIT
 */
int ckpt_rm_fill(ckpt_tensor **out, ckpt_map *map, const ckpt_rm_facts *f, const ckpt_rm_rule *rule,
                 ckpt_err *err);

/*
 * True if the map keeps blocks of its source and every term of the rule has the rows of the others,
 * so that blocks, which lie in rows, can be copied. ckpt_rm_bind has filled in the views.
 */
bool ckpt_rm_keeps_rows(const ckpt_rm_instance *in);

/*
 * The dtype of a tensor made from another one: the same, or F32 for block types unless in->blocks
 * is set.
 */
ckpt_dtype ckpt_rm_dtype(const ckpt_rm_instance *in, const ckpt_tensor *t);

/* True if two tensors have one dtype; unpacked: after blocks of quantized numbers become F32. */
bool ckpt_rm_one_dtype(const ckpt_tensor *a, const ckpt_tensor *b, bool unpacked);

/*
 * Make one tensor from several of one shape: copies, which must be equal, a sum, or a mean.
 *
 * Errors   CKPT_EMISMATCH: different shapes; CKPT_EUNSUPPORTED: such elements cannot be added;
 *          CKPT_ELIMIT
 */
int ckpt_rm_joined(ckpt_tensor **out, ckpt_rm_instance *in, const ckpt_rm_members *from,
                   ckpt_rm_joins how, ckpt_err *err);

/*
 * Tied names get the bytes if their owner became another tensor; if their owner only has another
 * name, they are tied to that.
 */
void ckpt_rm_owners(const ckpt_tensors *made);

/*
 * Per tensor of the map: 1 + its group in the state, 0: none; the caller frees it. In a waiting
 * state (map.h), moments of the parameters that the map lacks have a group too. NULL in *out: there
 * is no state.
 *
 * Errors   CKPT_EUNSUPPORTED: a state that layout maps cannot follow; CKPT_ELIMIT
 */
int ckpt_rm_groups(uint32_t **out, const ckpt_map *map, ckpt_err *err);

/*
 * Rebuild the map's only state for the new tensors.
 *
 * group    per tensor, from ckpt_rm_groups; completed here for parameters that only had moments
 * step     gets the step count of each group's parameters, or NULL
 */
int ckpt_rm_state(ckpt_map *map, const ckpt_tensors *made, uint32_t *group,
                  const ckpt_tensor ***step, ckpt_err *err);

/* Give parameters without a step count from a rule the one of their group. */
int ckpt_rm_steps(ckpt_map *map, const ckpt_tensor *const *step, ckpt_err *err);

/*
 * Copy a tensor with the rule's constant added to the elements of the right side, or subtracted for
 * the left side; or with the logarithms of the negated elements of the right side, or back.
 *
 * Errors   CKPT_EUNSUPPORTED: such elements cannot be added; CKPT_ELIMIT
 */
int ckpt_rm_plus(ckpt_tensor *t, ckpt_rm_instance *in, ckpt_err *err);

/* ---- rows.c ---- */

/* True if a term has only some rows of its tensor. */
bool ckpt_rm_is_rows(const ckpt_rm_terms *terms, size_t term);

/*
 * Set the first rows of a side's members.
 *
 * Errors   CKPT_EMISMATCH: the rows of a source are not all of its tensor; CKPT_ELIMIT
 */
int ckpt_rm_rows(ckpt_rm_instance *in, unsigned side, ckpt_err *err);

/*
 * Make a target from tensors with its rows.
 *
 * piece    n members, whose terms follow each other
 * Errors   CKPT_EMISMATCH: their other axes differ; CKPT_ELIMIT
 */
int ckpt_rm_stack_rows(ckpt_tensor **out, ckpt_rm_instance *in, const ckpt_rm_member *piece,
                       size_t n, ckpt_err *err);

/* Set source, at and stride of a source's member. */
int ckpt_rm_place(ckpt_rm_instance *in, ckpt_rm_member *m, ckpt_err *err);

/* ---- lora.c ---- */

/*
 * Refuse an adapter without a matrix of the hidden size that the configuration states, because a
 * configuration of another model gives wrong numbers of heads.
 *
 * hidden   the size; NULL: the configuration has none, so there is nothing to check
 * Errors   CKPT_EMISMATCH
 */
int ckpt_rm_lora_width(const ckpt_map *map, const ckpt_value *hidden, ckpt_err *err);

/*
 * Check that the current tensor's update can follow a rule for its weight; *name: only by another
 * name, without the rule's axes.
 *
 * Errors   CKPT_EUNSUPPORTED
 */
int ckpt_rm_lora_check(const ckpt_rm_instance *in, const ckpt_rm_rule *rule, bool *name,
                       ckpt_err *err);

/* ---- lora_sizes.c ---- */

/*
 * Refuse an adapter that has other numbers of layers, key heads or inner features than the
 * configuration states: a model of the same width may differ in these.
 *
 * Errors   CKPT_EMISMATCH
 */
int ckpt_rm_lora_sizes(const ckpt_map *map, const ckpt_rm_facts *f, ckpt_err *err);

#endif
