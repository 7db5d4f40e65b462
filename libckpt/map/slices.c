/* SPDX-License-Identifier: Apache-2.0 */
/*
 * slices.c: computes the boxes that slices and the whole share.
 *
 * Every rule but the affine one cuts a single axis: its boxes are whole on all other axes. Along
 * that axis a slice is `outer` times its parts of all sub-parameters in turn, in units of `unit`
 * elements (both are 1 unless a view splits the axis into several).
 */
#include <assert.h>

#include "libckpt/map/slices.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "libckpt/base/dtype.h"
#include "libckpt/map/extent.h"

/* The partition of one axis. */
typedef struct sl_cut {
    const ckpt_slice_rule *rule;
    const ckpt_slice_set *set;
    uint32_t axis;
    uint32_t n_subs;
    uint64_t outer, unit;
} sl_cut;

/* ---- memory ---- */

void ckpt_slices_free(ckpt_slices *s)
{
    ckpt_free(s->shape);
    ckpt_free(s->box);
    ckpt_free(s->first);
    ckpt_free(s->numbers);
    *s = (ckpt_slices){0};
}

/* Allocate at most n_boxes boxes. */
static int sl_room(ckpt_slices *s, uint64_t n_boxes, ckpt_err *err)
{
    uint64_t per_box = 3 * (uint64_t)s->ndim;

    if (n_boxes > CKPT_SLICES_MAX_BOXES)
        return ckpt_fail(err, CKPT_ELIMIT,
                         "the slices of one tensor have %" PRIu64 " boxes; the limit is %u",
                         n_boxes, CKPT_SLICES_MAX_BOXES);
    s->shape = ckpt_alloc((s->ndim + 1) * sizeof *s->shape);
    s->first = ckpt_alloc((s->n_ranks + 1) * sizeof *s->first);
    s->box = ckpt_alloc((n_boxes + 1) * sizeof *s->box);
    s->numbers = ckpt_alloc((n_boxes * per_box + 1) * sizeof *s->numbers);
    if (!s->shape || !s->first || !s->box || !s->numbers)
        return ckpt_fail_memory(err);
    return CKPT_OK;
}

/* The three rows of numbers of box i: counts, starts in the slice, starts in the whole. */
static uint64_t *sl_count(const ckpt_slices *s, uint64_t i)
{
    return s->numbers + 3 * i * s->ndim;
}

static uint64_t *sl_from(const ckpt_slices *s, uint64_t i)
{
    return sl_count(s, i) + s->ndim;
}

static uint64_t *sl_to(const ckpt_slices *s, uint64_t i)
{
    return sl_count(s, i) + 2 * (size_t)s->ndim;
}

/* Add a box that is whole on all axes of a slice; the caller narrows it. */
static uint64_t sl_push(ckpt_slices *s, const ckpt_tensor *slice, uint32_t rank)
{
    uint64_t i = s->n_boxes++;

    s->box[i] = (ckpt_slice_box){.rank = rank,
                                 .n_copies = 1,
                                 .count = sl_count(s, i),
                                 .from = sl_from(s, i),
                                 .to = sl_to(s, i)};
    for (uint32_t a = 0; a < s->ndim; a++) {
        sl_count(s, i)[a] = slice->shape[a];
        sl_from(s, i)[a] = sl_to(s, i)[a] = 0;
    }
    return i;
}

/* ---- comparing slices ---- */

/* A shape as text for messages: "[4, 8]". */
static const char *sl_shape_text(const ckpt_tensor *t, char text[96])
{
    size_t n = 1;

    text[0] = '[';
    for (uint32_t a = 0; a < t->ndim && n < 70; a++)
        n += (size_t)snprintf(text + n, 96 - n, "%s%" PRIu64, a > 0 ? ", " : "", t->shape[a]);
    (void)snprintf(text + n, 96 - n, "]");
    return text;
}

