/* SPDX-License-Identifier: Apache-2.0 */
/*
 * weights.c: saves only the weights of a run, as a safetensors file or a Hugging Face folder, or an
 * adapter as a PEFT folder.
 *
 * Rank 0 writes.  Masters are in pieces on all ranks: for each parameter in turn, every rank copies
 * its runs into a buffer of zeros, and the sum of the buffers as integers is the parameter, bit for
 * bit.
 */
#include <dirent.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "engine/save/save.h"
#include "libckpt/base/dtype.h"
#include "libckpt/codec/json/json.h"
#include "libckpt/include/ckpt.h"
#include "libckpt/io/io.h"
#include "libckpt/map/map.h"

enum { WT_PATH = 4096 };

typedef struct wt_writer {
    zt_zero *zero;
    const zt_weights_opts *opts;
    bool low;
    bool adapter;  /* only the adapter's parameters, under PEFT's names */
    void **value;  /* rank 0: per parameter */
    void *scratch; /* other ranks: memory for the longest parameter */
    ckpt_map *map; /* rank 0 */
} wt_writer;

static bool wt_is_writer(const wt_writer *w)
{
    return w->zero->comm->rank == 0;
}

/* Parameters are written from their masters; frozen ones have none, so they keep their dtype. */
static ckpt_dtype wt_dtype(const wt_writer *w, const zt_param *p)
{
    return w->low || p->frozen ? w->zero->config->dtype : CKPT_F32;
}

/* False for base weights if only an adapter is written. */
static bool wt_is_wanted(const wt_writer *w, const zt_param *p)
{
    return !w->adapter || !p->frozen;
}

static uint64_t wt_bytes(const wt_writer *w, const zt_param *p)
{
    return p->n_elems * (ckpt_dtype_get(wt_dtype(w, p))->bits / 8);
}

static int wt_make_room(wt_writer *w, ckpt_err *err)
{
    const zt_params *params = &w->zero->model->params;
    uint64_t longest = 1;

    w->value = ckpt_alloc((params->n + 1) * sizeof *w->value);
    if (!w->value)
        return ckpt_fail_memory(err);
    for (size_t i = 0; i < params->n; i++) {
        uint64_t n = wt_bytes(w, &params->at[i]);
        longest = n > longest ? n : longest;
        if (wt_is_writer(w) && wt_is_wanted(w, &params->at[i]) &&
            !(w->value[i] = ckpt_alloc((size_t)n + 1)))
            return ckpt_fail_memory(err);
    }
    w->scratch = wt_is_writer(w) ? NULL : ckpt_alloc((size_t)longest);
    return wt_is_writer(w) || w->scratch ? CKPT_OK : ckpt_fail_memory(err);
}

/* Copy this rank's runs of a master into a buffer of zeros. */
static void wt_own_runs(const wt_writer *w, uint32_t param, float *to)
{
    size_t n = 0;
    const zt_owned *o = zt_zero_owned(w->zero, &n);
    zt_device *home = zt_zero_home(w->zero);
    // at stage 0 every rank has all masters, so one rank contributes
    bool mine = w->zero->config->stage > 0 || wt_is_writer(w);

    memset(to, 0, (size_t)w->zero->model->params.at[param].n_elems * sizeof *to);
    for (size_t i = 0; mine && i < n; i++) {
        if (o[i].param == param)
            home->ops->get(home, to + o[i].first, w->zero->part[o[i].partition].master + o[i].at,
                           o[i].count * sizeof *to);
    }
}

static int wt_gather_one(wt_writer *w, uint32_t i, ckpt_err *err)
{
    const zt_param *p = &w->zero->model->params.at[i];
    zt_comm *c = w->zero->comm;
    void *to = wt_is_writer(w) ? w->value[i] : w->scratch;

    if (w->low || p->frozen)
        return zt_zero_gather(w->zero, i, to, err);
    wt_own_runs(w, i, to);
    if (w->zero->config->stage == 0)
        return CKPT_OK;
    return c->ops->all_reduce(c, to, p->n_elems, CKPT_I32, ZT_SUM, err);
}

static int wt_hold(wt_writer *w, uint32_t *n_held, ckpt_err *err)
{
    int rc = CKPT_OK;

    for (uint32_t i = 0; rc == CKPT_OK && i < w->zero->n_parts; i++) {
        rc = zt_zero_hold(w->zero, i, err);
        *n_held += rc == CKPT_OK;
    }
    return rc;
}

