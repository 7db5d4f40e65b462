/* SPDX-License-Identifier: Apache-2.0 */
/*
 * slice.c: all files of one model-parallel rank, read into a map.
 *
 * Rank 0's files say what there is; every other rank's file is read, compared with them, and
 * closed.
 */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "formats/deepspeed/deepspeed.h"

/* ---- reading all files ---- */

/* optimizer_state_dict of an optimizer file; s->optim stays NULL where a collecting reader noted
 * its absence. */
static int one_find_optim(ckpt_ds *ds, ckpt_ds_shard *s)
{
    const ckpt_value *found = ckpt_value_get(s->root, "optimizer_state_dict");

    s->optim = ckpt_value_map(found).n ? found : NULL;
    if (s->optim)
        return CKPT_OK;
    return ckpt_ds_problem(ds, CKPT_EFORMAT,
                           "%s: not a ZeRO optimizer file: it has no dict optimizer_state_dict",
                           s->path);
}

/* The stage: as written; BF16_Optimizer writes none and is laid out as stage 1. */
static int one_find_stage(ckpt_ds *ds)
{
    const ckpt_value *stage = ckpt_value_get(ds->optim.optim, "zero_stage");

    ds->stage = ckpt_value_get(ds->optim.optim, "fp32_flat_groups") ? 3 : 1;
    if (stage && !ckpt_ds_stage(stage, &ds->stage))
        return ckpt_fail(ds->err, CKPT_EUNSUPPORTED, "%s: zero_stage is none of 0 to 3",
                         ds->optim.path);
    if (ds->stage == 0)
        ds->stage = 1;
    ds->legacy =
        ds->stage < 3 && ckpt_value_get(ds->optim.optim, "local_sub_partitions_of_fp32_groups");
    return CKPT_OK;
}

/* Rank 0's model file: which one it is depends on the stage. */
static int one_open_model(ckpt_ds *ds)
{
    ckpt_ds_part whole = {.path = ds->dir.model};
    const ckpt_ds_part *model = ds->dir.model ? &whole : NULL;

    if (ds->stage == 3)
        model = ds->dir.models.n && ds->dir.models.at[0].rank == 0 ? &ds->dir.models.at[0] : NULL;
    if (model)
        return ckpt_ds_shard_open(ds, &ds->model, model);
    return ckpt_ds_problem(
        ds, CKPT_EMISSING,
        "%s: the model file %smp_rank_%02" PRIu32 "_model_states.pt of ZeRO stage %d is missing",
        ds->dir.path, ds->stage == 3 ? "zero_pp_rank_0_" : "", ds->dir.mp, ds->stage);
}

/* Rank 0's two files, which stay open. */
static int one_open_first(ckpt_ds *ds)
{
    int rc = ckpt_ds_shard_open(ds, &ds->optim, &ds->dir.optims.at[0]);

    if (rc == CKPT_OK && ds->optim.map)
        rc = one_find_optim(ds, &ds->optim);
    if (rc == CKPT_OK && ds->optim.optim)
        rc = one_find_stage(ds);
    return rc == CKPT_OK && ds->optim.optim ? one_open_model(ds) : rc;
}

/*
 * Rank 0's two files are of one run.  dp_world_size is the number of ranks, or a divisor of it,
 * because some releases leave sequence-parallel ranks out of the count.
 */
static int one_check_run(ckpt_ds *ds)
{
    const ckpt_value *model = ckpt_ds_version(&ds->model), *optim = ckpt_ds_version(&ds->optim);
    bool same = true;
    int64_t n = 1;
    int rc = model && optim ? ckpt_ds_same(ds, model, optim, &same) : CKPT_OK;

    if (rc == CKPT_OK && !same)
        return ckpt_ds_problem(ds, CKPT_EMISMATCH,
                               "%s: saved by DeepSpeed %s, but the optimizer file of rank 0 by %s: "
                               "they are from different runs",
                               ds->model.path, model->as.text.at, optim->as.text.at);
    (void)ckpt_value_as_int(ckpt_value_get(ds->model.root, "dp_world_size"), &n);
    // stage 3 has no partition_count: this is where a missing last rank shows
    if (rc == CKPT_OK && ds->stage == 3 && n > ds->world)
        return ckpt_ds_problem(
            ds, CKPT_EMISSING,
            "%s: missing: dp_world_size is %" PRId64 ", but only ranks 0 to %" PRIu32
            " have optimizer files here: a process did not save, or its files were not copied",
            ckpt_ds_folder_lost(ds, &ds->dir.optims, ds->world), n, ds->world - 1);
    if (rc == CKPT_OK && (n < 1 || n > ds->world || ds->world % (uint32_t)n != 0))
        rc = ckpt_ds_problem(ds, CKPT_EMISMATCH,
                             "%s: dp_world_size is %" PRId64 ", but %" PRIu32
                             " ranks have optimizer files here: they are from different runs, or "
                             "ranks of an earlier, larger one were left behind",
                             ds->model.path, n, ds->world);
    return rc;
}

