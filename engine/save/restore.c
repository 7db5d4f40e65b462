/* SPDX-License-Identifier: Apache-2.0 */
/*
 * restore.c: restores counters, groups, schedule and scaler of a resumed run.
 *
 * As in DeepSpeed's load_checkpoint, values of the checkpoint override the configuration, and the
 * configuration supplies values that the checkpoint lacks.
 */
#include "engine/save/restore.h"

#include <inttypes.h>
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "libckpt/base/mem.h"

/* Maximum of steps and samples, to reject damaged counters. */
#define RS_MOST (INT64_C(1) << 53)

#define RS_NONE UINT32_MAX

/* Read a number, int or float. */
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

/* ---- groups ---- */

/* How this run's groups relate to the checkpoint's groups, from which their parameters come. */
typedef struct rs_cut {
    uint32_t *of;   /* per parameter of the model: its group in the checkpoint; RS_NONE */
    uint32_t *only; /* per group of this run: its only source group; RS_NONE */
    bool same;      /* groups map one to one to source groups */
} rs_cut;

typedef struct rs_home {
    const ckpt_tensor *tensor;
    uint32_t group;
} rs_home;

static int rs_by_tensor(const void *a, const void *b)
{
    uintptr_t x = (uintptr_t)((const rs_home *)a)->tensor;
    uintptr_t y = (uintptr_t)((const rs_home *)b)->tensor;

    return (x > y) - (x < y);
}

static int rs_cut_of(const zt_zero *z, const ckpt_state *state, const ckpt_tensor *const *from,
                     rs_cut *cut, ckpt_err *err)
{
    rs_home *home = ckpt_alloc((state->param.n + 1) * sizeof *home);
    size_t n = 0;

    if (!home)
        return ckpt_fail_memory(err);
    for (uint32_t g = 0; g < state->group.n; g++) {
        const ckpt_group *group = &state->group.at[g];
        for (size_t k = group->first; k < group->first + group->n && n < state->param.n; k++)
            home[n++] = (rs_home){state->param.at[k], g};
    }
    qsort(home, n, sizeof *home, rs_by_tensor);
    for (size_t i = 0; i < z->model->params.n; i++) {
        const rs_home key = {.tensor = from[i]};
        const rs_home *found =
            from[i] && n ? bsearch(&key, home, n, sizeof *home, rs_by_tensor) : NULL;
        cut->of[i] = found ? found->group : RS_NONE;
    }
    ckpt_free(home);
    return CKPT_OK;
}

/* A setting of a group. */
typedef struct rs_setting {
    const char *name;
    const char *part; /* of a list: "[0]" */
    size_t at;        /* offset in zt_hyper */
    bool flag;        /* a bool there, else a double */
} rs_setting;

#define RS_AT(field) offsetof(zt_hyper, field)

static const rs_setting rs_settings[] = {
    {"lr", "", RS_AT(lr), false},
    {"betas", "[0]", RS_AT(beta1), false},
    {"betas", "[1]", RS_AT(beta2), false},
    {"eps", "", RS_AT(eps), false},
    {"weight_decay", "", RS_AT(weight_decay), false},
    {"momentum", "", RS_AT(momentum), false},
    {"dampening", "", RS_AT(dampening), false},
    {"nesterov", "", RS_AT(nesterov), true},
    {"lr_decay", "", RS_AT(lr_decay), false},
    {"max_coeff", "", RS_AT(max_coeff), false},
    {"min_coeff", "", RS_AT(min_coeff), false},
    {"bias_correction", "", RS_AT(bias_correction), true},
    {"ns_method", "", RS_AT(muon_gram), true},
};

#define RS_SETTINGS (sizeof rs_settings / sizeof *rs_settings)

static double rs_value(const zt_hyper *h, const rs_setting *s)
{
    const char *at = (const char *)h + s->at;

    return s->flag ? (double)*(const bool *)at : *(const double *)(const void *)at;
}

static bool rs_differs(const zt_hyper *a, const zt_hyper *b, const rs_setting *s)
{
    const double x = rs_value(a, s), y = rs_value(b, s);

    return x < y || x > y;
}

/* The name of a setting, other than weight decay, in which two groups differ; NULL: none. */
static const char *rs_apart(const zt_hyper *a, const zt_hyper *b)
{
    for (size_t i = 0; i < RS_SETTINGS; i++) {
        const rs_setting *s = &rs_settings[i];

        if (s->at != RS_AT(weight_decay) && rs_differs(a, b, s))
            return s->name;
    }
    return NULL;
}

