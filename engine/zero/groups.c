/* SPDX-License-Identifier: Apache-2.0 */
/* groups.c: divides parameters into groups, and sets each group's order and hyper-parameters. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "engine/zero/own.h"
#include "libckpt/map/zero_flat.h"

/* True if a name contains the word, ignoring case. */
static bool gr_has(const char *name, const char *word)
{
    size_t n = strlen(word);

    for (; strlen(name) >= n; name++) {
        if (strncasecmp(name, word, n) == 0)
            return true;
    }
    return false;
}

/* True for Muon's parameters: matrices except embeddings and the output, recognised by name
 * (DeepSpeed's rule). */
static bool gr_muon(const zt_zero *z, const zt_param *p)
{
    return z->config->optim.type == ZT_OPT_MUON && p->ndim >= 2 && !gr_has(p->name, "embed") &&
           !gr_has(p->name, "lm_head");
}

static bool gr_is_split(const zt_zero *z)
{
    return strcmp(zr_of(z)->opts.grouping, "decay") == 0;
}

/* Index of a parameter's group among the four possible ones, including empty groups. */
static uint32_t gr_class(const zt_zero *z, const zt_param *p)
{
    bool split = gr_is_split(z);
    bool muon = z->config->optim.type == ZT_OPT_MUON;

    return (split && p->no_decay ? 2u : 0u) + (muon && !gr_muon(z, p) ? 1u : 0u);
}

/* A group's hyper-parameters before any schedule. */
zt_hyper zr_settings(const zt_zero *z, uint32_t group)
{
    zt_hyper h = zt_optim_hyper(&z->config->optim, z->group[group].muon);

    assert(group < 4);
    h.weight_decay = z->group[group].weight_decay;
    return h;
}

/* Set the hyper-parameters of a new group of class c. */
static void gr_settings(const zt_zero *z, zt_group *g, uint32_t c)
{
    g->weight_decay = c >= 2 ? 0 : z->config->optim.h.weight_decay;
    g->hyper = zr_settings(z, z->n_groups);
    g->lr = g->hyper.lr;
}

/* Reorder the flat buffer round robin, so that neighbouring parameters go to different ranks. */
static int gr_round_robin(zt_zero *z, const zt_group *g, ckpt_err *err)
{
    uint64_t *at = ckpt_alloc(g->n * sizeof *at);
    uint32_t *old = ckpt_alloc(g->n * sizeof *old);

    if (at && old) {
        memcpy(old, z->order + g->first, g->n * sizeof *old);
        ckpt_zero_round_robin(g->n, (uint32_t)z->comm->world, at);
        assert(at[0] < g->n && at[g->n - 1] < g->n);
        for (uint32_t i = 0; i < g->n; i++)
            z->order[g->first + i] = old[at[i]];
    }
    ckpt_free(at);
    bool ok = old && at;
    ckpt_free(old);
    return ok ? CKPT_OK : ckpt_fail_memory(err);
}

/* One of Muon's matrices, with its index in the model. */
typedef struct gr_matrix {
    const zt_param *param;
    uint32_t number;
} gr_matrix;

/*
 * Order by shape, larger axes first, as Python compares tuples; equal ones stay in the model's
 * order.
 */
static int gr_by_size(const void *pa, const void *pb)
{
    const gr_matrix *a = pa, *b = pb;

    for (uint32_t i = 0; i < a->param->ndim && i < b->param->ndim; i++) {
        if (a->param->shape[i] != b->param->shape[i])
            return a->param->shape[i] > b->param->shape[i] ? -1 : 1;
    }
    if (a->param->ndim != b->param->ndim)
        return a->param->ndim > b->param->ndim ? -1 : 1;
    return (a->number > b->number) - (a->number < b->number);
}

/* Sort the matrices, as MuonWithAuxAdam does (deepspeed/runtime/zero/muon/original_muon.py). */
static int gr_sort(zt_zero *z, const zt_group *g, ckpt_err *err)
{
    gr_matrix *m = ckpt_alloc(g->n * sizeof *m);

    if (!m)
        return ckpt_fail_memory(err);
    for (uint32_t i = 0; i < g->n; i++) {
        uint32_t number = z->order[g->first + i];

        m[i] = (gr_matrix){&z->model->params.at[number], number};
    }
    qsort(m, g->n, sizeof *m, gr_by_size);
    for (uint32_t i = 0; i < g->n; i++)
        z->order[g->first + i] = m[i].number;
    ckpt_free(m);
    return CKPT_OK;
}

