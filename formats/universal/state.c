/* SPDX-License-Identifier: Apache-2.0 */
/*
 * state.c: builds the state that writers take (libckpt/map/state.h) from a universal checkpoint:
 * parameter groups, optimizer values, and step counts as tensors.
 *
 * The groups come from optimizer_state.pt, their parameters from param_shapes, which has one dict
 * per group (stages 1, 2) or per sub-group (stage 3, where 'params' lists a group's sub-groups).  A
 * group's optimizer entry is assembled from the files of its parameters.
 */
#include <inttypes.h>
#include <string.h>

#include "formats/universal/universal.h"
#include "libckpt/base/dtype.h"
#include "libckpt/map/extent.h"

/* ---- step counts ---- */

int ckpt_uni_common_step(ckpt_uni *u)
{
    const ckpt_value *inner = ckpt_value_get(u->head.optim.root, "optimizer_state_dict");
    const ckpt_value *tree = ckpt_value_get(u->head.optim.tree, "optimizer_state_dict");
    ckpt_dict state = ckpt_value_map(ckpt_value_get(inner, "state"));
    ckpt_dict copy = ckpt_value_map(ckpt_value_get(tree, "state"));
    const ckpt_value *step = state.n ? ckpt_value_get(state.at[0].value, "step") : NULL;
    ckpt_uni_param like = {0};
    int rc = CKPT_OK;

    if (u->head.stage != 3 || !step || copy.n == 0)
        return CKPT_OK;
    rc = ckpt_ds_shard_step(&u->job, &u->head.optim, step, &like.has_step, &like.step);
    if (rc == CKPT_OK && like.has_step)
        rc = ckpt_ds_state_scalar(&u->job, &u->head.optim, step, &like.scalar);
    like.step_tree = ckpt_value_get(copy.at[0].value, "step");
    for (size_t i = 0; rc == CKPT_OK && like.has_step && i < u->n_shapes; i++) {
        ckpt_uni_param *p = &u->param.at[i];
        if (p->has_step)
            continue;
        p->has_step = true;
        p->step = like.step;
        p->scalar = like.scalar;
        p->step_tree = like.step_tree;
    }
    return rc;
}

/* Add one step tensor per parameter, as writers of native checkpoints expect. */
static int us_steps(ckpt_uni *u)
{
    int rc = CKPT_OK;

    for (size_t i = 0; rc == CKPT_OK && i < u->param.n; i++) {
        const ckpt_uni_param *p = &u->param.at[i];
        if (p->t && p->scalar.has)
            rc = ckpt_ds_state_add_scalar(&u->job, "step", p->shape.name, &p->scalar);
    }
    return rc;
}

/* ---- groups ---- */

/* Check that all parameters of a group have the same step count, because DeepSpeed requires it at
 * load. */
static int us_check_steps(ckpt_uni *u, const ckpt_group *g, const ckpt_uni_param **first)
{
    *first = NULL;
    for (size_t i = g->first; i < g->first + g->n; i++) {
        const ckpt_uni_param *p = &u->param.at[i];
        if (!p->has_step)
            continue;
        if (*first && (p->step < (*first)->step || p->step > (*first)->step))
            return ckpt_fail(
                u->job.err, CKPT_EMISMATCH,
                "%s/zero: the optimizer counts %.0f steps for %.100s and %.0f for "
                "%.100s, which are in one group: files of several conversions are mixed",
                u->job.map->path, (*first)->step, (*first)->shape.name, p->step, p->shape.name);
        *first = *first ? *first : p;
    }
    return CKPT_OK;
}

/* Make the flat tensor that represents one kind of state of a group. */
static ckpt_value *us_flat(ckpt_map *map, const ckpt_tensor *t)
{
    ckpt_value *v = ckpt_value_new(map->arena, CKPT_V_TENSOR);
    ckpt_tensor_value *tensor = ckpt_arena_alloc(map->arena, sizeof *tensor);
    ckpt_storage *s = ckpt_arena_alloc(map->arena, sizeof *s);
    uint64_t *size = ckpt_arena_array(map->arena, 2, sizeof *size);

    if (!v || !tensor || !s || !size)
        return NULL;
    size[0] = t->n_elems;
    size[1] = 1;
    *s = (ckpt_storage){.key = {"0", 1}, .location = {"cpu", 3}, .dtype = t->dtype};
    s->source = t->n_extents ? ckpt_extent_source(t, 0) : UINT32_MAX;
    s->n_elems = t->n_elems;
    (void)ckpt_dtype_bytes(t->dtype, t->n_elems, &s->n_bytes);
    *tensor = (ckpt_tensor_value){
        .storage = s, .dtype = t->dtype, .ndim = 1, .shape = size, .stride = size + 1};
    v->as.tensor = tensor;
    return v;
}