/* Read the settings of a group of the checkpoint. */
static int rs_take(const zt_zero *z, const ckpt_state *state, uint32_t from, zt_hyper *h,
                   ckpt_err *err)
{
    ckpt_err local = {0};
    int rc = zt_optim_take(&z->config->optim, h, state->group.at[from].fields, &local);

    return rc == CKPT_OK ? rc
                         : ckpt_fail(err, rc, "group %" PRIu32 " of the checkpoint's optimizer: %s",
                                     from, local.text);
}

/*
 * Set one group's settings for the next update from the groups of its parameters.  If groups are
 * divided differently now, weight decay stays as configured, because it is the criterion of the
 * division.
 */
static int rs_group(zt_zero *z, const ckpt_state *state, uint32_t group, rs_cut *cut, ckpt_err *err)
{
    zt_group *g = &z->group[group];
    const zt_hyper was = g->hyper;
    uint32_t first = RS_NONE;
    int rc = CKPT_OK;

    for (uint32_t i = g->first; rc == CKPT_OK && i < g->first + g->n; i++) {
        uint32_t at = cut->of[z->order[i]];
        zt_hyper h = was;
        const char *name;
        if (at == RS_NONE || at == first || !state->group.at[at].fields)
            continue;
        rc = rs_take(z, state, at, &h, err);
        name = rc == CKPT_OK && first != RS_NONE ? rs_apart(&g->hyper, &h) : NULL;
        if (name)
            return ckpt_fail(err, CKPT_EMISMATCH,
                             "groups %" PRIu32 " and %" PRIu32
                             " of the checkpoint's optimizer differ in %s, but this run puts "
                             "parameters of both in one group: choose other --param-groups",
                             first, at, name);
        cut->same = cut->same && first == RS_NONE;
        g->hyper = h;
        first = at;
    }
    cut->only[group] = first;
    return rc;
}

/* True if groups correspond one for one: each has one source group, all different. */
static bool rs_same(const zt_zero *z, const rs_cut *cut)
{
    bool same = cut->same;

    for (uint32_t i = 0; same && i < z->n_groups; i++) {
        for (uint32_t k = 0; same && k < i; k++)
            same = cut->only[k] != cut->only[i];
    }
    return same;
}

/* Set all groups' settings for the next update; *found: the checkpoint has some. */
static int rs_groups(zt_zero *z, const ckpt_state *state, const ckpt_tensor *const *from,
                     bool *found, ckpt_err *err)
{
    rs_cut cut = {.of = ckpt_alloc((z->model->params.n + 1) * sizeof *cut.of),
                  .only = ckpt_alloc((z->n_groups + 1) * sizeof *cut.only),
                  .same = true};
    int rc = cut.of && cut.only ? rs_cut_of(z, state, from, &cut, err) : ckpt_fail_memory(err);

    *found = false;
    for (uint32_t i = 0; rc == CKPT_OK && i < z->n_groups; i++) {
        rc = rs_group(z, state, i, &cut, err);
        *found = *found || cut.only[i] != RS_NONE;
    }
    for (uint32_t i = 0; rc == CKPT_OK && i < z->n_groups && !rs_same(z, &cut); i++)
        z->group[i].hyper.weight_decay = z->group[i].weight_decay;
    ckpt_free(cut.of);
    ckpt_free(cut.only);
    return rc;
}

/* True if a schedule computes a setting anew in every step. */
static bool rs_scheduled(const zt_zero *z, const rs_setting *s)
{
    return (z->schedule.type != ZT_SCHEDULE_NONE && s->at == RS_AT(lr)) ||
           (z->schedule.type == ZT_ONE_CYCLE &&
            (s->at == RS_AT(beta1) || s->at == RS_AT(beta2) || s->at == RS_AT(momentum)));
}

/* List the settings that the configuration names and that the checkpoint's values replaced. */
static void rs_list_replaced(const zt_zero *z, char replaced[ZT_REPLACED])
{
    const zt_optim *o = &z->config->optim;
    size_t n = 0;

    for (size_t i = 0; i < RS_SETTINGS; i++) {
        const rs_setting *s = &rs_settings[i];
        bool found = rs_scheduled(z, s) || !zt_optim_names(o, s->name);

        for (uint32_t g = 0; !found && g < z->n_groups && n + 1 < ZT_REPLACED; g++) {
            const zt_group *group = &z->group[g];
            zt_hyper was = zt_optim_hyper(o, group->muon);

            was.lr = group->lr;
            was.weight_decay = group->weight_decay;
            found = rs_differs(&was, &group->hyper, s);
            if (found)
                n += (size_t)snprintf(replaced + n, ZT_REPLACED - n,
                                      "%s%s%s %.9g (configuration: %.9g)", n ? ", " : "", s->name,
                                      s->part, rs_value(&group->hyper, s), rs_value(&was, s));
        }
    }
}