/* What rank 0's files say: parameters, groups and where in them everything lies. */
static int one_read_first(ckpt_ds *ds)
{
    int rc = ckpt_ds_module_begin(ds);

    if (rc == CKPT_OK)
        rc = ckpt_ds_optim_begin(ds);
    if (rc == CKPT_OK)
        rc = ckpt_ds_optim_read(ds, &ds->optim);
    if (rc == CKPT_OK && !ds->broken)
        rc = one_check_run(ds);
    if (rc == CKPT_OK && !ds->broken)
        rc = ckpt_ds_params_read(ds);
    if (rc == CKPT_OK && !ds->broken)
        rc = ckpt_ds_moe_params(ds);
    if (rc == CKPT_OK && !ds->broken)
        rc = ds->stage == 3 ? ckpt_ds_part_begin(ds) : ckpt_ds_flat_begin(ds);
    if (rc == CKPT_OK && !ds->broken && ds->stage < 3)
        rc = ckpt_ds_flat_mappings(ds, &ds->optim);
    if (rc == CKPT_OK && ds->stage == 3 && !ds->broken)
        rc = ckpt_ds_part_frozen(ds, &ds->model);
    return rc;
}

/* An optimizer file of another rank than 0. */
static int one_read_optim(ckpt_ds *ds, ckpt_ds_shard *s)
{
    int rc = one_find_optim(ds, s);

    if (rc != CKPT_OK || !s->optim || !ds->placed)
        return rc;
    rc = ckpt_ds_optim_read(ds, s);
    return rc == CKPT_OK && ds->stage < 3 ? ckpt_ds_flat_mappings(ds, s) : rc;
}

/* Counters that must be equal in all model files of stage 3. */
static int one_check_counters(ckpt_ds *ds, const ckpt_ds_shard *s)
{
    static const char *const key[] = {"global_steps", "skipped_steps", "global_samples",
                                      "dp_world_size", "ds_version"};
    bool same = true;
    int rc = CKPT_OK;

    for (size_t i = 0; rc == CKPT_OK && i < sizeof key / sizeof *key; i++) {
        const ckpt_value *a = ckpt_value_get(ds->model.root, key[i]),
                         *b = ckpt_value_get(s->root, key[i]);
        rc = ckpt_ds_same(ds, a, b, &same);
        if (rc == CKPT_OK && !same)
            rc = ckpt_ds_problem(ds, CKPT_EMISMATCH,
                                 "%s: %s of rank %" PRIu32
                                 " differs from rank 0's: the shards were saved at different "
                                 "steps or by different runs",
                                 s->path, key[i], s->rank);
    }
    return rc;
}

/* Only rank 0 lists tied names (_get_shared_params, since 0.9.2): under another rank's name it is
 * rank 0's file, and the names would be lost. */
static int one_check_shared(ckpt_ds *ds, const ckpt_ds_shard *s)
{
    if (ckpt_value_map(ckpt_value_get(s->root, "shared_params")).n == 0)
        return CKPT_OK;
    return ckpt_ds_problem(ds, CKPT_EMISMATCH,
                           "%s: has shared_params, which only rank 0 writes: this is not the file "
                           "of rank %" PRIu32,
                           s->path, s->rank);
}

/* A model file of another rank than 0: only stage 3 has them. */
static int one_read_model(ckpt_ds *ds, ckpt_ds_shard *s)
{
    if (!ds->placed)
        return CKPT_OK;
    int rc = one_check_counters(ds, s);
    if (rc == CKPT_OK)
        rc = one_check_shared(ds, s);
    if (rc == CKPT_OK)
        rc = ckpt_ds_params_check(ds, s);
    if (rc == CKPT_OK)
        rc = ckpt_ds_same_model(ds, s);
    return rc == CKPT_OK ? ckpt_ds_part_frozen(ds, s) : rc;
}

