/* SPDX-License-Identifier: Apache-2.0 */
/*
 * stage12.c: computes the extents of parameters from the ranks' slices of a flat buffer (stages 1
 * and 2).
 *
 * A slice may be saved shorter than the partition that it fills, because releases cut padding in
 * three different ways.  Only padding is ever cut: a slice is valid if it has at least the elements
 * of parameters, and at most the length of its partition.
 */
#include <assert.h>
#include <inttypes.h>
#include <string.h>

#include "formats/deepspeed/layout/autoep.h"
#include "formats/deepspeed/layout/stage12.h"
#include "libckpt/base/dtype.h"

/* ---- layout ---- */

/* The number of elements of slice p that parameters, or the pads between them, occupy. */
static uint64_t dsl_owned(const ckpt_zero_flat *z, uint32_t p)
{
    uint64_t from = p * z->slice;

    if (from >= z->used)
        return 0;
    return z->used - from < z->slice ? z->used - from : z->slice;
}

/*
 * Lay out one group.  Files do not store its alignment; it is the first known one that gives rank
 * 0's slice its actual length.
 */
static int dsl_layout(ckpt_ds_job *job, const ckpt_ds_head *head, ckpt_ds_layout *layout,
                      size_t index, const uint64_t *numel, const uint64_t *pad)
{
    ckpt_ds_group *g = &layout->group.at[index];
    uint64_t have = layout->column.at[0].at[g->part].n;
    // The alignment depends on the ranks of a group: for experts, the ranks of a lane. Legacy stage
    // 1 aligns only to its intervals.
    uint64_t align[2] = {ckpt_zero_flat_align(g->n_parts, false),
                         ckpt_zero_flat_align(g->n_parts, true)};

    if (head->legacy && !ckpt_mul(have ? have : 1, g->n_parts, &align[0]))
        return ckpt_fail(job->err, CKPT_EFORMAT, "%s: the size of group %zu overflows",
                         head->optim.path, index);
    for (int i = 0; i < (head->legacy ? 1 : 2); i++) {
        ckpt_err why = {0};
        int rc = ckpt_zero_flat_new(&g->flat, &(ckpt_zero_sizes){numel, pad, g->n}, g->n_parts,
                                    align[i], &why);
        if (rc != CKPT_OK)
            return ckpt_fail(job->err, rc, "%s: group %zu: %s", head->optim.path, index, why.text);
        uint64_t owned = dsl_owned(&g->flat, 0);
        if (owned <= have && have <= g->flat.slice && g->flat.slice * g->n_parts >= g->flat.used)
            return CKPT_OK;
        if (i == 0 && !head->legacy)
            ckpt_zero_flat_free(&g->flat);
    }
    return ckpt_ds_problem(
        job, CKPT_EMISMATCH,
        "%s: param_shapes of group %zu add up to %" PRIu64 " elements, %" PRIu64 " on each of "
        "%" PRIu32 " parts, but the slice of rank 0 has %" PRIu64 ": model and optimizer files are "
        "from different runs",
        head->optim.path, index, g->flat.used, g->flat.slice, g->n_parts, have);
}

/* The number of parameters, from k on, that are fused into one DeepSpeed parameter. */
static uint32_t dsl_one(const ckpt_ds_layout *layout, const ckpt_ds_group *g, uint64_t k)
{
    uint32_t fused = layout->params.at[g->first + k].fused;

    return fused ? fused : 1;
}

/* The number of DeepSpeed parameters in a group. */
static size_t dsl_stored(const ckpt_ds_layout *layout, const ckpt_ds_group *g)
{
    size_t n = 0;

    for (uint64_t k = 0; k < g->n; k += dsl_one(layout, g, k))
        n++;
    return n;
}

