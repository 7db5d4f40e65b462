/* SPDX-License-Identifier: Apache-2.0 */
/*
 * slice.c: reads all files of one model-parallel rank into a map.
 *
 * Rank 0's files define the parameters and groups; the file of every other rank is read, compared
 * with them, and closed.
 */
#include <assert.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "formats/deepspeed/join/slice.h"
#include "formats/deepspeed/layout/autoep.h"
#include "formats/deepspeed/layout/bnb.h"
#include "formats/deepspeed/layout/same.h"
#include "formats/deepspeed/layout/stage12.h"
#include "formats/deepspeed/layout/stage3.h"
#include "formats/deepspeed/module/module.h"
#include "formats/deepspeed/module/state.h"
#include "formats/deepspeed/stage0/stage0.h"

/* Reading of one model-parallel rank. */
typedef struct one {
    ckpt_ds_job *job;
    const ckpt_ds_folder *dir;
    const ckpt_ds_pipe *pipe;
    ckpt_ds_head head;
    ckpt_ds_module module;
    ckpt_ds_layout layout;
    bool placed; /* rank 0's layout is known, so other ranks can be compared */
    /* a tree that passed the checks: ranks that share it need no second check */
    const ckpt_value *passed;
    /* stage 3: flat tensors of the preceding parameter, and their parts */
    const ckpt_ds_flat *flat;
    const ckpt_parts *parts;
} one;

/* ---- reading all files ---- */

/* Sets s->optim to optimizer_state_dict; it remains NULL when its absence became a finding. */
static int one_find_optim(ckpt_ds_job *job, ckpt_ds_shard *s)
{
    const ckpt_value *found = ckpt_value_get(s->root, "optimizer_state_dict");

    s->optim = ckpt_value_map(found).n ? found : NULL;
    if (s->optim)
        return CKPT_OK;
    return ckpt_ds_problem(job, CKPT_EFORMAT,
                           "%s: not a ZeRO optimizer file: it has no dict optimizer_state_dict",
                           s->path);
}

/* Determines the stage. BF16_Optimizer writes none and has the layout of stage 1. */
static int one_find_stage(const ckpt_ds_job *job, ckpt_ds_head *head)
{
    const ckpt_value *stage = ckpt_value_get(head->optim.optim, "zero_stage");

    head->stage = ckpt_value_get(head->optim.optim, "fp32_flat_groups") ? 3 : 1;
    if (stage && !ckpt_ds_stage(stage, &head->stage))
        return ckpt_fail(job->err, CKPT_EUNSUPPORTED, "%s: zero_stage is not 0, 1, 2 or 3",
                         head->optim.path);
    if (head->stage == 0)
        head->stage = 1;
    head->legacy =
        head->stage < 3 && ckpt_value_get(head->optim.optim, "local_sub_partitions_of_fp32_groups");
    return CKPT_OK;
}

/* Opens rank 0's model file, whose name depends on the stage. */
static int one_open_model(ckpt_ds_job *job, const ckpt_ds_folder *dir, ckpt_ds_head *head)
{
    ckpt_ds_part whole = {.path = dir->model};
    const ckpt_ds_part *model = dir->model ? &whole : NULL;

    if (head->stage == 3)
        model = dir->models.n && dir->models.at[0].rank == 0 ? &dir->models.at[0] : NULL;
    if (model)
        return ckpt_ds_shard_open(job, &head->model, model);
    return ckpt_ds_problem(
        job, CKPT_EMISSING,
        "%s: the model file %smp_rank_%02" PRIu32 "_model_states.pt of ZeRO stage %d is missing",
        job->map->path, head->stage == 3 ? "zero_pp_rank_0_" : "", dir->mp, head->stage);
}

