/* SPDX-License-Identifier: Apache-2.0 */
/*
 * schedule.c: computes learning rates, and OneCycle's betas, over the updates.
 *
 * A schedule is a function of k, the applied updates minus one (last_batch_iteration); update 0
 * uses the constructor's values.  The order of operations is that of DeepSpeed 0.19.8,
 * runtime/lr_schedules.py, so values agree to the last bits.
 */
#include <assert.h>
#include <math.h>
#include <stddef.h>
#include <string.h>

#include "engine/optim/optim.h"

#define SD_PI 3.14159265358979323846

/*
 * Types of values.  Python's classes check little; values on which they would fail later are
 * refused.
 */
typedef enum sd_kind {
    SD_NUMBER,
    SD_LIST,  /* a number, or a list with one for each group, stored at `list` */
    SD_COUNT, /* an integer */
    SD_STEPS, /* an integer > 0 */
    SD_BOOL,
    SD_SHAPE /* warmup_type */
} sd_kind;

typedef struct sd_key {
    const char *name;
    sd_kind kind;
    bool required;
    size_t at, list;
} sd_key;

#define SD_AT(field) offsetof(zt_schedule, field)

static const sd_key sd_range[] = {
    {"lr_range_test_min_lr", SD_LIST, false, SD_AT(min_lr), SD_AT(min_lrs)},
    {"lr_range_test_step_size", SD_STEPS, false, SD_AT(warmup), 0}, // moved by sd_finish
    {"lr_range_test_step_rate", SD_NUMBER, false, SD_AT(step_rate), 0},
    {"lr_range_test_staircase", SD_BOOL, false, SD_AT(staircase), 0},
    {"last_batch_iteration", SD_COUNT, false, SD_AT(last), 0},
    {NULL, SD_NUMBER, false, 0, 0},
};

static const sd_key sd_cycle[] = {
    {"cycle_min_lr", SD_LIST, true, SD_AT(min_lr), SD_AT(min_lrs)},
    {"cycle_max_lr", SD_LIST, true, SD_AT(max_lr), SD_AT(max_lrs)},
    {"decay_lr_rate", SD_NUMBER, false, SD_AT(decay_lr), 0},
    {"cycle_first_step_size", SD_NUMBER, false, SD_AT(first_size), 0},
    {"cycle_second_step_size", SD_NUMBER, false, SD_AT(second_size), 0},
    {"cycle_first_stair_count", SD_COUNT, false, SD_AT(first_stairs), 0},
    {"cycle_second_stair_count", SD_COUNT, false, SD_AT(second_stairs), 0},
    {"decay_step_size", SD_NUMBER, false, SD_AT(decay_size), 0},
    {"cycle_momentum", SD_BOOL, false, SD_AT(cycle_momentum), 0},
    {"cycle_min_mom", SD_LIST, false, SD_AT(min_mom), SD_AT(min_moms)},
    {"cycle_max_mom", SD_LIST, false, SD_AT(max_mom), SD_AT(max_moms)},
    {"decay_mom_rate", SD_NUMBER, false, SD_AT(decay_mom), 0},
    {"last_batch_iteration", SD_COUNT, false, SD_AT(last), 0},
    {NULL, SD_NUMBER, false, 0, 0},
};

/* Keys of WarmupLR; WarmupDecayLR has total_num_steps too. */
static const sd_key sd_warmup[] = {
    {"total_num_steps", SD_COUNT, true, SD_AT(total), 0},
    {"warmup_min_lr", SD_LIST, false, SD_AT(min_lr), SD_AT(min_lrs)},
    {"warmup_max_lr", SD_LIST, false, SD_AT(max_lr), SD_AT(max_lrs)},
    {"warmup_num_steps", SD_STEPS, false, SD_AT(warmup), 0},
    {"warmup_type", SD_SHAPE, false, SD_AT(linear), 0},
    {"last_batch_iteration", SD_COUNT, false, SD_AT(last), 0},
    {NULL, SD_NUMBER, false, 0, 0},
};

static const sd_key sd_cosine[] = {
    {"total_num_steps", SD_COUNT, true, SD_AT(total), 0},
    {"warmup_min_ratio", SD_NUMBER, false, SD_AT(min_ratio), 0},
    {"warmup_num_steps", SD_STEPS, false, SD_AT(warmup), 0},
    {"cos_min_ratio", SD_NUMBER, false, SD_AT(cos_ratio), 0},
    {"warmup_type", SD_SHAPE, false, SD_AT(linear), 0},
    {"last_batch_iteration", SD_COUNT, false, SD_AT(last), 0},
    {NULL, SD_NUMBER, false, 0, 0},
};

