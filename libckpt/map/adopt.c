/* SPDX-License-Identifier: Apache-2.0 */
/*
 * adopt.c: renumbers a child map's files and sources so that they follow those of the map that
 * adopts it.
 *
 * Tensors and trees may share extent arrays and storages, so adopt.c collects all of them first and
 * renumbers each only once.
 */
#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "libckpt/map/adopt.h"
#include "libckpt/map/extent.h"
#include "libckpt/map/map.h"
#include "libckpt/map/merge.h"
#include "libckpt/map/nest.h"
#include "libckpt/map/state.h"

CKPT_VEC(adopt_values, ckpt_value *);
CKPT_VEC(adopt_storages, ckpt_storage *);

/* A run of extents of one tensor, or of parts that several tensors share. */
typedef struct adopt_run {
    void *at;
    uint32_t n;
    bool parts;
} adopt_run;

CKPT_VEC(adopt_runs, adopt_run);

typedef struct adopt {
    adopt_values node; /* visited values: both the work list and the marks to clear */
    adopt_storages storage;
    adopt_runs run;
} adopt;

/* ---- collecting ---- */

/* Readers of a map see const extents; this map is still under construction. */
static bool adopt_extents(adopt *a, const ckpt_tensor *t)
{
    adopt_run *run = t->n_extents ? ckpt_vec_push(&a->run) : NULL;

    if (t->n_extents == 0)
        return true;
    if (!run)
        return false;
    run->parts = t->cut != NULL;
    run->n = t->cut ? t->cut->parts->n : t->n_extents;
    run->at = t->cut ? (void *)(uintptr_t)t->cut->parts->part : (void *)(uintptr_t)t->extent;
    return true;
}

/* Adopt a tensor with its copies, and its addends with theirs. */
static bool adopt_tensor(adopt *a, const ckpt_tensor *t)
{
    bool fits = true;

    for (const ckpt_tensor *slice = t; fits && slice; slice = slice->addend) {
        for (const ckpt_tensor *c = slice; fits && c; c = c->twin)
            fits = adopt_extents(a, c);
    }
    return fits;
}

/* Adopt the tensors inside a source, which need not be in the map's list. */
static bool adopt_inputs(adopt *a, const ckpt_source *s)
{
    const ckpt_tensor *in;
    bool fits = true;

    for (uint32_t i = 0; fits && (in = ckpt_source_input(s, i)) != NULL; i++)
        fits = adopt_tensor(a, in);
    return fits;
}

/* Put a value on the list once. */
static bool adopt_see(adopt *a, ckpt_value *v)
{
    ckpt_value **slot;

    if (!v || v->mark)
        return true;
    slot = ckpt_vec_push(&a->node);
    if (!slot)
        return false;
    *slot = v;
    v->mark = 1;
    return true;
}

static bool adopt_see_seq(adopt *a, const ckpt_seq *seq)
{
    bool fits = true;

    for (uint64_t i = 0; fits && i < seq->n; i++)
        fits = adopt_see(a, seq->at[i]);
    return fits;
}

static bool adopt_see_dict(adopt *a, const ckpt_dict *dict)
{
    bool fits = true;

    for (uint64_t i = 0; fits && i < dict->n; i++)
        fits = adopt_see(a, dict->at[i].key) && adopt_see(a, dict->at[i].value);
    return fits;
}

static bool adopt_storage(adopt *a, ckpt_storage *s)
{
    ckpt_storage **slot = s ? ckpt_vec_push(&a->storage) : NULL;

    if (!s)
        return true;
    if (slot)
        *slot = s;
    return slot != NULL;
}

/* Put the children of one value on the list. */
static bool adopt_value(adopt *a, const ckpt_value *v)
{
    const ckpt_object *o;

    if (!adopt_see(a, v->state))
        return false;
    switch (v->kind) {
    case CKPT_V_LIST:
    case CKPT_V_TUPLE:
    case CKPT_V_SIZE:
    case CKPT_V_SET:
    case CKPT_V_FROZENSET:
        return adopt_see_seq(a, &v->as.seq);
    case CKPT_V_DICT:
    case CKPT_V_ODICT:
        return adopt_see_dict(a, &v->as.map);
    case CKPT_V_STORAGE:
        return adopt_storage(a, v->as.storage);
    case CKPT_V_TENSOR:
        return adopt_storage(a, v->as.tensor->storage) && adopt_see(a, v->as.tensor->state) &&
               adopt_see(a, v->as.tensor->type);
    case CKPT_V_OBJECT:
        o = v->as.object;
        return adopt_see(a, o->cls) && adopt_see(a, o->args) && adopt_see(a, o->kwargs) &&
               adopt_see(a, o->state) && adopt_see_seq(a, &o->items) &&
               adopt_see_dict(a, &o->pairs);
    case CKPT_V_NONE:
    case CKPT_V_BOOL:
    case CKPT_V_INT:
    case CKPT_V_LONG:
    case CKPT_V_FLOAT:
    case CKPT_V_STR:
    case CKPT_V_BYTES:
    case CKPT_V_BYTEARRAY:
    case CKPT_V_GLOBAL:
    case CKPT_V_DTYPE:
        return true;
    }
    return true;
}

