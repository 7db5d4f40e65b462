/* SPDX-License-Identifier: Apache-2.0 */
/*
 * weights.c: a run's weights alone, as a safetensors file or a Hugging Face folder; of an adapted
 * model, the adapter as a PEFT folder.
 *
 * Rank 0 writes.  Masters lie in pieces on all ranks: for each parameter in turn every rank puts
 * its runs into a buffer of zeros, and the sum of the buffers as integers is the parameter, bit for
 * bit.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "engine/save/save.h"
#include "libckpt/base/dtype.h"
#include "libckpt/ckpt.h"
#include "libckpt/codec/json/json.h"
#include "libckpt/copy/dir.h"
#include "libckpt/map/map.h"

enum { WT_PATH = 4096 };

typedef struct wt_writer {
    zt_zero *zero;
    bool low;
    bool adapter;  /* its parameters alone, under the names of PEFT */
    void **value;  /* rank 0: per parameter */
    void *scratch; /* other ranks: the longest one */
    ckpt_map *map; /* rank 0 */
} wt_writer;

static bool wt_is_writer(const wt_writer *w)
{
    return w->zero->comm->rank == 0;
}

/* A parameter is written from its masters; frozen ones have none. */
static ckpt_dtype wt_dtype(const wt_writer *w, const zt_param *p)
{
    return w->low || p->frozen ? w->zero->config->dtype : CKPT_F32;
}

/* Base weights of an adapter are not written. */
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

/* This rank's runs of a master into a buffer of zeros. */
static void wt_own_runs(const wt_writer *w, uint32_t param, float *to)
{
    size_t n = 0;
    const zt_owned *o = zt_zero_owned(w->zero, &n);
    zt_device *home = zt_zero_home(w->zero);
    // Without ZeRO everybody has everything: one of them is enough.
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

/* All parameters at rank 0. */
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

/* An adapter's parameters under PEFT's names. */
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
    int rc = ckpt_map_new(&w->map, 0, err);
    ckpt_value *key, *value;

    if (rc != CKPT_OK)
        return rc;
    w->map->path = "the run";
    w->map->format = "memory";
    if (w->adapter)
        rc = wt_add_adapter(w, err);
    for (size_t i = 0; rc == CKPT_OK && !w->adapter && i < model->params.n; i++)
        rc = wt_add(w, model->params.at[i].name, i, err);
    // What transformers expects to find in the files that it loads.
    key = ckpt_value_cstr(w->map->arena, "format");
    value = ckpt_value_cstr(w->map->arena, "pt");
    if (rc == CKPT_OK &&
        (!key || !value || !ckpt_dict_add(w->map->arena, &w->map->metadata, key, value)))
        rc = ckpt_fail_memory(err);
    return rc;
}

/* ---- config.json ---- */

static int wt_put_text(int fd, const uint8_t *text, size_t n)
{
    while (n > 0) {
        ssize_t put = write(fd, text, n);
        if (put < 0 && errno == EINTR)
            continue;
        if (put <= 0)
            return put < 0 ? errno : ENOSPC;
        text += put;
        n -= (size_t)put;
    }
    return ckpt_fsync(fd) == 0 ? 0 : errno;
}

/* A small file: complete or not at all. */
static int wt_save_text(const char *folder, const char *name, const ckpt_bytes *text, ckpt_err *err)
{
    char temp[WT_PATH], final[WT_PATH];
    int a = snprintf(temp, sizeof temp, "%s/.%s.ckpt-config.tmp", folder, name);
    int b = snprintf(final, sizeof final, "%s/%s", folder, name);
    int fd = -1, sys = 0, rc = CKPT_OK;

    if (rc == CKPT_OK && (a >= WT_PATH || b >= WT_PATH))
        rc = ckpt_fail(err, CKPT_EUSAGE, "%.200s: the path is too long", folder);
    if (rc == CKPT_OK) {
        (void)unlink(temp);
        fd = open(temp, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
        sys = fd < 0 ? errno : wt_put_text(fd, text->at, text->n);
        if (fd >= 0 && close(fd) != 0 && sys == 0)
            sys = errno;
        if (sys == 0 && rename(temp, final) != 0)
            sys = errno;
        if (sys != 0) {
            (void)unlink(temp);
            rc = ckpt_fail_sys(err, CKPT_EIO, sys, "%s: cannot write", final);
        }
    }
    return rc;
}

/* Write folder/name: complete or not at all.  v NULL: there was no memory to make it. */
static int wt_json(const char *folder, const char *name, const ckpt_value *v, ckpt_err *err)
{
    static const ckpt_json_style style = {.indent = 2};
    ckpt_bytes text = {0};
    int rc = v ? ckpt_json_write(&text, v, &style, err) : ckpt_fail_memory(err);

    if (rc == CKPT_OK && !ckpt_bytes_add(&text, "\n", 1))
        rc = ckpt_fail_memory(err);
    if (rc == CKPT_OK)
        rc = wt_save_text(folder, name, &text, err);
    ckpt_vec_free(&text);
    return rc;
}

/* ---- writing ---- */

/* A model folder, or an adapter's: the weights first, then the text that names them. */
static int wt_write_folder(wt_writer *w, const char *folder, const ckpt_run_opts *run,
                           ckpt_err *err)
{
    const zt_model *model = w->zero->model;
    ckpt_target target = {.path = folder, .format = "hf", .max_shard_size = UINT64_C(5000000000)};
    char file[WT_PATH + 32];
    int rc;

    if (w->adapter) {
        (void)snprintf(file, sizeof file, "%s/adapter_model.safetensors", folder);
        target = (ckpt_target){.path = file, .format = "safetensors"};
    }
    rc = ckpt_convert(w->map, &target, run, NULL, err);
    if (rc == CKPT_OK && w->adapter)
        rc = wt_json(folder, "adapter_config.json", zt_lora_config(model, w->map->arena), err);
    else if (rc == CKPT_OK && model->config.json)
        rc = wt_json(folder, "config.json", model->config.json, err);
    return rc;
}

static int wt_write(wt_writer *w, const char *path, ckpt_err *err)
{
    const ckpt_run_opts run = {.force = true};
    const ckpt_target target = {.path = path, .format = "safetensors"};
    size_t n = strlen(path);
    char folder[WT_PATH];
    int rc = wt_map(w, err);

    if (rc != CKPT_OK)
        return rc;
    if (n == 0 || n >= sizeof folder)
        return ckpt_fail(err, CKPT_EUSAGE, "a path of 1 to %d bytes is needed", WT_PATH - 1);
    if (path[n - 1] != '/')
        return ckpt_convert(w->map, &target, &run, NULL, err);
    memcpy(folder, path, n);
    while (n > 1 && folder[n - 1] == '/')
        n--;
    folder[n] = 0;
    return wt_write_folder(w, folder, &run, err);
}

int zt_save_weights(zt_saver *s, const char *path, bool low, ckpt_err *err)
{
    wt_writer w = {.zero = zt_saver_zero(s), .low = low};
    size_t n = strlen(path);
    int rc;

    w.adapter = w.zero->model->lora.rank > 0 && n > 0 && path[n - 1] == '/';
    rc = wt_gather(&w, err);

    rc = zt_comm_agree(w.zero->comm, rc, err);
    if (rc == CKPT_OK && wt_is_writer(&w))
        rc = wt_write(&w, path, err);
    for (size_t i = 0; w.value && i < w.zero->model->params.n; i++)
        ckpt_free(w.value[i]);
    ckpt_free(w.value);
    ckpt_free(w.scratch);
    ckpt_map_free(w.map);
    return zt_comm_agree(w.zero->comm, rc, err);
}