#define SD_LAST                                                                                    \
    {"last_batch_iteration", SD_COUNT, false, SD_AT(last), 0},                                     \
    {                                                                                              \
        NULL, SD_NUMBER, false, 0, 0                                                               \
    }

/* Arguments of transformers' functions.  lr_scheduler_kwargs gives the ones after the steps. */
#define SD_HF_WARMUP                                                                               \
    {                                                                                              \
        "num_warmup_steps", SD_COUNT, false, SD_AT(warmup), 0                                      \
    }
#define SD_HF_TOTAL                                                                                \
    {                                                                                              \
        "num_training_steps", SD_COUNT, true, SD_AT(total), 0                                      \
    }
#define SD_HF_CYCLES                                                                               \
    {                                                                                              \
        "num_cycles", SD_NUMBER, false, SD_AT(cycles), 0                                           \
    }

static const sd_key sd_constant[] = {SD_LAST};
static const sd_key sd_constant_warmup[] = {SD_HF_WARMUP, SD_LAST};
static const sd_key sd_linear[] = {SD_HF_WARMUP, SD_HF_TOTAL, SD_LAST};
static const sd_key sd_hf_cosine[] = {SD_HF_WARMUP, SD_HF_TOTAL, SD_HF_CYCLES, SD_LAST};
static const sd_key sd_cosine_min[] = {
    SD_HF_WARMUP,
    SD_HF_TOTAL,
    SD_HF_CYCLES,
    {"min_lr", SD_NUMBER, false, SD_AT(min_lr), 0},
    {"min_lr_rate", SD_NUMBER, false, SD_AT(min_ratio), 0},
    SD_LAST,
};
static const sd_key sd_polynomial[] = {
    SD_HF_WARMUP,
    SD_HF_TOTAL,
    {"lr_end", SD_NUMBER, false, SD_AT(lr_end), 0},
    {"power", SD_NUMBER, false, SD_AT(power), 0},
    SD_LAST,
};
static const sd_key sd_inverse_sqrt[] = {
    SD_HF_WARMUP, {"timescale", SD_STEPS, false, SD_AT(timescale), 0}, SD_LAST};

static const struct {
    const char *name;
    zt_schedule_type type;
    const sd_key *keys;
} sd_types[] = {
    {"LRRangeTest", ZT_RANGE_TEST, sd_range},
    {"OneCycle", ZT_ONE_CYCLE, sd_cycle},
    {"WarmupLR", ZT_WARMUP, sd_warmup + 1},
    {"WarmupDecayLR", ZT_WARMUP_DECAY, sd_warmup},
    {"WarmupCosineLR", ZT_WARMUP_COSINE, sd_cosine},
    {"constant", ZT_HF_CONSTANT, sd_constant},
    {"constant_with_warmup", ZT_HF_WARMUP, sd_constant_warmup},
    {"linear", ZT_HF_LINEAR, sd_linear},
    {"cosine", ZT_HF_COSINE, sd_hf_cosine},
    {"cosine_with_min_lr", ZT_HF_COSINE_MIN, sd_cosine_min},
    {"cosine_with_restarts", ZT_HF_RESTARTS, sd_hf_cosine},
    {"polynomial", ZT_HF_POLYNOMIAL, sd_polynomial},
    {"inverse_sqrt", ZT_HF_INVERSE_SQRT, sd_inverse_sqrt},
};

/* Schedulers of torch and transformers that a config may name, and the nearest supported one. */
static const struct {
    const char *name, *instead;
} sd_others[] = {
    {"ConstantLR", "no scheduler"},
    {"LinearLR", "WarmupDecayLR with \"warmup_type\": \"linear\""},
    {"CosineAnnealingLR", "WarmupCosineLR"},
    {"CosineAnnealingWarmRestarts", "WarmupCosineLR"},
    {"OneCycleLR", "OneCycle"},
    {"CyclicLR", "OneCycle"},
    {"PolynomialLR", "WarmupDecayLR"},
    {"StepLR", "LRRangeTest with a staircase, or WarmupDecayLR"},
    {"MultiStepLR", "WarmupDecayLR"},
    {"ExponentialLR", "WarmupCosineLR"},
    {"ReduceLROnPlateau", "WarmupCosineLR"},
    {"reduce_lr_on_plateau", "cosine"},
    {"cosine_warmup_with_min_lr", "cosine_with_min_lr"},
    {"warmup_stable_decay", "constant_with_warmup, and linear in a second run"},
    {"greedy", "cosine"},
};

