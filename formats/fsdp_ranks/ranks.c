/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ranks.c: reads folders of per-rank FSDP files.
 *
 * Opening reads the pickles of all ranks, one file at a time; only the first rank's values stay in
 * memory.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/fsdp_ranks/ranks.h"
#include "formats/training/step_folders.h"

typedef struct rdr_reader {
    ckpt_ranks_run run;
    const ckpt_listing *list;
    uint32_t n[CKPT_RANKS_KINDS]; /* number of files of each kind */
    bool named;                   /* file names have the world size */
} rdr_reader;

/* ---- which folders ---- */

/* True if every rank has a model file, and for the other kinds all ranks or none have a file. */
static bool rdr_done(const ckpt_listing *list)
{
    uint32_t world = 0, most = 0, n[CKPT_RANKS_KINDS] = {0};
    bool done = true;

    for (size_t i = 0; i < list->n; i++) {
        ckpt_ranks_file_name name;
        if (list->entry[i].is_dir || !ckpt_ranks_name_parse(list->entry[i].name, &name))
            continue;
        world = name.world > world ? name.world : world;
        most = name.rank > most ? name.rank : most;
        n[name.kind]++;
    }
    world = world ? world : most + 1;
    for (size_t k = 0; k < CKPT_RANKS_KINDS; k++)
        done = done && (n[k] == world || (n[k] == 0 && k != CKPT_RANKS_MODEL));
    return done;
}

/* No file names the checkpoint to resume from, so the newest finished one is used. */
static const ckpt_run_layout rdr_run = {
    .is_tag = ckpt_ranks_is_one,
    .is_done = rdr_done,
    .pointer = "",
    .text = ckpt_train_number_of,
};

/* Score runs low, because other programs name steps in the same way and their drivers know
 * better. */
static int rdr_probe(const ckpt_listing *list)
{
    int sure = ckpt_ranks_sure(list);

    if (!sure && (ckpt_ranks_is_run(list) || ckpt_ranks_is_step(list)))
        return 40;
    return sure ? sure : ckpt_train_is_run(list, &rdr_run) ? 39 : 0;
}

/* ---- files ---- */

/* Count the files; all must have the same world size and a rank below it. */
static int rdr_count(rdr_reader *r)
{
    bool first = true;
    uint32_t most = 0;

    for (size_t i = 0; i < r->list->n; i++) {
        ckpt_ranks_file_name name;
        if (r->list->entry[i].is_dir || !ckpt_ranks_name_parse(r->list->entry[i].name, &name))
            continue;
        if (!first && name.world != r->run.world)
            return ckpt_fail(r->run.err, CKPT_EMISMATCH,
                             "%s: holds files of several saves, of %" PRIu32 " and of %" PRIu32
                             " ranks: remove the files of one save",
                             r->list->folder, r->run.world, name.world);
        if (name.world && name.rank >= name.world)
            return ckpt_fail(r->run.err, CKPT_EMISMATCH,
                             "%s/%s: its rank is not below the world size %" PRIu32,
                             r->list->folder, r->list->entry[i].name, name.world);
        first = false;
        r->run.world = name.world;
        most = name.rank > most ? name.rank : most;
        r->n[name.kind]++;
    }
    r->named = r->run.world != 0;
    if (!r->named)
        r->run.world = most + 1;
    return r->run.world <= CKPT_RANKS_MAX
               ? CKPT_OK
               : ckpt_fail(r->run.err, CKPT_ELIMIT,
                           "%s: %" PRIu32 " ranks are too many: at most %d are supported",
                           r->list->folder, r->run.world, CKPT_RANKS_MAX);
}

/* The name of a rank's file; NULL: no memory. */
static const char *rdr_file_name(rdr_reader *r, ckpt_ranks_file_kind kind, uint32_t rank)
{
    return r->named ? ckpt_arena_printf(r->run.map->arena,
                                        "%s_world_size_%" PRIu32 "_rank_%" PRIu32 ".pt",
                                        ckpt_ranks_file_kinds[kind], r->run.world, rank)
                    : ckpt_arena_printf(r->run.map->arena, "%s_rank_%" PRIu32 ".pt",
                                        ckpt_ranks_file_kinds[kind], rank);
}

/* Check that all ranks have the file, or none: the optimizer is optional, the model is not. */
static int rdr_complete(rdr_reader *r, ckpt_ranks_file_kind kind)
{
    if (r->n[kind] == r->run.world || (r->n[kind] == 0 && kind != CKPT_RANKS_MODEL))
        return CKPT_OK;
    for (uint32_t rank = 0; rank < r->run.world; rank++) {
        const char *name = rdr_file_name(r, kind, rank);
        if (!name)
            return ckpt_fail_memory(r->run.err);
        if (!ckpt_listing_find(r->list, name))
            return ckpt_fail(
                r->run.err, CKPT_EMISSING,
                "%s: %s is missing: %" PRIu32 " of the %s files of %" PRIu32 " ranks are here",
                r->list->folder, name, r->n[kind], ckpt_ranks_file_kinds[kind], r->run.world);
    }
    return CKPT_OK;
}

