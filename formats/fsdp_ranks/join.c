/* SPDX-License-Identifier: Apache-2.0 */
/*
 * join.c: collects the pieces of a tensor from the ranks' files, and makes a tensor of the map.
 *
 * If several ranks have the same box (replicas of HSDP, plain tensors), the first rank's is used.
 * The others become twins, which are compared when the values are read.
 */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "formats/fsdp_ranks/ranks.h"
#include "libckpt/base/dtype.h"
#include "libckpt/map/view.h"

void ckpt_ranks_set_free(ckpt_ranks_set *set)
{
    for (size_t i = 0; i < set->item.n; i++)
        ckpt_vec_free(&set->item.at[i].piece);
    ckpt_vec_free(&set->item);
    ckpt_index_free(&set->index);
}

/* ---- names ---- */

static bool rjn_is(const void *ctx, uint32_t number, const void *key)
{
    return strcmp(((const ckpt_ranks_item *)ctx)[number].name, key) == 0;
}

ckpt_ranks_item *ckpt_ranks_find(const ckpt_ranks_set *set, const char *name)
{
    uint32_t hash = ckpt_hash_bytes(name, strlen(name), 0),
             at = ckpt_index_find(&set->index, hash, rjn_is, set->item.at, name);

    return at == CKPT_INDEX_NONE ? NULL : &set->item.at[at];
}

/* Find the item of a name, or make it with the first rank's description; NULL: no memory. */
static ckpt_ranks_item *rjn_item(ckpt_ranks_set *set, ckpt_arena *arena, const char *name,
                                 const ckpt_ranks_part *part)
{
    ckpt_ranks_item *item = ckpt_ranks_find(set, name);
    const char *copy = item ? name : ckpt_arena_string(arena, name, strlen(name));
    const uint64_t *shape =
        item ? NULL : ckpt_arena_copy(arena, part->shape, (part->ndim + 1) * sizeof *part->shape);

    if (item)
        return item;
    const char *device =
        part->device ? ckpt_arena_string(arena, part->device, strlen(part->device)) : NULL;
    item = copy && shape ? ckpt_vec_push(&set->item) : NULL;
    if (!item)
        return NULL;
    *item = (ckpt_ranks_item){.name = copy,
                              .kind = part->kind,
                              .dtype = part->dtype,
                              .ndim = part->ndim,
                              .shape = shape,
                              .copies = part->copies,
                              .device = device};
    return ckpt_index_add(&set->index, ckpt_hash_bytes(copy, strlen(copy), 0),
                          (uint32_t)(set->item.n - 1))
               ? item
               : NULL;
}

/* ---- pieces ---- */

/* Add a file's storage as a source of the output map. */
static int rjn_source(const ckpt_ranks_file *file, uint32_t from, uint32_t *out, ckpt_err *err)
{
    assert(from < file->of->sources.n);
    ckpt_source s;
    int rc;

    if (file->source[from] != UINT32_MAX) {
        *out = file->source[from];
        return CKPT_OK;
    }
    s = file->of->sources.at[from];
    s.name = s.name ? ckpt_arena_string(file->map->arena, s.name, strlen(s.name)) : NULL;
    rc = ckpt_map_add_source(file->map, &s, out, err);
    if (rc == CKPT_OK)
        file->source[from] = *out;
    return rc;
}

