/* SPDX-License-Identifier: Apache-2.0 */
/*
 * deepspeed.c: the directory driver of DeepSpeed ZeRO checkpoints.
 *
 * A tag folder holds, of one model-parallel rank with n data-parallel ranks,
 *     mp_rank_00_model_states.pt                         the model (stages 0 to 2)
 *     zero_pp_rank_{0..n-1}_mp_rank_00_model_states.pt   the model (stage 3: buffers, fragments)
 *     [bf16_]zero_pp_rank_{0..n-1}_mp_rank_00_optim_states.pt  masters and optimizer state
 * Rank 0's files say what there is; every other rank's file is read, compared with them, and
 * closed. Several model-parallel ranks, pipeline stages and experts without ZeRO are read in parts,
 * each like this, and put together by ds_grid.c.  Checked against DeepSpeed 0.3.16, 0.5.10, 0.6.5,
 * 0.7.7, 0.9.5, 0.12.6 and 0.19.8.
 */
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "formats/deepspeed.h"

enum {
    DS_SURE = 95,  /* of a folder with `latest` or shards */
    DS_TAGS = 80,  /* of tags without `latest`: surer than a model beside them, so that it asks */
    DS_MAYBE = 40, /* of a folder with checkpoint-N */
    DS_MAX_LOOKED = 256 /* sub-folders that a probe looks into */
};

int ckpt_ds_problem(ckpt_ds *ds, int code, const char *fmt, ...)
{
    char text[sizeof ds->err->text];
    va_list args;

    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    ds->broken = true;
    return ckpt_map_problem(ds->map, code, ds->err, "%s", text);
}

/* ---- probing ---- */

/* Does one of the sub-folders hold shards?  For tags of any name, where `latest` is absent. */
static bool ds_has_tags(const ckpt_listing *list)
{
    ckpt_map *map = NULL;
    bool found = false;
    unsigned looked = 0;

    if (ckpt_map_new(&map, 0, NULL) != CKPT_OK)
        return false;
    for (size_t i = 0; !found && i < list->n && looked < DS_MAX_LOOKED; i++) {
        ckpt_listing sub;
        if (!list->entry[i].is_dir)
            continue;
        looked++;
        const char *path =
            ckpt_arena_printf(map->arena, "%s/%s", list->folder, list->entry[i].name);
        if (!path || ckpt_listing_read(&sub, map, path, NULL) != CKPT_OK)
            continue;
        for (size_t k = 0; !found && k < sub.n; k++)
            found = !sub.entry[k].is_dir && ckpt_ds_name_is_shard(sub.entry[k].name);
    }
    ckpt_map_free(map);
    return found;
}

/*
 * Certain about `latest` and the names of shards, sure of tags, guessing of folders that may hold
 * runs.
 */
static int ds_probe(const ckpt_listing *list)
{
    uint64_t number = 0;
    int sure = 0;

    for (size_t i = 0; i < list->n && sure < DS_SURE; i++) {
        const ckpt_entry *e = &list->entry[i];
        if (!e->is_dir &&
            (strcmp(e->name, "latest") == 0 || strcmp(e->name, "latest_universal") == 0 ||
             ckpt_ds_name_is_shard(e->name)))
            sure = DS_SURE;
        else if (e->is_dir && ckpt_ds_name_run(e->name, &number))
            sure = DS_MAYBE;
    }
    return sure < DS_SURE && ds_has_tags(list) ? DS_TAGS : sure;
}

/* One shard stands for its folder only when the caller asks for the whole checkpoint. */
static int ds_part(const char *file_name)
{
    if (strcmp(file_name, "latest") == 0)
        return 2;
    return ckpt_ds_name_is_shard(file_name) ? 1 : 0;
}

/* ---- reading all files ---- */

/* optimizer_state_dict of an optimizer file; s->optim stays NULL where a collecting reader noted
 * its absence. */
static int ds_find_optim(ckpt_ds *ds, ckpt_ds_shard *s)
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
static int ds_find_stage(ckpt_ds *ds)
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

bool ckpt_ds_is_bf16_optimizer(const ckpt_ds *ds)
{
    return ds->stage == 1 && !ds->legacy && !ckpt_value_get(ds->optim.optim, "zero_stage");
}