/* Fail: slice `rank` does not fit slice 0. */
static int sl_differ(const ckpt_slice_set *set, uint32_t rank, ckpt_err *err)
{
    char a[96], b[96];

    return ckpt_fail(err, CKPT_EMISMATCH,
                     "tensor '%.200s': tensor-parallel rank 0 holds %s, rank %" PRIu32
                     " holds %s: its rule cannot join them into one tensor",
                     set->name, sl_shape_text(set->slice[0], a), rank,
                     sl_shape_text(set->slice[rank], b));
}

/* Check that all slices agree on all axes but one; UINT32_MAX: on all. */
static int sl_check_axes(const ckpt_slice_set *set, uint32_t but, ckpt_err *err)
{
    const ckpt_tensor *a = set->slice[0];

    for (uint32_t r = 1; r < set->n; r++) {
        for (uint32_t i = 0; i < a->ndim; i++) {
            if (i != but && a->shape[i] != set->slice[r]->shape[i])
                return sl_differ(set, r, err);
        }
    }
    return CKPT_OK;
}

/* ---- one axis ---- */

/* Width of sub-parameter k on a rank, in units. */
static uint64_t sl_width(const sl_cut *c, uint32_t k, uint32_t rank)
{
    const ckpt_slice_rule *rule = c->rule;

    if (rule->width)
        return rule->width[(uint64_t)k * rule->n_widths + rank];
    if (rule->sub_size)
        return rule->sub_size[k] / c->set->n;
    return c->set->slice[rank]->shape[c->axis] / c->n_subs;
}

/* Width of all sub-parameters on a rank; false on overflow. */
static bool sl_rank_width(const sl_cut *c, uint32_t rank, uint64_t *out)
{
    *out = 0;
    for (uint32_t k = 0; k < c->n_subs; k++) {
        if (!ckpt_add(*out, sl_width(c, k, rank), out))
            return false;
    }
    return true;
}

/*
 * Product of the sizes first..end-1 of a slice. It is at most the slice's number of elements, or 0.
 */
static uint64_t sl_product(const ckpt_tensor *t, uint32_t first, uint32_t end)
{
    uint64_t n = 1;

    for (uint32_t i = first; i < end; i++) {
        if (!ckpt_mul(n, t->shape[i], &n))
            return 0; // another axis is 0, because otherwise the tensor could not exist
    }
    return n;
}

/*
 * Compute the view's sizes before and after its cut axis, with -1 computed from the number of
 * elements of all slices; false if it does not fit.
 */
static bool sl_view(const sl_cut *c, uint64_t *before, uint64_t *after)
{
    const ckpt_slice_rule *rule = c->rule;
    uint64_t n_elems = 0, known = 0, width, *open = NULL;

    *before = *after = 1;
    for (uint32_t r = 0; r < c->set->n; r++) {
        if (!sl_rank_width(c, r, &width) || !ckpt_add(known, width, &known) ||
            !ckpt_add(n_elems, c->set->slice[r]->n_elems, &n_elems))
            return false;
    }
    for (uint32_t i = 0; i < rule->n_view; i++) {
        uint64_t *side = i < rule->axis ? before : after;

        if (i == rule->axis)
            continue;
        if (rule->view[i] < 0) {
            if (open)
                return false;
            open = side;
        } else if (!ckpt_mul(*side, (uint64_t)rule->view[i], side)) {
            return false;
        }
    }
    if (!ckpt_mul(known, *before, &known) || !ckpt_mul(known, *after, &known) || known == 0)
        return false;
    if (open)
        *open *= n_elems / known;
    return n_elems % known == 0 && (open || n_elems == known);
}

/* True if axis j of the slices is `outer` times the cut axis of the view in units of `unit`. */
static bool sl_fits(sl_cut *c, uint32_t j, uint64_t before, uint64_t after)
{
    const ckpt_tensor *t = c->set->slice[0];
    uint64_t left = sl_product(t, 0, j), right = sl_product(t, j + 1, t->ndim);

    if (left == 0 || right == 0 || before % left != 0 || after % right != 0)
        return false;
    c->outer = before / left;
    c->unit = after / right;
    c->axis = j;
    for (uint32_t r = 0; r < c->set->n; r++) {
        uint64_t n;

        if (!sl_rank_width(c, r, &n) || !ckpt_mul(n, c->outer, &n) || !ckpt_mul(n, c->unit, &n) ||
            n != c->set->slice[r]->shape[j])
            return false;
    }
    return true;
}