/* Opens rank 0's two files, which remain open. */
static int one_open_first(ckpt_ds_job *job, const ckpt_ds_folder *dir, ckpt_ds_head *head)
{
    int rc = ckpt_ds_shard_open(job, &head->optim, &dir->optims.at[0]);

    if (rc == CKPT_OK && head->optim.map)
        rc = one_find_optim(job, &head->optim);
    if (rc == CKPT_OK && head->optim.optim)
        rc = one_find_stage(job, head);
    return rc == CKPT_OK && head->optim.optim ? one_open_model(job, dir, head) : rc;
}

/*
 * Checks that rank 0's two files are from one run. dp_world_size is the number of ranks or a
 * divisor of it, because some releases do not count sequence-parallel ranks.
 */
static int one_check_run(ckpt_ds_job *job, const ckpt_ds_folder *dir, const ckpt_ds_head *head)
{
    const ckpt_value *model = ckpt_ds_version(&head->model), *optim = ckpt_ds_version(&head->optim);
    bool same = true;
    int64_t n = 1;
    int rc = model && optim ? ckpt_ds_same(job, model, optim, &same) : CKPT_OK;

    if (rc == CKPT_OK && !same)
        return ckpt_ds_problem(job, CKPT_EMISMATCH,
                               "%s: saved by DeepSpeed %s, but the optimizer file of rank 0 by %s: "
                               "they are from different runs",
                               head->model.path, model->as.text.at, optim->as.text.at);
    (void)ckpt_value_as_int(ckpt_value_get(head->model.root, "dp_world_size"), &n);
    // stage 3 has no partition_count, so only this check detects a missing last rank
    if (rc == CKPT_OK && head->stage == 3 && n > head->world)
        return ckpt_ds_problem(
            job, CKPT_EMISSING,
            "%s: missing: dp_world_size is %" PRId64 ", but only ranks 0 to %" PRIu32
            " have optimizer files here: a process did not save, or its files were not copied",
            ckpt_ds_folder_lost(job, &dir->optims, head->world), n, head->world - 1);
    if (rc == CKPT_OK && (n < 1 || n > head->world || head->world % (uint32_t)n != 0))
        rc = ckpt_ds_problem(job, CKPT_EMISMATCH,
                             "%s: dp_world_size is %" PRId64 ", but %" PRIu32
                             " ranks have optimizer files here: they are from different runs, or "
                             "ranks of an earlier, larger one were left behind",
                             head->model.path, n, head->world);
    return rc;
}

/* Reads parameters, groups and the layout of the flat tensors from rank 0's files. */
static int one_read_first(one *o)
{
    int rc = ckpt_ds_module_gather(o->job, o->dir, &o->head, o->pipe);

    if (rc == CKPT_OK)
        rc = ckpt_ds_module_begin(o->job, &o->head, &o->module);

    if (rc == CKPT_OK)
        rc = ckpt_ds_optim_begin(o->job, &o->head, &o->layout);
    if (rc == CKPT_OK)
        rc = ckpt_ds_optim_read(o->job, o->dir, &o->head, &o->layout, &o->head.optim);
    if (rc == CKPT_OK && !o->job->broken)
        rc = one_check_run(o->job, o->dir, &o->head);
    if (rc == CKPT_OK && !o->job->broken)
        rc = ckpt_ds_params_read(o->job, &o->head, &o->module.by_name, &o->layout);
    if (rc == CKPT_OK && !o->job->broken)
        rc = ckpt_ds_lanes_params(o->job, &o->layout);
    if (rc == CKPT_OK && !o->job->broken)
        rc = o->head.stage == 3 && o->head.autoep.n
                 ? ckpt_ds_autoep_place(o->job, &o->head, &o->layout)
             : o->head.stage == 3 ? ckpt_ds_stage3_begin(o->job, o->dir, &o->head, &o->layout)
                                  : ckpt_ds_stage12_begin(o->job, &o->head, &o->layout);
    if (rc == CKPT_OK && !o->job->broken && o->head.stage < 3)
        rc = ckpt_ds_stage12_mappings(o->job, &o->head, &o->layout, &o->head.optim);
    if (rc == CKPT_OK && o->head.stage == 3 && !o->job->broken)
        rc = ckpt_ds_frozen_read(o->job, &o->head, &o->module, &o->head.model);
    return rc;
}

