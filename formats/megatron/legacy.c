/* SPDX-License-Identifier: Apache-2.0 */
/*
 * legacy.c: reads checkpoints with a torch file for each model-parallel rank (--ckpt-format torch,
 * and Megatron-LM before Megatron-Core).
 *
 *     iter_0000003/mp_rank_<tp>[_<pipeline stage>][_<expert rank>]/model_optim_rng.pt
 *
 * A file has `model` (with virtual pipeline stages model0, model1 ...), in which layers and experts
 * are numbered within the rank.  Stages follow each other, the first virtual stage of all ranks
 * before the second.  All ranks of a stage have the same names.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/megatron/legacy.h"
#include "libckpt/map/adopt.h"

enum { MGL_MAX_RANKS = 65536 };

static const char *const mgl_files[] = {"model_optim_rng.pt", "model_rng.pt"};

/* ---- one rank ---- */

/* Read a rank's file. */
static int mgl_read_rank(ckpt_meg_job *job, ckpt_meg_rank *rank)
{
    const char *path = NULL;
    ckpt_listing below;
    ckpt_map *map = NULL;
    int rc = CKPT_OK;

    rank->path = ckpt_arena_printf(job->map->arena, "%s/%s", job->list->folder, rank->name);
    if (!rank->path)
        return ckpt_fail_memory(job->err);
    rc = ckpt_listing_read(&below, job->map, rank->path, job->err);
    for (size_t i = 0; rc == CKPT_OK && !path && i < 2; i++) {
        if (ckpt_listing_find(&below, mgl_files[i]))
            path = ckpt_arena_printf(job->map->arena, "%s/%s", rank->path, mgl_files[i]);
    }
    if (rc == CKPT_OK && !path)
        return ckpt_fail(job->err, CKPT_EMISSING,
                         "%s: holds no %s: its process did not save, or the file was not copied",
                         rank->path, mgl_files[0]);
    rank->flat = rc == CKPT_OK && ckpt_listing_find(&below, CKPT_MEG_FLAT);
    if (rc == CKPT_OK)
        rc = job->list->read(&map, path, NULL, job->err);
    if (rc == CKPT_OK && (!map->values || map->values->kind != CKPT_V_DICT)) {
        rc =
            ckpt_fail(job->err, CKPT_EFORMAT, "%s: expected a dict, as Megatron-LM saves it", path);
    }
    if (rc == CKPT_OK)
        rc = ckpt_map_adopt(job->map, map, NULL, job->err);
    if (rc != CKPT_OK) {
        ckpt_map_free(map);
        return rc;
    }
    rank->map = map;
    rank->root = map->values;
    return CKPT_OK;
}

/* ---- the grid ---- */

static int mgl_by_place(const void *pa, const void *pb)
{
    const ckpt_meg_rank *a = pa, *b = pb;

    if (a->pp != b->pp)
        return a->pp < b->pp ? -1 : 1;
    if (a->ep != b->ep)
        return a->ep < b->ep ? -1 : 1;
    return (a->tp > b->tp) - (a->tp < b->tp);
}

static uint32_t mgl_size(const ckpt_meg_job *job, const char *name)
{
    int64_t n = ckpt_meg_arg(job, name);

    return n > 0 && n <= MGL_MAX_RANKS ? (uint32_t)n : 0;
}

/* Interpret the numbers of a folder's name: the second is a stage if the run had several. */
static void mgl_place(ckpt_meg_rank *rank, const uint32_t number[3], unsigned n, uint32_t stages)
{
    rank->tp = number[0];
    rank->pp = n == 3 || (n == 2 && stages != 1) ? number[1] : 0;
    rank->ep = n == 3 ? number[2] : n == 2 && stages == 1 ? number[1] : 0;
}

