/* SPDX-License-Identifier: Apache-2.0 */
/*
 * grid.c: reads several model-parallel ranks (tensor x pipeline), each as a separate checkpoint
 * into its own map, and adopts these maps into the output map.
 *
 * mp_rank = pipeline stage * tp + tensor-parallel rank. Both degrees are in the model files since
 * 0.19.5 (checkpoint_parallel_dimensions). Older files show them by their names: without layer
 * files all ranks are slices of the same tensors; otherwise the tensor-parallel degree is the
 * number of files per layer. Stage 0 with experts is also read in parts, one for each
 * expert-parallel rank, because each has its own optimizer file.
 */
#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "formats/deepspeed/join/grid.h"
#include "formats/deepspeed/join/slice.h"
#include "formats/deepspeed/layout/same.h"
#include "libckpt/base/index.h"
#include "libckpt/map/adopt.h"
#include "libckpt/map/map.h"
#include "libckpt/map/state.h"

bool ckpt_ds_grid_needed(const ckpt_ds_folder *dir)
{
    return dir->n_mp > 1 || dir->layers.n || dir->expps.n;
}

/* ---- ranks of the folder ---- */

/* Sets seen[r] for each rank r < n that has a file in the list. */
static void dsg_mark(const ckpt_ds_parts *parts, uint8_t *seen, size_t n)
{
    for (size_t i = 0; i < parts->n; i++) {
        if (parts->at[i].mp < n)
            seen[parts->at[i].mp] = 1;
    }
}

/* Checks that every rank up to the highest has files. */
static int dsg_ranks(ckpt_ds_job *job, const ckpt_ds_folder *dir)
{
    size_t n = dir->wholes.n + dir->models.n + dir->optims.n, first = 0;
    uint8_t *seen = ckpt_alloc(n + 1);

    if (!seen)
        return ckpt_fail_memory(job->err);
    // With more ranks than files, one of the first n + 1 is missing.
    dsg_mark(&dir->wholes, seen, n + 1);
    dsg_mark(&dir->models, seen, n + 1);
    dsg_mark(&dir->optims, seen, n + 1);
    while (first < n + 1 && first < dir->n_mp && seen[first])
        first++;
    ckpt_free(seen);
    if (first == dir->n_mp)
        return CKPT_OK;
    return ckpt_ds_problem(
        job, CKPT_EMISSING,
        "%s: missing: no file of model-parallel rank %02zu, though there are some up "
        "to rank %02" PRIu32 ": a process did not save, its files were not copied, "
        "or the others are of an earlier, larger run",
        dir->path, first, dir->n_mp - 1);
}

/* Returns the model file of a rank, of either kind; NULL if missing. */
static const char *dsg_model(const ckpt_ds_folder *dir, uint32_t mp)
{
    for (size_t i = 0; i < dir->wholes.n; i++) {
        if (dir->wholes.at[i].mp == mp)
            return dir->wholes.at[i].path;
    }
    for (size_t i = 0; i < dir->models.n; i++) {
        if (dir->models.at[i].mp == mp)
            return dir->models.at[i].path;
    }
    return NULL;
}

/* Returns the tensor-parallel degree: the number of files of the lowest layer. */
static uint32_t dsg_slices(const ckpt_ds_folder *dir)
{
    uint32_t n = 0, lowest = UINT32_MAX;

    for (size_t i = 0; i < dir->layers.n; i++)
        lowest = dir->layers.at[i].rank < lowest ? dir->layers.at[i].rank : lowest;
    for (size_t i = 0; i < dir->layers.n; i++)
        n += dir->layers.at[i].rank == lowest;
    return n;
}

/* Reads checkpoint_parallel_dimensions of the first model file, if present. */
static int dsg_written(const ckpt_ds_job *job, const ckpt_ds_folder *dir, int64_t *tp, int64_t *pp)
{
    const char *path = dsg_model(dir, 0);
    ckpt_map *map = NULL;
    ckpt_err err = {0};

    if (!path)
        return CKPT_OK;
    int rc = job->read(&map, path, NULL, &err);
    // A damaged file is reported by its later read.
    if (rc != CKPT_OK)
        return rc == CKPT_ELIMIT ? ckpt_fail(job->err, rc, "%s", err.text) : CKPT_OK;
    const ckpt_value *written = ckpt_value_get(map->values, "checkpoint_parallel_dimensions");
    if (!ckpt_value_as_int(ckpt_value_get(written, "tp_degree"), tp) ||
        !ckpt_value_as_int(ckpt_value_get(written, "pp_degree"), pp))
        *tp = *pp = 0;
    ckpt_map_free(map);
    return CKPT_OK;
}

