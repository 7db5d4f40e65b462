/* SPDX-License-Identifier: Apache-2.0 */
/*
 * extent.c: cuts flat intervals into boxes, and checks that extents cover a tensor exactly once.
 */
#include "libckpt/map/extent.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "libckpt/base/mem.h"

/*
 * The most pairs of boxes to compare before a tensor is refused (half a second), and the most steps
 * to find the first hole. Only hostile files reach these limits: a real tensor has one box per
 * rank, and a sort along one axis separates them.
 */
#define XT_MAX_PAIRS UINT64_C(50000000)
#define XT_MAX_STEPS 100000

/*
 * The product skips zeros, which are only remembered, because {0, 2^40, 2^40} is as impossible as
 * {2^40, 2^40}.
 */
bool ckpt_shape_elems(const uint64_t *shape, unsigned ndim, uint64_t *out)
{
    assert((shape || ndim == 0) && out);
    uint64_t n = 1;
    bool empty = false;

    for (unsigned j = 0; j < ndim; j++) {
        if (shape[j] == 0)
            empty = true;
        else if (!ckpt_mul(n, shape[j], &n))
            return false;
    }
    *out = empty ? 0 : n;
    return true;
}

/*
 * The longest box that begins at `from`: whole steps of the slowest axis to which `from` is aligned
 * and of which one step still fits. It covers faster axes completely and slower ones at a single
 * index. At most n-1 such boxes climb to the slowest axis, one is the bulk, and n-1 descend: 2n-1.
 */
uint64_t ckpt_extent_cut_next(const uint64_t *shape, unsigned ndim, uint64_t from, uint64_t to,
                              ckpt_axis *out)
{
    uint64_t unit = 1; // elements in one step of the current axis
    uint64_t rest = from;
    uint64_t count = 0;

    assert(ndim >= 1 && ndim <= CKPT_MAX_DIM && from < to);
    // from the fastest axis outwards, extend the step while `from` is aligned to it and it fits
    for (unsigned j = ndim; j-- > 0;) {
        uint64_t index = rest % shape[j];
        bool fits = from % unit == 0 && unit <= to - from;

        if (fits) {
            uint64_t steps = (to - from) / unit;

            count = steps < shape[j] - index ? steps : shape[j] - index;
            out[j] = (ckpt_axis){index, count, 0};
            for (unsigned k = j + 1; k < ndim; k++) {
                out[k] = (ckpt_axis){0, shape[k], 0};
            }
            count *= unit;
        } else {
            out[j] = (ckpt_axis){index, 1, 0};
        }
        rest /= shape[j];
        // Cannot overflow: the outermost product is the tensor's own number of elements.
        unit *= shape[j];
    }
    return from + count;
}

bool ckpt_extent_is_flat(const ckpt_tensor *t, const ckpt_extent *e)
{
    (void)t; // an extent of a tensor with one axis is an interval, too
    return e->ndim == 1;
}

static int xt_flat_order(const void *a, const void *b)
{
    const ckpt_axis *x = ((const ckpt_extent *)a)->axis;
    const ckpt_axis *y = ((const ckpt_extent *)b)->axis;

    if (x->start != y->start)
        return x->start < y->start ? -1 : 1;
    return x->count < y->count ? -1 : x->count > y->count;
}

void ckpt_extent_sort(ckpt_extent *extent, uint32_t n)
{
    assert(extent || n == 0);
    qsort(extent, n, sizeof *extent, xt_flat_order);
}

/* ---- sharing extents ---- */

void ckpt_extent_share(ckpt_tensor *t, const ckpt_tensor *of)
{
    t->extent = of->extent;
    t->cut = of->cut;
    t->n_extents = of->n_extents;
}

void ckpt_extent_own(ckpt_tensor *t, ckpt_tensor *const *all, size_t n)
{
    assert(t->owner);
    const ckpt_tensor *owner = t->owner;

    ckpt_extent_share(t, owner);
    t->twin = owner->twin;
    t->addend = owner->addend;
    t->owner = NULL;
    for (size_t i = 0; i < n; i++) {
        if (all[i]->owner == owner)
            all[i]->owner = t;
    }
}

bool ckpt_extent_is_shared(const ckpt_tensor *a, const ckpt_tensor *b)
{
    return a->n_extents > 0 && a->extent == b->extent && a->cut == b->cut;
}

ckpt_extent *ckpt_extent_list(const ckpt_tensor *t, uint32_t shift)
{
    ckpt_extent *e = ckpt_alloc(t->n_extents * (sizeof *e + sizeof(ckpt_box)));

    if (!e)
        return NULL;

    ckpt_box *room =
        (ckpt_box *)(void *)(e + t->n_extents); // buffer for an extent that a rule computes
    for (uint32_t i = 0; i < t->n_extents; i++) {
        e[i] = *ckpt_extent_of(t, i, &room[i]);
        e[i].source += shift;
    }
    return e;
}