/* Add the values that differ by rank. */
static bool adopt_ranked(adopt *a, const ckpt_state *s, const ckpt_ranked *list)
{
    bool fits = true;

    for (const ckpt_ranked *r = list; fits && r; r = r->next) {
        for (uint32_t i = 0; fits && r->at && i < s->world; i++)
            fits = adopt_see(a, r->at[i]);
    }
    return fits;
}

/* Adopt all trees of the child: its values, and those of its states. */
static bool adopt_trees(adopt *a, const ckpt_map *child)
{
    bool fits = adopt_see(a, child->values);

    for (size_t i = 0; fits && i < child->states.n; i++) {
        const ckpt_state *s = child->states.at[i];
        fits = adopt_see(a, s->model) && adopt_see(a, s->optim) && adopt_ranked(a, s, s->client);
        for (size_t g = 0; fits && g < s->group.n; g++)
            fits = adopt_see(a, s->group.at[g].fields) && adopt_see(a, s->group.at[g].entry) &&
                   adopt_ranked(a, s, s->group.at[g].ranked) && adopt_see(a, s->group.at[g].stored);
    }
    for (size_t i = 0; fits && i < a->node.n; i++)
        fits = adopt_value(a, a->node.at[i]);
    for (size_t i = 0; i < a->node.n; i++)
        a->node.at[i]->mark = 0;
    return fits;
}

/* ---- renumbering ---- */

static int adopt_by_storage(const void *a, const void *b)
{
    ckpt_storage *const *x = a, *const *y = b;

    return (uintptr_t)*x == (uintptr_t)*y ? 0 : (uintptr_t)*x < (uintptr_t)*y ? -1 : 1;
}

static int adopt_by_run(const void *a, const void *b)
{
    const adopt_run *x = a, *y = b;

    return (uintptr_t)x->at == (uintptr_t)y->at ? 0 : (uintptr_t)x->at < (uintptr_t)y->at ? -1 : 1;
}

/* Add `base` to each source index, once per array or storage. */
static void adopt_move(adopt *a, uint32_t base)
{
    if (a->storage.n)
        qsort(a->storage.at, a->storage.n, sizeof *a->storage.at, adopt_by_storage);
    if (a->run.n)
        qsort(a->run.at, a->run.n, sizeof *a->run.at, adopt_by_run);
    for (size_t i = 0; i < a->storage.n; i++) {
        ckpt_storage *s = a->storage.at[i];
        if ((i == 0 || a->storage.at[i - 1] != s) && s->source != UINT32_MAX)
            s->source += base;
    }
    for (size_t i = 0; i < a->run.n; i++) {
        const adopt_run *r = &a->run.at[i];
        if (i > 0 && a->run.at[i - 1].at == r->at)
            continue;
        for (uint32_t k = 0; k < r->n; k++)
            *(r->parts ? &((ckpt_part *)r->at)[k].source : &((ckpt_extent *)r->at)[k].source) +=
                base;
    }
}

/* Append files, then sources, because sources refer to files. */
static int adopt_tables(ckpt_map *map, const ckpt_map *child, ckpt_err *err)
{
    uint64_t base = map->files.n, most = base + child->files.n;
    uint32_t file = 0, source = 0;

    if (most > UINT32_MAX || map->sources.n + child->sources.n >= UINT32_MAX)
        return ckpt_fail(err, CKPT_ELIMIT, "the checkpoint has more than 2^32 files or records");
    return ckpt_map_merge_files(map, child, &file, &source, err);
}