/* Read the pads after a group's parameters (param_alignment_paddings); *pad is NULL without any. */
static int dsl_pads(ckpt_ds_job *job, const ckpt_ds_head *head, const ckpt_ds_layout *layout,
                    size_t index, uint64_t *room, uint64_t **pad)
{
    const ckpt_ds_group *g = &layout->group.at[index];
    ckpt_seq all = ckpt_value_seq(ckpt_value_get(head->optim.optim, "param_alignment_paddings"));
    ckpt_seq list = ckpt_value_seq(index < all.n ? all.at[index] : NULL);

    *pad = NULL;
    if (list.n == 0)
        return CKPT_OK;
    size_t n_pads = dsl_stored(layout, g);
    if (list.n != n_pads)
        return ckpt_ds_problem(job, CKPT_EMISMATCH,
                               "%s: param_alignment_paddings of group %zu has %" PRIu64
                               " entries for %zu parameters",
                               head->optim.path, index, list.n, n_pads);
    for (uint64_t i = 0, k = 0; i < list.n; i++, k++) {
        int64_t n = 0;
        if (!ckpt_value_as_int(list.at[i], &n) || n < 0)
            return ckpt_ds_problem(job, CKPT_EMISMATCH,
                                   "%s: param_alignment_paddings of group %zu: entry %" PRIu64
                                   " is %" PRId64 ", expected a number of elements",
                                   head->optim.path, index, i, n);
        // experts of a fused parameter have no pads between them
        for (uint32_t more = dsl_one(layout, g, k); more > 1; more--)
            room[k++] = 0;
        room[k] = (uint64_t)n;
    }
    *pad = room;
    return CKPT_OK;
}

/* True if ds_config sets zero_optimization.<key>. */
static bool dsl_config(const ckpt_ds_head *head, const char *key)
{
    const ckpt_value *config = ckpt_value_get(head->model.root, "ds_config");
    int64_t on = 0;

    config = config ? config : ckpt_value_get(head->optim.root, "ds_config");
    return ckpt_value_as_int(ckpt_value_get(ckpt_value_get(config, "zero_optimization"), key),
                             &on) &&
           on;
}

/*
 * Undo round_robin_gradients: original parameter k is parameter g->order[k] of the layout.  Fused
 * parameters move together.  `room` has two elements per parameter of the group.
 */
static void dsl_unshuffle(const ckpt_ds_layout *layout, const ckpt_ds_group *g, uint32_t world,
                          uint64_t *room)
{
    size_t n = dsl_stored(layout, g);
    uint64_t *first = room + n; // by original parameter: its first position in the layout

    // stored parameter i is original parameter room[i]
    ckpt_zero_round_robin(n, world, room);
    for (uint64_t i = 0, k = 0; i < n; i++) {
        first[room[i]] = k;
        k += dsl_one(layout, g, k);
    }
    for (uint64_t i = 0, to = 0; i < n; i++) {
        uint32_t one = dsl_one(layout, g, first[i]);
        for (uint32_t k = 0; k < one; k++)
            g->order[to++] = first[i] + k;
    }
}

/*
 * Lay out the parameters in their original order too, because with round_robin_gradients
 * param_slice_mappings are computed in that order (deepspeed/runtime/zero/stage_1_and_2.py,
 * _link_all_hp_params, up to 0.19.8).
 */
static int dsl_shuffled(const ckpt_ds_job *job, const ckpt_ds_head *head, ckpt_ds_layout *layout,
                        size_t index)
{
    ckpt_ds_group *g = &layout->group.at[index];
    uint64_t *numel = ckpt_alloc((g->n + 1) * 2 * sizeof *numel);

    g->order = ckpt_alloc((g->n + 1) * sizeof *g->order);
    if (!numel || !g->order) {
        ckpt_free(numel);
        return ckpt_fail_memory(job->err);
    }
    dsl_unshuffle(layout, g, head->world / g->lanes, numel);
    for (size_t i = 0; i < g->n; i++)
        numel[i] = layout->params.at[g->first + g->order[i]].numel;
    int rc = ckpt_zero_flat_new(&g->shuffled, &(ckpt_zero_sizes){numel, NULL, g->n}, g->n_parts,
                                g->flat.slice * g->n_parts, job->err);
    ckpt_free(numel);
    return rc;
}

/* Report elements without a parameter, because they would be lost. */
static int dsl_nobody(ckpt_ds_job *job, const ckpt_ds_head *head, size_t index)
{
    return ckpt_ds_problem(
        job, CKPT_EMISMATCH,
        "%s: group %zu holds elements, but param_shapes list no parameter of it: "
        "model and optimizer files are from different runs",
        head->optim.path, index);
}