/* Stage 3: each rank has a model and an optimizer file; name the first that lacks its partner. */
static int one_check_pairs(ckpt_ds *ds)
{
    bool fewer = ds->dir.optims.n < ds->dir.models.n;
    const ckpt_ds_parts *few = fewer ? &ds->dir.optims : &ds->dir.models,
                        *many = fewer ? &ds->dir.models : &ds->dir.optims;
    size_t i = 0;

    while (i < few->n && few->at[i].rank == many->at[i].rank)
        i++;
    const char *lost =
        few->n ? ckpt_ds_folder_lost(ds, few, many->at[i].rank)
               : ckpt_arena_printf(ds->map->arena, "%s/mp_rank_%02" PRIu32 "_model_states.pt",
                                   ds->dir.path, ds->dir.mp);
    if (!lost)
        return ckpt_fail_memory(ds->err);
    return ckpt_ds_problem(ds, CKPT_EMISSING,
                           "%s: missing: rank %" PRIu32
                           " has %s file, but no %s file (%zu model and "
                           "%zu optimizer files in all): a process did not save, or shards of an "
                           "earlier run were left behind",
                           lost, many->at[i].rank, fewer ? "a model" : "an optimizer",
                           fewer ? "optimizer" : "model", ds->dir.models.n, ds->dir.optims.n);
}

/* What the names alone show: ranks that are missing, doubled, or of another run. */
static int one_check_folder(ckpt_ds *ds)
{
    int rc = ckpt_ds_folder_check(ds, &ds->dir.optims, "optimizer");

    if (rc == CKPT_OK)
        rc = ckpt_ds_folder_check(ds, &ds->dir.models, "model");
    if (rc == CKPT_OK && ds->dir.model && ds->dir.models.n)
        rc = ckpt_ds_problem(ds, CKPT_EMISMATCH,
                             "%s: model files of stage 3 (one per rank) and of another stage "
                             "(mp_rank_00) side by side: "
                             "one of them was left behind by another run",
                             ds->dir.path);
    if (rc == CKPT_OK && !ds->broken && !ds->dir.model && ds->dir.models.n != ds->dir.optims.n)
        rc = one_check_pairs(ds);
    return rc;
}

/* Every file of a partitioned checkpoint. */
static int one_read_all(ckpt_ds *ds)
{
    int rc = one_check_folder(ds);

    if (rc == CKPT_OK)
        rc = one_open_first(ds);
    ds->placed = !ds->broken && ds->model.map && ds->optim.optim;
    if (rc == CKPT_OK && ds->placed)
        rc = one_read_first(ds);
    ds->placed = ds->placed && !ds->broken;
    // Files that have no place are still opened: damage in them is worth a finding.
    if (rc == CKPT_OK)
        rc = ckpt_ds_shard_each(ds, &ds->dir.optims, 1, one_read_optim);
    if (rc == CKPT_OK && ds->stage == 3)
        rc = ckpt_ds_shard_each(ds, &ds->dir.models, 1, one_read_model);
    for (size_t c = 0; rc == CKPT_OK && !ds->broken && ds->stage == 3 && c < ds->column.n; c++)
        rc = ckpt_ds_swap_bind(ds, &ds->column.at[c]);
    if (rc == CKPT_OK && ds->placed)
        rc = ds->stage == 3 ? ckpt_ds_part_check(ds) : ckpt_ds_flat_check(ds);
    return rc;
}

/* ---- building the map ---- */

/* Where a parameter's elements lie in a column, by the stage's layout. */
static int one_extents(ckpt_ds *ds, const ckpt_ds_column *c, const ckpt_ds_param *p,
                       ckpt_ds_form form)
{
    return ds->stage == 3 ? ckpt_ds_part_extents(ds, c, p) : ckpt_ds_flat_extents(ds, c, p, form);
}

/*
 * A trained parameter: its masters in all ranks' files, and the module's 16-bit copy as the twin
 * that a conversion compares with.  (Rounded masters equal the copy bit for bit in every release
 * and dtype; overflows leave both as they were.  At stage 3 there is no copy.)
 */
