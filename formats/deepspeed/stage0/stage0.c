/* SPDX-License-Identifier: Apache-2.0 */
/*
 * stage0.c: reads masters, weights and optimizer from the model file of stage 0, which partitions
 * nothing.
 *
 * `optimizer` has a form for each dtype of the run:
 *     fp32                   the plain optimizer's dict; the module holds the weights
 *     fp16/bf16              fp32_groups: per group a list of parameter-shaped masters
 *     fp16, fused optimizer  fp32_groups_flat: per group one flat tensor with the layout of the
 *                            module's own storage
 * If the masters cannot be matched to parameters with certainty (name.c), the module's own values
 * are read instead, with a warning.
 */
#include <stdlib.h>
#include <string.h>

#include "formats/deepspeed/stage0/entry.h"
#include "formats/deepspeed/stage0/stage0.h"

/* ---- entries ---- */

/* Sorts by storage and offset, then by module order, because the first of equal entries is the
 * owner. */
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

/*
 * Returns whether a tensor has no elements: its storage and offset are then arbitrary and tie
 * nothing.
 */
static bool dsu_empty(const ckpt_tensor_value *t)
{
    for (uint32_t i = 0; i < t->ndim; i++) {
        if (t->shape[i] == 0)
            return true;
    }
    return false;
}

/* Ties names that are views of the same elements. */
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

/* Collects all entries except buffers, which are already marked. */
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

/* Adds an entry's master to the map, and the module's entry as its twin, to be compared with it. */
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

/* Sorts by group, then by slot; entries without a group remain in module order at the end. */
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

/* Returns whether an entry is frozen: it has no group, and every parameter's group is certain. */
static bool dsu_is_frozen(const ckpt_dsu *u, const ckpt_dsu_entry *e)
{
    return u->named && e->group == CKPT_DSU_NONE;
}

/* Adds frozen parameters, then trained ones by group. */
static int dsu_add_entries(ckpt_dsu *u)
{
    ckpt_tensor *t = NULL;
    int rc = CKPT_OK;

    for (size_t i = 0; rc == CKPT_OK && i < u->entry.n; i++) {
        const ckpt_dsu_entry *e = &u->entry.at[i];
        if (e->owner != i || !dsu_is_frozen(u, e))
            continue;
        if (u->job->opts->skip_frozen)
            u->job->map->effects |= CKPT_USED_FROZEN;
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

/* Adds tied names, which follow all owners in every map. */
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

/* ---- reading ---- */

/* Sorts the entries by group and adds the weights to the map. */
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

    u.path = head->optimizer ? head->optimizer : head->model.path;
    // weights_only ignores masters and takes the module's values
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
