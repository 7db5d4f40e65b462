/* SPDX-License-Identifier: Apache-2.0 */
/*
 * deepspeed.c: reads directories of DeepSpeed ZeRO checkpoints (the directory driver).
 *
 * For one model-parallel rank with n data-parallel ranks a tag folder has
 *     mp_rank_00_model_states.pt                         the model (stages 0 to 2)
 *     zero_pp_rank_{0..n-1}_mp_rank_00_model_states.pt   the model (stage 3: buffers, fragments)
 *     [bf16_]zero_pp_rank_{0..n-1}_mp_rank_00_optim_states.pt  masters and optimizer state
 * These folders read it; each passes a small value to the next, which does not change it:
 *     folder/  lists the files of a tag folder by rank                   ckpt_ds_folder
 *     shard/   reads one file: its tree, its flat tensors                ckpt_ds_shard
 *     layout/  reads rank 0's two files (ckpt_ds_head), groups, parameters
 *              and flat tensors; maps stages 1 to 3 to extents           ckpt_ds_layout
 *     module/  reads the model's state_dict, with layer and expert files ckpt_ds_module
 *     stage0/  reads masters and moments that are not partitioned
 *     join/    combines these for a model-parallel rank, then the ranks in one map
 *     write/   writes such a folder
 * A ckpt_ds_job has the output map and the options. Several model-parallel ranks, pipeline stages
 * and experts without ZeRO are each read separately, and grid.c joins the results. Checked against
 * DeepSpeed 0.3.16, 0.5.10, 0.6.5, 0.7.7, 0.9.5, 0.12.6 and 0.19.8.
 */
#include <stdio.h>
#include <string.h>

#include "formats/deepspeed/join/grid.h"
#include "formats/deepspeed/join/slice.h"
#include "formats/training/deepspeed_names.h"

enum {
    DS_SURE = 95,       /* the folder has `latest` or shards */
    DS_TAGS = 80,       /* no `latest`, but tags: above a model folder, so the user picks a tag */
    DS_MAYBE = 40,      /* the folder has a checkpoint-N */
    DS_MAX_LOOKED = 256 /* limit of sub-folders that a probe opens */
};

/* ---- probing ---- */

/* Returns whether a sub-folder has shards, because tags may have any name where `latest` is
 * absent. */
static bool ds_has_tags(const ckpt_listing *list)
{
    bool found = false;
    unsigned looked = 0;

    for (size_t i = 0; !found && i < list->n && looked < DS_MAX_LOOKED; i++) {
        ckpt_listing sub;
        if (!list->entry[i].is_dir)
            continue;
        looked++;
        const char *path =
            ckpt_arena_printf(list->map->arena, "%s/%s", list->folder, list->entry[i].name);
        if (!path || ckpt_listing_read(&sub, list->map, path, NULL) != CKPT_OK)
            continue;
        for (size_t k = 0; !found && k < sub.n; k++)
            found = !sub.entry[k].is_dir && ckpt_ds_name_is_shard(sub.entry[k].name);
    }
    return found;
}

/*
 * Scores `latest` and shard names highest, then tag folders, then folders that may hold runs.
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

/* A single shard selects its whole folder only when the caller asks for the whole checkpoint. */
static int ds_part(const char *file_name)
{
    if (strcmp(file_name, "latest") == 0)
        return 2;
    return ckpt_ds_name_is_shard(file_name) ? 1 : 0;
}

/* ---- reading ---- */

/*
 * Adds each layer and expert file as one source that covers the whole file, so that a writer can
 * copy it: these files do not depend on the data-parallel ranks.
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

/* Finds and reads the files of a tag; weights_only skips optimizer files. */
static int ds_read(ckpt_ds_job *job, const ckpt_listing *list)
{
    ckpt_ds_folder dir = {0};
    ckpt_ds_run run = {0};
    int rc = ckpt_ds_folder_find(job, &dir, list);

    if (job->opts->weights_only)
        dir.optims.n = dir.expps.n = 0;
    if (rc == CKPT_OK)
        rc = ckpt_ds_grid_needed(&dir) ? ckpt_ds_grid_read(job, &dir)
                                       : ckpt_ds_read(job, &dir, NULL, &run);
    ckpt_ds_folder_free(&dir);
    return rc;
}

/* Tries to read the weights without the optimizer files, and returns whether they are complete. */
static bool ds_weights_whole(const ckpt_ds_job *job, const ckpt_listing *list)
{
    ckpt_open_opts opts = *job->opts;
    ckpt_err local = {0};
    ckpt_ds_job again = {.opts = &opts, .read = job->read, .err = &local};
    bool whole = false;

    opts.weights_only = true;
    opts.with_optimizer = opts.collect = false;
    if (ckpt_map_create(&again.map, 0, &local) != CKPT_OK)
        return false;
    again.map->path = list->folder;
    whole = ds_read(&again, list) == CKPT_OK && again.map->tensors.n > 0;
    ckpt_map_free(again.map);
    return whole;
}

/* When files are missing, offers weights_only if the weights themselves are complete. */
static int ds_offer_weights(ckpt_ds_job *job, const ckpt_listing *list, int rc)
{
    static const char offer[] =
        "if optimizer files are lost, ckpt convert --weights-only reads the "
        "weights from mp_rank_*_model_states.pt, in the run's dtype";
    bool missing = rc == CKPT_EMISSING;

    for (size_t i = 0; rc == CKPT_OK && job->broken && i < job->map->findings.n; i++)
        missing |= job->map->findings.at[i].code == CKPT_EMISSING;
    if (!missing || job->opts->weights_only || !ds_weights_whole(job, list))
        return rc;
    if (rc == CKPT_OK)
        return ckpt_map_note(job->map, CKPT_INFO, job->err, "%s: %s", job->map->path, offer);
    size_t n = strlen(job->err->text);
    (void)snprintf(job->err->text + n, sizeof job->err->text - n, "; %s", offer);
    return rc;
}

/*
 * Entry of the driver. When the caller collects findings (verify), inconsistencies become findings
 * and the gather continues as far as it is safe, so a map without tensors is a valid result.
 */
static int ds_gather(ckpt_map *map, const ckpt_listing *list, const ckpt_open_opts *opts,
                     ckpt_err *err)
{
    static const ckpt_open_opts defaults = {0};
    ckpt_ds_job job = {.map = map, .opts = opts ? opts : &defaults, .read = list->read, .err = err};
    int rc = ds_read(&job, list);

    if (rc == CKPT_OK && job.opts->weights_only)
        rc = ckpt_map_fact(map, err, "weights", "of the model files alone, in the run's dtype");
    rc = ds_offer_weights(&job, list, rc);
    if (rc == CKPT_OK && job.opts->with_optimizer)
        rc = ds_whole_files(map, err);
    return rc;
}

const ckpt_directory ckpt_directory_deepspeed = {
    .is =
        {
            .name = "deepspeed",
            .signs = "'latest' or *_states.pt (DeepSpeed)",
            .note = "ZeRO stages 0 to 3 of DeepSpeed 0.3.14 to 0.19.8, data, tensor, pipeline and "
                    "expert "
                    "parallel; reads run, tag and HF Trainer folders",
            .caps = CKPT_CAN_READ | CKPT_HAS_TAGS | CKPT_READS_STATE | CKPT_IS_FOLDER,
        },
    .probe = ds_probe,
    .gather = ds_gather,
    .part = ds_part,
};
