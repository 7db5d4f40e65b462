/* SPDX-License-Identifier: Apache-2.0 */
/*
 * run_files.c: reads the files that accelerate, Lightning and the Trainer of transformers put next
 * to the state of model and optimizer. The schedule and Lightning's meta.pt become values of the
 * run; the reader reports other files as not read.  It also reports what such files show about the
 * others: that one is missing, or belongs to another save.
 */
#include <assert.h>
#include <inttypes.h>
#include <string.h>

#include "formats/torch/torch.h"
#include "formats/training/run_files.h"
#include "libckpt/codec/json/json.h"
#include "libckpt/map/map.h"
#include "libckpt/map/state.h"

#define DCB_STATE     "trainer_state.json"
#define DCB_STATE_MAX (UINT64_C(256) << 20) /* limit in bytes; the file logs every step */

const char *ckpt_train_schedule(const ckpt_listing *list)
{
    static const char *const names[] = {"scheduler.bin", "scheduler.pt"};

    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const ckpt_entry *e = ckpt_listing_find(list, names[i]);
        if (e && !e->is_dir)
            return names[i];
    }
    return NULL;
}

int ckpt_train_files_left(ckpt_map *map, const ckpt_listing *list, ckpt_err *err)
{
    assert(map && list);
    static const char *const begins[] = {"random_states_", "rng_state", "sampler",
                                         "custom_checkpoint_", "trainer_state.json"};
    int rc = CKPT_OK;

    for (size_t i = 0; rc == CKPT_OK && i < list->n; i++) {
        const char *name = list->entry[i].name;
        bool known = false;
        for (size_t k = 0; k < sizeof begins / sizeof *begins; k++)
            known = known || strncmp(name, begins[k], strlen(begins[k])) == 0;
        if (known)
            rc = ckpt_map_note(map, CKPT_INFO, err, "%s/%s: left out", list->folder, name);
    }
    return rc;
}

/* ---- further models ---- */

/*
 * The content of a further file of accelerate, such as model_1.safetensors: "model" or "optimizer";
 * NULL: another file.
 */
static const char *dcb_further(const char *name)
{
    static const char *const form[][3] = {{"model_", ".safetensors", "model"},
                                          {"pytorch_model_", ".bin", "model"},
                                          {"pytorch_model_fsdp_", ".bin", "model"},
                                          {"optimizer_", ".bin", "optimizer"}};

    for (size_t i = 0; i < sizeof form / sizeof *form; i++) {
        size_t n = strlen(form[i][0]);
        size_t digits = strncmp(name, form[i][0], n) == 0 ? strspn(name + n, "0123456789") : 0;
        if (digits > 0 && name[n] != '0' && strcmp(name + n + digits, form[i][1]) == 0)
            return form[i][2];
    }
    return NULL;
}

/* True if the map was read from a file of this name. */
static bool dcb_is_read(const ckpt_map *map, const char *name)
{
    for (size_t i = 0; i < map->files.n; i++) {
        const char *slash = strrchr(map->files.at[i].path, '/');
        if (strcmp(slash ? slash + 1 : map->files.at[i].path, name) == 0)
            return true;
    }
    return false;
}

int ckpt_train_further_models(ckpt_map *map, const ckpt_listing *list, bool refuse, ckpt_err *err)
{
    int rc = CKPT_OK;

    for (size_t i = 0; rc == CKPT_OK && i < list->n; i++) {
        const char *name = list->entry[i].name, *what = dcb_further(name);
        if (list->entry[i].is_dir || !what || dcb_is_read(map, name))
            continue;
        if (refuse && !map->collect)
            return ckpt_fail(err, CKPT_EUNSUPPORTED,
                             "%s: the run has a further %s in %s, expected one model and its "
                             "optimizer; copy the files of one model to a folder of its own, under "
                             "the names without a number",
                             list->folder, what, name);
        rc = ckpt_map_note(map, CKPT_WARNING, err, "%s: left out: %s, a further %s of accelerate%s",
                           list->folder, name, what,
                           strcmp(what, "model") == 0 ? "; name that file to convert it" : "");
    }
    return rc;
}

