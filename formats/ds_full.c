/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ds_full.c: stage 0: nothing is partitioned, and the model file holds the optimizer too.
 *
 * By dtype of the run, `optimizer` is
 *     fp32                   the plain optimizer's dict: the module holds the weights
 *     fp16/bf16              fp32_groups: per group a list of parameter-shaped masters
 *     fp16, fused optimizer  fp32_groups_flat: per group one flat tensor, laid out as the module's
 * own storage No names are written beside the masters.  They are known from the module's storages
 * (fused), or from shapes in the module's order where only one assignment exists; otherwise the
 * module's own values are taken, and it is said.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "formats/deepspeed.h"
#include "libckpt/base/dtype.h"

enum { DSU_MAX_GROUPS = 64 };

/* An entry of the module that is not a buffer. */
typedef struct dsu_entry {
    const ckpt_pair *pair;
    const ckpt_tensor_value *copy;
    size_t owner;   /* index of the entry whose elements it shares; its own index otherwise */
    uint32_t group; /* of its master; UINT32_MAX: none found */
    uint64_t
        slot; /* unfused: index in the group's list; fused: element offset in the flat tensor */
} dsu_entry;

CKPT_VEC(dsu_entries, dsu_entry);

typedef struct dsu {
    ckpt_ds *ds;
    dsu_entries entry; /* in module order */
    const ckpt_value *optimizer;
    ckpt_seq groups; /* of masters (lists or flat tensors), or of state tensors for names alone */
    bool fused;
    bool named; /* every master has a name */
} dsu;

/* ---- entries ---- */

/* By storage and offset, then in the module's order: the first of equals is the owner. */
static int dsu_by_place(const void *a, const void *b)
{
    const dsu_entry *const *pa = a, *const *pb = b;
    const dsu_entry *x = *pa, *y = *pb;
    uintptr_t sx = (uintptr_t)x->copy->storage, sy = (uintptr_t)y->copy->storage;

    if (sx != sy)
        return sx < sy ? -1 : 1;
    if (x->copy->offset != y->copy->offset)
        return x->copy->offset < y->copy->offset ? -1 : 1;
    return x == y ? 0 : x < y ? -1 : 1;
}

/* Tensors without elements may lie anywhere: their place says nothing. */
static bool dsu_empty(const ckpt_tensor_value *t)
{
    for (uint32_t i = 0; i < t->ndim; i++) {
        if (t->shape[i] == 0)
            return true;
    }
    return false;
}

/* Equal in every axis. */
static bool dsu_same_shape(const ckpt_tensor_value *a, const ckpt_tensor_value *b)
{
    return a->ndim == b->ndim &&
           (a->ndim == 0 || memcmp(a->shape, b->shape, a->ndim * sizeof *a->shape) == 0);
}

/* Tied names are views of the same elements. */
static int dsu_ties(dsu *u)
{
    size_t n = u->entry.n;
    dsu_entry **sorted = ckpt_alloc((n + 1) * sizeof *sorted);

    if (!sorted)
        return ckpt_fail_memory(u->ds->err);
    for (size_t i = 0; i < n; i++)
        sorted[i] = &u->entry.at[i];
    if (n)
        qsort(sorted, n, sizeof *sorted, dsu_by_place);
    for (size_t i = 1; i < n; i++) {
        const ckpt_tensor_value *a = sorted[i - 1]->copy, *b = sorted[i]->copy;
        if (b->storage && a->storage == b->storage && a->offset == b->offset &&
            dsu_same_shape(a, b) && !dsu_empty(b))
            sorted[i]->owner = sorted[i - 1]->owner;
    }
    ckpt_free(sorted);
    return CKPT_OK;
}

/* All entries but the buffers, which were marked before. */
static int dsu_collect(dsu *u)
{
    ckpt_ds *ds = u->ds;

    for (uint64_t i = 0; i < ds->module.n; i++) {
        const ckpt_pair *p = &ds->module.at[i];
        if (ds->seen[i] || p->key->kind != CKPT_V_STR || p->value->kind != CKPT_V_TENSOR)
            continue;
        dsu_entry *e = ckpt_vec_push(&u->entry);
        if (!e)
            return ckpt_fail_memory(ds->err);
        *e = (dsu_entry){
            .pair = p, .copy = p->value->as.tensor, .owner = u->entry.n - 1, .group = UINT32_MAX};
    }
    return dsu_ties(u);
}

/* ---- naming masters ---- */

