/* SPDX-License-Identifier: Apache-2.0 */
/*
 * grid.c: several model-parallel ranks (tensor x pipeline): each is read like a checkpoint of
 * its own, into a map of its own, which the large map then adopts.
 *
 * mp_rank = pipeline stage * tp + tensor-parallel rank.  How many there are of each stands in the
 * model files since 0.19.5 (checkpoint_parallel_dimensions).  Older ones show it by their names:
 * without layer files all ranks are slices of the same tensors; with them there are as many
 * tensor-parallel ranks as a layer has files.  Stage 0 with experts is read in parts too: one per
 * expert-parallel rank, because each has an optimizer file of its own.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "formats/deepspeed/deepspeed.h"
#include "libckpt/base/index.h"
#include "libckpt/map/adopt.h"

bool ckpt_ds_grid_needed(const ckpt_ds *ds)
{
    return ds->dir.n_mp > 1 || ds->dir.layers.n || ds->dir.expps.n;
}

/* ---- which ranks there are ---- */

/* Mark the ranks that a list has files of, of the first n. */
static void dsg_mark(const ckpt_ds_parts *parts, uint8_t *seen, size_t n)
{
    for (size_t i = 0; i < parts->n; i++) {
        if (parts->at[i].mp < n)
            seen[parts->at[i].mp] = 1;
    }
}

/* Every rank up to the highest has files. */
static int dsg_ranks(ckpt_ds *ds)
{
    const ckpt_ds_folder *dir = &ds->dir;
    size_t n = dir->wholes.n + dir->models.n + dir->optims.n, first = 0;
    uint8_t *seen = ckpt_alloc(n + 1);

    if (!seen)
        return ckpt_fail_memory(ds->err);
    // With more ranks than files one of the first n + 1 is missing.
    dsg_mark(&dir->wholes, seen, n + 1);
    dsg_mark(&dir->models, seen, n + 1);
    dsg_mark(&dir->optims, seen, n + 1);
    while (first < n + 1 && first < dir->n_mp && seen[first])
        first++;
    ckpt_free(seen);
    if (first == dir->n_mp)
        return CKPT_OK;
    return ckpt_ds_problem(
        ds, CKPT_EMISSING,
        "%s: missing: no file of model-parallel rank %02zu, though there are some up "
        "to rank %02" PRIu32 ": a process did not save, its files were not copied, "
        "or the others are of an earlier, larger run",
        dir->path, first, dir->n_mp - 1);
}

/* The model file of a rank, whichever kind it is; NULL: none. */
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

/* Tensor-parallel ranks by the files of the first layer that has any. */
static uint32_t dsg_slices(const ckpt_ds_folder *dir)
{
    uint32_t n = 0, lowest = UINT32_MAX;

    for (size_t i = 0; i < dir->layers.n; i++)
        lowest = dir->layers.at[i].rank < lowest ? dir->layers.at[i].rank : lowest;
    for (size_t i = 0; i < dir->layers.n; i++)
        n += dir->layers.at[i].rank == lowest;
    return n;
}

/* checkpoint_parallel_dimensions of the first model file, where it has them. */
static int dsg_written(ckpt_ds *ds, int64_t *tp, int64_t *pp)
{
    const char *path = dsg_model(&ds->dir, 0);
    ckpt_map *map = NULL;
    ckpt_err err = {0};

    if (!path)
        return CKPT_OK;
    int rc = ds->read(&map, path, &err);
    // Damage is told when the file is read for good.
    if (rc != CKPT_OK)
        return rc == CKPT_ELIMIT ? ckpt_fail(ds->err, rc, "%s", err.text) : CKPT_OK;
    const ckpt_value *written = ckpt_value_get(map->values, "checkpoint_parallel_dimensions");
    if (!ckpt_value_as_int(ckpt_value_get(written, "tp_degree"), tp) ||
        !ckpt_value_as_int(ckpt_value_get(written, "pp_degree"), pp))
        *tp = *pp = 0;
    ckpt_map_free(map);
    return CKPT_OK;
}