/* ---- files that are missing ---- */

const char *ckpt_train_file_of_run(const ckpt_listing *list)
{
    static const char *const begins[] = {"random_states_", "rng_state"};
    const char *found = ckpt_train_schedule(list);

    for (size_t i = 0; !found && i < list->n; i++) {
        for (size_t k = 0; !found && k < sizeof begins / sizeof *begins; k++) {
            if (!list->entry[i].is_dir &&
                strncmp(list->entry[i].name, begins[k], strlen(begins[k])) == 0)
                found = list->entry[i].name;
        }
    }
    return found;
}

int ckpt_train_no_optimizer(ckpt_map *map, const ckpt_listing *list, const char *optimizer,
                            const ckpt_open_opts *opts, ckpt_err *err)
{
    assert(map && list && optimizer && opts);
    const char *of = ckpt_train_file_of_run(list);

    if (!of)
        return CKPT_OK;
    if (opts->training && !map->collect)
        return ckpt_fail(err, CKPT_EMISSING,
                         "%s: the run's optimizer is missing: expected %s, found %s, which belongs "
                         "to a run; copy it, or take the weights alone (ckpt convert)",
                         list->folder, optimizer, of);
    return ckpt_map_note(map, CKPT_WARNING, err,
                         "%s: the run's optimizer is missing: expected %s, found %s, which belongs "
                         "to a run; the run cannot be resumed without it",
                         list->folder, optimizer, of);
}

int ckpt_train_no_schedule(ckpt_map *map, const ckpt_listing *list, ckpt_err *err)
{
    assert(map && list);
    // verify and doctor report this with other missing files (libckpt/around.c)
    if (map->collect || ckpt_train_schedule(list) || !ckpt_train_file_of_run(list) ||
        !ckpt_state_scheduled(map))
        return CKPT_OK;
    return ckpt_map_note(map, CKPT_WARNING, err,
                         "%s: the schedule is missing: expected scheduler.bin or scheduler.pt; "
                         "without it a resumed run begins its schedule anew",
                         list->folder);
}

/* True for a key under which Lightning stores the state of an optimizer. */
static bool dcb_is_optimizer(const ckpt_value *key)
{
    static const char begin[] = CKPT_TRAIN_FSDP_OPTIMIZER;
    const char *name = key->kind == CKPT_V_STR ? key->as.text.at : "";
    const char *number = name + sizeof begin - 1;

    return strncmp(name, begin, sizeof begin - 1) == 0 && *number &&
           strspn(number, "0123456789") == strlen(number);
}

/*
 * True for the tensors of a Lightning run: optimizers have numbers, and there are no other values,
 * because Lightning keeps those in meta.pt.
 */
static bool dcb_is_lightning(const ckpt_value *root)
{
    ckpt_dict all = ckpt_value_map(root);
    uint64_t n_optimizers = 0, n_models = 0;

    for (uint64_t i = 0; i < all.n; i++) {
        const ckpt_value *key = all.at[i].key;
        n_optimizers += dcb_is_optimizer(key);
        n_models += ckpt_value_is(key, "model") || ckpt_value_is(key, "state_dict");
    }
    return n_optimizers > 0 && n_models == 1 && n_optimizers + n_models == all.n;
}

/* ---- files of another save ---- */

/* The largest step count among the parameter groups; -1: the optimizer counts no steps. */
static int64_t dcb_steps(const ckpt_map *map)
{
    const ckpt_state *s = map->states.n == 1 ? map->states.at[0] : NULL;
    int64_t most = -1;

    for (size_t g = 0; s && g < s->group.n; g++) {
        const ckpt_value *v = ckpt_value_get(s->group.at[g].entry, "step");
        int64_t n = -1;
        if (v && v->kind == CKPT_V_FLOAT && v->as.f >= 0 && v->as.f < 1e15)
            n = (int64_t)v->as.f;
        else if (!ckpt_value_as_int(v, &n))
            n = -1;
        most = n > most ? n : most;
    }
    return most;
}