/* Fail: the sub-parameters do not add up to the slices. */
static int sl_bad_subs(const sl_cut *c, ckpt_err *err)
{
    char a[96];

    return ckpt_fail(err, CKPT_EMISMATCH,
                     "tensor '%.200s': its %" PRIu32 " sub-parameters over %" PRIu32
                     " ranks do not add up to the slices (rank 0 holds %s): the rule for '%.60s' "
                     "belongs to another model",
                     c->set->name, c->n_subs, c->set->n, sl_shape_text(c->set->slice[0], a),
                     c->rule->pattern ? c->rule->pattern : "");
}

/* Check the numbers of a SUB rule against each other. */
static int sl_check_subs(const sl_cut *c, ckpt_err *err)
{
    const ckpt_slice_rule *rule = c->rule;

    if (c->n_subs == 0 || (rule->width && rule->n_widths != c->set->n))
        return sl_bad_subs(c, err);
    for (uint32_t k = 0; k < c->n_subs && rule->sub_size; k++) {
        uint64_t sum = 0;

        for (uint32_t r = 0; r < c->set->n && rule->width; r++) {
            if (!ckpt_add(sum, sl_width(c, k, r), &sum))
                return sl_bad_subs(c, err);
        }
        if (rule->width ? sum != rule->sub_size[k] : rule->sub_size[k] % c->set->n != 0)
            return sl_bad_subs(c, err);
    }
    return CKPT_OK;
}

/* Find the tensor's axis that a SUB rule cuts. */
static int sl_sub_axis(sl_cut *c, ckpt_err *err)
{
    const ckpt_slice_rule *rule = c->rule;
    uint32_t ndim = c->set->slice[0]->ndim;
    bool sized = rule->sub_size || rule->width;
    uint64_t before = 1, after = 1;
    int rc = sl_check_subs(c, err);

    if (rc != CKPT_OK)
        return rc;
    if (!sized || rule->n_view == 0) {
        if (rule->axis >= ndim)
            return sl_bad_subs(c, err);
        c->axis = rule->axis;
        for (uint32_t r = 0; r < c->set->n; r++) {
            uint64_t n = 0, have = c->set->slice[r]->shape[c->axis];

            if (!sl_rank_width(c, r, &n) || n != have)
                return sl_bad_subs(c, err);
        }
        return CKPT_OK;
    }
    if (rule->axis >= rule->n_view || !sl_view(c, &before, &after))
        return sl_bad_subs(c, err);
    // Axes of size 1 make several axes fit, so the view's own axis is tried first.
    if (rule->n_view == ndim && sl_fits(c, rule->axis, before, after))
        return CKPT_OK;
    for (uint32_t j = 0; j < ndim; j++) {
        if (sl_fits(c, j, before, after))
            return CKPT_OK;
    }
    return sl_bad_subs(c, err);
}

/* Append a rank's part of one sub-parameter; extend the box before if the two are adjacent. */
static void sl_part(ckpt_slices *s, const sl_cut *c, uint32_t rank, const uint64_t part[3])
{
    uint64_t count = part[0], from = part[1], to = part[2], last = s->n_boxes - 1, i;
    uint32_t a = c->axis;

    if (count == 0)
        return;
    if (s->n_boxes > s->first[rank] && sl_from(s, last)[a] + sl_count(s, last)[a] == from &&
        sl_to(s, last)[a] + sl_count(s, last)[a] == to) {
        sl_count(s, last)[a] += count;
        return;
    }
    i = sl_push(s, c->set->slice[rank], rank);
    sl_count(s, i)[a] = count;
    sl_from(s, i)[a] = from;
    sl_to(s, i)[a] = to;
}

/*
 * Append all boxes of a cut axis. before[k]: units of sub-parameter k on earlier ranks; start[k]:
 * units of the sub-parameters before k, in the whole. No sum can overflow, because each is part of
 * the whole's size.
 */
