/* SPDX-License-Identifier: Apache-2.0 */
/*
 * config.c: makes values that depend on world, stage or dtype but not on the layout (ds_config,
 * version, loss scaler), and reports rewritten values.
 */
#include <assert.h>
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "formats/deepspeed/write/write.h"

/* ---- reports ---- */

void ckpt_dsw_say(ckpt_dsw_file *f, const char *fmt, ...)
{
    assert(f && fmt);
    char text[256];
    va_list args;

    va_start(args, fmt);
    (void)vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    if (f->t.rc == CKPT_OK)
        f->t.rc = ckpt_train_note_once(f->job, CKPT_INFO, "rewritten: ", text);
}

/* The norm at which a Megatron run clips gradients, from its arguments; NULL: unknown. */
static const ckpt_value *dwc_clip_grad(const ckpt_state *state)
{
    const ckpt_value *args = ckpt_value_get(state->model, "args");

    if (args && args->kind == CKPT_V_OBJECT)
        args = args->as.object->state;
    return ckpt_value_get(args, "clip_grad");
}

int ckpt_dsw_clipping(const ckpt_train_job *job, int release)
{
    const ckpt_value *clip = dwc_clip_grad(job->state);
    double at = clip && clip->kind == CKPT_V_FLOAT ? clip->as.f
                : clip && clip->kind == CKPT_V_INT ? (double)clip->as.i
                                                   : 0;
    char text[256];

    if (!job->state->foreign || release < CKPT_DS_RELEASE(0, 19, 3) ||
        ckpt_train_config_get(job->state, NULL, "gradient_clipping"))
        return CKPT_OK;
    (void)snprintf(text, sizeof text,
                   "DeepSpeed %s clips gradients at norm 1.0 unless its configuration sets "
                   "\"gradient_clipping\": ",
                   job->target->version ? job->target->version : "0.19.8");
    if (clip && at >= 0 && at < 1e9)
        return ckpt_map_note(job->to, CKPT_INFO, job->err,
                             "%sset it to %g, the norm at which the run clipped", text, at);
    return ckpt_map_note(
        job->to, CKPT_INFO, job->err,
        "%sset it to the norm at which the run clipped (0.0: no clipping), which its "
        "files do not record",
        text);
}

/* ---- rewriting ds_config ---- */

/* A positive integer of a dict, or 0. */
static int64_t dwc_int(const ckpt_value *dict, const char *key)
{
    const ckpt_value *v = ckpt_value_get(dict, key);

    return v && v->kind == CKPT_V_INT && v->as.i > 0 ? v->as.i : 0;
}

/*
 * Keep train_batch_size = micro batch x accumulation x world, because DeepSpeed refuses other
 * configurations.  If all three are given, the batch per rank stays and train_batch_size follows
 * the world.
 */
static void dwc_batch(ckpt_dsw_file *f, ckpt_value *config)
{
    int64_t all = dwc_int(config, "train_batch_size"),
            micro = dwc_int(config, "train_micro_batch_size_per_gpu");
    int64_t steps = dwc_int(config, "gradient_accumulation_steps"), want;

    if (!all || !micro || !steps || __builtin_mul_overflow(micro, steps, &want) ||
        __builtin_mul_overflow(want, (int64_t)f->how->world, &want) || want == all)
        return;
    // Skip this if the rule did not hold before: with sequence parallelism it is different.
    if (f->job->state->world == 0 || all / f->job->state->world != micro * steps ||
        all % f->job->state->world)
        return;
    ckpt_tt_put(&f->t, config, "train_batch_size", ckpt_tt_int(&f->t, want));
    ckpt_dsw_say(f, "ds_config.train_batch_size %" PRId64 " -> %" PRId64, all, want);
}

static void dwc_stage(ckpt_dsw_file *f, ckpt_value *config)
{
    ckpt_value *zero = ckpt_value_get(config, "zero_optimization");
    const ckpt_value *stage = ckpt_value_get(zero, "stage");

    if (!stage || stage->kind != CKPT_V_INT || stage->as.i == f->how->stage ||
        f->how->from_stage == f->how->stage)
        return;
    ckpt_dsw_say(f, "ds_config.zero_optimization.stage %" PRId64 " -> %d", stage->as.i,
                 f->how->stage);
    ckpt_tt_put(&f->t, zero, "stage", ckpt_tt_int(&f->t, f->how->stage));
}

/* Set fp16.enabled and bf16.enabled to the training dtype. */
static void dwc_dtype(ckpt_dsw_file *f, ckpt_value *config)
{
    static const char *const section[] = {"fp16", "bf16"};
    static const ckpt_dtype dtype[] = {CKPT_F16, CKPT_BF16};

    for (int i = 0; f->how->new_dtype && i < 2; i++) {
        bool on = f->how->dtype == dtype[i];
        ckpt_value *v = ckpt_value_get(config, section[i]);
        if (!v && !on)
            continue;
        if (!v) {
            v = ckpt_tt_new(&f->t, CKPT_V_DICT);
            ckpt_tt_put(&f->t, config, section[i], v);
        }
        ckpt_tt_put(&f->t, v, "enabled", ckpt_tt_bool(&f->t, on));
        ckpt_dsw_say(f, "ds_config.%s.enabled -> %s", section[i], on ? "true" : "false");
    }
}

