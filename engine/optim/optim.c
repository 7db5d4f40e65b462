/* SPDX-License-Identifier: Apache-2.0 */
/*
 * optim.c: reads the optimizer block of the config: types, settings, defaults.
 *
 * DeepSpeed passes `params` as keyword arguments to a class that it chooses, so the class decides
 * about allowed settings and defaults.  The tables below list them by class.  Source: DeepSpeed
 * 0.19.8, runtime/engine.py (_configure_basic_optimizer), the classes under ops/, torch.optim of
 * 2.15; for OneBitAdam releases before 0.18.
 */
#include "engine/optim/optim.h"

#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

/*
 * The classes that implement the types: torch's with torch_adam, DeepSpeed's CPU classes with
 * offload, else the fused ones.  They are bits, so a setting can name several.
 */
enum {
    OPT_TORCH_ADAM = 1,
    OPT_CPU_ADAM = 2,
    OPT_FUSED_ADAM = 4,
    OPT_SGD = 8,
    OPT_TORCH_ADAGRAD = 16,
    OPT_CPU_ADAGRAD = 32,
    OPT_CPU_LION = 64,
    OPT_FUSED_LION = 128,
    OPT_LAMB = 256,
    OPT_ONEBIT = 512,
    OPT_MUON = 1024,
    OPT_ANY = 2047,
    OPT_ADAM = OPT_TORCH_ADAM | OPT_CPU_ADAM | OPT_FUSED_ADAM,
    OPT_LION = OPT_CPU_LION | OPT_FUSED_LION,
    OPT_TORCH = OPT_TORCH_ADAM | OPT_SGD | OPT_TORCH_ADAGRAD,
    OPT_BETAS = OPT_ADAM | OPT_LION | OPT_LAMB | OPT_ONEBIT | OPT_MUON
};

typedef enum opt_kind {
    OPT_NUMBER, /* finite, >= 0 */
    OPT_PAIR,   /* betas */
    OPT_BOOL,
    OPT_COUNT,  /* integer >= 0 */
    OPT_METHOD, /* ns_method */
    OPT_MUST,   /* must equal `must`, the only supported value */
    OPT_FRESH,  /* OPT_MUST for a new run; a resumed run keeps the checkpoint's value */
    OPT_IGNORED /* ignored, because it does not change results */
} opt_kind;

/* A setting, the classes that take it, and its member.  A name may occur twice, for different
 * classes. */
typedef struct opt_setting {
    const char *name;
    opt_kind kind;
    unsigned classes;
    size_t at; /* offset in zt_optim */
    double must;
} opt_setting;

#define OPT_AT(field) offsetof(zt_optim, field)