static void sl_parts(ckpt_slices *s, const sl_cut *c, uint64_t *before, const uint64_t *start)
{
    uint64_t total = start[c->n_subs];

    for (uint32_t r = 0; r < s->n_ranks; r++) {
        uint64_t at = 0; // in the slice, in units

        s->first[r] = s->n_boxes;
        for (uint64_t o = 0; o < c->outer; o++) {
            for (uint32_t k = 0; k < c->n_subs; k++) {
                uint64_t width = sl_width(c, k, r);
                uint64_t to = o * total + start[k] + before[k];
                const uint64_t part[3] = {width * c->unit, at * c->unit, to * c->unit};

                sl_part(s, c, r, part);
                at += width;
            }
        }
        for (uint32_t k = 0; k < c->n_subs; k++)
            before[k] += sl_width(c, k, r);
    }
    s->first[s->n_ranks] = s->n_boxes;
}

/* Compute the whole's size along the cut axis, and the start of each sub-parameter in it. */
static int sl_starts(ckpt_slices *s, const sl_cut *c, uint64_t *start, ckpt_err *err)
{
    uint64_t size;

    for (uint32_t k = 0; k < c->n_subs; k++) {
        start[k + 1] = start[k];
        for (uint32_t r = 0; r < s->n_ranks; r++) {
            if (!ckpt_add(start[k + 1], sl_width(c, k, r), &start[k + 1]))
                return sl_bad_subs(c, err);
        }
    }
    if (!ckpt_mul(start[c->n_subs], c->outer, &size) || !ckpt_mul(size, c->unit, &size))
        return sl_bad_subs(c, err);
    memcpy(s->shape, c->set->slice[0]->shape, s->ndim * sizeof *s->shape);
    s->shape[c->axis] = size;
    return ckpt_shape_elems(s->shape, s->ndim, &s->n_elems) ? CKPT_OK : sl_bad_subs(c, err);
}

/* Compute the boxes of CAT and SUB over several ranks. */
static int sl_make_cut(ckpt_slices *s, sl_cut *c, ckpt_err *err)
{
    bool sub = c->rule->kind == CKPT_SLICE_SUB;
    uint64_t n_boxes, *room;
    int rc = CKPT_OK;

    c->n_subs = sub ? c->rule->n_subs : 1;
    c->axis = c->rule->axis;
    c->outer = c->unit = 1;
    if (sub)
        rc = sl_sub_axis(c, err);
    if (rc == CKPT_OK && c->axis >= s->ndim)
        rc = ckpt_fail(err, CKPT_EMISMATCH,
                       "tensor '%.200s': %" PRIu32 " slices of %" PRIu32
                       " axes are to be joined along axis %" PRIu32
                       ": if each rank holds the whole, a rule must name it as replicated",
                       c->set->name, s->n_ranks, s->ndim, c->axis);
    if (rc == CKPT_OK)
        rc = sl_check_axes(c->set, c->axis, err);
    if (rc != CKPT_OK)
        return rc;
    if (!ckpt_mul((uint64_t)s->n_ranks * c->n_subs, c->outer, &n_boxes))
        n_boxes = UINT64_MAX;
    rc = sl_room(s, n_boxes, err);
    room = rc == CKPT_OK ? ckpt_alloc((2 * (size_t)c->n_subs + 1) * sizeof *room) : NULL;
    if (rc == CKPT_OK && !room)
        rc = ckpt_fail_memory(err);
    if (rc == CKPT_OK)
        rc = sl_starts(s, c, room + c->n_subs, err);
    if (rc == CKPT_OK)
        sl_parts(s, c, room, room + c->n_subs);
    ckpt_free(room);
    return rc;
}

/* Compute the boxes of SAME and MEAN, and of any rule for one rank: each slice is the whole. */
static int sl_make_whole(ckpt_slices *s, const ckpt_slice_set *set, ckpt_err *err)
{
    int rc = sl_check_axes(set, UINT32_MAX, err);

    if (rc == CKPT_OK)
        rc = sl_room(s, set->n, err);
    if (rc != CKPT_OK)
        return rc;
    s->n_copies = set->n;
    s->n_elems = set->slice[0]->n_elems;
    if (s->ndim > 0)
        memcpy(s->shape, set->slice[0]->shape, s->ndim * sizeof *s->shape);
    for (uint32_t r = 0; r < set->n; r++) {
        s->first[r] = s->n_boxes;
        if (s->n_elems > 0) {
            uint64_t i = sl_push(s, set->slice[r], r);

            s->box[i].copy = r;
            s->box[i].n_copies = set->n;
        }
    }
    s->first[set->n] = s->n_boxes;
    return CKPT_OK;
}