int ckpt_train_trainer_steps(ckpt_map *map, const ckpt_listing *list, ckpt_err *err)
{
    assert(map && list);
    int64_t own = dcb_steps(map), run = 0;
    ckpt_value *root = NULL;
    ckpt_err local = {0};

    if (own < 0 || !ckpt_listing_has(list, DCB_STATE, false))
        return CKPT_OK;
    const char *path = ckpt_path_join(map->arena, list->folder, DCB_STATE);
    ckpt_arena *arena = path ? ckpt_arena_new(0) : NULL;
    if (!arena)
        return ckpt_fail_memory(err);
    // do not compare a file with Python's NaN, because it is not valid JSON
    int rc = ckpt_json_read(&root, arena, path, DCB_STATE_MAX, &local);
    if (rc == CKPT_EIO)
        rc = ckpt_fail(err, rc, "%s", local.text);
    else if (rc != CKPT_OK || !ckpt_value_as_int(ckpt_value_get(root, "global_step"), &run))
        rc = CKPT_OK;
    // fewer steps than the run's are possible, because a loss scaler skips steps after overflows
    else if (own > run)
        rc = ckpt_map_note(map, CKPT_WARNING, err,
                           "%s: the run is at step %" PRId64 ", but its optimizer has made %" PRId64
                           " steps: the files are from different saves; copy both from one save",
                           path, run, own);
    ckpt_arena_free(arena);
    return rc;
}

/*
 * Compare the optimizer's steps with Lightning's count. Lightning also counts steps that a loss
 * scaler skipped; meta.pt then has the state of the precision plugin.
 */
static int dcb_lightning_steps(ckpt_map *map, const ckpt_value *meta, const char *path,
                               ckpt_err *err)
{
    ckpt_dict all = ckpt_value_map(meta);
    int64_t own = dcb_steps(map), run = 0;
    bool scaled = false;

    for (uint64_t i = 0; i < all.n; i++)
        scaled = scaled || (all.at[i].key->kind == CKPT_V_STR &&
                            strstr(all.at[i].key->as.text.at, "Precision"));
    if (own < 0 || !ckpt_value_as_int(ckpt_value_get(meta, "global_step"), &run) || own == run ||
        (scaled && own < run))
        return CKPT_OK;
    return ckpt_map_note(map, CKPT_WARNING, err,
                         "%s: the run is at step %" PRId64 ", but its optimizer has made %" PRId64
                         " steps: the files are from different saves; copy both from one save",
                         path, run, own);
}

/* ---- files that become values of the run ---- */

/* Read the object of a torch file, and add the file to the map. */
static int dcb_object(ckpt_value **out, ckpt_map *map, const char *path, ckpt_err *err)
{
    ckpt_map_file entry = {.format = &ckpt_format_torch};
    ckpt_torch_range range = {0};
    int rc = ckpt_io_open(&range.io, path, err);

    if (rc == CKPT_OK) {
        ckpt_io_identify(range.io, &entry);
        range.n = entry.size;
        rc = ckpt_map_add_file(map, &entry, &range.file, err);
    }
    if (rc == CKPT_OK)
        rc = ckpt_torch_inner(out, map, &range, err);
    ckpt_io_close(range.io);
    return rc;
}