/* Fused: a group's flat tensor is as long as the storage that its parameters are views of. */
static void dsu_name_fused(dsu *u)
{
    u->named = u->groups.n <= DSU_MAX_GROUPS;
    for (size_t i = 0; u->named && i < u->entry.n; i++) {
        dsu_entry *e = &u->entry.at[i];
        for (uint32_t g = 0; e->copy->storage && g < u->groups.n; g++) {
            const ckpt_value *v = u->groups.at[g];
            if (v->kind != CKPT_V_TENSOR || v->as.tensor->ndim != 1 ||
                v->as.tensor->shape[0] != e->copy->storage->n_elems)
                continue;
            u->named = u->named && e->group == UINT32_MAX;
            e->group = g;
            e->slot = e->copy->offset;
        }
    }
}

/*
 * Unfused: each group lists its parameters in the module's order.  An entry belongs to the one
 * group whose next master has its shape; where two could be meant, or an entry has none, nothing is
 * certain.
 */
static void dsu_name_listed(dsu *u)
{
    uint64_t next[DSU_MAX_GROUPS] = {0};

    u->named = u->groups.n <= DSU_MAX_GROUPS;
    for (size_t i = 0; u->named && i < u->entry.n; i++) {
        dsu_entry *e = &u->entry.at[i];
        for (uint32_t g = 0; e->owner == i && g < u->groups.n; g++) {
            ckpt_seq list = ckpt_value_seq(u->groups.at[g]);
            const ckpt_value *v = next[g] < list.n ? list.at[next[g]] : NULL;
            if (!v || v->kind != CKPT_V_TENSOR || !dsu_same_shape(v->as.tensor, e->copy))
                continue;
            u->named = u->named && e->group == UINT32_MAX;
            e->group = g;
            e->slot = next[g];
        }
        if (e->group != UINT32_MAX)
            next[e->group]++;
        else if (e->owner == i)
            u->named = false;
    }
    for (uint32_t g = 0; u->named && g < u->groups.n; g++)
        u->named = next[g] == ckpt_value_seq(u->groups.at[g]).n;
}

/* Find the master of every entry, by the form that the optimizer's dict has. */
static int dsu_name(dsu *u)
{
    const ckpt_value *listed = ckpt_value_get(u->optimizer, "fp32_groups");
    const ckpt_value *flat = ckpt_value_get(u->optimizer, "fp32_groups_flat");

    u->fused = flat != NULL;
    u->groups = ckpt_value_seq(u->fused ? flat : listed);
    if (u->groups.n == 0)
        return CKPT_OK;
    if (u->fused)
        dsu_name_fused(u);
    else
        dsu_name_listed(u);
    if (u->named)
        return CKPT_OK;
    for (size_t i = 0; i < u->entry.n; i++)
        u->entry.at[i].group = UINT32_MAX;
    return ckpt_map_note(u->ds->map, CKPT_WARNING, u->ds->err,
                         "%s: stage 0 writes its fp32 master weights without names, and here they "
                         "cannot be told apart "
                         "with certainty: the module's own, rounded values are taken",
                         u->ds->model.path);
}

/* ---- adding ---- */

/* The master of an entry as a map's tensor, the module's entry as its twin. */
static int dsu_add_master(dsu *u, const dsu_entry *e)
{
    ckpt_ds *ds = u->ds;
    const ckpt_value *group = u->groups.at[e->group];
    const ckpt_value *v = u->fused ? group : ckpt_value_seq(group).at[e->slot];
    const ckpt_text *name = &e->pair->key->as.text;
    ckpt_tensor like = {
        .dtype = v->as.tensor->dtype, .ndim = e->copy->ndim, .shape = e->copy->shape};
    ckpt_ds_flat flat;
    ckpt_tensor *t = NULL;

    if (!u->fused) {
        int rc = ckpt_ds_module_add(ds, &ds->model, name, v->as.tensor, CKPT_ROLE_WEIGHT, &t);
        return rc == CKPT_OK ? ckpt_ds_module_twin(ds, t) : rc;
    }
    int rc = ckpt_ds_shard_flat(ds, &ds->model, v, "fp32_groups_flat", &flat);
    if (rc == CKPT_OK)
        rc = ckpt_map_add(ds->map, name->at, name->n, &like, &t, ds->err);
    ds->extent.n = ds->axis.n = 0;
    if (rc == CKPT_OK && t->n_elems)
        rc = ckpt_ds_extent_add(ds, &flat, e->slot, 0, t->n_elems);
    if (rc == CKPT_OK)
        rc = ckpt_ds_extent_back(ds, t);
    return rc == CKPT_OK ? ckpt_ds_module_twin(ds, t) : rc;
}