static int one_add_param(ckpt_ds *ds, const ckpt_ds_param *p)
{
    const ckpt_ds_column *c = &ds->column.at[0];
    bool any = p->group < ds->group.n;
    ckpt_tensor like = {.dtype =
                            any ? (ckpt_dtype)c->at[ds->group.at[p->group].part].dtype : CKPT_F32,
                        .ndim = p->ndim,
                        .shape = p->shape};
    ckpt_tensor *t = NULL;
    int rc = ckpt_map_add(ds->map, p->name, p->n_name, &like, &t, ds->err);

    if (rc == CKPT_OK && p->numel) {
        rc = one_extents(ds, c, p, CKPT_DS_CUT);
        if (rc == CKPT_OK)
            rc = ckpt_ds_extent_back(ds, t);
    }
    return rc == CKPT_OK && ds->stage < 3 ? ckpt_ds_module_twin(ds, t) : rc;
}

/* How a group keeps a kind of state. */
static int one_form(ckpt_ds *ds, const ckpt_ds_column *c, uint32_t group, ckpt_ds_form *form)
{
    bool holds = false;
    int rc;

    if (ds->stage < 3)
        return ckpt_ds_flat_form(ds, c, group, form);
    rc = ckpt_ds_part_holds(ds, c, group, &holds);
    *form = holds ? CKPT_DS_CUT : CKPT_DS_ABSENT;
    return rc;
}

/* One kind of optimizer state, of the parameters whose group keeps it. */
static int one_add_state(ckpt_ds *ds, const ckpt_ds_column *c)
{
    uint32_t known = UINT32_MAX; // the group that `form` is about
    ckpt_ds_form form = CKPT_DS_ABSENT;
    int rc = CKPT_OK;

    for (size_t i = 0; rc == CKPT_OK && i < ds->params.n; i++) {
        const ckpt_ds_param *p = &ds->params.at[i];
        if (p->group >= ds->group.n)
            continue;
        if (p->group != known)
            rc = one_form(ds, c, p->group, &form);
        known = p->group;
        if (rc != CKPT_OK || form == CKPT_DS_ABSENT)
            continue;
        ckpt_tensor like = {.dtype = (ckpt_dtype)c->at[ds->group.at[p->group].part].dtype,
                            .ndim = p->ndim,
                            .shape = p->shape,
                            .role = CKPT_ROLE_STATE};
        ckpt_tensor *t = NULL;
        const char *name = ckpt_arena_printf(ds->map->arena, "%s/%s", c->name, p->name);
        rc = name ? ckpt_map_add(ds->map, name, strlen(name), &like, &t, ds->err)
                  : ckpt_fail_memory(ds->err);
        ds->extent.n = ds->axis.n = 0;
        if (rc == CKPT_OK && p->numel)
            rc = one_extents(ds, c, p, form);
        if (rc == CKPT_OK)
            rc = ckpt_ds_extent_back(ds, t);
    }
    return rc;
}

/* The tensors, in the order of zero_to_fp32: buffers, frozen, trained, tied names; then states. */
static int one_build(ckpt_ds *ds)
{
    int rc = ckpt_ds_module_sort(ds);

    if (rc == CKPT_OK)
        rc = ckpt_ds_module_add_buffers(ds);
    if (rc == CKPT_OK)
        rc = ckpt_ds_module_add_frozen(ds);
    for (size_t i = 0; rc == CKPT_OK && i < ds->params.n; i++)
        rc = one_add_param(ds, &ds->params.at[i]);
    if (rc == CKPT_OK)
        rc = ckpt_ds_module_add_aliases(ds);
    if (rc == CKPT_OK)
        rc = ckpt_ds_module_note(ds);
    for (size_t i = 1; rc == CKPT_OK && i < ds->column.n; i++)
        rc = one_add_state(ds, &ds->column.at[i]);
    return rc;
}

