/* SPDX-License-Identifier: Apache-2.0 */
/*
 * stage0.c: stage 0: nothing is partitioned, and the model file holds the optimizer too.
 *
 * By dtype of the run, `optimizer` is
 *     fp32                   the plain optimizer's dict: the module holds the weights
 *     fp16/bf16              fp32_groups: per group a list of parameter-shaped masters
 *     fp16, fused optimizer  fp32_groups_flat: per group one flat tensor, laid out as the module's
 *                            own storage
 * Where it is not certain which master is whose (name.c), the module's own values are
 * taken, and it is said.
 */
#include <stdlib.h>
#include <string.h>

#include "formats/deepspeed/stage0/entry.h"
#include "formats/deepspeed/stage0/stage0.h"

/* ---- entries ---- */

/* By storage and offset, then in the module's order: the first of equals is the owner. */
static int dsu_by_place(const void *a, const void *b)
{
    const ckpt_dsu_entry *const *pa = a, *const *pb = b;
    const ckpt_dsu_entry *x = *pa, *y = *pb;
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

/* Tied names are views of the same elements. */
static int dsu_ties(ckpt_dsu *u)
{
    size_t n = u->entry.n;
    ckpt_dsu_entry **sorted = ckpt_alloc((n + 1) * sizeof *sorted);

    if (!sorted)
        return ckpt_fail_memory(u->job->err);
    for (size_t i = 0; i < n; i++)
        sorted[i] = &u->entry.at[i];
    if (n)
        qsort(sorted, n, sizeof *sorted, dsu_by_place);
    for (size_t i = 1; i < n; i++) {
        const ckpt_tensor_value *a = sorted[i - 1]->copy, *b = sorted[i]->copy;
        if (b->storage && a->storage == b->storage && a->offset == b->offset &&
            ckpt_dsu_same_shape(a, b) && !dsu_empty(b))
            sorted[i]->owner = sorted[i - 1]->owner;
    }
    ckpt_free(sorted);
    return CKPT_OK;
}

/* All entries but the buffers, which were marked before. */
static int dsu_collect(ckpt_dsu *u)
{
    for (uint64_t i = 0; i < u->module->dict.n; i++) {
        const ckpt_pair *p = &u->module->dict.at[i];
        if (u->module->seen[i] || p->key->kind != CKPT_V_STR || p->value->kind != CKPT_V_TENSOR)
            continue;
        ckpt_dsu_entry *e = ckpt_vec_push(&u->entry);
        if (!e)
            return ckpt_fail_memory(u->job->err);
        *e = (ckpt_dsu_entry){.pair = p,
                              .copy = p->value->as.tensor,
                              .owner = u->entry.n - 1,
                              .group = CKPT_DSU_NONE,
                              .state = SIZE_MAX};
    }
    return dsu_ties(u);
}

/* ---- adding ---- */

/* The master of an entry as a map's tensor, the module's entry as its twin. */
static int dsu_add_master(ckpt_dsu *u, const ckpt_dsu_entry *e)
{
    const ckpt_value *group = u->masters.at[e->group];
    const ckpt_value *v = u->fused ? group : ckpt_value_seq(group).at[e->slot];
    const ckpt_text *name = &e->pair->key->as.text;
    ckpt_tensor like = {
        .dtype = v->as.tensor->dtype, .ndim = e->copy->ndim, .shape = e->copy->shape};
    ckpt_ds_flat flat;
    ckpt_tensor *t = NULL;

    if (!u->fused) {
        int rc =
            ckpt_ds_module_add(u->job, &u->head->model, name, v->as.tensor, CKPT_ROLE_WEIGHT, &t);
        return rc == CKPT_OK ? ckpt_ds_module_twin(u->job, u->head, u->module, t) : rc;
    }
    int rc = ckpt_ds_shard_flat(u->job, &u->head->model, v, "fp32_groups_flat", &flat);
    if (rc == CKPT_OK)
        rc = ckpt_map_add(u->job->map, name->at, name->n, &like, &t, u->job->err);
    if (rc == CKPT_OK)
        rc = ckpt_ds_flat_back(u->job, &flat, e->slot, t);
    return rc == CKPT_OK ? ckpt_ds_module_twin(u->job, u->head, u->module, t) : rc;
}

/* Masters first by group, then by place in it; entries without one stay in the module's order. */
static int dsu_by_group(const void *a, const void *b)
{
    const ckpt_dsu_entry *const *pa = a, *const *pb = b;
    const ckpt_dsu_entry *x = *pa, *y = *pb;

    if (x->group != y->group)
        return x->group < y->group ? -1 : 1;
    if (x->slot != y->slot)
        return x->slot < y->slot ? -1 : 1;
    return x == y ? 0 : x < y ? -1 : 1;
}

/* Where every parameter has its place in a group, what is in none is frozen. */
static bool dsu_is_frozen(const ckpt_dsu *u, const ckpt_dsu_entry *e)
{
    return u->named && e->group == CKPT_DSU_NONE;
}

/* Frozen parameters first, then trained ones by group. */
static int dsu_add_entries(ckpt_dsu *u)
{
    ckpt_tensor *t = NULL;
    int rc = CKPT_OK;

    for (size_t i = 0; rc == CKPT_OK && i < u->entry.n; i++) {
        const ckpt_dsu_entry *e = &u->entry.at[i];
        if (e->owner != i || !dsu_is_frozen(u, e))
            continue;
        if (u->job->opts->no_frozen)
            u->job->map->effects |= CKPT_TOOK_FROZEN;
        else
            rc = ckpt_ds_module_add(u->job, &u->head->model, &e->pair->key->as.text, e->copy,
                                    CKPT_ROLE_FROZEN, &t);
    }
    for (size_t i = 0; rc == CKPT_OK && i < u->entry.n; i++) {
        const ckpt_dsu_entry *e = u->sorted[i];
        if (&u->entry.at[e->owner] != e || dsu_is_frozen(u, e))
            continue;
        if (e->group != CKPT_DSU_NONE && u->masters.n)
            rc = dsu_add_master(u, e);
        else
            rc = ckpt_ds_module_add(u->job, &u->head->model, &e->pair->key->as.text, e->copy,
                                    CKPT_ROLE_WEIGHT, &t);
    }
    return rc;
}

/* Names that share an owner's elements come last, as everywhere. */
static int dsu_add_ties(ckpt_dsu *u)
{
    ckpt_map *map = u->job->map;
    ckpt_tensor *t = NULL;
    int rc = CKPT_OK;

    for (size_t i = 0; rc == CKPT_OK && i < u->entry.n; i++) {
        const ckpt_dsu_entry *e = &u->entry.at[i];
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
        rc = ckpt_map_add(map, name->at, name->n, &like, &t, u->job->err);
        if (rc == CKPT_OK)
            t->owner = owner;
    }
    return rc;
}

/* ---- all ---- */

/* Entries by group, and the weights of the map. */
static int dsu_weights(ckpt_dsu *u)
{
    int rc = CKPT_OK;

    u->sorted = ckpt_alloc((u->entry.n + 1) * sizeof *u->sorted);
    if (!u->sorted)
        return ckpt_fail_memory(u->job->err);
    for (size_t i = 0; i < u->entry.n; i++)
        u->sorted[i] = &u->entry.at[i];
    if (u->entry.n)
        qsort(u->sorted, u->entry.n, sizeof *u->sorted, dsu_by_group);
    rc = dsu_add_entries(u);
    return rc == CKPT_OK ? dsu_add_ties(u) : rc;
}

int ckpt_ds_stage0_build(ckpt_ds_job *job, ckpt_ds_head *head, ckpt_ds_module *module)
{
    ckpt_dsu u = {.job = job, .head = head, .module = module};
    const ckpt_value *optimizer = ckpt_value_get(head->model.root, "optimizer");
    int rc = dsu_collect(&u);

    // the module's own values, whatever masters there are
    u.optimizer =
        optimizer && optimizer->kind == CKPT_V_DICT && !job->opts->weights_only ? optimizer : NULL;
    if (rc == CKPT_OK)
        rc = ckpt_dsu_index(&u);
    if (rc == CKPT_OK)
        rc = ckpt_dsu_name(&u);
    if (rc == CKPT_OK)
        rc = dsu_weights(&u);
    if (rc == CKPT_OK && job->opts->with_optimizer && u.entry.n && u.optimizer)
        rc = ckpt_dsu_add_optimizer(&u);
    else if (rc == CKPT_OK && job->opts->with_optimizer)
        job->map->no_state = u.entry.n ? "its model file holds no state of an optimizer"
                                       : "its model file holds no parameters";
    ckpt_free(u.sorted);
    ckpt_vec_free(&u.entry);
    ckpt_vec_free(&u.number);
    return rc;
}
