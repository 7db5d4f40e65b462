/* SPDX-License-Identifier: Apache-2.0 */
/*
 * slices_extents.c: carries the extents of slices over to the whole, and makes the tensors of the
 * whole.
 */
#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "libckpt/base/dtype.h"
#include "libckpt/map/extent.h"
#include "libckpt/map/slices.h"

/* Limit of extents of one joined tensor. */
#define SX_MAX_EXTENTS (UINT64_C(1) << 24)

/* State while the extents of one slice are carried over. */
typedef struct sx_state {
    ckpt_slice_extents *out;
    const ckpt_slices *s;
    const ckpt_tensor *slice;
    uint32_t rank, copy;
    bool packed; /* elements are in blocks */
    ckpt_err *err;
} sx_state;

/* A part of the slice with regular strides in its source: a box, or an interval with one axis. */
typedef struct sx_part {
    uint32_t source;
    uint64_t at;                  /* bytes: of the first element */
    ckpt_axis axis[CKPT_MAX_DIM]; /* starts and counts in the slice, strides in the source */
} sx_part;

static int sx_overflow(const sx_state *x)
{
    return ckpt_fail(x->err, CKPT_EFORMAT, "tensor '%.200s': its strides overflow", x->slice->name);
}

/* Element number of an index in a tensor of a shape. */
static uint64_t sx_ravel(const uint64_t *shape, const uint64_t *index, uint32_t ndim)
{
    uint64_t n = 0;

    for (uint32_t a = 0; a < ndim; a++)
        n = n * shape[a] + index[a];
    return n;
}

/* Append an extent of ndim axes. */
static int sx_push(sx_state *x, uint32_t source, uint64_t at, const ckpt_axis *axis, uint32_t ndim)
{
    ckpt_extent *e = NULL;

    if (x->out->extent.n >= SX_MAX_EXTENTS)
        return ckpt_fail(x->err, CKPT_ELIMIT,
                         "tensor '%.200s': its slices have more than %" PRIu64 " pieces",
                         x->slice->name, SX_MAX_EXTENTS);
    for (uint32_t a = 0; a < ndim; a++) {
        ckpt_axis *to = ckpt_vec_push(&x->out->axis);

        if (!to)
            return ckpt_fail_memory(x->err);
        *to = axis[a];
    }
    e = ckpt_vec_push(&x->out->extent);
    if (!e)
        return ckpt_fail_memory(x->err);
    *e = (ckpt_extent){.source = source, .ndim = ndim, .at = at};
    return CKPT_OK;
}

/* True if a box belongs to the copy under construction. */
static bool sx_wanted(const sx_state *x, const ckpt_slice_box *b)
{
    return b->copy == x->copy % b->n_copies;
}

/* *at += n elements of stride bytes each (packed: n elements, whole blocks). */
static int sx_move(const sx_state *x, uint64_t *at, uint64_t n, int64_t stride)
{
    uint64_t far;

    if (x->packed) {
        if (!ckpt_dtype_bytes(x->slice->dtype, n, &far))
            return ckpt_fail(x->err, CKPT_EUNSUPPORTED,
                             "tensor '%.200s': a slice ends inside a byte of packed elements",
                             x->slice->name);
    } else if (stride < 0 || !ckpt_mul(n, (uint64_t)stride, &far)) {
        return sx_overflow(x);
    }
    return ckpt_add(*at, far, at) ? CKPT_OK : sx_overflow(x);
}

/* ---- intervals ---- */

/*
 * Add the intersection of an interval of the slice and a contiguous box, as an interval of the
 * whole.
 */
static int sx_meet_run(sx_state *x, const ckpt_extent *e, const ckpt_slice_box *b)
{
    uint32_t ndim = x->s->ndim;
    uint64_t from = sx_ravel(x->slice->shape, b->from, ndim), n = 1;
    uint64_t start = e->axis[0].start, low, high, at = e->at;
    ckpt_axis axis;
    int rc;

    for (uint32_t a = 0; a < ndim; a++)
        n *= b->count[a];
    low = start > from ? start : from;
    high = start + e->axis[0].count < from + n ? start + e->axis[0].count : from + n;
    if (low >= high)
        return CKPT_OK;
    rc = sx_move(x, &at, low - start, e->axis[0].stride);
    if (rc == CKPT_OK && x->packed) {
        uint64_t whole = 0;

        rc = sx_move(x, &whole, high - low, 0);
    }
    if (rc != CKPT_OK)
        return rc;
    axis = (ckpt_axis){sx_ravel(x->s->shape, b->to, ndim) + (low - from), high - low,
                       e->axis[0].stride};
    return sx_push(x, e->source, at, &axis, 1);
}