/* Convert a finite number; true and false are refused, although Python would take them. */
static bool sd_number(const ckpt_value *v, double *out)
{
    if (!v || (v->kind != CKPT_V_INT && v->kind != CKPT_V_FLOAT))
        return false;
    *out = v->kind == CKPT_V_INT ? (double)v->as.i : v->as.f;
    return isfinite(*out);
}

/* Report a wrong value: the key and the expected type. */
static int sd_bad(const char *key, const char *expected, ckpt_err *err)
{
    return ckpt_fail(err, CKPT_EUSAGE, "scheduler.params.%s: %s expected", key, expected);
}

/* Read one number for all groups, or a list, which stays in the config's tree. */
static int sd_list(zt_schedule *s, const sd_key *k, const ckpt_value *v, ckpt_err *err)
{
    ckpt_seq seq = ckpt_value_seq(v);
    double *at = (double *)(void *)((char *)s + k->at);
    double x;

    if (v->kind != CKPT_V_LIST)
        return sd_number(v, at) ? CKPT_OK : sd_bad(k->name, "a number, or one for each group", err);
    for (uint64_t i = 0; i < seq.n; i++) {
        if (!sd_number(seq.at[i], &x))
            return sd_bad(k->name, "a list of numbers", err);
        *at = x;
    }
    memcpy((char *)s + k->list, &v, sizeof v);
    return CKPT_OK;
}

static int sd_count(zt_schedule *s, const sd_key *k, const ckpt_value *v, ckpt_err *err)
{
    double x;

    // HJSON's reader turns 1000.0 into an integer; other fractions are errors in DeepSpeed too
    if (!sd_number(v, &x) || fabs(x) > 0x1p53 || x != floor(x) || (k->kind == SD_STEPS && x <= 0))
        return sd_bad(k->name, k->kind == SD_STEPS ? "an integer > 0" : "an integer", err);
    *(int64_t *)(void *)((char *)s + k->at) = (int64_t)x;
    return CKPT_OK;
}

/* True if the class accepts null, because its default is None. */
static bool sd_may_be_null(const zt_schedule *s, const sd_key *k)
{
    return k->at == SD_AT(second_size) || k->at == SD_AT(second_stairs) ||
           (s->type == ZT_WARMUP && k->at == SD_AT(max_lr));
}

/* Read one setting by its type. */
static int sd_set(zt_schedule *s, const sd_key *k, const ckpt_value *v, ckpt_err *err)
{
    void *at = (char *)s + k->at;

    if (v->kind == CKPT_V_NONE && sd_may_be_null(s, k))
        return CKPT_OK;
    switch (k->kind) {
    case SD_NUMBER:
        return sd_number(v, at) ? CKPT_OK : sd_bad(k->name, "a number", err);
    case SD_LIST:
        return sd_list(s, k, v, err);
    case SD_COUNT:
    case SD_STEPS:
        return sd_count(s, k, v, err);
    case SD_BOOL:
        *(bool *)at = v->as.i != 0;
        return v->kind == CKPT_V_BOOL ? CKPT_OK : sd_bad(k->name, "true or false", err);
    case SD_SHAPE:
        *(bool *)at = ckpt_value_is(v, "linear"); // any other word means log
        return v->kind == CKPT_V_STR ? CKPT_OK : sd_bad(k->name, "\"log\" or \"linear\"", err);
    }
    return CKPT_OK;
}

static const sd_key *sd_find(const sd_key *keys, const char *name)
{
    for (; keys->name; keys++) {
        if (strcmp(keys->name, name) == 0)
            return keys;
    }
    return NULL;
}

