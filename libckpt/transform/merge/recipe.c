/* SPDX-License-Identifier: Apache-2.0 */
/*
 * recipe.c: reads the supported part of mergekit's configurations (mergekit 0.1.5, config.py).
 */
#include <assert.h>
#include <inttypes.h>
#include <string.h>

#include "libckpt/codec/yaml/yaml.h"
#include "libckpt/transform/merge/recipe.h"

enum { RC_DEEP = 8 /* limit for nested settings */ };

typedef struct rc_reader {
    ckpt_recipe *r;
    ckpt_arena *arena;
    const char *name; /* name of the file */
    ckpt_err *err;
} rc_reader;

/* ---- settings ---- */

static bool rc_number(const ckpt_value *v, double *out)
{
    if (!v || (v->kind != CKPT_V_INT && v->kind != CKPT_V_FLOAT && v->kind != CKPT_V_BOOL))
        return false;
    *out = v->kind == CKPT_V_FLOAT ? v->as.f : (double)v->as.i;
    return true;
}

/* Interpolate a list of numbers, which run from the first layer to the last. */
static double rc_gradient(const ckpt_seq *list, double at)
{
    double scaled = at * (double)(list->n - 1), a = 0, b = 0;
    uint64_t i = (uint64_t)scaled;

    (void)rc_number(list->at[i], &a);
    (void)rc_number(list->at[i + 1 < list->n ? i + 1 : i], &b);
    return (1 - (scaled - (double)i)) * a + (scaled - (double)i) * b;
}

static bool rc_all_numbers(const ckpt_seq *list)
{
    double x;

    for (uint64_t i = 0; i < list->n; i++) {
        if (!rc_number(list->at[i], &x))
            return false;
    }
    return list->n > 0;
}

/* Evaluate a setting for one tensor; *found is false if its filters exclude the tensor. */
static int rc_setting(const ckpt_value *v, const ckpt_recipe_for *of, double *out, bool *found,
                      unsigned depth, ckpt_err *err)
{
    ckpt_seq list = ckpt_value_seq(v);
    const ckpt_value *filter, *value;
    int rc = CKPT_OK;

    *found = true;
    if (depth > RC_DEEP)
        return ckpt_fail(err, CKPT_EFORMAT, "the settings are nested too deep");
    if (rc_number(v, out))
        return CKPT_OK;
    if (v->kind == CKPT_V_LIST && rc_all_numbers(&list)) {
        *out = rc_gradient(&list, of->at);
        return CKPT_OK;
    }
    *found = false;
    for (uint64_t i = 0; rc == CKPT_OK && !*found && i < list.n; i++)
        rc = list.at[i]->kind == CKPT_V_DICT
                 ? rc_setting(list.at[i], of, out, found, depth + 1, err)
                 : ckpt_fail(err, CKPT_EFORMAT, "the list mixes numbers with other values");
    if (v->kind == CKPT_V_LIST)
        return rc;
    value = ckpt_value_get(v, "value");
    filter = ckpt_value_get(v, "filter");
    if (v->kind != CKPT_V_DICT || !value)
        return ckpt_fail(err, CKPT_EFORMAT,
                         "expected a number, a list of numbers, or entries with filter and value");
    if (filter && filter->kind == CKPT_V_STR && !ckpt_value_is(filter, "*") &&
        !strstr(of->tensor, filter->as.text.at))
        return CKPT_OK;
    return rc_setting(value, of, out, found, depth + 1, err);
}

int ckpt_recipe_number(const ckpt_recipe *r, const ckpt_recipe_for *of, const char *key,
                       double *out, bool *found, ckpt_err *err)
{
    assert(r && key && of && of->tensor && out && found);
    const ckpt_value *places[3] = {of->model ? of->model->parameters : NULL, r->parameters[0],
                                   r->parameters[1]};
    ckpt_err inner = {0};
    int rc = CKPT_OK;

    *found = false;
    for (unsigned i = 0; rc == CKPT_OK && !*found && i < 3; i++) {
        const ckpt_value *v = places[i] ? ckpt_value_get(places[i], key) : NULL;

        if (v && v->kind != CKPT_V_NONE)
            rc = rc_setting(v, of, out, found, 0, &inner);
    }
    return rc == CKPT_OK ? CKPT_OK : ckpt_fail(err, rc, "parameter %s: %s", key, inner.text);
}