/* Rank 0's model file: which one it is depends on the stage. */
static int ds_open_model(ckpt_ds *ds)
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
static int ds_open_first(ckpt_ds *ds)
{
    int rc = ckpt_ds_shard_open(ds, &ds->optim, &ds->dir.optims.at[0]);

    if (rc == CKPT_OK && ds->optim.map)
        rc = ds_find_optim(ds, &ds->optim);
    if (rc == CKPT_OK && ds->optim.optim)
        rc = ds_find_stage(ds);
    return rc == CKPT_OK && ds->optim.optim ? ds_open_model(ds) : rc;
}

/*
 * Rank 0's two files are of one run.  dp_world_size is the number of ranks, or a divisor of it,
 * because some releases leave sequence-parallel ranks out of the count.
 */
static int ds_check_run(ckpt_ds *ds)
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
static int ds_read_first(ckpt_ds *ds)
{
    int rc = ckpt_ds_module_begin(ds);

    if (rc == CKPT_OK)
        rc = ckpt_ds_optim_begin(ds);
    if (rc == CKPT_OK)
        rc = ckpt_ds_optim_read(ds, &ds->optim);
    if (rc == CKPT_OK && !ds->broken)
        rc = ds_check_run(ds);
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
static int ds_read_optim(ckpt_ds *ds, ckpt_ds_shard *s)
{
    int rc = ds_find_optim(ds, s);

    if (rc != CKPT_OK || !s->optim || !ds->placed)
        return rc;
    rc = ckpt_ds_optim_read(ds, s);
    return rc == CKPT_OK && ds->stage < 3 ? ckpt_ds_flat_mappings(ds, s) : rc;
}

/* Counters that must be equal in all model files of stage 3. */
static int ds_check_counters(ckpt_ds *ds, const ckpt_ds_shard *s)
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
static int ds_check_shared(ckpt_ds *ds, const ckpt_ds_shard *s)
{
    if (ckpt_value_map(ckpt_value_get(s->root, "shared_params")).n == 0)
        return CKPT_OK;
    return ckpt_ds_problem(ds, CKPT_EMISMATCH,
                           "%s: has shared_params, which only rank 0 writes: this is not the file "
                           "of rank %" PRIu32,
                           s->path, s->rank);
}

/* A model file of another rank than 0: only stage 3 has them. */
static int ds_read_model(ckpt_ds *ds, ckpt_ds_shard *s)
{
    if (!ds->placed)
        return CKPT_OK;
    int rc = ds_check_counters(ds, s);
    if (rc == CKPT_OK)
        rc = ds_check_shared(ds, s);
    if (rc == CKPT_OK)
        rc = ckpt_ds_params_check(ds, s);
    if (rc == CKPT_OK)
        rc = ckpt_ds_same_model(ds, s);
    return rc == CKPT_OK ? ckpt_ds_part_frozen(ds, s) : rc;
}

/* Stage 3: each rank has a model and an optimizer file; name the first that lacks its partner. */
static int ds_check_pairs(ckpt_ds *ds)
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
static int ds_check_folder(ckpt_ds *ds)
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
        rc = ds_check_pairs(ds);
    return rc;
}

/* Every file of a partitioned checkpoint. */
static int ds_read_all(ckpt_ds *ds)
{
    int rc = ds_check_folder(ds);

    if (rc == CKPT_OK)
        rc = ds_open_first(ds);
    ds->placed = !ds->broken && ds->model.map && ds->optim.optim;
    if (rc == CKPT_OK && ds->placed)
        rc = ds_read_first(ds);
    ds->placed = ds->placed && !ds->broken;
    // Files that have no place are still opened: damage in them is worth a finding.
    if (rc == CKPT_OK)
        rc = ckpt_ds_shard_each(ds, &ds->dir.optims, 1, ds_read_optim);
    if (rc == CKPT_OK && ds->stage == 3)
        rc = ckpt_ds_shard_each(ds, &ds->dir.models, 1, ds_read_model);
    for (size_t c = 0; rc == CKPT_OK && !ds->broken && ds->stage == 3 && c < ds->column.n; c++)
        rc = ckpt_ds_swap_bind(ds, &ds->column.at[c]);
    if (rc == CKPT_OK && ds->placed)
        rc = ds->stage == 3 ? ckpt_ds_part_check(ds) : ckpt_ds_flat_check(ds);
    return rc;
}

