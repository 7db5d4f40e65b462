/* SPDX-License-Identifier: Apache-2.0 */
/*
 * full.c: the driver of whole dicts of a model and its optimizer, as torch.save writes them of a
 * FULL_STATE_DICT, of DDP or of a single process.
 *
 *     pytorch_model_fsdp.bin, optimizer.bin    accelerate and the Trainer of transformers, with
 *     scheduler.bin or scheduler.pt            their schedule
 *     X.pt, X.ckpt                             one file: {"model": ..., "optimizer": ...}, also
 *                                              what Lightning writes: state_dict, optimizer_states
 *
 * Alone, such files are torch files like any other; here they are a run.
 */
#include <string.h>

#include "formats/dcp/dcp.h"
#include "formats/fsdp_ranks/ranks.h"

#define RFU_MODEL "pytorch_model_fsdp.bin"
#define RFU_OPTIM "optimizer.bin"

/* ---- which files ---- */

static bool rfu_ends(const char *name, const char *suffix)
{
    size_t n = strlen(name), m = strlen(suffix);

    return n > m && strcmp(name + n - m, suffix) == 0;
}

/* The name of a file that may hold a whole run. */
static bool rfu_single(const char *name)
{
    return rfu_ends(name, ".pt") || rfu_ends(name, ".pth") || rfu_ends(name, ".ckpt") ||
           rfu_ends(name, ".bin") || rfu_ends(name, ".tar");
}

/* The one such file of a folder that has nothing else; NULL: there is none. */
static const char *rfu_alone(const ckpt_listing *list)
{
    const ckpt_entry *e = list->n == 1 ? &list->entry[0] : NULL;

    return e && !e->is_dir && rfu_single(e->name) ? e->name : NULL;
}

/* No file says that a save has finished: what is missing is found by opening it. */
static bool rfu_is_one(const ckpt_listing *list)
{
    return ckpt_listing_has(list, RFU_MODEL, false);
}

static const ckpt_run_layout rfu_run = {
    .is_tag = rfu_is_one,
    .is_done = rfu_is_one,
    .pointer = "",
    .text = ckpt_dcp_number_of,
};

/* Above a model folder: the Trainer writes model.safetensors beside them. */
static int rfu_probe(const ckpt_listing *list)
{
    if (ckpt_listing_has(list, RFU_MODEL, false))
        return ckpt_listing_has(list, RFU_OPTIM, false) ? 72 : 20;
    if (rfu_alone(list))
        return 10;
    return ckpt_dcp_is_run(list, &rfu_run) ? 38 : 0;
}

/* ---- one file ---- */

static bool rfu_is_optimizer(const ckpt_value *v)
{
    const ckpt_value *groups = ckpt_value_get(v, "param_groups");

    return groups && groups->kind == CKPT_V_LIST && ckpt_value_get(v, "state");
}

/* A member that is an optimizer, or a list of one. */
static ckpt_value *rfu_optimizer(ckpt_value *v)
{
    ckpt_seq s = ckpt_value_seq(v->kind == CKPT_V_LIST ? v : NULL);

    if (s.n == 1)
        v = s.at[0];
    return rfu_is_optimizer(v) ? v : NULL;
}

/* A file with an optimizer is a run's, even if what else is in it cannot be told. */
static bool rfu_holds(const ckpt_value *values)
{
    ckpt_dict all = ckpt_value_map(values);
    bool has = false;

    for (uint64_t i = 0; !has && i < all.n; i++)
        has = rfu_optimizer(all.at[i].value) != NULL;
    return has;
}

/* A dict whose values are mostly tensors. */
static bool rfu_is_model(const ckpt_value *v)
{
    ckpt_dict map = ckpt_value_map(v);
    uint64_t n = 0;

    for (uint64_t i = 0; i < map.n; i++)
        n += ckpt_ranks_is_part(map.at[i].value);
    return n > map.n / 2;
}

