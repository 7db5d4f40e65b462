/* SPDX-License-Identifier: Apache-2.0 */
/*
 * savepoint.c: remembers a map before a change, and restores it if the change fails.
 *
 * Tensors and states keep their addresses, because callers hold pointers to tensors. A savepoint
 * therefore copies their members instead of the objects, and the restored map has the same objects.
 */
#include <assert.h>
#include <string.h>

#include "libckpt/map/map.h"
#include "libckpt/map/savepoint.h"
#include "libckpt/map/state.h"

/* A tensor and its former members. */
typedef struct svp_tensor {
    ckpt_tensor *at, was;
} svp_tensor;

/* A state and its former members; the lists in `was` are copies. */
typedef struct svp_state {
    ckpt_state *at, was;
} svp_state;

CKPT_VEC(svp_tensors, svp_tensor);
CKPT_VEC(svp_states, svp_state);

/* The lists in `was` are copies, but for files, sources and children, which a change extends. */
struct ckpt_savepoint {
    ckpt_map *map, was;
    ckpt_pair *metadata; /* the entries of was.metadata */
    svp_tensors tensors;
    svp_states states;
};

/*
 * Copy n bytes to the heap; false: no memory. No bytes have no copy. out points to a typed pointer,
 * and is written as bytes because of aliasing rules.
 */
static bool svp_copy(void *out, const void *from, size_t n)
{
    void *copy = n > 0 ? ckpt_alloc(n) : NULL;

    if (copy)
        memcpy(copy, from, n);
    memcpy(out, &copy, sizeof copy);
    return copy || n == 0;
}

/* Replace a list's items, which belong to the map, by a copy; false: no memory, and no items. */
#define SVP_OWN(v) svp_own(&(v)->at, &(v)->n, &(v)->room, sizeof *(v)->at)

static bool svp_own(void *at, size_t *n, size_t *room, size_t size)
{
    const void *items;

    memcpy(&items, at, sizeof items);
    bool done = svp_copy(at, items, *n * size);

    *n = done ? *n : 0;
    *room = *n;
    return done;
}

/* ---- remembering ---- */

static bool svp_add(ckpt_savepoint *s, const ckpt_tensor *t)
{
    svp_tensor *slot = ckpt_vec_push(&s->tensors);

    // the map's own tensors, which only callers must not change
    if (slot)
        *slot = (svp_tensor){(ckpt_tensor *)(uintptr_t)t, *t};
    return slot != NULL;
}

/* Remember the tensors of a list, their copies, and the addends of each. */
static bool svp_tensors_of(ckpt_savepoint *s, const ckpt_tensors *list)
{
    for (size_t i = 0; i < list->n; i++) {
        for (const ckpt_tensor *t = list->at[i]; t; t = t->twin) {
            if (!svp_add(s, t))
                return false;
            for (const ckpt_tensor *a = t->addend; a; a = a->addend) {
                if (!svp_add(s, a))
                    return false;
            }
        }
    }
    return true;
}

static bool svp_state_of(ckpt_savepoint *s, ckpt_state *state)
{
    svp_state *slot = ckpt_vec_push(&s->states);

    if (!slot)
        return false;
    *slot = (svp_state){state, *state};
    // both, even if the first fails: neither may keep the map's own items
    bool param = SVP_OWN(&slot->was.param), group = SVP_OWN(&slot->was.group);
    return param && group;
}

static bool svp_states_of(ckpt_savepoint *s)
{
    const ckpt_map *map = s->map;

    for (size_t i = 0; i < map->states.n; i++) {
        if (!svp_state_of(s, map->states.at[i]))
            return false;
    }
    // the parameters of a waiting state are not in the map's list
    return !map->waiting ||
           (svp_state_of(s, map->waiting) && svp_tensors_of(s, &map->waiting->param));
}

/* Replace the lists in `was` by copies; all of them, even after a failure. */
static bool svp_lists(ckpt_map *was)
{
    const bool done[] = {SVP_OWN(&was->tensors), SVP_OWN(&was->keys), SVP_OWN(&was->findings),
                         SVP_OWN(&was->facts), SVP_OWN(&was->states)};
    size_t unused = was->names.room;
    // a free slot of the index is an item, too
    bool all = svp_own(&was->names.at, &unused, &was->names.room, sizeof *was->names.at);

    for (size_t i = 0; i < sizeof done / sizeof *done; i++)
        all = all && done[i];
    return all;
}