/* ---- building the map ---- */

/* Where a parameter's elements lie in a column, by the stage's layout. */
static int ds_extents(ckpt_ds *ds, const ckpt_ds_column *c, const ckpt_ds_param *p,
                      ckpt_ds_form form)
{
    return ds->stage == 3 ? ckpt_ds_part_extents(ds, c, p) : ckpt_ds_flat_extents(ds, c, p, form);
}

/*
 * A trained parameter: its masters in all ranks' files, and the module's 16-bit copy as the twin
 * that a conversion compares with.  (Rounded masters equal the copy bit for bit in every release
 * and dtype; overflows leave both as they were.  At stage 3 there is no copy.)
 */
static int ds_add_param(ckpt_ds *ds, const ckpt_ds_param *p)
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
        rc = ds_extents(ds, c, p, CKPT_DS_CUT);
        if (rc == CKPT_OK)
            rc = ckpt_ds_extent_back(ds, t);
    }
    return rc == CKPT_OK && ds->stage < 3 ? ckpt_ds_module_twin(ds, t) : rc;
}

/* How a group keeps a kind of state. */
static int ds_form(ckpt_ds *ds, const ckpt_ds_column *c, uint32_t group, ckpt_ds_form *form)
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
static int ds_add_state(ckpt_ds *ds, const ckpt_ds_column *c)
{
    uint32_t known = UINT32_MAX; // the group that `form` is about
    ckpt_ds_form form = CKPT_DS_ABSENT;
    int rc = CKPT_OK;

    for (size_t i = 0; rc == CKPT_OK && i < ds->params.n; i++) {
        const ckpt_ds_param *p = &ds->params.at[i];
        if (p->group >= ds->group.n)
            continue;
        if (p->group != known)
            rc = ds_form(ds, c, p->group, &form);
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
            rc = ds_extents(ds, c, p, form);
        if (rc == CKPT_OK)
            rc = ckpt_ds_extent_back(ds, t);
    }
    return rc;
}

/* The tensors, in the order of zero_to_fp32: buffers, frozen, trained, tied names; then states. */
static int ds_build(ckpt_ds *ds)
{
    int rc = ckpt_ds_module_sort(ds);

    if (rc == CKPT_OK)
        rc = ckpt_ds_module_add_buffers(ds);
    if (rc == CKPT_OK)
        rc = ckpt_ds_module_add_frozen(ds);
    for (size_t i = 0; rc == CKPT_OK && i < ds->params.n; i++)
        rc = ds_add_param(ds, &ds->params.at[i]);
    if (rc == CKPT_OK)
        rc = ckpt_ds_module_add_aliases(ds);
    if (rc == CKPT_OK)
        rc = ckpt_ds_module_note(ds);
    for (size_t i = 1; rc == CKPT_OK && i < ds->column.n; i++)
        rc = ds_add_state(ds, &ds->column.at[i]);
    return rc;
}

/* Stage 0, or a model file whose optimizer files are missing. */
static int ds_read_full(ckpt_ds *ds)
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
static int ds_fact_int(ckpt_ds *ds, const char *fact, const char *key)
{
    int64_t n = 0;

    if (!ckpt_value_as_int(ckpt_value_get(ds->model.root, key), &n))
        return CKPT_OK;
    return ckpt_map_fact_int(ds->map, fact, n, ds->err);
}

/* What the run trained in: the dtype of the first floating tensor of the module that is no buffer.
 */
static const char *ds_training_dtype(const ckpt_ds *ds)
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
static int ds_note_steps(ckpt_ds *ds)
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
static int ds_facts_steps(ckpt_ds *ds)
{
    const char *steps = ckpt_ds_optim_steps(ds);
    int rc = ds_fact_int(ds, "step", "global_steps");

    if (rc == CKPT_OK)
        rc = ds_fact_int(ds, "skipped steps", "skipped_steps");
    if (rc == CKPT_OK && steps)
        rc = ckpt_map_fact(ds->map, ds->err, "optimizer steps", "%s", steps);
    return rc == CKPT_OK ? ds_note_steps(ds) : rc;
}