static const opt_setting opt_settings[] = {
    {"lr", OPT_NUMBER, OPT_ANY, OPT_AT(h.lr), 0},
    {"betas", OPT_PAIR, OPT_BETAS, 0, 0},
    {"eps", OPT_NUMBER, OPT_ANY & ~(unsigned)(OPT_SGD | OPT_LION), OPT_AT(h.eps), 0},
    {"weight_decay", OPT_NUMBER, OPT_ANY, OPT_AT(h.weight_decay), 0},
    {"bias_correction", OPT_BOOL, OPT_CPU_ADAM | OPT_FUSED_ADAM | OPT_LAMB,
     OPT_AT(h.bias_correction), 0},
    {"momentum", OPT_NUMBER, OPT_SGD | OPT_MUON, OPT_AT(h.momentum), 0},
    {"dampening", OPT_NUMBER, OPT_SGD, OPT_AT(h.dampening), 0},
    {"nesterov", OPT_BOOL, OPT_SGD, OPT_AT(h.nesterov), 0},
    {"lr_decay", OPT_NUMBER, OPT_TORCH_ADAGRAD, OPT_AT(h.lr_decay), 0},
    {"eps_inside_sqrt", OPT_BOOL, OPT_LAMB, OPT_AT(eps_inside), 0},
    {"max_coeff", OPT_NUMBER, OPT_LAMB, OPT_AT(h.max_coeff), 0},
    {"min_coeff", OPT_NUMBER, OPT_LAMB, OPT_AT(h.min_coeff), 0},
    {"freeze_step", OPT_COUNT, OPT_ONEBIT, OPT_AT(freeze_step), 0},
    {"muon_lr", OPT_NUMBER, OPT_MUON, OPT_AT(muon_lr), 0},
    {"adam_lr", OPT_NUMBER, OPT_MUON, OPT_AT(adam_lr), 0},
    {"ns_method", OPT_METHOD, OPT_MUON, OPT_AT(h.muon_gram), 0},
    // opt_flag reads them before the class is known
    {"torch_adam", OPT_IGNORED, OPT_ADAM | OPT_MUON, 0, 0},
    {"adam_w_mode", OPT_IGNORED, OPT_ADAM | OPT_MUON, 0, 0},
    {"amsgrad", OPT_MUST, OPT_ADAM | OPT_CPU_ADAGRAD | OPT_LAMB | OPT_ONEBIT, 0, 0},
    {"maximize", OPT_MUST, OPT_TORCH, 0, 0},
    {"differentiable", OPT_FRESH, OPT_TORCH, 0, 0},
    {"initial_accumulator_value", OPT_FRESH, OPT_TORCH_ADAGRAD, 0, 0},
    {"fp32_optimizer_states", OPT_MUST, OPT_CPU_ADAM | OPT_CPU_ADAGRAD | OPT_CPU_LION, 0, 1},
    {"fp32_optimizer_states", OPT_IGNORED, OPT_TORCH_ADAM | OPT_FUSED_ADAM | OPT_MUON, 0, 0},
    {"ns_steps", OPT_MUST, OPT_MUON, 0, 5},
    {"nesterov", OPT_MUST, OPT_MUON, 0, 1},
    {"foreach", OPT_IGNORED, OPT_TORCH | OPT_MUON, 0, 0},
    {"fused", OPT_IGNORED, OPT_TORCH, 0, 0},
    {"capturable", OPT_IGNORED, OPT_TORCH_ADAM, 0, 0},
    {"set_grad_none", OPT_IGNORED, OPT_FUSED_ADAM | OPT_FUSED_LION, 0, 0},
    {"bias_correction", OPT_IGNORED, OPT_ONEBIT, 0, 0},
    {"eps_inside_sqrt", OPT_IGNORED, OPT_ONEBIT, 0, 0},
    {"cuda_aware", OPT_IGNORED, OPT_ONEBIT, 0, 0},
    {"comm_backend_name", OPT_IGNORED, OPT_ONEBIT, 0, 0},
};

#define OPT_N (sizeof opt_settings / sizeof *opt_settings)

typedef struct opt_type {
    const char *name;
    zt_optim_type type;
    bool exact; /* the name is looked up in torch.optim, so case matters */
} opt_type;

static const opt_type opt_types[] = {
    {"Adam", ZT_OPT_ADAM, false}, {"AdamW", ZT_OPT_ADAMW, false},
    {"SGD", ZT_OPT_SGD, true},    {"Adagrad", ZT_OPT_ADAGRAD, false},
    {"Lion", ZT_OPT_LION, false}, {"Lamb", ZT_OPT_LAMB, false},
    {"Muon", ZT_OPT_MUON, false}, {"OneBitAdam", ZT_OPT_ONEBIT_ADAM, false},
};

/*
 * Convert a finite number.  Strings are refused, because DeepSpeed's classes fail on "1e-5" as
 * well.
 */
static bool opt_number(const ckpt_value *v, double *out)
{
    if (v->kind != CKPT_V_INT && v->kind != CKPT_V_FLOAT)
        return false;
    *out = v->kind == CKPT_V_INT ? (double)v->as.i : v->as.f;
    return isfinite(*out);
}