/* ---- each element exactly once ---- */

bool ckpt_extent_is_empty(const ckpt_extent *e)
{
    for (uint32_t j = 0; j < e->ndim; j++) {
        if (e->axis[j].count == 0)
            return true;
    }
    return false;
}

uint64_t ckpt_extent_count(const ckpt_extent *e)
{
    uint64_t n = 1;

    for (uint32_t j = 0; j < e->ndim; j++)
        n *= e->axis[j].count;
    return n;
}

/* Check ascending intervals: each must begin at the end of the one before. */
static int xt_check_flat(const ckpt_tensor *t, ckpt_err *err)
{
    uint64_t next = 0; // first element not yet covered

    for (uint32_t i = 0; i < t->n_extents; i++) {
        ckpt_box room;
        const ckpt_extent *e = ckpt_extent_of(t, i, &room);
        const ckpt_axis *a = &e->axis[0];

        if (e->ndim != 1)
            return ckpt_fail(err, CKPT_EMISMATCH,
                             "tensor '%.200s': its extents mix flat ranges and boxes", t->name);
        if (!ckpt_within(a->start, a->count, t->n_elems))
            return ckpt_fail(err, CKPT_EMISMATCH,
                             "tensor '%.200s': an extent from element %" PRIu64 " with %" PRIu64
                             " elements exceeds the tensor's %" PRIu64,
                             t->name, a->start, a->count, t->n_elems);
        // check empty extents too, because the binary search relies on their order
        if (a->start != next) {
            return ckpt_fail(err, CKPT_EMISMATCH, "tensor '%.200s': element %" PRIu64 " is %s",
                             t->name, a->start < next ? a->start : next,
                             a->start < next ? "covered twice" : "not covered by any shard");
        }
        next += a->count;
    }
    if (next != t->n_elems)
        return ckpt_fail(err, CKPT_EMISMATCH,
                         "tensor '%.200s': element %" PRIu64
                         " is not covered by any shard (%" PRIu64 " of %" PRIu64 " are missing)",
                         t->name, next, t->n_elems - next, t->n_elems);
    return CKPT_OK;
}

/* Check that every box has the tensor's axes and lies inside it; *covered sums their elements. */
static int xt_check_inside(const ckpt_tensor *t, uint64_t *covered, ckpt_err *err)
{
    *covered = 0;
    for (uint32_t i = 0; i < t->n_extents; i++) {
        const ckpt_extent *e = &t->extent[i];

        if (e->ndim != t->ndim)
            return ckpt_fail(err, CKPT_EMISMATCH,
                             "tensor '%.200s': its extents mix flat ranges and boxes", t->name);
        for (uint32_t j = 0; j < e->ndim; j++) {
            if (!ckpt_within(e->axis[j].start, e->axis[j].count, t->shape[j]))
                return ckpt_fail(err, CKPT_EMISMATCH,
                                 "tensor '%.200s': on axis %" PRIu32 ", an extent from %" PRIu64
                                 " with %" PRIu64 " elements exceeds the axis's %" PRIu64,
                                 t->name, j, e->axis[j].start, e->axis[j].count, t->shape[j]);
        }
        if (!ckpt_add(*covered, ckpt_extent_count(e), covered))
            return ckpt_fail(err, CKPT_EMISMATCH,
                             "tensor '%.200s': its elements are covered many "
                             "times over",
                             t->name);
    }
    return CKPT_OK;
}

/*
 * The axis that separates the boxes best: the one with the smallest sum of lengths, so that a sweep
 * along it compares few boxes at a time (rows of a sharded matrix: only one).
 */
static uint32_t xt_sweep_axis(const ckpt_tensor *t)
{
    uint32_t best = 0;
    double least = 0;

    for (uint32_t j = 0; j < t->ndim; j++) {
        double sum = 0;

        for (uint32_t i = 0; i < t->n_extents; i++)
            sum += (double)t->extent[i].axis[j].count / (double)t->shape[j];
        if (j == 0 || sum < least) {
            best = j;
            least = sum;
        }
    }
    return best;
}

typedef struct xt_key {
    uint64_t start;
    uint32_t extent;
} xt_key;

/* Break ties by index, so that the same file gives the same message everywhere. */
static int xt_compare(const void *a, const void *b)
{
    const xt_key *x = a;
    const xt_key *y = b;

    if (x->start != y->start)
        return x->start < y->start ? -1 : 1;
    return x->extent < y->extent ? -1 : x->extent > y->extent;
}

/* Sort; most tensors list their boxes in order. */
static void xt_sort(xt_key *key, size_t n)
{
    size_t i = 1;

    while (i < n && xt_compare(&key[i - 1], &key[i]) <= 0)
        i++;
    if (i < n)
        qsort(key, n, sizeof *key, xt_compare);
}

