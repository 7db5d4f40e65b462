/* SPDX-License-Identifier: Apache-2.0 */
/*
 * experts.c: mixtures of experts: the experts' files, and the parameters of all expert-parallel
 * ranks.
 *
 * `module` lacks the experts: each has a file, under its global number.  The optimizer files and
 * param_shapes number them per expert-parallel rank: with k such ranks (lanes) and m experts in
 * each,
 * "...deepspeed_experts.2..." of lane e is expert e * m + 2.  A parameter group of experts is cut
 * over the data-parallel ranks of its lane alone: e, e + k, e + 2k ... (deepspeed/utils/groups.py,
 * stage_1_and_2.py); partition_count says how many these are.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "formats/deepspeed/deepspeed.h"

static const char dse_mark[] = ".deepspeed_experts.";

/* ---- names ---- */

/* The number in an expert's name: from byte *at on, *n bytes. */
static bool dse_number(const char *name, size_t *at, size_t *n, uint64_t *number)
{
    const char *mark = strstr(name, dse_mark), *p;

    if (!mark)
        return false;
    p = mark + sizeof dse_mark - 1;
    *at = (size_t)(p - name);
    *number = 0;
    for (*n = 0; *n < 9 && p[*n] >= '0' && p[*n] <= '9'; (*n)++)
        *number = *number * 10 + (uint64_t)(p[*n] - '0');
    return *n > 0 && p[*n] == '.';
}

/* ---- files ---- */

/* num_experts of the model file for a layer that has experts; 0: it does not say. */
static uint64_t dse_expected(const ckpt_ds_head *head, const ckpt_ds_part *part)
{
    const ckpt_value *v = ckpt_value_get(head->model.root, "num_experts");
    ckpt_seq list = ckpt_value_seq(v);
    int64_t n = 0;

    if (list.n == 1)
        v = list.at[0];
    else if (list.n)
        v = part->has_layer && part->layer < list.n ? list.at[part->layer] : NULL;
    return ckpt_value_as_int(v, &n) && n > 0 ? (uint64_t)n : 0;
}

/* Say which file of a layer is missing, or one too many. */
static int dse_wrong(ckpt_ds_job *job, const ckpt_ds_part *near, uint64_t want, uint64_t expected)
{
    if (expected && want >= expected)
        return ckpt_ds_problem(job, CKPT_EMISMATCH,
                               "%s: expert %" PRIu32 " of a layer that has %" PRIu64
                               " experts: left behind by another run; move it away",
                               near->path, near->rank, expected);
    return ckpt_ds_problem(job, CKPT_EMISSING,
                           "%s: missing: the file of expert %" PRIu64
                           " of the layer that %s is of: a "
                           "process did not save, or it was not copied",
                           job->map->path, want, near->path);
}

/* Experts of each layer are 0 .. num_experts - 1, each once. */
static int dse_check_files(ckpt_ds_job *job, const ckpt_ds_folder *dir, const ckpt_ds_head *head)
{
    const ckpt_ds_parts *parts = &dir->experts;
    int rc = CKPT_OK;

    for (size_t i = 0, end; rc == CKPT_OK && i < parts->n; i = end) {
        const ckpt_ds_part *first = &parts->at[i];
        uint64_t expected = dse_expected(head, first);
        for (end = i; end < parts->n && parts->at[end].layer == first->layer &&
                      parts->at[end].has_layer == first->has_layer;
             end++) {
            const ckpt_ds_part *p = &parts->at[end];
            // One is enough to say: all behind a missing one are out of place.
            if (p->rank != end - i || (expected && p->rank >= expected))
                return dse_wrong(job, p, end - i, expected);
        }
        if (rc == CKPT_OK && expected > end - i)
            rc = dse_wrong(job, first, end - i, expected);
    }
    return rc;
}

/* The experts' entries, while their files are read. */
typedef struct dse_taking {
    ckpt_ds_job *job;
    ckpt_ds_head *head;
    ckpt_ds_pairs pairs;
} dse_taking;

/* One expert's file. */
static int dse_take(void *ctx, ckpt_ds_shard *s)
{
    dse_taking *t = ctx;
    ckpt_dict dict = ckpt_value_map(s->root);

    for (uint64_t i = 0; i < dict.n; i++) {
        const ckpt_value *key = dict.at[i].key;
        uint64_t number = 0;
        size_t at = 0, n = 0;
        if (key->kind != CKPT_V_STR)
            continue;
        if (!dse_number(key->as.text.at, &at, &n, &number) || number != s->rank)
            return ckpt_ds_problem(t->job, CKPT_EMISMATCH,
                                   "%s: holds %.200s, which is no parameter of expert %" PRIu32,
                                   s->path, key->as.text.at, s->rank);
        ckpt_pair *p = ckpt_vec_push(&t->pairs);
        if (!p)
            return ckpt_fail_memory(t->job->err);
        *p = dict.at[i];
    }
    return ckpt_ds_shard_merge(t->job, &t->head->model, s);
}

