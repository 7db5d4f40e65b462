/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tree.c: makes the values other than tensors that DeepSpeed 0.19.8 saves: counters, schedule,
 * scaler, optimizer groups.
 *
 * Keys, their order and the types of values are those of its files (engine.py _save_checkpoint, the
 * optimizers' state_dict), so DeepSpeed continues from them as this run would.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "engine/save/live.h"
#include "libckpt/map/map.h"

#define TR_VERSION "0.19.8"

typedef struct tr_maker {
    ckpt_map *map;
    ckpt_arena *arena;
    const zt_zero *zero;
    const zt_config *config;
    bool bad; /* memory is exhausted */
} tr_maker;

/* ---- nodes; after a failure the result is discarded ---- */

static ckpt_value *tr_keep(tr_maker *m, ckpt_value *v)
{
    m->bad = m->bad || !v;
    return v;
}

static ckpt_value *tr_new(tr_maker *m, ckpt_value_kind kind)
{
    return tr_keep(m, ckpt_value_new(m->arena, kind));
}

static void tr_put(tr_maker *m, ckpt_value *dict, const char *key, ckpt_value *v)
{
    if (!m->bad && v)
        m->bad = !ckpt_dict_add_cstr(m->arena, &dict->as.map, key, v);
    m->bad = m->bad || !v;
}

static void tr_put_int(tr_maker *m, ckpt_value *dict, const char *key, int64_t i)
{
    tr_put(m, dict, key, ckpt_value_int(m->arena, i));
}

static void tr_put_float(tr_maker *m, ckpt_value *dict, const char *key, double f)
{
    tr_put(m, dict, key, ckpt_value_float(m->arena, f));
}

static void tr_put_bool(tr_maker *m, ckpt_value *dict, const char *key, bool b)
{
    tr_put(m, dict, key, ckpt_value_bool(m->arena, b));
}

static void tr_put_none(tr_maker *m, ckpt_value *dict, const char *key)
{
    tr_put(m, dict, key, ckpt_value_new(m->arena, CKPT_V_NONE));
}

static void tr_add(tr_maker *m, ckpt_value *seq, ckpt_value *v)
{
    if (!m->bad && v)
        m->bad = !ckpt_seq_add(m->arena, &seq->as.seq, v);
    m->bad = m->bad || !v;
}

/* A number that is an int in Python unless a float operation has changed it. */
static ckpt_value *tr_number(tr_maker *m, double f, bool is_float)
{
    bool whole = !is_float && f == floor(f) && fabs(f) < 9e15;

    return tr_keep(m, whole ? ckpt_value_int(m->arena, (int64_t)f) : ckpt_value_float(m->arena, f));
}

static ckpt_value *tr_global(tr_maker *m, const char *module, const char *name)
{
    ckpt_value *v = tr_new(m, CKPT_V_GLOBAL);

    if (v) {
        v->as.global.module = (ckpt_text){module, strlen(module)};
        v->as.global.name = (ckpt_text){name, strlen(name)};
    }
    return v;
}

/* A tensor whose values come from the map; writers use only its dtype and shape. */
static ckpt_value *tr_shape(tr_maker *m, ckpt_dtype dtype, const uint64_t *shape, uint32_t ndim)
{
    ckpt_value *v = tr_new(m, CKPT_V_TENSOR);
    ckpt_tensor_value *t = ckpt_arena_alloc(m->arena, sizeof *t);
    uint64_t *own = ckpt_arena_array(m->arena, 2 * (uint64_t)ndim + 1, sizeof *own), by = 1;

    m->bad = m->bad || !v || !t || !own;
    if (m->bad)
        return NULL;
    for (uint32_t i = ndim; i-- > 0; by *= shape[i] ? shape[i] : 1) {
        own[i] = shape[i];
        own[ndim + i] = by;
    }
    *t = (ckpt_tensor_value){.dtype = dtype, .ndim = ndim, .shape = own, .stride = own + ndim};
    v->as.tensor = t;
    return v;
}

/* torch's step count: a tensor without axes and with its own storage. */
static ckpt_value *tr_step_tensor(tr_maker *m, ckpt_err *err)
{
    ckpt_value *v = tr_shape(m, CKPT_F32, NULL, 0);
    ckpt_storage *s = ckpt_arena_alloc(m->arena, sizeof *s);
    float step = (float)m->zero->updates;
    ckpt_source source = {
        .kind = CKPT_SOURCE_MEMORY, .n_bytes = sizeof step, .n_stored = sizeof step};

    source.name = "a step count";
    source.memory = ckpt_arena_copy(m->arena, &step, sizeof step);
    if (!v || !s || !source.memory) {
        m->bad = true;
        return NULL;
    }
    *s = (ckpt_storage){
        .location = {"cpu", 3}, .dtype = CKPT_F32, .n_elems = 1, .n_bytes = sizeof step};
    if (ckpt_map_add_source(m->map, &source, &s->source, err) != CKPT_OK) {
        m->bad = true;
        return NULL;
    }
    v->as.tensor->storage = s;
    return v;
}

/* ---- kind of optimizer ---- */

static bool tr_is_adam(const zt_optim *o)
{
    return o->type == ZT_OPT_ADAM || o->type == ZT_OPT_ADAMW;
}

/* True if, as in FusedAdam (16 bits, stage 0), a group's masters are one flat tensor. */
static bool tr_is_fused(const zt_config *c)
{
    bool adam = tr_is_adam(&c->optim) && !c->optim.torch && !zt_config_is_cpu_optimizer(c);

    return c->stage == 0 && c->dtype != CKPT_F32 && (adam || c->optim.type == ZT_OPT_ONEBIT_ADAM);
}

/* True if the optimizer stores a step count with a group's state. */
static bool tr_has_step(const tr_maker *m, const zt_group *g)
{
    return m->config->optim.type != ZT_OPT_SGD && !g->muon;
}

/* ---- groups of the optimizer ---- */

/* Betas: a list if the configuration has a list and no schedule has changed it, else a tuple. */
static ckpt_value *tr_betas(tr_maker *m, const zt_hyper *h)
{
    const ckpt_value *params =
        ckpt_value_get(ckpt_value_get(m->config->json, "optimizer"), "params");
    const zt_schedule *s = &m->zero->schedule;
    bool cycled = s->type == ZT_ONE_CYCLE && s->cycle_momentum;
    bool list = ckpt_value_get(params, "betas") && !cycled;
    ckpt_value *v = tr_new(m, list ? CKPT_V_LIST : CKPT_V_TUPLE);

    if (v) {
        tr_add(m, v, ckpt_value_float(m->arena, h->beta1));
        tr_add(m, v, ckpt_value_float(m->arena, h->beta2));
    }
    return v;
}

/* Fields at the end of torch's own classes. */
static void tr_torch_tail(tr_maker *m, ckpt_value *v, bool capturable)
{
    tr_put_bool(m, v, "maximize", false);
    tr_put_none(m, v, "foreach");
    if (capturable)
        tr_put_bool(m, v, "capturable", false);
    tr_put_bool(m, v, "differentiable", false);
    tr_put_none(m, v, "fused");
}

/* The base rate, which torch's schedulers add to a group. */
static void tr_initial(tr_maker *m, ckpt_value *v, const zt_group *g)
{
    if (zt_schedule_is_factor(&m->zero->schedule) && !ckpt_value_get(v, "initial_lr"))
        tr_put_float(m, v, "initial_lr", g->lr);
}

/* torch.optim.Adam, AdamW; DeepSpeedCPUAdam; FusedAdam. */
static void tr_adam(tr_maker *m, ckpt_value *v, const zt_group *g, bool decay)
{
    const zt_optim *o = &m->config->optim;
    bool host = zt_config_is_cpu_optimizer(m->config);

    tr_put_float(m, v, "lr", g->hyper.lr);
    if (!o->torch && !host)
        tr_put_bool(m, v, "bias_correction", g->hyper.bias_correction);
    tr_put(m, v, "betas", tr_betas(m, &g->hyper));
    tr_put_float(m, v, "eps", g->hyper.eps);
    if (decay)
        tr_put_float(m, v, "weight_decay", g->hyper.weight_decay);
    if (o->torch) {
        tr_put_bool(m, v, "amsgrad", false);
        tr_torch_tail(m, v, true);
        tr_put_bool(m, v, "decoupled_weight_decay", o->decoupled);
    } else if (host) {
        tr_put_bool(m, v, "bias_correction", g->hyper.bias_correction);
        tr_put_bool(m, v, "amsgrad", false);
    } else {
        tr_initial(m, v, g);
        tr_put_int(m, v, "step", 0); // FusedAdam counts steps in its state, not here
    }
}

static void tr_sgd(tr_maker *m, ckpt_value *v, const zt_group *g, bool decay)
{
    tr_put_float(m, v, "lr", g->hyper.lr);
    tr_put(m, v, "momentum", tr_number(m, g->hyper.momentum, g->hyper.momentum != 0));
    tr_put(m, v, "dampening", tr_number(m, g->hyper.dampening, g->hyper.dampening != 0));
    if (decay)
        tr_put_float(m, v, "weight_decay", g->hyper.weight_decay);
    tr_put_bool(m, v, "nesterov", g->hyper.nesterov);
    tr_put_bool(m, v, "maximize", false);
    tr_put_none(m, v, "foreach");
    tr_put_bool(m, v, "differentiable", false);
    tr_put_none(m, v, "fused");
}

static void tr_adagrad(tr_maker *m, ckpt_value *v, const zt_group *g, bool decay)
{
    const zt_optim *o = &m->config->optim;
    bool torch = strcmp(o->state[0], "sum") == 0;

    tr_put_float(m, v, "lr", g->hyper.lr);
    if (torch)
        tr_put(m, v, "lr_decay", tr_number(m, g->hyper.lr_decay, g->hyper.lr_decay != 0));
    tr_put_float(m, v, "eps", g->hyper.eps);
    if (decay)
        tr_put_float(m, v, "weight_decay", g->hyper.weight_decay);
    if (!torch) {
        tr_put_bool(m, v, "amsgrad", false);
        return;
    }
    tr_put_int(m, v, "initial_accumulator_value", 0);
    tr_put_none(m, v, "foreach");
    tr_put_bool(m, v, "maximize", false);
    tr_put_bool(m, v, "differentiable", false);
    tr_put_none(m, v, "fused");
}

/* LAMB, 1-bit Adam. */
static void tr_lamb(tr_maker *m, ckpt_value *v, const zt_group *g, bool decay)
{
    const zt_optim *o = &m->config->optim;

    tr_put_float(m, v, "lr", g->hyper.lr);
    tr_put_bool(m, v, "bias_correction", g->hyper.bias_correction);
    tr_put(m, v, "betas", tr_betas(m, &g->hyper));
    tr_put_float(m, v, "eps", g->hyper.eps);
    if (decay)
        tr_put_float(m, v, "weight_decay", g->hyper.weight_decay);
    tr_put_float(m, v, "max_grad_norm", 0);
    if (o->type == ZT_OPT_LAMB) {
        tr_put_float(m, v, "max_coeff", g->hyper.max_coeff);
        tr_put_float(m, v, "min_coeff", g->hyper.min_coeff);
    }
}

static void tr_lion(tr_maker *m, ckpt_value *v, const zt_group *g, bool decay)
{
    tr_put_float(m, v, "lr", g->hyper.lr);
    tr_put(m, v, "betas", tr_betas(m, &g->hyper));
    if (decay)
        tr_put_float(m, v, "weight_decay", g->hyper.weight_decay);
}

/*
 * Muon: the group of matrices, or Adam's group with the fields that its class adds
 * (muon_optimizer.py, MuonWithAuxAdam).
 */
static void tr_muon(tr_maker *m, ckpt_value *v, const zt_group *g)
{
    const zt_optim *o = &m->config->optim;
    const zt_hyper *h = &g->hyper;

    tr_put_bool(m, v, "use_muon", g->muon);
    tr_put(m, v, "name", ckpt_value_cstr(m->arena, g->name));
    tr_put_float(m, v, "lr", h->lr);
    if (g->muon) {
        tr_put_float(m, v, "momentum", g->hyper.momentum);
        tr_put(m, v, "weight_decay", tr_number(m, h->weight_decay, h->weight_decay != 0));
        tr_put(m, v, "ns_method",
               ckpt_value_cstr(m->arena, g->hyper.muon_gram ? "gram" : "standard"));
        return;
    }
    tr_put(m, v, "betas", tr_betas(m, h));
    tr_put_float(m, v, "eps", g->hyper.eps);
    tr_put(m, v, "weight_decay", tr_number(m, h->weight_decay, h->weight_decay != 0));
    if (o->torch) {
        tr_put_bool(m, v, "amsgrad", false);
        tr_torch_tail(m, v, true);
        tr_put_bool(m, v, "decoupled_weight_decay", o->decoupled);
        return;
    }
    tr_put_bool(m, v, "bias_correction", true);
    if (!zt_config_is_cpu_optimizer(m->config))
        tr_initial(m, v, g);
    if (zt_config_is_cpu_optimizer(m->config))
        tr_put_bool(m, v, "amsgrad", false);
    else
        tr_put_int(m, v, "step", 0); // FusedAdam does not count here
}

/* A group's entry of param_groups. 'params' comes last; the writer numbers them. */
static ckpt_value *tr_fields(tr_maker *m, const zt_group *g)
{
    ckpt_value *v = tr_new(m, CKPT_V_DICT);
    // fields given to a group come before the class' defaults
    bool own = m->zero->n_groups > 1 && g != m->zero->group && !g->name &&
               g->weight_decay != m->config->optim.h.weight_decay;

    if (!v)
        return NULL;
    if (own)
        tr_put_float(m, v, "weight_decay", g->hyper.weight_decay);
    switch (m->config->optim.type) {
    case ZT_OPT_ADAM:
    case ZT_OPT_ADAMW:
        tr_adam(m, v, g, !own);
        break;
    case ZT_OPT_SGD:
        tr_sgd(m, v, g, !own);
        break;
    case ZT_OPT_ADAGRAD:
        tr_adagrad(m, v, g, !own);
        break;
    case ZT_OPT_LAMB:
    case ZT_OPT_ONEBIT_ADAM:
        tr_lamb(m, v, g, !own);
        break;
    case ZT_OPT_LION:
        tr_lion(m, v, g, !own);
        break;
    case ZT_OPT_MUON:
        tr_muon(m, v, g);
        break;
    }
    tr_initial(m, v, g);
    tr_put(m, v, "params", tr_new(m, CKPT_V_LIST));
    return v;
}

/* The optimizer's state of a group: the step count, flat moments. */
static ckpt_value *tr_entry(tr_maker *m, const zt_group *g, ckpt_err *err)
{
    const zt_optim *o = &m->config->optim;
    bool none = !zt_optim_state(o, g->muon, 0) && !tr_has_step(m, g);
    bool torch = o->torch || (o->type == ZT_OPT_ADAGRAD && strcmp(o->state[0], "sum") == 0);
    const uint64_t flat = 2; // any length except 1
    ckpt_value *v;

    // SGD creates its buffers in the first update
    if (none || (o->type == ZT_OPT_SGD && m->zero->updates == 0))
        return NULL;
    v = tr_new(m, CKPT_V_DICT);
    if (v && tr_has_step(m, g))
        tr_put(m, v, "step",
               torch ? tr_step_tensor(m, err) : ckpt_value_int(m->arena, m->zero->updates));
    for (unsigned i = 0; v && zt_optim_state(o, g->muon, i); i++)
        tr_put(m, v, zt_optim_state(o, g->muon, i), tr_shape(m, CKPT_F32, &flat, 1));
    return v;
}

static int tr_by_number(const void *a, const void *b)
{
    const uint32_t *x = a, *y = b;

    return (*x > *y) - (*x < *y);
}

/* List a group's parameters in the optimizer's order. */
static int tr_params(tr_maker *m, ckpt_state *state, const zt_group *g, ckpt_err *err)
{
    uint32_t *number = ckpt_arena_copy(m->arena, m->zero->given + g->first, g->n * sizeof *number);

    if (!number)
        return ckpt_fail_memory(err);
    if (m->zero->plain_matrices)
        qsort(number, g->n, sizeof *number, tr_by_number);
    for (uint32_t i = 0; i < g->n; i++) {
        const char *name = m->zero->model->params.at[number[i]].name;
        ckpt_tensor **slot = ckpt_vec_push(&state->param);
        if (!slot)
            return ckpt_fail_memory(err);
        *slot = m->map->tensors.at[ckpt_map_index(m->map, name, strlen(name))];
    }
    return CKPT_OK;
}

/* List parameters by group, and the optimizer's state of each. */
static int tr_groups(tr_maker *m, ckpt_state *state, ckpt_err *err)
{
    const zt_zero *z = m->zero;
    int rc = CKPT_OK;

    for (uint32_t i = 0; rc == CKPT_OK && i < z->n_groups; i++)
        rc = tr_params(m, state, &z->group[i], err);
    if (rc != CKPT_OK)
        return rc;
    for (uint32_t i = 0; i < z->n_groups; i++) {
        ckpt_group *g = ckpt_vec_push(&state->group);
        if (!g)
            return ckpt_fail_memory(err);
        *g = (ckpt_group){.first = z->group[i].first, .n = z->group[i].n, .n_lanes = 1};
        g->fields = tr_fields(m, &z->group[i]);
        g->entry = tr_entry(m, &z->group[i], err);
    }
    return m->bad ? ckpt_fail_memory(err) : CKPT_OK;
}

/* ---- loss scale ---- */

/* The scaler object that ZeRO pickles (deepspeed/runtime/fp16/loss_scaler.py). */
static ckpt_value *tr_scaler(tr_maker *m)
{
    const zt_scaler *s = &m->zero->scaler;
    ckpt_value *v = tr_new(m, CKPT_V_OBJECT), *state = tr_new(m, CKPT_V_DICT);
    ckpt_object *o = ckpt_arena_alloc(m->arena, sizeof *o);
    ckpt_value *half = tr_new(m, CKPT_V_DTYPE);

    m->bad = m->bad || !o;
    if (m->bad)
        return NULL;
    tr_put(m, state, "cur_scale", tr_number(m, s->scale, s->touched || !s->dynamic));
    tr_put_bool(m, state, "dynamic", s->dynamic);
    if (s->dynamic) {
        tr_put_int(m, state, "cur_iter", s->iter);
        tr_put_int(m, state, "last_overflow_iter", s->last_overflow);
        tr_put_float(m, state, "scale_factor", s->factor);
        tr_put_int(m, state, "scale_window", s->window);
        tr_put(m, state, "min_scale", tr_number(m, s->min_scale, false));
        tr_put_int(m, state, "delayed_shift", s->hysteresis);
        tr_put_int(m, state, "cur_hysteresis", s->left);
        tr_put_bool(m, state, "consecutive_hysteresis", s->consecutive);
        tr_put_bool(m, state, "raise_error_at_min_scale", true);
        half->as.dtype = CKPT_F16;
        tr_put(m, state, "dtype", half);
    }
    *o = (ckpt_object){.form = CKPT_BY_NEWOBJ,
                       .cls = tr_global(m, "deepspeed.runtime.fp16.loss_scaler",
                                        s->dynamic ? "DynamicLossScaler" : "LossScaler"),
                       .args = tr_new(m, CKPT_V_TUPLE),
                       .state = state};
    v->as.object = o;
    return v;
}

/* True if the last optimizer step skipped its update. */
static bool tr_overflow(const zt_zero *z)
{
    return z->scaler.dynamic && z->scaler.iter > 0 && z->scaler.last_overflow == z->scaler.iter - 1;
}

/* The optimizer's dict of stage 0 in 16 bits; the writer replaces None by state and masters. */
static ckpt_value *tr_full(tr_maker *m)
{
    const zt_scaler *s = &m->zero->scaler;
    bool fused = tr_is_fused(m->config);
    ckpt_value *v = tr_new(m, CKPT_V_DICT);

    if (!v || m->config->dtype == CKPT_F32)
        return v;
    if (!fused || m->config->dtype == CKPT_F16) {
        tr_put_bool(m, v, "dynamic_loss_scale", s->dynamic);
        tr_put(m, v, "cur_scale", tr_number(m, s->scale, s->touched || !s->dynamic));
        tr_put_int(m, v, "cur_iter", s->iter);
        if (s->dynamic) {
            tr_put_int(m, v, "last_overflow_iter", s->last_overflow);
            tr_put_float(m, v, "scale_factor", s->factor);
            tr_put_int(m, v, "scale_window", s->window);
        }
    }
    tr_put_none(m, v, "optimizer_state_dict");
    tr_put_none(m, v, fused ? "fp32_groups_flat" : "fp32_groups");
    if (fused)
        tr_put_float(m, v, "clip_grad", m->config->clipping);
    return v;
}

/* ---- the two files ---- */

/* All names of the module in its order, aliases included; the writer takes their values from the
 * map. */
static ckpt_value *tr_module(tr_maker *m)
{
    const zt_model *model = m->zero->model;
    ckpt_value *v = tr_new(m, CKPT_V_ODICT);

    for (size_t i = 0; !m->bad && i < model->params.n + model->aliases.n; i++) {
        bool second = i >= model->params.n;
        const zt_alias *a = second ? &model->aliases.at[i - model->params.n] : NULL;
        const zt_param *p = &model->params.at[a ? a->param : i];
        tr_put(m, v, a ? a->name : p->name, tr_shape(m, m->config->dtype, p->shape, p->ndim));
    }
    return v;
}

/*
 * transformers' schedule, as torch 2.15's LambdaLR saves it.  lr_lambdas has the attributes of each
 * group's function: none; a plain function has None.
 */
static ckpt_value *tr_lambda(tr_maker *m)
{
    const zt_zero *z = m->zero;
    ckpt_value *v = tr_new(m, CKPT_V_DICT), *base = tr_new(m, CKPT_V_LIST);
    ckpt_value *now = tr_new(m, CKPT_V_LIST), *lambdas = tr_new(m, CKPT_V_LIST);
    const bool plain = z->schedule.type == ZT_HF_CONSTANT;

    if (m->bad)
        return NULL;
    for (uint32_t i = 0; i < z->n_groups; i++) {
        tr_add(m, base, ckpt_value_float(m->arena, z->group[i].lr));
        tr_add(m, now, ckpt_value_float(m->arena, z->group[i].hyper.lr));
        tr_add(m, lambdas, tr_new(m, plain ? CKPT_V_NONE : CKPT_V_DICT));
    }
    tr_put(m, v, "base_lrs", base);
    tr_put_int(m, v, "last_epoch", z->schedule.last + 1);
    tr_put_int(m, v, "_step_count", z->schedule.last + 2);
    tr_put_bool(m, v, "_is_initial", false);
    tr_put_bool(m, v, "_get_lr_called_within_step", false);
    tr_put(m, v, "_last_lr", now);
    tr_put(m, v, "lr_lambdas", lambdas);
    return v;
}

static ckpt_value *tr_schedule(tr_maker *m)
{
    if (zt_schedule_is_factor(&m->zero->schedule))
        return tr_lambda(m);
    ckpt_value *v =
        tr_new(m, m->zero->schedule.type == ZT_SCHEDULE_NONE ? CKPT_V_NONE : CKPT_V_DICT);

    if (v && v->kind == CKPT_V_DICT)
        tr_put_int(m, v, "last_batch_iteration", m->zero->schedule.last);
    return v;
}

static void tr_counters(tr_maker *m, ckpt_value *v)
{
    ckpt_value *degrees = tr_new(m, CKPT_V_DICT);

    tr_put_int(m, v, "skipped_steps", m->zero->skipped);
    tr_put_int(m, v, "global_steps", m->zero->global_steps);
    tr_put_int(m, v, "global_samples", m->zero->global_samples);
    tr_put_int(m, v, "dp_world_size", m->zero->comm->world);
    tr_put_int(m, v, "mp_world_size", 1);
    if (degrees) {
        tr_put_int(m, degrees, "pp_degree", 1);
        tr_put_int(m, degrees, "tp_degree", 1);
    }
    tr_put(m, v, "checkpoint_parallel_dimensions", degrees);
}

/* ds_config as it was read, or an empty dict. */
static ckpt_value *tr_config(tr_maker *m)
{
    return m->config->json ? (ckpt_value *)(uintptr_t)m->config->json : tr_new(m, CKPT_V_DICT);
}

static bool tr_is_taken(const ckpt_value *v, const ckpt_value *key)
{
    return key->kind == CKPT_V_STR && ckpt_value_get(v, key->as.text.at);
}

/*
 * The model file's dict, as in engine.py, _save_checkpoint.  The writer replaces None by its
 * values.
 */
static ckpt_value *tr_model(tr_maker *m, const ckpt_value *client)
{
    static const char *const none[] = {"param_shapes", "frozen_param_shapes", "shared_params",
                                       "frozen_param_fragments"};
    ckpt_value *v = tr_new(m, CKPT_V_DICT);
    bool frozen = m->config->stage >= 2;
    ckpt_dict more = ckpt_value_map(client);

    if (!v)
        return NULL;
    tr_put(m, v, "module", tr_module(m));
    tr_put(m, v, "buffer_names", tr_new(m, CKPT_V_LIST));
    if (m->config->stage == 0)
        tr_put(m, v, "optimizer", tr_full(m));
    else
        tr_put_none(m, v, "optimizer");
    for (unsigned i = 0; i < 4; i++)
        tr_put(m, v, none[i], tr_new(m, frozen && i % 2 ? CKPT_V_ODICT : CKPT_V_NONE));
    tr_put(m, v, "lr_scheduler", tr_schedule(m));
    tr_put_none(m, v, "data_sampler");
    tr_put_none(m, v, "random_ltd");
    tr_counters(m, v);
    tr_put(m, v, "ds_config", tr_config(m));
    tr_put(m, v, "ds_version", ckpt_value_cstr(m->arena, TR_VERSION));
    for (uint64_t i = 0; !m->bad && i < more.n; i++) {
        if (!tr_is_taken(v, more.at[i].key))
            m->bad = !ckpt_dict_add(m->arena, &v->as.map, more.at[i].key, more.at[i].value);
    }
    return v;
}

static ckpt_value *tr_optim(tr_maker *m)
{
    ckpt_value *v = tr_new(m, CKPT_V_DICT), *inner = tr_new(m, CKPT_V_DICT);

    if (!v || !inner)
        return NULL;
    tr_put(m, inner, "loss_scaler", tr_scaler(m));
    tr_put_bool(m, inner, "dynamic_loss_scale", m->zero->scaler.dynamic);
    tr_put_bool(m, inner, "overflow", tr_overflow(m->zero));
    tr_put_float(m, inner, "clip_grad", m->config->clipping);
    tr_put(m, v, "optimizer_state_dict", inner);
    tr_put(m, v, "ds_config", tr_config(m));
    tr_put(m, v, "ds_version", ckpt_value_cstr(m->arena, TR_VERSION));
    return v;
}

int zt_live_state(ckpt_map *map, const zt_zero *zero, const ckpt_value *client, ckpt_err *err)
{
    tr_maker m = {.map = map, .arena = map->arena, .zero = zero, .config = zero->config};
    const zt_config *c = zero->config;
    ckpt_state *s = NULL;
    int rc = ckpt_state_new(&s, map, "", err);

    if (rc == CKPT_OK)
        rc = tr_groups(&m, s, err);
    if (rc != CKPT_OK)
        return rc;
    s->model = tr_model(&m, client);
    if (c->stage > 0)
        s->optim = tr_optim(&m);
    s->version = TR_VERSION;
    s->stage = c->stage;
    s->world = (uint32_t)zero->comm->world;
    s->dtype = c->dtype;
    s->sub_group_size = c->sub_group_size;
    s->bf16_optimizer = zt_config_is_bf16_optimizer(c);
    s->round_robin =
        c->round_robin && (c->stage == 1 || c->stage == 2) && !zt_config_is_bf16_optimizer(c);
    s->aligned = c->aligned && (c->stage == 1 || c->stage == 2);
    s->lean = c->elastic_checkpoint && (c->stage == 1 || c->stage == 2) && !s->bf16_optimizer;
    s->last_step = c->stage == 0 && c->dtype == CKPT_F32 && !c->optim.torch &&
                   !zt_config_is_cpu_optimizer(c) &&
                   (tr_is_adam(&c->optim) || c->optim.type == ZT_OPT_MUON);
    return m.bad ? ckpt_fail_memory(err) : CKPT_OK;
}