/* Add the child's tensors to the list, and point ties at the new entries. */
static int adopt_enter(ckpt_map *map, const ckpt_map *child, const char *prefix, ckpt_err *err)
{
    size_t first = map->tensors.n;
    int rc = CKPT_OK;

    for (size_t i = 0; rc == CKPT_OK && i < child->tensors.n; i++) {
        const ckpt_tensor *t = child->tensors.at[i];
        const char *name = ckpt_arena_printf(map->arena, "%s%s", prefix, t->name);
        ckpt_tensor *made = NULL;
        rc = name ? ckpt_map_add(map, name, strlen(name), t, &made, err) : ckpt_fail_memory(err);
        if (rc == CKPT_OK)
            ckpt_extent_share(made, t);
    }
    for (size_t i = first; rc == CKPT_OK && i < map->tensors.n; i++) {
        ckpt_tensor *t = map->tensors.at[i];
        size_t k =
            t->owner ? ckpt_map_index(child, t->owner->name, strlen(t->owner->name)) : SIZE_MAX;
        if (k != SIZE_MAX)
            t->owner = map->tensors.at[first + k];
    }
    return rc;
}

/* Move the states to the map, under the prefix and with the new tensors. */
static int adopt_states(ckpt_map *map, ckpt_map *child, const char *prefix, ckpt_err *err)
{
    size_t first = map->tensors.n - child->tensors.n, before = map->states.n;
    const char *kept = ckpt_arena_string(map->arena, prefix, strlen(prefix));
    bool fits = kept != NULL;

    for (size_t i = 0; fits && i < child->states.n; i++)
        fits = ckpt_vec_push(&map->states) != NULL;
    if (!fits) {
        map->states.n = before;
        return ckpt_fail_memory(err);
    }
    for (size_t i = 0; i < child->states.n; i++) {
        ckpt_state *s = map->states.at[before + i] = child->states.at[i];
        s->prefix = kept;
        for (size_t k = 0; k < s->param.n; k++) {
            size_t at = ckpt_map_index(child, s->param.at[k]->name, strlen(s->param.at[k]->name));
            if (at != SIZE_MAX)
                s->param.at[k] = map->tensors.at[first + at];
        }
    }
    child->states.n = 0;
    return CKPT_OK;
}

/* Findings keep their order; their texts are copied, because a later failure frees the child. */
static bool adopt_findings(ckpt_map *map, ckpt_map *child)
{
    for (size_t i = 0; i < child->findings.n; i++) {
        const char *text = child->findings.at[i].text;
        ckpt_finding copy = child->findings.at[i];
        copy.text = ckpt_arena_string(map->arena, text, strlen(text));
        ckpt_finding *slot = copy.text ? ckpt_vec_push(&map->findings) : NULL;
        if (!slot)
            return false;
        *slot = copy;
    }
    child->findings.n = 0;
    return true;
}

int ckpt_map_adopt(ckpt_map *map, ckpt_map *child, const char *prefix, ckpt_err *err)
{
    assert(map && child && map != child);
    adopt a = {0};
    uint32_t base = (uint32_t)map->sources.n;
    bool fits = true;

    // Reserve the slot for the child first: nothing may fail after its states have moved.
    if (ckpt_vec_push(&map->children) == NULL)
        return ckpt_fail_memory(err);
    map->children.n--;
    for (size_t i = 0; fits && i < child->tensors.n; i++)
        fits = adopt_tensor(&a, child->tensors.at[i]);
    for (size_t i = 0; fits && i < child->sources.n; i++)
        fits = adopt_inputs(&a, &child->sources.at[i]);
    fits = adopt_trees(&a, child) && fits;
    int rc = fits ? adopt_tables(map, child, err) : ckpt_fail_memory(err);
    if (rc == CKPT_OK) {
        adopt_move(&a, base);
        rc = prefix ? adopt_enter(map, child, prefix, err) : CKPT_OK;
    }
    map->effects |= child->effects;
    map->wrapped = map->wrapped || child->wrapped;
    map->no_state = map->no_state ? map->no_state : child->no_state;
    if (rc == CKPT_OK && !adopt_findings(map, child))
        rc = ckpt_fail_memory(err);
    if (rc == CKPT_OK && prefix)
        rc = adopt_states(map, child, prefix, err);
    ckpt_vec_free(&a.node);
    ckpt_vec_free(&a.storage);
    ckpt_vec_free(&a.run);
    if (rc == CKPT_OK)
        map->children.at[map->children.n++] = child;
    return rc;
}
