/* SPDX-License-Identifier: Apache-2.0 */
/*
 * config.c: owns the rules over several keys of a configuration, and refuses combinations that the
 * engine does not support.
 *
 * It processes, in this order: "auto" values, the tables, precision, batch sizes, offload,
 * gradients, and last the optimizer and scheduler blocks, which optim/ reads.  The rules are those
 * of DeepSpeed 0.19.8 (runtime/config.py, runtime/engine.py, runtime/zero/config.py,
 * stage_1_and_2.py, stage3.py), but they apply when the file is read instead of when training
 * starts.
 */
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <string.h>
#include <unistd.h>

#include "engine/config/fields.h"

/* ---- precision ---- */

/*
 * Choose fp16, bf16 or fp32.  The window and the minimum are checked only for dynamic scales,
 * because static ones ignore them.
 */
static int co_precision(ds_context *x, ds_draft *d)
{
    const zt_fp16 *f = &d->c.fp16;

    if (f->enabled && d->bf16)
        return ckpt_fail(x->err, CKPT_EUSAGE, "%s: fp16 and bf16 are both enabled; keep one",
                         x->name);
    if (f->enabled && f->loss_scale == 0 && (f->window < 1 || f->min_scale < 1))
        return ckpt_fail(x->err, CKPT_EUSAGE,
                         "%s: fp16.%s is %" PRId64 "; it must be above 0 while the loss scale is "
                         "dynamic (loss_scale 0)",
                         x->name, f->window < 1 ? "loss_scale_window" : "min_loss_scale",
                         f->window < 1 ? f->window : f->min_scale);
    d->c.dtype = f->enabled ? CKPT_F16 : d->bf16 ? CKPT_BF16 : CKPT_F32;
    d->c.check_grad_overflow = f->enabled || (d->bf16 && d->bf16_overflow);
    return CKPT_OK;
}

/* Set the dtypes in which gradients are accumulated and sent: by default the model's dtype. */
static int co_gradient_dtypes(ds_context *x, ds_draft *d)
{
    // in the order of comm_names in keys.c
    static const ckpt_dtype comm[] = {CKPT_F32, CKPT_F16, CKPT_BF16};
    zt_config *c = &d->c;

    c->comm_dtype = d->comm_dtype < 0 ? c->dtype : comm[d->comm_dtype];
    c->accum_dtype = d->accum_dtype < 0 ? c->dtype : ds_dtypes[d->accum_dtype];
    if (d->param_dtype >= 0 && ds_dtypes[d->param_dtype] != c->dtype)
        return ckpt_fail(x->err, CKPT_EUSAGE,
                         "%s: data_types.param_dtype %s is not the dtype that fp16 and bf16 "
                         "choose; enable that one, or leave param_dtype out",
                         x->name, ds_dtype_names[d->param_dtype]);
    if (c->accum_dtype == c->dtype)
        return CKPT_OK;
    if (c->stage == 0)
        return ckpt_fail(x->err, CKPT_EUNSUPPORTED,
                         "%s: data_types.grad_accum_dtype other than the model's dtype needs "
                         "zero_optimization.stage 1, 2 or 3",
                         x->name);
    if (c->accum_dtype != CKPT_F32)
        return ckpt_fail(x->err, CKPT_EUNSUPPORTED,
                         "%s: data_types.grad_accum_dtype may be fp32 or the model's dtype",
                         x->name);
    return CKPT_OK;
}

/* ---- offload ---- */

/* Read the deprecated booleans that move the optimizer or the weights to the host. */
static int co_old_keys(ds_context *x, const ckpt_value *json, ds_draft *d)
{
    static const char *const both[][2] = {
        {"zero_optimization.cpu_offload", "zero_optimization.offload_optimizer"},
        {"zero_optimization.cpu_offload_param", "zero_optimization.offload_param"},
        {"zero_optimization.stage3_gather_fp16_weights_on_model_save",
         "zero_optimization.stage3_gather_16bit_weights_on_model_save"},
    };

    for (size_t i = 0; i < sizeof both / sizeof both[0]; i++) {
        if (ds_find(json, both[i][0]) && ds_find(json, both[i][1]))
            return ckpt_fail(x->err, CKPT_EUSAGE, "%s: %s is the old form of %s; keep the new one",
                             x->name, both[i][0], both[i][1]);
        if (ds_find(json, both[i][0]) &&
            ds_note(x, "%s is the old form of %s", both[i][0], both[i][1]) != CKPT_OK)
            return CKPT_ELIMIT;
    }
    if (ds_find(json, "zero_optimization.cpu_offload_use_pin_memory") &&
        ds_note(x, "zero_optimization.cpu_offload_use_pin_memory is ignored: pin_memory of the "
                   "offload blocks takes its place") != CKPT_OK)
        return CKPT_ELIMIT;
    d->place_optimizer = d->old_offload ? ZT_ON_CPU : d->place_optimizer;
    d->place_param = d->old_offload_param ? ZT_ON_CPU : d->place_param;
    d->c.gather_16bit_on_save = d->c.gather_16bit_on_save || d->old_gather;
    return CKPT_OK;
}