/* Set the parallel degrees from the run's arguments, else from the highest numbers. */
static void mgl_sizes(const ckpt_meg_job *job, ckpt_meg_grid *grid)
{
    ckpt_meg_grid most = {0};

    grid->tp = mgl_size(job, "tensor_model_parallel_size");
    grid->pp = mgl_size(job, "pipeline_model_parallel_size");
    grid->ep = mgl_size(job, "expert_model_parallel_size");
    // fall back to the highest numbers, because arguments of older releases have other names, or
    // lack experts
    for (size_t i = 0; i < grid->rank.n; i++) {
        const ckpt_meg_rank *r = &grid->rank.at[i];
        most.tp = r->tp >= most.tp ? r->tp + 1 : most.tp;
        most.pp = r->pp >= most.pp ? r->pp + 1 : most.pp;
        most.ep = r->ep >= most.ep ? r->ep + 1 : most.ep;
    }
    grid->tp = grid->tp ? grid->tp : most.tp;
    grid->pp = grid->pp ? grid->pp : most.pp;
    grid->ep = grid->ep ? grid->ep : most.ep;
}

/* Check that the grid has exactly one rank for each combination of coordinates. */
static int mgl_complete(const ckpt_meg_job *job, ckpt_meg_grid *grid)
{
    size_t i = 0;

    if ((uint64_t)grid->tp * grid->pp * grid->ep > MGL_MAX_RANKS)
        return ckpt_fail(job->err, CKPT_ELIMIT, "%s: more than %d model-parallel ranks",
                         job->map->path, MGL_MAX_RANKS);
    for (uint32_t pp = 0; pp < grid->pp; pp++) {
        for (uint32_t at = 0; at < grid->tp * grid->ep; at++, i++) {
            uint32_t tp = at % grid->tp, ep = at / grid->tp;
            const ckpt_meg_rank *r = i < grid->rank.n ? &grid->rank.at[i] : NULL;
            if (!r || r->tp != tp || r->pp != pp || r->ep != ep)
                return ckpt_map_problem(
                    job->map, r ? CKPT_EMISMATCH : CKPT_EMISSING, job->err,
                    "%s: the run had %" PRIu32 " tensor-parallel ranks, %" PRIu32
                    " pipeline stages and %" PRIu32 " expert-parallel ranks, and the folder of "
                    "rank (%" PRIu32 ", %" PRIu32 ", %" PRIu32 ") is not there%s%s",
                    job->map->path, grid->tp, grid->pp, grid->ep, tp, pp, ep, r ? ": found " : "",
                    r ? r->name : "");
        }
    }
    if (i < grid->rank.n)
        return ckpt_map_problem(
            job->map, CKPT_EMISMATCH, job->err,
            "%s: %s is from another run: this one had %" PRIu32 " tensor-parallel ranks, %" PRIu32
            " pipeline stages and %" PRIu32 " expert-parallel ranks; move it away",
            job->map->path, grid->rank.at[i].name, grid->tp, grid->pp, grid->ep);
    grid->whole = true;
    return CKPT_OK;
}

/* A value of a rank's file, or else of its arguments. */
static const ckpt_value *mgl_said(const ckpt_meg_rank *rank, const char *key, bool argument)
{
    const ckpt_value *args = ckpt_value_get(rank->root, "args");

    if (!argument)
        return ckpt_value_get(rank->root, key);
    for (unsigned depth = 0; args && args->kind == CKPT_V_OBJECT && depth < 4; depth++)
        args = args->as.object->state;
    return ckpt_value_get(args, key);
}

/* Check that all ranks belong to one save, and to one run by arguments that no rank has alone. */
static int mgl_same_save(const ckpt_meg_job *job, const ckpt_meg_grid *grid)
{
    static const struct {
        const char *name;
        bool argument;
    } key[] = {{"iteration", false},
               {"checkpoint_version", false},
               {"tensor_model_parallel_size", true},
               {"pipeline_model_parallel_size", true},
               {"expert_model_parallel_size", true},
               {"hidden_size", true},
               {"num_layers", true},
               {"num_attention_heads", true},
               {"padded_vocab_size", true},
               {"consumed_train_samples", true},
               {"global_batch_size", true},
               {"seed", true},
               {"lr", true}};

    for (size_t i = 1; i < grid->rank.n; i++) {
        for (size_t k = 0; k < sizeof key / sizeof *key; k++) {
            const ckpt_value *a = mgl_said(&grid->rank.at[0], key[k].name, key[k].argument),
                             *b = mgl_said(&grid->rank.at[i], key[k].name, key[k].argument);
            // tools that convert checkpoints may give one file the arguments of all
            const bool alike = key[k].argument ? !a || !b : !a && !b;
            bool same = alike;
            int rc = !same && a && b ? ckpt_value_compare(&same, a, b, 4, job->err) : CKPT_OK;
            if (rc != CKPT_OK)
                return rc;
            if (same)
                continue;
            rc = ckpt_map_problem(
                job->map, CKPT_EMISMATCH, job->err,
                "%s: its %s%s differs from that in %s: they are from different saves",
                grid->rank.at[i].path, key[k].argument ? "args." : "", key[k].name,
                grid->rank.at[0].name);
            if (rc != CKPT_OK)
                return rc;
        }
    }
    return CKPT_OK;
}

