/* SPDX-License-Identifier: Apache-2.0 */
/*
 * lanes.c: finds the experts of all expert-parallel ranks under ZeRO.
 *
 * The optimizer files and param_shapes number experts per expert-parallel rank: with k such ranks
 * (lanes) and m experts in each, "...deepspeed_experts.2..." of lane e is expert e * m + 2.
 * DeepSpeed partitions a parameter group of experts only over the data-parallel ranks of its lane:
 * e, e + k, e + 2k ... (deepspeed/utils/groups.py, stage_1_and_2.py); partition_count is the number
 * of these ranks.
 */
#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "formats/deepspeed/layout/autoep.h"

uint32_t ckpt_ds_lanes_of(const ckpt_ds_head *head, size_t group)
{
    ckpt_seq shapes = ckpt_value_seq(ckpt_value_get(head->model.root, "param_shapes"));
    ckpt_seq counts = ckpt_value_seq(ckpt_value_get(head->optim.optim, "partition_count"));
    ckpt_dict first = ckpt_value_map(group < shapes.n ? shapes.at[group] : NULL);
    int64_t n = 0;

    if (first.n && first.at[0].key->kind == CKPT_V_STR) {
        const ckpt_text *name = &first.at[0].key->as.text;
        const ckpt_ds_moe_layer *layer = ckpt_ds_autoep_of(head, name->at, name->n);
        // files of missing ranks are reported later
        if (layer)
            return head->world % layer->ep ? 1 : layer->ep;
    }
    if (head->stage == 3 || head->legacy || first.n == 0 || first.at[0].key->kind != CKPT_V_STR ||
        !strstr(first.at[0].key->as.text.at, CKPT_TRAIN_EXPERTS))
        return 1;
    if (group >= counts.n || !ckpt_value_as_int(counts.at[group], &n) || n < 1 || n > head->world ||
        head->world % (uint32_t)n != 0)
        return 1;
    return head->world / (uint32_t)n;
}

/* An expert's parameter, with the number of experts per lane in its layer. */
typedef struct dsx_local {
    const char *name;
    size_t n_prefix; /* bytes of the name before the number */
    uint64_t number;
    size_t param;
    uint64_t per_lane;
} dsx_local;

static int dsx_by_prefix(const void *a, const void *b)
{
    const dsx_local *x = a, *y = b;

    if (x->n_prefix != y->n_prefix)
        return x->n_prefix < y->n_prefix ? -1 : 1;
    int order = memcmp(x->name, y->name, x->n_prefix);
    if (order)
        return order;
    return x->number == y->number ? 0 : x->number < y->number ? -1 : 1;
}

static int dsx_by_param(const void *a, const void *b)
{
    const dsx_local *x = a, *y = b;

    return x->param == y->param ? 0 : x->param < y->param ? -1 : 1;
}

/* Find the expert numbers of a group; `local` has one entry per parameter. */
static int dsx_locals(const ckpt_ds_job *job, const ckpt_ds_layout *layout, const ckpt_ds_group *g,
                      dsx_local *local)
{
    for (size_t i = 0; i < g->n; i++) {
        size_t n = 0;
        local[i] = (dsx_local){.name = layout->params.at[g->first + i].name, .param = i};
        if (!ckpt_train_expert_number(local[i].name, &local[i].n_prefix, &n, &local[i].number))
            return ckpt_fail(
                job->err, CKPT_EUNSUPPORTED,
                "%s: %.200s is in a parameter group of experts, but its name has no expert number",
                job->map->path, local[i].name);
    }
    qsort(local, g->n, sizeof *local, dsx_by_prefix);
    for (size_t i = 0, end; i < g->n; i = end) {
        for (end = i; end < g->n && local[end].n_prefix == local[i].n_prefix &&
                      memcmp(local[end].name, local[i].name, local[i].n_prefix) == 0;)
            end++;
        for (size_t k = i; k < end; k++)
            local[k].per_lane = local[end - 1].number + 1;
    }
    qsort(local, g->n, sizeof *local, dsx_by_param);
    return CKPT_OK;
}

/* Append the parameters of lanes 1 and above: those of lane 0 with other expert numbers. */
static int dsx_lanes(const ckpt_ds_job *job, const ckpt_ds_layout *layout, const ckpt_ds_group *g,
                     const dsx_local *local, ckpt_ds_params *out)
{
    for (size_t k = g->n; k < g->n * g->lanes; k++) {
        const dsx_local *l = &local[k % g->n];
        ckpt_ds_param *p = ckpt_vec_push(out);
        if (!p)
            return ckpt_fail_memory(job->err);
        *p = layout->params.at[g->first + k % g->n];
        const char *name =
            ckpt_arena_printf(job->map->arena, "%.*s%" PRIu64 "%s", (int)l->n_prefix, l->name,
                              l->number + (k / g->n) * l->per_lane,
                              l->name + l->n_prefix + strspn(l->name + l->n_prefix, "0123456789"));
        if (!name)
            return ckpt_fail_memory(job->err);
        p->name = name;
        p->n_name = strlen(name);
    }
    return CKPT_OK;
}

/* Append one group with all its lanes. */
static int dsx_group(const ckpt_ds_job *job, ckpt_ds_layout *layout, ckpt_ds_group *g,
                     ckpt_ds_params *out)
{
    dsx_local *local = NULL;
    size_t first = out->n;
    int rc = CKPT_OK;

    for (size_t i = 0; i < g->n; i++) {
        ckpt_ds_param *p = ckpt_vec_push(out);
        if (!p)
            return ckpt_fail_memory(job->err);
        *p = layout->params.at[g->first + i];
    }
    if (g->lanes > 1 && g->n) {
        local = ckpt_alloc(g->n * sizeof *local);
        rc = local ? dsx_locals(job, layout, g, local) : ckpt_fail_memory(job->err);
        if (rc == CKPT_OK)
            rc = dsx_lanes(job, layout, g, local, out);
        ckpt_free(local);
    }
    g->first = first;
    return rc;
}

int ckpt_ds_lanes_params(const ckpt_ds_job *job, ckpt_ds_layout *layout)
{
    assert(job && layout);
    ckpt_ds_params out = {0};
    bool any = false;
    int rc = CKPT_OK;

    for (size_t g = 0; g < layout->group.n; g++)
        any = any || layout->group.at[g].lanes > 1;
    if (!any)
        return CKPT_OK;
    for (size_t g = 0; rc == CKPT_OK && g < layout->group.n; g++)
        rc = dsx_group(job, layout, &layout->group.at[g], &out);
    ckpt_vec_free(&layout->params);
    layout->params = out;
    return rc;
}