bool ckpt_train_lightning(ckpt_arena *arena, ckpt_value *root)
{
    assert(arena);
    ckpt_dict all = ckpt_value_map(root);

    if (!ckpt_value_get(root, CKPT_TRAIN_LIGHTNING) || ckpt_value_get(root, "lr_scheduler"))
        return true;
    for (uint64_t i = 0; i < all.n; i++) {
        ckpt_seq schedules = ckpt_value_seq(all.at[i].value);
        if (!ckpt_value_is(all.at[i].key, "lr_schedulers") || schedules.n != 1)
            continue;
        all.at[i].key = ckpt_value_cstr(arena, "lr_scheduler");
        all.at[i].value = schedules.at[0];
        return all.at[i].key != NULL;
    }
    return true;
}

/*
 * Read Lightning's meta.pt, which is the dict of a complete Lightning checkpoint without model and
 * optimizers.
 */
static int dcb_lightning(ckpt_map *map, ckpt_value *run, const char *folder, ckpt_err *err)
{
    const char *path = ckpt_arena_printf(map->arena, "%s/meta.pt", folder);
    ckpt_value *meta = NULL;
    int rc = path ? dcb_object(&meta, map, path, err) : ckpt_fail_memory(err);
    ckpt_dict all = rc == CKPT_OK ? ckpt_value_map(meta) : (ckpt_dict){0};

    if (rc == CKPT_OK && !ckpt_value_get(meta, CKPT_TRAIN_LIGHTNING))
        return ckpt_map_note(map, CKPT_INFO, err, "%s: left out: Lightning did not write it", path);
    if (rc == CKPT_OK)
        rc = dcb_lightning_steps(map, meta, path, err);
    for (uint64_t i = 0; rc == CKPT_OK && i < all.n; i++) {
        const ckpt_pair *p = &all.at[i];
        ckpt_seq schedules = ckpt_value_seq(p->value);
        bool one = ckpt_value_is(p->key, "lr_schedulers") && schedules.n == 1;
        const char *name = one                          ? "lr_scheduler"
                           : p->key->kind == CKPT_V_STR ? p->key->as.text.at
                                                        : "a key that is not a string";
        if (p->key->kind != CKPT_V_STR || ckpt_value_get(run, name))
            rc = ckpt_map_note(map, CKPT_INFO, err, "%s: left out: %.100s", path, name);
        else if (!ckpt_dict_add_cstr(map->arena, &run->as.map, name,
                                     one ? schedules.at[0] : p->value))
            rc = ckpt_fail_memory(err);
    }
    return rc;
}

int ckpt_train_run_files(ckpt_map *map, const ckpt_listing *list, ckpt_err *err)
{
    assert(map && list && list->read);
    const char *name = ckpt_train_schedule(list);
    ckpt_value *run = map->states.n == 1 ? map->states.at[0]->model : NULL, *schedule = NULL;
    const ckpt_entry *meta = ckpt_listing_find(list, "meta.pt");
    int rc = ckpt_train_files_left(map, list, err);

    if (rc == CKPT_OK && !meta && dcb_is_lightning(map->values))
        rc = ckpt_map_note(map, CKPT_WARNING, err,
                           "%s: Lightning's meta.pt is missing: its tensors have Lightning's names "
                           "(" CKPT_TRAIN_FSDP_OPTIMIZER
                           "0), and Lightning cannot load them without that file; copy it",
                           list->folder);
    if (rc == CKPT_OK)
        rc = ckpt_train_trainer_steps(map, list, err);
    if (rc == CKPT_OK && run && meta && !meta->is_dir)
        rc = dcb_lightning(map, run, list->folder, err);
    if (rc == CKPT_OK)
        rc = ckpt_train_no_schedule(map, list, err);
    if (rc != CKPT_OK || !name || !run || ckpt_value_get(run, "lr_scheduler"))
        return rc;
    const char *path = ckpt_arena_printf(map->arena, "%s/%s", list->folder, name);
    rc = path ? dcb_object(&schedule, map, path, err) : ckpt_fail_memory(err);
    if (rc == CKPT_OK && !ckpt_dict_add_cstr(map->arena, &run->as.map, "lr_scheduler", schedule))
        rc = ckpt_fail_memory(err);
    return rc;
}
