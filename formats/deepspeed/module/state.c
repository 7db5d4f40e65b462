/* SPDX-License-Identifier: Apache-2.0 */
/*
 * state.c: converts a run's parameter groups and optimizer values to the writers' form
 * (libckpt/map/state.h), and adds step counts as tensors.
 *
 * Parameters have the optimizer's order, which differs from param_shapes only under
 * round_robin_gradients; sub-groups of stage 3 are joined into their parameter groups.
 */
#include <assert.h>
#include <inttypes.h>
#include <string.h>

#include "formats/deepspeed/layout/bnb.h"
#include "formats/deepspeed/module/state.h"
#include "libckpt/base/dtype.h"

#define DSR_SUB_GROUP UINT64_C(1000000000) /* DeepSpeed's default of sub_group_size */

/* ---- values of the whole run ---- */

/* Returns the user's configuration, which both files of rank 0 have; NULL before 0.4.0. */
static const ckpt_value *dsr_config(const ckpt_ds_head *head)
{
    const ckpt_value *config =
        head->model.map ? ckpt_value_get(head->model.root, "ds_config") : NULL;

    if (!config && head->optim.map)
        config = ckpt_value_get(head->optim.root, "ds_config");
    return config;
}

/* config.<part>.<key> is true. */
static bool dsr_is_on(const ckpt_value *config, const char *part, const char *key)
{
    int64_t on = 0;

    return ckpt_value_as_int(ckpt_value_get(ckpt_value_get(config, part), key), &on) && on;
}

/* Returns the 16-bit dtype enabled in the configuration, or NONE. */
static ckpt_dtype dsr_configured_dtype(const ckpt_ds_head *head)
{
    const ckpt_value *config = dsr_config(head);

    if (dsr_is_on(config, "bf16", "enabled") || dsr_is_on(config, "bfloat16", "enabled"))
        return CKPT_BF16;
    return dsr_is_on(config, "fp16", "enabled") ? CKPT_F16 : CKPT_DTYPE_NONE;
}

/* Returns the training dtype by the module, otherwise by the configuration; NONE if neither has
 * it. */
static ckpt_dtype dsr_dtype(const ckpt_ds_head *head, const ckpt_ds_module *module)
{
    ckpt_dtype configured = dsr_configured_dtype(head), d = ckpt_ds_module_dtype(module);

    // Stage 3 stores placeholders, which old releases created in F32 whatever the run's dtype.
    if (d == CKPT_DTYPE_NONE || (d == CKPT_F32 && head->stage == 3 && configured != d))
        return configured != CKPT_DTYPE_NONE ? configured : d;
    return d;
}

int ckpt_ds_state_new(const ckpt_ds_job *job, ckpt_ds_head *head, const ckpt_ds_module *module,
                      ckpt_state **out)
{
    assert(head && module && out);
    const ckpt_value *version = ckpt_ds_version(&head->model);
    ckpt_dtype dtype = dsr_dtype(head, module);
    int64_t world = 0;
    int rc = ckpt_state_new(out, job->map, "", job->err);

    if (rc != CKPT_OK)
        return rc;
    if (!version && head->optim.map)
        version = ckpt_ds_version(&head->optim);
    if (version) {
        (*out)->version =
            ckpt_arena_string(job->map->arena, version->as.text.at, version->as.text.n);
        if (!(*out)->version)
            return ckpt_fail_memory(job->err);
    }
    if (!head->world &&
        ckpt_value_as_int(ckpt_value_get(head->model.root, "dp_world_size"), &world) && world > 0 &&
        world <= UINT32_MAX)
        (*out)->world = (uint32_t)world;
    else
        (*out)->world = head->world;
    (*out)->stage = head->stage;
    (*out)->dtype = dtype == CKPT_DTYPE_NONE ? CKPT_F32 : dtype;
    rc = ckpt_ds_tree_copy(job, &head->model, &(*out)->model);
    if (rc == CKPT_OK && head->optim.map)
        rc = ckpt_ds_tree_copy(job, &head->optim, &(*out)->optim);
    return rc;
}

/* Returns whether the flat groups have padding between parameters, or the run enables it. */
static bool dsr_aligned(const ckpt_ds_head *head)
{
    ckpt_seq all = ckpt_value_seq(ckpt_value_get(head->optim.optim, "param_alignment_paddings"));

    for (uint64_t g = 0; g < all.n; g++) {
        ckpt_seq list = ckpt_value_seq(all.at[g]);
        for (uint64_t i = 0; i < list.n; i++) {
            int64_t n = 0;
            if (ckpt_value_as_int(list.at[i], &n) && n != 0)
                return true;
        }
    }
    return dsr_is_on(dsr_config(head), "zero_optimization", "parameter_alignment");
}