/* Describe a wrong value for a message. */
static const char *opt_shown(const ckpt_value *v)
{
    static const char *const kinds[] = {"null",       "a boolean", "an integer",
                                        "an integer", "a number",  "a string"};

    if (v->kind == CKPT_V_LIST)
        return "a list";
    return (size_t)v->kind < sizeof kinds / sizeof *kinds ? kinds[v->kind] : "an object";
}

/* Find the type by its name, as DeepSpeed does. */
static int opt_find_type(zt_optim *o, const ckpt_value *block, ckpt_err *err)
{
    const ckpt_value *name = ckpt_value_get(block, "type");

    if (!name || name->kind != CKPT_V_STR)
        return ckpt_fail(err, CKPT_EUSAGE, "optimizer: \"type\" must be the name of an optimizer");
    o->name = name->as.text.at;
    for (size_t i = 0; i < sizeof opt_types / sizeof *opt_types; i++) {
        const opt_type *t = &opt_types[i];

        if (strcasecmp(t->name, o->name) == 0) {
            o->type = t->type;
            return !t->exact || strcmp(t->name, o->name) == 0
                       ? CKPT_OK
                       : ckpt_fail(err, CKPT_EUNSUPPORTED,
                                   "optimizer.type \"%s\" must be spelled \"%s\"", o->name,
                                   t->name);
        }
    }
    return ckpt_fail(err, CKPT_EUNSUPPORTED,
                     "optimizer.type \"%s\" is not supported; there are Adam, AdamW, SGD, Adagrad, "
                     "Lion, Lamb, Muon and OneBitAdam",
                     o->name);
}

/* Read a flag that decides about the class. */
static int opt_flag(const ckpt_value *params, const char *key, bool *out, ckpt_err *err)
{
    const ckpt_value *v = ckpt_value_get(params, key);

    if (v && v->kind != CKPT_V_BOOL)
        return ckpt_fail(err, CKPT_EUSAGE, "optimizer.params.%s: true or false expected, not %s",
                         key, opt_shown(v));
    if (v)
        *out = v->as.i != 0;
    return CKPT_OK;
}

static unsigned opt_adam_class(const zt_optim *o, bool offload)
{
    if (o->torch)
        return OPT_TORCH_ADAM;
    return offload ? OPT_CPU_ADAM : OPT_FUSED_ADAM;
}

/* The class that DeepSpeed would choose. */
static unsigned opt_class(const zt_optim *o, bool offload)
{
    switch (o->type) {
    case ZT_OPT_ADAM:
    case ZT_OPT_ADAMW:
        return opt_adam_class(o, offload);
    case ZT_OPT_SGD:
        return OPT_SGD;
    case ZT_OPT_ADAGRAD:
        return offload ? OPT_CPU_ADAGRAD : OPT_TORCH_ADAGRAD;
    case ZT_OPT_LION:
        return offload ? OPT_CPU_LION : OPT_FUSED_LION;
    case ZT_OPT_LAMB:
        return OPT_LAMB;
    case ZT_OPT_MUON:
        return OPT_MUON;
    case ZT_OPT_ONEBIT_ADAM:
    default:
        return OPT_ONEBIT;
    }
}

static void opt_states(zt_optim *o, const char *first, const char *second)
{
    o->state[0] = first;
    o->state[1] = second;
    o->n_state = second ? 2 : first ? 1 : 0;
}

