/* SPDX-License-Identifier: Apache-2.0 */
/* train.c: runs one update after another: micro steps, the update, saves, and the final outputs. */
#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "engine/cuda/load.h"
#include "engine/device/cpu_bf16.h"
#include "engine/inside.h"
#include "engine/save/together.h"
#include "libckpt/io/dir.h"

double zt_now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/*
 * Add the seconds since `from` to a part; returns the present time.  A GPU works behind the host:
 * for a profile, the host waits for it here, so that each part gets its own time.  Otherwise the
 * host goes on, and a part may show the time of the one before.
 */
static double ti_clock(zt_engine *e, int part, double from)
{
    double now;

    if (!e->device->host && (e->opts->profile || e->config.wall_clock))
        e->device->ops->sync(e->device);
    now = zt_now();
    e->seconds[part] += now - from;
    return now;
}

/* Sum over ranks: loss (over micro steps too), requests to stop, tokens. */
static int ti_agree(zt_engine *e, double *loss, bool *stop, uint64_t *tokens, ckpt_err *err)
{
    double all[3] = {*loss, e->opts->stop && *e->opts->stop ? 1 : 0, (double)*tokens};
    int rc = e->comm->ops->all_reduce(e->comm, all, 3, CKPT_F64, ZT_SUM, err);

    *loss = all[0] / ((double)e->comm->world * (double)e->config.accumulation);
    *stop = all[1] > 0;
    *tokens = (uint64_t)all[2];
    return rc;
}

/*
 * Index of the next micro batch: the first one after the samples seen, even if the global batch
 * size has changed.
 */
static uint64_t ti_first(const zt_engine *e)
{
    uint64_t each = (uint64_t)e->config.micro_batch * (uint64_t)e->comm->world;

    return zt_data_is_replay(e->data)
               ? (uint64_t)e->zero->global_steps * (uint64_t)e->config.accumulation
               : (uint64_t)e->zero->global_samples / each;
}

/* Traffic between ranks since `before`; also add it to the total. */
static void ti_traffic(zt_engine *e, const zt_traffic *before, zt_traffic *now)
{
    const zt_traffic *t = e->comm->traffic;
    zt_traffic *all = &e->traffic;

    *now = (zt_traffic){.sent = t->sent - before->sent,
                        .received = t->received - before->received,
                        .words_sent = t->words_sent - before->words_sent,
                        .words_received = t->words_received - before->words_received};
    all->sent += now->sent;
    all->received += now->received;
    all->words_sent += now->words_sent;
    all->words_received += now->words_received;
}

int zt_engine_step(zt_engine *e, zt_progress *p, bool *stop, ckpt_err *err)
{
    uint64_t first = ti_first(e);
    double start = zt_now(), t = start;
    zt_traffic before = *e->comm->traffic;
    int rc = CKPT_OK;

    *p = (zt_progress){0};
    for (int64_t k = 0; rc == CKPT_OK && k < e->config.accumulation; k++) {
        zt_batch batch;
        double loss = 0;

        rc = zt_comm_agree(e->comm, zt_data_batch(e->data, first + (uint64_t)k, &batch, err), err);
        t = ti_clock(e, ZT_T_DATA, t);
        if (rc == CKPT_OK)
            rc = zt_zero_micro(e->zero, &batch, &loss, err);
        t = ti_clock(e, ZT_T_MICRO, t);
        if (rc == CKPT_OK)
            rc = zt_zero_step(e->zero, &p->step, err);
        t = ti_clock(e, ZT_T_UPDATE, t);
        p->loss += loss;
        p->tokens += rc == CKPT_OK ? zt_batch_state(&batch) : 0;
    }
    if (rc == CKPT_OK)
        rc = ti_agree(e, &p->loss, stop, &p->tokens, err);
    ti_traffic(e, &before, &p->traffic);
    p->seconds = zt_now() - start;
    if (rc == CKPT_OK && e->made > 0) {
        e->paced_tokens += p->tokens;
        e->paced_seconds += p->seconds;
    }
    e->made += rc == CKPT_OK;
    *stop = *stop || e->zero->global_steps >= e->total_steps;
    return rc;
}

static zt_save_opts ti_save_opts(const zt_engine *e)
{
    const zt_options *o = e->opts;

    return (zt_save_opts){.dir = o->save,
                          .tag = o->tag,
                          .keep = o->keep,
                          .spare = e->best.tag[0] ? e->best.tag : NULL,
                          .force = o->force,
                          .async = o->async_save};
}