/* Gather all parameters at rank 0. */
static int wt_gather(wt_writer *w, ckpt_err *err)
{
    uint32_t n_held = 0;
    int rc = wt_make_room(w, err);

    if (rc == CKPT_OK && !w->low)
        rc = wt_hold(w, &n_held, err);
    rc = zt_comm_agree(w->zero->comm, rc, err);
    for (uint32_t i = 0; rc == CKPT_OK && i < w->zero->model->params.n; i++) {
        if (wt_is_wanted(w, &w->zero->model->params.at[i]))
            rc = wt_gather_one(w, i, err);
    }
    if (rc == CKPT_OK)
        rc = zt_device_check(zt_zero_home(w->zero), err);
    while (n_held > 0)
        (void)zt_zero_let_go(w->zero, --n_held, false, NULL);
    return rc;
}

/* ---- the map ---- */

static int wt_add(wt_writer *w, const char *name, size_t i, ckpt_err *err)
{
    const zt_param *p = &w->zero->model->params.at[i];
    ckpt_tensor like = {.dtype = wt_dtype(w, p), .ndim = p->ndim, .shape = p->shape}, *t = NULL;
    ckpt_source s = {.kind = CKPT_SOURCE_MEMORY, .n_bytes = wt_bytes(w, p)};
    uint32_t source = 0;
    int rc;

    s.n_stored = s.n_bytes;
    s.memory = w->value[i];
    rc = ckpt_map_add_source(w->map, &s, &source, err);
    if (rc == CKPT_OK)
        rc = ckpt_map_add(w->map, name, strlen(name), &like, &t, err);
    return rc == CKPT_OK ? ckpt_map_back_whole(w->map, t, source, 0, err) : rc;
}

/* Add an adapter's parameters under PEFT's names. */
static int wt_add_adapter(wt_writer *w, ckpt_err *err)
{
    size_t n = 0;
    const zt_alias *saved = zt_lora_saved(w->zero->model, w->map->arena, &n);
    int rc = saved ? CKPT_OK : ckpt_fail_memory(err);

    for (size_t i = 0; rc == CKPT_OK && i < n; i++) {
        if (w->value[saved[i].param])
            rc = wt_add(w, saved[i].name, saved[i].param, err);
    }
    return rc;
}

static int wt_map(wt_writer *w, ckpt_err *err)
{
    const zt_model *model = w->zero->model;
    int rc = ckpt_map_create(&w->map, 0, err);
    ckpt_value *key, *value;

    if (rc != CKPT_OK)
        return rc;
    w->map->path = "the run";
    w->map->format = "memory";
    if (w->adapter)
        rc = wt_add_adapter(w, err);
    for (size_t i = 0; rc == CKPT_OK && !w->adapter && i < model->params.n; i++) {
        const zt_param *p = &model->params.at[i];

        rc = wt_add(w, p->hub ? p->hub : p->name, i, err);
    }
    // transformers requires this entry in the files that it loads
    key = ckpt_value_cstr(w->map->arena, "format");
    value = ckpt_value_cstr(w->map->arena, "pt");
    if (rc == CKPT_OK &&
        (!key || !value || !ckpt_dict_add(w->map->arena, &w->map->metadata, key, value)))
        rc = ckpt_fail_memory(err);
    return rc;
}

/* ---- writing ---- */

/* Make an adapter's configuration file. That of the model is not written again. */
static int wt_adapter_text(wt_writer *w, ckpt_err *err)
{
    static const ckpt_json_style style = {.indent = 2};
    const ckpt_value *v = zt_lora_config(w->zero->model, w->map->arena, w->opts->base);
    ckpt_bytes text = {0};
    int rc = v ? ckpt_json_write(&text, v, &style, err) : ckpt_fail_memory(err);

    if (rc == CKPT_OK && !ckpt_bytes_add(&text, "\n", 1))
        rc = ckpt_fail_memory(err);
    if (rc == CKPT_OK) {
        w->map->adapter_config = ckpt_arena_copy(w->map->arena, text.at, text.n);
        w->map->n_adapter_config = text.n;
        w->map->config = (ckpt_map_config){.file = "config.json", .text = ""};
        rc = w->map->adapter_config ? CKPT_OK : ckpt_fail_memory(err);
    }
    ckpt_vec_free(&text);
    return rc;
}

/* Read the configuration, if the model's folder does not have it as config.json. */
static int wt_config_text(wt_writer *w, ckpt_err *err)
{
    char *text = NULL;
    uint64_t n = 0;
    int rc = ckpt_io_slurp(&text, &n, w->opts->config, UINT64_C(16) << 20, err);

    if (rc == CKPT_OK) {
        w->map->config.file = "config.json";
        w->map->config.text = ckpt_arena_string(w->map->arena, text, n);
        rc = w->map->config.text ? CKPT_OK : ckpt_fail_memory(err);
    }
    ckpt_free(text);
    return rc;
}

