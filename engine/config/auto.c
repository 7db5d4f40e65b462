/* SPDX-License-Identifier: Apache-2.0 */
/*
 * auto.c: owns "auto" values: the argument that fills each, and the defaults of arguments.
 *
 * The mapping is that of the Trainer of transformers 5 (integrations/deepspeed.py,
 * trainer_config_process and trainer_config_finalize), with one difference: a value of the file is
 * compared with an argument only if the user gave that argument, because a default does not show
 * the user's intention.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "engine/config/fields.h"

void zt_arguments_default(zt_arguments *a)
{
    *a = (zt_arguments){.per_device_train_batch_size = 8,
                        .gradient_accumulation_steps = 1,
                        .learning_rate = 5e-5,
                        .adam_beta1 = 0.9,
                        .adam_beta2 = 0.999,
                        .adam_epsilon = 1e-8,
                        .max_grad_norm = 1.0};
}

/* The value for one key. */
typedef struct au_source {
    const char *path;     /* path of the key */
    const char *argument; /* name on the command line */
    bool given;
    ckpt_value *value; /* NULL: out of memory, or unknown */
    const char
        *unknown; /* if the value is unknown: the setting that the user must give; else NULL */
} au_source;

/* All disagreements so far, in one text, because one error reports all of them. */
typedef struct au_list {
    char text[400];
    size_t n;
} au_list;

/* True if two values are equal as Python compares numbers: 1 and 1.0 are. */
static bool au_equal(const ckpt_value *a, const ckpt_value *b)
{
    ckpt_seq s = ckpt_value_seq(a), t = ckpt_value_seq(b);
    double x = a->kind == CKPT_V_FLOAT ? a->as.f : (double)a->as.i;
    double y = b->kind == CKPT_V_FLOAT ? b->as.f : (double)b->as.i;

    if (a->kind == CKPT_V_LIST && b->kind == CKPT_V_LIST) {
        for (uint64_t i = 0; i < s.n && s.n == t.n; i++) {
            if (s.at[i]->kind == CKPT_V_LIST || !au_equal(s.at[i], t.at[i]))
                return false;
        }
        return s.n == t.n;
    }
    if (a->kind == CKPT_V_STR || a->kind == CKPT_V_DICT || a->kind == CKPT_V_LIST) {
        return false; // arguments are numbers or flat lists of numbers
    }
    return b->kind != CKPT_V_LIST && x == y;
}

static void au_disagree(au_list *list, const au_source *s, const ckpt_value *found)
{
    char a[DS_SHOWN], b[DS_SHOWN];
    size_t room = sizeof list->text - list->n;
    int n =
        snprintf(list->text + list->n, room, "%s%s is %s, but %s gives %s", list->n > 0 ? "; " : "",
                 s->path, ds_show(found, a), s->argument, ds_show(s->value, b));

    list->n += n > 0 && (size_t)n < room ? (size_t)n : room - 1;
}

/* Fill the key if it is "auto"; otherwise note a disagreement with a given argument. */
static int au_apply(const ds_context *x, ckpt_value *json, const au_source *s, au_list *list)
{
    ckpt_value *found = ds_find(json, s->path);

    if (!found || found->kind == CKPT_V_NONE)
        return CKPT_OK;
    if (s->unknown)
        return !ds_is_auto(found) ? CKPT_OK
                                  : ckpt_fail(x->err, CKPT_EUSAGE,
                                              "%s: %s is \"auto\", which needs %s; give that, or "
                                              "a number in the file",
                                              x->name, s->path, s->unknown);
    if (!s->value)
        return ckpt_fail_memory(x->err);
    if (ds_is_auto(found))
        *found = *s->value;
    else if (s->given && !au_equal(found, s->value))
        au_disagree(list, s, found);
    return CKPT_OK;
}

static int au_apply_all(const ds_context *x, ckpt_value *json, const au_source *s, size_t n,
                        au_list *list)
{
    int rc = CKPT_OK;

    for (size_t i = 0; i < n && rc == CKPT_OK; i++)
        rc = au_apply(x, json, &s[i], list);
    return rc;
}

/* ---- sources of values ---- */

static ckpt_value *au_pair(ckpt_arena *arena, double a, double b)
{
    ckpt_value *v = ckpt_value_new(arena, CKPT_V_LIST);
    ckpt_value *first = ckpt_value_float(arena, a), *second = ckpt_value_float(arena, b);
    bool ok = v && first && second;

    return ok && ckpt_seq_add(arena, &v->as.seq, first) && ckpt_seq_add(arena, &v->as.seq, second)
               ? v
               : NULL;
}

