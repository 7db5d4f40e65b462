/* SPDX-License-Identifier: Apache-2.0 */
/*
 * entry.c: reads sub-parameter and affine entries of universal_checkpoint_info into rules.
 */
#include <assert.h>
#include <inttypes.h>
#include <string.h>

#include "formats/rules/entry.h"

enum { UE_MAX_SUBS = 65536 }; /* sub-parameters of one parameter */

/* ---- numbers ---- */

/* A list of integers >= 0. */
typedef struct ue_counts {
    uint64_t *at; /* the numbers, in the arena */
    uint64_t n;
} ue_counts;

/* Read a list of integers >= 0.  False if v is something else, or if memory is exhausted; `at` is
 * NULL then. */
static bool ue_read_counts(ue_counts *out, ckpt_arena *arena, const ckpt_value *v)
{
    ckpt_seq seq = ckpt_value_seq(v);

    out->n = seq.n;
    out->at = ckpt_arena_array(arena, seq.n + 1, sizeof *out->at);
    if (!out->at || !v ||
        (v->kind != CKPT_V_LIST && v->kind != CKPT_V_TUPLE && v->kind != CKPT_V_SIZE))
        return false;
    for (uint64_t i = 0; i < seq.n; i++) {
        int64_t x;

        if (!ckpt_value_as_int(seq.at[i], &x) || x < 0)
            return false;
        out->at[i] = (uint64_t)x;
    }
    return true;
}

/* ---- sub-parameters ---- */

static int ue_bad_sub(const ckpt_slice_rule *rule, const char *what, ckpt_err *err)
{
    return ckpt_fail(err, CKPT_EFORMAT, "parameter_with_sub_params: '%.150s': %s", rule->pattern,
                     what);
}

/* True for a list or tuple, the form of a list of sub-parameter sizes. */
static bool ue_is_list(const ckpt_value *v)
{
    return v->kind == CKPT_V_LIST || v->kind == CKPT_V_TUPLE;
}

/* Read one entry of the shape: a number, or a list of sub-parameter sizes, which counts as its
 * sum. */
static bool ue_view_entry(const ckpt_value *v, int64_t *out)
{
    ckpt_seq seq = ckpt_value_seq(v);
    int64_t x;

    if (!ue_is_list(v)) {
        if (!ckpt_value_as_int(v, out))
            return false;
        *out = *out < 0 ? -1 : *out;
        return true;
    }
    *out = 0;
    for (uint64_t i = 0; i < seq.n; i++) {
        if (!ckpt_value_as_int(seq.at[i], &x) || x < 0 || __builtin_add_overflow(*out, x, out))
            return false;
    }
    return true;
}

/* Read the shape as a view, and the sizes or the number of sub-parameters at the cut axis. */
static int ue_sub_shape(ckpt_slice_rule *rule, ckpt_arena *arena, const ckpt_value *shape,
                        int64_t axis, ckpt_err *err)
{
    ckpt_seq seq = ckpt_value_seq(shape);
    uint64_t n_subs = 0;
    const ckpt_value *cut;
    int64_t *view;

    if (!shape || seq.n == 0 || seq.n > CKPT_MAX_DIM)
        return ue_bad_sub(rule, "its shape is not a tuple of 1 to 64 entries", err);
    // Python counts negative axes from the end.
    if (axis < 0)
        axis += (int64_t)seq.n;
    if (axis < 0 || (uint64_t)axis >= seq.n)
        return ue_bad_sub(rule, "its partition_dim is outside its shape", err);
    view = ckpt_arena_array(arena, seq.n, sizeof *view);
    if (!view)
        return ckpt_fail_memory(err);
    for (uint64_t i = 0; i < seq.n; i++) {
        if (!ue_view_entry(seq.at[i], &view[i]))
            return ue_bad_sub(rule, "its shape has an entry that is not a size", err);
    }
    cut = seq.at[axis];
    n_subs = (uint64_t)view[axis];
    if (ue_is_list(cut)) {
        ue_counts size;

        if (!ue_read_counts(&size, arena, cut))
            return ckpt_fail_memory(err); // the values are integers: see above
        rule->sub_size = size.at;
        n_subs = size.n;
    }
    if (n_subs == 0 || n_subs > UE_MAX_SUBS)
        return ue_bad_sub(rule, "it has no sub-parameters, or too many", err);
    rule->kind = CKPT_SLICE_SUB;
    rule->axis = (uint32_t)axis;
    rule->n_subs = (uint32_t)n_subs;
    rule->n_view = (uint32_t)seq.n;
    rule->view = view;
    return CKPT_OK;
}