int ckpt_ds_stage12_begin(ckpt_ds_job *job, const ckpt_ds_head *head, ckpt_ds_layout *layout)
{
    uint64_t *numel = ckpt_alloc((layout->params.n + 1) * 2 * sizeof *numel);
    int rc = numel ? CKPT_OK : ckpt_fail_memory(job->err);

    for (size_t i = 0; rc == CKPT_OK && i < layout->group.n && !job->broken; i++) {
        const ckpt_ds_group *g = &layout->group.at[i];
        uint64_t *pad = NULL;
        if (g->n == 0 && layout->column.at[0].at[g->part].n > 0)
            rc = dsl_nobody(job, head, i);
        if (g->n == 0)
            continue;
        for (size_t k = 0; k < g->n; k++)
            numel[k] = layout->params.at[g->first + k].numel;
        rc = dsl_pads(job, head, layout, i, numel + g->n, &pad);
        if (rc == CKPT_OK && !job->broken)
            rc = dsl_layout(job, head, layout, i, numel, pad);
        // BF16_Optimizer ignores the option.
        if (rc == CKPT_OK && !job->broken && dsl_config(head, "round_robin_gradients") &&
            !ckpt_ds_is_bf16_optimizer(head))
            rc = dsl_shuffled(job, head, layout, i);
    }
    ckpt_free(numel);
    return rc;
}

/* ---- checks ---- */

int ckpt_ds_stage12_check(ckpt_ds_job *job, const ckpt_ds_folder *dir, const ckpt_ds_head *head,
                          const ckpt_ds_layout *layout)
{
    int rc = CKPT_OK;

    for (size_t i = 0; i < layout->group.n; i++) {
        const ckpt_ds_group *g = &layout->group.at[i];
        for (uint32_t p = 0; rc == CKPT_OK && g->n && p < g->n_parts * g->lanes; p++) {
            const ckpt_ds_flat *slice = &layout->column.at[0].at[g->part + p];
            uint64_t have = slice->n, owned = dsl_owned(&g->flat, p % g->n_parts);
            uint32_t rank =
                g->lanes > 1 ? p / g->n_parts + p % g->n_parts * g->lanes : p % head->world;
            // dtype is unset if the file was unreadable, which is already reported
            if (slice->dtype == CKPT_DTYPE_NONE)
                continue;
            if (have < owned || have > g->flat.slice)
                rc = ckpt_ds_problem(job, CKPT_EMISMATCH,
                                     "%s: the slice of group %zu has %" PRIu64
                                     " elements, expected %" PRIu64 " to "
                                     "%" PRIu64 ": the shard is from another run",
                                     dir->optims.at[rank].path, i, have, owned, g->flat.slice);
        }
    }
    return rc;
}

/* True if the optimizer is offloaded to the CPU, because DeepSpeed then partitions all state. */
static bool dsl_offloads(const ckpt_ds_head *head)
{
    const ckpt_value *config = ckpt_value_get(head->model.root, "ds_config");
    const ckpt_value *device;

    config = config ? config : ckpt_value_get(head->optim.root, "ds_config");
    device = ckpt_value_get(
        ckpt_value_get(ckpt_value_get(config, "zero_optimization"), "offload_optimizer"), "device");
    return device && !ckpt_value_is(device, "none");
}

/*
 * How many ranks' tensors in a column are absent, or do not have the length of one of the two
 * forms: a slice, or whole parameters.
 */
typedef struct dsl_fit {
    uint32_t absent, not_cut, not_whole;
    uint32_t one;     /* ranks whose tensor has one element */
    uint32_t masters; /* ranks of `one` whose slice has more than one element */
} dsl_fit;

static dsl_fit dsl_fits(const ckpt_ds_head *head, const ckpt_ds_layout *layout,
                        const ckpt_ds_column *c, const ckpt_ds_group *g)
{
    dsl_fit fit = {0};

    for (uint32_t p = 0; p < g->n_parts * g->lanes; p++) {
        const ckpt_ds_flat *f = &c->at[g->part + p];
        uint32_t index = p % g->n_parts;
        bool absent = f->dtype == CKPT_DTYPE_NONE;
        fit.absent += absent;
        fit.not_cut += absent || f->n < dsl_owned(&g->flat, index) || f->n > g->flat.slice;
        // a rank whose slice has no parameters has no entry
        fit.not_whole += head->legacy || f->n != ckpt_zero_whole_size(&g->flat, index);
        fit.one += !absent && f->n == 1;
        fit.masters += !absent && f->n == 1 && layout->column.at[0].at[g->part + p].n > 1;
    }
    return fit;
}