/* Read all ranks' files of a kind. */
static int rdr_files(rdr_reader *r, ckpt_ranks_file_kind kind, ckpt_ranks_take *take)
{
    int rc = rdr_complete(r, kind);

    for (uint32_t rank = 0; rc == CKPT_OK && r->n[kind] > 0 && rank < r->run.world; rank++) {
        const char *name = rdr_file_name(r, kind, rank);
        rc = name ? ckpt_ranks_read(&r->run, name, kind, rank, take) : ckpt_fail_memory(r->run.err);
    }
    return rc;
}

/* ---- the driver ---- */

static int rdr_read(rdr_reader *r)
{
    int rc = rdr_count(r);

    if (rc == CKPT_OK)
        rc = rdr_files(r, CKPT_RANKS_MODEL, ckpt_ranks_take_model);
    if (rc == CKPT_OK)
        rc = rdr_files(r, CKPT_RANKS_EXTRA, ckpt_ranks_take_extra);
    if (rc == CKPT_OK && r->run.with_optimizer)
        rc = rdr_files(r, CKPT_RANKS_OPTIM, ckpt_ranks_take_optim);
    return rc == CKPT_OK ? ckpt_ranks_finish(&r->run) : rc;
}

/*
 * Check that all files belong to one save.  Only the optimizer files show it, by their groups and
 * by the ranks' step counts, so they are read into a separate map even if only weights are wanted.
 * Other errors in them do not affect the weights.
 */
static int rdr_same_save(rdr_reader *r)
{
    ckpt_err local = {0};
    ckpt_map *map = NULL;
    int rc = ckpt_map_create(&map, 0, r->run.err);

    if (rc != CKPT_OK)
        return rc;
    map->path = r->run.map->path;
    rdr_reader again = {
        .run = {.map = map, .path = r->run.path, .with_optimizer = true, .err = &local},
        .list = r->list};
    int found = rdr_read(&again);
    if (found == CKPT_EMISMATCH)
        rc = ckpt_map_problem(r->run.map, found, r->run.err, "%s", local.text);
    else if (found != CKPT_OK)
        rc = ckpt_map_note(
            r->run.map, CKPT_WARNING, r->run.err,
            "%s; without the optimizer's files, ckpt cannot check that all files of the "
            "model are from one save",
            local.text);
    ckpt_ranks_run_free(&again.run);
    ckpt_map_free(map);
    return rc;
}

static int rdr_gather(ckpt_map *map, const ckpt_listing *list, const ckpt_open_opts *opts,
                      ckpt_err *err)
{
    ckpt_listing at = *list;
    bool other = !ckpt_ranks_is_run(list) && !ckpt_ranks_is_step(list);
    int rc = other ? ckpt_train_find_step(map, &at, &rdr_run, opts->tag, err)
                   : ckpt_ranks_descend(map, &at, opts->tag, err);

    if (rc != CKPT_OK)
        return rc;
    rdr_reader r = {.run = {.map = map,
                            .path = at.folder,
                            .with_optimizer = opts->with_optimizer,
                            .ignore_copies = opts->ignore_copies,
                            .order = opts->order_text,
                            .err = err},
                    .list = &at};
    rc = rdr_read(&r);
    if (rc == CKPT_OK && !opts->with_optimizer && r.n[CKPT_RANKS_OPTIM] > 0)
        rc = rdr_same_save(&r);

    ckpt_ranks_run_free(&r.run);
    return rc;
}

static const ckpt_run_layout *const rdr_runs[] = {&rdr_run, &ckpt_ranks_skyrl, &ckpt_ranks_verl,
                                                  NULL};

/* A single rank's file is incomplete, so its folder is opened. */
static int rdr_part(const char *file_name)
{
    ckpt_ranks_file_name name;

    return ckpt_ranks_name_parse(file_name, &name) && name.world ? 1 : 0;
}

const ckpt_directory ckpt_directory_fsdp_ranks = {
    .is =
        {
            .name = "fsdp-ranks",
            .aliases = "verl skyrl",
            .signs = "model_world_size_*_rank_*.pt (FSDP)",
            .note = "FSDP's files of each rank, as verl and SkyRL keep them, torch 2.2 to 2.15",
            .caps = CKPT_CAN_READ | CKPT_CAN_WRITE | CKPT_WRITES_STATE | CKPT_IS_FOLDER |
                    CKPT_READS_STATE | CKPT_TAKES_WORLD | CKPT_HAS_TAGS | CKPT_TAKES_WEIGHTS,
        },
    .probe = rdr_probe,
    .gather = rdr_gather,
    .scatter = ckpt_ranks_scatter,
    .part = rdr_part,
    .runs = rdr_runs,
};