static int au_batches(const ds_context *x, ckpt_value *json, au_list *list)
{
    const zt_arguments *a = x->args;
    bool micro = a->given[ZT_ARG_MICRO_BATCH], steps = a->given[ZT_ARG_ACCUMULATION];
    int64_t total = 0;

    if (a->per_device_train_batch_size < 1 || a->gradient_accumulation_steps < 1 ||
        __builtin_mul_overflow(a->per_device_train_batch_size, (int64_t)x->world, &total) ||
        __builtin_mul_overflow(total, a->gradient_accumulation_steps, &total))
        return ckpt_fail(x->err, CKPT_EUSAGE,
                         "--per_device_train_batch_size and --gradient_accumulation_steps must "
                         "be above 0, and their product with the ranks must fit 63 bits");
    const au_source s[] = {
        {"train_micro_batch_size_per_gpu", "--per_device_train_batch_size", micro,
         ckpt_value_int(x->arena, a->per_device_train_batch_size), NULL},
        {"gradient_accumulation_steps", "--gradient_accumulation_steps", steps,
         ckpt_value_int(x->arena, a->gradient_accumulation_steps), NULL},
        {"train_batch_size", "the command line (ranks x micro batch x accumulation)",
         micro || steps, ckpt_value_int(x->arena, total), NULL},
    };
    return au_apply_all(x, json, s, sizeof s / sizeof s[0], list);
}

static int au_optimizer(const ds_context *x, ckpt_value *json, au_list *list)
{
    const zt_arguments *a = x->args;
    ckpt_arena *m = x->arena;
    const bool *given = a->given;
    const au_source s[] = {
        {"gradient_clipping", "--max_grad_norm", given[ZT_ARG_CLIPPING],
         ckpt_value_float(m, a->max_grad_norm), NULL},
        {"optimizer.params.lr", "--learning_rate", given[ZT_ARG_LR],
         ckpt_value_float(m, a->learning_rate), NULL},
        {"optimizer.params.betas", "--adam_beta1, --adam_beta2",
         given[ZT_ARG_BETA1] || given[ZT_ARG_BETA2], au_pair(m, a->adam_beta1, a->adam_beta2),
         NULL},
        {"optimizer.params.eps", "--adam_epsilon", given[ZT_ARG_EPSILON],
         ckpt_value_float(m, a->adam_epsilon), NULL},
        {"optimizer.params.weight_decay", "--weight_decay", given[ZT_ARG_WEIGHT_DECAY],
         ckpt_value_float(m, a->weight_decay), NULL},
        {"fp16.enabled", "--fp16", given[ZT_ARG_FP16],
         ckpt_value_bool(m, a->fp16 || a->fp16_full_eval), NULL},
        {"bf16.enabled", "--bf16", given[ZT_ARG_BF16],
         ckpt_value_bool(m, a->bf16 || a->bf16_full_eval), NULL},
    };
    return au_apply_all(x, json, s, sizeof s / sizeof s[0], list);
}

/* Steps of --warmup_steps: a count, or a fraction of all steps if below 1.  At least one step. */
static int64_t au_warmup(const zt_arguments *a)
{
    double n = a->warmup_steps >= 1 ? floor(a->warmup_steps)
                                    : ceil((double)a->total_steps * a->warmup_steps);

    return n >= 1 && n < 9e18 ? (int64_t)n : 1;
}

static int au_schedule(const ds_context *x, ckpt_value *json, au_list *list)
{
    const zt_arguments *a = x->args;
    ckpt_arena *m = x->arena;
    const char *total = a->total_steps < 1 ? "the number of steps (--max_steps)" : NULL;
    bool part = a->warmup_steps > 0 && a->warmup_steps < 1;
    const au_source s[] = {
        {"scheduler.params.warmup_min_lr", "", false, ckpt_value_int(m, 0), NULL},
        {"scheduler.params.warmup_max_lr", "--learning_rate", a->given[ZT_ARG_LR],
         ckpt_value_float(m, a->learning_rate), NULL},
        {"scheduler.params.total_num_steps", "the command line", a->given[ZT_ARG_TOTAL_STEPS],
         ckpt_value_int(m, a->total_steps), total},
        {"scheduler.params.warmup_num_steps", "--warmup_steps", a->given[ZT_ARG_WARMUP],
         ckpt_value_int(m, au_warmup(a)), part ? total : NULL},
    };
    return au_apply_all(x, json, s, sizeof s / sizeof s[0], list);
}