int ckpt_ds_stage12_form(ckpt_ds_job *job, const ckpt_ds_head *head, const ckpt_ds_layout *layout,
                         const ckpt_ds_column *c, size_t group, ckpt_ds_form *form)
{
    assert(c && form && group < layout->group.n);
    const ckpt_ds_group *g = &layout->group.at[group];
    uint32_t all = g->n_parts * g->lanes;
    dsl_fit fit = dsl_fits(head, layout, c, g);
    bool whole = fit.absent < all && fit.not_whole == 0, cut = fit.not_cut == 0;

    // a single value for the group may have an axis
    if (fit.one == all && (fit.masters || !(whole || cut))) {
        *form = CKPT_DS_ABSENT;
        return CKPT_OK;
    }
    // If both fit, they are the same, unless pads are as long as the elements that are kept twice.
    if (whole && cut && g->flat.used > g->flat.before[g->n])
        cut = strcmp(c->name, "momentum_buffer") != 0 || dsl_offloads(head);
    *form = cut ? CKPT_DS_CUT : whole ? CKPT_DS_WHOLE : CKPT_DS_ABSENT;
    if (*form != CKPT_DS_ABSENT || fit.absent == all)
        return CKPT_OK;
    return ckpt_ds_problem(job, CKPT_EMISMATCH,
                           "%s: optimizer state %s of group %zu: %" PRIu32 " of %" PRIu32
                           " ranks lack it or have it in "
                           "another length",
                           job->map->path, c->name, group, fit.not_cut, all);
}

/* Add the extents of a parameter from the first rank that has all its elements. */
static int dsl_whole_extents(const ckpt_ds_job *job, ckpt_ds_boxes *boxes, const ckpt_ds_flat *lane,
                             const ckpt_zero_flat *flat, uint64_t i)
{
    ckpt_zero_run run;
    uint32_t cursor = 0;

    if (!ckpt_zero_whole_next(flat, i, &cursor, &run))
        return CKPT_OK;
    return ckpt_ds_extent_add(job, boxes, &lane[run.rank], run.at, run.first, run.count);
}

int ckpt_ds_stage12_extents(const ckpt_ds_job *job, const ckpt_ds_layout *layout,
                            ckpt_ds_boxes *boxes, const ckpt_ds_column *c, const ckpt_ds_param *p,
                            ckpt_ds_form form)
{
    assert(boxes && c && p && p->group < layout->group.n);
    const ckpt_ds_group *g = &layout->group.at[p->group];
    uint64_t i = (uint64_t)(p - &layout->params.at[g->first]), cursor = 0;
    const ckpt_ds_flat *lane = &c->at[g->part + (size_t)(i / g->n) * g->n_parts];
    ckpt_zero_run run;
    int rc = CKPT_OK;

    boxes->extent.n = boxes->axis.n = 0;
    if (form == CKPT_DS_WHOLE)
        return dsl_whole_extents(job, boxes, lane, &g->flat, i % g->n);
    while (rc == CKPT_OK && ckpt_zero_flat_next(&g->flat, i % g->n, &cursor, &run))
        rc = ckpt_ds_extent_add(job, boxes, &lane[run.rank], run.at, run.first, run.count);
    return rc;
}

/* ---- param_slice_mappings ---- */

/* True if a fragment_address has this numel and start. */
static bool dsl_address(const ckpt_value *v, uint64_t numel, uint64_t start)
{
    const ckpt_value *state = v && v->kind == CKPT_V_OBJECT ? v->as.object->state : NULL;
    int64_t n = -1, at = -1;

    return ckpt_value_as_int(ckpt_value_get(state, "numel"), &n) &&
           ckpt_value_as_int(ckpt_value_get(state, "start"), &at) && n >= 0 && at >= 0 &&
           (uint64_t)n == numel && (uint64_t)at == start;
}

/* One rank's mapping of a group; by_name: an index if its order does not matter, else NULL. */
typedef struct dsl_mapping {
    ckpt_dict entries;
    const ckpt_ds_index *by_name;
    uint32_t rank;
} dsl_mapping;