/* How the ranks are arranged. */
static int dsg_degrees(ckpt_ds_grid *grid)
{
    ckpt_ds *ds = grid->ds;
    uint32_t n = ds->dir.n_mp;
    int64_t tp = 0, pp = 0;
    int rc = dsg_written(ds, &tp, &pp);

    if (rc != CKPT_OK)
        return rc;
    // Where they contradict the files, reading the model file says so.
    if (tp < 1 || pp < 1 || tp > n || pp > n || tp * pp != n)
        tp = ds->dir.layers.n ? dsg_slices(&ds->dir) : n;
    if (tp < 1 || n % tp != 0)
        return ckpt_ds_problem(
            ds, CKPT_EMISSING,
            "%s: missing: layers have files of %" PRId64
            " tensor-parallel ranks, but there are %" PRIu32
            " model-parallel ranks: a process did not save, or its files were not "
            "copied",
            ds->dir.path, tp, n);
    grid->tp = (uint32_t)tp;
    grid->pp = n / grid->tp;
    return CKPT_OK;
}

/* ---- reading ---- */

/* Is part i of the grid one of the experts alone? */
static uint32_t dsg_mp(const ckpt_ds_grid *grid, uint32_t i)
{
    return grid->ep ? 0 : i;
}

/* What must be equal in all parts beside their tensors. */
static int dsg_same_run(ckpt_ds_grid *grid, uint32_t i)
{
    static const char *const key[] = {"global_steps", "skipped_steps", "dp_world_size",
                                      "ds_version", "lr_scheduler"};
    ckpt_ds *ds = grid->ds;
    const ckpt_value *first = ckpt_value_get(grid->slice[0].map->values, "model_states"),
                     *own = ckpt_value_get(grid->slice[i].map->values, "model_states");
    bool same = true;
    int rc = CKPT_OK;

    for (size_t k = 0; rc == CKPT_OK && first && own && k < sizeof key / sizeof *key; k++) {
        rc = ckpt_ds_same(ds, ckpt_value_get(first, key[k]), ckpt_value_get(own, key[k]), &same);
        if (rc == CKPT_OK && !same)
            rc = ckpt_ds_problem(
                ds, CKPT_EMISMATCH,
                "%s: %s of model-parallel rank %02" PRIu32
                " differs from rank 00's: the files were saved at different steps or "
                "by different runs",
                ds->dir.path, key[k], dsg_mp(grid, i));
    }
    // stages hold other parameters, and may cut them into other groups
    if (rc == CKPT_OK)
        rc = ckpt_ds_same_slices(ds, grid->slice[grid->slice[i].stage * grid->tp].map,
                                 grid->slice[i].map, i);
    return rc;
}

/* Ranks and stage are those of the first part. */
static int dsg_same_world(ckpt_ds_grid *grid, const ckpt_ds *part, const ckpt_ds *first)
{
    if (part->world == first->world && part->stage == first->stage)
        return CKPT_OK;
    return ckpt_ds_problem(
        grid->ds, part->world < first->world ? CKPT_EMISSING : CKPT_EMISMATCH,
        "%s: model-parallel rank %02" PRIu32 " has optimizer files of %" PRIu32
        " ranks and ZeRO stage %d, rank 00 of %" PRIu32
        " and stage %d: a process did not save, or files of another run are among "
        "them",
        grid->ds->dir.path, part->dir.mp, part->world, part->stage, first->world, first->stage);
}

/* One part, into a map of its own.  `first` keeps what later parts must agree with. */
static int dsg_read_part(ckpt_ds_grid *grid, uint32_t i, ckpt_ds *first)
{
    ckpt_ds *ds = grid->ds;
    ckpt_ds_slice *slice = &grid->slice[i];
    ckpt_ds part = {.opts = ds->opts, .read = ds->read, .err = ds->err, .pipe = ds->pipe};

    slice->stage = grid->ep ? 0 : i / grid->tp;
    slice->tp = grid->ep ? 0 : i % grid->tp;
    int rc = ckpt_map_new(&slice->map, 0, ds->err);
    if (rc != CKPT_OK)
        return rc;
    part.map = slice->map;
    part.map->collect = ds->map->collect;
    if (grid->ep) {
        part.ep = grid->ep;
        part.ep_rank = i;
        part.optimizer = ds->dir.expps.at[i].path;
    }
    rc = ckpt_ds_folder_slice(ds, dsg_mp(grid, i), slice->tp, &part.dir);
    if (rc == CKPT_OK)
        rc = ckpt_ds_read(&part);
    slice->broken = part.broken;
    if (rc == CKPT_OK && i == 0)
        *first = (ckpt_ds){.world = part.world, .stage = part.stage};
    else if (rc == CKPT_OK)
        rc = dsg_same_world(grid, &part, first);
    ckpt_ds_free(&part);
    return rc == CKPT_OK && i > 0 ? dsg_same_run(grid, i) : rc;
}