/* Set the defaults of a class, and the names of its state. */
static void opt_defaults(zt_optim *o, unsigned class)
{
    o->h.lr = 1e-3;
    o->h.beta1 = 0.9;
    o->h.beta2 = 0.999;
    o->h.eps = 1e-8;
    o->h.bias_correction = class != OPT_ONEBIT;
    o->muon_lr = o->adam_lr = (double)NAN;
    opt_states(o, "exp_avg", "exp_avg_sq");
    switch (class) {
    case OPT_TORCH_ADAM:
        o->h.weight_decay = o->decoupled ? 1e-2 : 0; // the defaults of torch's AdamW and Adam
                                                     // differ
        break;
    case OPT_TORCH_ADAGRAD:
    case OPT_CPU_ADAGRAD:
        o->h.lr = 1e-2;
        o->h.eps = 1e-10;
        opt_states(o, class == OPT_CPU_ADAGRAD ? "exp_avg_sq" : "sum", NULL);
        break;
    case OPT_CPU_LION:
    case OPT_FUSED_LION:
        o->zero_up = class == OPT_FUSED_LION;
        opt_states(o, "exp_avg", NULL);
        break;
    case OPT_LAMB:
        o->h.max_coeff = 10;
        o->h.min_coeff = 0.01;
        break;
    case OPT_ONEBIT:
        o->freeze_step = 100000;
        break;
    case OPT_MUON:
        o->h.momentum = 0.95;
        o->h.beta2 = 0.95;
        o->h.eps = 1e-10;
        o->h.muon_gram = true;
        o->h.lr = (double)NAN; // opt_finish sets the different defaults of Muon's and Adam's half
        break;
    default:
        break;
    }
}

/* Read betas.  Both must be below 1, because at 1 a moment would never change. */
static int opt_betas(zt_optim *o, const ckpt_value *v, ckpt_err *err)
{
    ckpt_seq seq = ckpt_value_seq(v);

    if ((v->kind != CKPT_V_LIST && v->kind != CKPT_V_TUPLE) || seq.n != 2 ||
        !opt_number(seq.at[0], &o->h.beta1) || !opt_number(seq.at[1], &o->h.beta2) ||
        o->h.beta1 < 0 || o->h.beta1 >= 1 || o->h.beta2 < 0 || o->h.beta2 >= 1)
        return ckpt_fail(err, CKPT_EUSAGE, "betas: two numbers from 0 to below 1 expected");
    return CKPT_OK;
}

/* Check a setting that supports only one value: the default, or off. */
static int opt_must(const opt_setting *s, const ckpt_value *v, ckpt_err *err)
{
    double x = v->kind == CKPT_V_BOOL ? (double)v->as.i : 0;

    if (v->kind != CKPT_V_BOOL && v->kind != CKPT_V_NONE && !opt_number(v, &x))
        return ckpt_fail(err, CKPT_EUSAGE, "%s: a number expected, not %s", s->name, opt_shown(v));
    // null means "not set", as in Python
    return v->kind == CKPT_V_NONE || x == s->must
               ? CKPT_OK
               : ckpt_fail(err, CKPT_EUNSUPPORTED, "%s: only %g%s is supported", s->name, s->must,
                           v->kind == CKPT_V_BOOL ? (s->must > 0 ? " (true)" : " (false)") : "");
}

/* Check one value and store it.  Messages begin with the setting's name. */
static int opt_set(zt_optim *o, const opt_setting *s, const ckpt_value *v, ckpt_err *err)
{
    char *at = (char *)o + s->at;
    double x = 0;

    switch (s->kind) {
    case OPT_NUMBER:
        if (!opt_number(v, &x) || x < 0)
            return ckpt_fail(err, CKPT_EUSAGE, "%s: a number >= 0 expected, not %s", s->name,
                             x < 0 ? "a negative one" : opt_shown(v));
        memcpy(at, &x, sizeof x);
        return CKPT_OK;
    case OPT_PAIR:
        return opt_betas(o, v, err);
    case OPT_BOOL:
        if (v->kind != CKPT_V_BOOL)
            return ckpt_fail(err, CKPT_EUSAGE, "%s: true or false expected, not %s", s->name,
                             opt_shown(v));
        *(bool *)at = v->as.i != 0;
        return CKPT_OK;
    case OPT_COUNT:
        if (!opt_number(v, &x) || x < 0 || x > 0x1p53 || x != floor(x))
            return ckpt_fail(err, CKPT_EUSAGE, "%s: an integer >= 0 expected", s->name);
        *(int64_t *)(void *)at = (int64_t)x;
        return CKPT_OK;
    case OPT_METHOD:
        *(bool *)at = ckpt_value_is(v, "gram");
        return *(bool *)at || ckpt_value_is(v, "standard")
                   ? CKPT_OK
                   : ckpt_fail(err, CKPT_EUSAGE, "%s: \"gram\" or \"standard\" expected", s->name);
    case OPT_MUST:
    case OPT_FRESH:
        return opt_must(s, v, err);
    case OPT_IGNORED:
        break;
    }
    return CKPT_OK;
}