/* Returns the longest interval of legacy stage 1 over all ranks, because smaller groups have a
 * shorter one. */
static uint64_t dsr_interval(const ckpt_ds_head *head, const ckpt_ds_layout *layout)
{
    uint64_t longest = 0;

    for (size_t g = 0; g < layout->group.n; g++) {
        uint64_t n = layout->column.at[0].at[layout->group.at[g].part].n;
        longest = n > longest ? n : longest;
    }
    return ckpt_mul(longest, head->world, &longest) ? longest : 0;
}

/* ---- sub-groups ---- */

/* Returns sub_group_size of the configuration, an int or a float like 1e9. */
static uint64_t dsr_configured_size(const ckpt_ds_head *head)
{
    const ckpt_value *zero = ckpt_value_get(dsr_config(head), "zero_optimization");
    const ckpt_value *v = ckpt_value_get(zero, "sub_group_size");
    int64_t n = 0;

    if (v && v->kind == CKPT_V_FLOAT && v->as.f >= 1 && v->as.f < 9e18)
        return (uint64_t)v->as.f;
    return ckpt_value_as_int(v, &n) && n > 0 ? (uint64_t)n : DSR_SUB_GROUP;
}

/*
 * Bounds the values of sub_group_size that yield the file's sub-groups: more than *low, at most
 * *high elements. DeepSpeed closes a sub-group after the parameter that makes its count reach the
 * size, so the count before each parameter is below the size, and the total of a sub-group is not,
 * except for a group's last.
 */
static void dsr_size_bounds(const ckpt_ds_layout *layout, uint64_t *low, uint64_t *high)
{
    *low = 0;
    *high = UINT64_MAX;
    for (size_t i = 0; i < layout->params.n; i++) {
        const ckpt_ds_param *p = &layout->params.at[i];
        if (p->numel && p->at > *low)
            *low = p->at;
    }
    for (size_t g = 0; g + 1 < layout->group.n; g++) {
        uint64_t n = layout->column.at[0].at[layout->group.at[g].part].n;
        if (layout->group.at[g].of == layout->group.at[g + 1].of && n < *high)
            *high = n;
    }
}

/* Returns the configured size if it yields the sub-groups, otherwise another that does. */
static int dsr_sub_group_size(const ckpt_ds_job *job, const ckpt_ds_head *head,
                              const ckpt_ds_layout *layout, uint64_t *out)
{
    uint64_t low = 0, high = 0, size = dsr_configured_size(head);

    dsr_size_bounds(layout, &low, &high);
    if (size <= low || size > high)
        size = high < UINT64_MAX ? high : low < DSR_SUB_GROUP ? DSR_SUB_GROUP : low + 1;
    *out = low < high ? size : 0;
    if (*out)
        return CKPT_OK;
    return ckpt_map_note(
        job->map, CKPT_WARNING, job->err,
        "%s: no sub_group_size yields the stored sub-groups (one was closed at %" PRIu64
        " elements, another was not at %" PRIu64 "): a new checkpoint will have other sub-groups",
        job->map->path, high, low);
}

/* ---- parameter groups ---- */

/* Returns the index of a parameter's parameter group. */
static size_t dsr_of(const ckpt_ds_layout *layout, const ckpt_ds_param *p)
{
    return p->group < layout->group.n ? layout->group.at[p->group].of : 0;
}

/* Appends the map's tensor of a parameter to the state's parameters. */
static int dsr_add_param(const ckpt_ds_job *job, ckpt_state *state, const ckpt_ds_param *p)
{
    size_t at = ckpt_map_index(job->map, p->name, p->n_name);
    ckpt_tensor **slot = at == SIZE_MAX ? NULL : ckpt_vec_push(&state->param);

    if (at == SIZE_MAX)
        return ckpt_fail(job->err, CKPT_EFORMAT, "%s: parameter %.200s has no tensor",
                         job->map->path, p->name);
    if (!slot)
        return ckpt_fail_memory(job->err);
    *slot = job->map->tensors.at[at];
    return CKPT_OK;
}

/*
 * Returns the order of round_robin_gradients, or NULL. stage12.c computes it whenever the option is
 * on, but stage 1 ignored the option before 0.13.0 (engine.py, _configure_zero_optimizer), and some
 * releases store 2 as the stage of such a run.
 */
static const uint64_t *dsr_round_robin(const ckpt_ds_head *head, const ckpt_ds_layout *layout,
                                       size_t group)
{
    const ckpt_value *zero = ckpt_value_get(dsr_config(head), "zero_optimization");
    int64_t stage = head->stage;

    (void)ckpt_value_as_int(ckpt_value_get(zero, "stage"), &stage);
    if (stage == 1 && !ckpt_ds_version_at_least(ckpt_ds_version(&head->optim), 0, 13, 0))
        return NULL;
    return head->stage < 3 && group < layout->group.n ? layout->group.at[group].order : NULL;
}