/* ---- affine pieces ---- */

/*
 * Start of a view in a tensor as indices, if the view is a box of it: it has the tensor's own
 * strides and lies inside.
 */
static bool sl_unravel(const uint64_t *shape, const ckpt_affine_piece *p, uint64_t at,
                       const uint64_t *by, uint64_t *start)
{
    uint64_t unit = 1;

    for (uint32_t a = p->ndim; a-- > 0;) {
        if (p->count[a] > 1 && by[a] != unit)
            return false;
        start[a] = at % shape[a];
        if (p->count[a] > shape[a] - start[a])
            return false;
        at /= shape[a];
        unit *= shape[a]; // at most the tensor's number of elements
    }
    return at == 0;
}

/* Add one piece as a box; drop pieces without elements. */
static int sl_piece(ckpt_slices *s, const ckpt_slice_set *set, const ckpt_affine_piece *p,
                    ckpt_err *err)
{
    const ckpt_tensor *slice = set->slice[p->rank];
    uint64_t i, n_elems = 0;

    if (p->ndim == s->ndim && ckpt_shape_elems(p->count, p->ndim, &n_elems) && n_elems == 0)
        return CKPT_OK;
    if (slice->n_elems == 0 || s->n_elems == 0 || p->ndim != s->ndim)
        n_elems = 0;
    i = sl_push(s, slice, p->rank);
    for (uint32_t a = 0; a < s->ndim && n_elems > 0; a++)
        sl_count(s, i)[a] = p->count[a];
    if (n_elems > 0 && sl_unravel(s->shape, p, p->whole_at, p->whole_by, sl_to(s, i)) &&
        sl_unravel(slice->shape, p, p->slice_at, p->slice_by, sl_from(s, i)))
        return CKPT_OK;
    return ckpt_fail(err, CKPT_EUNSUPPORTED,
                     "tensor '%.200s': a piece of its affine map on rank %" PRIu32
                     " (from element %" PRIu64 ") is not a box of the tensor and of its slice",
                     set->name, p->rank, p->whole_at);
}

/*
 * Sort by position in the whole, then by rank. The keys carry the context, because qsort has none.
 */
typedef struct sl_key {
    const ckpt_slice_box *box;
    uint32_t ndim;
    uint64_t number;
} sl_key;

/* Order of two boxes by position and size in the whole. */
static int sl_same_place(const sl_key *a, const sl_key *b)
{
    for (uint32_t i = 0; i < a->ndim; i++) {
        if (a->box->to[i] != b->box->to[i])
            return a->box->to[i] < b->box->to[i] ? -1 : 1;
        if (a->box->count[i] != b->box->count[i])
            return a->box->count[i] < b->box->count[i] ? -1 : 1;
    }
    return 0;
}

static int sl_key_order(const void *pa, const void *pb)
{
    const sl_key *a = pa, *b = pb;
    int place = sl_same_place(a, b);

    if (place != 0)
        return place;
    return a->number < b->number ? -1 : a->number > b->number;
}

/* Find boxes of several ranks at one position, because they are copies of each other. */
static int sl_find_copies(ckpt_slices *s, ckpt_err *err)
{
    sl_key *key = ckpt_alloc((s->n_boxes + 1) * sizeof *key);

    if (!key)
        return ckpt_fail_memory(err);
    for (uint64_t i = 0; i < s->n_boxes; i++)
        key[i] = (sl_key){&s->box[i], s->ndim, i};
    qsort(key, s->n_boxes, sizeof *key, sl_key_order);
    for (uint64_t i = 0, end; i < s->n_boxes; i = end) {
        for (end = i + 1; end < s->n_boxes && sl_same_place(&key[i], &key[end]) == 0; end++)
            continue;
        for (uint64_t k = i; k < end; k++) {
            s->box[key[k].number].copy = (uint32_t)(k - i);
            s->box[key[k].number].n_copies = (uint32_t)(end - i);
        }
        if (end - i > s->n_copies)
            s->n_copies = (uint32_t)(end - i);
    }
    ckpt_free(key);
    return CKPT_OK;
}

