/* SPDX-License-Identifier: Apache-2.0 */
/*
 * name.c: matches masters and states, which have only numbers, to the module's parameters (stage
 * 0).
 *
 * A fused group's flat tensor is recognised by the module's storages, which are views of it.
 * Otherwise every group lists its parameters in the module's order, so the lists are matched with
 * the module once from the front and once from the end: an assignment that both passes make is the
 * only possible one. A parameter without any gradient so far has no state and therefore no shape;
 * factored states (Adafactor) have the shape without one axis.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "formats/deepspeed/stage0/entry.h"

/* Limit for optimizer groups, far above any real run. */
#define DSUN_MAX_GROUPS 4096

/* ---- fused ---- */

/* Returns whether an entry's storage has the length of a group's flat tensor. */
static bool dsun_is_flat(const ckpt_dsu *u, uint32_t g, const ckpt_dsu_entry *e)
{
    const ckpt_value *v = u->masters.at[g];

    return v->kind == CKPT_V_TENSOR && v->as.tensor->ndim == 1 &&
           v->as.tensor->shape[0] == e->copy->storage->n_elems;
}

/*
 * Matches each group's flat tensor to the storage of equal length, because the group's parameters
 * are views of it. If another storage (e.g. a frozen parameter, if only one parameter is trained)
 * or another group's tensor has the same length, the match is uncertain.
 */
static int dsun_fused(ckpt_dsu *u)
{
    const ckpt_storage **own = ckpt_alloc(u->n_groups * sizeof *own);

    if (!own)
        return ckpt_fail_memory(u->job->err);
    u->named = true;
    for (size_t i = 0; u->named && i < u->entry.n; i++) {
        ckpt_dsu_entry *e = &u->entry.at[i];
        for (uint32_t g = 0; e->copy->storage && g < u->n_groups; g++) {
            if (!dsun_is_flat(u, g, e))
                continue;
            u->named =
                u->named && e->group == CKPT_DSU_NONE && (!own[g] || own[g] == e->copy->storage);
            own[g] = e->copy->storage;
            e->group = g;
            e->slot = e->copy->offset;
        }
    }
    ckpt_free(own);
    return CKPT_OK;
}

/* ---- lists ---- */

/* Quality of a match between a list item and a parameter. */
typedef enum dsun_fit { DSUN_NO, DSUN_MAYBE, DSUN_YES } dsun_fit;

/* Returns whether `t` has the shape of `of` without one axis, like a factored state. */
static bool dsun_is_reduced(const ckpt_tensor_value *t, const ckpt_tensor_value *of)
{
    if (t->ndim + 1 != of->ndim)
        return false;
    for (uint32_t skip = 0; skip < of->ndim; skip++) {
        uint32_t i = 0;
        while (i < t->ndim && t->shape[i] == of->shape[i + (i >= skip)])
            i++;
        if (i == t->ndim)
            return true;
    }
    return false;
}

/* Compares a state's tensors with a parameter: YES if one has its shape, MAYBE if all are factors
 * of it or none exist. */
static dsun_fit dsun_fit_state(ckpt_dict state, const ckpt_tensor_value *copy)
{
    dsun_fit fit = DSUN_MAYBE;

    for (uint64_t i = 0; i < state.n; i++) {
        const ckpt_value *v = state.at[i].value;
        if (v->kind != CKPT_V_TENSOR || ckpt_value_is(state.at[i].key, "step"))
            continue;
        const ckpt_tensor_value *t = v->as.tensor;
        if (ckpt_dsu_same_shape(t, copy))
            return DSUN_YES;
        if (ckpt_dsu_elems(t) != 1 && !dsun_is_reduced(t, copy))
            fit = DSUN_NO;
    }
    return fit;
}

