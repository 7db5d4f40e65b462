/* SPDX-License-Identifier: Apache-2.0 */
/*
 * megatron.c: reads Megatron-LM's checkpoints: runs and iterations, and the common.pt next to a
 * distributed checkpoint; write.c writes them.  Also those of Megatron-Bridge, NeMo 2 and
 * Megatron-FSDP.
 *
 * Checked against Megatron-Core 0.16.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "formats/megatron/legacy.h"
#include "formats/megatron/megatron.h"
#include "formats/megatron/write.h"
#include "formats/training/step_folders.h"
#include "libckpt/codec/json/json.h"
#include "libckpt/map/adopt.h"

enum {
    MGC_SURE = 93,  /* an iteration's folder, or a tracker; below DeepSpeed's `latest` */
    MGC_TAGS = 81,  /* score of iterations without a tracker */
    MGC_NEMO = 46,  /* a folder with checkpoints of NeMo 2; above a run of dcp */
    MGC_DONE = 4096 /* limit of metadata.json in bytes */
};

/* ---- runs ---- */

static const ckpt_run_layout mgc_run = {
    .is_tag = ckpt_meg_is_tag,
    .pointer = CKPT_MEG_TRACKER,
    .folder = ckpt_meg_folder,
    .text = ckpt_meg_text,
};

/* NeMo 2 names a checkpoint like "llama--val_loss=2.1-step=9-consumed_samples=80.0-last". */
static bool mgc_nemo_number(char out[CKPT_RUN_NAME], const char *folder)
{
    const char *step = strstr(folder, "step=");
    size_t n = step ? strspn(step + 5, "0123456789") : 0;

    if (n == 0 || n > CKPT_MEG_DIGITS)
        return ckpt_train_number_of(out, folder);
    (void)snprintf(out, CKPT_RUN_NAME, "%.*s", (int)n, step + 5);
    return true;
}

static bool mgc_nemo_done(const ckpt_listing *list)
{
    (void)list;
    return true; // the folder has no sign of it; opening "weights" finds out
}

static const ckpt_run_layout mgc_nemo = {
    .is_tag = ckpt_meg_is_nemo,
    .is_done = mgc_nemo_done,
    .pointer = "",
    .text = mgc_nemo_number,
};

static int mgc_probe(const ckpt_listing *list)
{
    const ckpt_entry *tracker = ckpt_listing_find(list, CKPT_MEG_TRACKER);

    if (ckpt_meg_is_dist(list) || ckpt_meg_is_legacy(list) || ckpt_meg_is_nemo(list) ||
        ckpt_meg_is_fsdp(list))
        return MGC_SURE;
    // Do not rely on a tracker only: Megatron-DeepSpeed writes one next to DeepSpeed's folders.
    for (size_t i = 0; i < list->n; i++) {
        if (list->entry[i].is_dir && ckpt_meg_is_iter(list->entry[i].name))
            return tracker && !tracker->is_dir ? MGC_SURE : MGC_TAGS;
        // the folder is a run of verl, because Megatron's iterations have other names
        if (list->entry[i].is_dir && strncmp(list->entry[i].name, "global_step_", 12) == 0)
            return 0;
    }
    if (tracker && !tracker->is_dir)
        return MGC_TAGS;
    return ckpt_train_is_run(list, &mgc_nemo) ? MGC_NEMO : 0;
}

/* If the path is a run's tracker file, open the run. */
static int mgc_part(const char *file_name)
{
    return strcmp(file_name, CKPT_MEG_TRACKER) == 0 ? 2 : 0;
}

/* ---- completeness ---- */