/* Add a box as a piece of an item, with the view's strides. */
static int rjn_piece(const ckpt_ranks_file *file, ckpt_ranks_item *item, const ckpt_ranks_box *box,
                     ckpt_err *err)
{
    assert(box->local && box->local->ndim == item->ndim);
    const ckpt_tensor_value *v = box->local;
    ckpt_axis *axis = ckpt_arena_array(file->map->arena, item->ndim + 1, sizeof *axis);
    ckpt_ranks_piece piece = {.rank = file->where.rank, .n = 1, .rows = ckpt_view_is_plain(v)};
    uint64_t width = ckpt_dtype_get(item->dtype)->bits / 8, by;
    ckpt_ranks_piece *slot;
    int rc;

    if (!axis)
        return ckpt_fail_memory(err);
    for (uint32_t k = 0; k < item->ndim; k++) {
        if (!ckpt_mul(v->shape[k] > 1 ? v->stride[k] : 0, width, &by) || by > INT64_MAX)
            return ckpt_fail(err, CKPT_EFORMAT, "%s: %.200s: a stride overflows", file->where.file,
                             file->where.key);
        axis[k] = (ckpt_axis){box->start[k], box->count[k], (int64_t)by};
        piece.n *= box->count[k]; // no overflow: checked when the local tensor was read
        piece.rows &= k == 0 || box->count[k] == item->shape[k];
    }
    piece.axis = axis;
    if (!v->storage || v->storage->source == UINT32_MAX ||
        !ckpt_dtype_bytes(item->dtype, v->offset, &piece.at))
        return ckpt_fail(err, CKPT_EFORMAT, "%s: %.200s has no values", file->where.file,
                         file->where.key);
    rc = rjn_source(file, v->storage->source, &piece.source, err);
    slot = rc == CKPT_OK ? ckpt_vec_push(&item->piece) : NULL;
    if (rc != CKPT_OK)
        return rc;
    if (!slot)
        return ckpt_fail_memory(err);
    *slot = piece;
    return CKPT_OK;
}

/* Check that two ranks describe the same tensor. */
static int rjn_agrees(const ckpt_ranks_file *file, ckpt_ranks_item *item,
                      const ckpt_ranks_part *part, ckpt_err *err)
{
    bool same = item->ndim == part->ndim &&
                memcmp(item->shape, part->shape, part->ndim * sizeof *part->shape) == 0;

    if (item->kind != part->kind || item->dtype != part->dtype ||
        (!same && part->kind != CKPT_RANKS_PLAIN))
        return ckpt_fail(err, CKPT_EMISMATCH,
                         "%s: %.200s is a tensor of another shape, dtype or kind than in the files "
                         "of lower ranks: the files may be from different saves",
                         file->where.file, file->where.key);
    item->uneven |= !same;
    if (!same && (item->ndim != 1 || part->ndim != 1))
        return ckpt_fail(err, CKPT_EMISMATCH, "%s: %.200s has another shape than in lower ranks",
                         file->where.file, file->where.key);
    return CKPT_OK;
}

int ckpt_ranks_add(ckpt_ranks_set *set, const ckpt_ranks_file *file, const char *name,
                   const ckpt_value *v, ckpt_err *err)
{
    assert(set && file && name && v);
    ckpt_ranks_part part = {0};
    ckpt_ranks_item *item = NULL;
    int rc = ckpt_ranks_part_read(&part, v, &file->where, err);

    if (rc == CKPT_OK) {
        item = rjn_item(set, file->map->arena, name, &part);
        rc = item ? rjn_agrees(file, item, &part, err) : ckpt_fail_memory(err);
    }
    for (size_t i = 0; rc == CKPT_OK && i < part.box.n; i++)
        rc = rjn_piece(file, item, &part.box.at[i], err);
    if (rc == CKPT_OK)
        item->n_held++;
    ckpt_vec_free(&part.box);
    return rc;
}

/* ---- tensors ---- */

/* Sort boxes by their first element in row-major order, equal boxes by rank. */
static int rjn_order(const void *pa, const void *pb)
{
    const ckpt_ranks_piece *a = pa, *b = pb;

    for (uint32_t k = 0; a->axis[k].count != 0; k++) { // an empty axis follows the last one
        if (a->axis[k].start != b->axis[k].start)
            return a->axis[k].start < b->axis[k].start ? -1 : 1;
    }
    return (a->rank > b->rank) - (a->rank < b->rank);
}

static bool rjn_same_box(const ckpt_ranks_piece *a, const ckpt_ranks_piece *b, uint32_t ndim)
{
    for (uint32_t k = 0; k < ndim; k++) {
        if (a->axis[k].start != b->axis[k].start || a->axis[k].count != b->axis[k].count)
            return false;
    }
    return true;
}

/* Make the extent of a piece: an interval of the flattened tensor, or a box. */
static bool rjn_extent(ckpt_arena *arena, const ckpt_ranks_item *item, const ckpt_ranks_piece *p,
                       bool rows, ckpt_extent *e)
{
    ckpt_axis *axis;

    *e = (ckpt_extent){.source = p->source, .at = p->at, .ndim = item->ndim, .axis = p->axis};
    if (!rows)
        return true;
    axis = ckpt_arena_array(arena, 1, sizeof *axis);
    if (!axis)
        return false;
    *axis = (ckpt_axis){0, p->n, (int64_t)(ckpt_dtype_get(item->dtype)->bits / 8)};
    if (item->ndim > 0) // whole rows, and not empty
        axis->start = p->axis[0].start * (p->n / p->axis[0].count);
    e->ndim = 1;
    e->axis = axis;
    return true;
}