/* Read the files of all ranks. */
static int mgl_grid(ckpt_meg_job *job, ckpt_meg_grid *grid)
{
    int rc = CKPT_OK;

    for (size_t i = 0; rc == CKPT_OK && i < job->list->n; i++) {
        const ckpt_entry *e = &job->list->entry[i];
        uint32_t number[3];
        unsigned n = e->is_dir ? ckpt_meg_numbers(e->name, number) : 0;
        ckpt_meg_rank *r = n ? ckpt_vec_push(&grid->rank) : NULL;
        if (!n)
            continue;
        if (!r || grid->rank.n > MGL_MAX_RANKS)
            return ckpt_fail_memory(job->err);
        r->name = e->name;
        rc = mgl_read_rank(job, r);
        if (rc == CKPT_OK && grid->rank.n == 1)
            job->root = r->root;
        if (rc == CKPT_OK)
            mgl_place(r, number, n, mgl_size(job, "pipeline_model_parallel_size"));
    }
    if (rc != CKPT_OK)
        return rc;
    qsort(grid->rank.at, grid->rank.n, sizeof *grid->rank.at, mgl_by_place);
    mgl_sizes(job, grid);
    rc = mgl_complete(job, grid);
    if (rc == CKPT_OK && grid->whole)
        rc = mgl_same_save(job, grid);
    if (rc == CKPT_OK && grid->whole)
        rc = ckpt_meg_same_steps(job, grid);
    return rc == CKPT_OK && grid->whole && job->opts->with_optimizer
               ? ckpt_meg_same_settings(job, grid)
               : rc;
}

/* ---- the checkpoint ---- */

/* Make the tree of values: a dict of all ranks' trees by folder. */
static int mgl_values(ckpt_meg_job *job, const ckpt_meg_grid *grid)
{
    ckpt_arena *arena = job->map->arena;
    ckpt_value *root = ckpt_value_new(arena, CKPT_V_DICT);
    bool ok = root != NULL;

    for (size_t i = 0; ok && i < grid->rank.n; i++)
        ok = ckpt_dict_add_cstr(arena, &root->as.map, grid->rank.at[i].name,
                                grid->rank.at[i].map->values);
    job->map->values = root;
    return ok ? CKPT_OK : ckpt_fail_memory(job->err);
}

static int mgl_read(ckpt_meg_job *job, ckpt_meg_grid *grid)
{
    int rc = mgl_grid(job, grid);

    if (rc == CKPT_OK)
        rc = ckpt_meg_facts(job, "Megatron-LM, a file for each model-parallel rank");
    if (rc == CKPT_OK)
        rc = mgl_values(job, grid);
    if (rc != CKPT_OK || !grid->whole)
        return rc;
    rc = ckpt_meg_slices_list(job, grid);
    if (rc == CKPT_OK)
        rc = ckpt_meg_join(job, grid, NULL);
    return rc == CKPT_OK && job->opts->with_optimizer ? ckpt_meg_legacy_state(job, grid) : rc;
}

int ckpt_meg_legacy(ckpt_meg_job *job)
{
    ckpt_meg_grid grid = {0};
    int rc = mgl_read(job, &grid);

    for (size_t i = 0; i < grid.rank.n; i++)
        ckpt_vec_free(&grid.rank.at[i].slice);
    ckpt_vec_free(&grid.rank);
    return rc;
}