/* Check metadata.json: the save finished, and its kind is supported. */
static int mgc_done(const ckpt_meg_job *job)
{
    static const char *const known[] = {"torch_dist", "torch_dcp", "fsdp_dtensor"};
    const char *path = ckpt_arena_printf(job->map->arena, "%s/" CKPT_MEG_DONE, job->list->folder);
    const ckpt_value *backend;
    ckpt_value *root = NULL;
    int64_t version = 1;

    if (!path)
        return ckpt_fail_memory(job->err);
    if (!ckpt_listing_find(job->list, CKPT_MEG_DONE))
        return ckpt_fail(job->err, CKPT_EMISSING,
                         "%s: a checkpoint of Megatron-Core without " CKPT_MEG_DONE
                         ", which is written last: the save did not finish",
                         job->list->folder);
    int rc = ckpt_json_read(&root, job->map->arena, path, MGC_DONE, job->err);
    if (rc != CKPT_OK)
        return rc;
    if (ckpt_value_as_int(ckpt_value_get(root, "sharded_backend_version"), &version) &&
        version != 1)
        return ckpt_fail(job->err, CKPT_EUNSUPPORTED,
                         "%s: version %" PRId64 " of the backend, expected version 1, which "
                         "Megatron-Core 0.12 to 0.16 write",
                         path, version);
    backend = ckpt_value_get(root, "sharded_backend");
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        if (ckpt_value_is(backend, known[i]))
            return CKPT_OK;
    }
    if (!backend || backend->kind != CKPT_V_STR)
        return ckpt_fail(job->err, CKPT_EFORMAT,
                         "%s: \"sharded_backend\" is missing or not a string", path);
    return ckpt_fail(job->err, CKPT_EUNSUPPORTED,
                     "%s: a checkpoint of the backend \"%.100s\", which is not read here: load it "
                     "in Megatron and save it with --ckpt-format torch_dist",
                     path, backend->as.text.at);
}

/* ---- common.pt ---- */

/* Adopt common.pt with its tree. */
static int mgc_common(ckpt_meg_job *job)
{
    const char *path = ckpt_arena_printf(job->map->arena, "%s/" CKPT_MEG_COMMON, job->list->folder);
    ckpt_map *common = NULL;
    ckpt_value *empty;
    int rc = path ? CKPT_OK : ckpt_fail_memory(job->err);

    // the weights are whole without it, but no program can resume the run
    if (rc == CKPT_OK && !ckpt_listing_find(job->list, CKPT_MEG_COMMON) && job->map->collect &&
        job->opts->with_optimizer)
        return ckpt_map_problem(job->map, CKPT_EMISSING, job->err,
                                "%s is missing: it holds the groups, iteration and scheduler of "
                                "the run, which cannot be resumed without it; copy it (ckpt "
                                "convert takes the weights)",
                                path);
    if (rc == CKPT_OK && !ckpt_listing_find(job->list, CKPT_MEG_COMMON)) {
        job->root = empty = ckpt_value_new(job->map->arena, CKPT_V_DICT);
        rc = empty ? ckpt_map_note(job->map, CKPT_WARNING, job->err,
                                   "%s is missing: ckpt knows only the tensors of the run", path)
                   : ckpt_fail_memory(job->err);
        return rc == CKPT_OK ? ckpt_meg_trainer(job, empty) : rc;
    }
    if (rc == CKPT_OK)
        rc = job->list->read(&common, path, NULL, job->err);
    if (rc != CKPT_OK)
        return rc;
    if (!common->values || common->values->kind != CKPT_V_DICT)
        rc = ckpt_fail(job->err, CKPT_EFORMAT, "%s: expected a dict, as Megatron-Core saves it",
                       path);
    if (rc == CKPT_OK)
        rc = ckpt_map_adopt(job->map, common, NULL, job->err);
    if (rc != CKPT_OK) {
        ckpt_map_free(common);
        return rc;
    }
    job->common = common;
    job->root = common->values;
    return ckpt_meg_trainer(job, common->values);
}

/* Make the tree of values: common.pt's, then the distributed checkpoint's. */
static int mgc_values(ckpt_meg_job *job)
{
    ckpt_arena *arena = job->map->arena;
    ckpt_value *root = ckpt_value_new(arena, CKPT_V_DICT);
    const ckpt_value *const from[] = {job->root, job->map->values};
    bool ok = root != NULL;

    for (size_t k = 0; k < sizeof from / sizeof *from; k++) {
        ckpt_dict map = ckpt_value_map(from[k]);
        for (uint64_t i = 0; ok && i < map.n; i++)
            ok = ckpt_dict_add(arena, &root->as.map, map.at[i].key, map.at[i].value);
    }
    job->map->values = root;
    return ok ? CKPT_OK : ckpt_fail_memory(job->err);
}