/* Masters first by group, then by place in it; entries without one stay in the module's order. */
static int dsu_by_group(const void *a, const void *b)
{
    const dsu_entry *const *pa = a, *const *pb = b;
    const dsu_entry *x = *pa, *y = *pb;

    if (x->group != y->group)
        return x->group < y->group ? -1 : 1;
    if (x->slot != y->slot)
        return x->slot < y->slot ? -1 : 1;
    return x == y ? 0 : x < y ? -1 : 1;
}

/* Where every parameter of a fused run is a view of a group, what is no view of one is frozen. */
static bool dsu_is_frozen(const dsu *u, const dsu_entry *e)
{
    return u->named && u->fused && e->group == UINT32_MAX;
}

/* Frozen parameters first, then trained ones in the order of `sorted`. */
static int dsu_add_entries(dsu *u, dsu_entry **sorted)
{
    ckpt_ds *ds = u->ds;
    ckpt_tensor *t = NULL;
    int rc = CKPT_OK;

    for (size_t i = 0; rc == CKPT_OK && i < u->entry.n; i++) {
        const dsu_entry *e = &u->entry.at[i];
        if (e->owner == i && dsu_is_frozen(u, e) && !ds->opts->no_frozen)
            rc = ckpt_ds_module_add(ds, &ds->model, &e->pair->key->as.text, e->copy,
                                    CKPT_ROLE_FROZEN, &t);
    }
    for (size_t i = 0; rc == CKPT_OK && i < u->entry.n; i++) {
        const dsu_entry *e = sorted[i];
        if (&u->entry.at[e->owner] != e || dsu_is_frozen(u, e))
            continue;
        if (e->group != UINT32_MAX)
            rc = dsu_add_master(u, e);
        else
            rc = ckpt_ds_module_add(ds, &ds->model, &e->pair->key->as.text, e->copy,
                                    CKPT_ROLE_WEIGHT, &t);
    }
    return rc;
}

/* Names that share an owner's elements come last, as everywhere. */
static int dsu_add_ties(dsu *u)
{
    ckpt_map *map = u->ds->map;
    ckpt_tensor *t = NULL;
    int rc = CKPT_OK;

    for (size_t i = 0; rc == CKPT_OK && i < u->entry.n; i++) {
        const dsu_entry *e = &u->entry.at[i];
        const ckpt_text *kept = &u->entry.at[e->owner].pair->key->as.text,
                        *name = &e->pair->key->as.text;
        size_t index = e->owner == i ? SIZE_MAX : ckpt_map_index(map, kept->at, kept->n);
        if (index == SIZE_MAX)
            continue;
        const ckpt_tensor *owner = map->tensors.at[index];
        ckpt_tensor like = {.dtype = owner->dtype,
                            .ndim = owner->ndim,
                            .shape = owner->shape,
                            .role = owner->role,
                            .flags = owner->flags};
        rc = ckpt_map_add(map, name->at, name->n, &like, &t, u->ds->err);
        if (rc == CKPT_OK)
            t->owner = owner;
    }
    return rc;
}

/* ---- optimizer state ---- */

/* What holds 'state' and 'param_groups', in the model file or in a copy of its tree. */
static const ckpt_value *dsu_base(const ckpt_value *optimizer)
{
    const ckpt_value *inner = ckpt_value_get(optimizer, "optimizer_state_dict");

    return inner ? inner : optimizer;
}

/* The state of the parameter at a slot of a group: {exp_avg: tensor, ...} by the number that
 * param_groups gives. */
static ckpt_value *dsu_state(const ckpt_value *optimizer, uint32_t group, uint64_t slot)
{
    const ckpt_value *base = dsu_base(optimizer);
    ckpt_seq groups = ckpt_value_seq(ckpt_value_get(base, "param_groups"));
    ckpt_seq params =
        ckpt_value_seq(group < groups.n ? ckpt_value_get(groups.at[group], "params") : NULL);
    ckpt_dict state = ckpt_value_map(ckpt_value_get(base, "state"));
    int64_t number = -1;

    if (slot >= params.n || !ckpt_value_as_int(params.at[slot], &number) || number < 0)
        return NULL;
    for (uint64_t i = 0; i < state.n; i++) {
        // Written in ascending order: usually the first look finds it.
        const ckpt_pair *p = &state.at[((uint64_t)number + i) % state.n];
        if (p->key->kind == CKPT_V_INT && p->key->as.i == number)
            return p->value;
    }
    return NULL;
}