/*
 * Choose where the optimizer state or the weights are.  If the stage cannot offload them, they stay
 * on the device, as in DeepSpeed; a note reports that.
 */
static int co_place(ds_context *x, zt_offload *o, int place, const char *key, int stage)
{
    bool param = strcmp(key, "offload_param") == 0;

    o->place = o->asked = (zt_place)place;
    if (o->place == ZT_ON_DEVICE)
        return CKPT_OK;
    if (param && stage < 3) {
        o->place = ZT_ON_DEVICE;
        return ds_note(x, "zero_optimization.%s has no effect: it needs stage 3", key);
    }
    if (stage == 0) {
        o->place = ZT_ON_DEVICE;
        return ds_note(x,
                       "zero_optimization.%s needs stage 1, 2 or 3 to offload state: at stage 0 it "
                       "only selects the CPU optimizer, as in DeepSpeed",
                       key);
    }
    if (o->place == ZT_ON_NVME && stage < 3) {
        o->place = ZT_ON_CPU;
        return ds_note(x, "zero_optimization.%s: \"nvme\" needs stage 3; host memory is used", key);
    }
    if (o->place == ZT_ON_NVME && !o->path)
        return ckpt_fail(x->err, CKPT_EUSAGE,
                         "%s: zero_optimization.%s.device is \"nvme\"; give its nvme_path, a "
                         "folder on a local disk",
                         x->name, key);
    return CKPT_OK;
}

static int co_offload(ds_context *x, const ckpt_value *json, ds_draft *d)
{
    zt_config *c = &d->c;
    int rc = co_old_keys(x, json, d);

    if (rc == CKPT_OK && c->offload_optimizer.ratio < 1 && c->stage != 3)
        rc = ckpt_fail(x->err, CKPT_EUSAGE,
                       "%s: zero_optimization.offload_optimizer.ratio below 1 needs stage 3",
                       x->name);
    if (rc == CKPT_OK)
        rc = co_place(x, &c->offload_optimizer, d->place_optimizer, "offload_optimizer", c->stage);
    if (rc == CKPT_OK)
        rc = co_place(x, &c->offload_param, d->place_param, "offload_param", c->stage);
    return rc;
}

/* ---- gradients ---- */

/*
 * Scaling before the sum needs an all-reduce of complete gradients: with reduce_scatter, refuse it,
 * or ignore it and add a note.
 */
static int co_scaling(ds_context *x, zt_config *c)
{
    bool changed = c->prescale || c->predivide != 1.0;

    if (c->sum_gradients && c->stage == 3)
        return ckpt_fail(
            x->err, CKPT_EUSAGE,
            "%s: gradient_allreduce_op \"sum\" is not supported in stage 3; use \"mean\"", x->name);
    if (!changed || !c->reduce_scatter || c->stage == 0)
        return CKPT_OK;
    if (c->stage == 1 || (c->stage == 2 && c->sum_gradients))
        return ds_note(x, "prescale_gradients and gradient_predivide_factor have no effect: with "
                          "reduce_scatter, gradients are divided by the number of ranks at once");
    return ckpt_fail(x->err, CKPT_EUNSUPPORTED,
                     "%s: %s is not supported in stage %d with reduce_scatter; set "
                     "zero_optimization.reduce_scatter to false, or remove the setting",
                     x->name, c->prescale ? "prescale_gradients" : "gradient_predivide_factor",
                     c->stage);
}

bool zt_config_is_cpu_optimizer(const zt_config *c)
{
    return c->offload_optimizer.asked != ZT_ON_DEVICE;
}

bool zt_config_is_bf16_optimizer(const zt_config *c)
{
    return c->stage == 1 && c->dtype == CKPT_BF16 && c->accum_dtype == CKPT_F32 &&
           c->offload_optimizer.place == ZT_ON_DEVICE;
}