/* Determines the tensor- and pipeline-parallel degrees. */
static int dsg_degrees(ckpt_ds_grid *grid)
{
    uint32_t n = grid->dir->n_mp;
    int64_t tp = 0, pp = 0;
    int rc = dsg_written(grid->job, grid->dir, &tp, &pp);

    if (rc != CKPT_OK)
        return rc;
    // If the stored degrees contradict the files, the later read of the model file reports it.
    if (tp < 1 || pp < 1 || tp > n || pp > n || tp * pp != n)
        tp = grid->dir->layers.n ? dsg_slices(grid->dir) : n;
    if (tp < 1 || n % tp != 0)
        return ckpt_ds_problem(
            grid->job, CKPT_EMISSING,
            "%s: missing: layers have files of %" PRId64
            " tensor-parallel ranks, but there are %" PRIu32
            " model-parallel ranks: a process did not save, or its files were not "
            "copied",
            grid->job->map->path, tp, n);
    grid->tp = (uint32_t)tp;
    grid->pp = n / grid->tp;
    return CKPT_OK;
}

/* ---- reading ---- */

/* Returns the model-parallel rank of part i, which is 0 for all expert-parallel parts. */
static uint32_t dsg_mp(const ckpt_ds_grid *grid, uint32_t i)
{
    return grid->ep ? 0 : i;
}

/* Checks that a part has the same counters and scheduler as the first. */
static int dsg_same_run(ckpt_ds_grid *grid, uint32_t i)
{
    static const char *const key[] = {"global_steps", "skipped_steps", "dp_world_size",
                                      "ds_version", "lr_scheduler"};
    const ckpt_value *first = ckpt_value_get(grid->slice[0].map->values, "model_states"),
                     *own = ckpt_value_get(grid->slice[i].map->values, "model_states");
    bool same = true;
    int rc = CKPT_OK;

    for (size_t k = 0; rc == CKPT_OK && first && own && k < sizeof key / sizeof *key; k++) {
        rc = ckpt_ds_same(grid->job, ckpt_value_get(first, key[k]), ckpt_value_get(own, key[k]),
                          &same);
        if (rc == CKPT_OK && !same)
            rc = ckpt_ds_problem(
                grid->job, CKPT_EMISMATCH,
                "%s: %s of model-parallel rank %02" PRIu32
                " differs from rank 00's: the files were saved at different steps or "
                "by different runs",
                grid->job->map->path, key[k], dsg_mp(grid, i));
    }
    // Only within a pipeline stage, because stages have other parameters and may group them
    // differently.
    if (rc == CKPT_OK)
        rc = ckpt_ds_same_slices(grid->job, grid->slice[grid->slice[i].stage * grid->tp].map,
                                 grid->slice[i].map, i);
    return rc;
}

/* Checks that world size and ZeRO stage agree with the first part. */
static int dsg_same_world(ckpt_ds_grid *grid, uint32_t mp, const ckpt_ds_run *own,
                          const ckpt_ds_run *first)
{
    if (own->world == first->world && own->stage == first->stage)
        return CKPT_OK;
    return ckpt_ds_problem(
        grid->job, own->world < first->world ? CKPT_EMISSING : CKPT_EMISMATCH,
        "%s: model-parallel rank %02" PRIu32 " has optimizer files of %" PRIu32
        " ranks and ZeRO stage %d, rank 00 of %" PRIu32
        " and stage %d: a process did not save, or files of another run are among "
        "them",
        grid->job->map->path, mp, own->world, own->stage, first->world, first->stage);
}

/* Reads one part into its own map. `first` holds the first part's world size and stage for the
 * comparison. */
