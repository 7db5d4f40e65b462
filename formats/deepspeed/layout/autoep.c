/* SPDX-License-Identifier: Apache-2.0 */
/*
 * autoep.c: reads AutoEP's description of expert layers, and computes where their parameters are
 * stored.
 */
#include "formats/deepspeed/layout/autoep.h"

#include <assert.h>
#include <inttypes.h>
#include <string.h>

enum {
    AEP_MAX_EXPERTS = 1 << 16, /* per layer; far above any model */
    AEP_FORMAT = 1             /* the supported checkpoint_format_version of stage 3 */
};

/* ---- ds_autoep_layers ---- */

/* Read a positive number of a layer's entry. */
static bool aep_int(const ckpt_value *entry, const char *key, uint32_t *out)
{
    int64_t n = 0;

    if (!ckpt_value_as_int(ckpt_value_get(entry, key), &n) || n < 1 || n > AEP_MAX_EXPERTS)
        return false;
    *out = (uint32_t)n;
    return true;
}

/* True if expert-parallel rank e has the n_local experts from e * n_local on, in order. */
static bool aep_is_even(const ckpt_value *placement, const ckpt_ds_moe_layer *l)
{
    ckpt_seq ranks = ckpt_value_seq(ckpt_value_get(placement, "ranks"));
    int64_t rank = 0, expert = 0;

    if (!placement || placement->kind == CKPT_V_NONE)
        return true; // releases before 0.19.6 had only this placement
    if (ranks.n != l->ep)
        return false;
    for (uint64_t e = 0; e < ranks.n; e++) {
        ckpt_seq experts = ckpt_value_seq(ckpt_value_get(ranks.at[e], "experts"));
        if (!ckpt_value_as_int(ckpt_value_get(ranks.at[e], "rank"), &rank) || rank != (int64_t)e ||
            experts.n != l->n_local)
            return false;
        for (uint64_t i = 0; i < experts.n; i++) {
            if (!ckpt_value_as_int(experts.at[i], &expert) ||
                expert != (int64_t)(e * l->n_local + i))
                return false;
        }
    }
    return true;
}

/* Check the format's version, and the format against the stage. */
static int aep_check_format(ckpt_ds_job *job, const ckpt_ds_head *head, const ckpt_value *entry)
{
    const ckpt_value *format = ckpt_value_get(entry, "checkpoint_format");
    const ckpt_value *said = ckpt_value_get(entry, "checkpoint_format_version");
    int64_t version = AEP_FORMAT;

    if (said && said->kind != CKPT_V_NONE && !ckpt_value_as_int(said, &version))
        return ckpt_fail(job->err, CKPT_EFORMAT,
                         "%s: AutoEP's checkpoint_format_version is not a whole number",
                         head->model.path);
    if (version != AEP_FORMAT)
        return ckpt_fail(job->err, CKPT_EUNSUPPORTED,
                         "%s: AutoEP's checkpoint_format_version is %" PRId64
                         ", from a later release of DeepSpeed; ckpt supports %d",
                         head->model.path, version, AEP_FORMAT);
    // A universal checkpoint keeps its source's entries, but stores experts like other parameters.
    if (format && head->optim.optim &&
        ckpt_value_is(format, "zero3_partitioned") != (head->stage == 3))
        return ckpt_ds_problem(job, CKPT_EMISMATCH,
                               "%s: AutoEP's checkpoint_format is of %s, but the optimizer files "
                               "are of stage %d: they are from different runs",
                               head->model.path, head->stage == 3 ? "stage 1 or 2" : "stage 3",
                               head->stage);
    return CKPT_OK;
}