/* Refuse to skip the gradient norm if a setting needs it. */
static int co_norm(ds_context *x, const zt_config *c)
{
    const char *why = NULL;

    if (c->compute_grad_norm)
        return CKPT_OK;
    if (c->stage != 1 && c->stage != 2)
        why = "needs stage 1 or 2";
    else if (c->clipping > 0)
        why = "needs gradient_clipping 0";
    else if (c->offload_optimizer.place != ZT_ON_DEVICE)
        why = "is not supported with offload_optimizer";
    else if (c->stage == 1 && c->dtype == CKPT_BF16 && c->accum_dtype == CKPT_F32)
        why = "is not supported with bf16 and fp32 accumulation in stage 1";
    return !why ? CKPT_OK
                : ckpt_fail(x->err, CKPT_EUSAGE, "%s: zero_optimization.compute_grad_norm false %s",
                            x->name, why);
}

/* ---- optimizer, schedule, loss scale ---- */

/* The AdamW block that a file without an optimizer gets, from the arguments or their defaults. */
static ckpt_value *co_default_optimizer(const ds_context *x)
{
    ckpt_arena *m = x->arena;
    const zt_arguments *a = x->args;
    ckpt_value *block = ckpt_value_new(m, CKPT_V_DICT), *params = ckpt_value_new(m, CKPT_V_DICT);
    ckpt_value *betas = ckpt_value_new(m, CKPT_V_LIST);
    bool ok = block && params && betas;

    ok = ok && ckpt_dict_add_cstr(m, &block->as.map, "type", ckpt_value_cstr(m, "AdamW")) &&
         ckpt_dict_add_cstr(m, &block->as.map, "params", params);
    if (!ok || !a)
        return ok ? block : NULL;
    ok = ckpt_seq_add(m, &betas->as.seq, ckpt_value_float(m, a->adam_beta1)) &&
         ckpt_seq_add(m, &betas->as.seq, ckpt_value_float(m, a->adam_beta2)) &&
         betas->as.seq.at[0] && betas->as.seq.at[1] &&
         ckpt_dict_add_cstr(m, &params->as.map, "lr", ckpt_value_float(m, a->learning_rate)) &&
         ckpt_dict_add_cstr(m, &params->as.map, "betas", betas) &&
         ckpt_dict_add_cstr(m, &params->as.map, "eps", ckpt_value_float(m, a->adam_epsilon)) &&
         ckpt_dict_add_cstr(m, &params->as.map, "weight_decay",
                            ckpt_value_float(m, a->weight_decay));
    return ok ? block : NULL;
}

/* Apply given arguments to settings that the optimizer block leaves out. */
static void co_given_params(const ds_context *x, const ckpt_value *block, zt_optim *o)
{
    const zt_arguments *a = x->args;
    const ckpt_value *p = ckpt_value_get(block, "params");

    if (!a)
        return;
    if (a->given[ZT_ARG_LR] && !ckpt_value_get(p, "lr"))
        o->h.lr = a->learning_rate;
    if (!ckpt_value_get(p, "betas")) {
        o->h.beta1 = a->given[ZT_ARG_BETA1] ? a->adam_beta1 : o->h.beta1;
        o->h.beta2 = a->given[ZT_ARG_BETA2] ? a->adam_beta2 : o->h.beta2;
    }
    if (a->given[ZT_ARG_EPSILON] && !ckpt_value_get(p, "eps"))
        o->h.eps = a->adam_epsilon;
    if (a->given[ZT_ARG_WEIGHT_DECAY] && !ckpt_value_get(p, "weight_decay"))
        o->h.weight_decay = a->weight_decay;
}

/* Read --lr_scheduler_kwargs into the settings of a block. */
static int co_schedule_kwargs(const ds_context *x, ckpt_value *params)
{
    const char *text = x->args->lr_scheduler_kwargs;
    ckpt_value *more = NULL;
    int rc = CKPT_OK;

    if (!text)
        return rc;
    rc = zt_hjson_parse(&more, x->arena, text, strlen(text), "--lr_scheduler_kwargs", x->err);
    if (rc == CKPT_OK && more->kind != CKPT_V_DICT)
        rc = ckpt_fail(x->err, CKPT_EUSAGE, "--lr_scheduler_kwargs %.60s: expected a JSON object",
                       text);
    for (uint64_t i = 0; rc == CKPT_OK && i < more->as.map.n; i++) {
        const ckpt_pair *p = &more->as.map.at[i];
        if (ckpt_value_get(params, p->key->as.text.at))
            rc = ckpt_fail(x->err, CKPT_EUSAGE, "--lr_scheduler_kwargs: %.60s is given by %s",
                           p->key->as.text.at,
                           strcmp(p->key->as.text.at, "num_warmup_steps") == 0
                               ? "--warmup_steps"
                               : "the length of the run");
        else if (!ckpt_dict_add(x->arena, &params->as.map, p->key, p->value))
            rc = ckpt_fail_memory(x->err);
    }
    return rc;
}