/*
 * The first box of a rank that can intersect an interval starting at `element`. Contiguous boxes of
 * a cut axis ascend in the slice; affine ones need not.
 */
static uint64_t sx_first_run(const sx_state *x, uint64_t element)
{
    uint64_t low = x->s->first[x->rank], high = x->s->first[x->rank + 1];

    if (x->s->kind == CKPT_SLICE_AFFINE)
        return low;
    while (high - low > 1) {
        uint64_t mid = low + (high - low) / 2;

        if (sx_ravel(x->slice->shape, x->s->box[mid].from, x->s->ndim) <= element)
            low = mid;
        else
            high = mid;
    }
    return low;
}

/*
 * Intersect a flat extent of a slice with the boxes from its first element on. Boxes ascend except
 * for affine rules, which need a look at all.
 */
static int sx_flat(sx_state *x, const ckpt_extent *e)
{
    uint64_t end = e->axis[0].start + e->axis[0].count;
    int rc = CKPT_OK;

    for (uint64_t i = sx_first_run(x, e->axis[0].start);
         rc == CKPT_OK && i < x->s->first[x->rank + 1]; i++) {
        const ckpt_slice_box *b = &x->s->box[i];

        if (x->s->kind != CKPT_SLICE_AFFINE &&
            sx_ravel(x->slice->shape, b->from, x->s->ndim) >= end)
            break;
        if (sx_wanted(x, b))
            rc = sx_meet_run(x, e, b);
    }
    return rc;
}

/* ---- boxes ---- */

/* Add the intersection of a part of the slice and a box, as a box of the whole. */
static int sx_meet(sx_state *x, const sx_part *p, const ckpt_slice_box *b)
{
    ckpt_axis axis[CKPT_MAX_DIM];
    uint64_t at = p->at;
    int rc = CKPT_OK;

    for (uint32_t a = 0; rc == CKPT_OK && a < x->s->ndim; a++) {
        const ckpt_axis *mine = &p->axis[a];
        uint64_t low = mine->start > b->from[a] ? mine->start : b->from[a];
        uint64_t end = mine->start + mine->count, other = b->from[a] + b->count[a];

        end = end < other ? end : other;
        if (low >= end)
            return CKPT_OK;
        axis[a] = (ckpt_axis){b->to[a] + (low - b->from[a]), end - low, mine->stride};
        rc = sx_move(x, &at, low - mine->start, mine->stride);
    }
    return rc == CKPT_OK ? sx_push(x, p->source, at, axis, x->s->ndim) : rc;
}

/* True if a box ends before a part begins, on any axis. */
static bool sx_before(const sx_state *x, const ckpt_slice_box *b, const sx_part *p)
{
    for (uint32_t a = 0; a < x->s->ndim; a++) {
        if (b->from[a] + b->count[a] <= p->axis[a].start)
            return true;
    }
    return false;
}

/* True if a box begins after a part ends, on any axis. */
static bool sx_after(const sx_state *x, const ckpt_slice_box *b, const sx_part *p)
{
    for (uint32_t a = 0; a < x->s->ndim; a++) {
        if (b->from[a] >= p->axis[a].start + p->axis[a].count)
            return true;
    }
    return false;
}