/* Read the widths: one list per sub-parameter, with one number per rank. */
static int ue_sub_width(ckpt_slice_rule *rule, ckpt_arena *arena, const ckpt_value *width,
                        ckpt_err *err)
{
    ckpt_seq seq = ckpt_value_seq(width);
    uint64_t n_ranks = seq.n > 0 ? ckpt_value_seq(seq.at[0]).n : 0, *all;

    if (seq.n != rule->n_subs || n_ranks == 0 || n_ranks > CKPT_SLICES_MAX_RANKS)
        return ue_bad_sub(rule, "sub_param_shard_widths has another number of sub-parameters", err);
    all = ckpt_arena_array(arena, n_ranks * rule->n_subs, sizeof *all);
    if (!all)
        return ckpt_fail_memory(err);
    for (uint64_t k = 0; k < seq.n; k++) {
        ue_counts row;

        if (!ue_read_counts(&row, arena, seq.at[k]) || row.n != n_ranks)
            return !row.at ? ckpt_fail_memory(err)
                           : ue_bad_sub(rule, "sub_param_shard_widths are not lists of one length",
                                        err);
        memcpy(all + k * n_ranks, row.at, n_ranks * sizeof *row.at);
    }
    rule->width = all;
    rule->n_widths = (uint32_t)n_ranks;
    return CKPT_OK;
}

int ckpt_uni_sub_read(ckpt_slice_rule *rule, ckpt_arena *arena, const ckpt_value *fields,
                      const ckpt_value *width, ckpt_err *err)
{
    assert(rule && arena);
    const ckpt_value *dim = ckpt_value_get(fields, "partition_dim");
    int64_t axis = 0;
    int rc;

    if (!dim || !ckpt_value_as_int(dim, &axis))
        return ue_bad_sub(rule, "its partition_dim is not an integer", err);
    rc = ue_sub_shape(rule, arena, ckpt_value_get(fields, "shape"), axis, err);
    return rc == CKPT_OK && width ? ue_sub_width(rule, arena, width, err) : rc;
}

/* ---- affine maps ---- */

typedef struct ue_affine {
    ckpt_arena *arena;
    const char *pattern;
    ckpt_affine *map;
    const ckpt_value **pieces; /* each rank's list */
    uint64_t n_room;
    ckpt_affine_piece *piece;
    ckpt_err *err;
} ue_affine;

static int ue_bad(const ue_affine *a, const char *what)
{
    // `what` is NULL if memory is exhausted
    if (!what)
        return ckpt_fail_memory(a->err);
    return ckpt_fail(a->err, CKPT_EFORMAT, "affine_map: '%.150s': %s", a->pattern, what);
}

/* Parse a rank key: an int, or digits if the dict came from JSON. */
static bool ue_rank(const ckpt_value *key, uint64_t n_ranks, uint64_t *rank)
{
    int64_t x = -1;

    if (key->kind == CKPT_V_STR) {
        const ckpt_text *t = &key->as.text;

        if (t->n == 0 || t->n > 6)
            return false;
        x = 0;
        for (uint64_t i = 0; i < t->n; i++) {
            if (t->at[i] < '0' || t->at[i] > '9')
                return false;
            x = 10 * x + (t->at[i] - '0');
        }
    } else if (!ckpt_value_as_int(key, &x)) {
        return false;
    }
    *rank = (uint64_t)x;
    return x >= 0 && *rank < n_ranks;
}

/* Read ranks: {0: {...}, 1: {...}}.  Every rank from 0 on must occur once. */
static int ue_ranks(ue_affine *a, const ckpt_value *ranks)
{
    ckpt_dict map = ckpt_value_map(ranks);

    if (map.n == 0 || map.n > CKPT_SLICES_MAX_RANKS)
        return ue_bad(a, "it has no ranks, or too many");
    a->pieces = ckpt_arena_array(a->arena, map.n, sizeof *a->pieces);
    if (!a->pieces)
        return ckpt_fail_memory(a->err);
    for (uint64_t i = 0; i < map.n; i++) {
        const ckpt_value *list = ckpt_value_get(map.at[i].value, "pieces");
        uint64_t rank = 0;

        if (!ue_rank(map.at[i].key, map.n, &rank) || a->pieces[rank] || !list || !ue_is_list(list))
            return ue_bad(a, "its ranks are not numbered from 0 on, or lack their pieces");
        a->pieces[rank] = list;
        // bound the sum before allocating, because many ranks may share one list
        a->n_room += list->as.seq.n;
        if (a->n_room > CKPT_SLICES_MAX_BOXES)
            return ckpt_fail(a->err, CKPT_ELIMIT, "affine_map: '%.150s': more than %u pieces",
                             a->pattern, CKPT_SLICES_MAX_BOXES);
    }
    a->map->n_ranks = (uint32_t)map.n;
    return CKPT_OK;
}