/* True if transformers' function takes the argument: all take the warm-up but `constant`. */
static bool co_takes(const char *type, bool total)
{
    return strcmp(type, "constant") != 0 && !(total && (strcmp(type, "constant_with_warmup") == 0 ||
                                                        strcmp(type, "inverse_sqrt") == 0));
}

/* The block of --lr_scheduler_type, as transformers' get_scheduler is called by its Trainer. */
static int co_trainer_schedule(const ds_context *x, zt_schedule *out)
{
    const zt_arguments *a = x->args;
    const char *type = a->lr_scheduler_type;
    double part = a->warmup_steps;
    double warmup = part >= 1 ? floor(part) : ceil((double)a->total_steps * part);
    ckpt_value *block = ckpt_value_new(x->arena, CKPT_V_DICT);
    ckpt_value *params = ckpt_value_new(x->arena, CKPT_V_DICT);
    bool ok = block && params;
    ckpt_err why = {0};
    int rc;

    ok =
        ok && ckpt_dict_add_cstr(x->arena, &block->as.map, "type", ckpt_value_cstr(x->arena, type));
    ok = ok && ckpt_dict_add_cstr(x->arena, &block->as.map, "params", params);
    if (ok && co_takes(type, false))
        ok = ckpt_dict_add_cstr(
            x->arena, &params->as.map, "num_warmup_steps",
            ckpt_value_int(x->arena, warmup < 9e18 ? (int64_t)warmup : INT64_MAX));
    if (ok && co_takes(type, true))
        ok = ckpt_dict_add_cstr(x->arena, &params->as.map, "num_training_steps",
                                ckpt_value_int(x->arena, a->total_steps));
    rc = ok ? co_schedule_kwargs(x, params) : ckpt_fail_memory(x->err);
    if (rc == CKPT_OK && zt_schedule_parse(out, block, &why) != CKPT_OK)
        rc = ckpt_fail(x->err, why.code, "--lr_scheduler_type %.60s: %s", type, why.text);
    return rc;
}

/* Refuse a warm-up that no schedule has, and tell of one that the configuration's does not take. */
static int co_warmup(ds_context *x, const ds_draft *d)
{
    const zt_schedule *s = &d->c.schedule;
    const zt_arguments *a = x->args;
    const ckpt_value *params = ckpt_value_get(d->scheduler, "params");

    if (!a || !a->given[ZT_ARG_WARMUP] || !(a->warmup_steps > 0))
        return CKPT_OK;
    if (s->type == ZT_SCHEDULE_NONE)
        return ckpt_fail(
            x->err, CKPT_EUSAGE,
            "--warmup_steps %g has no effect: the configuration has no scheduler; give "
            "--lr_scheduler_type linear, or a scheduler such as WarmupLR",
            a->warmup_steps);
    if (!d->scheduler && !co_takes(a->lr_scheduler_type, false))
        return ds_note(x,
                       "--warmup_steps %g has no effect: the schedule constant has no warm-up; "
                       "constant_with_warmup has",
                       a->warmup_steps);
    if (!d->scheduler || ckpt_value_get(params, "warmup_num_steps"))
        return CKPT_OK;
    return ds_note(x,
                   "--warmup_steps %g has no effect: the configuration's scheduler %s has no "
                   "warmup_num_steps; set it to \"auto\"",
                   a->warmup_steps, s->name);
}

/*
 * Read the schedule: the configuration's, or else that of --lr_scheduler_type.  As with the
 * Trainer, the configuration's wins, and either goes with any optimizer.
 */
