/* SPDX-License-Identifier: Apache-2.0 */
/*
 * instance.h: one rule with names and sizes put in: the tensors of one layer, say.
 *
 * Both sides are lists of *members*: a tensor with the term that names it.  All captures that every
 * term of the rule has are the instance's own (the layer); a capture that is an axis on the other
 * side (the expert) numbers the members of its term.
 *
 *     ckpt_rm_bind     sizes of all names, by the text's sizes and the shapes of the source
 *     ckpt_rm_back     a target's extents, and the proof that they cover it once
 *     ckpt_rm_prove    the proof that each element of a source is used once
 */
#ifndef CKPT_REMAP_INSTANCE_H
#define CKPT_REMAP_INSTANCE_H

#include "libckpt/remap/expr.h"

enum { CKPT_RM_INDEXES = 4 /* captures of one term that are axes on the other side */ };

/* A term with `...` written out and sizes put in. */
typedef struct ckpt_rm_view {
    uint32_t n_axes, n_atoms;
    ckpt_rm_atom atom[CKPT_MAX_DIM];
    uint64_t size[CKPT_MAX_DIM]; /* of each atom */
} ckpt_rm_view;

typedef struct ckpt_rm_member {
    uint32_t term; /* of its side */
    uint32_t n_indexes;
    uint32_t name[CKPT_RM_INDEXES]; /* of the captures that number it */
    uint64_t value[CKPT_RM_INDEXES];
    ckpt_tensor *t;
    /* of a source: where its elements lie, if one stride for each axis says it */
    uint32_t source;
    uint64_t at;
    uint64_t stride[CKPT_MAX_DIM]; /* bytes, of each axis */
} ckpt_rm_member;

CKPT_VEC(ckpt_rm_members, ckpt_rm_member);

typedef struct ckpt_rm_instance {
    const ckpt_rm_facts *f;
    ckpt_map *map;
    ckpt_rm_rule *rule;
    unsigned from, to;  /* sides: source, target */
    const char *moment; /* "exp_avg/" of optimizer state, n_moment bytes */
    size_t n_moment;
    ckpt_rm_capture own;       /* captures that all terms have */
    ckpt_rm_members member[2]; /* by side */
    ckpt_rm_view view[2][CKPT_RM_TERMS];
    uint32_t n_rest;             /* axes that `...` stands for */
    uint32_t rest[CKPT_MAX_DIM]; /* their names */
    uint64_t *size;              /* by name, NAMES + MAX_DIM of them: UNKNOWN, or elements */
} ckpt_rm_instance;

/*
 * Give every name of the rule its size, and write the views out.  The source's members are there;
 * sizes of captures that number them are set.
 *
 * Errors   CKPT_EMISMATCH: a shape that does not fit, with the line, the tensor and the axis;
 *          CKPT_EMISSING: a size that nothing gives
 */
int ckpt_rm_bind(ckpt_rm_instance *in, ckpt_err *err);

/* Give a target's tensor (shape and dtype are set) its extents.  Errors: CKPT_EMISMATCH */
int ckpt_rm_back(ckpt_rm_instance *in, ckpt_rm_member *target, ckpt_err *err);

/* Errors   CKPT_EMISMATCH: an element of the source that no target has, or that two have */
int ckpt_rm_prove(ckpt_rm_instance *in, const ckpt_rm_member *source, ckpt_err *err);

/*
 * The tensor of a rule that fills, in F32; NULL in *out: its expression has no value.
 *
 * Errors   CKPT_EMISSING: a size that nothing gives; CKPT_EUSAGE: an element that is no number;
 *          CKPT_ELIMIT
 */
int ckpt_rm_fill(ckpt_tensor **out, ckpt_map *map, const ckpt_rm_facts *f, const ckpt_rm_rule *rule,
                 ckpt_err *err);

/* The dtype of what is made of a tensor: its own, or F32 where elements lie in blocks. */
ckpt_dtype ckpt_rm_dtype(const ckpt_tensor *t);

/*
 * A tensor that several of one shape are: copies, which must be equal, a sum, or a mean.
 *
 * Errors   CKPT_EMISMATCH: other shapes; CKPT_EUNSUPPORTED: no sums of such elements; CKPT_ELIMIT
 */
int ckpt_rm_joined(ckpt_tensor **out, ckpt_rm_instance *in, const ckpt_rm_members *from,
                   ckpt_rm_joins how, ckpt_err *err);

/*
 * By tensor of the map: 1 + the group of the state that has it, 0: none; to be freed.  Of a state
 * that waits (map.h), moments of the parameters that the map lacks have it too.  NULL in *out:
 * there is no state.
 *
 * Errors   CKPT_EUNSUPPORTED: a state that maps do not follow; CKPT_ELIMIT
 */
int ckpt_rm_groups(uint32_t **out, const ckpt_map *map, ckpt_err *err);

/*
 * The map's one state is of the tensors that were made.
 *
 * group    of each, as ckpt_rm_groups has them; of what was moments alone, completed
 * step     becomes the count of steps that each group's parameters have had, or NULL
 */
int ckpt_rm_state(ckpt_map *map, const ckpt_tensors *made, uint32_t *group,
                  const ckpt_tensor ***step, ckpt_err *err);

/* Parameters of the map's state that no rule gave a count of steps have that of their group. */
int ckpt_rm_steps(ckpt_map *map, const ckpt_tensor *const *step, ckpt_err *err);

/*
 * A copy of a tensor whose elements are those of the right side plus what the rule adds, or of the
 * left side minus it.
 *
 * Errors   CKPT_EUNSUPPORTED: no sums of such elements; CKPT_ELIMIT
 */
int ckpt_rm_plus(ckpt_tensor *t, ckpt_rm_instance *in, ckpt_err *err);

/* Fill source, at and stride of a source's member. */
int ckpt_rm_place(ckpt_rm_instance *in, ckpt_rm_member *m, ckpt_err *err);

#endif