/* Intersect a part with the boxes of its rank. Those of a cut axis ascend, affine ones need not. */
static int sx_part_boxes(sx_state *x, const sx_part *p)
{
    bool sorted = x->s->kind != CKPT_SLICE_AFFINE;
    uint64_t low = x->s->first[x->rank], end = x->s->first[x->rank + 1], high = end;
    int rc = CKPT_OK;

    while (sorted && low < high) {
        uint64_t mid = low + (high - low) / 2;

        if (sx_before(x, &x->s->box[mid], p))
            low = mid + 1;
        else
            high = mid;
    }
    for (uint64_t i = low; rc == CKPT_OK && i < end; i++) {
        if (sorted && sx_after(x, &x->s->box[i], p))
            break;
        if (sx_wanted(x, &x->s->box[i]))
            rc = sx_meet(x, p, &x->s->box[i]);
    }
    return rc;
}

/* Cut an interval of the slice into boxes and carry them over. */
static int sx_interval(sx_state *x, const ckpt_extent *e)
{
    uint64_t at = e->axis[0].start, end = at + e->axis[0].count;
    int64_t by[CKPT_MAX_DIM]; // bytes between neighbours on each axis
    uint64_t stride = (uint64_t)e->axis[0].stride;
    int rc = CKPT_OK;

    if (x->packed)
        return ckpt_fail(x->err, CKPT_EUNSUPPORTED,
                         "tensor '%.200s': boxes of packed elements (%s) are not supported",
                         x->slice->name, ckpt_dtype_name(x->slice->dtype));
    for (uint32_t a = x->s->ndim; a-- > 0;) {
        if (stride > INT64_MAX || e->axis[0].stride < 0)
            return sx_overflow(x);
        by[a] = (int64_t)stride;
        if (!ckpt_mul(stride, x->slice->shape[a], &stride))
            return sx_overflow(x);
    }
    while (rc == CKPT_OK && at < end) {
        sx_part p = {.source = e->source, .at = e->at};

        rc = sx_move(x, &p.at, at - e->axis[0].start, e->axis[0].stride);
        at = ckpt_extent_cut_next(x->slice->shape, x->s->ndim, at, end, p.axis);
        for (uint32_t a = 0; a < x->s->ndim; a++)
            p.axis[a].stride = by[a];
        if (rc == CKPT_OK)
            rc = sx_part_boxes(x, &p);
    }
    return rc;
}

/* Carry over a box of the slice. */
static int sx_box(sx_state *x, const ckpt_extent *e)
{
    sx_part p = {.source = e->source, .at = e->at};

    memcpy(p.axis, e->axis, e->ndim * sizeof *e->axis);
    return sx_part_boxes(x, &p);
}

/* Check the preconditions of the arithmetic above. */
static int sx_check(const sx_state *x, const ckpt_extent *e)
{
    const ckpt_tensor *t = x->slice;
    bool ok = e->ndim == 1 || e->ndim == t->ndim;

    for (uint32_t a = 0; ok && a < e->ndim; a++)
        ok = ckpt_within(e->axis[a].start, e->axis[a].count,
                         e->ndim == 1 ? t->n_elems : t->shape[a]);
    if (ok)
        return CKPT_OK;
    return ckpt_fail(x->err, CKPT_EMISMATCH,
                     "tensor '%.200s': an extent of the slice of rank %" PRIu32 " lies outside it",
                     t->name, x->rank);
}

/*
 * Append the extents of the whole that refer to one slice's bytes.
 *
 * slice    its extents refer to sources; flat or boxes; of the shape given to ckpt_slices_new. It
 *          may be another tensor of the same shape (a 16-bit copy, a moment).
 * copy     0 .. s->n_copies - 1: which holder, if several ranks hold the elements
 * Errors   CKPT_EUNSUPPORTED: packed elements cut inside a byte; CKPT_EFORMAT: strides beyond 64
 *          bits; CKPT_ELIMIT
 */
static int sx_extents(ckpt_slice_extents *out, const ckpt_slices *s, const ckpt_tensor *slice,
                      uint32_t rank, uint32_t copy, ckpt_err *err)
{
    sx_state x = {out, s, slice, rank, copy, ckpt_dtype_packed(slice->dtype), err};
    int rc = CKPT_OK;

    if (rank >= s->n_ranks || slice->ndim != s->ndim)
        return ckpt_fail(err, CKPT_EUSAGE, "tensor '%.200s': not a slice of rank %" PRIu32,
                         slice->name, rank);
    for (uint32_t i = 0; rc == CKPT_OK && i < slice->n_extents && s->n_elems > 0; i++) {
        ckpt_box room;
        const ckpt_extent *e = ckpt_extent_of(slice, i, &room);

        rc = sx_check(&x, e);
        if (rc != CKPT_OK)
            return rc;
        if (out->flat)
            rc = e->ndim == 1
                     ? sx_flat(&x, e)
                     : ckpt_fail(err, CKPT_EUSAGE,
                                 "tensor '%.200s': its boxes cannot be listed as intervals",
                                 slice->name);
        else
            rc = e->ndim == 1 ? sx_interval(&x, e) : sx_box(&x, e);
    }
    return rc;
}

