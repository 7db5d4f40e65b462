/* SPDX-License-Identifier: Apache-2.0 */
/*
 * restore.c: counters, groups, schedule and scaler of a run that goes on.
 *
 * As DeepSpeed's load_checkpoint does it: what the checkpoint says wins over the configuration;
 * what it does not say stays as configured.
 */
#include "engine/save/restore.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "libckpt/base/mem.h"

/* Steps and samples that a run may have made. */
#define RS_MOST (INT64_C(1) << 53)

/* A number, int or float. */
static bool rs_number(const ckpt_value *v, double *out)
{
    int64_t i = 0;

    if (v && v->kind == CKPT_V_FLOAT && isfinite(v->as.f)) {
        *out = v->as.f;
        return true;
    }
    if (!ckpt_value_as_int(v, &i))
        return false;
    *out = (double)i;
    return true;
}

static void rs_int(const ckpt_value *dict, const char *key, int64_t *out)
{
    int64_t i = 0;

    if (ckpt_value_as_int(ckpt_value_get(dict, key), &i))
        *out = i;
}

static void rs_double(const ckpt_value *dict, const char *key, double *out)
{
    (void)rs_number(ckpt_value_get(dict, key), out);
}

/* ---- groups ---- */

static void rs_group(zt_group *g, const ckpt_value *fields)
{
    ckpt_seq betas = ckpt_value_seq(ckpt_value_get(fields, "betas"));

    rs_double(fields, "lr", &g->hyper.lr);
    if (betas.n == 2) {
        (void)rs_number(betas.at[0], &g->hyper.beta1);
        (void)rs_number(betas.at[1], &g->hyper.beta2);
    }
}

/*
 * Settings of the next update.  Groups cut another way than the checkpoint's have its first group's
 * learning rate and betas, and their own weight decay.
 */
static bool rs_groups(zt_zero *z, const ckpt_state *state)
{
    bool same = state->group.n == z->n_groups;
    bool found = false;

    for (uint32_t i = 0; i < z->n_groups && state->group.n > 0; i++) {
        const ckpt_value *fields = state->group.at[same ? i : 0].fields;
        if (!fields)
            continue;
        rs_group(&z->group[i], fields);
        if (same)
            rs_double(fields, "weight_decay", &z->group[i].hyper.weight_decay);
        found = true;
    }
    return found;
}

/*
 * Muon's matrices stand by size in files of stage 3, but as the model has them where it was made
 * under zero.Init, which leaves the class nothing to sort by: then saves list them so too.
 */
static bool rs_plain_matrices(const ckpt_state *state)
{
    for (size_t g = 0; state->stage == 3 && g < state->group.n; g++) {
        const ckpt_group *group = &state->group.at[g];
        int64_t muon = 0;
        if (!ckpt_value_as_int(ckpt_value_get(group->fields, "use_muon"), &muon) || !muon)
            continue;
        for (size_t i = 1; i < group->n; i++) {
            const ckpt_tensor *a = state->param.at[group->first + i - 1],
                              *b = state->param.at[group->first + i];
            uint32_t k = 0, n = a->ndim < b->ndim ? a->ndim : b->ndim;
            while (k < n && a->shape[k] == b->shape[k])
                k++;
            if (k < n ? a->shape[k] < b->shape[k] : a->ndim < b->ndim)
                return true;
        }
    }
    return false;
}

/* ---- schedule ---- */

/* Where the checkpoint keeps no groups, the schedule says what they would be. */
static int rs_run_schedule(zt_zero *z, int64_t last, ckpt_err *err)
{
    zt_hyper *hyper = ckpt_alloc((z->n_groups + 1) * sizeof *hyper);
    double *own = ckpt_alloc((z->n_groups + 1) * sizeof *own);
    int rc = hyper && own ? CKPT_OK : ckpt_fail_memory(err);

    for (uint32_t i = 0; rc == CKPT_OK && i < z->n_groups; i++) {
        hyper[i] = z->group[i].hyper;
        own[i] = z->group[i].lr;
    }
    if (rc == CKPT_OK) {
        zt_schedule_begin(&z->schedule, hyper, own, z->n_groups);
        // a step depends on its number alone
        z->schedule.last = last - 1;
        zt_schedule_step(&z->schedule, hyper, own, z->n_groups);
    }
    for (uint32_t i = 0; rc == CKPT_OK && i < z->n_groups; i++)
        z->group[i].hyper = hyper[i];
    ckpt_free(hyper);
    ckpt_free(own);
    return rc;
}