/* ---- the driver ---- */

static int mgc_dist(ckpt_meg_job *job)
{
    int rc = mgc_done(job);

    if (rc == CKPT_OK && !ckpt_listing_find(job->list, CKPT_DCP_METADATA))
        rc = ckpt_fail(job->err, CKPT_EMISSING,
                       "%s: " CKPT_DCP_METADATA
                       " is missing, and no other file says where the tensors are",
                       job->list->folder);
    if (rc == CKPT_OK)
        rc = ckpt_dcp_read(job->map, job->list, job->opts, ckpt_meg_roles, job->err);
    if (rc == CKPT_OK)
        rc = ckpt_meg_twins(job->map, job->err);
    if (rc == CKPT_OK)
        rc = mgc_common(job);
    if (rc == CKPT_OK)
        rc = ckpt_meg_facts(job, "Megatron-Core torch_dist");
    if (rc == CKPT_OK)
        rc = mgc_values(job);
    return rc == CKPT_OK && job->opts->with_optimizer ? ckpt_meg_dist_state(job) : rc;
}

static int mgc_gather(ckpt_map *map, const ckpt_listing *list, const ckpt_open_opts *opts,
                      ckpt_err *err)
{
    ckpt_listing at = *list;
    ckpt_open_opts own = *opts;
    ckpt_meg_job job = {.map = map, .list = &at, .opts = &own, .err = err};
    int rc = CKPT_OK;

    if (!ckpt_meg_is_nemo(list) && ckpt_train_is_run(list, &mgc_nemo)) {
        rc = ckpt_train_find_step(map, &at, &mgc_nemo, opts->tag, err);
        own.tag = NULL;
    }
    own.outline = false; // layers and experts are cut out of the tensors' extents
    if (rc == CKPT_OK)
        rc = ckpt_meg_find(map, &at, job.opts, err);
    if (rc != CKPT_OK)
        return rc;
    map->path = at.folder;
    map->known.training = true;
    if (ckpt_meg_is_fsdp(&at)) {
        rc = ckpt_dcp_read(map, &at, job.opts, ckpt_meg_fsdp_roles, err);
        return rc == CKPT_OK ? ckpt_meg_fsdp(&job) : rc;
    }
    return ckpt_meg_is_dist(&at) ? mgc_dist(&job) : ckpt_meg_legacy(&job);
}

static const ckpt_run_layout *const mgc_runs[] = {&mgc_run, &mgc_nemo, NULL};

const ckpt_directory ckpt_directory_megatron = {
    .is =
        {
            .name = "megatron",
            .aliases = "mcore torch_dist",
            .signs = CKPT_MEG_TRACKER " (Megatron-LM)",
            .note = "Megatron-LM runs and iterations: torch_dist, and a torch file for each rank",
            .caps = CKPT_CAN_READ | CKPT_CAN_WRITE | CKPT_WRITES_STATE | CKPT_HAS_TAGS |
                    CKPT_READS_STATE | CKPT_IS_FOLDER | CKPT_TAKES_SHARD_SIZE | CKPT_TAKES_WORLD |
                    CKPT_TAKES_WEIGHTS,
            .layout = "torch_dist",
        },
    .probe = mgc_probe,
    .gather = mgc_gather,
    .scatter = ckpt_meg_scatter,
    .part = mgc_part,
    .runs = mgc_runs,
};

/* --to selects this driver by name; the driver above reads its files. */
static int mgc_probe_none(const ckpt_listing *list)
{
    (void)list;
    return 0;
}

const ckpt_directory ckpt_directory_megatron_legacy = {
    .is =
        {
            .name = "megatron-legacy",
            .aliases = "mp_rank",
            .note = "weights with a torch file for each rank of Megatron-LM or NeMo 1",
            .caps = CKPT_CAN_WRITE | CKPT_IS_FOLDER | CKPT_TAKES_GRID | CKPT_TAKES_LAYOUT,
            .layout = "mp_rank",
        },
    .probe = mgc_probe_none,
    .gather = mgc_gather,
    .scatter = ckpt_meg_scatter_ranks,
};