/* Lay out a model folder, or an adapter's, by the rules of `ckpt convert`. */
static int wt_folder(wt_writer *w, ckpt_target *target, char folder[WT_PATH], ckpt_err *err)
{
    size_t n = strlen(w->opts->path);

    memcpy(folder, w->opts->path, n);
    while (n > 1 && folder[n - 1] == '/')
        n--;
    folder[n] = 0;
    *target = (ckpt_target){.path = folder,
                            .format = "hf",
                            .dtype = w->low ? w->zero->config->dtype : CKPT_F32,
                            .max_shard_size = UINT64_C(5000000000)};
    w->map->model_folder = w->opts->folder;
    return w->adapter        ? wt_adapter_text(w, err)
           : w->opts->config ? wt_config_text(w, err)
                             : CKPT_OK;
}

/* Make the map of the weights, and its layout as the target. */
static int wt_layout(wt_writer *w, ckpt_map **to, ckpt_err *err)
{
    ckpt_target target = {.path = w->opts->path, .format = "safetensors"};
    size_t n = strlen(w->opts->path);
    char folder[WT_PATH];
    int rc = wt_map(w, err);

    if (rc == CKPT_OK && (n == 0 || n >= sizeof folder))
        rc = ckpt_fail(err, CKPT_EUSAGE, "the path of the weights must have 1 to %d bytes",
                       WT_PATH - 1);
    if (rc == CKPT_OK && w->opts->path[n - 1] == '/')
        rc = wt_folder(w, &target, folder, err);
    return rc == CKPT_OK ? ckpt_layout(to, w->map, &target, err) : rc;
}

static int wt_write(wt_writer *w, ckpt_err *err)
{
    const ckpt_run_opts run = {.force = w->opts->force};
    ckpt_map *to = NULL;
    ckpt_plan *plan = NULL;
    int rc = wt_layout(w, &to, err);

    if (rc == CKPT_OK)
        rc = ckpt_plan_new(&plan, w->map, to, &run, err);
    if (rc == CKPT_OK)
        rc = ckpt_plan_run(plan, &run, NULL, err);
    ckpt_plan_free(plan);
    ckpt_map_free(to);
    return rc;
}

static void wt_begin(wt_writer *w, zt_saver *s, const zt_weights_opts *opts)
{
    size_t n = strlen(opts->path);

    *w = (wt_writer){.zero = zt_saver_zero(s), .opts = opts, .low = opts->low};
    w->adapter = w->zero->model->lora.rank > 0 && n > 0 && opts->path[n - 1] == '/';
}

int zt_save_weights(zt_saver *s, const zt_weights_opts *opts, ckpt_err *err)
{
    wt_writer w;
    int rc;

    wt_begin(&w, s, opts);
    rc = wt_gather(&w, err);
    rc = zt_comm_agree(w.zero->comm, rc, err);
    if (rc == CKPT_OK && wt_is_writer(&w))
        rc = wt_write(&w, err);
    for (size_t i = 0; w.value && i < w.zero->model->params.n; i++)
        ckpt_free(w.value[i]);
    ckpt_free(w.value);
    ckpt_free(w.scratch);
    ckpt_map_free(w.map);
    return zt_comm_agree(w.zero->comm, rc, err);
}

/* ---- before a run ---- */

/* Check that no file of the output exists. */
static int wt_look(const ckpt_map *to, const char *path, ckpt_err *err)
{
    size_t n = strlen(path), end = n;
    bool folder = path[n - 1] == '/';
    struct stat st;

    while (end > 1 && path[end - 1] == '/')
        end--;

    for (size_t i = 0; i < to->files.n; i++) {
        const char *name = folder ? to->files.at[i].path : "", *between = folder ? "/" : "";
        const char *full = ckpt_arena_printf(to->arena, "%.*s%s%s", (int)end, path, between, name);

        if (!full)
            return ckpt_fail_memory(err);
        if (lstat(full, &st) == 0 && S_ISREG(st.st_mode))
            return ckpt_fail(
                err, CKPT_EUSAGE,
                "%s: exists already; choose another name, or use --force to replace it", full);
    }
    return CKPT_OK;
}

static bool wt_begins(const char *name, const char *with)
{
    return strncmp(name, with, strlen(with)) == 0;
}