/* Reads the optimizer file of a rank other than 0. */
static int one_read_optim(void *ctx, ckpt_ds_shard *s)
{
    one *o = ctx;
    int rc = one_find_optim(o->job, s);

    if (rc != CKPT_OK || !s->optim || !o->placed)
        return rc;
    rc = ckpt_ds_optim_read(o->job, o->dir, &o->head, &o->layout, s);
    return rc == CKPT_OK && o->head.stage < 3
               ? ckpt_ds_stage12_mappings(o->job, &o->head, &o->layout, s)
               : rc;
}

/* Checks that the counters are equal in all model files of stage 3. */
static int one_check_counters(ckpt_ds_job *job, const ckpt_ds_head *head, const ckpt_ds_shard *s)
{
    static const char *const key[] = {"global_steps", "skipped_steps", "global_samples",
                                      "dp_world_size", "ds_version"};
    bool same = true;
    int rc = CKPT_OK;

    for (size_t i = 0; rc == CKPT_OK && i < sizeof key / sizeof *key; i++) {
        const ckpt_value *a = ckpt_value_get(head->model.root, key[i]),
                         *b = ckpt_value_get(s->root, key[i]);
        rc = ckpt_ds_same(job, a, b, &same);
        if (rc == CKPT_OK && !same)
            rc = ckpt_ds_problem(job, CKPT_EMISMATCH,
                                 "%s: %s of rank %" PRIu32
                                 " differs from rank 0's: the shards were saved at different "
                                 "steps or by different runs",
                                 s->path, key[i], s->rank);
    }
    return rc;
}

/* Only rank 0 lists tied names (_get_shared_params, since 0.9.2). In another rank's file they show
 * that it is rank 0's file, which would lose the tied names. */
static int one_check_shared(ckpt_ds_job *job, const ckpt_ds_shard *s)
{
    if (ckpt_value_map(ckpt_value_get(s->root, "shared_params")).n == 0)
        return CKPT_OK;
    return ckpt_ds_problem(job, CKPT_EMISMATCH,
                           "%s: has shared_params, which only rank 0 writes: this is not the file "
                           "of rank %" PRIu32,
                           s->path, s->rank);
}

/* Checks a rank's model file against rank 0's. */
static int one_check_model(one *o, const ckpt_ds_shard *s)
{
    int rc = one_check_counters(o->job, &o->head, s);

    if (rc == CKPT_OK)
        rc = one_check_shared(o->job, s);
    if (rc == CKPT_OK)
        rc = ckpt_ds_params_check(o->job, &o->head, s);
    if (rc == CKPT_OK)
        rc = ckpt_ds_autoep_check_model(o->job, &o->head, s);
    return rc == CKPT_OK ? ckpt_ds_same_model(o->job, &o->head, s) : rc;
}

/* Reads the model file of a rank other than 0, which exists only in stage 3. */
static int one_read_model(void *ctx, ckpt_ds_shard *s)
{
    one *o = ctx;

    if (!o->placed)
        return CKPT_OK;
    int rc = s->root == o->passed ? CKPT_OK : one_check_model(o, s);
    if (rc == CKPT_OK && !o->job->broken)
        o->passed = s->root;
    if (rc == CKPT_OK && !o->job->broken)
        rc = ckpt_ds_client_note(o->job, &o->head, s);
    return rc == CKPT_OK ? ckpt_ds_frozen_read(o->job, &o->head, &o->module, s) : rc;
}