/* Set the name of Muon's group c, as DeepSpeed's engine.py, _muon_param_groups, does. */
static int gr_half(zt_zero *z, zt_group *g, uint32_t c, ckpt_err *err)
{
    static const char *const name[2][4] = {
        {"muon-params", "adam-params", "", ""},
        {"group0-muon-params", "group0-adam-params", "group1-muon-params", "group1-adam-params"}};

    if (z->config->optim.type != ZT_OPT_MUON)
        return CKPT_OK;
    g->muon = c % 2 == 0;
    g->name = name[gr_is_split(z)][c];
    return g->muon ? gr_sort(z, g, err) : CKPT_OK;
}

/* Append the group of class c unless it is empty. */
static int gr_add(zt_zero *z, uint32_t c, ckpt_err *err)
{
    const zt_params *ps = &z->model->params;
    zt_group *g = &z->group[z->n_groups];
    int rc;

    assert(c < 4 && z->n_groups < 4);
    *g = (zt_group){.first = z->n_order};
    for (uint32_t i = 0; i < ps->n; i++) {
        if (zr_is_trained(z, i) && gr_class(z, &ps->at[i]) == c)
            z->order[z->n_order++] = i;
    }
    assert(z->n_order <= ps->n); // each parameter is of one class
    g->n = z->n_order - g->first;
    if (g->n == 0)
        return CKPT_OK;
    rc = gr_half(z, g, c, err);
    if (rc != CKPT_OK)
        return rc;
    gr_settings(z, g, c);
    memcpy(z->given + g->first, z->order + g->first, g->n * sizeof *z->given);
    for (uint32_t i = g->first; i < z->n_order; i++)
        zr_of(z)->place[z->order[i]].group = z->n_groups;
    z->n_groups++;
    if (z->config->round_robin && (z->config->stage == 1 || z->config->stage == 2) &&
        !zt_config_is_bf16_optimizer(z->config))
        return gr_round_robin(z, g, err);
    return CKPT_OK;
}

/*
 * True for trained parameters.  Those without elements count as frozen, because they have no
 * location.
 */
bool zr_is_trained(const zt_zero *z, uint32_t param)
{
    const zt_param *p = &z->model->params.at[param];

    assert(param < z->model->params.n);
    return !p->frozen && p->n_elems > 0;
}

/* Find the first and the last layer that use each parameter. */
static void gr_uses(zt_zero *z)
{
    const zt_layers *ls = &z->model->layers;
    zr_place *place = zr_of(z)->place;

    for (uint32_t i = 0; i < z->model->params.n; i++)
        place[i].first = place[i].last = ZR_NONE;
    for (uint32_t l = 0; l < ls->n; l++) {
        for (uint32_t k = 0; k < ls->at[l].n_params; k++) {
            zr_place *p = &place[ls->at[l].param[k]];

            assert(ls->at[l].param[k] < z->model->params.n);
            p->first = p->first == ZR_NONE ? l : p->first;
            p->last = l;
        }
    }
}

/*
 * There are at most four classes: with and without weight decay, each split in two by Muon.  Empty
 * ones are dropped.
 */
int zr_groups_new(zt_zero *z, ckpt_err *err)
{
    size_t n = z->model->params.n;
    zr_own *o = zr_of(z);

    if (n >= ZR_NONE)
        return ckpt_fail(err, CKPT_ELIMIT, "the model has too many parameters: %zu", n);
    if (strcmp(o->opts.grouping, "single") != 0 && strcmp(o->opts.grouping, "decay") != 0)
        return ckpt_fail(err, CKPT_EUSAGE,
                         "--param-groups \"%s\": expected \"single\" or \"decay\"",
                         o->opts.grouping);
    z->order = ckpt_alloc((n + 1) * sizeof *z->order);
    z->given = ckpt_alloc((n + 1) * sizeof *z->given);
    z->group = ckpt_alloc(5 * sizeof *z->group);
    o->place = ckpt_alloc((n + 1) * sizeof *o->place);
    if (!z->order || !z->given || !z->group || !o->place)
        return ckpt_fail_memory(err);
    for (size_t i = 0; i < n; i++)
        o->place[i].group = o->place[i].part = ZR_NONE;
    gr_uses(z);
    for (uint32_t c = 0; c < 4; c++) {
        int rc = gr_add(z, c, err);

        if (rc != CKPT_OK)
            return rc;
    }
    return CKPT_OK;
}