/* ---- tensors ---- */

/* True if all slices have flat extents; then the whole can have flat ones. */
static bool sx_all_flat(const ckpt_tensor *const *slice, uint32_t n)
{
    for (uint32_t r = 0; r < n; r++) {
        for (uint32_t i = 0; !slice[r]->cut && i < slice[r]->n_extents; i++) {
            if (slice[r]->extent[i].ndim != 1)
                return false;
        }
    }
    return true;
}

/*
 * Give t, of the whole's shape, its extents: copy number `copy`, from all slices of the set. Flat
 * and ascending if possible; boxes otherwise.
 */
static int sx_back(ckpt_map *map, ckpt_tensor *t, const ckpt_slices *s, const ckpt_slice_set *set,
                   uint32_t copy, ckpt_err *err)
{
    ckpt_slice_extents all = {.flat = s->flat && sx_all_flat(set->slice, set->n)};
    size_t width;
    int rc = CKPT_OK;

    for (uint32_t r = 0; rc == CKPT_OK && r < set->n; r++)
        rc = sx_extents(&all, s, set->slice[r], r, copy, err);
    width = all.flat ? 1 : s->ndim;
    for (size_t i = 0; i < all.extent.n; i++)
        all.extent.at[i].axis = all.axis.at + i * width;
    if (all.flat && all.extent.n > 1)
        ckpt_extent_sort(all.extent.at, (uint32_t)all.extent.n);
    if (rc == CKPT_OK)
        rc = ckpt_map_back(map, t, all.extent.at, (uint32_t)all.extent.n, err);
    ckpt_vec_free(&all.extent);
    ckpt_vec_free(&all.axis);
    return rc;
}

/* Check that the slices have the same dtype and flags. */
static int sx_check_set(const ckpt_slices *s, const ckpt_slice_set *set, ckpt_err *err)
{
    const ckpt_tensor *a = set->slice[0];
    const uint32_t lazy = CKPT_TENSOR_CONJ | CKPT_TENSOR_NEG;

    for (uint32_t r = 0; r < set->n; r++) {
        const ckpt_tensor *b = set->slice[r];

        if (b->dtype != a->dtype || (b->flags & lazy) != (a->flags & lazy))
            return ckpt_fail(err, CKPT_EMISMATCH,
                             "tensor '%.200s': its dtype is %s on tensor-parallel rank 0, but %s "
                             "on rank %" PRIu32,
                             set->name, ckpt_dtype_name(a->dtype), ckpt_dtype_name(b->dtype), r);
        if (b->ndim != s->ndim || b->owner)
            return ckpt_fail(err, CKPT_EUSAGE,
                             "tensor '%.200s': the slice of rank %" PRIu32
                             " is an alias, or has another shape",
                             set->name, r);
    }
    return CKPT_OK;
}

/* The properties that the whole takes from its first slice. */
static ckpt_tensor sx_like(const ckpt_slices *s, const ckpt_tensor *slice)
{
    return (ckpt_tensor){.dtype = slice->dtype,
                         .export_dtype = slice->export_dtype,
                         .ndim = s->ndim,
                         .shape = s->shape,
                         .n_elems = s->n_elems,
                         .role = slice->role,
                         .flags = slice->flags};
}

/* Make one copy of the whole outside of the list: a twin or an addend. */
static int sx_hidden(ckpt_tensor **out, ckpt_map *map, const ckpt_slices *s,
                     const ckpt_slice_set *set, uint32_t copy, ckpt_err *err)
{
    ckpt_tensor like = sx_like(s, set->slice[0]);
    int rc = ckpt_map_add_hidden(map, set->name, strlen(set->name), &like, out, err);

    return rc == CKPT_OK ? sx_back(map, *out, s, set, copy, err) : rc;
}