int zt_engine_save(zt_engine *e, ckpt_err *err)
{
    const zt_save_opts s = ti_save_opts(e);
    double t = zt_now();
    int rc = zt_save(e->saver, &s, err);

    e->saved = rc == CKPT_OK ? e->zero->global_steps : e->saved;
    ti_clock(e, ZT_T_SAVE, t);
    return rc;
}

int zt_engine_best(zt_engine *e, const zt_score *score, bool *better, ckpt_err *err)
{
    int rc = CKPT_OK;

    *better = zt_best_is(e, score);
    if (!*better)
        return rc;
    if (e->saved != e->zero->global_steps)
        rc = zt_engine_save(e, err);
    // best.json may name only a complete checkpoint
    if (rc == CKPT_OK)
        rc = zt_save_wait(e->saver, err);
    return rc == CKPT_OK ? zt_best_note(e, score, err) : rc;
}

/* Path of the model to which an adapter belongs; NULL: no folder has its weights. */
static const char *ti_base(zt_engine *e, const char *folder)
{
    struct stat st;

    if (e->init && stat(e->init, &st) == 0 && S_ISDIR(st.st_mode))
        return e->init;
    return e->drawn ? NULL : folder;
}

/* Set the options of a final output: a file of weights, or a folder; false: it is not requested. */
static bool ti_weights(zt_engine *e, bool folder, zt_weights_opts *out)
{
    const zt_options *o = e->opts;
    const char *slash = o->model ? strrchr(o->model, '/') : NULL;
    bool named = false;

    *out = (zt_weights_opts){.path = o->save_weights, .force = o->force};
    if (!folder)
        return o->save_weights != NULL;
    if (!o->save_model)
        return false;
    *out = (zt_weights_opts){.path = ckpt_arena_printf(e->arena, "%s/", o->save_model),
                             .low = true,
                             .force = o->force,
                             .folder = zt_model_folder(e, &named)};
    out->base = ti_base(e, out->folder);
    if (!named && strcmp(slash ? slash + 1 : o->model, "config.json") != 0)
        out->config = o->model;
    out->path = out->folder ? out->path : NULL;
    return true;
}

int zt_engine_finish(zt_engine *e, ckpt_err *err)
{
    double t = zt_now();
    int rc = zt_save_wait(e->saver, err);

    if (rc == CKPT_OK)
        rc = zt_best_load(e, err);
    for (int folder = 0; rc == CKPT_OK && folder < 2; folder++) {
        zt_weights_opts w;
        bool wanted = ti_weights(e, folder, &w);
        rc = zt_comm_agree(e->comm, wanted && !w.path ? ckpt_fail_memory(err) : CKPT_OK, err);
        if (rc == CKPT_OK && wanted)
            rc = zt_save_weights(e->saver, &w, err);
    }
    ti_clock(e, ZT_T_SAVE, t);
    return rc;
}

/* Check that an output folder can be created; the trial leaves no trace. */
static int ti_try_folder(const char *path, ckpt_err *err)
{
    ckpt_dir d;
    int rc = ckpt_dir_make(&d, path, err);

    if (rc == CKPT_OK && access(path, W_OK | X_OK) != 0)
        rc = ckpt_fail_sys(err, CKPT_EIO, errno, "%s: cannot be written", path);
    ckpt_dir_close(&d);
    return rc;
}

int zt_engine_try_outputs(zt_engine *e, ckpt_err *err)
{
    const zt_options *o = e->opts;
    const char *slash = o->save_weights ? strrchr(o->save_weights, '/') : NULL;
    int rc = zt_best_begin(e, err);

    if (rc == CKPT_OK && e->comm->rank == 0 && o->save)
        rc = ti_try_folder(o->save, err);
    rc = zt_comm_agree(e->comm, rc, err);
    if (rc == CKPT_OK && o->save && e->comm->world > 1)
        rc = zt_together_try(e->comm, o->save, e->config.node_local, err);
    if (rc == CKPT_OK && o->save) {
        const zt_save_opts s = ti_save_opts(e);
        ckpt_err once;
        rc = zt_comm_agree(e->comm, zt_saver_try(e->saver, &s, err), err);
        if (e->comm->rank != 0)
            (void)zt_save_remark(e->saver, &once); // rank 0 reports the warning
    }
    if (rc == CKPT_OK && e->comm->rank == 0 && o->save_model)
        rc = ti_try_folder(o->save_model, err);
    if (rc == CKPT_OK && e->comm->rank == 0 && slash && slash > o->save_weights) {
        const char *folder =
            ckpt_arena_string(e->arena, o->save_weights, (size_t)(slash - o->save_weights));
        rc = folder ? ti_try_folder(folder, err) : ckpt_fail_memory(err);
    }
    for (int folder = 0; rc == CKPT_OK && e->comm->rank == 0 && folder < 2; folder++) {
        zt_weights_opts w;
        if (ti_weights(e, folder, &w))
            rc = w.path ? zt_try_weights(e->saver, &w, err) : ckpt_fail_memory(err);
    }
    return zt_comm_agree(e->comm, rc, err);
}