/* Add the kinds of state of one parameter that `entry` lacks. */
static int us_kinds(ckpt_uni *u, const ckpt_state *state, const ckpt_uni_param *p,
                    ckpt_value *entry)
{
    const ckpt_uni_entry *e = p->entry != SIZE_MAX ? &u->dir.entry.at[p->entry] : NULL;

    for (size_t k = 0; e && p->t && k < e->n; k++) {
        const char *kind = u->dir.file.at[e->first + k];
        if (strcmp(kind, "fp32") == 0 || strcmp(kind, "step") == 0 || ckpt_value_get(entry, kind))
            continue;
        const ckpt_tensor *t = ckpt_state_moment(u->job.map, state, kind, p->t);
        ckpt_value *flat = t && t->n_elems ? us_flat(u->job.map, t) : NULL;
        if (t && t->n_elems &&
            (!flat || !ckpt_dict_add_cstr(u->job.map->arena, &entry->as.map, kind, flat)))
            return ckpt_fail_memory(u->job.err);
    }
    return CKPT_OK;
}

/* Assemble a group's optimizer entry in the layout of optimizer.state_dict(). */
static int us_entry(ckpt_uni *u, ckpt_state *state, ckpt_group *g)
{
    ckpt_value *entry = ckpt_value_new(u->job.map->arena, CKPT_V_DICT);
    const ckpt_uni_param *stepped = NULL;
    int rc = entry ? us_check_steps(u, g, &stepped) : ckpt_fail_memory(u->job.err);

    if (rc == CKPT_OK && stepped && stepped->step_tree &&
        !ckpt_dict_add_cstr(u->job.map->arena, &entry->as.map, "step", stepped->step_tree))
        rc = ckpt_fail_memory(u->job.err);
    for (size_t i = g->first; rc == CKPT_OK && i < g->first + g->n; i++)
        rc = us_kinds(u, state, &u->param.at[i], entry);
    g->entry = rc == CKPT_OK && entry->as.map.n ? entry : NULL;
    return rc;
}

/* The number of dicts of param_shapes, from `next` on, that belong to a group; 0 if 'params' does
 * not continue there. */
static size_t us_parts_of(const ckpt_uni *u, const ckpt_value *fields, size_t next, size_t n_groups)
{
    ckpt_seq params = ckpt_value_seq(ckpt_value_get(fields, "params"));
    int64_t number = 0;

    if (u->n_parts == n_groups)
        return 1;
    if (n_groups == 1)
        return u->n_parts;
    for (uint64_t i = 0; i < params.n; i++) {
        if (!ckpt_value_as_int(params.at[i], &number) || number < 0 ||
            (uint64_t)number != next + i || next + i >= u->n_parts)
            return 0;
    }
    return (size_t)params.n;
}

/* order[i]: position of the optimizer's parameter i in DeepSpeed's round_robin_gradients order. */
static void us_round_robin(size_t *order, size_t n, uint32_t world)
{
    size_t k = 0;

    for (size_t j = 0; j < world && j < n; j++) {
        for (size_t i = j; i < n; i += world)
            order[i] = k++;
    }
}

/* Append a group's parameters in the optimizer's order. */
static int us_params(ckpt_uni *u, ckpt_state *state, const ckpt_group *g)
{
    size_t *order = ckpt_alloc((g->n + 1) * sizeof *order);
    int rc = order ? CKPT_OK : ckpt_fail_memory(u->job.err);

    for (size_t i = 0; rc == CKPT_OK && i < g->n; i++)
        order[i] = i;
    if (rc == CKPT_OK && state->round_robin && state->world)
        us_round_robin(order, g->n, state->world);
    for (size_t i = 0; rc == CKPT_OK && i < g->n; i++) {
        ckpt_tensor **slot = ckpt_vec_push(&state->param);
        if (!slot)
            rc = ckpt_fail_memory(u->job.err);
        else
            *slot = u->param.at[g->first + order[i]].t;
    }
    ckpt_free(order);
    return rc;
}

/*
 * Report lost state.  DeepSpeed's converter writes exp_avg, exp_avg_sq and step only, so an
 * optimizer whose settings need more state fails at its next step.
 */