/* ---- configurations ---- */

static int rc_bad(const rc_reader *c, int code, const char *what, const char *more)
{
    return ckpt_fail(c->err, code, "%s: %s%.200s", c->name, what, more);
}

static bool rc_listed(const char *key, const char *const *list)
{
    for (; *list; list++) {
        if (strcmp(*list, key) == 0)
            return true;
    }
    return false;
}

/* Check that all keys of a mapping are known, because an ignored key could change the merge. */
static int rc_keys(const rc_reader *c, const ckpt_value *v, const char *const *known,
                   const char *where)
{
    ckpt_dict all = ckpt_value_map(v);

    if (!v || v->kind != CKPT_V_DICT)
        return rc_bad(c, CKPT_EFORMAT, "expected a mapping in: ", where);
    for (uint64_t i = 0; i < all.n; i++) {
        if (!rc_listed(all.at[i].key->as.text.at, known))
            return ckpt_fail(c->err, CKPT_EUNSUPPORTED,
                             "%s: %s: '%.60s' is not supported: merge with mergekit, or remove it",
                             c->name, where, all.at[i].key->as.text.at);
    }
    return CKPT_OK;
}

static int rc_parameters(const rc_reader *c, const ckpt_value *v, const char *where)
{
    static const char *const known[] = {"weight", "density", "normalize", "rescale",
                                        "lambda", "t",       "int8_mask", NULL};
    const ckpt_value *mask = v ? ckpt_value_get(v, "int8_mask") : NULL;
    double on = 0;

    // int8_mask only saves memory: the result is the same without it
    if (mask && rc_number(mask, &on) && on != 0)
        c->r->ignores_int8_mask = true;
    return v && v->kind != CKPT_V_NONE ? rc_keys(c, v, known, where) : CKPT_OK;
}

/* Read a model's path: a text, or mergekit's mapping. */
static int rc_path(const rc_reader *c, const ckpt_value *v, const char **out)
{
    static const char *const known[] = {"model", "path", NULL};
    unsigned depth = 0;

    while (v && v->kind == CKPT_V_DICT && depth++ < 3) {
        int rc = rc_keys(c, v, known, "model");
        if (rc != CKPT_OK)
            return rc;
        v = ckpt_value_get(v, "path") ? ckpt_value_get(v, "path") : ckpt_value_get(v, "model");
    }
    if (!v || v->kind != CKPT_V_STR || v->as.text.n == 0)
        return rc_bad(c, CKPT_EFORMAT, "a model has no path", "");
    *out = v->as.text.at;
    return CKPT_OK;
}

static int rc_model(const rc_reader *c, const ckpt_value *v, bool of_slice)
{
    static const char *const known[] = {"model", "parameters", NULL};
    static const char *const sliced[] = {"model", "parameters", "layer_range", NULL};
    ckpt_recipe_model *m = ckpt_vec_push(&c->r->models);
    int rc = m ? rc_keys(c, v, of_slice ? sliced : known, "models") : ckpt_fail_memory(c->err);

    if (rc == CKPT_OK)
        rc = rc_path(c, ckpt_value_get(v, "model"), &m->path);
    if (rc == CKPT_OK) {
        m->parameters = ckpt_value_get(v, "parameters");
        rc = rc_parameters(c, m->parameters, "parameters of a model");
    }
    return rc;
}

/* Check that a layer_range covers all layers, because only whole models can be merged. */
static int rc_range(const rc_reader *c, const ckpt_value *v)
{
    ckpt_seq range = ckpt_value_seq(ckpt_value_get(v, "layer_range"));
    double from = 0, to = 0;

    if (range.n != 2 || !rc_number(range.at[0], &from) || !rc_number(range.at[1], &to) || to < 1)
        return rc_bad(c, CKPT_EFORMAT, "a slice has no layer_range", "");
    if (from != 0 || (c->r->n_layers != 0 && (double)c->r->n_layers != to))
        return rc_bad(
            c, CKPT_EUNSUPPORTED,
            "the slices do not keep the layers of the models: ckpt merges only whole models", "");
    c->r->n_layers = (uint64_t)to;
    return CKPT_OK;
}