/* Report a setting that the class does not take, with those that it takes. */
static int opt_unknown(const zt_optim *o, const char *key, unsigned class, ckpt_err *err)
{
    char known[320] = "";
    size_t n = 0;

    for (size_t i = 0; i < OPT_N; i++) {
        size_t add = strlen(opt_settings[i].name);

        if ((opt_settings[i].classes & class) && n + add + 3 < sizeof known)
            n += (size_t)snprintf(known + n, sizeof known - n, "%s%s", n ? ", " : "",
                                  opt_settings[i].name);
    }
    return ckpt_fail(err, CKPT_EUNSUPPORTED, "optimizer.params.%s is not a setting of %s (%s)", key,
                     o->name, known);
}

/* Find the setting with that name in one of the classes; NULL: none has it. */
static const opt_setting *opt_find(const char *key, unsigned classes)
{
    for (size_t i = 0; i < OPT_N; i++) {
        if ((opt_settings[i].classes & classes) && strcmp(opt_settings[i].name, key) == 0)
            return &opt_settings[i];
    }
    return NULL;
}

/* Read one entry of params. */
static int opt_one(zt_optim *o, const ckpt_pair *pair, unsigned class, ckpt_err *err)
{
    const opt_setting *s;
    const char *key;
    ckpt_err local = {0};
    int rc;

    if (pair->key->kind != CKPT_V_STR)
        return ckpt_fail(err, CKPT_EUSAGE, "optimizer.params: keys must be strings");
    key = pair->key->as.text.at;
    if (strcmp(key, "max_grad_norm") == 0)
        return ckpt_fail(err, CKPT_EUSAGE,
                         "optimizer.params.max_grad_norm is not a setting of optimizers: write "
                         "\"gradient_clipping\" at the top level");
    s = opt_find(key, class);
    if (!s)
        return opt_unknown(o, key, class, err);
    rc = opt_set(o, s, pair->value, &local);
    return rc == CKPT_OK ? rc
                         : ckpt_fail(err, rc, "optimizer.params.%s%s", local.text,
                                     rc == CKPT_EUNSUPPORTED ? "; leave it out" : "");
}

/* Apply the rules over several settings. */
static int opt_finish(zt_optim *o, ckpt_err *err)
{
    if (o->type == ZT_OPT_SGD) {
        if (o->h.nesterov && (o->h.momentum <= 0 || o->h.dampening != 0))
            return ckpt_fail(
                err, CKPT_EUSAGE,
                "optimizer.params.nesterov needs a momentum above 0 and a dampening of 0");
        opt_states(o, o->h.momentum > 0 ? "momentum_buffer" : NULL, NULL);
    }
    if (o->type == ZT_OPT_MUON && isnan(o->h.lr)) {
        // no rate is configured: Muon's half and Adam's half have different defaults
        o->h.lr = 0.02;
        o->adam_lr = isnan(o->adam_lr) ? 3e-4 : o->adam_lr;
    }
    if (o->type == ZT_OPT_MUON && o->h.momentum >= 1)
        return ckpt_fail(err, CKPT_EUSAGE, "optimizer.params.momentum: a number below 1 expected");
    return CKPT_OK;
}