/* Stage 0, or a model file whose optimizer files are missing. */
static int one_read_full(ckpt_ds *ds)
{
    if (!ds->dir.model)
        return ckpt_fail(ds->err, CKPT_EMISSING,
                         "%s: no optimizer files (*_optim_states.pt), which hold the weights of "
                         "stage 3: a process did "
                         "not save, or they were not copied",
                         ds->dir.path);
    ckpt_ds_part model = {.path = ds->dir.model};
    int rc = ckpt_ds_shard_open(ds, &ds->model, &model);
    if (rc != CKPT_OK || !ds->model.map)
        return rc;
    const ckpt_value *shapes = ckpt_value_get(ds->model.root, "param_shapes");
    if (shapes && shapes->kind != CKPT_V_NONE)
        return ckpt_fail(ds->err, CKPT_EMISSING,
                         "%s: the model file is of a ZeRO run, but no optimizer files "
                         "(*_optim_states.pt) stand beside "
                         "it: a process did not save, or they were not copied",
                         ds->dir.path);
    rc = ckpt_ds_module_begin(ds);
    if (rc == CKPT_OK)
        rc = ckpt_ds_module_add_buffers(ds);
    return rc == CKPT_OK ? ckpt_ds_full_build(ds) : rc;
}

/* ---- facts ---- */

/* A number of the model file as a fact, where it has it. */
static int one_fact_int(ckpt_ds *ds, const char *fact, const char *key)
{
    int64_t n = 0;

    if (!ckpt_value_as_int(ckpt_value_get(ds->model.root, key), &n))
        return CKPT_OK;
    return ckpt_map_fact_int(ds->map, fact, n, ds->err);
}

/* What the run trained in: the dtype of the first floating tensor of the module that is no buffer.
 */
static const char *one_training_dtype(const ckpt_ds *ds)
{
    for (uint64_t i = 0; i < ds->module.n; i++) {
        const ckpt_value *v = ds->module.at[i].value;
        if (v->kind != CKPT_V_TENSOR)
            continue;
        ckpt_dtype d = v->as.tensor->dtype;
        if ((d == CKPT_F32 || d == CKPT_F16 || d == CKPT_BF16) && ds->seen[i] != 1)
            return ckpt_dtype_name(d);
    }
    return NULL;
}

/* Steps of the optimizer that neither the run's counter nor a first step of the wrapper explain. */
static int one_note_steps(ckpt_ds *ds)
{
    int64_t global = 0, skipped = 0;

    if (!ckpt_value_as_int(ckpt_value_get(ds->model.root, "global_steps"), &global))
        return CKPT_OK;
    ckpt_value_as_int(ckpt_value_get(ds->model.root, "skipped_steps"), &skipped);
    for (size_t g = 0; g < ds->group.n; g++) {
        double more = ds->group.at[g].step - ((double)global - (double)skipped);
        // Wrappers that make the optimizer's state by a first empty step count one more.
        if (ds->group.at[g].has_step && ds->group.at[g].own_step && !(fabs(more) < 1.5))
            return ckpt_map_note(
                ds->map, CKPT_WARNING, ds->err,
                "%s: the optimizer of group %zu counts %.0f steps, the run %" PRId64
                " less %" PRId64 " skipped: it was resumed with a fresh optimizer, perhaps",
                ds->dir.path, g, ds->group.at[g].step, global, skipped);
    }
    return CKPT_OK;
}

/* How far the run had come. */
static int one_facts_steps(ckpt_ds *ds)
{
    const char *steps = ckpt_ds_optim_steps(ds);
    int rc = one_fact_int(ds, "step", "global_steps");

    if (rc == CKPT_OK)
        rc = one_fact_int(ds, "skipped steps", "skipped_steps");
    if (rc == CKPT_OK && steps)
        rc = ckpt_map_fact(ds->map, ds->err, "optimizer steps", "%s", steps);
    return rc == CKPT_OK ? one_note_steps(ds) : rc;
}

/* Expert-parallel ranks, where experts are cut over fewer ranks than everything else. */
static int one_fact_experts(ckpt_ds *ds)
{
    uint32_t lanes = 1;

    for (size_t g = 0; g < ds->group.n; g++)
        lanes = ds->group.at[g].lanes > lanes ? ds->group.at[g].lanes : lanes;
    return lanes > 1 ? ckpt_map_fact_int(ds->map, "expert parallel", lanes, ds->err) : CKPT_OK;
}