static int us_lost(ckpt_uni *u, const ckpt_group *g)
{
    static const struct {
        const char *setting, *kind;
    } wants[] = {{"amsgrad", "max_exp_avg_sq"}, {"momentum_decay", "mu_product"}};
    int rc = CKPT_OK;

    for (size_t i = 0; rc == CKPT_OK && g->entry && i < sizeof wants / sizeof *wants; i++) {
        const ckpt_value *v = ckpt_value_get(g->fields, wants[i].setting);
        bool off = !v || v->kind == CKPT_V_NONE || (v->kind == CKPT_V_BOOL && v->as.i == 0);
        if (!off && !ckpt_value_get(g->entry, wants[i].kind))
            rc = ckpt_map_note(u->job.map, CKPT_WARNING, u->job.err,
                               "%s/zero: the optimizer of a group needs %s (%s is set), which is "
                               "missing: DeepSpeed's converter leaves it out, and the next step of "
                               "a run fails without it; convert the original with ckpt",
                               u->job.map->path, wants[i].kind, wants[i].setting);
    }
    return rc;
}

static int us_groups(ckpt_uni *u, ckpt_state *state)
{
    ckpt_seq list = ckpt_value_seq(ckpt_value_get(u->head.optim.tree, "param_groups"));
    size_t n_groups = list.n ? (size_t)list.n : u->n_parts, next = 0, first = 0;
    int rc = CKPT_OK;

    for (size_t g = 0; rc == CKPT_OK && g < n_groups; g++) {
        ckpt_value *fields = g < list.n ? list.at[g] : NULL;
        size_t n = us_parts_of(u, fields, next, n_groups);
        ckpt_group *group = ckpt_vec_push(&state->group);
        if (!group)
            return ckpt_fail_memory(u->job.err);
        *group = (ckpt_group){.first = first, .n_lanes = 1, .fields = fields};
        for (size_t i = 0; i < n; i++)
            group->n += u->n_part[next + i];
        next += n;
        first += group->n;
        rc = us_params(u, state, group);
        if (rc == CKPT_OK)
            rc = us_entry(u, state, group);
        if (rc == CKPT_OK)
            rc = us_lost(u, group);
    }
    if (rc == CKPT_OK && next != u->n_parts)
        rc = ckpt_fail(u->job.err, CKPT_EMISMATCH,
                       "%s: param_shapes have %zu groups, zero/optimizer_state.pt has %" PRIu64
                       ": they are from different conversions",
                       u->job.map->path, u->n_parts, list.n);
    return rc;
}

/* ---- the state ---- */

/* Make a rank's optimizer file from optimizer_state.pt, without the entries that the groups
 * hold. */
static ckpt_value *us_optim(ckpt_uni *u)
{
    static const char *const held[] = {"param_groups", "optimizer_state_dict", "fp32_flat_groups"};
    ckpt_arena *arena = u->job.map->arena;
    ckpt_value *root = ckpt_value_new(arena, CKPT_V_DICT),
               *inner = ckpt_value_new(arena, CKPT_V_DICT);
    ckpt_dict all = ckpt_value_map(u->head.optim.tree);
    ckpt_value *config = ckpt_value_get(u->head.model.tree, "ds_config");
    ckpt_value *version = ckpt_value_get(u->head.model.tree, "ds_version");
    bool fits =
        root && inner && ckpt_dict_add_cstr(arena, &root->as.map, "optimizer_state_dict", inner);

    for (uint64_t i = 0; fits && i < all.n; i++) {
        bool drop = false;
        for (size_t k = 0; k < sizeof held / sizeof *held; k++)
            drop = drop || ckpt_value_is(all.at[i].key, held[k]);
        fits = drop || ckpt_dict_add(arena, &inner->as.map, all.at[i].key, all.at[i].value);
    }
    if (fits && config)
        fits = ckpt_dict_add_cstr(arena, &root->as.map, "ds_config", config);
    if (fits && version)
        fits = ckpt_dict_add_cstr(arena, &root->as.map, "ds_version", version);
    return fits ? root : NULL;
}

/* Make {pp_degree: 1, tp_degree: 1}. */
static ckpt_value *us_degrees(ckpt_arena *arena)
{
    ckpt_value *v = ckpt_value_new(arena, CKPT_V_DICT), *one = ckpt_value_int(arena, 1);

    return v && one && ckpt_dict_add_cstr(arena, &v->as.map, "pp_degree", one) &&
                   ckpt_dict_add_cstr(arena, &v->as.map, "tp_degree", one)
               ? v
               : NULL;
}

/* The model file's tree.  For several model-parallel ranks its degrees become 1, because the
 * tensors are whole. */
