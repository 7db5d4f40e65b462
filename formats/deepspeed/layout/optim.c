/* SPDX-License-Identifier: Apache-2.0 */
/*
 * optim.c: reads one rank's optimizer file: finds its flat tensors, and checks that it belongs to
 * rank 0's run.
 *
 * Keys, by release and stage (below optimizer_state_dict):
 *     single_partition_of_fp32_groups        stages 1, 2: a slice per group
 *     local_sub_partitions_of_fp32_groups    legacy stage 1: per group a slice per interval
 *     fp32_flat_groups                       stage 3: a flat tensor per sub-group
 *     base_optimizer_state                   stages 1, 2: {'state': {g: {...}}}; elastic: a list
 *     optimizer_state_dict                   stage 3: {'state': {s: {...}}}
 */
#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "formats/deepspeed/layout/autoep.h"
#include "formats/deepspeed/layout/bnb.h"
#include "formats/deepspeed/layout/same.h"
#include "formats/deepspeed/layout/stage3.h"
#include "libckpt/base/dtype.h"

enum {
    DSO_MAX_GROUPS = 1 << 16, /* groups or sub-groups: far above any real run */
    DSO_MAX_PARTS = 1 << 28,  /* groups times ranks */
    DSO_MAX_STATES = 64       /* kinds of state of an optimizer */
};

/* The key of the list of groups in this run's files. */
static const char *dso_key(const ckpt_ds_head *head)
{
    if (head->stage == 3)
        return "fp32_flat_groups";
    return head->legacy ? "local_sub_partitions_of_fp32_groups" : "single_partition_of_fp32_groups";
}

/* ---- columns ---- */

/* Find or make a column by name; NULL stands for the masters, which are made first. */
static int dso_column(const ckpt_ds_job *job, const ckpt_ds_head *head, ckpt_ds_layout *layout,
                      const char *name, ckpt_ds_column **out)
{
    for (size_t i = 1; name && i < layout->column.n; i++) {
        if (strcmp(layout->column.at[i].name, name) == 0) {
            *out = &layout->column.at[i];
            return CKPT_OK;
        }
    }
    // a limit is needed, because each column has an entry for every part
    if (layout->column.n > DSO_MAX_STATES)
        return ckpt_fail(job->err, CKPT_ELIMIT,
                         "%s: more than %d kinds of optimizer state; the last is \"%.200s\"",
                         head->optim.path, DSO_MAX_STATES, name);
    ckpt_ds_flat *at = ckpt_alloc((layout->n_parts + 1) * sizeof *at);
    ckpt_ds_column *c = at ? ckpt_vec_push(&layout->column) : NULL;
    if (!c) {
        ckpt_free(at);
        return ckpt_fail_memory(job->err);
    }
    c->name = name;
    c->at = at;
    *out = c;
    return CKPT_OK;
}

/* Make a column for every kind of state that rank 0 keeps as a flat tensor. */
static int dso_state_columns(const ckpt_ds_job *job, const ckpt_ds_head *head,
                             ckpt_ds_layout *layout)
{
    ckpt_ds_column *c = NULL;
    int rc = CKPT_OK;

    for (size_t g = 0; rc == CKPT_OK && g < layout->group.n; g++) {
        const ckpt_value *all = ckpt_ds_optim_state(head, head->optim.optim, g, 0);
        ckpt_ds_bnb b = ckpt_ds_bnb_look(all);
        ckpt_dict state = ckpt_value_map(b.bits ? NULL : all);
        for (uint32_t i = 0; rc == CKPT_OK && b.bits && i < b.n; i++)
            rc = dso_column(job, head, layout, ckpt_ds_bnb_name(&b, i), &c);
        for (uint64_t i = 0; rc == CKPT_OK && i < state.n; i++) {
            const ckpt_value *key = state.at[i].key, *v = state.at[i].value;
            if (key->kind == CKPT_V_STR && v->kind == CKPT_V_TENSOR && v->as.tensor->ndim == 1)
                rc = dso_column(job, head, layout, key->as.text.at, &c);
        }
    }
    return rc;
}

/*
 * Set the parameter group of each flat group.  At stage 3 'params' of param_groups number the
 * sub-groups in order.  If they do not, they are ignored, and all sub-groups belong to one group.
 */