static int aep_layer(ckpt_ds_job *job, ckpt_ds_head *head, const ckpt_value *entry, uint64_t at)
{
    const ckpt_value *prefix = ckpt_value_get(entry, "expert_key_prefix");
    ckpt_ds_moe_layer *l = ckpt_vec_push(&head->autoep);

    if (!l)
        return ckpt_fail_memory(job->err);
    if (!prefix || prefix->kind != CKPT_V_STR || prefix->as.text.n == 0 ||
        !aep_int(entry, "num_experts", &l->n_experts) ||
        !aep_int(entry, "num_local_experts", &l->n_local) || !aep_int(entry, "ep_size", &l->ep)) {
        head->autoep.n--;
        return ckpt_fail(job->err, CKPT_EFORMAT,
                         "%s: ds_autoep_layers: entry %" PRIu64
                         ": expected expert_key_prefix, num_experts, num_local_experts and "
                         "ep_size (1 to %d)",
                         head->model.path, at, AEP_MAX_EXPERTS);
    }
    l->prefix = prefix->as.text.at;
    l->n_prefix = (size_t)prefix->as.text.n;
    for (l->n_module = l->n_prefix; l->n_module > 0 && l->prefix[l->n_module - 1] != '.';)
        l->n_module--;
    l->n_module -= l->n_module > 0;
    if ((uint64_t)l->n_local * l->ep != l->n_experts ||
        !aep_is_even(ckpt_value_get(entry, "expert_placement"), l))
        return ckpt_fail(
            job->err, CKPT_EUNSUPPORTED,
            "%s: %.200s: AutoEP has placed %" PRIu32 " experts on %" PRIu32
            " expert-parallel ranks unevenly or out of order, which ckpt does not read",
            head->model.path, l->prefix, l->n_experts, l->ep);
    if (l->ep != head->autoep.at[0].ep)
        return ckpt_ds_problem(
            job, CKPT_EMISMATCH,
            "%s: %.200s is spread over %" PRIu32 " expert-parallel ranks, %.200s over %" PRIu32,
            head->model.path, l->prefix, l->ep, head->autoep.at[0].prefix, head->autoep.at[0].ep);
    return aep_check_format(job, head, entry);
}

int ckpt_ds_autoep_read(ckpt_ds_job *job, ckpt_ds_head *head)
{
    const ckpt_value *layers = ckpt_ds_head_get(head, "ds_autoep_layers");
    const ckpt_value *config = ckpt_ds_head_get(head, "ds_config");
    int64_t data_first = 0;
    int rc = CKPT_OK;

    layers = layers ? layers : ckpt_ds_head_get(head, "autoep_layers");
    head->autoep.n = 0;
    for (uint64_t i = 0; rc == CKPT_OK && i < ckpt_value_seq(layers).n; i++)
        rc = aep_layer(job, head, ckpt_value_seq(layers).at[i], i);
    if (rc != CKPT_OK || head->autoep.n == 0)
        return rc;
    (void)ckpt_value_as_int(ckpt_value_get(config, "use_data_before_expert_parallelism"),
                            &data_first);
    if (data_first && head->autoep.at[0].ep > 1)
        return ckpt_fail(job->err, CKPT_EUNSUPPORTED,
                         "%s: with use_data_before_expert_parallelism, ckpt does not know which "
                         "ranks have which experts of AutoEP",
                         head->model.path);
    return CKPT_OK;
}

const ckpt_ds_moe_layer *ckpt_ds_autoep_of(const ckpt_ds_head *head, const char *name, uint64_t n)
{
    for (size_t i = 0; i < head->autoep.n; i++) {
        const ckpt_ds_moe_layer *l = &head->autoep.at[i];
        const char *end = name + l->n_prefix;
        if (n == l->n_prefix + 3 && memcmp(name, l->prefix, l->n_prefix) == 0 && end[0] == '.' &&
            end[1] == 'w' && end[2] >= '1' && end[2] <= '3')
            return l;
    }
    return NULL;
}

/* ---- parameters ---- */

/* Replace one fused parameter by its n experts, each with the shape of one. */
static int aep_split(const ckpt_ds_job *job, ckpt_ds_params *out, const ckpt_ds_param *p,
                     const ckpt_ds_moe_layer *l, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        ckpt_ds_param *made = ckpt_vec_push(out);
        const char *name =
            ckpt_arena_printf(job->map->arena, "%.*s.%" PRIu32, (int)p->n_name, p->name, i);
        if (!made || !name)
            return ckpt_fail_memory(job->err);
        *made = *p;
        made->name = name;
        made->n_name = strlen(name);
        made->shape = p->shape + 1;
        made->ndim = p->ndim - 1;
        made->numel = p->numel / l->n_local;
        made->fused = n;
        made->in = i;
    }
    return CKPT_OK;
}

int ckpt_ds_autoep_expand(ckpt_ds_job *job, const ckpt_ds_head *head, ckpt_ds_params *params,
                          bool all)
{
    assert(job && head && params);
    ckpt_ds_params out = {0};
    int rc = CKPT_OK;

    if (head->autoep.n == 0)
        return CKPT_OK;
    for (size_t i = 0; rc == CKPT_OK && i < params->n; i++) {
        const ckpt_ds_param *p = &params->at[i];
        const ckpt_ds_moe_layer *l = ckpt_ds_autoep_of(head, p->name, p->n_name);
        ckpt_ds_param *same = l ? NULL : ckpt_vec_push(&out);
        if (same)
            *same = *p;
        else if (!l)
            rc = ckpt_fail_memory(job->err);
        else if (p->ndim != 3 || p->shape[0] != l->n_local)
            rc = ckpt_fail(job->err, CKPT_EMISMATCH,
                           "%s: %.200s has %" PRIu32 " axes, the first of %" PRIu64
                           "; expected 3, the first of the %" PRIu32 " experts of a rank",
                           head->model.path, p->name, p->ndim, p->ndim ? p->shape[0] : 0,
                           l->n_local);
        else
            rc = aep_split(job, &out, p, l, all ? l->n_experts : l->n_local);
    }
    ckpt_vec_free(params);
    *params = out;
    return rc;
}