/* Read all settings of a block, and check that no required one is missing. */
static int sd_params(zt_schedule *s, const sd_key *keys, const ckpt_value *params, ckpt_err *err)
{
    ckpt_dict map = ckpt_value_map(params);
    int rc = CKPT_OK;

    for (uint64_t i = 0; i < map.n && rc == CKPT_OK; i++) {
        const char *name = map.at[i].key->kind == CKPT_V_STR ? map.at[i].key->as.text.at : "";
        const sd_key *k = sd_find(keys, name);

        rc = k ? sd_set(s, k, map.at[i].value, err)
               : ckpt_fail(err, CKPT_EUNSUPPORTED, "scheduler.params.%s is not a setting of %s",
                           name, s->name);
    }
    for (; rc == CKPT_OK && keys->name; keys++) {
        if (keys->required && !ckpt_value_get(params, keys->name))
            rc = ckpt_fail(err, CKPT_EUSAGE, "scheduler.params.%s is missing: %s needs it",
                           keys->name, s->name);
    }
    return rc;
}

/* Set the constructors' defaults. */
static void sd_defaults(zt_schedule *s)
{
    s->last = -1;
    s->min_lr = s->type == ZT_RANGE_TEST ? 1e-3 : 0;
    // only WarmupLR goes up to each group's own rate by default
    s->max_lr = s->type == ZT_WARMUP_DECAY ? 1e-3 : (double)NAN;
    s->cos_ratio = 1e-4;
    s->warmup = s->type == ZT_RANGE_TEST ? 2000 : zt_schedule_is_factor(s) ? 0 : 1000;
    s->cycles = s->type == ZT_HF_RESTARTS ? 1 : 0.5;
    s->power = 1;
    s->lr_end = 1e-7;
    s->step_rate = 1;
    s->first_size = 2000;
    s->second_size = (double)NAN;
    s->second_stairs = -1;
    s->cycle_momentum = true;
    s->min_mom = 0.8;
    s->max_mom = 0.9;
}

/* Compute dependent settings of transformers' schedules. */
static int sd_factor_finish(zt_schedule *s, const ckpt_value *params, ckpt_err *err)
{
    bool rate = ckpt_value_get(params, "min_lr_rate"), lr = ckpt_value_get(params, "min_lr");

    if (s->timescale == 0)
        s->timescale = s->warmup != 0 ? s->warmup : 10000;
    if (s->type == ZT_HF_COSINE_MIN && rate == lr)
        return ckpt_fail(err, CKPT_EUSAGE, "%s needs one of min_lr and min_lr_rate%s", s->name,
                         lr ? ", not both" : "");
    s->min_lr = lr ? s->min_lr : (double)NAN;
    return CKPT_OK;
}

int zt_schedule_base(zt_schedule *s, double lr, ckpt_err *err)
{
    s->lr_init = lr;
    if (s->type == ZT_HF_POLYNOMIAL && !(lr > s->lr_end))
        return ckpt_fail(err, CKPT_EUSAGE,
                         "lr_end of the schedule is %g, but must be below the learning rate, %g",
                         s->lr_end, lr);
    if (s->type == ZT_HF_COSINE_MIN && !isnan(s->min_lr) && !(lr > 0))
        return ckpt_fail(err, CKPT_EUSAGE,
                         "min_lr of the schedule needs a learning rate above 0, found %g", lr);
    if (s->type == ZT_HF_COSINE_MIN && !isnan(s->min_lr))
        s->min_ratio = s->min_lr / lr;
    return CKPT_OK;
}

/* Compute dependent settings, and check OneCycle's limits. */
static int sd_finish(zt_schedule *s, ckpt_err *err)
{
    s->step_size = (double)s->warmup;
    if (s->type != ZT_RANGE_TEST)
        s->warmup = s->warmup < 2 ? 2 : s->warmup;
    s->second_size = isnan(s->second_size) ? s->first_size : s->second_size;
    s->second_stairs = s->second_stairs < 0 ? s->first_stairs : s->second_stairs;
    if (s->type != ZT_ONE_CYCLE)
        return CKPT_OK;
    if (s->first_size <= 0)
        return sd_bad("cycle_first_step_size", "a number > 0", err);
    if (s->second_size < 0)
        return sd_bad("cycle_second_step_size", "a number >= 0", err);
    return s->decay_size < 0 ? sd_bad("decay_step_size", "a number >= 0", err) : CKPT_OK;
}