int zt_optim_parse(zt_optim *out, const ckpt_value *block, bool offload, ckpt_err *err)
{
    const ckpt_value *params = ckpt_value_get(block, "params");
    ckpt_dict map = ckpt_value_map(params);
    unsigned class;
    bool adam;
    int rc;

    memset(out, 0, sizeof *out);
    rc = opt_find_type(out, block, err);
    if (rc == CKPT_OK && params && params->kind != CKPT_V_NONE && params->kind != CKPT_V_DICT)
        rc = ckpt_fail(err, CKPT_EUSAGE, "optimizer.params: an object expected, not %s",
                       opt_shown(params));
    adam = out->type == ZT_OPT_ADAM || out->type == ZT_OPT_ADAMW || out->type == ZT_OPT_MUON;
    out->decoupled = true;
    out->params = params;
    if (rc == CKPT_OK && adam) {
        rc = opt_flag(params, "adam_w_mode", &out->decoupled, err);
        rc = rc == CKPT_OK ? opt_flag(params, "torch_adam", &out->torch, err) : rc;
        out->decoupled = out->decoupled || out->type == ZT_OPT_ADAMW;
    }
    if (rc != CKPT_OK)
        return rc;
    class = out->class = opt_class(out, offload);
    out->torch = out->torch || (class & OPT_TORCH) != 0;
    opt_defaults(out, class);
    for (uint64_t i = 0; i < map.n && rc == CKPT_OK; i++)
        rc = opt_one(out, &map.at[i], class, err);
    return rc == CKPT_OK ? opt_finish(out, err) : rc;
}

bool zt_optim_names(const zt_optim *o, const char *name)
{
    return ckpt_value_get(o->params, name) != NULL;
}

bool zt_optim_has_betas(const zt_optim *o)
{
    // a schedule looks for betas in optimizer.defaults, where Muon's class has none
    return o->type != ZT_OPT_SGD && o->type != ZT_OPT_ADAGRAD && o->type != ZT_OPT_MUON;
}

zt_hyper zt_optim_hyper(const zt_optim *o, bool muon)
{
    double own = muon ? o->muon_lr : o->adam_lr;
    zt_hyper h = o->h;

    h.lr = o->type == ZT_OPT_MUON && !isnan(own) ? own : h.lr;
    return h;
}

/* ---- settings of a checkpoint ---- */

/* True for a setting that checkpoints keep with a group. */
static bool opt_is_of_group(const opt_setting *s)
{
    if (s->kind == OPT_MUST || s->kind == OPT_FRESH || s->kind == OPT_IGNORED)
        return false;
    return s->kind == OPT_PAIR || (s->at >= OPT_AT(h) && s->at < OPT_AT(h) + sizeof(zt_hyper));
}

/*
 * Refuse a setting that this class lacks and that would change results.  torch's classes have all
 * of them, but DeepSpeed's classes would silently continue without them.
 */
static int opt_take_foreign(const char *key, const ckpt_value *v, ckpt_err *err)
{
    static const char *const asked[] = {"amsgrad", "maximize"};
    bool is = false;

    for (size_t i = 0; i < sizeof asked / sizeof *asked; i++)
        is = is || strcmp(asked[i], key) == 0;
    return is ? opt_must(opt_find(key, OPT_ANY), v, err) : CKPT_OK;
}

/* Check that weight decay is decoupled (AdamW) or not (Adam), as configured. */
static int opt_take_decoupled(const zt_optim *o, const ckpt_value *fields, ckpt_err *err)
{
    const ckpt_value *v = ckpt_value_get(fields, "decoupled_weight_decay");
    const ckpt_value *decay = ckpt_value_get(fields, "weight_decay");
    double x = 0;

    if (!v || v->kind != CKPT_V_BOOL || !(o->class & (OPT_ADAM | OPT_MUON)) || !decay ||
        !opt_number(decay, &x) || !(x > 0) || (v->as.i != 0) == o->decoupled)
        return CKPT_OK;
    return ckpt_fail(err, CKPT_EUNSUPPORTED,
                     "decoupled_weight_decay is %s, but the configured optimizer %s: set "
                     "optimizer.type to \"%s\"%s",
                     v->as.i ? "True (AdamW)" : "False (Adam)",
                     o->decoupled ? "decays weights directly" : "adds decay to the gradients",
                     v->as.i ? "AdamW" : "Adam",
                     v->as.i ? "" : " and optimizer.params.adam_w_mode to false");
}