/* Read source or dest of a piece: [offset, [stride, stride]]. */
static int ue_side(const ue_affine *a, const ckpt_value *v, uint32_t ndim, uint64_t *at,
                   const uint64_t **by)
{
    ckpt_seq seq = ckpt_value_seq(v);
    ue_counts strides;
    int64_t x;

    if (!v || !ue_is_list(v) || seq.n != 2 || !ckpt_value_as_int(seq.at[0], &x) || x < 0)
        return ue_bad(a, "a piece has no offset");
    *at = (uint64_t)x;
    if (!ue_read_counts(&strides, a->arena, seq.at[1]) || strides.n != ndim)
        return ue_bad(a, strides.at ? "a piece has no strides" : NULL);
    *by = strides.at;
    return CKPT_OK;
}

/* True if a piece is unscaled: scale is absent, 1 or 1.0. */
static bool ue_unscaled(const ckpt_value *v)
{
    int64_t x = 0;

    if (!v)
        return true;
    if (v->kind == CKPT_V_FLOAT)
        return v->as.f >= 1 && v->as.f <= 1; // false for NaN too
    return ckpt_value_as_int(v, &x) && x == 1;
}

static int ue_piece(ue_affine *a, uint32_t rank, const ckpt_value *v)
{
    ckpt_affine_piece *p = &a->piece[a->map->n_pieces++];
    ue_counts shape;
    int rc;

    p->rank = rank;
    if (!ue_read_counts(&shape, a->arena, ckpt_value_get(v, "shape")) || shape.n > CKPT_MAX_DIM)
        return ue_bad(a, shape.at ? "a piece has no shape" : NULL);
    p->count = shape.at;
    p->ndim = (uint32_t)shape.n;
    if (!ue_unscaled(ckpt_value_get(v, "scale")))
        return ckpt_fail(a->err, CKPT_EUNSUPPORTED,
                         "affine_map: '%.150s': a piece has a scale, so its optimizer state cannot "
                         "be carried over",
                         a->pattern);
    rc = ue_side(a, ckpt_value_get(v, "source"), p->ndim, &p->whole_at, &p->whole_by);
    if (rc == CKPT_OK)
        rc = ue_side(a, ckpt_value_get(v, "dest"), p->ndim, &p->slice_at, &p->slice_by);
    return rc;
}

int ckpt_uni_affine_read(const ckpt_affine **out, ckpt_arena *arena, const ckpt_value *v,
                         const char *pattern, ckpt_err *err)
{
    assert(out && arena && pattern);
    ckpt_affine *map = ckpt_arena_alloc(arena, sizeof *map);
    ue_affine a = {.arena = arena, .pattern = pattern, .map = map, .err = err};
    ue_counts shape;
    int rc;

    *out = NULL;
    if (!map)
        return ckpt_fail_memory(err);
    if (!ue_read_counts(&shape, arena, ckpt_value_get(v, "logical_shape")) ||
        shape.n > CKPT_MAX_DIM)
        return ue_bad(&a, shape.at ? "it has no logical_shape" : NULL);
    map->shape = shape.at;
    map->ndim = (uint32_t)shape.n;
    rc = ue_ranks(&a, ckpt_value_get(v, "ranks"));
    if (rc != CKPT_OK)
        return rc;
    map->piece = a.piece = ckpt_arena_array(arena, a.n_room + 1, sizeof *a.piece);
    if (!a.piece)
        return ckpt_fail_memory(err);
    for (uint32_t r = 0; rc == CKPT_OK && r < map->n_ranks; r++) {
        ckpt_seq list = a.pieces[r]->as.seq;

        for (uint64_t i = 0; rc == CKPT_OK && i < list.n; i++)
            rc = ue_piece(&a, r, list.at[i]);
    }
    if (rc == CKPT_OK)
        *out = map;
    return rc;
}
