/* SPDX-License-Identifier: Apache-2.0 */
/*
 * join.c: finds the source bytes that fill a region of a logical tensor, by intersecting boxes.
 *
 * Four cases, by the form of the extents and of the region (flat = an interval of the flattened
 * tensor):
 *     flat extents, flat region   binary search, then one piece per extent
 *     boxes, flat region          the region is cut into boxes, each intersected with each extent
 *     boxes, box region           the region is intersected with each extent
 *     flat extents, box region    overlapping extents are cut into boxes, each against the region
 * Axes that no box cuts and whose strides fit are merged first, so most tensors of many axes have
 * one or two. Boxes are produced one at a time, without allocation.
 *
 * Packed elements are handled by blocks: the arguments are divided by the elements of a block along
 * the last axis, and a block then takes the place of an element.
 */
#include <assert.h>

#include "libckpt/map/join.h"

#include <inttypes.h>

#include "libckpt/base/dtype.h"
#include "libckpt/map/extent.h"

/* One side of an intersection: a box in merged axes, and the size of one step on each axis. */
typedef struct jn_side {
    uint64_t start[CKPT_MAX_DIM]; /* elements of the merged axis */
    uint64_t count[CKPT_MAX_DIM]; /* elements */
    uint64_t by[CKPT_MAX_DIM];    /* source side: bytes; region side: elements of the region */
    uint64_t base;                /* offset of the box's first element, in the same unit */
} jn_side;

typedef struct jn_state {
    const ckpt_tensor *t;
    uint64_t per, bytes; /* elements of a block, and its bytes; all that follows counts blocks */
    ckpt_piece_fn fn;
    void *ctx;
    ckpt_err *err;
    uint64_t delivered; /* elements passed to fn so far */
    // Merged axes: axis g stands for the tensor's axes first[g]..last[g] (those longer than 1).
    unsigned n;
    uint64_t shape[CKPT_MAX_DIM];
    uint64_t unit[CKPT_MAX_DIM]; /* elements of the tensor in one step */
    uint8_t first[CKPT_MAX_DIM], last[CKPT_MAX_DIM];
    jn_side from, to;
} jn_state;

/* A map that has passed ckpt_map_check cannot cause these failures; one built by hand can. */
static int jn_overflow(const jn_state *j)
{
    return ckpt_fail(j->err, CKPT_EFORMAT, "tensor '%.200s': its strides overflow", j->t->name);
}

/* Fail: no extent covers this element of the region. */
static int jn_hole(const jn_state *j, uint64_t element)
{
    return ckpt_fail(j->err, CKPT_EMISMATCH,
                     "tensor '%.200s': element %" PRIu64 " is not covered by any shard", j->t->name,
                     element);
}

/* Fail: two extents cover this element. */
static int jn_twice(const jn_state *j, uint64_t element)
{
    return ckpt_fail(j->err, CKPT_EMISMATCH,
                     "tensor '%.200s': element %" PRIu64 " is covered twice", j->t->name, element);
}

/* Fail: a tensor's extents must be all flat or all boxes, because the search relies on it. */
static int jn_mixed(const jn_state *j)
{
    return ckpt_fail(j->err, CKPT_EMISMATCH,
                     "tensor '%.200s': its extents mix flat ranges and boxes", j->t->name);
}