static int rs_schedule(zt_zero *z, const ckpt_state *state, bool groups, ckpt_err *err)
{
    const ckpt_value *saved = ckpt_value_get(state->model, "lr_scheduler");
    int64_t last = z->schedule.last;
    int rc = CKPT_OK;

    if (z->schedule.type == ZT_SCHEDULE_NONE)
        return rc;
    // a schedule of another framework is not ours to go on with: the configured one begins at
    // its step
    if (state->foreign && !ckpt_value_get(saved, "last_batch_iteration"))
        last += z->updates;
    rs_int(saved, "last_batch_iteration", &last);
    if (last < -1 || last > RS_MOST)
        return ckpt_fail(err, CKPT_EFORMAT, "lr_scheduler: last_batch_iteration is %" PRId64, last);
    if (!groups && last >= 0)
        rc = rs_run_schedule(z, last, err);
    z->schedule.last = last;
    return rc;
}

/* ---- loss scale ---- */

/* A factor as it stands there: zt_scaler_check refuses what is not finite, and nothing hides it. */
static bool rs_factor(const ckpt_value *v, double *out)
{
    if (v && v->kind == CKPT_V_FLOAT) {
        *out = v->as.f;
        return true;
    }
    return rs_number(v, out);
}

/* Fields that all forms share; `from` is the scaler's state or the optimizer's dict of stage 0. */
static void rs_scaler_fields(zt_scaler *s, const ckpt_value *from)
{
    const ckpt_value *scale = ckpt_value_get(from, "cur_scale");

    if (rs_factor(scale, &s->scale))
        s->touched = scale->kind == CKPT_V_FLOAT;
    rs_int(from, "cur_iter", &s->iter);
    rs_int(from, "last_overflow_iter", &s->last_overflow);
    (void)rs_factor(ckpt_value_get(from, "scale_factor"), &s->factor);
    rs_int(from, "scale_window", &s->window);
}

static int rs_scaler(zt_zero *z, const ckpt_state *state, ckpt_err *err)
{
    zt_scaler *s = &z->scaler;
    const ckpt_value *optim = ckpt_value_get(state->optim, "optimizer_state_dict");
    const ckpt_value *object = ckpt_value_get(optim, "loss_scaler"), *from;
    int64_t on = 0;

    from = object && object->kind == CKPT_V_OBJECT ? object->as.object->state
                                                   : ckpt_value_get(state->model, "optimizer");
    (void)ckpt_value_as_int(ckpt_value_get(from, object ? "dynamic" : "dynamic_loss_scale"), &on);
    // A run of another precision keeps its own.
    if (!s->dynamic || !on)
        return CKPT_OK;
    rs_scaler_fields(s, from);
    (void)rs_factor(ckpt_value_get(from, "min_scale"), &s->min_scale);
    rs_int(from, "delayed_shift", &s->hysteresis);
    rs_int(from, "cur_hysteresis", &s->left);
    on = s->consecutive;
    rs_int(from, "consecutive_hysteresis", &on);
    s->consecutive = on != 0;
    return zt_scaler_check(s, err);
}

/* ---- all ---- */

/* A counter of the first model file. */
static int rs_counter(const ckpt_state *state, const char *key, int64_t *out, ckpt_err *err)
{
    rs_int(state->model, key, out);
    if (*out < 0 || *out > RS_MOST)
        return ckpt_fail(err, CKPT_EFORMAT, "%s is %" PRId64 ", expected 0 to %" PRId64, key, *out,
                         RS_MOST);
    return CKPT_OK;
}

int zt_restore(zt_zero *z, const ckpt_state *state, int64_t step, ckpt_err *err)
{
    int64_t batch = z->config->train_batch;
    int rc = rs_counter(state, "global_steps", &z->global_steps, err);

    if (rc == CKPT_OK) {
        z->global_samples = z->global_steps > RS_MOST / batch ? RS_MOST : z->global_steps * batch;
        rc = rs_counter(state, "global_samples", &z->global_samples, err);
    }
    z->skipped = 0;
    if (rc == CKPT_OK)
        rc = rs_counter(state, "skipped_steps", &z->skipped, err);
    if (rc != CKPT_OK)
        return rc;
    if (__builtin_mul_overflow(z->global_steps, z->config->accumulation, &z->micro_steps))
        return ckpt_fail(err, CKPT_EFORMAT, "global_steps is %" PRId64, z->global_steps);
    z->plain_matrices = rs_plain_matrices(state);
    z->updates = step >= 0 ? step : z->global_steps - z->skipped;
    if (z->updates < 0)
        return ckpt_fail(err, CKPT_EFORMAT, "%" PRId64 " steps, %" PRId64 " of them skipped",
                         z->global_steps, z->skipped);
    rc = rs_schedule(z, state, rs_groups(z, state), err);
    return rc == CKPT_OK ? rs_scaler(z, state, err) : rc;
}