/* What was understood, for people: printed by `info`, asked for by tools. */
static int one_facts(ckpt_ds *ds)
{
    ckpt_map *map = ds->map;
    const ckpt_value *version = ds->model.map ? ckpt_ds_version(&ds->model) : NULL;
    const ckpt_value *base = ckpt_value_get(
        ds->optim.optim, ds->stage == 3 ? "optimizer_state_dict" : "base_optimizer_state");
    uint64_t n_groups = ckpt_value_seq(ckpt_value_get(base, "param_groups")).n;
    const char *dtype = ds->model.map && ds->seen ? one_training_dtype(ds) : NULL;
    int rc = CKPT_OK;

    if (ds->optim.optim && ckpt_ds_is_bf16_optimizer(ds))
        rc = ckpt_map_fact(map, ds->err, "layout", "ZeRO stage 1 (BF16_Optimizer)");
    else
        rc = ckpt_map_fact(map, ds->err, "layout", "ZeRO stage %d%s", ds->stage,
                           ds->legacy ? " (legacy)" : "");
    if (rc == CKPT_OK)
        rc = ckpt_map_fact(map, ds->err, "tag", "%s", ds->dir.tag);
    if (rc == CKPT_OK)
        rc = ckpt_map_fact(map, ds->err, "tag folder", "%s", ds->dir.path);
    if (rc == CKPT_OK && ds->dir.optims.n)
        rc = ckpt_map_fact_int(map, "world size", ds->world, ds->err);
    else if (rc == CKPT_OK)
        rc = one_fact_int(ds, "world size", "dp_world_size");
    if (rc == CKPT_OK)
        rc = ckpt_map_fact_int(map, "stage", ds->stage, ds->err);
    if (rc == CKPT_OK && version)
        rc = ckpt_map_fact(map, ds->err, "DeepSpeed version", "%s", version->as.text.at);
    if (rc == CKPT_OK && dtype)
        rc = ckpt_map_fact(map, ds->err, "dtype", "%s", dtype);
    if (rc == CKPT_OK && (n_groups || ds->group.n))
        rc = ckpt_map_fact_int(map, "parameter groups",
                               (int64_t)(n_groups ? n_groups : ds->group.n), ds->err);
    if (rc == CKPT_OK)
        rc = one_fact_experts(ds);
    return rc == CKPT_OK ? one_facts_steps(ds) : rc;
}

/* Rank 0's trees side by side. */
static int one_values(ckpt_ds *ds)
{
    ckpt_value *root = ckpt_value_new(ds->map->arena, CKPT_V_DICT), *tree = NULL;
    int rc = root ? CKPT_OK : ckpt_fail_memory(ds->err);

    if (rc == CKPT_OK && ds->model.map) {
        rc = ckpt_ds_tree_copy(ds, &ds->model, &tree);
        if (rc == CKPT_OK &&
            !ckpt_dict_add_cstr(ds->map->arena, &root->as.map, "model_states", tree))
            rc = ckpt_fail_memory(ds->err);
    }
    if (rc == CKPT_OK && ds->optim.map) {
        rc = ckpt_ds_tree_copy(ds, &ds->optim, &tree);
        if (rc == CKPT_OK &&
            !ckpt_dict_add_cstr(ds->map->arena, &root->as.map, "optim_states", tree))
            rc = ckpt_fail_memory(ds->err);
    }
    ds->map->values = root;
    return rc;
}

/* ---- the driver ---- */

void ckpt_ds_free(ckpt_ds *ds)
{
    ckpt_ds_flat_free(ds);
    ckpt_ds_module_free(ds);
    for (size_t i = 0; i < ds->column.n; i++)
        ckpt_free(ds->column.at[i].at);
    ckpt_vec_free(&ds->column);
    ckpt_vec_free(&ds->group);
    ckpt_vec_free(&ds->params);
    ckpt_vec_free(&ds->pairs);
    ckpt_vec_free(&ds->extent);
    ckpt_vec_free(&ds->axis);
    ckpt_ds_folder_free(&ds->dir);
    ckpt_ds_shard_close(&ds->model);
    ckpt_ds_shard_close(&ds->optim);
}

int ckpt_ds_read(ckpt_ds *ds)
{
    ds->map->path = ds->dir.path;
    ds->map->format = "deepspeed";
    ds->world = (uint32_t)ds->dir.optims.n;
    int rc = ds->world ? one_read_all(ds) : one_read_full(ds);
    // Facts and values of what could be read are worth having even where no tensors can be made.
    if (rc == CKPT_OK)
        rc = one_facts(ds);
    if (rc == CKPT_OK && ds->world && !ds->broken)
        rc = one_build(ds);
    if (rc == CKPT_OK)
        rc = one_values(ds);
    if (rc == CKPT_OK && ds->world && !ds->broken && ds->opts->with_optimizer)
        rc = ckpt_ds_state_make(ds);
    return rc;
}