/* Compare a group's mapping with a layout; returns the name of the first difference, or NULL. */
static const char *dsl_compare(const ckpt_ds_layout *layout, const ckpt_ds_group *g,
                               const ckpt_zero_flat *z, const uint64_t *order, const dsl_mapping *m)
{
    const ckpt_dict mapping = m->entries;
    const ckpt_ds_index *by_name = m->by_name;
    const uint32_t rank = m->rank;
    uint64_t from = rank * z->slice, to = from + z->slice, entry = 0;

    for (uint64_t i = ckpt_zero_flat_first(z, from), next; i < z->n_params && z->start[i] < to;
         i = next) {
        const ckpt_ds_param *p = &layout->params.at[g->first + (order ? order[i] : i)];
        uint64_t one = i - p->in, last = p->fused ? one + p->fused - 1 : i;
        uint64_t first = z->start[one] > from ? z->start[one] : from;
        uint64_t end = z->start[last] + z->numel[last] < to ? z->start[last] + z->numel[last] : to;
        size_t n_name = 0;
        const char *name = ckpt_ds_autoep_whole(p, &n_name);
        next = last + 1;
        if (z->numel[i] == 0)
            continue;
        const ckpt_pair *e = entry < mapping.n ? &mapping.at[entry++] : NULL;
        if (e && by_name)
            e = ckpt_ds_index_find(by_name, name, n_name);
        if (!e || e->key->kind != CKPT_V_STR || e->key->as.text.n != n_name ||
            memcmp(e->key->as.text.at, name, n_name) != 0 ||
            !dsl_address(e->value, end - first, first - from))
            return p->name;
    }
    return entry < mapping.n && mapping.at[entry].key->kind == CKPT_V_STR
               ? mapping.at[entry].key->as.text.at
               : NULL;
}

/* Compare by name, because with both round_robin_gradients and parameter_alignment the addresses
 * follow the data but are listed in the original order. */
static int dsl_any_order(const ckpt_ds_job *job, const ckpt_ds_layout *layout,
                         const ckpt_ds_group *g, ckpt_dict mapping, uint32_t rank, const char **at)
{
    ckpt_ds_index by_name = {0};
    int rc = ckpt_ds_index_new(&by_name, mapping, job->err);

    if (rc == CKPT_OK)
        *at = dsl_compare(layout, g, &g->flat, NULL, &(dsl_mapping){mapping, &by_name, rank});
    ckpt_ds_index_free(&by_name);
    return rc;
}

/* Note shuffled mappings once, because other tools use them and scramble such a checkpoint. */
static int dsl_note_shuffled(const ckpt_ds_job *job)
{
    return ckpt_map_note(job->map, CKPT_INFO, job->err,
                         "%s: param_slice_mappings follow the order before round_robin_gradients; "
                         "ckpt uses param_shapes, which follow the data",
                         job->map->path);
}

/* Check the mapping of one group and rank; *shuffled is set if it has the original order. */
static int dsl_check_mapping(ckpt_ds_job *job, const ckpt_ds_layout *layout, const ckpt_ds_shard *s,
                             size_t group, ckpt_dict mapping, bool *shuffled)
{
    const ckpt_ds_group *g = &layout->group.at[group];
    const dsl_mapping listed = {mapping, NULL, s->rank / g->lanes};
    const char *at = g->n ? dsl_compare(layout, g, &g->flat, NULL, &listed) : NULL;
    int rc = CKPT_OK;

    if (!at)
        return CKPT_OK;
    if (g->order && !dsl_compare(layout, g, &g->shuffled, g->order, &listed)) {
        *shuffled = true;
        return CKPT_OK;
    }
    if (g->order)
        rc = dsl_any_order(job, layout, g, mapping, s->rank / g->lanes, &at);
    if (rc != CKPT_OK || !at)
        return rc;
    return ckpt_ds_problem(job, CKPT_EMISMATCH,
                           "%s: param_slice_mappings of group %zu contradict the layout at %.200s: "
                           "this is not the shard of rank %" PRIu32 " of this run",
                           s->path, group, at, s->rank);
}

int ckpt_ds_stage12_mappings(ckpt_ds_job *job, const ckpt_ds_head *head,
                             const ckpt_ds_layout *layout, const ckpt_ds_shard *s)
{
    const ckpt_value *all = ckpt_value_get(s->optim, "param_slice_mappings");
    ckpt_seq list = ckpt_value_seq(all);
    bool shuffled = false;
    int rc = CKPT_OK;

    if (head->legacy || job->broken)
        return CKPT_OK;
    if (!all != !ckpt_value_get(head->optim.optim, "param_slice_mappings"))
        return ckpt_ds_problem(
            job, CKPT_EMISMATCH,
            "%s: only one of rank %" PRIu32
            " and rank 0 has param_slice_mappings: the shards are from different runs",
            s->path, s->rank);
    if (!all)
        return CKPT_OK;
    for (size_t i = 0; rc == CKPT_OK && i < layout->group.n; i++)
        rc = dsl_check_mapping(job, layout, s, i, ckpt_value_map(i < list.n ? list.at[i] : NULL),
                               &shuffled);
    return rc == CKPT_OK && shuffled && s->rank == 0 ? dsl_note_shuffled(job) : rc;
}