/* The members of a file: its model, its optimizer, and the rest. */
static int rfu_take(ckpt_ranks_run *r, const ckpt_ranks_file *file, ckpt_value *root)
{
    ckpt_dict all = ckpt_value_map(root);
    ckpt_value *rest = ckpt_value_new(r->map->arena, CKPT_V_DICT), *model = NULL, *optim = NULL;
    unsigned models = 0, optims = 0;
    bool ok = rest != NULL;
    int rc;

    for (uint64_t i = 0; ok && i < all.n; i++) {
        ckpt_value *v = all.at[i].value, *o = rfu_optimizer(v);
        bool is_model = !o && rfu_is_model(v);
        optim = o ? o : optim;
        optims += o != NULL;
        model = is_model ? v : model;
        models += is_model;
        if (!o && !is_model)
            ok = ckpt_dict_add(r->map->arena, &rest->as.map, all.at[i].key, v);
    }
    if (!ok)
        return ckpt_fail_memory(r->err);
    if (models != 1 || optims != 1)
        return ckpt_fail(r->err, CKPT_EUNSUPPORTED,
                         "%s: holds %u dicts of tensors and %u optimizers: the state of a run is "
                         "one of each",
                         file->where.file, models, optims);
    r->root[CKPT_RANKS_MODEL] = model;
    r->root[CKPT_RANKS_OPTIM] = r->with_optimizer ? optim : NULL;
    r->root[CKPT_RANKS_EXTRA] = rest;
    rc = ckpt_ranks_take_model(r, file, model);
    return rc == CKPT_OK && r->with_optimizer ? ckpt_ranks_take_optim(r, file, optim) : rc;
}

/* ---- several files ---- */

/* A scheduler's own dict becomes a member of the run. */
static int rfu_take_schedule(ckpt_ranks_run *r, const ckpt_ranks_file *file, ckpt_value *root)
{
    ckpt_value *rest = ckpt_value_new(r->map->arena, CKPT_V_DICT);

    (void)file;
    if (!rest || !ckpt_dict_add_cstr(r->map->arena, &rest->as.map, "lr_scheduler", root))
        return ckpt_fail_memory(r->err);
    r->root[CKPT_RANKS_EXTRA] = rest;
    return CKPT_OK;
}

static int rfu_several(ckpt_ranks_run *r, const ckpt_listing *list)
{
    const char *schedule = ckpt_dcp_schedule(list);
    int rc = ckpt_ranks_read(r, RFU_MODEL, CKPT_RANKS_MODEL, 0, ckpt_ranks_take_model);

    if (rc == CKPT_OK && r->with_optimizer && ckpt_listing_has(list, RFU_OPTIM, false))
        rc = ckpt_ranks_read(r, RFU_OPTIM, CKPT_RANKS_OPTIM, 0, ckpt_ranks_take_optim);
    if (rc == CKPT_OK && schedule)
        rc = ckpt_ranks_read(r, schedule, CKPT_RANKS_EXTRA, 0, rfu_take_schedule);
    return rc == CKPT_OK ? ckpt_dcp_left(r->map, list, r->err) : rc;
}

/* ---- the driver ---- */

static int rfu_gather(ckpt_map *map, const ckpt_listing *list, const ckpt_open_opts *opts,
                      ckpt_err *err)
{
    ckpt_listing at = *list;
    const char *one = list->part ? list->part : rfu_alone(list);
    int rc = one ? CKPT_OK : ckpt_dcp_find(map, &at, &rfu_run, opts->tag, err);
    ckpt_ranks_run r = {.map = map,
                        .path = at.folder,
                        .world = 1,
                        .with_optimizer = opts->with_optimizer,
                        .err = err};

    if (rc == CKPT_OK)
        rc = one ? ckpt_ranks_read(&r, one, CKPT_RANKS_MODEL, 0, rfu_take) : rfu_several(&r, &at);
    if (rc == CKPT_OK)
        rc = ckpt_ranks_finish(&r);
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
            .caps = CKPT_CAN_READ | CKPT_IS_FOLDER | CKPT_HOLDS_STATE,
        },
    .probe = rfu_probe,
    .gather = rfu_gather,
    .holds = rfu_holds,
    .runs = rfu_runs,
};