static int dso_owners(const ckpt_ds_job *job, const ckpt_ds_head *head, ckpt_ds_layout *layout)
{
    const ckpt_value *list =
        ckpt_value_get(ckpt_ds_optim_base(head, head->optim.optim), "param_groups");
    ckpt_seq groups = ckpt_value_seq(list);
    bool sure = head->stage == 3 && groups.n > 0 && groups.n <= DSO_MAX_GROUPS;
    size_t next = 0;

    ckpt_state_look_mode(job->map, list);
    for (uint64_t g = 0; sure && g < groups.n; g++) {
        ckpt_seq params = ckpt_value_seq(ckpt_value_get(groups.at[g], "params"));
        for (uint64_t i = 0; sure && i < params.n; i++) {
            int64_t number = -1;
            sure = ckpt_value_as_int(params.at[i], &number) && next < layout->group.n &&
                   number == (int64_t)next;
            if (sure)
                layout->group.at[next++].of = (uint32_t)g;
        }
    }
    sure = sure && next == layout->group.n;
    layout->n_groups = head->stage < 3 ? layout->group.n : sure ? groups.n : 1;
    for (size_t g = 0; !sure && g < layout->group.n; g++)
        layout->group.at[g].of = head->stage < 3 ? (uint32_t)g : 0;
    if (head->stage < 3 || sure || groups.n < 2)
        return CKPT_OK;
    return ckpt_map_note(job->map, CKPT_WARNING, job->err,
                         "%s: param_groups do not list the sub-groups in order: their %zu "
                         "sub-groups count as one parameter group",
                         head->optim.path, layout->group.n);
}

int ckpt_ds_optim_begin(const ckpt_ds_job *job, const ckpt_ds_head *head, ckpt_ds_layout *layout)
{
    assert(job && head && layout && layout->column.n == 0);
    ckpt_value *flats = ckpt_value_get(head->optim.optim, dso_key(head));
    ckpt_seq list = ckpt_value_seq(flats);
    ckpt_ds_column *masters = NULL;

    if (!flats || flats->kind != CKPT_V_LIST || list.n > DSO_MAX_GROUPS)
        return ckpt_fail(job->err, CKPT_EFORMAT, "%s: %s is not a list of at most %d groups",
                         head->optim.path, dso_key(head), DSO_MAX_GROUPS);
    for (uint64_t g = 0; g < list.n; g++) {
        ckpt_ds_group *group = ckpt_vec_push(&layout->group);
        uint64_t n = head->legacy ? ckpt_value_seq(list.at[g]).n : 1;
        if (!group)
            return ckpt_fail_memory(job->err);
        if (n == 0 || n > DSO_MAX_GROUPS || n * head->world > UINT32_MAX)
            return ckpt_fail(job->err, CKPT_EFORMAT,
                             "%s: group %" PRIu64 " of %s has %" PRIu64 " intervals",
                             head->optim.path, g, dso_key(head), n);
        group->intervals = (uint32_t)n;
        group->lanes = ckpt_ds_lanes_of(head, g);
        group->n_parts = (uint32_t)(n * head->world / group->lanes);
        group->part = layout->n_parts;
        layout->n_parts += (size_t)group->n_parts * group->lanes;
        if (layout->n_parts > DSO_MAX_PARTS)
            return ckpt_fail(job->err, CKPT_ELIMIT, "%s: more than %d flat tensors", job->map->path,
                             DSO_MAX_PARTS);
    }
    int rc = dso_owners(job, head, layout);
    if (rc == CKPT_OK)
        rc = dso_column(job, head, layout, NULL, &masters);
    if (rc == CKPT_OK && job->opts->with_optimizer)
        rc = dso_state_columns(job, head, layout);
    return rc;
}

/* ---- one rank ---- */

