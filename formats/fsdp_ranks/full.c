/* SPDX-License-Identifier: Apache-2.0 */
/*
 * full.c: reads unsharded dicts of a model and its optimizer, as torch.save writes them for a
 * FULL_STATE_DICT, for DDP or for a single process.
 *
 *     pytorch_model_fsdp.bin, optimizer.bin    accelerate and the Trainer of transformers, with
 *     scheduler.bin or scheduler.pt            their schedule
 *     model.safetensors, optimizer.pt          the same for one process or DDP (beside.c)
 *     X.pt, X.ckpt                             one file: {"model": ..., "optimizer": ...}, also
 *                                              Lightning's {state_dict, optimizer_states}
 *
 * A single such file without an optimizer is read as an ordinary torch file; here the files make a
 * run.
 */
#include <string.h>

#include "formats/fsdp_ranks/ranks.h"
#include "formats/training/run_files.h"
#include "formats/training/step_folders.h"
#include "libckpt/map/state.h"
#include "libckpt/map/whole.h"

#define RFU_MODEL "pytorch_model_fsdp.bin"
#define RFU_OPTIM "optimizer.bin"
#define RFU_COPY  "model.safetensors"

/* ---- recognizing the files ---- */

static bool rfu_ends(const char *name, const char *suffix)
{
    size_t n = strlen(name), m = strlen(suffix);

    return n > m && strcmp(name + n - m, suffix) == 0;
}

/* True for the name of a file that may hold a whole run. */
static bool rfu_single(const char *name)
{
    return rfu_ends(name, ".pt") || rfu_ends(name, ".pth") || rfu_ends(name, ".ckpt") ||
           rfu_ends(name, ".bin") || rfu_ends(name, ".tar");
}

/* The only file of a folder if it is one of these; else NULL. */
static const char *rfu_alone(const ckpt_listing *list)
{
    const ckpt_entry *e = list->n == 1 ? &list->entry[0] : NULL;

    return e && !e->is_dir && rfu_single(e->name) ? e->name : NULL;
}

/*
 * True for a folder with a model's file. No file marks a finished save, so missing files are found
 * only when they are opened.
 */
static bool rfu_is_one(const ckpt_listing *list)
{
    return ckpt_listing_has(list, RFU_MODEL, false);
}

static const ckpt_run_layout rfu_run = {
    .is_tag = rfu_is_one,
    .is_done = rfu_is_one,
    .pointer = "",
    .text = ckpt_train_number_of,
};

/* Score above a model folder, because the Trainer writes model.safetensors next to these files. */
static int rfu_probe(const ckpt_listing *list)
{
    if (ckpt_listing_has(list, RFU_MODEL, false))
        return ckpt_listing_has(list, RFU_OPTIM, false) || ckpt_train_file_of_run(list) ? 72 : 20;
    if (rfu_alone(list))
        return 10;
    return ckpt_train_is_run(list, &rfu_run) ? 38 : 0;
}

/* ---- one file ---- */

/* True for a file with an optimizer: it belongs to a run, even if its other content is unknown. */
static bool rfu_holds(const ckpt_value *values)
{
    ckpt_arena *arena = ckpt_arena_new(0);
    ckpt_whole whole = {0};
    // the cast is safe, because the walk resets its marks
    bool has = arena &&
               ckpt_whole_of(&whole, (ckpt_value *)(uintptr_t)values, arena, NULL) == CKPT_OK &&
               whole.n_optimizers > 0;

    ckpt_whole_free(&whole);
    ckpt_arena_free(arena);
    return has;
}

enum { RFU_DEPTH = 6 }; /* ckpt_whole_of finds models and optimizers in up to 6 nested containers */

/*
 * True for the model or an optimizer that this run uses, and for containers that hold nothing else.
 */
static bool rfu_is_taken(const ckpt_whole *whole, const ckpt_value *v, unsigned depth)
{
    ckpt_dict map = ckpt_value_map(v);
    ckpt_seq seq = ckpt_value_seq(v);
    uint64_t n = map.n + seq.n;

    for (size_t i = 0; i < whole->part.n; i++) {
        if (whole->part.at[i].value == v)
            return whole->part.at[i].kind == CKPT_WHOLE_OPTIMIZER || i == whole->model;
    }
    // e.g. {"optimizer": {"optimizer": ...}}, [optimizer]
    return n == 1 && depth > 0 &&
           rfu_is_taken(whole, map.n ? map.at[0].value : seq.at[0], depth - 1);
}