static ckpt_value *us_model(ckpt_uni *u, ckpt_value *tree)
{
    ckpt_arena *arena = u->job.map->arena;
    ckpt_value *root = u->shapes_whole ? tree : ckpt_value_new(arena, CKPT_V_DICT);
    ckpt_dict all = ckpt_value_map(tree);
    bool fits = root != NULL;

    for (uint64_t i = 0; fits && !u->shapes_whole && i < all.n; i++) {
        ckpt_value *v = all.at[i].value;
        if (ckpt_value_is(all.at[i].key, "mp_world_size"))
            v = ckpt_value_int(arena, 1);
        else if (ckpt_value_is(all.at[i].key, "checkpoint_parallel_dimensions"))
            v = us_degrees(arena);
        fits = v && ckpt_dict_add(arena, &root->as.map, all.at[i].key, v);
    }
    return fits ? root : NULL;
}

/* Read from ds_config whether parameters are in round-robin order. */
static void us_config(const ckpt_uni *u, ckpt_state *state)
{
    const ckpt_value *config = ckpt_value_get(state->model, "ds_config");
    const ckpt_value *zero = ckpt_value_get(config, "zero_optimization");
    const ckpt_value *size = ckpt_value_get(zero, "sub_group_size");
    const ckpt_value *accum =
        ckpt_value_get(ckpt_value_get(config, "data_types"), "grad_accum_dtype");
    const ckpt_value *version = ckpt_value_get(state->model, "ds_version");
    int64_t n = 0, stage = 0;
    bool knows;

    if (size && size->kind == CKPT_V_FLOAT && size->as.f >= 1 && size->as.f < 9e18)
        state->sub_group_size = (uint64_t)size->as.f;
    else if (ckpt_value_as_int(size, &n) && n > 0)
        state->sub_group_size = (uint64_t)n;
    state->aligned = ckpt_value_as_int(ckpt_value_get(zero, "parameter_alignment"), &n) && n;
    // param_shapes of a run with round_robin_gradients has that order, in the universal checkpoint
    // too. Stage 1 supports the option since 0.13.0, except its BF16_Optimizer (fp32 accumulation).
    (void)ckpt_value_as_int(ckpt_value_get(zero, "stage"), &stage);
    knows = stage == 2 || (stage == 1 && ckpt_ds_version_at_least(version, 0, 13, 0) &&
                           !(accum && ckpt_value_is(accum, "fp32")));
    state->round_robin = u->head.stage != 3 && knows &&
                         ckpt_value_as_int(ckpt_value_get(zero, "round_robin_gradients"), &n) && n;
}

/* True if ds_config sets zero_optimization.<key>. */
static bool us_is_on(const ckpt_uni *u, const char *key)
{
    const ckpt_value *config = ckpt_value_get(u->head.model.root, "ds_config");
    int64_t n = 0;

    return ckpt_value_as_int(ckpt_value_get(ckpt_value_get(config, "zero_optimization"), key),
                             &n) &&
           n != 0;
}

int ckpt_uni_state_make(ckpt_uni *u)
{
    ckpt_state *state = NULL;
    int64_t world = 0;
    int rc = us_steps(u);

    ckpt_ds_state_export(u->job.map);
    if (rc != CKPT_OK)
        return rc;
    if (u->n_shapes == 0 || !u->head.model.map) {
        u->job.map->no_state = "no model file with param_shapes: nothing says in which order and "
                               "groups the optimizer had the parameters";
        return ckpt_map_note(u->job.map, CKPT_INFO, u->job.err, "%s: %s", u->job.map->path,
                             u->job.map->no_state);
    }
    if (u->head.autoep.n && us_is_on(u, "round_robin_gradients")) {
        u->job.map->no_state = "AutoEP with round_robin_gradients: ckpt does not know in which "
                               "order the optimizer had the parameters";
        return ckpt_map_note(u->job.map, CKPT_WARNING, u->job.err, "%s: %s", u->job.map->path,
                             u->job.map->no_state);
    }
    rc = ckpt_ds_state_new(&u->job, &u->head, &u->module, &state);
    if (rc != CKPT_OK)
        return rc;
    // Universal files have no stage and no world size, so the source run's are only defaults.
    if (!ckpt_value_as_int(ckpt_value_get(u->head.model.root, "dp_world_size"), &world) ||
        world < 0 || world > UINT32_MAX)
        world = 0;
    state->world = (uint32_t)world;
    // without the model files of all ranks, only the names of differing values are known
    state->client = u->head.client;
    for (ckpt_ranked *r = state->client; r; r = r->next)
        r->at = u->head.world == state->world ? r->at : NULL;
    state->stage = u->head.stage;
    (void)ckpt_ds_stage(ckpt_value_get(u->head.optim.root, "zero_stage"), &state->stage);
    state->optim = us_optim(u);
    state->model = us_model(u, state->model);
    us_config(u, state);
    return state->optim && state->model ? us_groups(u, state) : ckpt_fail_memory(u->job.err);
}