static int co_schedule(ds_context *x, ds_draft *d)
{
    zt_schedule *s = &d->c.schedule;
    const char *type = x->args ? x->args->lr_scheduler_type : NULL;
    int rc = zt_schedule_parse(s, d->scheduler, x->err);

    if (rc == CKPT_OK && type && s->type != ZT_SCHEDULE_NONE && strcmp(type, s->name) != 0)
        rc = ds_note(x,
                     "--lr_scheduler_type %s has no effect: the configuration has the scheduler "
                     "%s",
                     type, s->name);
    else if (rc == CKPT_OK && type && s->type == ZT_SCHEDULE_NONE)
        rc = co_trainer_schedule(x, s);
    if (rc == CKPT_OK)
        rc = co_warmup(x, d);
    return rc == CKPT_OK ? zt_schedule_base(s, d->c.optim.h.lr, x->err) : rc;
}

/*
 * Refuse optimizers that DeepSpeed has not tested with ZeRO, unless zero_allow_untested_optimizer
 * is set.
 */
static int co_tested(ds_context *x, const zt_config *c)
{
    zt_optim_type t = c->optim.type;
    bool untested = t == ZT_OPT_SGD || t == ZT_OPT_LAMB || t == ZT_OPT_ONEBIT_ADAM;

    if (c->stage > 0 && untested && !c->allow_untested)
        return ckpt_fail(x->err, CKPT_EUSAGE,
                         "%s: %s is untested with ZeRO; set zero_allow_untested_optimizer to true "
                         "to use it",
                         x->name, c->optim.name);
    if (t == ZT_OPT_LAMB && c->fp16.loss_scale != 0)
        return ckpt_fail(x->err, CKPT_EUSAGE,
                         "%s: LAMB needs a dynamic loss scale; set fp16.loss_scale to 0", x->name);
    if (t == ZT_OPT_MUON && c->stage == 3 && c->reduce_scatter)
        return ckpt_fail(x->err, CKPT_EUSAGE,
                         "%s: Muon in stage 3 needs zero_optimization.reduce_scatter false",
                         x->name);
    return CKPT_OK;
}

static int co_optimizer(ds_context *x, ds_draft *d)
{
    zt_config *c = &d->c;
    const ckpt_value *block = d->optimizer;
    bool host = zt_config_is_cpu_optimizer(c);
    int rc = CKPT_OK;

    if (!block) {
        block = co_default_optimizer(x);
        rc = !block ? ckpt_fail_memory(x->err)
                    : ds_note(x, "the optimizer block is missing: AdamW with the %s is used",
                              x->args ? "command line's settings" : "defaults");
    }
    if (rc == CKPT_OK)
        rc = zt_optim_parse(&c->optim, block, host, x->err);
    if (rc == CKPT_OK) {
        co_given_params(x, block, &c->optim);
        rc = co_tested(x, c);
    }
    return rc;
}

/*
 * Read the scaler from the fp16 block's numbers, in which "auto" and other spellings have been
 * resolved.
 */
static int co_scaler(ds_context *x, zt_config *c)
{
    ckpt_arena *m = x->arena;
    ckpt_value *b = ckpt_value_new(m, CKPT_V_DICT);
    const zt_fp16 *f = &c->fp16;
    bool ok =
        b && ckpt_dict_add_cstr(m, &b->as.map, "enabled", ckpt_value_bool(m, f->enabled)) &&
        ckpt_dict_add_cstr(m, &b->as.map, "loss_scale", ckpt_value_float(m, f->loss_scale)) &&
        ckpt_dict_add_cstr(m, &b->as.map, "initial_scale_power", ckpt_value_int(m, f->power)) &&
        ckpt_dict_add_cstr(m, &b->as.map, "loss_scale_window", ckpt_value_int(m, f->window)) &&
        ckpt_dict_add_cstr(m, &b->as.map, "hysteresis", ckpt_value_int(m, f->hysteresis)) &&
        ckpt_dict_add_cstr(m, &b->as.map, "consecutive_hysteresis",
                           ckpt_value_bool(m, f->consecutive)) &&
        ckpt_dict_add_cstr(m, &b->as.map, "min_loss_scale", ckpt_value_int(m, f->min_scale));

    return ok ? zt_scaler_parse(&c->scaler, b, f->enabled, c->stage, x->err)
              : ckpt_fail_memory(x->err);
}

/* ---- the whole configuration ---- */