/* Stage 3: reports the first rank with a model file but no optimizer file, or the reverse. */
static int one_check_pairs(ckpt_ds_job *job, const ckpt_ds_folder *dir)
{
    bool fewer = dir->optims.n < dir->models.n;
    const ckpt_ds_parts *few = fewer ? &dir->optims : &dir->models,
                        *many = fewer ? &dir->models : &dir->optims;
    size_t i = 0;

    while (i < few->n && few->at[i].rank == many->at[i].rank)
        i++;
    // without any model file, its name depends on a stage that is not known yet
    const char *lost =
        few->n ? ckpt_ds_folder_lost(job, few, many->at[i].rank)
               : ckpt_arena_printf(job->map->arena, "%s/*mp_rank_%02" PRIu32 "_model_states.pt",
                                   job->map->path, dir->mp);
    if (!lost)
        return ckpt_fail_memory(job->err);
    return ckpt_ds_problem(job, CKPT_EMISSING,
                           "%s: missing: rank %" PRIu32
                           " has %s file, but no %s file (%zu model and "
                           "%zu optimizer files in all): a process did not save, or shards of an "
                           "earlier run were left behind",
                           lost, many->at[i].rank, fewer ? "a model" : "an optimizer",
                           fewer ? "optimizer" : "model", dir->models.n, dir->optims.n);
}

/* Finds missing, duplicate or surplus ranks by file names only. */
static int one_check_folder(ckpt_ds_job *job, const ckpt_ds_folder *dir)
{
    int rc = ckpt_ds_folder_check(job, &dir->optims, "optimizer");

    if (rc == CKPT_OK)
        rc = ckpt_ds_folder_check(job, &dir->models, "model");
    if (rc == CKPT_OK && dir->model && dir->models.n)
        rc = ckpt_ds_problem(job, CKPT_EMISMATCH,
                             "%s: model files of stage 3 (one per rank) and of another stage "
                             "(mp_rank_00) side by side: "
                             "one of them was left behind by another run",
                             job->map->path);
    if (rc == CKPT_OK && !job->broken && !dir->model && dir->models.n != dir->optims.n)
        rc = one_check_pairs(job, dir);
    return rc;
}

/* Reads every file of a partitioned checkpoint. */
static int one_read_all(one *o)
{
    int rc = one_check_folder(o->job, o->dir);

    if (rc == CKPT_OK)
        rc = one_open_first(o->job, o->dir, &o->head);
    o->placed = !o->job->broken && o->head.model.map && o->head.optim.optim;
    if (rc == CKPT_OK && o->placed)
        rc = one_read_first(o);
    o->placed = o->placed && !o->job->broken;
    // Also open files that the layout does not need: damage in them becomes a finding.
    if (rc == CKPT_OK)
        rc = ckpt_ds_shard_each(o->job, &o->dir->optims, 1, CKPT_DS_RANKS, one_read_optim, o);
    // without any model file the loss is reported already
    if (rc == CKPT_OK && o->head.stage == 3 && o->dir->models.n > 0)
        rc = ckpt_ds_shard_each(o->job, &o->dir->models, 1, CKPT_DS_RANKS, one_read_model, o);
    for (size_t c = 0;
         rc == CKPT_OK && !o->job->broken && o->head.stage == 3 && c < o->layout.column.n; c++)
        rc = ckpt_ds_swap_bind(o->job, &o->head, &o->layout, &o->layout.column.at[c]);
    if (rc == CKPT_OK && o->placed)
        rc = o->head.stage == 3 ? ckpt_ds_stage3_check(o->job, o->dir, &o->head, &o->layout)
                                : ckpt_ds_stage12_check(o->job, o->dir, &o->head, &o->layout);
    return rc;
}

/* ---- building the map ---- */

/* Stage 3: maps a tensor to the elements from `at` on in each rank's flat tensor. */
static int one_cut(one *o, const ckpt_ds_flat *flat, uint64_t at, ckpt_tensor *t)
{
    int rc = CKPT_OK;

    if (o->flat != flat)
        rc = ckpt_ds_stage3_parts(o->job, &o->head, flat, &o->parts);
    o->flat = rc == CKPT_OK ? flat : NULL;
    return rc == CKPT_OK ? ckpt_ds_stage3_back(o->job, flat, o->parts, at, t) : rc;
}