/* Expert-parallel ranks, where experts are cut over fewer ranks than everything else. */
static int ds_fact_experts(ckpt_ds *ds)
{
    uint32_t lanes = 1;

    for (size_t g = 0; g < ds->group.n; g++)
        lanes = ds->group.at[g].lanes > lanes ? ds->group.at[g].lanes : lanes;
    return lanes > 1 ? ckpt_map_fact_int(ds->map, "expert parallel", lanes, ds->err) : CKPT_OK;
}

/* What was understood, for people: printed by `info`, asked for by tools. */
static int ds_facts(ckpt_ds *ds)
{
    ckpt_map *map = ds->map;
    const ckpt_value *version = ds->model.map ? ckpt_ds_version(&ds->model) : NULL;
    const ckpt_value *base = ckpt_value_get(
        ds->optim.optim, ds->stage == 3 ? "optimizer_state_dict" : "base_optimizer_state");
    uint64_t n_groups = ckpt_value_seq(ckpt_value_get(base, "param_groups")).n;
    const char *dtype = ds->model.map && ds->seen ? ds_training_dtype(ds) : NULL;
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
        rc = ds_fact_int(ds, "world size", "dp_world_size");
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
        rc = ds_fact_experts(ds);
    return rc == CKPT_OK ? ds_facts_steps(ds) : rc;
}

/* Rank 0's trees side by side. */
static int ds_values(ckpt_ds *ds)
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
    int rc = ds->world ? ds_read_all(ds) : ds_read_full(ds);
    // Facts and values of what could be read are worth having even where no tensors can be made.
    if (rc == CKPT_OK)
        rc = ds_facts(ds);
    if (rc == CKPT_OK && ds->world && !ds->broken)
        rc = ds_build(ds);
    if (rc == CKPT_OK)
        rc = ds_values(ds);
    if (rc == CKPT_OK && ds->world && !ds->broken && ds->opts->with_optimizer)
        rc = ckpt_ds_state_make(ds);
    return rc;
}

/*
 * Layer and expert files do not depend on the data ranks: a source for each as a whole, for writers
 * that pass them on.
 */
static int ds_whole_files(ckpt_map *map, ckpt_err *err)
{
    int rc = CKPT_OK;

    for (uint32_t i = 0; rc == CKPT_OK && i < map->files.n; i++) {
        const ckpt_map_file *f = &map->files.at[i];
        const char *slash = strrchr(f->path, '/');
        ckpt_ds_kind kind = ckpt_ds_name_parse(slash ? slash + 1 : f->path).kind;
        ckpt_source s = {.kind = CKPT_SOURCE_FILE,
                         .file = i,
                         .n_stored = f->size,
                         .n_bytes = f->size,
                         .whole = 1};
        if (kind == CKPT_DS_LAYER || kind == CKPT_DS_EXPERT)
            rc = ckpt_map_add_source(map, &s, &(uint32_t){0}, err);
    }
    return rc;
}

/*
 * The driver's one entry.  Collecting (verify), inconsistencies become findings and the gather goes
 * on as far as it is safe: a map without tensors is then still a valid answer.
 */
static int ds_gather(ckpt_map *map, const ckpt_listing *list, const ckpt_open_opts *opts,
                     ckpt_err *err)
{
    static const ckpt_open_opts defaults = {0};
    ckpt_ds ds = {.map = map, .opts = opts ? opts : &defaults, .read = list->read, .err = err};
    int rc = ckpt_ds_folder_find(&ds, list);

    if (rc == CKPT_OK)
        rc = ckpt_ds_grid_needed(&ds) ? ckpt_ds_grid_read(&ds) : ckpt_ds_read(&ds);
    if (rc == CKPT_OK && ds.opts->with_optimizer)
        rc = ds_whole_files(map, err);
    ckpt_ds_free(&ds);
    return rc;
}

const ckpt_directory ckpt_directory_deepspeed = {
    .name = "deepspeed",
    .note = "ZeRO stages 0 to 3 of DeepSpeed 0.3.14 to 0.19.8, data, tensor, pipeline and expert "
            "parallel; reads run, tag and HF Trainer folders",
    .caps = CKPT_CAN_READ | CKPT_HAS_TAGS,
    .probe = ds_probe,
    .gather = ds_gather,
    .part = ds_part,
};