/* Set autoep_size, because AutoEP checks it against the checkpoint. */
static void dwc_autoep(ckpt_dsw_file *f, ckpt_value *config)
{
    ckpt_value *parallel = ckpt_value_get(config, "expert_parallel");
    int64_t was = dwc_int(parallel, "autoep_size");

    if (!f->how->ep || !was || was == f->how->ep)
        return;
    ckpt_tt_put(&f->t, parallel, "autoep_size", ckpt_tt_int(&f->t, f->how->ep));
    ckpt_dsw_say(f, "ds_config.expert_parallel.autoep_size %" PRId64 " -> %" PRIu32, was,
                 f->how->ep);
}

ckpt_value *ckpt_dsw_config(ckpt_dsw_file *f, const ckpt_value *old)
{
    if (!old)
        return ckpt_tt_new(&f->t, CKPT_V_DICT);
    ckpt_value *config = ckpt_tt_copy(&f->t, old);
    if (config && config->kind == CKPT_V_DICT) {
        dwc_batch(f, config);
        dwc_stage(f, config);
        dwc_dtype(f, config);
        dwc_autoep(f, config);
    }
    return config;
}

/* ---- version and loss scale ---- */

ckpt_value *ckpt_dsw_version(ckpt_dsw_file *f, const ckpt_value *old)
{
    const char *wanted = f->job->target->version;

    if (!wanted && old)
        return ckpt_tt_copy(&f->t, old);
    return ckpt_tt_str(&f->t, wanted                   ? wanted
                              : f->job->state->version ? f->job->state->version
                                                       : "0.19.8");
}

/* The model file's `optimizer` dict, in which stage 0 also stores the loss scale's numbers; NULL if
 * the source has none or did not train in fp16. */
static const ckpt_value *dwc_numbers(const ckpt_dsw_file *f)
{
    const ckpt_value *numbers = ckpt_value_get(f->job->state->model, "optimizer");

    return f->job->state->dtype == CKPT_F16 && ckpt_value_get(numbers, "cur_scale") ? numbers
                                                                                    : NULL;
}

/* A number of ds_config's section fp16. */
static int64_t dwc_fp16(const ckpt_dsw_file *f, const char *key, int64_t otherwise)
{
    int64_t n = otherwise;

    (void)ckpt_value_as_int(ckpt_train_config_get(f->job->state, "fp16", key), &n);
    return n;
}

/* The fixed loss scale of ds_config; 0 if it is dynamic. */
static double dwc_fixed_scale(const ckpt_dsw_file *f)
{
    const ckpt_value *v = ckpt_train_config_get(f->job->state, "fp16", "loss_scale");

    if (v && v->kind == CKPT_V_FLOAT)
        return v->as.f > 0 ? v->as.f : 0;
    return v && v->kind == CKPT_V_INT && v->as.i > 0 ? (double)v->as.i : 0;
}

/* True if the output's loss scale is dynamic. */
static bool dwc_is_dynamic(const ckpt_dsw_file *f)
{
    const ckpt_value *numbers = dwc_numbers(f);
    int64_t on = 0;

    if (f->how->dtype != CKPT_F16 || !numbers)
        return f->how->dtype == CKPT_F16 && dwc_fixed_scale(f) == 0;
    (void)ckpt_value_as_int(ckpt_value_get(numbers, "dynamic_loss_scale"), &on);
    return on != 0;
}

/* Set the fields of a new DynamicLossScaler (deepspeed/runtime/fp16/loss_scaler.py) by
 * ds_config. */
static void dwc_dynamic_fields(ckpt_dsw_file *f, ckpt_value *state)
{
    ckpt_torch_tree *t = &f->t;
    ckpt_value *half = ckpt_tt_new(t, CKPT_V_DTYPE);
    int64_t power = dwc_fp16(f, "initial_scale_power", 16);
    int64_t hysteresis = dwc_fp16(f, "hysteresis", 2);

    ckpt_tt_put(t, state, "cur_scale",
                ckpt_tt_float(t, ldexp(1.0, power < 0 || power > 127 ? 16 : (int)power)));
    ckpt_tt_put(t, state, "dynamic", ckpt_tt_bool(t, true));
    ckpt_tt_put(t, state, "cur_iter", ckpt_tt_int(t, 0));
    ckpt_tt_put(t, state, "last_overflow_iter", ckpt_tt_int(t, -1));
    ckpt_tt_put(t, state, "scale_factor", ckpt_tt_float(t, 2.0));
    ckpt_tt_put(t, state, "scale_window", ckpt_tt_int(t, dwc_fp16(f, "loss_scale_window", 1000)));
    ckpt_tt_put(t, state, "min_scale", ckpt_tt_int(t, dwc_fp16(f, "min_loss_scale", 1)));
    ckpt_tt_put(t, state, "delayed_shift", ckpt_tt_int(t, hysteresis));
    ckpt_tt_put(t, state, "cur_hysteresis", ckpt_tt_int(t, hysteresis));
    ckpt_tt_put(t, state, "consecutive_hysteresis",
                ckpt_tt_bool(t, dwc_fp16(f, "consecutive_hysteresis", 0) != 0));
    ckpt_tt_put(t, state, "raise_error_at_min_scale", ckpt_tt_bool(t, true));
    if (half)
        half->as.dtype = CKPT_F16;
    ckpt_tt_put(t, state, "dtype", half);
}