/* True if the model or an optimizer is nested below this path. */
static bool rfu_leads(const ckpt_whole *whole, const char *path)
{
    size_t n = strlen(path);

    for (size_t i = 0; i < whole->part.n; i++) {
        if (strncmp(whole->part.at[i].path, path, n) == 0 && whole->part.at[i].path[n] == '.')
            return true;
    }
    return false;
}

/*
 * Copy the members of a dict that are neither model nor optimizer. A dict above one of them is
 * copied without it.
 */
static bool rfu_rest(ckpt_arena *arena, const ckpt_whole *whole, const ckpt_value *from,
                     const char *path, ckpt_value *to)
{
    ckpt_dict all = ckpt_value_map(from);
    const ckpt_whole_part *model = &whole->part.at[whole->model];
    bool ok = true;

    for (uint64_t i = 0; ok && i < all.n; i++) {
        ckpt_value *key = all.at[i].key, *v = all.at[i].value;
        const char *name = key->kind == CKPT_V_STR ? key->as.text.at : "";
        const char *below = ckpt_arena_printf(arena, "%s%s%s", path, *path ? "." : "", name);
        if (!below || rfu_is_taken(whole, v, RFU_DEPTH) ||
            (model->direct && ckpt_whole_below(model, below) != SIZE_MAX)) {
            ok = below != NULL;
            continue;
        }
        if (v->kind == CKPT_V_DICT && *name && rfu_leads(whole, below)) {
            ckpt_value *copy = ckpt_value_new(arena, CKPT_V_DICT);
            ok = copy && rfu_rest(arena, whole, v, below, copy);
            v = copy;
            if (ok && copy->as.map.n == 0)
                continue;
        }
        ok = ok && ckpt_dict_add(arena, &to->as.map, key, v);
    }
    return ok;
}

/*
 * Rename the average in a file of Lightning's WeightAveraging, because `state_dict` is the trained
 * model in other files.
 */
static bool rfu_rename(ckpt_arena *arena, const ckpt_whole *whole, ckpt_value *rest)
{
    ckpt_dict all = ckpt_value_map(rest);
    bool ok = true;

    if (strcmp(whole->part.at[whole->model].path, CKPT_RANKS_AVERAGED) != 0)
        return true;
    for (uint64_t i = 0; ok && i < all.n; i++) {
        if (ckpt_value_is(all.at[i].key, "state_dict"))
            ok = (all.at[i].key = ckpt_value_cstr(arena, "averaged_state_dict")) != NULL;
    }
    return ok;
}

/* Divide a file into its model, its optimizer, and other values. */
static int rfu_members(ckpt_ranks_run *r, const ckpt_ranks_file *file, const ckpt_whole *whole,
                       ckpt_value *root)
{
    ckpt_value *rest = ckpt_value_new(r->map->arena, CKPT_V_DICT), *model, *optim = NULL;
    bool ok = rest && rfu_rest(r->map->arena, whole, root, "", rest) &&
              rfu_rename(r->map->arena, whole, rest) && ckpt_train_lightning(r->map->arena, rest);

    model = whole->part.at[whole->model].value;
    for (size_t i = 0; i < whole->part.n; i++)
        optim = whole->part.at[i].kind == CKPT_WHOLE_OPTIMIZER ? whole->part.at[i].value : optim;
    if (!ok)
        return ckpt_fail_memory(r->err);
    r->root[CKPT_RANKS_MODEL] = model;
    r->root[CKPT_RANKS_OPTIM] = r->with_optimizer ? optim : NULL;
    r->root[CKPT_RANKS_EXTRA] = rest;
    int rc = ckpt_ranks_take_model(r, file, model);
    return rc == CKPT_OK && r->with_optimizer ? ckpt_ranks_take_optim(r, file, optim) : rc;
}

/* Take a single file.  Copies of the model stay values of the run. Several models or optimizers are
 * refused, because the user's intention is unknown. */