/*
 * Check that momentum is as configured, because momentum decides whether there is optimizer state.
 */
static int opt_take_momentum(const zt_optim *o, const zt_hyper *h, ckpt_err *err)
{
    if (o->type != ZT_OPT_SGD || (h->momentum > 0) == (o->h.momentum > 0))
        return CKPT_OK;
    return ckpt_fail(
        err, CKPT_EUNSUPPORTED,
        "momentum is %g, but the configuration has %g: set optimizer.params.momentum to %g",
        h->momentum, o->h.momentum, h->momentum);
}

/*
 * Check that the settings are this optimizer's: each number that only other classes have, such as
 * the eps of Adam for Lion, shows that the state is theirs.  LAMB's state has the names of Adam's,
 * but only its settings have limits of the trust ratio.
 */
static int opt_take_own(const zt_optim *o, ckpt_dict fields, ckpt_err *err)
{
    bool limits = o->class != OPT_LAMB;

    for (uint64_t i = 0; i < fields.n; i++) {
        const ckpt_value *key = fields.at[i].key;
        const char *name = key->kind == CKPT_V_STR ? key->as.text.at : "";
        const opt_setting *s = opt_find(name, OPT_ANY);

        limits = limits || strcmp(name, "max_coeff") == 0;
        if (s && (s->kind == OPT_NUMBER || s->kind == OPT_PAIR) && opt_is_of_group(s) &&
            !opt_find(name, o->class))
            return ckpt_fail(err, CKPT_EMISMATCH,
                             "it has %s, which %s does not have: configure the optimizer "
                             "of the saved run, or load only the weights (--module-only)",
                             name, o->name);
    }
    return limits ? CKPT_OK
                  : ckpt_fail(err, CKPT_EMISMATCH,
                              "it lacks max_coeff, which each group of %s has: configure the "
                              "optimizer of the saved run, or load only the weights "
                              "(--module-only)",
                              o->name);
}

int zt_optim_take(const zt_optim *o, zt_hyper *h, const ckpt_value *fields, ckpt_err *err)
{
    ckpt_dict map = ckpt_value_map(fields);
    zt_optim to = *o;
    ckpt_err local = {0};
    int rc = opt_take_own(o, map, &local);

    to.h = *h;
    for (uint64_t i = 0; rc == CKPT_OK && i < map.n; i++) {
        const ckpt_value *key = map.at[i].key, *v = map.at[i].value;
        const opt_setting *s = key->kind == CKPT_V_STR ? opt_find(key->as.text.at, o->class) : NULL;
        if (s && (opt_is_of_group(s) || s->kind == OPT_MUST))
            rc = opt_set(&to, s, v, &local);
        else if (!s && key->kind == CKPT_V_STR)
            rc = opt_take_foreign(key->as.text.at, v, &local);
    }
    if (rc == CKPT_OK)
        rc = opt_take_decoupled(o, fields, &local);
    if (rc == CKPT_OK)
        rc = opt_take_momentum(o, &to.h, &local);
    if (rc != CKPT_OK)
        return ckpt_fail(err, rc == CKPT_EUSAGE ? CKPT_EFORMAT : rc, "%s", local.text);
    *h = to.h;
    return CKPT_OK;
}

const char *zt_optim_state(const zt_optim *o, bool muon, unsigned i)
{
    if (o->type == ZT_OPT_MUON && muon)
        return i == 0 ? "momentum_buffer" : NULL;
    return i < o->n_state ? o->state[i] : NULL;
}
