/* SPDX-License-Identifier: Apache-2.0 */
/*
 * programs.c: knows the names, folders and additional values that programs expect of a distributed
 * checkpoint.
 *
 *     torch       model, optim: the result of get_state_dict
 *     torchtitan  parameters at the root; a flat "optimizer"; train_state and lr_scheduler, because
 *                 its CheckpointManager requires their keys (0.3: trainer.py, lr_scheduler.py)
 *     accelerate  pytorch_model_fsdp_0/ with model, optimizer_0/ with optimizer (load_state)
 */
#include <assert.h>
#include <inttypes.h>
#include <string.h>

#include "formats/dcp/dcp.h"
#include "formats/training/ds_config.h"
#include "formats/training/kept_values.h"
#include "formats/training/run_files.h"
#include "formats/training/torch_settings.h"
#include "formats/training/write_job.h"
#include "libckpt/map/map.h"
#include "libckpt/map/state.h"

static const ckpt_dcp_layout dpg_layouts[] = {
    {.name = "torch", .model = "model", .optimizer = "optim", .of_model = ""},
    {.name = "torchtitan",
     .optimizer = "optimizer",
     .flat = true,
     .scheduled = true,
     .of_model = ""},
    {.name = "accelerate",
     .model = "model",
     .optimizer = "optimizer",
     .scheduled = true,
     .of_model = CKPT_TRAIN_FSDP_MODEL "0/",
     .of_optimizer = CKPT_TRAIN_FSDP_OPTIMIZER "0/"},
};

int ckpt_dcp_layout_find(const ckpt_dcp_layout **out, const char *name, ckpt_err *err)
{
    assert(out);
    for (size_t i = 0; i < sizeof dpg_layouts / sizeof *dpg_layouts; i++) {
        *out = &dpg_layouts[i];
        if (!name || strcmp((*out)->name, name) == 0)
            return CKPT_OK;
    }
    return ckpt_fail(err, CKPT_EUSAGE,
                     "unknown layout '%s': expected torch, torchtitan or accelerate", name);
}

/* True for torchtitan's layout, the only flat one. */
static bool dpg_is_titan(const ckpt_dcp_layout *layout)
{
    return layout->flat;
}

/* A counter of the run; 0 if it is absent. */
static int64_t dpg_count(const ckpt_state *state, const char *name)
{
    const ckpt_value *v = ckpt_value_get(state->model, name);

    return v && v->kind == CKPT_V_INT ? v->as.i : 0;
}

/* Steps of the run, including steps that an overflow skipped. */
static int64_t dpg_steps(const ckpt_state *state)
{
    return dpg_count(state, "global_steps");
}

/* A value of the run by dict and key, or NULL. */
static const ckpt_value *dpg_has(const ckpt_state *state, const char *dict, const char *key)
{
    return ckpt_value_get(ckpt_value_get(state->model, dict), key);
}

/* ---- the folder ---- */

static int dpg_titan_folder(ckpt_train_job *job)
{
    int rc = CKPT_OK;

    for (size_t g = 0; rc == CKPT_OK && g < job->state->group.n; g++) {
        ckpt_value *settings = NULL;
        rc = ckpt_train_torch_settings(&settings, job->to, job->state, &job->state->group.at[g],
                                       job->err);
        if (rc == CKPT_OK)
            rc = ckpt_dcp_initial_lr(settings, job->to->arena, job->state, job->err);
        if (rc == CKPT_OK && job->state->group.at[g].n > 0 && ckpt_value_map(settings).n == 0)
            return ckpt_fail(job->err, CKPT_EUNSUPPORTED,
                             "%s: keeps no settings of its parameter groups, and torchtitan's "
                             "layout identifies groups by their settings: use --layout torch",
                             job->from->path);
        if (rc == CKPT_OK && job->state->group.at[g].n == 0)
            rc = ckpt_train_left_out(job, CKPT_INFO,
                                     "param_groups[%zu]: torchtitan stores settings with the "
                                     "parameters of a group, and this group has none",
                                     g);
    }
    if (rc == CKPT_OK && !job->target->tag) {
        job->to->folder = ckpt_arena_printf(job->to->arena, "step-%" PRId64, dpg_steps(job->state));
        rc = job->to->folder ? CKPT_OK : ckpt_fail_memory(job->err);
    }
    if (rc == CKPT_OK && !dpg_has(job->state, "train_state", "ntokens_seen"))
        rc = ckpt_map_note(
            job->to, CKPT_INFO, job->err,
            "train_state.ntokens_seen: written as 0, because the source does not count tokens");
    if (rc == CKPT_OK && !ckpt_value_get(job->state->model, "dataloader"))
        rc = ckpt_map_note(job->to, CKPT_WARNING, job->err,
                           "dataloader: the source has no state of torchtitan's dataloader: load "
                           "with exclude_from_loading = [\"dataloader\"]");
    return rc;
}

