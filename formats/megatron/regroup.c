/* SPDX-License-Identifier: Apache-2.0 */
/*
 * regroup.c: divides the parameters of a run into Megatron's parameter groups.
 *
 * Megatron identifies a group by wd_mult, lr_mult, is_expert_parallel and is_decoupled_lr, and puts
 * each parameter into a group by its name and shape.  It multiplies the schedule's weight decay
 * with wd_mult, which is 0 for biases and norms.
 */
#include <assert.h>
#include <inttypes.h>
#include <string.h>

#include "ckpt.h"
#include "formats/megatron/write.h"
#include "formats/training/torch_settings.h"

typedef struct mgp_maker {
    const ckpt_train_job *job;
    ckpt_meg_regroups *out;
    ckpt_reader *reader;
    ckpt_err *err;
} mgp_maker;

/* ---- settings ---- */

static bool mgp_put(mgp_maker *m, ckpt_value *settings, const char *key, ckpt_value *v)
{
    return ckpt_value_get(settings, key) ||
           ckpt_dict_add_cstr(m->job->to->arena, &settings->as.map, key, v);
}

/* Read the step count of a group; *has: it has one. */
static int mgp_step(mgp_maker *m, const ckpt_group *g, bool *has, double *step)
{
    const ckpt_train_job *job = m->job;
    const ckpt_value *v = ckpt_value_get(g->entry, "step");
    const ckpt_tensor *t = NULL;
    int64_t n = 0;

    for (size_t i = 0; !t && i < g->n; i++)
        t = ckpt_state_moment(job->from, job->state, "step", job->state->param.at[g->first + i]);
    *has = t && t->n_elems == 1;
    if (*has)
        return ckpt_reader_read(m->reader, t, 0, 1, CKPT_F64, step, m->err);
    *has = v && (v->kind == CKPT_V_FLOAT || ckpt_value_as_int(v, &n));
    *step = *has && v->kind == CKPT_V_FLOAT ? v->as.f : (double)n;
    return CKPT_OK;
}

/* Make the settings of a group: the source's, those that identify it, and its step count. */
static int mgp_settings(mgp_maker *m, ckpt_meg_regrouped *r)
{
    const ckpt_train_job *job = m->job;
    const ckpt_group *g = &job->state->group.at[r->from];
    ckpt_arena *arena = job->to->arena;
    ckpt_value *settings = ckpt_value_new(arena, CKPT_V_DICT), *had = NULL;
    ckpt_dict fields;
    bool has = false, ok = settings != NULL;
    double step = 0;
    int rc = ckpt_train_torch_settings(&had, job->to, job->state, g, m->err);

    if (rc == CKPT_OK)
        rc = mgp_step(m, g, &has, &step);
    fields = ckpt_value_map(had);
    for (uint64_t i = 0; rc == CKPT_OK && ok && i < fields.n; i++) {
        const ckpt_value *key = fields.at[i].key;
        // a group of DeepSpeed's FusedAdam keeps a step of 0 beside the counts of its parameters
        if (!ckpt_value_is(key, "params") && !ckpt_value_is(key, "param_names") &&
            !(has && ckpt_value_is(key, "step")))
            ok = ckpt_dict_add(arena, &settings->as.map, fields.at[i].key, fields.at[i].value);
    }
    ok = ok && mgp_put(m, settings, "wd_mult", ckpt_value_float(arena, r->decays ? 1 : 0)) &&
         mgp_put(m, settings, "lr_mult", ckpt_value_float(arena, 1)) &&
         mgp_put(m, settings, "is_expert_parallel", ckpt_value_bool(arena, false)) &&
         mgp_put(m, settings, "is_decoupled_lr", ckpt_value_bool(arena, false)) &&
         (!has || mgp_put(m, settings, "step", ckpt_value_float(arena, step)));
    r->settings = settings;
    r->step = has ? step : -1;
    return rc != CKPT_OK || ok ? rc : ckpt_fail_memory(m->err);
}

/* ---- groups ---- */

/* Check that all settings of group a are those of group b, except its list of parameters. */
static int mgp_same(mgp_maker *m, const ckpt_meg_regrouped *r, size_t a, size_t b, const char *name)
{
    const ckpt_groups *groups = &m->job->state->group;
    ckpt_dict fields = ckpt_value_map(groups->at[a].fields);

    for (uint64_t i = 0; i < fields.n; i++) {
        const ckpt_value *key = fields.at[i].key;
        if (key->kind != CKPT_V_STR || ckpt_value_is(key, "params") ||
            ckpt_value_is(key, "param_names"))
            continue;
        const ckpt_value *other = ckpt_value_get(groups->at[b].fields, key->as.text.at);
        bool same = false;
        const int rc = ckpt_value_compare(&same, fields.at[i].value, other, 1 << 16, m->err);
        if (rc != CKPT_OK)
            return rc;
        if (!same)
            return ckpt_fail(m->err, CKPT_EUNSUPPORTED,
                             "%s: Megatron has one parameter group %s weight decay, but %.200s and "
                             "%.200s are in groups %zu and %zu with another %.100s",
                             m->job->from->path, r->decays ? "with" : "without", r->first, name,
                             r->from, a == r->from ? b : a, key->as.text.at);
    }
    return CKPT_OK;
}

