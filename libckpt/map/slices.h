/* SPDX-License-Identifier: Apache-2.0 */
/*
 * slices.h: how tensor-parallel slices make a full tensor: which box of which slice is which box of
 * the whole.
 *
 * Pure arithmetic.  The same list of boxes joins (slices -> whole) and cuts (whole -> slices).
 * Slices may themselves be cut over data-parallel ranks: their extents, flat intervals or boxes,
 * are carried over to the whole.
 *
 *     rule (formats/rules/rules.h) + slices  --ckpt_slices_join-->  one tensor of the map
 */
#ifndef CKPT_MAP_SLICES_H
#define CKPT_MAP_SLICES_H

#include "libckpt/map/map.h"

/* Ranks a tensor may be cut over, and boxes a rule may cut it into. */
#define CKPT_SLICES_MAX_RANKS 65536u
#define CKPT_SLICES_MAX_BOXES (1u << 20)

typedef enum ckpt_slice_kind {
    CKPT_SLICE_CAT = 0, /* one after the other along an axis; sizes may differ */
    CKPT_SLICE_SUB, /* fused: along an axis each slice holds its part of several sub-parameters; the
                       whole is sub-parameter 0 of all ranks, then sub-parameter 1 of all ... */
    CKPT_SLICE_SAME,  /* replicated: each slice is the whole, and all must be equal */
    CKPT_SLICE_MEAN,  /* each slice has the whole's shape; the whole is their mean, summed in rank
                         order */
    CKPT_SLICE_AFFINE /* a list of pieces says where everything goes */
} ckpt_slice_kind;

/* A block of elements, in the whole and in one slice, as torch.as_strided would be told: all in
 * elements. */
typedef struct ckpt_affine_piece {
    uint32_t rank;
    uint32_t ndim;
    const uint64_t *count;               /* ndim sizes */
    uint64_t whole_at, slice_at;         /* of the first element, in the flattened tensor */
    const uint64_t *whole_by, *slice_by; /* ndim strides */
} ckpt_affine_piece;

/* What AFFINE knows of one parameter. */
typedef struct ckpt_affine {
    uint32_t ndim;
    const uint64_t *shape; /* of the whole */
    uint32_t n_ranks;      /* ranks 0..n_ranks-1 have slices */
    uint64_t n_pieces;
    const ckpt_affine_piece *piece;
} ckpt_affine;

/*
 * How the slices of one tensor are joined.  What it points to belongs to whoever made it
 * (ckpt_uni_rules).  {0} is the rule of what no list names: joined along axis 0.
 */
typedef struct ckpt_slice_rule {
    ckpt_slice_kind kind;
    uint32_t axis;            /* CAT, SUB: the axis that is cut (SUB with a view: of the view) */
    uint32_t n_subs;          /* SUB: sub-parameters */
    const uint64_t *sub_size; /* SUB: n_subs sizes in the whole along the axis; NULL: all equal */
    const uint64_t
        *width;          /* SUB: width[k * n_widths + rank] of sub-parameter k; NULL: cut evenly */
    uint32_t n_widths;   /* SUB: ranks that width speaks of */
    uint32_t n_view;     /* SUB: axes of the view; 0: the tensor's own axes are meant */
    const int64_t *view; /* SUB: shape of the whole as its maker views it; -1: what is left over;
                            the entry of `axis` is not looked at */
    const ckpt_affine *affine; /* AFFINE */
    uint64_t keep_rows;        /* vocabulary: rows of axis 0 that remain after joining; 0: all */
    const char *pattern; /* of the list that it comes from, for messages; NULL: none named it */
    const ckpt_value
        *entry; /* SUB from parameter_with_sub_params: the entry, to be written back; or NULL */
} ckpt_slice_rule;

/* The slices of one tensor, in the order of tensor-parallel ranks. */
typedef struct ckpt_slice_set {
    const char *name; /* of the whole */
    const ckpt_tensor *const
        *slice; /* n of them, owners; each with its own shape; not the map's list's concern */
    uint32_t n;
} ckpt_slice_set;

/* A box that a slice and the whole have in common; elements. */
typedef struct ckpt_slice_box {
    uint32_t rank;
    uint32_t copy;     /* 0 for the first rank that holds these elements, 1 for the second ... */
    uint32_t n_copies; /* ranks that hold them */
    const uint64_t *count; /* ndim sizes, none 0 */
    const uint64_t *from;  /* ndim starts in the slice */
    const uint64_t *to;    /* ndim starts in the whole */
} ckpt_slice_box;

/* A tensor's cut, worked out. */
typedef struct ckpt_slices {
    ckpt_slice_kind kind;
    uint32_t n_ranks;
    uint32_t ndim;
    uint64_t *shape;     /* of the whole, ndim */
    uint64_t n_elems;    /* of the whole */
    ckpt_slice_box *box; /* n_boxes, ascending by rank */
    uint64_t *first;     /* n_ranks + 1: rank r has boxes first[r] .. first[r + 1] - 1 */
    uint64_t n_boxes;
    uint32_t n_copies; /* 1, or as many versions of the whole as can be made of different ranks */
    bool flat;         /* each box is one run of elements in the slice and in the whole */
    uint64_t *numbers; /* what the boxes point to */
} ckpt_slices;

/*
 * Work out how the slices fit together.
 *
 * Errors   CKPT_EMISMATCH: the slices' shapes do not fit the rule or each other; CKPT_EUNSUPPORTED:
 *          a rule that no boxes express (affine pieces across axes); CKPT_ELIMIT.  Messages name
 *          set->name.
 * Source   own derivation from the documented meaning of the rules; tests/unit/map/test_slices.c
 *          checks small shapes element by element
 */
int ckpt_slices_new(ckpt_slices *out, const ckpt_slice_rule *rule, const ckpt_slice_set *set,
                    ckpt_err *err);
void ckpt_slices_free(ckpt_slices *s);

/* Extents being gathered: extent i has its axes at axis[i * width]; `extent[i].axis` is set by the
 * taker. */
CKPT_VEC(ckpt_extent_vec, ckpt_extent);
CKPT_VEC(ckpt_axis_vec, ckpt_axis);

typedef struct ckpt_slice_extents {
    ckpt_extent_vec extent;
    ckpt_axis_vec axis;
    bool flat; /* all are intervals of the whole, so far and from now on */
} ckpt_slice_extents;

/*
 * All of it: enter the whole, set->name, in the map's list, with extents, role, flags and export
 * dtype of the slices.
 *
 * SAME, and affine pieces that several ranks hold: the other holders become a chain of twins. MEAN:
 * a chain of addends.  Where each slice has a twin of its own, those are joined by the same rule
 * and appended to the chain (MEAN: each slice keeps its own).
 *
 * Errors   as above; CKPT_EMISMATCH: dtypes differ; CKPT_EFORMAT: the name is taken
 */
int ckpt_slices_join(ckpt_tensor **out, ckpt_map *map, const ckpt_slice_rule *rule,
                     const ckpt_slice_set *set, ckpt_err *err);

#endif