/* One pass through the module. */
typedef struct dsun_pass {
    ckpt_dsu *u;
    uint64_t *next;   /* per group: number of assigned items */
    uint64_t *length; /* per group */
    uint64_t *begin;  /* per group: index of its first item among all items */
    uint64_t
        *run; /* per item that starts a run of equal sizes (Muon): number of assigned items in it */
    uint32_t *group; /* per entry: its group, or CKPT_DSU_NONE */
    uint64_t *slot;
    uint64_t spare; /* number of parameters outside all groups */
    bool back;      /* assign items from the end */
} dsun_pass;

/*
 * Returns the group's next item for an entry, or UINT64_MAX if none remains; *taken points to the
 * counter of assigned items in its run.
 */
static uint64_t dsun_next(const dsun_pass *p, uint32_t g, const ckpt_dsu_entry *e, uint64_t **taken)
{
    uint64_t first = 0, n = p->length[g];

    *taken = &p->next[g];
    if (ckpt_dsu_is_muon(p->u, g)) {
        ckpt_dsu_muon_run(p->u, g, e, &first, &n);
        *taken = n ? &p->run[p->begin[g] + first] : NULL;
    }
    if (n == 0 || **taken >= n)
        return UINT64_MAX;
    return first + (p->back ? n - 1 - **taken : **taken);
}

/* Rates the match between an entry and a group's next item. */
static dsun_fit dsun_fit_next(const dsun_pass *p, uint32_t g, const ckpt_dsu_entry *e)
{
    ckpt_dsu *u = p->u;
    uint64_t *taken, slot = dsun_next(p, g, e, &taken);

    if (slot == UINT64_MAX || !ckpt_dsu_muon_takes(u, g, e))
        return DSUN_NO;
    if (u->masters.n == 0) {
        size_t at = ckpt_dsu_state_at(u, g, slot);
        return at == SIZE_MAX ? DSUN_MAYBE
                              : dsun_fit_state(ckpt_value_map(u->states.at[at].value), e->copy);
    }
    const ckpt_value *v = ckpt_value_seq(u->masters.at[g]).at[slot];
    return v->kind == CKPT_V_TENSOR && ckpt_dsu_same_shape(v->as.tensor, e->copy) ? DSUN_YES
                                                                                  : DSUN_NO;
}

/* Selects the group with the best match of its next item; CKPT_DSU_NONE if none matches. False if
 * two match equally. */
static bool dsun_choose(const dsun_pass *p, const ckpt_dsu_entry *e, uint32_t *out)
{
    dsun_fit best = DSUN_NO;
    bool sure = true;

    *out = CKPT_DSU_NONE;
    for (uint32_t g = 0; g < p->u->n_groups; g++) {
        dsun_fit fit = dsun_fit_next(p, g, e);
        if (fit == DSUN_NO || fit < best)
            continue;
        sure = fit > best;
        best = fit;
        *out = g;
    }
    return sure;
}

/* Matches all lists with the module; false if the match fails or is ambiguous. */
static bool dsun_walk(dsun_pass *p)
{
    ckpt_dsu *u = p->u;
    size_t n = u->entry.n;
    uint64_t spare = p->spare, *taken = NULL;

    memset(p->next, 0, u->n_groups * sizeof *p->next);
    memset(p->run, 0, n * sizeof *p->run);
    for (size_t k = 0; k < n; k++) {
        size_t i = p->back ? n - 1 - k : k;
        uint32_t g;
        p->group[i] = CKPT_DSU_NONE;
        if (u->entry.at[i].owner != i)
            continue;
        if (!dsun_choose(p, &u->entry.at[i], &g) || (g == CKPT_DSU_NONE && spare-- == 0))
            return false;
        if (g == CKPT_DSU_NONE)
            continue;
        p->group[i] = g;
        p->slot[i] = dsun_next(p, g, &u->entry.at[i], &taken);
        ++*taken;
        p->next[g] += taken != &p->next[g];
    }
    for (size_t g = 0; g < u->n_groups; g++) {
        if (p->next[g] != p->length[g])
            return false;
    }
    return true;
}