/*
 * Files of stage 3 list Muon's matrices by size.  Under zero.Init they keep the model's order,
 * because the optimizer class then sees no shapes to sort by; later saves must use the same order.
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

/* If the checkpoint has no groups, compute their settings from the schedule. */
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

/* Restore the base rates of a LambdaLR: they replace the configured ones, as in torch. */
static void rs_base_rates(zt_zero *z, const ckpt_value *saved)
{
    const ckpt_value *list = ckpt_value_get(saved, "base_lrs");
    ckpt_seq base = ckpt_value_seq(list);

    if (!zt_schedule_is_factor(&z->schedule) || base.n != z->n_groups)
        return;
    for (uint32_t i = 0; i < z->n_groups; i++)
        (void)rs_number(base.at[i], &z->group[i].lr);
}

/* The last step of a schedule: DeepSpeed's counts from -1, torch's from 0. */
static void rs_last(const ckpt_value *saved, int64_t *last)
{
    int64_t epoch = *last + 1;

    rs_int(saved, "last_epoch", &epoch);
    if (epoch >= 0)
        *last = epoch - 1;
    rs_int(saved, "last_batch_iteration", last);
}

/* True if a run that made updates without a schedule continues with one. */
static bool rs_is_fresh(const zt_zero *z, const ckpt_state *state)
{
    const ckpt_value *saved = ckpt_value_get(state->model, "lr_scheduler");

    return z->schedule.type != ZT_SCHEDULE_NONE && !state->foreign && z->updates > 0 &&
           (!saved || saved->kind == CKPT_V_NONE);
}

static int rs_schedule(zt_zero *z, const ckpt_state *state, bool groups, ckpt_err *err)
{
    const ckpt_value *saved = ckpt_value_get(state->model, "lr_scheduler");
    int64_t last = z->schedule.last;
    int rc = CKPT_OK;

    if (z->schedule.type == ZT_SCHEDULE_NONE)
        return rc;
    // another framework's schedule cannot be continued: begin the configured one at its step
    if (state->foreign && !ckpt_value_get(saved, "last_batch_iteration"))
        last += z->updates;
    else
        rs_last(saved, &last);
    rs_base_rates(z, saved);
    if (last < -1 || last > RS_MOST)
        return ckpt_fail(err, CKPT_EFORMAT,
                         "lr_scheduler: last_batch_iteration is %" PRId64 ", which is out of range",
                         last);
    if (!groups && last >= 0)
        rc = rs_run_schedule(z, last, err);
    z->schedule.last = last;
    return rc;
}

/* ---- loss scale ---- */

/*
 * Read a factor unchecked, because zt_scaler_check must see and refuse values that are not finite.
 */
static bool rs_factor(const ckpt_value *v, double *out)
{
    if (v && v->kind == CKPT_V_FLOAT) {
        *out = v->as.f;
        return true;
    }
    return rs_number(v, out);
}

/*
 * Read the fields that all forms share; `from` is the scaler's state or the optimizer's dict of
 * stage 0.
 */
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
    // unless this run and the saved one both have a dynamic scale, keep this run's scaler
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

/* Read a counter of the first model file. */
static int rs_counter(const ckpt_state *state, const char *key, int64_t *out, ckpt_err *err)
{
    rs_int(state->model, key, out);
    if (*out < 0 || *out > RS_MOST)
        return ckpt_fail(err, CKPT_EFORMAT, "%s is %" PRId64 ", expected 0 to %" PRId64, key, *out,
                         RS_MOST);
    return CKPT_OK;
}

int zt_restore(zt_zero *z, const ckpt_state *state, const ckpt_tensor *const *from, int64_t step,
               zt_loaded *out, ckpt_err *err)
{
    bool groups = false;
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
        return ckpt_fail(err, CKPT_EFORMAT, "global_steps is %" PRId64 ", which is too large",
                         z->global_steps);
    z->plain_matrices = rs_plain_matrices(state);
    z->updates = step >= 0 ? step : z->global_steps - z->skipped;
    if (z->updates < 0)
        return ckpt_fail(err, CKPT_EFORMAT,
                         "the checkpoint has %" PRId64 " steps, but %" PRId64 " skipped steps",
                         z->global_steps, z->skipped);
    rc = rs_groups(z, state, from, &groups, err);
    if (rc == CKPT_OK)
        rc = rs_schedule(z, state, groups, err);
    out->fresh_schedule = rs_is_fresh(z, state);
    out->replaced[0] = 0;
    if (rc == CKPT_OK && groups)
        rs_list_replaced(z, out->replaced);
    return rc == CKPT_OK ? rs_scaler(z, state, err) : rc;
}