/* Adds one group's parameters of all expert-parallel ranks, which are adjacent in the layout
 * too. */
static int dsr_add_params(const ckpt_ds_job *job, const ckpt_ds_head *head,
                          const ckpt_ds_layout *layout, ckpt_state *state, const ckpt_group *group)
{
    size_t n = group->n, all = n * group->n_lanes, first = group->first;
    const uint64_t *order =
        all ? dsr_round_robin(head, layout, layout->params.at[first].group) : NULL;
    int rc = CKPT_OK;

    state->round_robin = state->round_robin || order;
    for (size_t i = 0; rc == CKPT_OK && i < all; i++) {
        size_t from = order ? first + i / n * n + order[i % n] : first + i;
        rc = dsr_add_param(job, state, &layout->params.at[from]);
    }
    return rc;
}

/* Returns the number of expert-parallel ranks of a parameter group; `flat` is its first flat
 * group. */
static uint32_t dsr_lanes(const ckpt_ds_layout *layout, size_t group, size_t flat)
{
    bool has = flat < layout->group.n && layout->group.at[flat].of == group;

    return has && layout->group.at[flat].lanes > 1 ? layout->group.at[flat].lanes : 1;
}

/* A parameter group's number, and that of its first flat group. */
typedef struct dsr_group {
    size_t g, flat;
} dsr_group;

/* Sets a group's hyper-parameters and optimizer state. */
static int dsr_set_values(const ckpt_ds_job *job, const ckpt_ds_head *head,
                          const ckpt_ds_layout *layout, const ckpt_state *state, dsr_group of,
                          ckpt_group *out)
{
    const ckpt_value *optim = ckpt_value_get(state->optim, "optimizer_state_dict");
    ckpt_ds_bnb b;

    out->fields = ckpt_ds_optim_entry(head, layout, optim, of.g);
    if (of.flat < layout->group.n && layout->group.at[of.flat].of == of.g)
        out->entry = ckpt_ds_optim_state(head, optim, of.flat, 0);
    if (out->entry && out->entry->kind != CKPT_V_DICT)
        out->entry = NULL;
    b = ckpt_ds_bnb_look(out->entry);
    if (b.bits) {
        out->stored = out->entry;
        out->entry = ckpt_ds_bnb_entry(job, &b, out->stored);
    }
    return b.bits && !out->entry ? ckpt_fail_memory(job->err) : CKPT_OK;
}

/* Adds all groups with their parameters, hyper-parameters and optimizer state. */
static int dsr_add_groups(const ckpt_ds_job *job, const ckpt_ds_head *head,
                          const ckpt_ds_layout *layout, ckpt_state *state)
{
    size_t next = 0, flat = 0;
    int rc = CKPT_OK;

    for (size_t g = 0; rc == CKPT_OK && g < layout->n_groups; g++) {
        ckpt_group *group = ckpt_vec_push(&state->group);
        if (!group)
            return ckpt_fail_memory(job->err);
        group->first = next;
        group->n_lanes = dsr_lanes(layout, g, flat);
        while (next < layout->params.n && dsr_of(layout, &layout->params.at[next]) == g)
            next++;
        group->n = (next - group->first) / group->n_lanes;
        rc = dsr_set_values(job, head, layout, state, (dsr_group){g, flat}, group);
        while (flat < layout->group.n && layout->group.at[flat].of == g)
            flat++;
        if (rc == CKPT_OK)
            rc = dsr_add_params(job, head, layout, state, group);
    }
    if (rc == CKPT_OK && state->param.n != layout->params.n)
        rc = ckpt_fail(job->err, CKPT_EMISMATCH, "%s: parameter %.200s belongs to no group",
                       job->map->path, layout->params.at[state->param.n].name);
    return rc == CKPT_OK ? ckpt_ds_ranked_take(job, head, state) : rc;
}

/* ---- step counts ---- */

/* Returns whether a value is a scalar F32 tensor with stored bytes. */
static bool dsr_is_f32(const ckpt_value *v)
{
    return v && v->kind == CKPT_V_TENSOR && v->as.tensor->dtype == CKPT_F32 &&
           v->as.tensor->ndim == 0 && v->as.tensor->storage &&
           !(v->as.tensor->flags & (CKPT_TENSOR_NEG | CKPT_TENSOR_CONJ));
}