/* Put a rank's bitsandbytes moments into the columns of exp_avg and the like. */
static int dso_take_bnb(ckpt_ds_job *job, const ckpt_ds_head *head, ckpt_ds_layout *layout,
                        ckpt_ds_shard *s, size_t g)
{
    ckpt_ds_group *group = &layout->group.at[g];
    ckpt_ds_bnb b = ckpt_ds_bnb_look(ckpt_ds_optim_state(head, s->optim, g, 0));
    size_t part = ckpt_ds_slot(group, head->world, 0, s->rank);
    int rc = CKPT_OK;

    if (s->rank == 0)
        group->bits = b.bits;
    else if (group->bits != b.bits)
        return ckpt_ds_problem(job, CKPT_EMISMATCH,
                               "%s: moments of group %zu have %" PRIu32 " bits on rank %" PRIu32
                               ", %" PRIu32 " on rank 0 (0: other moments): the shards are from "
                               "different runs",
                               s->path, g, b.bits, s->rank, group->bits);
    for (uint32_t i = 0; rc == CKPT_OK && b.bits && i < b.n; i++) {
        for (size_t c = 1; rc == CKPT_OK && c < layout->column.n; c++) {
            if (strcmp(layout->column.at[c].name, ckpt_ds_bnb_name(&b, i)) == 0)
                rc = ckpt_ds_bnb_flat(job, s, &b, i, g, &layout->column.at[c].at[part]);
        }
    }
    return rc;
}

/* Find a rank's flat tensors of one group, for all columns. */
static int dso_take(ckpt_ds_job *job, const ckpt_ds_head *head, ckpt_ds_layout *layout,
                    ckpt_ds_shard *s, ckpt_seq list, size_t g)
{
    const ckpt_ds_group *group = &layout->group.at[g];
    int rc = job->opts->with_optimizer ? dso_take_bnb(job, head, layout, s, g) : CKPT_OK;

    for (uint32_t i = 0; rc == CKPT_OK && i < group->intervals; i++) {
        size_t part = ckpt_ds_slot(group, head->world, i, s->rank);
        ckpt_dict state = ckpt_value_map(job->opts->with_optimizer && !group->bits
                                             ? ckpt_ds_optim_state(head, s->optim, g, i)
                                             : NULL);
        rc = ckpt_ds_shard_flat(job, s, ckpt_ds_optim_flat(head, list, g, i), dso_key(head),
                                &layout->column.at[0].at[part]);
        for (uint64_t k = 0; rc == CKPT_OK && k < state.n; k++) {
            const ckpt_value *v = state.at[k].value, *key = state.at[k].key;
            for (size_t c = 1; rc == CKPT_OK && c < layout->column.n; c++) {
                if (v->kind == CKPT_V_TENSOR && v->as.tensor->ndim == 1 &&
                    ckpt_value_is(key, layout->column.at[c].name))
                    rc = ckpt_ds_shard_flat(job, s, v, layout->column.at[c].name,
                                            &layout->column.at[c].at[part]);
            }
        }
    }
    return rc;
}

/* Report that a rank's step count differs from rank 0's; a negative count means none. */
static int dso_steps_differ(ckpt_ds_job *job, const ckpt_ds_layout *layout, const ckpt_ds_shard *s,
                            size_t group, double step)
{
    const ckpt_ds_group *g = &layout->group.at[group];
    char own[32] = "none", first[32] = "none";

    if (!(step < 0))
        (void)snprintf(own, sizeof own, "%.0f", step);
    if (g->has_step)
        (void)snprintf(first, sizeof first, "%.0f", g->step);
    return ckpt_ds_problem(job, CKPT_EMISMATCH,
                           "%s: optimizer step of group %zu is %s on rank %" PRIu32
                           " and %s on rank 0: the shards were saved at different steps",
                           s->path, group, own, s->rank, first);
}

/* Check the step counts of all groups; rank 0's are stored, others must be equal. */
static int dso_check_steps(ckpt_ds_job *job, const ckpt_ds_head *head, ckpt_ds_layout *layout,
                           ckpt_ds_shard *s)
{
    int rc = CKPT_OK;

    for (size_t g = 0; rc == CKPT_OK && g < layout->group.n; g++) {
        ckpt_ds_group *group = &layout->group.at[g];
        bool has = false;
        double step = 0;
        const ckpt_value *v = ckpt_ds_optim_step(head, layout, s->optim, g, &group->own_step);
        rc = ckpt_ds_shard_step(job, s, v, &has, &step);
        if (rc == CKPT_OK && s->rank == 0) {
            group->has_step = has;
            group->step = step;
        } else if (rc == CKPT_OK && (has != group->has_step || (has && !(step == group->step)))) {
            return dso_steps_differ(job, layout, s, g, has ? step : -1);
        }
    }
    return rc;
}

