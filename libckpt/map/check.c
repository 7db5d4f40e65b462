/* SPDX-License-Identifier: Apache-2.0 */
/*
 * check.c: checks a map before any payload is read: existing bytes cover every element exactly
 * once.
 */
#include <assert.h>
#include <inttypes.h>

#include "libckpt/base/dtype.h"
#include "libckpt/map/extent.h"
#include "libckpt/map/nest.h"

/*
 * Limit for a tensor that uses more bytes than are stored (stride 0, or overlapping strides),
 * because otherwise a file of a few bytes could ask for petabytes of output.
 */
#define CHK_MAX_BROADCAST (UINT64_C(1) << 30)

/* The part of its source that one extent uses. */
typedef struct chk_use {
    uint64_t n_elems;
    uint64_t end;   /* bytes: one past the last byte used, from the source's start */
    bool broadcast; /* an axis of stride 0 uses some element more than once */
} chk_use;

/*
 * Add up each axis by its stride in bytes. The last axis of packed elements has no stride, because
 * its whole blocks follow each other.
 */
static bool chk_strided(const ckpt_extent *e, const ckpt_dtype_info *type, chk_use *use)
{
    uint64_t last = e->at; // first byte of the last element, or run of blocks
    uint64_t span, run = type->bytes;
    uint32_t n = e->ndim;

    use->n_elems = 1;
    if (type->per > 1) {
        const ckpt_axis *a = &e->axis[--n];

        if (a->stride != 0 || a->count % type->per != 0 ||
            !ckpt_mul(a->count / type->per, type->bytes, &run))
            return false;
        use->n_elems = a->count;
    }
    for (uint32_t j = 0; j < n; j++) {
        const ckpt_axis *a = &e->axis[j];

        if (a->stride < 0 || !ckpt_mul(use->n_elems, a->count, &use->n_elems))
            return false;
        if (a->count > 1) {
            use->broadcast |= a->stride == 0;
            if (!ckpt_mul(a->count - 1, (uint64_t)a->stride, &span) || !ckpt_add(last, span, &last))
                return false;
        }
    }
    if (use->n_elems == 0) {
        use->end = 0; // the extent uses no byte
        return true;
    }
    return ckpt_add(last, run, &use->end);
}

/* Check one extent against its source. */
static int chk_extent(const ckpt_map *map, const ckpt_tensor *t, const ckpt_extent *e,
                      ckpt_err *err)
{
    const ckpt_source *s = &map->sources.at[e->source];
    const char *record = s->name ? s->name : "its data";
    const ckpt_dtype_info *type = ckpt_dtype_get(t->dtype);
    chk_use use = {0};
    uint64_t n_bytes = 0;

    if (!chk_strided(e, type, &use) || !ckpt_dtype_bytes(t->dtype, use.n_elems, &n_bytes))
        return ckpt_fail(err, CKPT_EFORMAT, "tensor '%.200s': its strides overflow", t->name);
    if (s->kind == CKPT_SOURCE_ZERO || s->kind == CKPT_SOURCE_ELSEWHERE) {
        return CKPT_OK; // zeros have no end; another process checks the bytes that it has
    }
    if (use.end > s->n_bytes)
        return ckpt_fail(err, CKPT_EFORMAT,
                         "tensor '%.200s': ends at byte %" PRIu64 " of %.100s, which has %" PRIu64
                         ": the file is cut short, or the tensor's size is wrong",
                         t->name, use.end, record, s->n_bytes);
    if ((use.broadcast || n_bytes > s->n_bytes) &&
        t->n_elems > CHK_MAX_BROADCAST / (type->per > 1 ? 1 : type->bytes))
        return ckpt_fail(err, CKPT_ELIMIT,
                         "tensor '%.200s': %" PRIu64 " elements repeat the %" PRIu64
                         " bytes of %.100s; the limit is 1 GiB",
                         t->name, t->n_elems, s->n_bytes, record);
    return CKPT_OK;
}

/* Check the extents of one tensor, which owns its bytes. */
static int chk_extents(const ckpt_map *map, const ckpt_tensor *t, ckpt_err *err)
{
    int rc = (t->flags & CKPT_TENSOR_OUTLINE) ? CKPT_OK : ckpt_extent_check(t, err);

    for (uint32_t i = 0; rc == CKPT_OK && i < t->n_extents; i++) {
        ckpt_box room;
        const ckpt_extent *e = ckpt_extent_of(t, i, &room);

        if (e->source >= map->sources.n)
            return ckpt_fail(err, CKPT_EFORMAT,
                             "tensor '%.200s': an extent refers to record %" PRIu32
                             ", but there are only %zu",
                             t->name, e->source, map->sources.n);
        rc = chk_extent(map, t, e, err);
    }
    return rc;
}

int ckpt_map_check_tensor(const ckpt_map *map, const ckpt_tensor *t, ckpt_err *err)
{
    assert(map && t);
    int rc = CKPT_OK;

    for (const ckpt_tensor *slice = t; rc == CKPT_OK && slice; slice = slice->addend) {
        for (const ckpt_tensor *c = slice; rc == CKPT_OK && c; c = c->twin)
            rc = !c->owner ? chk_extents(map, c, err) : CKPT_OK;
    }
    return rc;
}

int ckpt_map_readable(const ckpt_map *map, ckpt_err *err)
{
    assert(map);
    return map->outline ? ckpt_fail(err, CKPT_EUSAGE,
                                    "%s: it was opened as an outline, whose tensors cannot be "
                                    "read; open it without ckpt_open_opts.outline",
                                    map->path ? map->path : "the map")
                        : CKPT_OK;
}

int ckpt_map_check(const ckpt_map *map, ckpt_err *err)
{
    ckpt_err_clear(err);
    int rc = CKPT_OK;

    if (!map)
        return ckpt_fail(err, CKPT_EUSAGE, "no map to check");
    rc = ckpt_nest_check(map, err);
    for (size_t i = 0; rc == CKPT_OK && i < map->tensors.n; i++) {
        const ckpt_tensor *t = map->tensors.at[i];

        if (t->owner) {
            continue; // an alias: the list contains its owner too
        }
        rc = ckpt_map_check_tensor(map, t, err);
    }
    for (size_t i = 0; rc == CKPT_OK && i < map->sources.n; i++) {
        const ckpt_tensor *in;

        for (uint32_t k = 0; rc == CKPT_OK; k++) {
            in = ckpt_source_input(&map->sources.at[i], k);
            if (!in)
                break;
            rc = in->owner ? CKPT_OK : ckpt_map_check_tensor(map, in, err);
        }
    }
    return rc;
}