static int rfu_take(ckpt_ranks_run *r, const ckpt_ranks_file *file, ckpt_value *root)
{
    ckpt_whole whole = {0};
    int rc = ckpt_whole_of(&whole, root, r->map->arena, r->err);

    if (rc == CKPT_OK &&
        (whole.n_optimizers != 1 || whole.model == SIZE_MAX || whole.n_models != 1)) {
        const char *text = ckpt_whole_text(&whole, r->map->arena);
        rc = text ? ckpt_fail(r->err, CKPT_EUNSUPPORTED,
                              "%s: holds %s: the state of a run must be one model and its one "
                              "optimizer; ckpt convert takes a model alone",
                              file->where.file, *text ? text : "neither a model nor an optimizer")
                  : ckpt_fail_memory(r->err);
    }
    if (rc == CKPT_OK)
        rc = ckpt_ranks_trained(r->map, &whole, root, file->where.file, r->err);
    if (rc == CKPT_OK)
        rc = rfu_members(r, file, &whole, root);
    ckpt_whole_free(&whole);
    return rc;
}

/* ---- several files ---- */

/* Make a scheduler's dict a value of the run. */
static int rfu_take_schedule(ckpt_ranks_run *r, const ckpt_ranks_file *file, ckpt_value *root)
{
    ckpt_value *rest = ckpt_value_new(r->map->arena, CKPT_V_DICT);

    (void)file;
    if (!rest || !ckpt_dict_add_cstr(r->map->arena, &rest->as.map, "lr_scheduler", root))
        return ckpt_fail_memory(r->err);
    r->root[CKPT_RANKS_EXTRA] = rest;
    return CKPT_OK;
}

/* Check that the Trainer's second copy of the weights, for other loaders, can be read. */
static int rfu_look(ckpt_ranks_run *r, const ckpt_listing *list)
{
    const char *path = ckpt_path_join(r->map->arena, list->folder, RFU_COPY);
    ckpt_err local = {0};
    ckpt_map *sub = NULL;

    if (!path)
        return ckpt_fail_memory(r->err);
    int rc = list->read(&sub, path, NULL, &local);
    ckpt_map_free(sub);
    return rc == CKPT_OK ? CKPT_OK
                         : ckpt_map_note(r->map, CKPT_WARNING, r->err,
                                         "%s; the run is also in " RFU_MODEL, local.text);
}

static int rfu_several(ckpt_ranks_run *r, const ckpt_listing *list, const ckpt_open_opts *opts)
{
    const char *schedule = ckpt_train_schedule(list);
    bool optimizer = ckpt_listing_has(list, RFU_OPTIM, false);
    int rc = ckpt_ranks_read(r, RFU_MODEL, CKPT_RANKS_MODEL, 0, ckpt_ranks_take_model);

    if (rc == CKPT_OK)
        rc = ckpt_train_further_models(r->map, list, opts->training, r->err);
    if (rc == CKPT_OK && r->map->collect && ckpt_listing_has(list, RFU_COPY, false))
        rc = rfu_look(r, list);
    if (rc == CKPT_OK && !optimizer)
        rc = ckpt_train_no_optimizer(r->map, list, RFU_OPTIM, opts, r->err);
    if (rc == CKPT_OK && r->with_optimizer && optimizer)
        rc = ckpt_ranks_read(r, RFU_OPTIM, CKPT_RANKS_OPTIM, 0, ckpt_ranks_take_optim);
    if (rc == CKPT_OK && schedule)
        rc = ckpt_ranks_read(r, schedule, CKPT_RANKS_EXTRA, 0, rfu_take_schedule);
    return rc == CKPT_OK ? ckpt_train_files_left(r->map, list, r->err) : rc;
}

/* ---- the driver ---- */

static ckpt_ranks_run rfu_begin(ckpt_map *map, const char *folder, const ckpt_open_opts *opts,
                                ckpt_err *err)
{
    return (ckpt_ranks_run){.map = map,
                            .path = folder,
                            .world = 1,
                            .with_optimizer = opts->with_optimizer,
                            .ignore_copies = opts->ignore_copies,
                            .order = opts->order_text,
                            .err = err};
}