/* Read `slices`: a single slice of all layers is equivalent to a list of models. */
static int rc_slices(const rc_reader *c, const ckpt_value *v)
{
    static const char *const known[] = {"sources", "parameters", NULL};
    ckpt_seq all = ckpt_value_seq(v), sources;
    int rc;

    if (all.n != 1)
        return rc_bad(
            c, CKPT_EUNSUPPORTED,
            "several slices stack layers into another model: ckpt merges only whole models", "");
    rc = rc_keys(c, all.at[0], known, "slices");
    if (rc != CKPT_OK)
        return rc;
    sources = ckpt_value_seq(ckpt_value_get(all.at[0], "sources"));
    c->r->parameters[0] = ckpt_value_get(all.at[0], "parameters");
    rc = rc_parameters(c, c->r->parameters[0], "parameters of a slice");
    for (uint64_t i = 0; rc == CKPT_OK && i < sources.n; i++) {
        rc = rc_model(c, sources.at[i], true);
        if (rc == CKPT_OK)
            rc = rc_range(c, sources.at[i]);
    }
    return rc;
}

/* Read a dtype of the configuration; NONE if it has none. */
static int rc_one_dtype(const rc_reader *c, const ckpt_value *config, const char *key,
                        ckpt_dtype *out)
{
    const ckpt_value *v = ckpt_value_get(config, key);

    if (!v || v->kind == CKPT_V_NONE || ckpt_value_is(v, "auto"))
        return CKPT_OK;
    *out = v->kind == CKPT_V_STR ? ckpt_dtype_parse(v->as.text.at) : CKPT_DTYPE_NONE;
    return *out != CKPT_DTYPE_NONE
               ? CKPT_OK
               : rc_bad(c, CKPT_EFORMAT,
                        "unknown dtype: ", v->kind == CKPT_V_STR ? v->as.text.at : "?");
}

/* Read the dtypes: mergekit computes in dtype and writes out_dtype, by default dtype. */
static int rc_dtype(const rc_reader *c, const ckpt_value *config)
{
    int rc = rc_one_dtype(c, config, "dtype", &c->r->steps);

    c->r->from_config = true;
    c->r->dtype = c->r->steps;
    return rc == CKPT_OK ? rc_one_dtype(c, config, "out_dtype", &c->r->dtype) : rc;
}

/* Check the tokenizer source: the output gets the tokenizer of the base or of the first model,
 * because vocabularies cannot be merged. */
static int rc_tokenizer(const rc_reader *c, const ckpt_value *config)
{
    const ckpt_value *v = ckpt_value_get(config, "tokenizer_source");
    const char *own = c->r->base ? c->r->base : c->r->models.n > 0 ? c->r->models.at[0].path : "";

    if (!v || v->kind == CKPT_V_NONE || (ckpt_value_is(v, "base") && c->r->base) ||
        ckpt_value_is(v, own))
        return CKPT_OK;
    return rc_bad(
        c, CKPT_EUNSUPPORTED,
        "tokenizer_source: ckpt does not merge vocabularies; remove the key, and the output "
        "gets the tokenizer of ",
        own);
}

static int rc_config(const rc_reader *c, const ckpt_value *config)
{
    static const char *const known[] = {"merge_method", "models",           "slices",
                                        "base_model",   "parameters",       "dtype",
                                        "out_dtype",    "tokenizer_source", NULL};
    const ckpt_value *method, *models, *base;
    ckpt_seq list;
    int rc = rc_keys(c, config, known, "configuration");

    if (rc != CKPT_OK)
        return rc;
    method = ckpt_value_get(config, "merge_method");
    models = ckpt_value_get(config, "models");
    base = ckpt_value_get(config, "base_model");
    list = ckpt_value_seq(models);
    c->r->method = method && method->kind == CKPT_V_STR ? ckpt_blend_named(method->as.text.at)
                                                        : CKPT_BLEND_N_METHODS;
    if (c->r->method == CKPT_BLEND_N_METHODS)
        return rc_bad(c, CKPT_EUNSUPPORTED, "merge_method is not supported: ",
                      method && method->kind == CKPT_V_STR ? method->as.text.at : "not text");
    if (base && base->kind != CKPT_V_NONE)
        rc = rc_path(c, base, &c->r->base);
    for (uint64_t i = 0; rc == CKPT_OK && i < list.n; i++)
        rc = rc_model(c, list.at[i], false);
    if (rc == CKPT_OK && !models)
        rc = rc_slices(c, ckpt_value_get(config, "slices"));
    c->r->parameters[1] = ckpt_value_get(config, "parameters");
    if (rc == CKPT_OK)
        rc = rc_parameters(c, c->r->parameters[1], "parameters");
    if (rc == CKPT_OK)
        rc = rc_dtype(c, config);
    return rc == CKPT_OK ? rc_tokenizer(c, config) : rc;
}