/*
 * Maps a tensor to a parameter's elements in a column (masters, or one kind of state), by the
 * stage's layout.
 */
static int one_back(one *o, const ckpt_ds_column *c, const ckpt_ds_param *p, ckpt_ds_form form,
                    ckpt_tensor *t)
{
    ckpt_ds_boxes boxes = {0};
    int rc = CKPT_OK;

    if (o->head.stage == 3 && p->fused)
        rc = p->numel ? ckpt_ds_stage3_extents(o->job, &o->layout, &boxes, c, p) : CKPT_OK;
    else if (o->head.stage == 3)
        return p->numel ? one_cut(o, &c->at[o->layout.group.at[p->group].part], p->at, t) : CKPT_OK;
    else if (p->numel)
        rc = ckpt_ds_stage12_extents(o->job, &o->layout, &boxes, c, p, form);
    if (rc == CKPT_OK)
        rc = ckpt_ds_extent_back(o->job, &boxes, t);
    ckpt_ds_boxes_free(&boxes);
    return rc;
}

/*
 * Adds a trained parameter: its masters from all ranks' files, and attaches the module's 16-bit
 * copy as its twin, to be compared with it. (Rounded masters equal the copy bit for bit in every
 * release and dtype; overflows change neither. Stage 3 has no copy.)
 */
static int one_add_param(one *o, const ckpt_ds_param *p)
{
    const ckpt_ds_column *c = &o->layout.column.at[0];
    bool any = p->group < o->layout.group.n;
    ckpt_tensor like = {.dtype = any ? (ckpt_dtype)c->at[o->layout.group.at[p->group].part].dtype
                                     : CKPT_F32,
                        .ndim = p->ndim,
                        .shape = p->shape};
    ckpt_tensor *t = NULL;
    int rc = ckpt_map_add(o->job->map, p->name, p->n_name, &like, &t, o->job->err);

    if (rc == CKPT_OK && p->numel)
        rc = one_back(o, c, p, CKPT_DS_CUT, t);
    return rc == CKPT_OK && o->head.stage < 3 ? ckpt_ds_module_twin(o->job, &o->head, &o->module, t)
                                              : rc;
}

/* Determines the form of a kind of state in a group. */
static int one_form(const one *o, const ckpt_ds_column *c, uint32_t group, ckpt_ds_form *form)
{
    bool holds = false;
    int rc;

    if (o->head.stage < 3)
        return ckpt_ds_stage12_form(o->job, &o->head, &o->layout, c, group, form);
    rc = ckpt_ds_stage3_holds(o->job, &o->head, &o->layout, c, group, &holds);
    *form = holds ? CKPT_DS_CUT : CKPT_DS_ABSENT;
    return rc;
}

/* Adds one kind of optimizer state for the parameters whose group has it. */
static int one_add_state(one *o, const ckpt_ds_column *c)
{
    uint32_t known = UINT32_MAX; // group of `form`
    ckpt_ds_form form = CKPT_DS_ABSENT;
    int rc = CKPT_OK;

    for (size_t i = 0; rc == CKPT_OK && i < o->layout.params.n; i++) {
        const ckpt_ds_param *p = &o->layout.params.at[i];
        if (p->group >= o->layout.group.n)
            continue;
        if (p->group != known)
            rc = one_form(o, c, p->group, &form);
        known = p->group;
        if (rc != CKPT_OK || form == CKPT_DS_ABSENT)
            continue;
        ckpt_tensor like = {.dtype = (ckpt_dtype)c->at[o->layout.group.at[p->group].part].dtype,
                            .ndim = p->ndim,
                            .shape = p->shape,
                            .role = CKPT_ROLE_STATE};
        ckpt_tensor *t = NULL;
        const char *name = ckpt_arena_printf(o->job->map->arena, "%s/%s", c->name, p->name);
        rc = name ? ckpt_map_add(o->job->map, name, strlen(name), &like, &t, o->job->err)
                  : ckpt_fail_memory(o->job->err);
        if (rc == CKPT_OK)
            rc = one_back(o, c, p, form, t);
    }
    return rc;
}

