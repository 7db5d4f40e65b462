/* SPDX-License-Identifier: Apache-2.0 */
/*
 * nest.c: checks and describes nested sources without reading them.
 */
#include <assert.h>
#include <inttypes.h>
#include <string.h>

#include "libckpt/base/dtype.h"
#include "libckpt/map/extent.h"
#include "libckpt/map/nest.h"

const ckpt_tensor *ckpt_source_input(const ckpt_source *s, uint32_t i)
{
    if (s->kind == CKPT_SOURCE_TENSOR)
        return i == 0 ? s->tensor : NULL;
    if (s->kind == CKPT_SOURCE_MADE) {
        const ckpt_make *m = s->memory;

        return i < m->n_inputs ? m->input[i] : NULL;
    }
    return NULL;
}

ckpt_dtype ckpt_source_dtype(const ckpt_source *s)
{
    assert(ckpt_source_nested(s));
    return s->kind == CKPT_SOURCE_TENSOR ? s->tensor->dtype : ((const ckpt_make *)s->memory)->dtype;
}

int ckpt_map_add_nested(ckpt_map *map, const ckpt_tensor *t, uint32_t *index, ckpt_err *err)
{
    assert(map && t && index);
    ckpt_source s = {.kind = CKPT_SOURCE_TENSOR, .tensor = t, .name = t->name};

    if (!ckpt_dtype_bytes(t->dtype, t->n_elems, &s.n_bytes))
        return ckpt_fail(err, CKPT_ELIMIT, "tensor %s: its size overflows", t->name);
    return ckpt_map_add_source(map, &s, index, err);
}

int ckpt_map_add_made(ckpt_map *map, ckpt_make *make, uint64_t n_elems, uint32_t *index,
                      ckpt_err *err)
{
    assert(map && make && make->make && make->name && index);
    ckpt_source s = {.kind = CKPT_SOURCE_MADE, .memory = make, .name = make->name};

    if (!ckpt_dtype_bytes(make->dtype, n_elems, &s.n_bytes))
        return ckpt_fail(err, CKPT_ELIMIT, "%s: its size overflows", make->name);
    return ckpt_map_add_source(map, &s, index, err);
}

/* The depth of one source: one more than the deepest source inside it. */
static unsigned nest_depth(const ckpt_map *map, const ckpt_source *s, const uint8_t *depth)
{
    const ckpt_tensor *in;
    unsigned deepest = 0;

    for (uint32_t i = 0; (in = ckpt_source_input(s, i)) != NULL; i++) {
        in = in->owner ? in->owner : in;
        for (const ckpt_tensor *slice = in; slice; slice = slice->addend) {
            for (const ckpt_tensor *c = slice; c; c = c->twin) {
                for (uint32_t k = 0; k < c->n_extents; k++) {
                    uint32_t at = ckpt_extent_source(c, k);
                    if (at < map->sources.n && depth[at] > deepest)
                        deepest = depth[at];
                }
            }
        }
    }
    return deepest + 1;
}

/* One round over all nested sources; true if a depth grew. */
static bool nest_round(const ckpt_map *map, uint8_t *depth)
{
    bool grew = false;

    for (size_t i = 0; i < map->sources.n; i++) {
        const ckpt_source *s = &map->sources.at[i];
        unsigned d = ckpt_source_nested(s) ? nest_depth(map, s, depth) : 0;

        grew = grew || d > depth[i];
        if (d > depth[i])
            depth[i] = (uint8_t)(d <= CKPT_NEST_MAX ? d : CKPT_NEST_MAX + 1);
        if (depth[i] > CKPT_NEST_MAX)
            return true;
    }
    return grew;
}

/* Check that a nested source has the size of its tensor or operation. */
static int nest_sizes(const ckpt_map *map, bool *any, ckpt_err *err)
{
    for (size_t i = 0; i < map->sources.n; i++) {
        const ckpt_source *s = &map->sources.at[i];
        uint64_t n = 0;

        *any = *any || ckpt_source_nested(s);
        if (s->kind == CKPT_SOURCE_TENSOR &&
            (!ckpt_dtype_bytes(s->tensor->dtype, s->tensor->n_elems, &n) || n != s->n_bytes))
            return ckpt_fail(err, CKPT_EMISMATCH,
                             "tensor %s has %" PRIu64 " bytes, but its source has %" PRIu64,
                             s->tensor->name, n, s->n_bytes);
    }
    return CKPT_OK;
}

int ckpt_nest_check(const ckpt_map *map, ckpt_err *err)
{
    assert(map);
    bool any = false, grew = true;
    int rc = nest_sizes(map, &any, err);
    uint8_t *depth;

    if (rc != CKPT_OK || !any)
        return rc;
    depth = ckpt_alloc(map->sources.n);
    if (!depth)
        return ckpt_fail_memory(err);
    // Depths still grow after the most allowed levels only in a cycle.
    for (unsigned i = 0; i <= CKPT_NEST_MAX && grew; i++)
        grew = nest_round(map, depth);
    for (size_t i = 0; rc == CKPT_OK && i < map->sources.n; i++) {
        if (depth[i] > CKPT_NEST_MAX)
            rc = ckpt_fail(err, CKPT_EUSAGE,
                           "%s: its source tensors are nested more than %u deep, or in a circle",
                           map->sources.at[i].name ? map->sources.at[i].name : "a tensor",
                           CKPT_NEST_MAX);
    }
    ckpt_free(depth);
    return rc;
}

/* Mark the sources of one tensor's extents, and the sources inside them. */
static void nest_mark_extents(const ckpt_map *map, const ckpt_tensor *t, uint8_t *used)
{
    for (uint32_t i = 0; i < t->n_extents; i++) {
        uint32_t at = ckpt_extent_source(t, i);
        const ckpt_tensor *in;

        if (at >= map->sources.n || used[at])
            continue;
        // Each source is entered only once, so the recursion is at most as deep as nested sources.
        used[at] = 1;
        for (uint32_t k = 0; (in = ckpt_source_input(&map->sources.at[at], k)) != NULL; k++)
            ckpt_nest_mark(map, in->owner ? in->owner : in, used);
    }
}

void ckpt_nest_mark(const ckpt_map *map, const ckpt_tensor *t, uint8_t *used)
{
    for (; t != NULL; t = t->addend) {
        for (const ckpt_tensor *twin = t; twin != NULL; twin = twin->twin)
            nest_mark_extents(map, twin, used);
    }
}

const char *ckpt_nest_file(const ckpt_map *map, const ckpt_tensor *t)
{
    for (unsigned i = 0; t && i <= CKPT_NEST_MAX; i++) {
        const ckpt_source *s;

        t = t->owner ? t->owner : t;
        s = t->n_extents > 0 ? &map->sources.at[ckpt_extent_source(t, 0)] : NULL;
        if (s && s->kind == CKPT_SOURCE_FILE)
            return map->files.at[s->file].path;
        t = s ? ckpt_source_input(s, 0) : NULL;
    }
    return "memory";
}

ckpt_tensor *ckpt_nest_hide(ckpt_map *map, const ckpt_tensor *t, ckpt_err *err)
{
    const ckpt_tensor *o = t->owner ? t->owner : t;
    ckpt_tensor like = *o, *made = NULL;

    like.owner = NULL;
    if (ckpt_map_add_hidden(map, o->name, strlen(o->name), &like, &made, err) != CKPT_OK)
        return NULL;
    ckpt_extent_share(made, o);
    return made;
}