/* ---- options and checks ---- */

/* Build the recipe from options if there is no configuration. */
static int rc_options(ckpt_recipe *r, const ckpt_merge *m, ckpt_err *err)
{
    r->method = m->method ? ckpt_blend_named(m->method) : CKPT_BLEND_N_METHODS;
    if (r->method == CKPT_BLEND_N_METHODS)
        return ckpt_fail(err, CKPT_EUSAGE,
                         "method '%.60s' is unknown; expected linear, slerp, task_arithmetic, "
                         "ties, dare_linear or dare_ties",
                         m->method ? m->method : "");
    r->has_weight = true;
    r->base = m->base;
    for (size_t i = 0; i < m->n_models; i++) {
        ckpt_recipe_model *model = ckpt_vec_push(&r->models);

        if (!model)
            return ckpt_fail_memory(err);
        *model = (ckpt_recipe_model){
            .path = m->models[i].path, .tag = m->models[i].tag, .weight = m->models[i].weight};
    }
    if (r->method == CKPT_BLEND_LINEAR && m->n_models == 1 && !m->base && !m->skip_normalize)
        return ckpt_fail(err, CKPT_EUSAGE,
                         "linear of one model only copies it, because weights are divided by their "
                         "sum: give two models or more, or use ckpt convert to copy one");
    // Without a base the first of two models is the one at t = 0.
    if (r->method == CKPT_BLEND_SLERP && !r->base && r->models.n > 0)
        r->base = r->models.at[0].path;
    return CKPT_OK;
}

/* Check the number of models, and that there is a base if the method needs one. */
static int rc_check(const ckpt_recipe *r, ckpt_err *err)
{
    const char *name = ckpt_blend_name(r->method);

    if (r->models.n == 0)
        return ckpt_fail(err, CKPT_EUSAGE, "no models to merge");
    if (r->method == CKPT_BLEND_LINEAR && r->base)
        return ckpt_fail(err, CKPT_EUSAGE,
                         "method linear has no base: leave the base out, or list it among the "
                         "models, with a weight");
    if (r->method != CKPT_BLEND_LINEAR && !r->base)
        return ckpt_fail(err, CKPT_EUSAGE, "%s needs the base that the models were trained from",
                         name);
    if (r->method == CKPT_BLEND_SLERP && r->models.n > 2)
        return ckpt_fail(err, CKPT_EUSAGE, "slerp merges two models, found %zu", r->models.n);
    return CKPT_OK;
}

int ckpt_recipe_read(ckpt_recipe *out, ckpt_arena *a, const ckpt_merge *merge, ckpt_err *err)
{
    assert(out && a && merge);
    rc_reader c = {out, a, merge->config_name ? merge->config_name : "configuration", err};
    ckpt_value *config = NULL;
    int rc;

    *out = (ckpt_recipe){.density = merge->density != 0 ? merge->density : 1,
                         .lambda = merge->lambda != 0 ? merge->lambda : 1,
                         .t = merge->t,
                         .skip_normalize = merge->skip_normalize,
                         .seed = merge->seed};
    if (!merge->config_text) {
        rc = rc_options(out, merge, err);
        return rc == CKPT_OK ? rc_check(out, err) : rc;
    }
    if (merge->n_models > 0 || merge->method || merge->base)
        return ckpt_fail(err, CKPT_EUSAGE,
                         "%s lists the models and how to merge them: do not name others beside it",
                         c.name);
    rc = ckpt_yaml_parse(&config, a, c.name, merge->config_text, strlen(merge->config_text), err);
    if (rc == CKPT_OK)
        rc = rc_config(&c, config);
    return rc == CKPT_OK ? rc_check(out, err) : rc;
}

void ckpt_recipe_free(ckpt_recipe *r)
{
    ckpt_vec_free(&r->models);
}