/* Set the values that depend on one key each. */
static void co_simple(const ckpt_value *json, ds_draft *d)
{
    zt_config *c = &d->c;
    const ckpt_value *overlap = ds_find(json, "zero_optimization.overlap_comm");
    const ckpt_value *block = ckpt_value_get(json, "activation_checkpointing");

    c->stage = (int)d->stage;
    if (!overlap || overlap->kind == CKPT_V_NONE || ds_is_auto(overlap))
        c->overlap = c->stage == 3;
    c->sum_gradients = d->allreduce_op == 1; // index in op_names of keys.c; 1: sum
    c->tag_validation = (zt_tag_check)d->tag_validation;
    c->activation_checkpointing = block && block->kind == CKPT_V_DICT;
}

static int co_checks(ds_context *x, const ckpt_value *json, ds_draft *d)
{
    zt_config *c = &d->c;
    int rc = co_precision(x, d);

    rc = rc == CKPT_OK ? ds_batch(x, c) : rc;
    rc = rc == CKPT_OK ? co_gradient_dtypes(x, d) : rc;
    rc = rc == CKPT_OK ? co_offload(x, json, d) : rc;
    rc = rc == CKPT_OK ? co_scaling(x, c) : rc;
    rc = rc == CKPT_OK ? co_norm(x, c) : rc;
    if (rc == CKPT_OK && c->stage == 3 && c->elastic_checkpoint)
        rc =
            ds_note(x, "zero_optimization.elastic_checkpoint has no effect in stage 3: checkpoints "
                       "can be resumed at any number of ranks");
    rc = rc == CKPT_OK ? co_optimizer(x, d) : rc;
    rc = rc == CKPT_OK ? co_schedule(x, d) : rc;
    c->schedule.cycle_momentum = c->schedule.cycle_momentum && zt_optim_has_betas(&c->optim);
    return rc == CKPT_OK ? co_scaler(x, c) : rc;
}

static int co_parse(ds_context *x, zt_config *out, ckpt_value *json)
{
    ds_draft d;
    int rc;

    x->note = ckpt_arena_array(x->arena, DS_NOTES + 1, sizeof *x->note); // zeroed: ends with NULL
    x->loud = ckpt_arena_array(x->arena, DS_NOTES + 1, sizeof *x->loud);
    if (!x->note || !x->loud)
        return ckpt_fail_memory(x->err);
    if (json->kind != CKPT_V_DICT)
        return ckpt_fail(x->err, CKPT_EUSAGE, "%s: expected an object of settings", x->name);
    if (x->world < 1)
        return ckpt_fail(x->err, CKPT_EUSAGE, "the number of ranks is %d; expected 1 or more",
                         x->world);
    ds_draft_default(&d);
    rc = ds_fill(x, json);
    rc = rc == CKPT_OK ? ds_read(x, &ds_file, json, &d) : rc;
    if (rc != CKPT_OK)
        return rc;
    ds_fill_missing(x, json, &d);
    co_simple(json, &d);
    rc = co_checks(x, json, &d);
    if (rc == CKPT_OK) {
        *out = d.c;
        out->json = json;
        out->notes = x->note;
        out->note_warns = x->loud;
    }
    return rc;
}

int zt_config_parse(zt_config *out, ckpt_arena *arena, ckpt_value *json, const zt_arguments *args,
                    int world, ckpt_err *err)
{
    ds_context x = {.arena = arena, .err = err, .name = "ds_config", .args = args, .world = world};

    return co_parse(&x, out, json);
}

/* Load the tree of a file, or of base64 text that a launcher passes instead of a path. */
static int co_load(ds_context *x, ckpt_value **json, const char *path)
{
    char *text;
    size_t n = 0;
    int rc;

    if (access(path, F_OK) == 0)
        return zt_hjson_read(json, x->arena, path, x->err);
    x->name = "ds_config (base64)";
    text = ds_unbase64(x->arena, path, &n);
    rc = text ? zt_hjson_parse(json, x->arena, text, n, x->name, NULL) : CKPT_EFORMAT;
    if (rc != CKPT_OK || (*json)->kind != CKPT_V_DICT)
        return ckpt_fail(x->err, CKPT_EMISSING,
                         "%.200s is neither an existing file nor a configuration in base64", path);
    return CKPT_OK;
}

int zt_config_read(zt_config *out, ckpt_arena *arena, const char *path_or_base64,
                   const zt_arguments *args, int world, ckpt_err *err)
{
    ds_context x = {
        .arena = arena, .err = err, .name = path_or_base64, .args = args, .world = world};
    ckpt_value *json = NULL;
    int rc = co_load(&x, &json, path_or_base64);

    return rc == CKPT_OK ? co_parse(&x, out, json) : rc;
}