/* Adds the tensors in the order of zero_to_fp32: buffers, frozen, trained, tied names; then
 * states. */
static int one_build(one *o)
{
    int rc = ckpt_ds_module_sort(o->job, &o->head, &o->module, &o->layout.params);

    if (rc == CKPT_OK)
        rc = ckpt_ds_module_add_buffers(o->job, &o->head, &o->module);
    if (rc == CKPT_OK)
        rc = ckpt_ds_module_add_frozen(o->job, &o->head, &o->module);
    for (size_t i = 0; rc == CKPT_OK && i < o->layout.params.n; i++)
        rc = one_add_param(o, &o->layout.params.at[i]);
    if (rc == CKPT_OK)
        rc = ckpt_ds_module_add_aliases(o->job, &o->head, &o->module);
    if (rc == CKPT_OK)
        rc = ckpt_ds_module_note(o->job, &o->head);
    for (size_t i = 1; rc == CKPT_OK && i < o->layout.column.n; i++)
        rc = one_add_state(o, &o->layout.column.at[i]);
    return rc;
}

/* Reads stage 0, or a model file whose optimizer files are missing. */
static int one_read_full(one *o)
{
    ckpt_ds_job *job = o->job;
    const ckpt_ds_folder *dir = o->dir;
    ckpt_ds_head *head = &o->head;

    if (!dir->model && job->opts->weights_only)
        return ckpt_fail(job->err, CKPT_EMISSING,
                         "%s: no model file holds whole weights: stage 3 keeps them in the "
                         "optimizer files, which --weights-only does not read",
                         job->map->path);
    if (!dir->model)
        return ckpt_fail(job->err, CKPT_EMISSING,
                         "%s: no optimizer files (*_optim_states.pt), which hold the weights of "
                         "stage 3: a process did "
                         "not save, or they were not copied",
                         job->map->path);
    ckpt_ds_part model = {.path = dir->model};
    int rc = ckpt_ds_shard_open(job, &head->model, &model);
    if (rc != CKPT_OK || !head->model.map)
        return rc;
    const ckpt_value *shapes = ckpt_value_get(head->model.root, "param_shapes");
    if (shapes && shapes->kind != CKPT_V_NONE && !job->opts->weights_only)
        return ckpt_fail(job->err, CKPT_EMISSING,
                         "%s: the model file is of a ZeRO run, but no optimizer files "
                         "(*_optim_states.pt) stand beside "
                         "it: a process did not save, or they were not copied",
                         job->map->path);
    rc = ckpt_ds_module_gather(job, dir, head, o->pipe);
    if (rc == CKPT_OK)
        rc = ckpt_ds_module_begin(job, head, &o->module);
    if (rc == CKPT_OK)
        rc = ckpt_ds_module_has_all(job, head, &o->module);
    if (rc == CKPT_OK)
        rc = ckpt_ds_module_add_buffers(job, head, &o->module);
    return rc == CKPT_OK ? ckpt_ds_stage0_build(job, head, &o->module) : rc;
}

/* ---- facts ---- */

/* Adds a number of the model file as a fact, if present. */
static int one_fact_int(const ckpt_ds_job *job, const ckpt_ds_head *head, const char *fact,
                        const char *key)
{
    int64_t n = 0;

    if (!ckpt_value_as_int(ckpt_value_get(head->model.root, key), &n))
        return CKPT_OK;
    return ckpt_map_fact_int(job->map, fact, n, job->err);
}

/* Warns about optimizer steps that neither the run's counter nor a wrapper's extra first step
 * explains. */