static bool wt_ends(const char *name, const char *with)
{
    size_t n = strlen(name), m = strlen(with);

    return n >= m && strcmp(name + n - m, with) == 0;
}

/* True for names of weights, or of an adapter, that loaders look for in a model's folder. */
static bool wt_is_loaded(const char *name)
{
    const bool stem = wt_begins(name, "model") || wt_begins(name, "pytorch_model");
    const bool kind =
        wt_ends(name, ".safetensors") || wt_ends(name, ".bin") || wt_ends(name, ".index.json");

    return (stem && kind) || wt_begins(name, "adapter_model.") ||
           strcmp(name, "adapter_config.json") == 0;
}

static bool wt_is_output(const ckpt_map *to, const char *name)
{
    bool is = to->adapter_config && strcmp(name, "adapter_config.json") == 0;

    for (size_t i = 0; !is && i < to->files.n; i++)
        is = strcmp(to->files.at[i].path, name) == 0;
    return is;
}

/* Refuse a model's folder whose layout has no config.json, since nothing could load the model. An
 * older one in the folder would be that of another model. */
static int wt_has_config(const wt_writer *w, const ckpt_map *to, ckpt_err *err)
{
    if (w->adapter || wt_is_output(to, "config.json"))
        return CKPT_OK;
    return ckpt_fail(err, CKPT_EUSAGE,
                     "%.200s: config.json of the model %.200s cannot be copied there, because it "
                     "is a link that leads out of its folder, or is too large: use --model with a "
                     "copy of the folder (cp -RL)",
                     w->opts->path, w->opts->folder);
}

/* Warn of other weights, or of an adapter, that stay in the output folder: loaders read them too,
 * or instead. */
static void wt_stays(const ckpt_map *to, const char *folder, ckpt_err *remark)
{
    DIR *d = remark->code == CKPT_OK ? opendir(folder) : NULL;
    char first[NAME_MAX + 1] = "";

    for (struct dirent *e; d && (e = readdir(d));) {
        // The first name in order, so that the text is the same in each run.
        if (wt_is_loaded(e->d_name) && !wt_is_output(to, e->d_name) &&
            (!first[0] || strcmp(e->d_name, first) < 0))
            (void)snprintf(first, sizeof first, "%s", e->d_name);
    }
    if (d)
        (void)closedir(d);
    if (first[0])
        (void)ckpt_fail(remark, CKPT_EUSAGE,
                        "%.200s%.200s stays there, and will be loaded with the saved model or "
                        "instead of it: remove it, or choose another folder",
                        folder, first);
}

/* Get the first warning of a layout. */
static void wt_remark(const wt_writer *w, const ckpt_map *to, ckpt_err *remark)
{
    if (remark->code == CKPT_OK && w->adapter && !w->opts->base)
        (void)ckpt_fail(remark, CKPT_EUSAGE,
                        "%.200s: the adapter is saved without its base model, whose weights are "
                        "random: use --save-weights to save both",
                        w->opts->path);
    for (size_t i = 0; remark->code == CKPT_OK && i < to->findings.n; i++) {
        if (to->findings.at[i].severity == CKPT_WARNING)
            (void)ckpt_fail(remark, CKPT_EUSAGE, "%s", to->findings.at[i].text);
    }
}

int zt_try_weights(zt_saver *s, const zt_weights_opts *opts, ckpt_err *err)
{
    static char nothing; // any address suffices, because layouts read shapes, not bytes
    ckpt_map *to = NULL;
    wt_writer w;
    int rc;

    wt_begin(&w, s, opts);
    w.value = ckpt_alloc((w.zero->model->params.n + 1) * sizeof *w.value);
    for (size_t i = 0; w.value && i < w.zero->model->params.n; i++)
        w.value[i] = wt_is_wanted(&w, &w.zero->model->params.at[i]) ? &nothing : NULL;
    rc = w.value ? wt_layout(&w, &to, err) : ckpt_fail_memory(err);
    if (rc == CKPT_OK && opts->path[strlen(opts->path) - 1] == '/')
        rc = wt_has_config(&w, to, err);
    if (rc == CKPT_OK)
        wt_remark(&w, to, zt_saver_remark(s));
    if (rc == CKPT_OK && !opts->force)
        rc = wt_look(to, opts->path, err);
    if (rc == CKPT_OK && opts->path[strlen(opts->path) - 1] == '/')
        wt_stays(to, opts->path, zt_saver_remark(s));
    ckpt_map_free(to);
    ckpt_map_free(w.map);
    ckpt_free(w.value);
    return rc;
}