/* Report missing or surplus ranks' files; rank 0 determines the number. */
static int dso_wrong_count(ckpt_ds_job *job, const ckpt_ds_folder *dir, const ckpt_ds_head *head,
                           const ckpt_ds_shard *s, int64_t ranks)
{
    const ckpt_ds_parts *parts = &dir->optims;

    if (s->rank > 0)
        return ckpt_ds_problem(job, CKPT_EMISMATCH,
                               "%s: rank %" PRIu32 " was saved by a run of %" PRId64
                               " ranks, rank 0 by one of %" PRIu32
                               ": the shards are from different runs",
                               s->path, s->rank, ranks, head->world);
    if (ranks > head->world)
        return ckpt_ds_problem(
            job, CKPT_EMISSING,
            "%s: missing: expected optimizer files of %" PRId64
            " ranks (a number in the file of rank 0), found only ranks 0 to %" PRIu32
            ": copy the missing files",
            ckpt_ds_folder_lost(job, parts, head->world), ranks, head->world - 1);
    return ckpt_ds_problem(job, CKPT_EMISMATCH,
                           "%s: left over: rank 0 was saved by a run of %" PRId64
                           " ranks, but ranks 0 to %" PRIu32
                           " have optimizer files here: those from rank %" PRId64
                           " on are of an earlier, larger run; move them away",
                           parts->at[ranks > 0 ? ranks : 0].path, ranks, head->world - 1, ranks);
}

/* Check that a rank has a key if and only if rank 0 has it. */
static int dso_check_presence(ckpt_ds_job *job, const ckpt_ds_head *head, const ckpt_ds_shard *s,
                              const char *key)
{
    const ckpt_value *first = ckpt_value_get(head->optim.optim, key);

    if (!first == !ckpt_value_get(s->optim, key))
        return CKPT_OK;
    return ckpt_ds_problem(job, CKPT_EMISMATCH,
                           "%s: rank %" PRIu32 " %s %s, rank 0 %s: the shards are from different "
                           "runs",
                           s->path, s->rank, first ? "lacks" : "has", key, first ? "has" : "lacks");
}

/* Check partition_count: the number of ranks, one for all groups or one per group. */
static int dso_check_count(ckpt_ds_job *job, const ckpt_ds_folder *dir, const ckpt_ds_head *head,
                           const ckpt_ds_layout *layout, const ckpt_ds_shard *s)
{
    const ckpt_value *count = ckpt_value_get(s->optim, "partition_count");
    ckpt_seq list = ckpt_value_seq(count);
    uint64_t n = list.n ? list.n : 1;
    int64_t ranks = 0;

    for (uint64_t i = 0; count && i < n; i++) {
        if (!ckpt_value_as_int(list.n ? list.at[i] : count, &ranks))
            return ckpt_ds_problem(job, CKPT_EFORMAT,
                                   "%s: partition_count of rank %" PRIu32
                                   " is not a number of ranks",
                                   s->path, s->rank);
        // experts are partitioned over the ranks of their lane only
        if (i < layout->group.n && layout->group.at[i].lanes > 1 &&
            ranks == layout->group.at[i].n_parts)
            continue;
        if (ranks != head->world)
            return dso_wrong_count(job, dir, head, s, ranks);
    }
    return dso_check_presence(job, head, s, "partition_count");
}

/* Check the stage: files of another stage were left by another run. */
static int dso_check_stage(ckpt_ds_job *job, const ckpt_ds_head *head, const ckpt_ds_shard *s)
{
    const ckpt_value *v = ckpt_value_get(s->optim, "zero_stage");
    int stage = 0;

    if (v && !ckpt_ds_stage(v, &stage))
        return ckpt_ds_problem(job, CKPT_EFORMAT,
                               "%s: zero_stage of rank %" PRIu32 " is not 0, 1, 2 or 3", s->path,
                               s->rank);
    if (v && stage != head->stage)
        return ckpt_ds_problem(job, CKPT_EMISMATCH,
                               "%s: rank %" PRIu32
                               " was saved by ZeRO stage %d, rank 0 by stage %d",
                               s->path, s->rank, stage, head->stage);
    return dso_check_presence(job, head, s, "zero_stage");
}