/* One moment of one parameter: shaped like it, or a stretch of the group's flat tensor (fused). */
static int dsu_add_state(dsu *u, const dsu_entry *e, const ckpt_pair *state)
{
    ckpt_ds *ds = u->ds;
    const ckpt_tensor_value *v = state->value->as.tensor;
    const char *name = ckpt_arena_printf(ds->map->arena, "%s/%s", state->key->as.text.at,
                                         e->pair->key->as.text.at);
    ckpt_tensor like = {
        .dtype = v->dtype, .ndim = e->copy->ndim, .shape = e->copy->shape, .role = CKPT_ROLE_STATE};
    if (ckpt_dtype_get(v->dtype)->kind == CKPT_IS_FLOAT)
        like.export_dtype = CKPT_F32; // whatever the run kept it in, as at the other stages
    ckpt_ds_flat flat;
    ckpt_tensor *t = NULL;

    if (!name)
        return ckpt_fail_memory(ds->err);
    int rc = ckpt_map_add(ds->map, name, strlen(name), &like, &t, ds->err);
    if (rc != CKPT_OK || !u->fused)
        return rc == CKPT_OK ? ckpt_ds_shard_back(ds, &ds->model, v, t) : rc;
    rc = ckpt_ds_shard_flat(ds, &ds->model, state->value, name, &flat);
    ds->extent.n = ds->axis.n = 0;
    if (rc == CKPT_OK && t->n_elems)
        rc = ckpt_ds_extent_add(ds, &flat, e->slot, 0, t->n_elems);
    return rc == CKPT_OK ? ckpt_ds_extent_back(ds, t) : rc;
}

/* Is this entry of a state a tensor over the parameter's elements? */
static bool dsu_is_state(const dsu *u, const dsu_entry *e, const ckpt_pair *state)
{
    const ckpt_tensor_value *v =
        state->value->kind == CKPT_V_TENSOR ? state->value->as.tensor : NULL;

    if (!v || state->key->kind != CKPT_V_STR || ckpt_value_is(state->key, "step"))
        return false;
    if (!u->fused)
        return dsu_same_shape(v, e->copy);
    return v->ndim == 1 && e->copy->storage && v->shape[0] == e->copy->storage->n_elems;
}

/* Plain fp32 runs: the state tensors' shapes name the parameters, as masters do elsewhere. */
static int dsu_name_by_state(dsu *u)
{
    ckpt_seq groups = ckpt_value_seq(ckpt_value_get(u->optimizer, "param_groups"));
    ckpt_arena *arena = u->ds->map->arena;
    ckpt_seq lists = {0};

    for (uint64_t g = 0; g < groups.n && g <= DSU_MAX_GROUPS; g++) {
        uint64_t n = ckpt_value_seq(ckpt_value_get(groups.at[g], "params")).n;
        ckpt_value *list = ckpt_value_new(arena, CKPT_V_LIST);
        if (!list || !ckpt_seq_add(arena, &lists, list))
            return ckpt_fail_memory(u->ds->err);
        for (uint64_t k = 0; k < n; k++) {
            ckpt_dict state = ckpt_value_map(dsu_state(u->optimizer, (uint32_t)g, k));
            ckpt_value *first = NULL;
            for (uint64_t i = 0; i < state.n && !first; i++) {
                if (state.at[i].value->kind == CKPT_V_TENSOR &&
                    !ckpt_value_is(state.at[i].key, "step"))
                    first = state.at[i].value;
            }
            // Without a tensor the list ends here, and the names stay unknown.
            if (first && !ckpt_seq_add(arena, &list->as.seq, first))
                return ckpt_fail_memory(u->ds->err);
        }
    }
    u->groups = lists;
    dsu_name_listed(u);
    return CKPT_OK;
}

/*
 * Without masters and states the groups list mere numbers, of the parameters in the module's order:
 * with one group of as many as the module has, that is all there is to know.
 */
static void dsu_name_single(dsu *u)
{
    ckpt_seq groups = ckpt_value_seq(ckpt_value_get(dsu_base(u->optimizer), "param_groups"));
    uint64_t n = ckpt_value_seq(groups.n == 1 ? ckpt_value_get(groups.at[0], "params") : NULL).n;
    uint64_t owners = 0, states = 0;

    for (size_t i = 0; i < u->entry.n; i++)
        owners += u->entry.at[i].owner == i;
    for (uint64_t g = 0; g < u->groups.n; g++)
        states += ckpt_value_seq(u->groups.at[g]).n;
    u->named = n > 0 && owners == n && states == 0;
    for (size_t i = 0, slot = 0; u->named && i < u->entry.n; i++) {
        dsu_entry *e = &u->entry.at[i];
        e->group = e->owner == i ? 0 : UINT32_MAX;
        e->slot = e->owner == i ? slot++ : 0;
    }
}