/* The extents of one copy. */
typedef struct rjn_copy {
    ckpt_extent *extent; /* room for one per piece */
    uint32_t n;
    bool more; /* some box has more copies */
} rjn_copy;

/*
 * Make the extents of copy number `copy`: each box from the rank with that number among its
 * holders, or from the first if there are fewer.
 */
static bool rjn_extents(ckpt_arena *arena, const ckpt_ranks_item *item, size_t copy, bool rows,
                        rjn_copy *out)
{
    const ckpt_ranks_piece *p = item->piece.at;

    out->n = 0;
    out->more = false;
    for (size_t i = 0, next; i < item->piece.n; i = next) {
        for (next = i + 1; next < item->piece.n && rjn_same_box(&p[i], &p[next], item->ndim);)
            next++;
        out->more |= next - i > copy + 1;
        if (!rjn_extent(arena, item, &p[next - i > copy ? i + copy : i], rows,
                        &out->extent[out->n++]))
            return false;
    }
    return true;
}

/* Set the tensor's extents, and add a twin for each further copy. */
static int rjn_back(ckpt_map *map, ckpt_ranks_item *item, ckpt_tensor *t, ckpt_err *err)
{
    rjn_copy made = {.extent = ckpt_alloc((item->piece.n + 1) * sizeof *made.extent), .more = true};
    bool rows = true;
    int rc = made.extent ? CKPT_OK : ckpt_fail_memory(err);

    for (size_t i = 0; i < item->piece.n; i++)
        rows &= item->piece.at[i].rows;
    for (size_t copy = 0; rc == CKPT_OK && made.more; copy++) {
        ckpt_tensor *twin = NULL;
        if (copy > 0) {
            const ckpt_tensor like = {.dtype = t->dtype,
                                      .ndim = t->ndim,
                                      .shape = t->shape,
                                      .role = t->role,
                                      .flags = t->flags};
            rc = ckpt_map_add_hidden(map, t->name, strlen(t->name), &like, &twin, err);
        }
        if (rc == CKPT_OK && !rjn_extents(map->arena, item, copy, rows, &made))
            rc = ckpt_fail_memory(err);
        if (rc == CKPT_OK)
            rc = ckpt_map_back(map, twin ? twin : t, made.extent, made.n, err);
        if (twin) {
            t->twin = twin;
            t = twin;
        }
    }
    ckpt_free(made.extent);
    return rc;
}

int ckpt_ranks_emit(ckpt_tensor **out, ckpt_map *map, ckpt_ranks_item *item,
                    const ckpt_ranks_name *as, ckpt_err *err)
{
    assert(map && item && as && as->name);
    const ckpt_ranks_item *shape = as->like ? as->like : item;
    const ckpt_tensor like = {
        .dtype = item->dtype, .ndim = shape->ndim, .shape = shape->shape, .role = as->role};
    ckpt_tensor *t;
    int rc = ckpt_map_add(map, as->name, strlen(as->name), &like, &t, err);

    if (out)
        *out = rc == CKPT_OK ? t : NULL;
    if (rc != CKPT_OK || t->n_elems == 0)
        return rc;
    if (item->piece.n > 1)
        qsort(item->piece.at, item->piece.n, sizeof *item->piece.at, rjn_order);
    return rjn_back(map, item, t, err);
}

bool ckpt_ranks_same(const ckpt_ranks_item *a, const ckpt_ranks_item *b)
{
    assert(a && b);
    bool same = a->piece.n > 0 && a->piece.n == b->piece.n && a->ndim == b->ndim &&
                a->dtype == b->dtype && memcmp(a->shape, b->shape, a->ndim * sizeof *a->shape) == 0;

    for (size_t i = 0; same && i < a->piece.n; i++) {
        const ckpt_ranks_piece *p = &a->piece.at[i], *q = &b->piece.at[i];
        same = p->source == q->source && p->at == q->at && rjn_same_box(p, q, a->ndim);
    }
    return same;
}