/* Check ds_version, which is both in optimizer_state_dict and next to it. */
static int dso_check_release(ckpt_ds_job *job, const ckpt_ds_shard *s, const ckpt_value *first,
                             const ckpt_value *own)
{
    const ckpt_value *a = ckpt_value_get(first, "ds_version"),
                     *b = ckpt_value_get(own, "ds_version");
    bool same = true;
    int rc = ckpt_ds_same(job, a, b, &same);

    if (rc != CKPT_OK || same)
        return rc;
    return ckpt_ds_problem(
        job, CKPT_EMISMATCH,
        "%s: rank %" PRIu32
        " was saved by DeepSpeed %s, rank 0 by %s: the shards are from different "
        "runs",
        s->path, s->rank, b && b->kind == CKPT_V_STR ? b->as.text.at : "(no version)",
        a && a->kind == CKPT_V_STR ? a->as.text.at : "(no version)");
}

/* Check that release and pads between parameters equal rank 0's. */
static int dso_check_version(ckpt_ds_job *job, const ckpt_ds_head *head, const ckpt_ds_shard *s)
{
    bool same = true;
    int rc = dso_check_release(job, s, head->optim.optim, s->optim);

    if (rc == CKPT_OK && !job->broken)
        rc = dso_check_release(job, s, head->optim.root, s->root);
    if (rc == CKPT_OK)
        rc = ckpt_ds_same(job, ckpt_value_get(head->optim.optim, "param_alignment_paddings"),
                          ckpt_value_get(s->optim, "param_alignment_paddings"), &same);
    if (rc == CKPT_OK && !same)
        rc = ckpt_ds_problem(job, CKPT_EMISMATCH,
                             "%s: param_alignment_paddings differ from rank 0's", s->path);
    return rc;
}

/* Check that the groups equal rank 0's in number and intervals. */
static int dso_check_groups(ckpt_ds_job *job, const ckpt_ds_head *head,
                            const ckpt_ds_layout *layout, const ckpt_ds_shard *s, ckpt_seq list)
{
    if (list.n != layout->group.n)
        return ckpt_ds_problem(job, CKPT_EMISMATCH,
                               "%s: %s has %" PRIu64 " groups on rank %" PRIu32 ", %zu on rank 0",
                               s->path, dso_key(head), list.n, s->rank, layout->group.n);
    for (size_t g = 0; g < layout->group.n; g++) {
        uint64_t n = head->legacy ? ckpt_value_seq(list.at[g]).n : 1;
        if (n != layout->group.at[g].intervals)
            return ckpt_ds_problem(job, CKPT_EMISMATCH,
                                   "%s: group %zu has %" PRIu64 " intervals on rank %" PRIu32
                                   ", %" PRIu32 " on rank 0",
                                   s->path, g, n, s->rank, layout->group.at[g].intervals);
    }
    return CKPT_OK;
}

/* Check dtypes: masters are F32, or 16-bit if the run is configured so; all ranks must agree. */
static int dso_check_dtypes(ckpt_ds_job *job, const ckpt_ds_head *head,
                            const ckpt_ds_layout *layout, const ckpt_ds_shard *s)
{
    for (size_t g = 0; g < layout->group.n; g++) {
        size_t slot = ckpt_ds_slot(&layout->group.at[g], head->world, 0, s->rank);
        ckpt_dtype d = (ckpt_dtype)layout->column.at[0].at[slot].dtype;
        if (d != CKPT_F32 && d != CKPT_F16 && d != CKPT_BF16)
            return ckpt_ds_problem(job, CKPT_EMISMATCH,
                                   "%s: %s of group %zu is %s, expected F32, F16 or BF16", s->path,
                                   dso_key(head), g, ckpt_dtype_name(d));
    }
    for (size_t c = 0; c < layout->column.n; c++) {
        for (size_t g = 0; g < layout->group.n; g++) {
            const ckpt_ds_flat *at = &layout->column.at[c].at[layout->group.at[g].part];
            size_t own = ckpt_ds_slot(&layout->group.at[g], head->world, 0, s->rank) -
                         layout->group.at[g].part;
            // a missing tensor is reported later, when the groups are laid out
            if (at[0].dtype != at[own].dtype && (c == 0 || at[own].dtype != CKPT_DTYPE_NONE))
                return ckpt_ds_problem(job, CKPT_EMISMATCH,
                                       "%s: %s of group %zu is %s on rank %" PRIu32
                                       ", %s on rank 0",
                                       s->path, c ? layout->column.at[c].name : dso_key(head), g,
                                       ckpt_dtype_name((ckpt_dtype)at[own].dtype), s->rank,
                                       ckpt_dtype_name((ckpt_dtype)at[0].dtype));
        }
    }
    return CKPT_OK;
}