static int one_note_steps(const ckpt_ds_job *job, const ckpt_ds_head *head,
                          const ckpt_ds_layout *layout)
{
    int64_t global = 0, skipped = 0;

    if (!ckpt_value_as_int(ckpt_value_get(head->model.root, "global_steps"), &global))
        return CKPT_OK;
    ckpt_value_as_int(ckpt_value_get(head->model.root, "skipped_steps"), &skipped);
    for (size_t g = 0; g < layout->group.n; g++) {
        double more = layout->group.at[g].step - ((double)global - (double)skipped);
        // Wrappers that initialise the optimizer's state by an empty first step count one more.
        if (layout->group.at[g].has_step && layout->group.at[g].own_step && !(fabs(more) < 1.5))
            return ckpt_map_note(
                job->map, CKPT_WARNING, job->err,
                "%s: the optimizer of group %zu counts %.0f steps, but the run %" PRId64
                " less %" PRId64 " skipped: it may have been resumed with a fresh optimizer",
                job->map->path, g, layout->group.at[g].step, global, skipped);
    }
    return CKPT_OK;
}

/* Adds the run's step counts as facts. */
static int one_facts_steps(const ckpt_ds_job *job, const ckpt_ds_head *head,
                           const ckpt_ds_layout *layout)
{
    const char *steps = ckpt_ds_optim_steps(job, layout);
    int rc = one_fact_int(job, head, "step", "global_steps");

    if (rc == CKPT_OK)
        rc = one_fact_int(job, head, "skipped steps", "skipped_steps");
    if (rc == CKPT_OK && steps)
        rc = ckpt_map_fact(job->map, job->err, "optimizer steps", "%s", steps);
    if (rc == CKPT_OK && head->optim.optim)
        rc = ckpt_ds_bnb_fact(job, head, layout);
    return rc == CKPT_OK ? one_note_steps(job, head, layout) : rc;
}

/* Adds the expert-parallel degree as a fact, if experts are partitioned over fewer ranks than other
 * parameters. */
static int one_fact_experts(const ckpt_ds_job *job, const ckpt_ds_layout *layout)
{
    uint32_t lanes = 1;

    for (size_t g = 0; g < layout->group.n; g++)
        lanes = layout->group.at[g].lanes > lanes ? layout->group.at[g].lanes : lanes;
    return lanes > 1 ? ckpt_map_fact_int(job->map, "expert parallel", lanes, job->err) : CKPT_OK;
}

/* Adds the facts that `info` prints and tools query. */
static int one_facts(const ckpt_ds_job *job, const ckpt_ds_folder *dir, const ckpt_ds_head *head,
                     const ckpt_ds_module *module, const ckpt_ds_layout *layout)
{
    ckpt_map *map = job->map;
    const ckpt_value *version = head->model.map ? ckpt_ds_version(&head->model) : NULL;
    const ckpt_value *base = ckpt_value_get(
        head->optim.optim, head->stage == 3 ? "optimizer_state_dict" : "base_optimizer_state");
    uint64_t n_groups = ckpt_value_seq(ckpt_value_get(base, "param_groups")).n;
    ckpt_dtype trained = head->model.map ? ckpt_ds_module_dtype(module) : CKPT_DTYPE_NONE;
    const char *dtype = trained != CKPT_DTYPE_NONE ? ckpt_dtype_name(trained) : NULL;
    int rc = CKPT_OK;

    if (job->opts->weights_only)
        rc = ckpt_map_fact(map, job->err, "layout", "model files of a run");
    else if (head->optim.optim && ckpt_ds_is_bf16_optimizer(head))
        rc = ckpt_map_fact(map, job->err, "layout", "ZeRO stage 1 (BF16_Optimizer)");
    else
        rc = ckpt_map_fact(map, job->err, "layout", "ZeRO stage %d%s", head->stage,
                           head->legacy ? " (legacy)" : "");
    if (rc == CKPT_OK)
        rc = ckpt_map_fact(map, job->err, "tag", "%s", dir->tag);
    if (rc == CKPT_OK)
        rc = ckpt_map_fact(map, job->err, "tag folder", "%s", job->map->path);
    if (rc == CKPT_OK && dir->optims.n)
        rc = ckpt_map_fact_int(map, "world size", head->world, job->err);
    else if (rc == CKPT_OK)
        rc = one_fact_int(job, head, "world size", "dp_world_size");
    if (rc == CKPT_OK && !job->opts->weights_only)
        rc = ckpt_map_fact_int(map, "stage", head->stage, job->err);
    if (rc == CKPT_OK && version)
        rc = ckpt_map_fact(map, job->err, "DeepSpeed version", "%s", version->as.text.at);
    if (rc == CKPT_OK && dtype)
        rc = ckpt_map_fact(map, job->err, "dtype", "%s", dtype);
    if (rc == CKPT_OK && (n_groups || layout->group.n))
        rc = ckpt_map_fact_int(map, "parameter groups",
                               (int64_t)(n_groups ? n_groups : layout->group.n), job->err);
    if (rc == CKPT_OK)
        rc = one_fact_experts(job, layout);
    return rc == CKPT_OK ? one_facts_steps(job, head, layout) : rc;
}