/* Make the run of several files, and compare it with the other files of the folder. */
static int rfu_finish(ckpt_ranks_run *r, const ckpt_listing *list)
{
    int rc = ckpt_ranks_finish(r);

    if (rc == CKPT_OK)
        rc = ckpt_train_no_schedule(r->map, list, r->err);
    return rc == CKPT_OK ? ckpt_train_trainer_steps(r->map, list, r->err) : rc;
}

static int rfu_gather(ckpt_map *map, const ckpt_listing *list, const ckpt_open_opts *opts,
                      ckpt_err *err)
{
    ckpt_listing at = *list;
    const char *one = list->part ? list->part : rfu_alone(list);
    int rc = one ? CKPT_OK : ckpt_train_find_step(map, &at, &rfu_run, opts->tag, err);
    ckpt_ranks_run r = rfu_begin(map, at.folder, opts, err);

    if (rc == CKPT_OK)
        rc = one ? ckpt_ranks_read(&r, one, CKPT_RANKS_MODEL, 0, rfu_take)
                 : rfu_several(&r, &at, opts);
    if (rc == CKPT_OK)
        rc = one ? ckpt_ranks_finish(&r) : rfu_finish(&r, &at);
    ckpt_ranks_run_free(&r);
    return rc;
}

/*
 * Warn about 16-bit weights with fp32 moments: torch makes moments of the parameters' dtype, so the
 * weights were probably rounded after the save.
 */
static int rfu_rounded(ckpt_map *map, ckpt_err *err)
{
    const ckpt_state *state = map->states.n ? map->states.at[0] : NULL;
    const char *first = NULL;
    size_t n = 0;

    for (size_t i = 0; state && i < state->param.n; i++) {
        const ckpt_tensor *t = state->param.at[i];
        const char *name = ckpt_arena_printf(map->arena, "exp_avg/%s", t->name);
        size_t at = name ? ckpt_map_index(map, name, strlen(name)) : SIZE_MAX;
        if (!name)
            return ckpt_fail_memory(err);
        if (at == SIZE_MAX || map->tensors.at[at]->dtype != CKPT_F32 ||
            (t->dtype != CKPT_BF16 && t->dtype != CKPT_F16))
            continue;
        first = n++ == 0 ? t->name : first;
    }
    return n == 0 ? CKPT_OK
                  : ckpt_map_note(map, CKPT_WARNING, err,
                                  "%s: %.200s and %zu more parameters have 16 bits, but their "
                                  "moments are F32: the weights may have been rounded after the "
                                  "save; if so, the exact fp32 weights are not in this folder",
                                  map->path, first, n - 1);
}

/* ckpt_directory.gather_run: a model folder with an optimizer beside the weights. */
static int rfu_gather_run(ckpt_map *map, ckpt_map *weights, const ckpt_listing *list,
                          const ckpt_open_opts *opts, ckpt_err *err)
{
    const char *schedule = ckpt_train_schedule(list);
    ckpt_ranks_run r = rfu_begin(map, list->folder, opts, err);
    int rc = ckpt_ranks_read_beside(&r, weights, list);

    if (rc == CKPT_OK && schedule)
        rc = ckpt_ranks_read(&r, schedule, CKPT_RANKS_EXTRA, 0, rfu_take_schedule);
    if (rc == CKPT_OK)
        rc = ckpt_train_files_left(map, list, err);
    if (rc == CKPT_OK)
        rc = rfu_finish(&r, list);
    if (rc == CKPT_OK)
        rc = rfu_rounded(map, err);
    ckpt_ranks_run_free(&r);
    return rc;
}

static const ckpt_run_layout *const rfu_runs[] = {&rfu_run, NULL};

const ckpt_directory ckpt_directory_full_state = {
    .is =
        {
            .name = "full-state",
            .aliases = "fsdp-full",
            .signs = RFU_MODEL " (accelerate)",
            .note = "whole dicts of a model and its optimizer: accelerate, Trainer, Lightning, "
                    "torch.save",
            .caps = CKPT_CAN_READ | CKPT_IS_FOLDER | CKPT_READS_STATE,
        },
    .probe = rfu_probe,
    .gather = rfu_gather,
    .holds = rfu_holds,
    .holds_run = ckpt_ranks_beside,
    .gather_run = rfu_gather_run,
    .runs = rfu_runs,
};