/* Stage 0 is read per expert-parallel rank: is this file of the one that is read? */
static bool dse_is_mine(const ckpt_ds_folder *dir, const ckpt_ds_part *part)
{
    const ckpt_ds_parts *all = &dir->experts;
    uint64_t n = 0;

    if (dir->ep < 2)
        return true;
    for (size_t i = 0; i < all->n; i++)
        n += all->at[i].layer == part->layer && all->at[i].has_layer == part->has_layer;
    return part->rank / (n / dir->ep ? n / dir->ep : 1) == dir->ep_rank;
}

int ckpt_ds_moe_module(ckpt_ds_job *job, const ckpt_ds_folder *dir, ckpt_ds_head *head)
{
    dse_taking t = {.job = job, .head = head};
    const ckpt_value *num = ckpt_value_get(head->model.root, "num_experts");
    ckpt_ds_parts mine = {0};

    if (!num || num->kind == CKPT_V_NONE)
        return ckpt_ds_problem(
            job, CKPT_EMISMATCH,
            "%s: beside a model file without num_experts, that is, without experts: "
            "left behind by another run; move it away",
            dir->experts.at[0].path);
    int rc = dse_check_files(job, dir, head);
    for (size_t i = 0; rc == CKPT_OK && i < dir->experts.n; i++) {
        bool is_mine = dse_is_mine(dir, &dir->experts.at[i]);
        ckpt_ds_part *p = is_mine ? ckpt_vec_push(&mine) : NULL;
        if (p)
            *p = dir->experts.at[i];
        else if (is_mine)
            rc = ckpt_fail_memory(job->err);
    }
    if (rc == CKPT_OK)
        rc = ckpt_ds_shard_each(job, &mine, 0, dse_take, &t);
    ckpt_vec_free(&mine);
    if (rc == CKPT_OK)
        rc = ckpt_ds_module_set(job, head, &t.pairs, true);
    ckpt_vec_free(&t.pairs);
    return rc;
}

/* ---- stage 0 ---- */

/* "ep_size_2" among the names of parameter groups; 0: none. */
static uint64_t dse_size(const ckpt_value *optimizer)
{
    const ckpt_value *inner = ckpt_value_get(optimizer, "optimizer_state_dict");
    ckpt_seq groups = ckpt_value_seq(ckpt_value_get(inner ? inner : optimizer, "param_groups"));
    static const char mark[] = "ep_size_";

    for (uint64_t g = 0; g < groups.n; g++) {
        const ckpt_value *name = ckpt_value_get(groups.at[g], "name");
        if (name && name->kind == CKPT_V_STR &&
            strncmp(name->as.text.at, mark, sizeof mark - 1) == 0)
            return strtoull(name->as.text.at + sizeof mark - 1, NULL, 10);
    }
    return 0;
}

int ckpt_ds_moe_optimizer(ckpt_ds_job *job, const ckpt_ds_folder *dir, ckpt_ds_head *head)
{
    ckpt_dict root = ckpt_value_map(head->model.root);
    ckpt_ds_part part = {.path = dir->optimizer, .rank = dir->ep_rank};
    ckpt_ds_shard s;
    int rc = ckpt_ds_shard_open(job, &s, &part);

    if (rc != CKPT_OK || !s.map)
        return rc;
    ckpt_value *optimizer = ckpt_value_get(s.root, "optimizer");
    uint64_t size = dse_size(optimizer);
    if (!optimizer)
        rc = ckpt_ds_problem(job, CKPT_EFORMAT, "%s: holds no optimizer", s.path);
    else if (size && size != dir->ep)
        rc = ckpt_ds_problem(job, size > dir->ep ? CKPT_EMISSING : CKPT_EMISMATCH,
                             "%s: of a run of %" PRIu64 " expert-parallel ranks, but %" PRIu32
                             " have files here (expp_rank_*): %s",
                             s.path, size, dir->ep,
                             size > dir->ep
                                 ? "missing: a process did not save, or its files were not "
                                   "copied"
                                 : "those of an earlier, larger run were left behind");
    if (rc == CKPT_OK && optimizer)
        rc = ckpt_ds_shard_merge(job, &head->model, &s);
    for (uint64_t i = 0; rc == CKPT_OK && optimizer && i < root.n; i++) {
        if (ckpt_value_is(root.at[i].key, "optimizer"))
            root.at[i].value = optimizer;
    }
    ckpt_ds_shard_close(&s);
    return rc;
}

