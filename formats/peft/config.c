/* SPDX-License-Identifier: Apache-2.0 */
/*
 * config.c: reads adapter_config.json.
 */
#include <assert.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "formats/peft/config.h"
#include "libckpt/codec/json/json.h"

#define AJ_MAX (UINT64_C(4) << 20) /* limit of the file's size in bytes */

/* Members that do not affect merging: the adapter's origin, and training options. */
static const char *const aj_known[] = {"task_type",
                                       "peft_type",
                                       "auto_mapping",
                                       "peft_version",
                                       "revision",
                                       "inference_mode",
                                       "r",
                                       "target_modules",
                                       "lora_alpha",
                                       "exclude_modules",
                                       "lora_dropout",
                                       "fan_in_fan_out",
                                       "bias",
                                       "use_rslora",
                                       "modules_to_save",
                                       "init_lora_weights",
                                       "layers_pattern",
                                       "rank_pattern",
                                       "layers_to_transform",
                                       "base_model_name_or_path",
                                       "alpha_pattern",
                                       "megatron_core",
                                       "eva_config",
                                       "ensure_weight_tying",
                                       "corda_config",
                                       "loftq_config",
                                       "lora_ga_config",
                                       "qalora_group_size",
                                       "use_dora",
                                       "runtime_config",
                                       "lora_bias",
                                       "target_parameters",
                                       NULL};

/* False for false, null, 0 and empty values, which are like an absent member. */
static bool aj_is_set(const ckpt_value *v)
{
    if (v->kind == CKPT_V_NONE)
        return false;
    if (v->kind == CKPT_V_BOOL || v->kind == CKPT_V_INT)
        return v->as.i != 0;
    if (v->kind == CKPT_V_FLOAT)
        return v->as.f != 0;
    if (v->kind == CKPT_V_STR)
        return v->as.text.n > 0;
    return ckpt_value_seq(v).n + ckpt_value_map(v).n > 0;
}

static bool aj_flag(const ckpt_value *config, const char *key)
{
    const ckpt_value *v = ckpt_value_get(config, key);

    return v && aj_is_set(v);
}

static bool aj_number(const ckpt_value *v, double *out)
{
    if (!v || (v->kind != CKPT_V_INT && v->kind != CKPT_V_FLOAT))
        return false;
    *out = v->kind == CKPT_V_INT ? (double)v->as.i : v->as.f;
    return true;
}

/* Check the kind of adapter; the message names it, because peft has twenty others. */
static int aj_kind(const ckpt_value *config, const char *path, ckpt_err *err)
{
    const ckpt_value *type = ckpt_value_get(config, "peft_type");

    if (!config || config->kind != CKPT_V_DICT || !type || type->kind != CKPT_V_STR)
        return ckpt_fail(err, CKPT_EFORMAT, "%s: no peft_type: not a configuration of an adapter",
                         path);
    if (ckpt_value_get(config, "num_virtual_tokens"))
        return ckpt_fail(err, CKPT_EUNSUPPORTED,
                         "%s: an adapter of type %.60s cannot be merged: it adds inputs, or keys "
                         "and values, before those of the prompt, and no weight of the base can "
                         "hold them; load the base and the adapter with PEFT",
                         path, type->as.text.at);
    if (!ckpt_value_is(type, "LORA"))
        return ckpt_fail(err, CKPT_EUNSUPPORTED,
                         "%s: an adapter of type %.60s: only LORA (DoRA and rsLoRA too) is merged; "
                         "peft's merge_and_unload may merge this one",
                         path, type->as.text.at);
    return CKPT_OK;
}

/* Refuse unknown members that are set, because they may change the sum. */
static int aj_members(const ckpt_value *config, const char *path, ckpt_err *err)
{
    ckpt_dict all = ckpt_value_map(config);

    for (uint64_t i = 0; i < all.n; i++) {
        const char *key = all.at[i].key->as.text.at;
        size_t k = 0;

        while (aj_known[k] && strcmp(aj_known[k], key) != 0)
            k++;
        if (!aj_known[k] && aj_is_set(all.at[i].value))
            return ckpt_fail(err, CKPT_EUNSUPPORTED,
                             "%s: %.60s is set, and ckpt does not know what it does to the "
                             "weights: merge with peft's merge_and_unload",
                             path, key);
    }
    return CKPT_OK;
}

/* The initialization if it changes the base, else NULL: LoftQ, PiSSA, CorDA and OLoRA. */
static const char *aj_odd_init(const ckpt_value *config)
{
    static const char *const fine[] = {"gaussian", "eva",  "orthogonal", "mica",
                                       "lora_ga",  "true", NULL};
    const ckpt_value *v = ckpt_value_get(config, "init_lora_weights");

    if (!v || v->kind != CKPT_V_STR)
        return NULL;
    for (size_t i = 0; fine[i]; i++) {
        if (ckpt_value_is(v, fine[i]))
            return NULL;
    }
    return v->as.text.at;
}

/*
 * True if the configuration may choose some layers only: by numbers, by a regular expression, or by
 * paths with numbers in target_modules.
 */
static bool aj_some_layers(const ckpt_value *config)
{
    static const char *const keys[] = {"layers_to_transform", "layers_pattern", "exclude_modules",
                                       "target_parameters", NULL};
    const ckpt_value *targets = ckpt_value_get(config, "target_modules");
    const ckpt_seq list = ckpt_value_seq(targets);
    bool some = list.n == 0;

    for (size_t i = 0; keys[i]; i++) {
        const ckpt_value *v = ckpt_value_get(config, keys[i]);
        const bool is_empty = v && v->kind == CKPT_V_LIST && ckpt_value_seq(v).n == 0;
        some = some || (v && v->kind != CKPT_V_NONE && !is_empty);
    }
    for (uint64_t i = 0; i < list.n; i++)
        some =
            some || list.at[i]->kind != CKPT_V_STR ||
            (strchr(list.at[i]->as.text.at, '.') && strpbrk(list.at[i]->as.text.at, "0123456789"));
    return some;
}