/* Is it a parameter of a known group? */
static bool dsu_is_trained(const dsu *u, const dsu_entry *e)
{
    return e->group != UINT32_MAX && &u->entry.at[e->owner] == e;
}

/* States with one name together, in the order of their parameters. */
static int dsu_add_states(dsu *u, dsu_entry **sorted)
{
    int rc = CKPT_OK;

    ckpt_dict first = ckpt_value_map(u->entry.n ? dsu_state(u->optimizer, 0, 0) : NULL);
    for (uint64_t k = 0; rc == CKPT_OK && k < first.n; k++) {
        for (size_t i = 0; rc == CKPT_OK && i < u->entry.n; i++) {
            const dsu_entry *e = sorted[i];
            if (!dsu_is_trained(u, e))
                continue;
            ckpt_dict state =
                ckpt_value_map(dsu_state(u->optimizer, e->group, u->fused ? 0 : e->slot));
            const ckpt_pair *p = k < state.n ? &state.at[k] : NULL;
            if (p && first.at[k].key->kind == CKPT_V_STR &&
                ckpt_value_is(p->key, first.at[k].key->as.text.at) && dsu_is_state(u, e, p))
                rc = dsu_add_state(u, e, p);
        }
    }
    return rc;
}

/* Every parameter's step count: its own, or its group's. */
static int dsu_add_steps(dsu *u, dsu_entry **sorted)
{
    ckpt_seq groups = ckpt_value_seq(ckpt_value_get(dsu_base(u->optimizer), "param_groups"));
    const ckpt_value *known = NULL;
    ckpt_ds_scalar step = {0};
    int rc = CKPT_OK;

    for (size_t i = 0; rc == CKPT_OK && i < u->entry.n; i++) {
        const dsu_entry *e = sorted[i];
        if (!dsu_is_trained(u, e))
            continue;
        const ckpt_value *v =
            ckpt_value_get(dsu_state(u->optimizer, e->group, u->fused ? 0 : e->slot), "step");
        if (!v && e->group < groups.n)
            v = ckpt_value_get(groups.at[e->group], "step");
        // One value of a group is one source for all of its parameters.
        if (v && v != known)
            rc = ckpt_ds_state_scalar(u->ds, &u->ds->model, v, &step);
        known = v;
        if (rc == CKPT_OK && v && step.has)
            rc = ckpt_ds_state_add_scalar(u->ds, "step", e->pair->key->as.text.at, &step);
    }
    return rc;
}

/* ---- groups for writers ---- */

/* A tensor value over n elements as a flat one. */
static ckpt_value *dsu_flattened(ckpt_arena *arena, const ckpt_tensor_value *from, uint64_t n)
{
    uint64_t *shape = ckpt_arena_copy(arena, &n, sizeof n);
    uint64_t *stride = ckpt_arena_alloc(arena, sizeof *stride);
    ckpt_value *v = ckpt_value_new(arena, CKPT_V_TENSOR);

    if (!shape || !stride || !v)
        return NULL;
    v->as.tensor = ckpt_arena_copy(arena, from, sizeof *from);
    if (!v->as.tensor)
        return NULL;
    *stride = 1;
    v->as.tensor->ndim = 1;
    v->as.tensor->shape = shape;
    v->as.tensor->stride = stride;
    return v;
}

/*
 * A group's state as ZeRO would keep it: that of its first parameter, with flat tensors in place of
 * those shaped like it.
 */
static int dsu_entry_of(dsu *u, const dsu_entry *e, const ckpt_value *optimizer, ckpt_value **out)
{
    ckpt_arena *arena = u->ds->map->arena;
    const ckpt_value *own = dsu_state(optimizer, e->group, u->fused ? 0 : e->slot);
    ckpt_dict state = ckpt_value_map(own);

    if (!own || own->kind != CKPT_V_DICT)
        return CKPT_OK;
    *out = ckpt_value_new(arena, CKPT_V_DICT);
    for (uint64_t i = 0; *out && i < state.n; i++) {
        const ckpt_pair *p = &state.at[i];
        ckpt_value *v = p->value;
        uint64_t n = 1;
        for (uint32_t k = 0; k < e->copy->ndim; k++)
            n *= e->copy->shape[k];
        if (!u->fused && dsu_is_state(u, e, p))
            v = dsu_flattened(arena, v->as.tensor, n);
        if (!v || !ckpt_dict_add(arena, &(*out)->as.map, p->key, v))
            return ckpt_fail_memory(u->ds->err);
    }
    return *out ? CKPT_OK : ckpt_fail_memory(u->ds->err);
}