/* ---- ZeRO: lanes ---- */

uint32_t ckpt_ds_moe_lanes(const ckpt_ds_head *head, size_t group)
{
    ckpt_seq shapes = ckpt_value_seq(ckpt_value_get(head->model.root, "param_shapes"));
    ckpt_seq counts = ckpt_value_seq(ckpt_value_get(head->optim.optim, "partition_count"));
    ckpt_dict first = ckpt_value_map(group < shapes.n ? shapes.at[group] : NULL);
    int64_t n = 0;

    if (head->stage == 3 || head->legacy || first.n == 0 || first.at[0].key->kind != CKPT_V_STR ||
        !strstr(first.at[0].key->as.text.at, dse_mark))
        return 1;
    if (group >= counts.n || !ckpt_value_as_int(counts.at[group], &n) || n < 1 || n > head->world ||
        head->world % (uint32_t)n != 0)
        return 1;
    return head->world / (uint32_t)n;
}

/* The layer that an expert's parameter is of, and how many experts of it each lane has. */
typedef struct dse_local {
    const char *name;
    size_t n_prefix; /* bytes of the name up to the number */
    uint64_t number;
    size_t param;
    uint64_t per_lane;
} dse_local;

static int dse_by_prefix(const void *a, const void *b)
{
    const dse_local *x = a, *y = b;

    if (x->n_prefix != y->n_prefix)
        return x->n_prefix < y->n_prefix ? -1 : 1;
    int order = memcmp(x->name, y->name, x->n_prefix);
    if (order)
        return order;
    return x->number == y->number ? 0 : x->number < y->number ? -1 : 1;
}

static int dse_by_param(const void *a, const void *b)
{
    const dse_local *x = a, *y = b;

    return x->param == y->param ? 0 : x->param < y->param ? -1 : 1;
}

/* Find the numbers of all experts of a group; local has room for its parameters. */
static int dse_locals(const ckpt_ds_job *job, const ckpt_ds_layout *layout, const ckpt_ds_group *g,
                      dse_local *local)
{
    for (size_t i = 0; i < g->n; i++) {
        size_t n = 0;
        local[i] = (dse_local){.name = layout->params.at[g->first + i].name, .param = i};
        if (!dse_number(local[i].name, &local[i].n_prefix, &n, &local[i].number))
            return ckpt_fail(job->err, CKPT_EUNSUPPORTED,
                             "%s: %.200s is in a parameter group of experts, but names none",
                             job->map->path, local[i].name);
    }
    qsort(local, g->n, sizeof *local, dse_by_prefix);
    for (size_t i = 0, end; i < g->n; i = end) {
        for (end = i; end < g->n && local[end].n_prefix == local[i].n_prefix &&
                      memcmp(local[end].name, local[i].name, local[i].n_prefix) == 0;)
            end++;
        for (size_t k = i; k < end; k++)
            local[k].per_lane = local[end - 1].number + 1;
    }
    qsort(local, g->n, sizeof *local, dse_by_param);
    return CKPT_OK;
}

/* The parameters of lanes 1 and above, each as rank 0 has it, under another number. */
static int dse_lanes(const ckpt_ds_job *job, const ckpt_ds_layout *layout, const ckpt_ds_group *g,
                     const dse_local *local, ckpt_ds_params *out)
{
    for (size_t k = g->n; k < g->n * g->lanes; k++) {
        const dse_local *l = &local[k % g->n];
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

/* One group, moved behind what `out` has, with all its lanes. */
static int dse_group(const ckpt_ds_job *job, ckpt_ds_layout *layout, ckpt_ds_group *g,
                     ckpt_ds_params *out)
{
    dse_local *local = NULL;
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
        rc = local ? dse_locals(job, layout, g, local) : ckpt_fail_memory(job->err);
        if (rc == CKPT_OK)
            rc = dse_lanes(job, layout, g, local, out);
        ckpt_free(local);
    }
    g->first = first;
    return rc;
}

int ckpt_ds_moe_params(const ckpt_ds_job *job, ckpt_ds_layout *layout)
{
    ckpt_ds_params out = {0};
    bool any = false;
    int rc = CKPT_OK;

    for (size_t g = 0; g < layout->group.n; g++)
        any = any || layout->group.at[g].lanes > 1;
    if (!any)
        return CKPT_OK;
    for (size_t g = 0; rc == CKPT_OK && g < layout->group.n; g++)
        rc = dse_group(job, layout, &layout->group.at[g], &out);
    ckpt_vec_free(&layout->params);
    layout->params = out;
    return rc;
}