/* ---- stage 3 ---- */

int ckpt_ds_autoep_place(ckpt_ds_job *job, const ckpt_ds_head *head, ckpt_ds_layout *layout)
{
    assert(job && head && layout);
    for (size_t g = 0; g < layout->group.n; g++) {
        const ckpt_ds_group *group = &layout->group.at[g];
        uint64_t at = 0, next = 0;
        for (size_t i = 0; i < group->n * group->lanes; i++) {
            ckpt_ds_param *p = &layout->params.at[group->first + i];
            uint64_t all = p->numel;
            at = i % group->n == 0 ? 0 : at;
            next = i % group->n == 0 ? 0 : next;
            if (p->fused && !ckpt_mul(all, p->fused, &all))
                return ckpt_fail(job->err, CKPT_EFORMAT, "%s: the size of %.200s overflows",
                                 head->model.path, p->name);
            at = p->in == 0 ? next : at;
            p->at = at;
            if (!ckpt_add(at, ckpt_zero_partition(all, group->n_parts), &next))
                return ckpt_fail(job->err, CKPT_EFORMAT, "%s: the size of sub-group %zu overflows",
                                 head->model.path, g);
        }
        if (layout->column.at[0].at[group->part].n != next)
            return ckpt_ds_problem(job, CKPT_EMISMATCH,
                                   "%s: sub-group %zu has %" PRIu64
                                   " elements on rank 0, param_shapes account for %" PRIu64
                                   ": model and optimizer files are from different runs",
                                   head->optim.path, g, layout->column.at[0].at[group->part].n,
                                   next);
    }
    return CKPT_OK;
}

/* Check one entry of ds_zero_partition_groups: the ranks with a sub-group, and this rank's
 * index. */
static bool aep_is_partition(const ckpt_value *entry, const ckpt_ds_group *g, uint32_t rank)
{
    ckpt_seq ranks = ckpt_value_seq(ckpt_value_get(entry, "partition_ranks"));
    int64_t n = 0;

    if (!ckpt_value_as_int(ckpt_value_get(entry, "partition_rank"), &n) || n != rank / g->lanes ||
        ranks.n != g->n_parts)
        return false;
    for (uint64_t i = 0; i < ranks.n; i++) {
        if (!ckpt_value_as_int(ranks.at[i], &n) || n < 0 ||
            (uint64_t)n != rank % g->lanes + i * g->lanes)
            return false;
    }
    return true;
}

int ckpt_ds_autoep_check_optim(ckpt_ds_job *job, const ckpt_ds_head *head,
                               const ckpt_ds_layout *layout, const ckpt_ds_shard *s)
{
    ckpt_seq list = ckpt_value_seq(ckpt_value_get(s->optim, "ds_zero_partition_groups"));

    if (head->autoep.n == 0 || head->stage != 3 || job->broken)
        return CKPT_OK;
    for (size_t g = 0; g < layout->group.n; g++) {
        if (g >= list.n || !aep_is_partition(list.at[g], &layout->group.at[g], s->rank))
            return ckpt_ds_problem(job, CKPT_EMISMATCH,
                                   "%s: ds_zero_partition_groups does not say that rank %" PRIu32
                                   " has its part of sub-group %zu: this is the shard of another "
                                   "rank or of another run",
                                   s->path, s->rank, g);
    }
    return CKPT_OK;
}

int ckpt_ds_autoep_check_model(ckpt_ds_job *job, const ckpt_ds_head *head, const ckpt_ds_shard *s)
{
    ckpt_seq list = ckpt_value_seq(ckpt_value_get(s->root, "ds_autoep_layers"));

    for (size_t i = 0; i < head->autoep.n; i++) {
        int64_t rank = -1;
        if (i < list.n && (!ckpt_value_get(list.at[i], "ep_rank") ||
                           (ckpt_value_as_int(ckpt_value_get(list.at[i], "ep_rank"), &rank) &&
                            rank == s->rank % head->autoep.at[i].ep)))
            continue;
        return ckpt_ds_problem(job, CKPT_EMISMATCH,
                               "%s: ds_autoep_layers does not say that rank %" PRIu32
                               " is expert-parallel rank %" PRIu32
                               ": this is the file of another rank or of another run",
                               s->path, s->rank, s->rank % head->autoep.at[i].ep);
    }
    return CKPT_OK;
}