/* True if two boxes overlap; *first is then the flattened index of the first common element. */
static bool xt_meet(const ckpt_tensor *t, const ckpt_extent *a, const ckpt_extent *b,
                    uint64_t *first)
{
    *first = 0;
    for (uint32_t j = 0; j < t->ndim; j++) {
        const ckpt_axis *x = &a->axis[j];
        const ckpt_axis *y = &b->axis[j];
        uint64_t low = x->start > y->start ? x->start : y->start;

        if (low >= x->start + x->count || low >= y->start + y->count)
            return false;
        *first = *first * t->shape[j] + low;
    }
    return true;
}

/* Compare each box with all boxes that begin before it ends on the sweep axis. */
static int xt_sweep(const ckpt_tensor *t, const xt_key *key, uint32_t n, uint32_t axis,
                    ckpt_err *err)
{
    uint64_t pairs = 0;

    for (uint32_t i = 0; i < n; i++) {
        const ckpt_extent *a = &t->extent[key[i].extent];
        uint64_t end = a->axis[axis].start + a->axis[axis].count;

        for (uint32_t k = i + 1; k < n && key[k].start < end; k++) {
            uint64_t first;

            if (xt_meet(t, a, &t->extent[key[k].extent], &first))
                return ckpt_fail(err, CKPT_EMISMATCH,
                                 "tensor '%.200s': element %" PRIu64 " is covered twice", t->name,
                                 first);
            if (++pairs > XT_MAX_PAIRS)
                return ckpt_fail(err, CKPT_ELIMIT,
                                 "tensor '%.200s': its %" PRIu32 " boxes are too many to compare",
                                 t->name, t->n_extents);
        }
    }
    return CKPT_OK;
}

/* Sort the boxes along the sweep axis, without empty ones, and sweep. */
static int xt_check_disjoint(const ckpt_tensor *t, ckpt_err *err)
{
    uint32_t axis = xt_sweep_axis(t);
    uint32_t n = 0;
    xt_key *key = ckpt_alloc(t->n_extents * sizeof *key);
    int rc;

    if (!key)
        return ckpt_fail_memory(err);
    for (uint32_t i = 0; i < t->n_extents; i++) {
        if (ckpt_extent_count(&t->extent[i]) > 0) {
            key[n++] = (xt_key){t->extent[i].axis[axis].start, i};
        }
    }
    xt_sort(key, n);
    rc = xt_sweep(t, key, n, axis, err);
    ckpt_free(key);
    return rc;
}

/*
 * True if the box contains the element of flattened index `at`; *skip gets the elements up to its
 * end.
 */
static bool xt_holds(const ckpt_tensor *t, const ckpt_extent *e, uint64_t at, uint64_t *skip)
{
    for (uint32_t j = t->ndim; j-- > 0;) {
        const ckpt_axis *x = &e->axis[j];
        uint64_t index = at % t->shape[j];

        if (index < x->start || index - x->start >= x->count)
            return false;
        if (j == t->ndim - 1)
            *skip = x->start + x->count - index;
        at /= t->shape[j];
    }
    return true;
}

/*
 * Find the first element outside of all boxes by walking along the rows; UINT64_MAX if that takes
 * too long. The boxes are disjoint.
 */
static uint64_t xt_first_hole(const ckpt_tensor *t)
{
    uint64_t at = 0;
    uint32_t i = 0;

    for (uint32_t steps = 0; steps < XT_MAX_STEPS && i < t->n_extents; steps++) {
        uint64_t skip = 0;

        if (xt_holds(t, &t->extent[i], at, &skip)) {
            at += skip;
            i = 0;
        } else {
            i++;
        }
    }
    return i == t->n_extents ? at : UINT64_MAX;
}

/*
 * Check boxes: if they are inside and disjoint, and have as many elements as the tensor, they cover
 * it exactly once.
 */
static int xt_check_boxes(const ckpt_tensor *t, ckpt_err *err)
{
    uint64_t covered;
    int rc = xt_check_inside(t, &covered, err);

    if (rc == CKPT_OK && t->n_extents > 1 && t->n_elems > 0)
        rc = xt_check_disjoint(t, err);
    if (rc == CKPT_OK && covered != t->n_elems) {
        uint64_t hole = xt_first_hole(t);
        char first[48] = "some elements";

        if (hole != UINT64_MAX)
            (void)snprintf(first, sizeof first, "element %" PRIu64, hole);
        return ckpt_fail(err, CKPT_EMISMATCH,
                         "tensor '%.200s': %s not covered by any shard (%" PRIu64 " of %" PRIu64
                         " are missing)",
                         t->name, first, t->n_elems - covered, t->n_elems);
    }
    return rc;
}

int ckpt_extent_check(const ckpt_tensor *t, ckpt_err *err)
{
    if (t->n_extents == 0 || t->cut || ckpt_extent_is_flat(t, &t->extent[0]))
        return xt_check_flat(t, err);
    return xt_check_boxes(t, err);
}