/* Check that groups in swap files on rank 0 are swapped on every rank. */
static int dso_check_swapped(ckpt_ds_job *job, const ckpt_ds_head *head, ckpt_ds_layout *layout,
                             const ckpt_ds_shard *s, ckpt_seq list)
{
    for (size_t g = 0; head->stage == 3 && g < list.n; g++) {
        const char *id = ckpt_ds_swap_id(job, list.at[g]);
        const char **first = &layout->group.at[g].swapped;
        if (s->rank == 0)
            *first = id;
        else if (!id != !*first || (id && strcmp(id, *first) != 0))
            return ckpt_ds_problem(
                job, CKPT_EMISMATCH,
                "%s: sub-group %zu has the swap id %s on rank %" PRIu32 ", %s on rank 0", s->path,
                g, id ? id : "(none)", s->rank, *first ? *first : "(none)");
    }
    return CKPT_OK;
}

int ckpt_ds_optim_read(ckpt_ds_job *job, const ckpt_ds_folder *dir, ckpt_ds_head *head,
                       ckpt_ds_layout *layout, ckpt_ds_shard *s)
{
    assert(layout->column.n > 0 && s && s->rank < head->world);
    ckpt_seq list = ckpt_value_seq(ckpt_value_get(s->optim, dso_key(head)));
    bool before = job->broken;

    // Check every rank, even after an error of another rank, because all errors are to be reported.
    job->broken = false;
    int rc = dso_check_count(job, dir, head, layout, s);
    if (rc == CKPT_OK)
        rc = dso_check_stage(job, head, s);
    if (rc == CKPT_OK)
        rc = dso_check_version(job, head, s);
    if (rc == CKPT_OK)
        rc = dso_check_groups(job, head, layout, s, list);
    // If the number of groups differs, this rank's tensors cannot be assigned to groups.
    bool fits = list.n == layout->group.n && !job->broken;
    for (size_t g = 0; rc == CKPT_OK && fits && g < layout->group.n; g++)
        rc = dso_take(job, head, layout, s, list, g);
    if (rc == CKPT_OK && fits)
        rc = dso_check_dtypes(job, head, layout, s);
    if (rc == CKPT_OK && fits)
        rc = dso_check_steps(job, head, layout, s);
    if (rc == CKPT_OK && fits && job->opts->with_optimizer)
        rc = ckpt_ds_value_check(job, head, layout, s);
    if (rc == CKPT_OK && fits)
        rc = dso_check_swapped(job, head, layout, s, list);
    if (rc == CKPT_OK && fits)
        rc = ckpt_ds_autoep_check_optim(job, head, layout, s);
    if (rc == CKPT_OK && s->rank != 0)
        rc = ckpt_ds_params_check(job, head, s);
    if (rc == CKPT_OK && s->rank != 0)
        rc = ckpt_ds_same_optim(job, head, s);
    if (rc == CKPT_OK && s->rank != 0 && job->opts->with_optimizer)
        rc = ckpt_ds_client_optim(job, head, s);
    job->broken = job->broken || before;
    return rc;
}

const char *ckpt_ds_optim_steps(const ckpt_ds_job *job, const ckpt_ds_layout *layout)
{
    const char *text = NULL;
    bool same = true;

    for (size_t g = 0; g < layout->group.n; g++)
        same = same && layout->group.at[g].has_step == layout->group.at[0].has_step &&
               layout->group.at[g].step == layout->group.at[0].step;
    for (size_t g = 0; g < layout->group.n && (g == 0 || !same); g++) {
        const ckpt_ds_group *group = &layout->group.at[g];
        const char *comma = text ? ", " : "";
        if (group->has_step)
            text = ckpt_arena_printf(job->map->arena, "%s%s%.0f", text ? text : "", comma,
                                     group->step);
        else if (!same)
            text = ckpt_arena_printf(job->map->arena, "%s%s-", text ? text : "", comma);
        if (g == 64)
            break;
    }
    return text;
}