/* ---- properties ---- */

const zt_config *zt_engine_config(const zt_engine *e)
{
    return &e->config;
}

static uint64_t ti_flops(const zt_engine *e)
{
    const zt_model_config *c = &e->model_config;

    return 6 * zt_model_count(e->model, false) + 12 * c->layers * c->hidden * e->seq;
}

/* See zt_about.products. */
static const char *ti_products(const zt_engine *e)
{
    if (!e->device->host || e->config.dtype != CKPT_BF16)
        return NULL;
    return zt_cpu_has_bf16() ? "by AMX" : "as fp32, because AMX is missing";
}

void zt_engine_about(const zt_engine *e, zt_about *out)
{
    *out = (zt_about){.rank = e->comm->rank,
                      .world = e->comm->world,
                      .config = &e->config,
                      .class_name = e->model_config.class_name,
                      .n_params = zt_model_count(e->model, false),
                      .n_trained = zt_model_count(e->model, true),
                      .init = e->init,
                      .drawn = e->drawn,
                      .drawn_warns = e->drawn_warns,
                      .n_drawn = e->n_drawn,
                      .n_unused = e->n_unused,
                      .n_missing = e->loaded.n_missing,
                      .total_steps = e->total_steps,
                      .device = e->device->host ? NULL : e->device->ops->name,
                      .wire = e->wire ? e->wire->ops->name : NULL,
                      .card = e->card,
                      .products = ti_products(e),
                      .flops = ti_flops(e),
                      .tag = e->loaded.tag,
                      .loaded_steps = e->loaded.global_steps,
                      .with_optimizer = e->loaded.with_optimizer,
                      .optimizer_updates = e->loaded.optimizer_updates,
                      .updates = e->loaded.updates,
                      .positions = e->model_config.positions,
                      .reach = zt_model_config_reach(&e->model_config),
                      .replaced = e->loaded.replaced,
                      .fresh_schedule = e->loaded.fresh_schedule,
                      .unlike_path = e->unlike_path,
                      .unlike_model = e->unlike_model,
                      .unlike_data = e->unlike_data};
    for (size_t i = 0; i < 2; i++) {
        const zt_data *d = i == 0 ? e->data : e->eval_data;
        uint64_t batch;

        if (!d)
            continue;
        out->unused[i] = zt_data_get_unused(d);
        out->n_samples[i] = zt_data_count(d);
        out->n_silent[i] = e->n_silent[i];
        zt_data_shape(d, &batch, &out->row[i]);
    }
}

void zt_engine_standing(const zt_engine *e, zt_standing *out)
{
    out->steps = e->zero->global_steps;
    out->samples = e->zero->global_samples;
    out->scaler = e->zero->scaler;
    zt_zero_memory(e->zero, &out->memory);
    out->peak = e->device->peak;
    out->attention[0] = '\0';
    if (!e->device->host)
        zt_cuda_attends(e->device, out->attention, sizeof out->attention);
    memcpy(out->seconds, e->seconds, sizeof out->seconds);
    zt_zero_home_times(e->zero, &out->home);
    out->paced_tokens = e->paced_tokens;
    out->paced_seconds = e->paced_seconds;
    out->made = e->made;
    out->traffic = e->traffic;
    out->counted = !e->wire || e->wire->traffic;
}

int64_t zt_engine_epochs(const zt_engine *e)
{
    bool replay = zt_data_is_replay(e->data);
    uint64_t n = replay ? zt_data_batches(e->data) : zt_data_count(e->data);
    uint64_t seen = replay ? (uint64_t)e->zero->global_steps * (uint64_t)e->config.accumulation
                           : (uint64_t)e->zero->global_samples;

    return n > 0 ? (int64_t)(seen / n) : 0;
}

int zt_engine_traffic(const zt_engine *e, zt_traffic *out, ckpt_err *err)
{
    return e->comm->ops->all_gather(e->comm, out, &e->traffic, sizeof *out, CKPT_U8, err);
}

int zt_engine_agree(const zt_engine *e, int rc, ckpt_err *err)
{
    return zt_comm_agree(e->comm, rc, err);
}

bool zt_engine_remark(zt_engine *e, ckpt_err *out)
{
    return zt_save_remark(e->saver, out);
}

bool zt_engine_gone(zt_engine *e, char out[ZT_SAVE_NAMES])
{
    return zt_save_gone(e->saver, out);
}