static int dsg_read_part(ckpt_ds_grid *grid, uint32_t i, const ckpt_ds_pipe *pipe,
                         ckpt_ds_run *first)
{
    ckpt_ds_slice *slice = &grid->slice[i];
    ckpt_ds_job part = {.opts = grid->job->opts, .read = grid->job->read, .err = grid->job->err};
    ckpt_ds_folder dir = {0};
    ckpt_ds_run run = {0};

    slice->stage = grid->ep ? 0 : i / grid->tp;
    slice->tp = grid->ep ? 0 : i % grid->tp;
    int rc = ckpt_map_create(&slice->map, 0, part.err);
    if (rc != CKPT_OK)
        return rc;
    part.map = slice->map;
    part.map->collect = grid->job->map->collect;
    rc = ckpt_ds_folder_slice(grid->job, grid->dir, dsg_mp(grid, i), slice->tp, &dir);
    if (grid->ep) {
        dir.ep = grid->ep;
        dir.ep_rank = i;
        dir.optimizer = grid->dir->expps.at[i].path;
    }
    if (rc == CKPT_OK)
        rc = ckpt_ds_read(&part, &dir, pipe, &run);
    slice->broken = part.broken;
    if (rc == CKPT_OK && i == 0)
        *first = run;
    else if (rc == CKPT_OK)
        rc = dsg_same_world(grid, dir.mp, &run, first);
    ckpt_ds_folder_free(&dir);
    return rc == CKPT_OK && i > 0 ? dsg_same_run(grid, i) : rc;
}

/* Assigns a pipeline's layers to stages, then reads all parts. */
static int dsg_read_parts(ckpt_ds_grid *grid)
{
    ckpt_ds_job *job = grid->job;
    ckpt_ds_pipe *pipe = NULL;
    ckpt_ds_run first = {0};
    const char **model = ckpt_alloc(grid->pp * sizeof *model);
    int rc = model ? CKPT_OK : ckpt_fail_memory(job->err);
    bool all = true;

    for (uint32_t s = 0; rc == CKPT_OK && s < grid->pp; s++) {
        model[s] = dsg_model(grid->dir, s * grid->tp);
        all = all && model[s];
    }
    // A missing model file of a stage is reported when its part is read.
    if (rc == CKPT_OK && grid->dir->layers.n && all)
        rc = ckpt_ds_pipe_new(&pipe, job, grid->dir, model, grid->pp);
    ckpt_free(model);
    for (uint32_t i = 0; rc == CKPT_OK && i < grid->n; i++)
        rc = dsg_read_part(grid, i, pipe, &first);
    ckpt_ds_pipe_free(pipe);
    for (uint32_t i = 0; rc == CKPT_OK && i < grid->n; i++)
        job->broken = job->broken || grid->slice[i].broken;
    return rc;
}

/* ---- the output map ---- */

/* Adds the first part's facts, and the degrees. */
static int dsg_facts(const ckpt_ds_grid *grid)
{
    ckpt_map *map = grid->job->map, *first = grid->slice[0].map;
    ckpt_err *err = grid->job->err;
    int rc = CKPT_OK;

    for (size_t i = 0; rc == CKPT_OK && i < first->facts.n; i++) {
        const ckpt_fact *f = &first->facts.at[i];
        rc = f->is_number ? ckpt_map_fact_int(map, f->key, f->number, err)
                          : ckpt_map_fact(map, err, f->key, "%s", f->text);
    }
    if (rc == CKPT_OK && grid->tp > 1)
        rc = ckpt_map_fact_int(map, "tensor parallel", grid->tp, err);
    if (rc == CKPT_OK && grid->pp > 1)
        rc = ckpt_map_fact_int(map, "pipeline parallel", grid->pp, err);
    if (rc == CKPT_OK && grid->ep > 1)
        rc = ckpt_map_fact_int(map, "expert parallel", grid->ep, err);
    return rc;
}