static uint64_t jn_max(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

static uint64_t jn_min(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* Fail: the region or an extent begins or ends inside a block. */
static int jn_inside(const jn_state *j)
{
    return ckpt_fail(j->err, CKPT_EUNSUPPORTED,
                     "tensor '%.200s': a boundary lies inside a block of %" PRIu64
                     " elements of %s: convert it to a type without blocks first (--dtype bf16)",
                     j->t->name, j->per, ckpt_dtype_name(j->t->dtype));
}

/* Add n * by to *at; false on overflow. */
static bool jn_move(uint64_t *at, uint64_t n, uint64_t by)
{
    uint64_t far;

    return ckpt_mul(n, by, &far) && ckpt_add(*at, far, at);
}

/* ---- pieces ---- */

/*
 * Append an axis to a piece; merge it with the one before if both sides are contiguous across them.
 */
static void jn_piece_axis(ckpt_piece *p, uint64_t count, uint64_t from_by, uint64_t to_by)
{
    uint64_t from_row, to_row;

    if (count == 1)
        return;
    if (p->ndim > 0 && ckpt_mul(from_by, count, &from_row) && ckpt_mul(to_by, count, &to_row) &&
        (uint64_t)p->axis[p->ndim - 1].from_by == from_row &&
        p->axis[p->ndim - 1].to_by == to_row) {
        p->ndim--;
        count *= p->axis[p->ndim].count;
    }
    p->axis[p->ndim].count = count;
    p->axis[p->ndim].from_by = (int64_t)from_by;
    p->axis[p->ndim].to_by = to_by;
    p->ndim++;
}

/*
 * Pass a piece to fn; a single element gets the strides of a contiguous copy. The offset of its
 * last byte is checked too, so that the executor may add without an overflow check.
 */
static int jn_deliver(jn_state *j, ckpt_piece *p)
{
    uint64_t last = p->at;

    if (p->ndim == 0) {
        p->axis[0].count = 1;
        p->axis[0].from_by = (int64_t)j->bytes;
        p->axis[0].to_by = 1;
        p->ndim = 1;
    }
    for (uint32_t a = 0; a < p->ndim; a++) {
        if (!jn_move(&last, p->axis[a].count - 1, (uint64_t)p->axis[a].from_by))
            return jn_overflow(j);
    }
    j->delivered += p->n_elems * j->per;
    return j->fn(j->ctx, p, j->err);
}

/* Pass the intersection of `from` and `to` as one piece; nothing if it is empty. */
static int jn_meet(jn_state *j, uint32_t source)
{
    ckpt_piece p;
    const jn_side *from = &j->from;
    const jn_side *to = &j->to;
    uint64_t low[CKPT_MAX_DIM], count[CKPT_MAX_DIM];

    for (unsigned g = 0; g < j->n; g++) {
        uint64_t end = jn_min(from->start[g] + from->count[g], to->start[g] + to->count[g]);

        low[g] = jn_max(from->start[g], to->start[g]);
        if (end <= low[g])
            return CKPT_OK;
        count[g] = end - low[g];
    }
    p.source = source;
    p.ndim = 0;
    p.at = from->base;
    p.to = to->base;
    p.n_elems = 1;
    for (unsigned g = 0; g < j->n; g++) {
        if (from->by[g] > INT64_MAX || !jn_move(&p.at, low[g] - from->start[g], from->by[g]))
            return jn_overflow(j);
        // Cannot overflow: on the region's side all sums stay below its number of elements.
        p.to += (low[g] - to->start[g]) * to->by[g];
        p.n_elems *= count[g];
        jn_piece_axis(&p, count[g], from->by[g], to->by[g]);
    }
    return jn_deliver(j, &p);
}

/* ---- flat extents ---- */

/* Index of the first flat extent that ends after an element; n_extents if there is none. */
static uint32_t jn_search(const ckpt_tensor *t, uint64_t element)
{
    uint32_t low = 0, high = t->n_extents;
    ckpt_box room;

    if (t->cut)
        return element < t->n_elems ? (uint32_t)(element / t->cut->count) : t->n_extents;

    while (low < high) {
        uint32_t mid = low + (high - low) / 2;
        const ckpt_axis *a = ckpt_extent_of(t, mid, &room)->axis;

        // An extent is before the element if it starts and ends before it.
        if (a->start < element && a->count <= element - a->start)
            low = mid + 1;
        else
            high = mid;
    }
    // Skip empty extents that begin exactly here, because they cover nothing.
    while (low < t->n_extents && ckpt_extent_of(t, low, &room)->axis[0].count == 0)
        low++;
    return low;
}

/* Copy elements at..at+count-1 of one flat extent to the region's elements from `to`. */
static int jn_flat_piece(jn_state *j, const ckpt_extent *e, uint64_t at, uint64_t count,
                         uint64_t to)
{
    const ckpt_axis *a = &e->axis[0];
    uint64_t stride = j->per > 1 ? j->bytes : (uint64_t)a->stride, skip = at - a->start;
    ckpt_piece p;

    if (skip % j->per != 0 || count % j->per != 0 || to % j->per != 0)
        return jn_inside(j);
    p.source = e->source;
    p.at = e->at;
    p.to = to / j->per;
    p.n_elems = count / j->per;
    p.ndim = 0;
    if (a->stride < 0 || !jn_move(&p.at, skip / j->per, stride))
        return jn_overflow(j);
    jn_piece_axis(&p, p.n_elems, stride, 1);
    return jn_deliver(j, &p);
}

/* Flat extents, flat region: elements first..first+count-1. */
static int jn_flat_flat(jn_state *j, uint64_t first, uint64_t count)
{
    const ckpt_tensor *t = j->t;
    uint64_t next = first;
    uint64_t end = first + count;
    int rc = CKPT_OK;

    for (uint32_t i = jn_search(t, first); rc == CKPT_OK && next < end; i++) {
        const ckpt_extent *e;
        ckpt_box room;
        uint64_t stop;

        if (i >= t->n_extents)
            return jn_hole(j, next);
        e = ckpt_extent_of(t, i, &room);
        if (e->ndim != 1)
            return jn_mixed(j);
        if (e->axis[0].count == 0)
            continue;
        // Only the first extent may begin before the next element.
        if (e->axis[0].start > next || !ckpt_add(e->axis[0].start, e->axis[0].count, &stop))
            return jn_hole(j, next);
        if (stop <= next || (next > first && e->axis[0].start < next))
            return jn_twice(j, e->axis[0].start);
        stop = jn_min(stop, end);
        rc = jn_flat_piece(j, e, next, stop - next, next - first);
        next = stop;
    }
    return rc;
}

/* ---- merged axes ---- */

/* True if a box takes axis b whole, and its strides let axes a and b act as one. */
static bool jn_merges(const jn_state *j, const ckpt_axis *axis, unsigned a, unsigned b)
{
    const ckpt_tensor *t = j->t;
    bool blocks = j->per > 1 && b + 1 == t->ndim; // contiguous: packed elements have no stride
    uint64_t row, by = blocks ? j->bytes : (uint64_t)axis[b].stride;

    if (axis[b].start != 0 || axis[b].count != t->shape[b])
        return false;
    return axis[a].count <= 1 || (ckpt_mul(by, t->shape[b] / (blocks ? j->per : 1), &row) &&
                                  row == (uint64_t)axis[a].stride);
}

/*
 * The same for all boxes: extents, if they are boxes, and region, if it is one (its strides are
 * ignored).
 */
static bool jn_all_merge(const jn_state *j, const ckpt_axis *region, unsigned a, unsigned b)
{
    const ckpt_tensor *t = j->t;

    if (region && (region[b].start != 0 || region[b].count != t->shape[b]))
        return false;
    if (t->cut || ckpt_extent_is_flat(t, &t->extent[0]))
        return true;
    for (uint32_t i = 0; i < t->n_extents; i++) {
        if (!jn_merges(j, t->extent[i].axis, a, b))
            return false;
    }
    return true;
}

/* Choose the merged axes; region NULL: flat. The tensor has elements, so no size is 0. */
static void jn_merge(jn_state *j, const ckpt_axis *region)
{
    const ckpt_tensor *t = j->t;
    uint64_t unit = 1;

    j->n = 0;
    for (unsigned a = 0; a < t->ndim; a++) {
        if (t->shape[a] == 1)
            continue;
        if (j->n > 0 && jn_all_merge(j, region, j->last[j->n - 1], a)) {
            j->shape[j->n - 1] *= t->shape[a];
        } else {
            j->first[j->n] = (uint8_t)a;
            j->shape[j->n++] = t->shape[a];
        }
        j->last[j->n - 1] = (uint8_t)a;
    }
    if (j->n == 0) { // a single element
        j->first[0] = j->last[0] = 0;
        j->shape[0] = 1;
        j->n = 1;
    }
    j->shape[j->n - 1] /= j->per; // divides without a rest, as jn_check_blocks has checked
    for (unsigned g = j->n; g-- > 0;) {
        j->unit[g] = unit;
        unit *= j->shape[g];
    }
}

/* Compute start and count of a box on the merged axes; false: it begins or ends inside a block. */
static bool jn_fold(const jn_state *j, const ckpt_axis *axis, jn_side *side)
{
    for (unsigned g = 0; g < j->n; g++) {
        const ckpt_axis *a = &axis[j->first[g]];
        uint64_t per = g + 1 == j->n ? j->per : 1;
        uint64_t inner = j->shape[g] * per / j->t->shape[j->first[g]];

        side->start[g] = a->start * inner / per;
        side->count[g] = a->count * inner / per;
        if (a->start * inner % per != 0 || a->count * inner % per != 0)
            return false;
    }
    return true;
}

/* Use the region as a box for the receiving side. */
static int jn_fold_region(jn_state *j, const ckpt_axis *region)
{
    uint64_t by = 1;

    if (!jn_fold(j, region, &j->to))
        return jn_inside(j);
    j->to.base = 0;
    for (unsigned g = j->n; g-- > 0;) {
        j->to.by[g] = by;
        by *= j->to.count[g];
    }
    return CKPT_OK;
}

/* Use a box extent for the giving side. */
static int jn_fold_extent(jn_state *j, const ckpt_extent *e)
{
    if (!jn_fold(j, e->axis, &j->from))
        return jn_inside(j);
    j->from.base = e->at;
    for (unsigned g = 0; g < j->n; g++)
        j->from.by[g] = (uint64_t)e->axis[j->last[g]].stride;
    if (j->per > 1)
        j->from.by[j->n - 1] = j->bytes;
    return CKPT_OK;
}

/* Store the next box of elements from..to-1 (flattened) in a side; returns the element after it. */
static uint64_t jn_cut(const jn_state *j, uint64_t from, uint64_t to, jn_side *side)
{
    ckpt_axis box[CKPT_MAX_DIM];
    uint64_t next = ckpt_extent_cut_next(j->shape, j->n, from, to, box);

    for (unsigned g = 0; g < j->n; g++) {
        side->start[g] = box[g].start;
        side->count[g] = box[g].count;
    }
    return next;
}

/* ---- the cases with boxes ---- */

/* Intersect all box extents with the current receiving side. */
static int jn_boxes(jn_state *j)
{
    int rc = CKPT_OK;

    for (uint32_t i = 0; rc == CKPT_OK && i < j->t->n_extents; i++) {
        if (ckpt_extent_is_empty(&j->t->extent[i]))
            continue;
        rc = jn_fold_extent(j, &j->t->extent[i]);
        if (rc == CKPT_OK)
            rc = jn_meet(j, j->t->extent[i].source);
    }
    return rc;
}

/* Box extents, flat region. */
static int jn_boxes_flat(jn_state *j, uint64_t first, uint64_t count)
{
    int rc = CKPT_OK;

    if (first % j->per != 0 || count % j->per != 0)
        return jn_inside(j);
    first /= j->per;
    count /= j->per;
    for (unsigned g = 0; g < j->n; g++)
        j->to.by[g] = j->unit[g];
    for (uint64_t at = first; rc == CKPT_OK && at < first + count;) {
        j->to.base = at - first;
        at = jn_cut(j, at, first + count, &j->to);
        rc = jn_boxes(j);
    }
    return rc;
}

/* Intersect one flat extent, clipped to blocks from..to-1, with a box region. */
static int jn_flat_extent_box(jn_state *j, const ckpt_extent *e, uint64_t from, uint64_t to)
{
    uint64_t stride = j->per > 1 ? j->bytes : (uint64_t)e->axis[0].stride;
    uint64_t start = e->axis[0].start / j->per;
    int rc = CKPT_OK;

    if (e->axis[0].stride < 0)
        return jn_overflow(j);
    if (e->axis[0].start % j->per != 0 || e->axis[0].count % j->per != 0)
        return jn_inside(j);
    for (unsigned g = 0; g < j->n; g++) {
        if (!ckpt_mul(j->unit[g], stride, &j->from.by[g]))
            return jn_overflow(j);
    }
    while (rc == CKPT_OK && from < to) {
        j->from.base = e->at;
        if (!jn_move(&j->from.base, from - start, stride))
            return jn_overflow(j);
        from = jn_cut(j, from, to, &j->from);
        rc = jn_meet(j, e->source);
    }
    return rc;
}

/* Flat extents, box region: only those between the region's first and last element matter. */
static int jn_flat_box(jn_state *j)
{
    const ckpt_tensor *t = j->t;
    uint64_t first = 0, last = 0; // blocks
    uint64_t next;                // no later extent may begin before this element
    int rc = CKPT_OK;

    for (unsigned g = 0; g < j->n; g++) {
        first += j->to.start[g] * j->unit[g];
        last += (j->to.start[g] + j->to.count[g] - 1) * j->unit[g];
    }
    next = 0;
    for (uint32_t i = jn_search(t, first * j->per); rc == CKPT_OK && i < t->n_extents; i++) {
        ckpt_box room;
        const ckpt_extent *e = ckpt_extent_of(t, i, &room);
        uint64_t end;

        if (e->ndim != 1)
            return jn_mixed(j);
        if (e->axis[0].start > last * j->per)
            break;
        if (!ckpt_add(e->axis[0].start, e->axis[0].count, &end) || end > t->n_elems)
            return jn_overflow(j);
        if (e->axis[0].count > 0 && e->axis[0].start < next)
            return jn_twice(j, e->axis[0].start);
        next = jn_max(next, end);
        rc = jn_flat_extent_box(j, e, jn_max(e->axis[0].start / j->per, first),
                                jn_min(end / j->per, last + 1));
    }
    return rc;
}

/* ---- the join ---- */

/* Check that the region lies inside the tensor; *n_elems gets its number of elements. */
static int jn_check_region(const jn_state *j, const ckpt_axis *region, unsigned n_axes,
                           uint64_t *n_elems)
{
    const ckpt_tensor *t = j->t;
    bool flat = n_axes == 1;

    if (!flat && n_axes != t->ndim)
        return ckpt_fail(j->err, CKPT_EUSAGE,
                         "tensor '%.200s': the region has %u axes, the tensor %" PRIu32, t->name,
                         n_axes, t->ndim);
    *n_elems = 1;
    for (unsigned a = 0; a < n_axes; a++) {
        uint64_t size = flat ? t->n_elems : t->shape[a];

        if (!ckpt_within(region[a].start, region[a].count, size))
            return ckpt_fail(j->err, CKPT_EMISMATCH,
                             "tensor '%.200s': a region from element %" PRIu64 " with %" PRIu64
                             " elements exceeds the size %" PRIu64,
                             t->name, region[a].start, region[a].count, size);
        *n_elems *= region[a].count; // at most the tensor's own
    }
    return CKPT_OK;
}

/* Check the preconditions of folding: boxes inside the tensor, with its number of axes. */
static int jn_check_boxes(const jn_state *j)
{
    const ckpt_tensor *t = j->t;

    for (uint32_t i = 0; i < t->n_extents; i++) {
        const ckpt_extent *e = &t->extent[i];

        if (e->ndim != t->ndim)
            return jn_mixed(j);
        for (uint32_t a = 0; a < e->ndim; a++) {
            if (!ckpt_within(e->axis[a].start, e->axis[a].count, t->shape[a]) ||
                e->axis[a].stride < 0)
                return jn_overflow(j);
        }
    }
    return CKPT_OK;
}

/* Boxes of packed elements must consist of whole blocks, so the tensor's rows must too. */
static int jn_check_blocks(const jn_state *j)
{
    const ckpt_tensor *t = j->t;

    return t->ndim == 0 || t->shape[t->ndim - 1] % j->per == 0 ? CKPT_OK : jn_inside(j);
}

/* For a box region; it searches flat extents if merging turns the region into an interval. */
static int jn_region_box(jn_state *j, const ckpt_axis *region, bool flat_extents)
{
    int rc = jn_check_blocks(j);

    if (rc != CKPT_OK)
        return rc;
    jn_merge(j, region);
    rc = jn_fold_region(j, region);
    if (rc != CKPT_OK)
        return rc;
    if (!flat_extents)
        return jn_boxes(j);
    if (j->n == 1)
        return jn_flat_flat(j, j->to.start[0] * j->per, j->to.count[0] * j->per);
    return jn_flat_box(j);
}

/* For an interval of a tensor with box extents. */
static int jn_region_flat(jn_state *j, const ckpt_axis *region)
{
    int rc = jn_check_blocks(j);

    if (rc != CKPT_OK)
        return rc;
    jn_merge(j, NULL);
    return jn_boxes_flat(j, region->start, region->count);
}

int ckpt_join(const ckpt_tensor *t, const ckpt_axis *region, unsigned n_axes, ckpt_piece_fn fn,
              void *ctx, ckpt_err *err)
{
    assert(t && fn);
    static const ckpt_axis scalar = {0, 1, 0};
    jn_state j;
    uint64_t n_elems = 0;
    bool flat_extents = t->n_extents == 0 || t->cut || ckpt_extent_is_flat(t, &t->extent[0]);
    int rc;

    j.t = t;
    j.per = ckpt_dtype_get(t->dtype)->per;
    j.bytes = ckpt_dtype_get(t->dtype)->bytes;
    j.fn = fn;
    j.ctx = ctx;
    j.err = err;
    j.delivered = 0;
    if (t->ndim == 0 && n_axes == 0) {
        region = &scalar;
        n_axes = 1;
    }
    rc = jn_check_region(&j, region, n_axes, &n_elems);
    if (rc != CKPT_OK || n_elems == 0)
        return rc;
    if (t->n_extents == 0)
        return jn_hole(&j, 0);
    rc = flat_extents ? CKPT_OK : jn_check_boxes(&j);
    if (rc != CKPT_OK)
        return rc;
    if (n_axes > 1) {
        rc = jn_region_box(&j, region, flat_extents);
    } else if (flat_extents) {
        rc = jn_flat_flat(&j, region->start, region->count);
    } else {
        rc = jn_region_flat(&j, region);
    }
    if (rc == CKPT_OK && j.delivered != n_elems)
        return ckpt_fail(err, CKPT_EMISMATCH,
                         "tensor '%.200s': shards cover only %" PRIu64 " of %" PRIu64 " elements",
                         t->name, j.delivered, n_elems);
    return rc;
}
