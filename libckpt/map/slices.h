/* SPDX-License-Identifier: Apache-2.0 */
/*
 * slices.h: maps each box of each tensor-parallel slice to its box of the full tensor.
 *
 * Pure arithmetic. The same list of boxes joins (slices -> whole) and cuts (whole -> slices).
 * Slices may themselves be partitioned over data-parallel ranks: the join carries their extents,
 * flat intervals or boxes, over to the whole.
 *
 *     rule (formats/rules/rules.h) + slices  --ckpt_slices_join-->  one tensor of the map
 */
#ifndef CKPT_MAP_SLICES_H
#define CKPT_MAP_SLICES_H

#include "libckpt/map/map.h"

/* Limits: ranks of one tensor, and boxes of one rule. */
#define CKPT_SLICES_MAX_RANKS 65536u
#define CKPT_SLICES_MAX_BOXES (1u << 20)

typedef enum ckpt_slice_kind {
    CKPT_SLICE_CAT = 0, /* concatenated along an axis; sizes may differ */
    /*
     * fused: each slice holds its part of several sub-parameters along an axis; the whole is
     * sub-parameter 0 of all ranks, then sub-parameter 1 of all ...
     */
    CKPT_SLICE_SUB,
    CKPT_SLICE_SAME, /* replicated: each slice is the whole, and all must be equal */
    /* each slice has the whole's shape; the whole is their mean, added in rank order */
    CKPT_SLICE_MEAN,
    CKPT_SLICE_AFFINE /* a list of pieces gives the location of every element */
} ckpt_slice_kind;

/*
 * A block of elements, in the whole and in one slice, with the arguments of torch.as_strided; all
 * numbers are elements.
 */
typedef struct ckpt_affine_piece {
    uint32_t rank;
    uint32_t ndim;
    const uint64_t *count;               /* ndim sizes */
    uint64_t whole_at, slice_at;         /* offset of its first element in the flattened tensor */
    const uint64_t *whole_by, *slice_by; /* ndim strides */
} ckpt_affine_piece;

/* The pieces of one parameter, for AFFINE. */
typedef struct ckpt_affine {
    uint32_t ndim;
    const uint64_t *shape; /* shape of the whole */
    uint32_t n_ranks;      /* the number of ranks with slices */
    uint64_t n_pieces;
    const ckpt_affine_piece *piece;
} ckpt_affine;

/*
 * How to join the slices of one tensor. Its pointers belong to its maker (ckpt_uni_rules). {0} is
 * the rule for a tensor that no list names: join along axis 0.
 */
typedef struct ckpt_slice_rule {
    ckpt_slice_kind kind;
    /* CAT, SUB: the axis that is partitioned (SUB with a view: of the view) */
    uint32_t axis;
    uint32_t n_subs;          /* SUB: number of sub-parameters */
    const uint64_t *sub_size; /* SUB: n_subs sizes in the whole along the axis; NULL: all equal */
    const uint64_t
        *width;        /* SUB: width[k * n_widths + rank] of sub-parameter k; NULL: even parts */
    uint32_t n_widths; /* SUB: number of ranks in width */
    uint32_t n_view;   /* SUB: axes of the view; 0: the tensor's own axes */
    /*
     * SUB: shape of the whole in its maker's view; -1: the remaining elements; the entry of `axis`
     * is ignored
     */
    const int64_t *view;
    const ckpt_affine *affine; /* AFFINE */
    uint64_t keep_rows;        /* vocabulary: rows of axis 0 that remain after joining; 0: all */
    const char *pattern;       /* glob of the rule in its list; NULL: the default rule */
    const ckpt_value
        *entry; /* SUB from parameter_with_sub_params: the entry, to write it back; or NULL */
} ckpt_slice_rule;

/* The slices of one tensor, in the order of tensor-parallel ranks. */
typedef struct ckpt_slice_set {
    const char *name; /* name of the whole */
    const ckpt_tensor *const
        *slice; /* n slices, owners, each with its own shape; they need not be in the map's list */
    uint32_t n;
} ckpt_slice_set;

/* A box that a slice and the whole share; elements. */
typedef struct ckpt_slice_box {
    uint32_t rank;
    uint32_t copy;     /* 0 for the first rank that holds these elements, 1 for the second ... */
    uint32_t n_copies; /* number of ranks that have the same elements */
    const uint64_t *count; /* ndim sizes, none 0 */
    const uint64_t *from;  /* ndim starts in the slice */
    const uint64_t *to;    /* ndim starts in the whole */
} ckpt_slice_box;

/* The boxes of all slices of a tensor. */
typedef struct ckpt_slices {
    ckpt_slice_kind kind;
    uint32_t n_ranks;
    uint32_t ndim;
    uint64_t *shape;     /* shape of the whole: ndim sizes */
    uint64_t n_elems;    /* elements of the whole */
    ckpt_slice_box *box; /* n_boxes, ascending by rank */
    uint64_t *first;     /* n_ranks + 1: rank r has boxes first[r] .. first[r + 1] - 1 */
    uint64_t n_boxes;
    uint32_t n_copies; /* 1, or the number of copies of the whole that different ranks can make */
    bool flat;         /* each box is contiguous in the slice and in the whole */
    uint64_t *numbers; /* storage of the boxes' numbers */
} ckpt_slices;

/*
 * Compute the boxes of the slices.
 *
 * Errors   CKPT_EMISMATCH: the slices' shapes do not fit the rule or each other; CKPT_EUNSUPPORTED:
 *          a rule that boxes cannot express (affine pieces across axes); CKPT_ELIMIT. Messages name
 *          set->name.
 * Source   own derivation from the documented meaning of the rules; tests/unit/map/test_slices.c
 *          checks small shapes element by element
 */
int ckpt_slices_new(ckpt_slices *out, const ckpt_slice_rule *rule, const ckpt_slice_set *set,
                    ckpt_err *err);
void ckpt_slices_free(ckpt_slices *s);

/*
 * Extents under construction: extent i has its axes at axis[i * width]; the receiver sets
 * `extent[i].axis`, because the array moves as it grows.
 */
CKPT_VEC(ckpt_extent_vec, ckpt_extent);
CKPT_VEC(ckpt_axis_vec, ckpt_axis);

typedef struct ckpt_slice_extents {
    ckpt_extent_vec extent;
    ckpt_axis_vec axis;
    bool flat; /* all are intervals of the whole, and later ones must be too */
} ckpt_slice_extents;

/*
 * Join the slices: add the whole, set->name, to the map's list, with the extents, role, flags and
 * export dtype of the slices.
 *
 * SAME, and affine pieces that several ranks hold: the other holders become a chain of twins. MEAN:
 * a chain of addends. If each slice has its own twin, the same rule joins the twins and appends
 * them to the chain (MEAN: each slice keeps its own).
 *
 * Errors   as above; CKPT_EMISMATCH: dtypes differ; CKPT_EFORMAT: the name is taken
 */
int ckpt_slices_join(ckpt_tensor **out, ckpt_map *map, const ckpt_slice_rule *rule,
                     const ckpt_slice_set *set, ckpt_err *err);

#endif