/* Replace the slices of a set by their twins, listed in `room`; false if a slice has none. */
static bool sx_next_twins(ckpt_slice_set *set, const ckpt_tensor **room)
{
    for (uint32_t r = 0; r < set->n; r++) {
        room[r] = set->slice[r]->twin;
        if (!room[r])
            return false;
    }
    set->slice = room;
    return true;
}

/* Append copies first .. end-1 of a set to a chain of twins. */
static int sx_chain(ckpt_map *map, ckpt_tensor **tail, const ckpt_slices *s,
                    const ckpt_slice_set *set, const uint32_t range[2], ckpt_err *err)
{
    int rc = sx_check_set(s, set, err);

    for (uint32_t c = range[0]; rc == CKPT_OK && c < range[1]; c++) {
        ckpt_tensor *twin = NULL;

        rc = sx_hidden(&twin, map, s, set, c, err);
        (*tail)->twin = twin;
        *tail = twin;
    }
    return rc;
}

/* Give one copy its own chain of twins: for MEAN, whose slices differ. */
static int sx_twins(ckpt_map *map, ckpt_tensor *t, const ckpt_slices *s, const ckpt_slice_set *set,
                    const uint32_t range[2], ckpt_err *err)
{
    const ckpt_tensor **room = ckpt_alloc(set->n * sizeof *room);
    ckpt_slice_set twins = *set;
    ckpt_tensor *tail = t;
    int rc = room ? CKPT_OK : ckpt_fail_memory(err);

    while (tail->twin)
        tail = (ckpt_tensor *)(uintptr_t)tail->twin;
    while (rc == CKPT_OK && sx_next_twins(&twins, room))
        rc = sx_chain(map, &tail, s, &twins, range, err);
    ckpt_free(room);
    return rc;
}

/*
 * SAME and AFFINE: add other holders as twins. MEAN: add other slices as addends, each with its
 * twins.
 */
static int sx_versions(ckpt_map *map, ckpt_tensor *t, const ckpt_slices *s,
                       const ckpt_slice_set *set, ckpt_err *err)
{
    bool mean = s->kind == CKPT_SLICE_MEAN;
    ckpt_tensor *last = t, *tail = t;
    const uint32_t others[2] = {1, s->n_copies}, all[2] = {0, mean ? 1 : s->n_copies};
    int rc = CKPT_OK;

    if (!mean && s->n_copies > 1)
        rc = sx_chain(map, &tail, s, set, others, err);
    if (rc == CKPT_OK)
        rc = sx_twins(map, t, s, set, all, err);
    for (uint32_t c = 1; rc == CKPT_OK && mean && c < s->n_copies; c++) {
        const uint32_t own[2] = {c, c + 1};
        ckpt_tensor *a = NULL;

        rc = sx_hidden(&a, map, s, set, c, err);
        last->addend = a;
        last = a;
        if (rc == CKPT_OK)
            rc = sx_twins(map, a, s, set, own, err);
    }
    return rc;
}

int ckpt_slices_join(ckpt_tensor **out, ckpt_map *map, const ckpt_slice_rule *rule,
                     const ckpt_slice_set *set, ckpt_err *err)
{
    assert(out && map && rule && set);
    ckpt_slices s;
    int rc = ckpt_slices_new(&s, rule, set, err);

    *out = NULL;
    if (rc == CKPT_OK)
        rc = sx_check_set(&s, set, err);
    if (rc == CKPT_OK) {
        ckpt_tensor like = sx_like(&s, set->slice[0]);

        rc = ckpt_map_add(map, set->name, strlen(set->name), &like, out, err);
    }
    if (rc == CKPT_OK)
        rc = sx_back(map, *out, &s, set, 0, err);
    if (rc == CKPT_OK)
        rc = sx_versions(map, *out, &s, set, err);
    ckpt_slices_free(&s);
    if (rc != CKPT_OK)
        *out = NULL;
    return rc;
}