/* Reads the lengths of the lists; false if they exceed the module's parameters. */
static bool dsun_lengths(dsun_pass *p)
{
    ckpt_dsu *u = p->u;
    uint64_t owners = 0, items = 0;

    for (size_t i = 0; i < u->entry.n; i++)
        owners += u->entry.at[i].owner == i;
    for (size_t g = 0; g < u->n_groups; g++) {
        p->length[g] = u->masters.n
                           ? ckpt_value_seq(u->masters.at[g]).n
                           : ckpt_value_seq(ckpt_value_get(u->param_groups.at[g], "params")).n;
        p->begin[g] = items;
        items += p->length[g];
    }
    p->spare = owners - items;
    // A pipeline stage may have surplus layers, because the split is not always certain; then no
    // parameter may remain without a group.
    return items > 0 && items <= owners && (p->spare == 0 || !u->module->layered);
}

/* Accepts the assignments on which both passes agree. */
static void dsun_both(dsun_pass *front, dsun_pass *back)
{
    ckpt_dsu *u = front->u;

    u->named = dsun_lengths(front) && dsun_lengths(back) && dsun_walk(front) && dsun_walk(back);
    for (size_t i = 0; u->named && i < u->entry.n; i++) {
        ckpt_dsu_entry *e = &u->entry.at[i];
        bool same = front->group[i] == back->group[i] &&
                    (front->group[i] == CKPT_DSU_NONE || front->slot[i] == back->slot[i]);
        u->doubt += !same;
        if (same) {
            e->group = front->group[i];
            e->slot = front->slot[i];
        }
    }
    u->named = u->named && u->doubt == 0;
}

static int dsun_listed(ckpt_dsu *u)
{
    size_t n = u->entry.n, groups = u->n_groups;
    dsun_pass front = {.u = u}, back = {.u = u, .back = true};
    uint64_t *counts = ckpt_alloc((5 * groups + 3 * n + 1) * sizeof *counts);
    uint32_t *found = ckpt_alloc((2 * n + 1) * sizeof *found);
    int rc = counts && found ? CKPT_OK : ckpt_fail_memory(u->job->err);

    if (rc == CKPT_OK) {
        front.next = counts;
        front.length = counts + groups;
        back.next = counts + 2 * groups;
        back.length = counts + 3 * groups;
        front.slot = counts + 4 * groups;
        back.slot = front.slot + n;
        front.run = back.run = back.slot + n;
        front.begin = back.begin = front.run + n;
        front.group = found;
        back.group = found + n;
        dsun_both(&front, &back);
    }
    ckpt_free(counts);
    ckpt_free(found);
    return rc;
}

/* ---- all cases ---- */

int ckpt_dsu_name(ckpt_dsu *u)
{
    const ckpt_value *listed = ckpt_value_get(u->optimizer, "fp32_groups");
    const ckpt_value *flat = ckpt_value_get(u->optimizer, "fp32_groups_flat");
    int rc = CKPT_OK;

    u->fused = flat != NULL;
    u->masters = ckpt_value_seq(u->fused ? flat : listed);
    u->n_groups = u->masters.n ? (size_t)u->masters.n : (size_t)u->param_groups.n;
    if (u->n_groups == 0)
        return CKPT_OK;
    if (u->n_groups <= DSUN_MAX_GROUPS && u->fused)
        rc = dsun_fused(u);
    else if (u->n_groups <= DSUN_MAX_GROUPS)
        rc = dsun_listed(u);
    for (size_t i = 0; rc == CKPT_OK && i < u->entry.n; i++) {
        ckpt_dsu_entry *e = &u->entry.at[i];
        if (!u->named && u->doubt == 0)
            e->group = CKPT_DSU_NONE;
        if (e->group != CKPT_DSU_NONE)
            e->state = ckpt_dsu_state_at(u, e->group, u->fused ? 0 : e->slot);
    }
    if (rc != CKPT_OK || u->named || u->masters.n == 0)
        return rc;
    return ckpt_map_note(u->job->map, CKPT_WARNING, u->job->err,
                         "%s: stage 0 writes its fp32 master weights without names, and ckpt "
                         "cannot match them with certainty: it takes the module's rounded values",
                         u->path);
}