/* Fail because two parameters have different step counts; -1: none. */
static int mgp_counts(const mgp_maker *m, double a, const char *first, double b, const char *second)
{
    return ckpt_fail(m->err, CKPT_EUNSUPPORTED,
                     "%s: the optimizer counts %g steps for %.200s and %g for %.200s (-1: none), "
                     "and Megatron has one count for all parameters",
                     m->job->from->path, a, first, b, second);
}

/* Check that a second group of the source may join a group of the output. */
static int mgp_joins(mgp_maker *m, const ckpt_meg_regrouped *r, size_t number, const char *name)
{
    bool has = false;
    double step = 0;
    int rc = mgp_same(m, r, number, r->from, name);

    if (rc == CKPT_OK)
        rc = mgp_same(m, r, r->from, number, name);
    if (rc == CKPT_OK)
        rc = mgp_step(m, &m->job->state->group.at[number], &has, &step);
    if (rc == CKPT_OK && (has ? step : -1) != r->step)
        rc = mgp_counts(m, r->step, r->first, has ? step : -1, name);
    return rc;
}

/* Put a parameter of a group into a group of the output. */
static int mgp_param(mgp_maker *m, size_t number, const ckpt_tensor *t)
{
    bool decays = ckpt_meg_decays(t->name, t->ndim);
    ckpt_meg_regrouped *r = NULL;

    for (size_t i = 0; !r && i < m->out->n; i++)
        r = m->out->at[i].decays == decays ? &m->out->at[i] : NULL;
    if (r)
        return r->from == number ? CKPT_OK : mgp_joins(m, r, number, t->name);
    r = ckpt_vec_push(m->out);
    if (!r)
        return ckpt_fail_memory(m->err);
    *r = (ckpt_meg_regrouped){.from = number, .decays = decays, .first = t->name};
    return mgp_settings(m, r);
}

/*
 * Check that all groups count the same steps: Megatron asserts it when it saves, and torch's AdamW
 * in Megatron when it loads.
 */
static int mgp_steps(const mgp_maker *m)
{
    for (size_t i = 1; i < m->out->n; i++) {
        const ckpt_meg_regrouped *a = &m->out->at[0], *b = &m->out->at[i];
        if (a->step != b->step)
            return mgp_counts(m, a->step, a->first, b->step, b->first);
    }
    return CKPT_OK;
}

/* Say that parameters lose their weight decay. */
static int mgp_decay(const mgp_maker *m, const ckpt_meg_regrouped *r)
{
    const ckpt_value *v = ckpt_value_get(r->settings, "weight_decay");
    double decay = v && v->kind == CKPT_V_FLOAT ? v->as.f
                   : v && v->kind == CKPT_V_INT ? (double)v->as.i
                                                : 0;

    if (r->decays || decay == 0)
        return CKPT_OK;
    return ckpt_map_note(m->job->to, CKPT_WARNING, m->err,
                         "weight_decay: the run had %g for %.200s and other biases and norms; "
                         "Megatron trains these with 0",
                         decay, r->first);
}

static bool mgp_is_megatron(const ckpt_state *state)
{
    return state->group.n > 0 && ckpt_value_get(state->group.at[0].fields, "wd_mult");
}

static int mgp_make(mgp_maker *m)
{
    const ckpt_state *s = m->job->state;
    int rc = CKPT_OK;

    for (size_t g = 0; rc == CKPT_OK && g < s->group.n; g++) {
        const ckpt_group *from = &s->group.at[g];
        ckpt_meg_regrouped *r = mgp_is_megatron(s) ? ckpt_vec_push(m->out) : NULL;
        if (r) {
            *r = (ckpt_meg_regrouped){.from = g, .decays = true};
            rc = mgp_settings(m, r);
            continue;
        }
        if (mgp_is_megatron(s))
            return ckpt_fail_memory(m->err);
        for (size_t i = 0; rc == CKPT_OK && i < from->n; i++)
            rc = mgp_param(m, g, s->param.at[from->first + i]);
        if (rc == CKPT_OK && from->n == 0)
            rc =
                ckpt_train_left_out(m->job, CKPT_INFO, "param_groups.%zu: it has no parameters", g);
    }
    if (rc == CKPT_OK && !mgp_is_megatron(s))
        rc = mgp_steps(m);
    for (size_t i = 0; rc == CKPT_OK && i < m->out->n; i++)
        rc = mgp_decay(m, &m->out->at[i]);
    return rc;
}

int ckpt_meg_regroup(ckpt_meg_regroups *out, const ckpt_train_job *job)
{
    assert(out && job && job->state);
    mgp_maker m = {.job = job, .out = out, .err = job->err};
    int rc = ckpt_reader_new(&m.reader, job->from, job->err);

    if (rc == CKPT_OK)
        rc = mgp_make(&m);
    ckpt_reader_free(m.reader);
    return rc;
}