static void svp_free_lists(ckpt_map *map)
{
    ckpt_vec_free(&map->tensors);
    ckpt_vec_free(&map->keys);
    ckpt_vec_free(&map->findings);
    ckpt_vec_free(&map->facts);
    ckpt_vec_free(&map->states);
    ckpt_index_free(&map->names);
}

/* Free the memory of a savepoint but for the lists that a restored map has taken. */
static void svp_free(ckpt_savepoint *s)
{
    ckpt_free(s->metadata);
    ckpt_vec_free(&s->tensors);
    ckpt_vec_free(&s->states);
    ckpt_free(s);
}

/* Free the copies of lists: the map goes on with its own. */
static void svp_drop(ckpt_savepoint *s)
{
    svp_free_lists(&s->was);
    for (size_t i = 0; i < s->states.n; i++)
        ckpt_state_free(&s->states.at[i].was);
    svp_free(s);
}

int ckpt_savepoint_new(ckpt_savepoint **out, ckpt_map *map, ckpt_err *err)
{
    assert(out && map);
    ckpt_savepoint *s = ckpt_alloc(sizeof *s);

    *out = NULL;
    if (!s)
        return ckpt_fail_memory(err);
    s->map = map;
    s->was = *map;
    bool done =
        svp_lists(&s->was) &&
        svp_copy(&s->metadata, map->metadata.at, (size_t)map->metadata.n * sizeof *s->metadata) &&
        svp_tensors_of(s, &map->tensors) && svp_states_of(s);
    if (!done) {
        svp_drop(s);
        return ckpt_fail_memory(err);
    }
    *out = s;
    return CKPT_OK;
}

/* ---- restoring ---- */

static bool svp_is_old(const ckpt_savepoint *s, const ckpt_state *state)
{
    for (size_t i = 0; i < s->states.n; i++) {
        if (s->states.at[i].at == state)
            return true;
    }
    return false;
}

/* Restore the states; a state that the change made or adopted is freed. */
static void svp_put_states(ckpt_savepoint *s)
{
    ckpt_map *map = s->map;

    for (size_t i = 0; i < map->states.n; i++) {
        if (!svp_is_old(s, map->states.at[i]))
            ckpt_state_free(map->states.at[i]);
    }
    for (size_t i = 0; i < s->states.n; i++) {
        ckpt_state_free(s->states.at[i].at);
        *s->states.at[i].at = s->states.at[i].was;
    }
}

/* Remove the files, sources and adopted maps that the change has appended. */
static void svp_cut(ckpt_map *map, const ckpt_map *was)
{
    assert(map->files.n >= was->files.n && map->sources.n >= was->sources.n &&
           map->children.n >= was->children.n);
    for (; map->files.n > was->files.n; map->files.n--) {
        ckpt_vec_free(&map->files.at[map->files.n - 1].literals);
        ckpt_vec_free(&map->files.at[map->files.n - 1].storages);
    }
    for (; map->sources.n > was->sources.n; map->sources.n--) {
        const ckpt_source *source = &map->sources.at[map->sources.n - 1];
        ckpt_make *m = source->kind == CKPT_SOURCE_MADE ? source->memory : NULL;

        if (m && m->release)
            m->release(m);
    }
    // an adopted map holds the memory of the states and sources that came from it
    for (; map->children.n > was->children.n; map->children.n--)
        ckpt_map_free(map->children.at[map->children.n - 1]);
}

static void svp_restore(ckpt_savepoint *s)
{
    ckpt_map *map = s->map, *was = &s->was;

    svp_put_states(s);
    svp_cut(map, was);
    for (size_t i = 0; i < s->tensors.n; i++)
        *s->tensors.at[i].at = s->tensors.at[i].was;
    if (was->metadata.n > 0)
        memcpy(was->metadata.at, s->metadata, (size_t)was->metadata.n * sizeof *s->metadata);
    was->files = map->files;
    was->sources = map->sources;
    was->children = map->children;
    was->listed = map->listed; // the folders are the same
    svp_free_lists(map);
    *map = *was;
}

int ckpt_savepoint_end(ckpt_savepoint *saved, int rc)
{
    assert(saved);
    if (rc == CKPT_OK) {
        svp_drop(saved);
        return CKPT_OK;
    }
    svp_restore(saved);
    svp_free(saved);
    return rc;
}