/*
 * Check that boxes cover a shape exactly once: those of one rank its slice, or the first holders of
 * all ranks the whole.
 */
static int sl_check_cover(const ckpt_slices *s, const ckpt_tensor *slice, uint32_t rank,
                          ckpt_tensor *like, ckpt_err *err)
{
    uint64_t first = slice ? s->first[rank] : 0;
    uint64_t end = slice ? s->first[rank + 1] : s->n_boxes;
    ckpt_extent *extent = ckpt_alloc((end - first + 1) * sizeof *extent);
    ckpt_axis *axis = ckpt_alloc(((end - first) * s->ndim + 1) * sizeof *axis);
    int rc = extent && axis ? CKPT_OK : ckpt_fail_memory(err);

    like->shape = slice ? slice->shape : s->shape;
    like->n_elems = slice ? slice->n_elems : s->n_elems;
    like->extent = extent;
    for (uint64_t i = first; rc == CKPT_OK && i < end; i++) {
        const ckpt_slice_box *b = &s->box[i];
        ckpt_axis *a = axis + (i - first) * s->ndim;

        if (!slice && b->copy != 0)
            continue;
        for (uint32_t k = 0; k < s->ndim; k++)
            a[k] = (ckpt_axis){slice ? b->from[k] : b->to[k], b->count[k], 0};
        extent[like->n_extents++] = (ckpt_extent){.ndim = s->ndim, .axis = a};
    }
    if (rc == CKPT_OK && s->ndim == 1)
        ckpt_extent_sort(extent, like->n_extents);
    if (rc == CKPT_OK)
        rc = ckpt_extent_check(like, err);
    ckpt_free(extent);
    ckpt_free(axis);
    return rc;
}

/* Check that the boxes use each slice exactly once and that the first holders cover the whole. */
static int sl_check_pieces(const ckpt_slices *s, const ckpt_slice_set *set, ckpt_err *err)
{
    char name[300];
    int rc = CKPT_OK;

    for (uint32_t r = 0; rc == CKPT_OK && r < s->n_ranks; r++) {
        ckpt_tensor like = {.name = name, .ndim = s->ndim};

        (void)snprintf(name, sizeof name, "%.200s (affine map, slice of rank %" PRIu32 ")",
                       set->name, r);
        rc = sl_check_cover(s, set->slice[r], r, &like, err);
    }
    if (rc == CKPT_OK) {
        ckpt_tensor like = {.name = name, .ndim = s->ndim};

        (void)snprintf(name, sizeof name, "%.200s (affine map)", set->name);
        rc = sl_check_cover(s, NULL, 0, &like, err);
    }
    return rc;
}

/* AFFINE. */
static int sl_make_affine(ckpt_slices *s, const ckpt_affine *map, const ckpt_slice_set *set,
                          ckpt_err *err)
{
    int rc = CKPT_OK;

    if (map->ndim != s->ndim || map->n_ranks != set->n)
        return ckpt_fail(err, CKPT_EMISMATCH,
                         "tensor '%.200s': its affine map is for %" PRIu32 " ranks and %" PRIu32
                         " axes, but there are %" PRIu32 " and %" PRIu32,
                         set->name, map->n_ranks, map->ndim, set->n, s->ndim);
    rc = sl_room(s, map->n_pieces, err);
    if (rc != CKPT_OK)
        return rc;
    if (s->ndim > 0)
        memcpy(s->shape, map->shape, s->ndim * sizeof *s->shape);
    if (!ckpt_shape_elems(s->shape, s->ndim, &s->n_elems))
        return ckpt_fail(err, CKPT_EFORMAT,
                         "tensor '%.200s': the shape of its affine map overflows", set->name);
    for (uint64_t i = 0; rc == CKPT_OK && i < map->n_pieces; i++) {
        uint32_t rank = map->piece[i].rank;

        if (rank >= set->n || (i > 0 && rank < map->piece[i - 1].rank))
            return ckpt_fail(err, CKPT_EMISMATCH,
                             "tensor '%.200s': its affine map refers to the missing rank %" PRIu32,
                             set->name, rank);
        rc = sl_piece(s, set, &map->piece[i], err);
    }
    for (uint64_t i = 0; i < s->n_boxes; i++)
        s->first[s->box[i].rank + 1] = i + 1;
    for (uint32_t r = 0; r < s->n_ranks; r++) {
        if (s->first[r + 1] < s->first[r])
            s->first[r + 1] = s->first[r];
    }
    if (rc == CKPT_OK)
        rc = sl_find_copies(s, err);
    return rc == CKPT_OK && s->ndim > 0 ? sl_check_pieces(s, set, err) : rc;
}