/* Sets the map's values to a dict with the values of all ranks, or to those of the only rank. */
static int dsg_values(const ckpt_ds_grid *grid)
{
    ckpt_map *map = grid->job->map;
    char name[32];

    map->values = grid->slice[0].map->values;
    if (grid->dir->n_mp == 1)
        return CKPT_OK;
    map->values = ckpt_value_new(map->arena, CKPT_V_DICT);
    for (uint32_t i = 0; map->values && i < grid->n; i++) {
        (void)snprintf(name, sizeof name, "mp_rank_%02" PRIu32, i);
        if (grid->slice[i].map->values &&
            !ckpt_dict_add_cstr(map->arena, &map->values->as.map, name, grid->slice[i].map->values))
            return ckpt_fail_memory(grid->job->err);
    }
    return map->values ? CKPT_OK : ckpt_fail_memory(grid->job->err);
}

/* Decides whether slices are joined (*keep is false) or stay separate, and fails if no rules exist
 * for the join. */
static int dsg_choose(const ckpt_ds_grid *grid, bool *keep)
{
    *keep = grid->job->opts->keep_slices && grid->dir->n_mp > 1;
    grid->job->map->effects |= grid->dir->n_mp > 1 ? CKPT_USED_SLICES : 0;
    if (*keep || grid->job->broken || grid->tp == 1 || ckpt_ds_join_info(grid) ||
        grid->job->opts->slice_rules)
        return CKPT_OK;
    if (grid->job->opts->join_first_axis)
        return ckpt_map_note(
            grid->job->map, CKPT_WARNING, grid->job->err,
            "%s: no universal_checkpoint_info says how %" PRIu32 " tensor-parallel ranks are "
            "joined: all of their slices are put together along the first axis, as DeepSpeed does; "
            "parameters that each rank has whole, or that are cut along another axis, come out "
            "wrong",
            grid->job->map->path, grid->tp);
    *keep = true;
    // verify can check the slices without joining them.
    if (grid->job->map->collect)
        return ckpt_map_note(grid->job->map, CKPT_INFO, grid->job->err,
                             "%s: %" PRIu32
                             " tensor-parallel ranks are checked one by one, because no "
                             "universal_checkpoint_info says how to join them",
                             grid->job->map->path, grid->tp);
    return ckpt_fail(
        grid->job->err, CKPT_EUNSUPPORTED,
        "%s: %" PRIu32 " tensor-parallel ranks, and the files hold no "
        "universal_checkpoint_info that says how their slices are joined: give it with "
        "--slice-rules FILE (JSON), or take the slices as they are with --keep-slices "
        "(ds_to_universal: --inject_missing_state)",
        grid->job->map->path, grid->tp);
}

/* Adopts the maps of all parts. */
static int dsg_adopt(ckpt_ds_grid *grid, bool keep)
{
    char prefix[32];
    int rc = CKPT_OK;

    for (uint32_t i = 0; rc == CKPT_OK && i < grid->n; i++) {
        size_t n = grid->job->map->states.n;
        (void)snprintf(prefix, sizeof prefix, "mp_rank_%02" PRIu32 "/", i);
        rc = ckpt_map_adopt(grid->job->map, grid->slice[i].map,
                            keep && !grid->job->broken ? prefix : NULL, grid->job->err);
        grid->slice[i].adopted = rc == CKPT_OK;
        for (; rc == CKPT_OK && n < grid->job->map->states.n; n++)
            grid->job->map->states.at[n]->mp = i;
    }
    return rc;
}

/* Hash index callback: returns whether file `number` of the map is the same file as key. */
static bool dsg_same_file(const void *ctx, uint32_t number, const void *key)
{
    const ckpt_map *map = ctx;
    const ckpt_map_file *a = &map->files.at[number], *b = key;

    return strcmp(a->path, b->path) == 0 && a->dev == b->dev && a->ino == b->ino;
}