static int aj_fill(ckpt_peft_config *c, const ckpt_value *config, ckpt_err *err)
{
    const ckpt_value *bias = ckpt_value_get(config, "bias");
    double r = 0;

    if (!aj_number(ckpt_value_get(config, "r"), &r) || r < 1 || r > 1e9 ||
        !aj_number(ckpt_value_get(config, "lora_alpha"), &c->alpha))
        return ckpt_fail(err, CKPT_EFORMAT, "%s: r and lora_alpha must be numbers, r at least 1",
                         c->path);
    c->r = (int64_t)r;
    c->rslora = aj_flag(config, "use_rslora");
    c->dora = aj_flag(config, "use_dora");
    c->lora_bias = aj_flag(config, "lora_bias");
    c->fan_in_fan_out = aj_flag(config, "fan_in_fan_out");
    c->bias = bias && bias->kind == CKPT_V_STR ? bias->as.text.at : "none";
    c->odd_init = aj_odd_init(config);
    c->ranks = ckpt_value_get(config, "rank_pattern");
    c->alphas = ckpt_value_get(config, "alpha_pattern");
    c->saved = ckpt_value_get(config, "modules_to_save");
    c->parameters = ckpt_value_get(config, "target_parameters");
    c->some_layers = aj_some_layers(config);
    return ckpt_uni_patterns_new(&c->patterns, err);
}

int ckpt_peft_config_read(ckpt_peft_config *out, ckpt_arena *a, const char *path, ckpt_err *err)
{
    assert(out && a && path);
    ckpt_value *config = NULL;
    int rc = ckpt_json_read(&config, a, path, AJ_MAX, err);

    *out = (ckpt_peft_config){.path = path};
    if (rc == CKPT_OK)
        rc = aj_kind(config, path, err);
    if (rc == CKPT_OK)
        rc = aj_members(config, path, err);
    return rc == CKPT_OK ? aj_fill(out, config, err) : rc;
}

void ckpt_peft_config_free(ckpt_peft_config *c)
{
    ckpt_uni_patterns_free(c->patterns);
    c->patterns = NULL;
}

/* Look up a module in a dict of patterns, where the first match wins; false if none matches. */
static int aj_lookup(const ckpt_peft_config *c, const ckpt_value *dict, const char *module,
                     double *out, ckpt_err *err)
{
    ckpt_dict all = ckpt_value_map(dict);

    for (uint64_t i = 0; i < all.n; i++) {
        char text[1024];
        uint32_t number = 0;
        bool yes = false;
        int n = snprintf(text, sizeof text, "(.*\\.)?(%s)$", all.at[i].key->as.text.at);

        if (n < 0 || (size_t)n >= sizeof text)
            return ckpt_fail(err, CKPT_ELIMIT, "%s: a pattern is longer than %zu bytes", c->path,
                             sizeof text);
        int rc = ckpt_uni_patterns_add(c->patterns, text, (uint64_t)n, &number, err);
        if (rc == CKPT_OK)
            rc = ckpt_uni_patterns_match(c->patterns, number, module, strlen(module), &yes, err);
        if (rc != CKPT_OK)
            return rc;
        if (yes && !aj_number(all.at[i].value, out))
            return ckpt_fail(err, CKPT_EFORMAT, "%s: the value of pattern '%.200s' is not a number",
                             c->path, all.at[i].key->as.text.at);
        if (yes)
            return CKPT_OK;
    }
    return CKPT_OK;
}

int ckpt_peft_scale(const ckpt_peft_config *c, const char *module, uint64_t *rank, double *scale,
                    ckpt_err *err)
{
    assert(c && module && rank && scale);
    double r = (double)c->r, alpha = c->alpha;
    int rc = c->ranks ? aj_lookup(c, c->ranks, module, &r, err) : CKPT_OK;

    if (rc == CKPT_OK && c->alphas)
        rc = aj_lookup(c, c->alphas, module, &alpha, err);
    if (rc == CKPT_OK && !(r >= 1 && r <= 1e9))
        rc = ckpt_fail(err, CKPT_EFORMAT,
                       "%s: rank_pattern gives %.200s a rank of %g, expected at least 1", c->path,
                       module, r);
    if (rc != CKPT_OK)
        return rc;
    *rank = (uint64_t)r;
    *scale = alpha / (c->rslora ? sqrt((double)*rank) : (double)*rank);
    return CKPT_OK;
}

bool ckpt_peft_saves(const ckpt_peft_config *c, const char *name)
{
    assert(c && name);
    ckpt_seq all = c->saved ? ckpt_value_seq(c->saved) : (ckpt_seq){0};

    for (uint64_t i = 0; i < all.n; i++) {
        const ckpt_value *v = all.at[i];

        if (v->kind != CKPT_V_STR || v->as.text.n == 0)
            continue;
        for (const char *at = name; (at = strstr(at, v->as.text.at)) != NULL; at++) {
            char end = at[v->as.text.n];
            // peft compares suffixes of names: "norm" matches "input_layernorm" too
            if (end == '.' || end == 0)
                return true;
        }
    }
    return false;
}