/*
 * Make a scaler if the source has none: a static one for fp32 and bf16; for fp16 a new one by
 * ds_config, with the numbers that stage 0 keeps instead of an object.
 */
static ckpt_value *dwc_new_scaler(ckpt_dsw_file *f)
{
    static const char *const kept[] = {"cur_scale", "cur_iter", "last_overflow_iter",
                                       "scale_factor", "scale_window"};
    const ckpt_value *numbers = f->how->dtype == CKPT_F16 ? dwc_numbers(f) : NULL;
    ckpt_torch_tree *t = &f->t;
    ckpt_value *state = ckpt_tt_new(t, CKPT_V_DICT);
    bool dynamic = dwc_is_dynamic(f);
    double fixed = f->how->dtype == CKPT_F16 ? dwc_fixed_scale(f) : 0;

    if (dynamic) {
        dwc_dynamic_fields(f, state);
    } else {
        ckpt_tt_put(t, state, "cur_scale", ckpt_tt_float(t, fixed > 0 ? fixed : 1.0));
        ckpt_tt_put(t, state, "dynamic", ckpt_tt_bool(t, false));
    }
    for (size_t i = 0; i < (dynamic ? sizeof kept / sizeof *kept : 1); i++) {
        const ckpt_value *v = ckpt_value_get(numbers, kept[i]);
        if (v && v->kind != CKPT_V_NONE)
            ckpt_tt_put(t, state, kept[i], ckpt_tt_copy(t, v));
    }
    return ckpt_tt_object(t, "deepspeed.runtime.fp16.loss_scaler",
                          dynamic ? "DynamicLossScaler" : "LossScaler", CKPT_BY_NEWOBJ,
                          ckpt_tt_new(t, CKPT_V_TUPLE), state);
}

/*
 * Copy the source's scaler, and add the fields of a newer release (dtype,
 * raise_error_at_min_scale), because unpickling does not set fields that the file lacks.
 */
static ckpt_value *dwc_kept_scaler(ckpt_dsw_file *f, const ckpt_value *old)
{
    bool moves = old->kind == CKPT_V_OBJECT && old->as.object->cls &&
                 ckpt_value_is_global(old->as.object->cls, "deepspeed.runtime.fp16.loss_scaler",
                                      "DynamicLossScaler");
    ckpt_value *v = ckpt_tt_copy(&f->t, old), *all;

    if (!moves || !v || f->how->release == f->how->from_release || !v->as.object->state)
        return v;
    all = ckpt_tt_new(&f->t, CKPT_V_DICT);
    dwc_dynamic_fields(f, all);
    ckpt_dict fields = ckpt_value_map(all);
    for (uint64_t i = 0; i < fields.n; i++) {
        const char *key = fields.at[i].key->as.text.at;
        if (!ckpt_value_get(v->as.object->state, key))
            ckpt_tt_put(&f->t, v->as.object->state, key, fields.at[i].value);
    }
    return v;
}

ckpt_value *ckpt_dsw_loss_scaler(ckpt_dsw_file *f, const ckpt_value *old)
{
    bool kept =
        old && old->kind != CKPT_V_NONE &&
        (!f->how->new_dtype || (f->how->dtype == CKPT_F16) == (f->job->state->dtype == CKPT_F16));

    if (!kept && old)
        ckpt_dsw_say(f, "loss_scaler for %s", f->how->dtype == CKPT_F16 ? "fp16" : "fp32 or bf16");
    return kept ? dwc_kept_scaler(f, old) : dwc_new_scaler(f);
}

ckpt_value *ckpt_dsw_dynamic(ckpt_dsw_file *f, const ckpt_value *old)
{
    int64_t was = 0, is = dwc_is_dynamic(f);

    if (old && !f->how->new_dtype)
        return ckpt_tt_copy(&f->t, old);
    if (ckpt_value_as_int(old, &was) && was != is)
        ckpt_dsw_say(f, "dynamic_loss_scale -> %s", is ? "true" : "false");
    return ckpt_tt_bool(&f->t, is != 0);
}