/* All parts; pipelines are looked over first. */
static int dsg_read_parts(ckpt_ds_grid *grid)
{
    ckpt_ds *ds = grid->ds, first = {0};
    const char **model = ckpt_alloc(grid->pp * sizeof *model);
    int rc = model ? CKPT_OK : ckpt_fail_memory(ds->err);
    bool all = true;

    for (uint32_t s = 0; rc == CKPT_OK && s < grid->pp; s++) {
        model[s] = dsg_model(&ds->dir, s * grid->tp);
        all = all && model[s];
    }
    // Without a model file of each stage the parts will be found missing.
    if (rc == CKPT_OK && ds->dir.layers.n && all)
        rc = ckpt_ds_pipe_new(&ds->pipe, ds, model, grid->pp);
    ckpt_free(model);
    for (uint32_t i = 0; rc == CKPT_OK && i < grid->n; i++)
        rc = dsg_read_part(grid, i, &first);
    ckpt_ds_pipe_free(ds->pipe);
    ds->pipe = NULL;
    for (uint32_t i = 0; rc == CKPT_OK && i < grid->n; i++)
        ds->broken = ds->broken || grid->slice[i].broken;
    return rc;
}

/* ---- one map of all ---- */

/* The first part's facts, and the arrangement. */
static int dsg_facts(const ckpt_ds_grid *grid)
{
    ckpt_map *map = grid->ds->map, *first = grid->slice[0].map;
    ckpt_err *err = grid->ds->err;
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

/* Values of all ranks side by side; of one rank, as they are. */
static int dsg_values(const ckpt_ds_grid *grid)
{
    ckpt_map *map = grid->ds->map;
    char name[32];

    map->values = grid->slice[0].map->values;
    if (grid->ds->dir.n_mp == 1)
        return CKPT_OK;
    map->values = ckpt_value_new(map->arena, CKPT_V_DICT);
    for (uint32_t i = 0; map->values && i < grid->n; i++) {
        (void)snprintf(name, sizeof name, "mp_rank_%02" PRIu32, i);
        if (grid->slice[i].map->values &&
            !ckpt_dict_add_cstr(map->arena, &map->values->as.map, name, grid->slice[i].map->values))
            return ckpt_fail_memory(grid->ds->err);
    }
    return map->values ? CKPT_OK : ckpt_fail_memory(grid->ds->err);
}

/* Can, and should, slices be joined?  *keep: they stay apart. */
static int dsg_choose(const ckpt_ds_grid *grid, bool *keep)
{
    ckpt_ds *ds = grid->ds;

    *keep = ds->opts->keep_slices && ds->dir.n_mp > 1;
    ds->map->effects |= ds->dir.n_mp > 1 ? CKPT_TOOK_SLICES : 0;
    if (*keep || ds->broken || grid->tp == 1 || ckpt_ds_join_info(grid) || ds->opts->slice_rules)
        return CKPT_OK;
    if (ds->opts->join_first_axis)
        return ckpt_map_note(
            ds->map, CKPT_WARNING, ds->err,
            "%s: no universal_checkpoint_info says how %" PRIu32 " tensor-parallel ranks are "
            "joined: all of their slices are put together along the first axis, as DeepSpeed does; "
            "parameters that each rank has whole, or that are cut along another axis, come out "
            "wrong",
            ds->dir.path, grid->tp);
    *keep = true;
    // Whoever checks a checkpoint can do so without joining anything.
    if (ds->map->collect)
        return ckpt_map_note(ds->map, CKPT_INFO, ds->err,
                             "%s: %" PRIu32
                             " tensor-parallel ranks, and no universal_checkpoint_info "
                             "says how to join them: looked at one by one",
                             ds->dir.path, grid->tp);
    return ckpt_fail(
        ds->err, CKPT_EUNSUPPORTED,
        "%s: %" PRIu32 " tensor-parallel ranks, and the files hold no "
        "universal_checkpoint_info that says how their slices are joined: give it with "
        "--slice-rules FILE (JSON), or take the slices as they are with --keep-slices "
        "(ds_to_universal: --inject_missing_state)",
        ds->dir.path, grid->tp);
}

/* Adopt all parts. */
static int dsg_adopt(ckpt_ds_grid *grid, bool keep)
{
    ckpt_ds *ds = grid->ds;
    char prefix[32];
    int rc = CKPT_OK;

    for (uint32_t i = 0; rc == CKPT_OK && i < grid->n; i++) {
        size_t n = ds->map->states.n;
        (void)snprintf(prefix, sizeof prefix, "mp_rank_%02" PRIu32 "/", i);
        rc = ckpt_map_adopt(ds->map, grid->slice[i].map, keep && !ds->broken ? prefix : NULL,
                            ds->err);
        grid->slice[i].adopted = rc == CKPT_OK;
        for (; rc == CKPT_OK && n < ds->map->states.n; n++)
            ds->map->states.at[n]->mp = i;
    }
    return rc;
}

/* Is file `number` of the map the one at key? */
static bool dsg_same_file(const void *ctx, uint32_t number, const void *key)
{
    const ckpt_map *map = ctx;
    const ckpt_map_file *a = &map->files.at[number], *b = key;

    return strcmp(a->path, b->path) == 0 && a->dev == b->dev && a->ino == b->ino;
}

/* A file that several parts have read is one file. */
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

/* With parts found missing no others are read. */
static int dsg_whole(ckpt_ds_grid *grid)
{
    ckpt_ds *ds = grid->ds;
    const ckpt_ds_parts *expps = &ds->dir.expps;
    int rc = dsg_ranks(ds);

    if (rc == CKPT_OK && !ds->broken)
        rc = dsg_degrees(grid);
    if (rc == CKPT_OK && ds->dir.offloaded && ds->dir.n_mp > 1)
        return ckpt_fail(
            ds->err, CKPT_EUNSUPPORTED,
            "%s: swap files of NVMe offload (offloaded_tensors) of several model-parallel "
            "ranks: which file is whose is not known",
            ds->dir.path);
    if (rc == CKPT_OK && expps->n && (ds->dir.n_mp > 1 || ds->dir.layers.n))
        return ckpt_fail(
            ds->err, CKPT_EUNSUPPORTED,
            "%s: experts without ZeRO on several model-parallel ranks: which optimizer "
            "file is whose is not known",
            ds->dir.path);
    if (rc == CKPT_OK && expps->n && ds->dir.optims.n)
        rc = ckpt_ds_problem(
            ds, CKPT_EMISMATCH,
            "%s: of a run without ZeRO, beside optimizer files of ZeRO such as %s: one "
            "of them was left behind by another run",
            expps->at[0].path, ds->dir.optims.at[0].path);
    for (uint32_t i = 0; rc == CKPT_OK && i < expps->n; i++) {
        if (expps->at[i].rank != i)
            return ckpt_ds_problem(
                ds, CKPT_EMISSING,
                "%s: missing: the optimizer file of expert-parallel rank %" PRIu32
                " (expp_rank_%" PRIu32 "_*): a process did not save, or it was not "
                "copied",
                ds->dir.path, i, i);
    }
    return rc;
}

int ckpt_ds_grid_read(ckpt_ds *ds)
{
    ckpt_ds_grid grid = {.ds = ds, .tp = 1, .pp = 1, .ep = (uint32_t)ds->dir.expps.n};
    bool keep = false;
    int rc = dsg_whole(&grid);

    ds->map->path = ds->dir.path;
    ds->map->format = "deepspeed";
    if (rc != CKPT_OK || ds->broken)
        return rc;
    grid.n = grid.ep ? grid.ep : ds->dir.n_mp;
    grid.slice = ckpt_alloc(grid.n * sizeof *grid.slice);
    if (!grid.slice)
        return ckpt_fail_memory(ds->err);
    rc = dsg_read_parts(&grid);
    if (rc == CKPT_OK)
        rc = dsg_choose(&grid, &keep);
    if (rc == CKPT_OK)
        rc = dsg_adopt(&grid, keep);
    if (rc == CKPT_OK)
        rc = dsg_unite_files(ds->map, ds->err);
    if (rc == CKPT_OK)
        rc = dsg_facts(&grid);
    if (rc == CKPT_OK)
        rc = dsg_values(&grid);
    if (rc == CKPT_OK && !keep && !ds->broken)
        rc = ckpt_ds_join(&grid);
    for (uint32_t i = 0; i < grid.n; i++) {
        if (!grid.slice[i].adopted)
            ckpt_map_free(grid.slice[i].map);
    }
    ckpt_free(grid.slice);
    return rc;
}