int ckpt_dcp_program_folder(ckpt_train_job *job, const ckpt_dcp_layout *layout)
{
    assert(job && layout);
    if (job->state && dpg_is_titan(layout))
        return dpg_titan_folder(job);
    if (job->state && layout->of_optimizer)
        return ckpt_map_note(job->to, CKPT_INFO, job->err,
                             "scheduler.bin, random_states_*.pkl: not written: values of the run "
                             "are stored in " CKPT_TRAIN_FSDP_OPTIMIZER
                             "0, where accelerate does not look for them");
    return CKPT_OK;
}

/* ---- values ---- */

/* Add a member to a dict of `out`, which is made if absent; an existing member stays. */
static bool dpg_add(ckpt_arena *arena, ckpt_value *out, const char *dict, const char *key,
                    int64_t number)
{
    const ckpt_value *old = ckpt_value_get(out, dict);
    ckpt_dict had = ckpt_value_map(old), *all = &out->as.map;
    ckpt_value *copy = ckpt_value_new(arena, CKPT_V_DICT);
    bool ok = copy != NULL;

    if (ckpt_value_get(old, key) || (old && old->kind != CKPT_V_DICT))
        return true;
    for (uint64_t i = 0; ok && i < had.n; i++)
        ok = ckpt_dict_add(arena, &copy->as.map, had.at[i].key, had.at[i].value);
    ok = ok && ckpt_dict_add_cstr(arena, &copy->as.map, key, ckpt_value_int(arena, number));
    for (uint64_t i = 0; ok && old && i < all->n; i++) {
        if (all->at[i].value == old)
            all->at[i].value = copy;
    }
    return ok && (old || ckpt_dict_add_cstr(arena, all, dict, copy));
}

int ckpt_dcp_program_values(ckpt_value **out, ckpt_map *to, const ckpt_map *from,
                            const ckpt_state *state, const ckpt_dcp_layout *layout, ckpt_err *err)
{
    assert(out && to && from && layout);
    ckpt_dict all = ckpt_value_map(state->model);
    int64_t steps = dpg_steps(state), updates = steps - dpg_count(state, "skipped_steps");
    bool ok = (*out = ckpt_value_new(to->arena, CKPT_V_DICT)) != NULL;

    for (uint64_t i = 0; ok && i < all.n; i++) {
        if (ckpt_train_fsdp_stores(state, &all.at[i]))
            ok = ckpt_dict_add(to->arena, &(*out)->as.map, all.at[i].key, all.at[i].value);
    }
    if (dpg_is_titan(layout))
        ok = ok && dpg_add(to->arena, *out, "train_state", "step", steps) &&
             dpg_add(to->arena, *out, "train_state", "ntokens_seen", 0) &&
             dpg_add(to->arena, *out, "lr_scheduler", "last_epoch", updates);
    return ok ? ckpt_train_keep(*out, to->arena, from, state, err) : ckpt_fail_memory(err);
}

int ckpt_dcp_initial_lr(ckpt_value *settings, ckpt_arena *arena, const ckpt_state *state,
                        ckpt_err *err)
{
    assert(settings && arena && state);
    const ckpt_value *params = ckpt_train_config_get(state, "optimizer", "params");
    ckpt_value *lr = ckpt_value_get(params, "lr");

    if (!lr || lr->kind != CKPT_V_FLOAT)
        lr = ckpt_value_get(settings, "lr");
    if (!lr || ckpt_value_get(settings, "initial_lr") ||
        ckpt_dict_add_cstr(arena, &settings->as.map, "initial_lr", lr))
        return CKPT_OK;
    return ckpt_fail_memory(err);
}