/* Refuse an unknown type, and name the nearest one. */
static int sd_not_here(const char *name, ckpt_err *err)
{
    for (size_t i = 0; i < sizeof sd_others / sizeof *sd_others; i++) {
        if (strcmp(sd_others[i].name, name) == 0)
            return ckpt_fail(err, CKPT_EUNSUPPORTED,
                             "scheduler.type \"%s\" is not supported; the nearest choice: %s", name,
                             sd_others[i].instead);
    }
    return ckpt_fail(err, CKPT_EUNSUPPORTED,
                     "scheduler.type \"%s\" is not supported; there are WarmupLR, WarmupDecayLR, "
                     "WarmupCosineLR, OneCycle and LRRangeTest, and transformers' linear, cosine, "
                     "constant, constant_with_warmup, polynomial, inverse_sqrt, "
                     "cosine_with_restarts and cosine_with_min_lr",
                     name);
}

int zt_schedule_parse(zt_schedule *out, const ckpt_value *block, ckpt_err *err)
{
    const ckpt_value *type = ckpt_value_get(block, "type");
    const ckpt_value *params = ckpt_value_get(block, "params");
    int rc;

    memset(out, 0, sizeof *out);
    out->last = -1;
    if (!type || type->kind == CKPT_V_NONE) {
        return CKPT_OK; // DeepSpeed ignores a scheduler block without a type
    }
    if (type->kind != CKPT_V_STR)
        return ckpt_fail(err, CKPT_EUSAGE, "scheduler.type: a name expected");
    if (params && params->kind != CKPT_V_DICT && params->kind != CKPT_V_NONE)
        return ckpt_fail(err, CKPT_EUSAGE, "scheduler.params: an object expected");
    for (size_t i = 0; i < sizeof sd_types / sizeof *sd_types; i++) {
        if (!ckpt_value_is(type, sd_types[i].name))
            continue;
        out->type = sd_types[i].type;
        out->name = sd_types[i].name;
        sd_defaults(out);
        rc = sd_params(out, sd_types[i].keys, params, err);
        if (rc == CKPT_OK && zt_schedule_is_factor(out))
            return sd_factor_finish(out, params, err);
        return rc == CKPT_OK ? sd_finish(out, err) : rc;
    }
    return sd_not_here(type->as.text.at, err);
}

int zt_schedule_check(const zt_schedule *s, size_t n, ckpt_err *err)
{
    const ckpt_value *lists[4] = {s->min_lrs, s->max_lrs, s->min_moms, s->max_moms};
    static const char *const names[4] = {"lowest rates", "highest rates", "lowest momenta",
                                         "highest momenta"};

    for (size_t i = 0; i < 4; i++) {
        if (lists[i] && lists[i]->as.seq.n != n)
            return ckpt_fail(err, CKPT_EUSAGE,
                             "scheduler.params: %llu %s for %zu parameter groups; give one number, "
                             "or one for each",
                             (unsigned long long)lists[i]->as.seq.n, names[i], n);
    }
    return CKPT_OK;
}

/* Number of group i: from the list, or the number for all. */
static double sd_of(const ckpt_value *list, size_t i, double all)
{
    if (list && i < list->as.seq.n)
        (void)sd_number(list->as.seq.at[i], &all);
    return all;
}

/* ---- the functions of k ---- */

/* Completed part of the warm-up, 0 to 1. */
static double sd_gamma(const zt_schedule *s)
{
    double k = (double)s->last, n = (double)s->warmup;

    return s->linear ? k / n : 1.0 / log(n) * log(k + 1);
}

/* WarmupLR and WarmupDecayLR: from min to max, then constant, or linear decay to min at `total`. */
static double sd_warm_lr(const zt_schedule *s, double min, double max)
{
    double k = (double)s->last, n = (double)s->warmup, total = (double)s->total;
    double gamma = 1;

    if (s->last < 0)
        return min;
    if (s->last < s->warmup)
        gamma = sd_gamma(s);
    else if (s->type == ZT_WARMUP_DECAY)
        gamma = fmax(0.0, (total - k) / fmax(1.0, total - n));
    return min + (max - min) * gamma;
}

/* WarmupCosineLR: fractions of the group's own rate, up and then down half a cosine wave. */
static double sd_cosine_lr(const zt_schedule *s, double own)
{
    double done, left, ratio;

    if (s->last < 0)
        return 0;
    if (s->last < s->warmup)
        return own * (s->min_ratio + sd_gamma(s) * (1. - s->min_ratio));
    done = (double)(s->last - s->warmup + 1);
    left = (double)(s->total - s->warmup > 1 ? s->total - s->warmup : 1);
    ratio = (1 + cos(SD_PI * fmin(1.0, done / left))) / 2;
    return own * fmax(0.0, s->cos_ratio + (1. - s->cos_ratio) * ratio);
}