/* Bucket sizes from the hidden size h: h*h, and for stage 3 also 0.9*h*h and 10*h. */
static int au_buckets(const ds_context *x, ckpt_value *json, au_list *list)
{
    const ckpt_value *stage = ds_find(json, "zero_optimization.stage");
    int64_t h = x->args->hidden_size, n = 0;
    const char *width = h < 1 || h > INT32_MAX ? "the model's hidden_size" : NULL;
    ckpt_arena *m = x->arena;
    bool sharded = stage && stage->kind == CKPT_V_INT && stage->as.i == 3;

    h = !width ? h : 1;
    n = h * h;
    const au_source s[] = {
        {"zero_optimization.reduce_bucket_size", "", false, ckpt_value_int(m, n), width},
        {"zero_optimization.stage3_prefetch_bucket_size", "", false,
         ckpt_value_int(m, (int64_t)(0.9 * (double)h * (double)h)), width},
        {"zero_optimization.stage3_param_persistence_threshold", "", false,
         ckpt_value_int(m, 10 * h), width},
    };
    return au_apply_all(x, json, s, sharded ? 3 : 1, list);
}

/* save_on_each_node: every node writes its files to a disk of its own. */
static int au_node_local(const ds_context *x, ckpt_value *json)
{
    ckpt_value *block = ckpt_value_get(json, "checkpoint");
    ckpt_value *local = ckpt_value_get(block, "use_node_local_storage");
    ckpt_value *yes = ckpt_value_bool(x->arena, true);

    if (!x->args->save_on_each_node || (block && block->kind != CKPT_V_DICT)) {
        return CKPT_OK; // reading the file refuses a block that is not an object
    }
    if (!block) {
        block = ckpt_value_new(x->arena, CKPT_V_DICT);
        if (!ckpt_dict_add_cstr(x->arena, &json->as.map, "checkpoint", block))
            return ckpt_fail_memory(x->err);
    }
    if (!yes)
        return ckpt_fail_memory(x->err);
    if (local) {
        *local = *yes;
        return CKPT_OK;
    }
    return ckpt_dict_add_cstr(x->arena, &block->as.map, "use_node_local_storage", yes)
               ? CKPT_OK
               : ckpt_fail_memory(x->err);
}

int ds_fill(ds_context *x, ckpt_value *json)
{
    au_list list = {.n = 0};
    int rc;

    if (!x->args)
        return CKPT_OK;
    rc = au_batches(x, json, &list);
    rc = rc == CKPT_OK ? au_optimizer(x, json, &list) : rc;
    rc = rc == CKPT_OK ? au_schedule(x, json, &list) : rc;
    rc = rc == CKPT_OK ? au_buckets(x, json, &list) : rc;
    rc = rc == CKPT_OK ? au_node_local(x, json) : rc;
    if (rc == CKPT_OK && list.n > 0)
        return ckpt_fail(x->err, CKPT_EUSAGE, "%s: %s (\"auto\" takes the command line's)", x->name,
                         list.text);
    return rc;
}

/* ---- arguments without a key ---- */

/* True if the user gave the argument and the file lacks its key. */
static bool au_alone(const ds_context *x, zt_argument a, const ckpt_value *json, const char *path)
{
    return x->args->given[a] && !ds_find(json, path);
}

void ds_fill_missing(const ds_context *x, const ckpt_value *json, ds_draft *d)
{
    const zt_arguments *a = x->args;

    if (!a)
        return;
    if (au_alone(x, ZT_ARG_MICRO_BATCH, json, "train_micro_batch_size_per_gpu"))
        d->c.micro_batch = a->per_device_train_batch_size;
    if (au_alone(x, ZT_ARG_ACCUMULATION, json, "gradient_accumulation_steps"))
        d->c.accumulation = a->gradient_accumulation_steps;
    if (au_alone(x, ZT_ARG_CLIPPING, json, "gradient_clipping"))
        d->c.clipping = a->max_grad_norm;
    if (au_alone(x, ZT_ARG_FP16, json, "fp16.enabled"))
        d->c.fp16.enabled = a->fp16;
    if (au_alone(x, ZT_ARG_BF16, json, "bf16.enabled") && !ds_find(json, "bfloat16"))
        d->bf16 = a->bf16;
    // If the file has no batch size, use the arguments' defaults too, as the Trainer does.
    if (d->c.train_batch == DS_MISSING && d->c.micro_batch == DS_MISSING) {
        d->c.micro_batch = a->per_device_train_batch_size;
        d->c.accumulation =
            d->c.accumulation == DS_MISSING ? a->gradient_accumulation_steps : d->c.accumulation;
    }
}