/* A parameter as the last of the last group. */
static int dsu_add_param(dsu *u, ckpt_state *state, const dsu_entry *e)
{
    const ckpt_text *name = &e->pair->key->as.text;
    size_t at = ckpt_map_index(u->ds->map, name->at, name->n);
    ckpt_tensor **slot = at == SIZE_MAX ? NULL : ckpt_vec_push(&state->param);

    if (!slot)
        return ckpt_fail_memory(u->ds->err);
    *slot = u->ds->map->tensors.at[at];
    state->group.at[state->group.n - 1].n++;
    return CKPT_OK;
}

/* The run as a state for writers: groups as the optimizer has them. */
static int dsu_make_state(dsu *u, dsu_entry **sorted)
{
    ckpt_state *state = NULL;
    size_t next = 0;
    int rc = ckpt_ds_state_new(u->ds, &state);
    const ckpt_value *optimizer = rc == CKPT_OK ? ckpt_value_get(state->model, "optimizer") : NULL;
    ckpt_seq groups = ckpt_value_seq(ckpt_value_get(dsu_base(optimizer), "param_groups"));
    uint64_t n = u->groups.n ? u->groups.n : groups.n;

    for (uint32_t g = 0; rc == CKPT_OK && g < n; g++) {
        ckpt_group *group = ckpt_vec_push(&state->group);
        if (!group)
            return ckpt_fail_memory(u->ds->err);
        *group = (ckpt_group){.first = state->param.n, .n_lanes = 1};
        group->fields = groups.n == n ? groups.at[g] : NULL;
        if (next < u->entry.n && sorted[next]->group == g)
            rc = dsu_entry_of(u, sorted[next], optimizer, &group->entry);
        for (; rc == CKPT_OK && next < u->entry.n && sorted[next]->group == g; next++) {
            if (dsu_is_trained(u, sorted[next]))
                rc = dsu_add_param(u, state, sorted[next]);
        }
    }
    return rc;
}

/* Optimizer state, and the groups for writers, where it is certain which parameter is which. */
static int dsu_add_optimizer(dsu *u, dsu_entry **sorted)
{
    bool masters = u->groups.n > 0;
    int rc = masters ? CKPT_OK : dsu_name_by_state(u);

    if (rc == CKPT_OK && !masters && !u->named)
        dsu_name_single(u);
    if (rc != CKPT_OK || !u->named)
        return rc;
    qsort(sorted, u->entry.n, sizeof *sorted, dsu_by_group);
    rc = dsu_add_states(u, sorted);
    if (rc == CKPT_OK)
        rc = dsu_add_steps(u, sorted);
    return rc == CKPT_OK ? dsu_make_state(u, sorted) : rc;
}

int ckpt_ds_full_build(ckpt_ds *ds)
{
    dsu u = {.ds = ds};
    const ckpt_value *optimizer = ckpt_value_get(ds->model.root, "optimizer");
    dsu_entry **sorted = NULL;
    int rc = dsu_collect(&u);

    u.optimizer = optimizer && optimizer->kind == CKPT_V_DICT ? optimizer : NULL;
    if (rc == CKPT_OK)
        rc = dsu_name(&u);
    sorted = ckpt_alloc((u.entry.n + 1) * sizeof *sorted);
    if (rc == CKPT_OK && !sorted)
        rc = ckpt_fail_memory(ds->err);
    for (size_t i = 0; rc == CKPT_OK && i < u.entry.n; i++)
        sorted[i] = &u.entry.at[i];
    if (rc == CKPT_OK && u.entry.n)
        qsort(sorted, u.entry.n, sizeof *sorted, dsu_by_group);
    if (rc == CKPT_OK)
        rc = dsu_add_entries(&u, sorted);
    if (rc == CKPT_OK)
        rc = dsu_add_ties(&u);
    if (rc == CKPT_OK && ds->opts->with_optimizer && u.entry.n && u.optimizer)
        rc = dsu_add_optimizer(&u, sorted);
    ckpt_free(sorted);
    ckpt_vec_free(&u.entry);
    return rc;
}