/* LRRangeTest (Smith 2018): a line without an end, or a staircase. */
static double sd_range_lr(const zt_schedule *s, double min)
{
    double interval = (double)(s->last + 1) / s->step_size;

    return min * (1 + s->step_rate * (s->staircase ? floor(interval) : interval));
}

/* OneCycle's position: 0 at both ends of the cycle, 1 at its peak. */
static double sd_height(const zt_schedule *s)
{
    double i = (double)(s->last + 1), total = s->first_size + s->second_size;
    double rise = s->first_size / total;
    double x = 1. + i / total - floor(1 + i / total);
    bool rising = x <= rise;
    double height = rising ? x / rise : (x - 1) / (rise - 1);
    double stairs = (double)(rising ? s->first_stairs : s->second_stairs);

    if (stairs > 0) {
        // computed again from i, because rounding may leave `height` just below the next stair
        double at = fmod(i, total);

        height = at <= s->first_size ? at * stairs / s->first_size
                                     : (total - at) * stairs / s->second_size;
        height = floor(height) / stairs;
    }
    return height;
}

/* Decay steps since the end of the cycle; 0 during the cycle, or without decay. */
static double sd_decay(const zt_schedule *s, double rate)
{
    double total = s->first_size + s->second_size;

    return s->decay_size == 0 || rate == 0 ? 0 : ((double)s->last - total + 1) / s->decay_size;
}

/*
 * OneCycle (Smith 2018): the rate, and beta1 in the opposite direction; after the cycle both decay.
 */
static void sd_cycle_group(const zt_schedule *s, zt_hyper *h, size_t i)
{
    double low = sd_of(s->min_lrs, i, s->min_lr), high = sd_of(s->max_lrs, i, s->max_lr);
    double slow = sd_of(s->min_moms, i, s->min_mom), fast = sd_of(s->max_moms, i, s->max_mom);
    bool cycling = (double)s->last < s->first_size + s->second_size;
    double height = cycling ? sd_height(s) : 0;

    h->lr =
        cycling ? low + (high - low) * height : low / (1 + s->decay_lr * sd_decay(s, s->decay_lr));
    if (s->cycle_momentum) {
        h->beta1 = cycling ? fast - (fast - slow) * height
                           : fast * (1 + s->decay_mom * sd_decay(s, s->decay_mom));
        h->beta2 = 0.99;
    }
}

/* Set the rate of group i after `last` was incremented. */
static void sd_group(const zt_schedule *s, zt_hyper *h, double own, size_t i)
{
    double max = sd_of(s->max_lrs, i, s->max_lr), min = sd_of(s->min_lrs, i, s->min_lr);

    switch ((int)s->type) {
    case ZT_SCHEDULE_NONE:
        break;
    case ZT_WARMUP:
    case ZT_WARMUP_DECAY:
        h->lr = sd_warm_lr(s, min, isnan(max) ? own : max);
        break;
    case ZT_WARMUP_COSINE:
        h->lr = sd_cosine_lr(s, own);
        break;
    case ZT_RANGE_TEST:
        h->lr = s->last < 0 ? min : sd_range_lr(s, min);
        break;
    case ZT_ONE_CYCLE:
        sd_cycle_group(s, h, i);
        break;
    default:
        h->lr = own * zt_schedule_factor(s, s->last + 1);
        break;
    }
}

void zt_schedule_begin(zt_schedule *s, zt_hyper *group, const double *own_lr, size_t n)
{
    if (s->last != -1) {
        return; // the configuration sets the position: rates stay unchanged until the next update
    }
    for (size_t i = 0; i < n; i++) {
        if (s->type == ZT_ONE_CYCLE) {
            group[i].lr = sd_of(s->min_lrs, i, s->min_lr);
            if (s->cycle_momentum) {
                group[i].beta1 = sd_of(s->min_moms, i, s->min_mom);
                group[i].beta2 = 0.99;
            }
        } else {
            sd_group(s, &group[i], own_lr[i], i);
        }
    }
}

void zt_schedule_step(zt_schedule *s, zt_hyper *group, const double *own_lr, size_t n)
{
    assert(n == 0 || (group && own_lr));
    s->last++;
    for (size_t i = 0; i < n; i++)
        sd_group(s, &group[i], own_lr[i], i);
}