/* Locates a scalar's bytes in the file. */
static int dsr_in_file(const ckpt_ds_job *job, ckpt_ds_shard *s, const ckpt_tensor_value *t,
                       ckpt_ds_scalar *out)
{
    int rc = ckpt_ds_shard_source(job, s, t->storage->source, &out->source);

    if (rc == CKPT_OK &&
        (!ckpt_mul(t->offset, sizeof(float), &out->at) ||
         !ckpt_within(out->at, sizeof(float), job->map->sources.at[out->source].n_bytes)))
        rc = ckpt_fail(job->err, CKPT_EFORMAT,
                       "%s: the tensor of a number extends beyond its record", s->path);
    out->has = rc == CKPT_OK;
    return rc;
}

int ckpt_ds_state_scalar(const ckpt_ds_job *job, ckpt_ds_shard *s, const ckpt_value *v,
                         ckpt_ds_scalar *out)
{
    assert(s && out);
    double number = 0;

    *out = (ckpt_ds_scalar){0};
    if (dsr_is_f32(v))
        return dsr_in_file(job, s, v->as.tensor, out);
    int rc = ckpt_ds_shard_step(job, s, v, &out->has, &number);
    if (rc != CKPT_OK || !out->has)
        return rc;
    float value = (float)number;
    ckpt_source memory = {.kind = CKPT_SOURCE_MEMORY, .n_bytes = sizeof value, .name = "a number"};
    memory.memory = ckpt_arena_copy(job->map->arena, &value, sizeof value);
    if (!memory.memory)
        return ckpt_fail_memory(job->err);
    return ckpt_map_add_source(job->map, &memory, &out->source, job->err);
}

int ckpt_ds_state_add_scalar(const ckpt_ds_job *job, const char *kind, const char *param,
                             const ckpt_ds_scalar *scalar)
{
    static const uint64_t none = 0;
    const char *name = ckpt_arena_printf(job->map->arena, "%s/%s", kind, param);
    const ckpt_tensor like = {.dtype = CKPT_F32, .shape = &none, .role = CKPT_ROLE_STATE};
    ckpt_tensor *t = NULL;

    if (!name)
        return ckpt_fail_memory(job->err);
    int rc = ckpt_map_add(job->map, name, strlen(name), &like, &t, job->err);
    return rc == CKPT_OK ? ckpt_map_back_whole(job->map, t, scalar->source, scalar->at, job->err)
                         : rc;
}

/* Adds a step count for every parameter whose optimizer has one. Rank 0's value is enough, because
 * the reader has checked that all ranks agree. */
static int dsr_add_steps(const ckpt_ds_job *job, ckpt_ds_head *head, const ckpt_ds_layout *layout)
{
    uint32_t known = UINT32_MAX; // flat group of `step`
    ckpt_ds_scalar step = {0};
    bool own = false;
    int rc = CKPT_OK;

    for (size_t i = 0; rc == CKPT_OK && i < layout->params.n; i++) {
        const ckpt_ds_param *p = &layout->params.at[i];
        if (p->group >= layout->group.n)
            continue;
        if (p->group != known)
            rc = ckpt_ds_state_scalar(
                job, &head->optim,
                ckpt_ds_optim_step(head, layout, head->optim.optim, p->group, &own), &step);
        known = p->group;
        if (rc == CKPT_OK && step.has)
            rc = ckpt_ds_state_add_scalar(job, "step", p->name, &step);
    }
    return rc;
}

void ckpt_ds_state_export(ckpt_map *map)
{
    for (size_t i = 0; i < map->tensors.n; i++) {
        ckpt_tensor *t = map->tensors.at[i];
        if (t->role == CKPT_ROLE_STATE && ckpt_dtype_get(t->dtype)->kind == CKPT_IS_FLOAT)
            t->export_dtype = CKPT_F32;
    }
}

int ckpt_ds_state_make(const ckpt_ds_job *job, ckpt_ds_head *head, const ckpt_ds_module *module,
                       const ckpt_ds_layout *layout)
{
    const ckpt_value *base = ckpt_value_get(head->optim.optim, "base_optimizer_state");
    ckpt_state *state = NULL;
    int rc = ckpt_ds_state_new(job, head, module, &state);

    if (rc == CKPT_OK)
        rc = dsr_add_groups(job, head, layout, state);
    if (rc == CKPT_OK && head->stage == 3)
        rc = dsr_sub_group_size(job, head, layout, &state->sub_group_size);
    if (rc == CKPT_OK)
        rc = dsr_add_steps(job, head, layout);
    if (rc != CKPT_OK)
        return rc;
    ckpt_ds_state_export(job->map);
    state->aligned = dsr_aligned(head);
    state->lean = base && base->kind == CKPT_V_LIST;
    state->legacy = head->legacy;
    state->interval = head->legacy ? dsr_interval(head, layout) : 0;
    state->bf16_optimizer = ckpt_ds_is_bf16_optimizer(head);
    return CKPT_OK;
}