/* Sets the map's values to rank 0's two trees. */
static int one_values(const ckpt_ds_job *job, ckpt_ds_head *head)
{
    ckpt_value *root = ckpt_value_new(job->map->arena, CKPT_V_DICT), *tree = NULL;
    int rc = root ? CKPT_OK : ckpt_fail_memory(job->err);

    if (rc == CKPT_OK && head->model.map) {
        rc = ckpt_ds_tree_copy(job, &head->model, &tree);
        if (rc == CKPT_OK &&
            !ckpt_dict_add_cstr(job->map->arena, &root->as.map, "model_states", tree))
            rc = ckpt_fail_memory(job->err);
    }
    if (rc == CKPT_OK && head->optim.map) {
        rc = ckpt_ds_tree_copy(job, &head->optim, &tree);
        if (rc == CKPT_OK &&
            !ckpt_dict_add_cstr(job->map->arena, &root->as.map, "optim_states", tree))
            rc = ckpt_fail_memory(job->err);
    }
    job->map->values = root;
    return rc;
}

/* ---- reading the rank ---- */

static void one_free(one *o)
{
    ckpt_ds_layout_free(&o->layout);
    ckpt_ds_module_free(&o->module);
    ckpt_vec_free(&o->head.autoep);
    ckpt_ds_shard_close(&o->head.model);
    ckpt_ds_shard_close(&o->head.optim);
}

int ckpt_ds_read(ckpt_ds_job *job, const ckpt_ds_folder *dir, const ckpt_ds_pipe *pipe,
                 ckpt_ds_run *run)
{
    assert(job && dir && run);
    one o = {.job = job, .dir = dir, .pipe = pipe};

    job->map->path = dir->path;
    job->map->format = "deepspeed";
    o.head.world = (uint32_t)dir->optims.n;
    o.module.layered = dir->layers.n > 0;
    int rc = o.head.world ? one_read_all(&o) : one_read_full(&o);
    // Facts and values remain useful even without tensors.
    if (rc == CKPT_OK)
        rc = one_facts(job, dir, &o.head, &o.module, &o.layout);
    if (rc == CKPT_OK && o.head.world && !job->broken)
        rc = one_build(&o);
    if (rc == CKPT_OK && (o.head.world || job->opts->weights_only) && !job->broken &&
        !job->opts->with_optimizer)
        rc = ckpt_ds_autoep_hub(job, &o.head, &o.module);
    if (rc == CKPT_OK)
        rc = one_values(job, &o.head);
    if (rc == CKPT_OK && o.head.world && !job->broken && job->opts->with_optimizer)
        rc = ckpt_ds_state_make(job, &o.head, &o.module, &o.layout);
    *run = (ckpt_ds_run){.stage = o.head.stage, .world = o.head.world};
    one_free(&o);
    return rc;
}