/* Merges the entries of a file that several parts have read. */
static int dsg_unite_files(ckpt_map *map, ckpt_err *err)
{
    uint32_t *to = ckpt_alloc((map->files.n + 1) * sizeof *to);
    ckpt_index index = {0};
    uint32_t n = 0;
    bool fits = to != NULL;

    for (size_t i = 0; fits && i < map->files.n; i++) {
        const ckpt_map_file file = map->files.at[i];
        uint32_t hash = ckpt_hash_bytes(file.path, strlen(file.path), 0);
        to[i] = ckpt_index_find(&index, hash, dsg_same_file, map, &file);
        if (to[i] != CKPT_INDEX_NONE)
            continue;
        fits = ckpt_index_add(&index, hash, n);
        to[i] = n;
        map->files.at[n++] = file;
    }
    for (size_t i = 0; fits && i < map->sources.n; i++) {
        if (map->sources.at[i].kind == CKPT_SOURCE_FILE)
            map->sources.at[i].file = to[map->sources.at[i].file];
    }
    map->files.n = fits ? n : map->files.n;
    ckpt_index_free(&index);
    ckpt_free(to);
    return fits ? CKPT_OK : ckpt_fail_memory(err);
}

/* Checks that all parts are present; if one is missing, none is read. */
static int dsg_whole(ckpt_ds_grid *grid)
{
    const ckpt_ds_parts *expps = &grid->dir->expps;
    int rc = dsg_ranks(grid->job, grid->dir);

    if (rc == CKPT_OK && !grid->job->broken)
        rc = dsg_degrees(grid);
    if (rc == CKPT_OK && grid->dir->offloaded && grid->dir->n_mp > 1)
        return ckpt_fail(
            grid->job->err, CKPT_EUNSUPPORTED,
            "%s: several model-parallel ranks have swap files of NVMe offload (offloaded_tensors), "
            "and ckpt cannot tell which file belongs to which rank",
            grid->job->map->path);
    if (rc == CKPT_OK && expps->n && (grid->dir->n_mp > 1 || grid->dir->layers.n))
        return ckpt_fail(grid->job->err, CKPT_EUNSUPPORTED,
                         "%s: a run without ZeRO has experts on several model-parallel ranks, and "
                         "ckpt cannot tell which optimizer file belongs to which rank",
                         grid->job->map->path);
    if (rc == CKPT_OK && expps->n && grid->dir->optims.n)
        rc = ckpt_ds_problem(grid->job, CKPT_EMISMATCH,
                             "%s: is from a run without ZeRO, but beside it are optimizer files of "
                             "ZeRO such as %s: one of them was left behind by another run",
                             expps->at[0].path, grid->dir->optims.at[0].path);
    for (uint32_t i = 0; rc == CKPT_OK && i < expps->n; i++) {
        if (expps->at[i].rank != i)
            return ckpt_ds_problem(
                grid->job, CKPT_EMISSING,
                "%s: missing: the optimizer file of expert-parallel rank %" PRIu32
                " (expp_rank_%" PRIu32 "_*): a process did not save, or it was not "
                "copied",
                grid->job->map->path, i, i);
    }
    return rc;
}

int ckpt_ds_grid_read(ckpt_ds_job *job, const ckpt_ds_folder *dir)
{
    assert(job && dir);
    ckpt_ds_grid grid = {.job = job, .dir = dir, .tp = 1, .pp = 1, .ep = (uint32_t)dir->expps.n};
    bool keep = false;

    job->map->path = dir->path;
    job->map->format = "deepspeed";
    int rc = dsg_whole(&grid);
    if (rc != CKPT_OK || job->broken)
        return rc;
    grid.n = grid.ep ? grid.ep : dir->n_mp;
    grid.slice = ckpt_alloc(grid.n * sizeof *grid.slice);
    if (!grid.slice)
        return ckpt_fail_memory(job->err);
    rc = dsg_read_parts(&grid);
    if (rc == CKPT_OK)
        rc = dsg_choose(&grid, &keep);
    if (rc == CKPT_OK)
        rc = dsg_adopt(&grid, keep);
    if (rc == CKPT_OK)
        rc = dsg_unite_files(job->map, job->err);
    if (rc == CKPT_OK)
        rc = dsg_facts(&grid);
    if (rc == CKPT_OK)
        rc = dsg_values(&grid);
    if (rc == CKPT_OK && !keep && !job->broken)
        rc = ckpt_ds_join(&grid);
    for (uint32_t i = 0; i < grid.n; i++) {
        if (!grid.slice[i].adopted)
            ckpt_map_free(grid.slice[i].map);
    }
    ckpt_free(grid.slice);
    return rc;
}