/* ---- the whole ---- */

/* Drop rows of axis 0 from `rows` on: padding of a vocabulary. */
static void sl_keep_rows(ckpt_slices *s, uint64_t rows)
{
    uint64_t n = 0;

    if (rows == 0 || s->ndim == 0 || s->shape[0] <= rows)
        return;
    s->n_elems = s->n_elems / s->shape[0] * rows;
    s->shape[0] = rows;
    for (uint32_t r = 0; r < s->n_ranks; r++) {
        uint64_t i = s->first[r], end = s->first[r + 1];

        s->first[r] = n;
        for (; i < end; i++) {
            if (s->box[i].to[0] >= rows)
                continue;
            // only the list is compacted; the numbers stay in place
            s->box[n] = s->box[i];
            if (sl_count(s, i)[0] > rows - s->box[i].to[0])
                sl_count(s, i)[0] = rows - s->box[i].to[0];
            n++;
        }
    }
    s->first[s->n_ranks] = s->n_boxes = n;
}

/*
 * True if a box is contiguous on both sides: whole on all axes after its first axis longer than 1.
 */
static bool sl_is_run(const ckpt_slices *s, const ckpt_slice_box *b, const ckpt_tensor *slice)
{
    uint32_t a = 0;

    while (a < s->ndim && b->count[a] == 1)
        a++;
    for (a++; a < s->ndim; a++) {
        if (b->count[a] != s->shape[a] || b->count[a] != slice->shape[a])
            return false;
    }
    return true;
}

int ckpt_slices_new(ckpt_slices *out, const ckpt_slice_rule *rule, const ckpt_slice_set *set,
                    ckpt_err *err)
{
    assert(out && rule && set);
    ckpt_slices s = {.kind = rule->kind, .n_ranks = set->n, .n_copies = 1, .flat = true};
    sl_cut cut = {.rule = rule, .set = set};
    int rc;

    *out = (ckpt_slices){0};
    if (set->n == 0 || set->n > CKPT_SLICES_MAX_RANKS)
        return ckpt_fail(err, CKPT_EUSAGE, "tensor '%.200s': %" PRIu32 " slices", set->name,
                         set->n);
    s.ndim = set->slice[0]->ndim;
    for (uint32_t r = 1; r < set->n; r++) {
        if (set->slice[r]->ndim != s.ndim)
            return sl_differ(set, r, err);
    }
    if (rule->kind == CKPT_SLICE_AFFINE)
        rc = sl_make_affine(&s, rule->affine, set, err);
    else if (set->n == 1 || rule->kind == CKPT_SLICE_SAME || rule->kind == CKPT_SLICE_MEAN)
        rc = sl_make_whole(&s, set, err); // a single slice is the whole tensor under any rule
    else
        rc = sl_make_cut(&s, &cut, err);
    if (rc != CKPT_OK) {
        ckpt_slices_free(&s);
        return rc;
    }
    sl_keep_rows(&s, rule->keep_rows);
    for (uint64_t i = 0; i < s.n_boxes && s.flat; i++)
        s.flat = sl_is_run(&s, &s.box[i], set->slice[s.box[i].rank]);
    *out = s;
    return CKPT_OK;
}
