/* SPDX-License-Identifier: Apache-2.0 */
/*
 * config.c: reads adapter_config.json.
 */
#include <assert.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/peft/config.h"
#include "libckpt/codec/json/json.h"

#define AJ_MAX (UINT64_C(4) << 20) /* limit of the file's size in bytes */

#define AJ_ALL  ((1u << CKPT_PEFT_N_KINDS) - 1)
#define AJ_LORA (1u << CKPT_PEFT_KIND_LORA)
#define AJ_IA3  (1u << CKPT_PEFT_KIND_IA3)
#define AJ_LOHA (1u << CKPT_PEFT_KIND_LOHA)
#define AJ_LOKR (1u << CKPT_PEFT_KIND_LOKR)
#define AJ_VERA (1u << CKPT_PEFT_KIND_VERA)
#define AJ_OFT  (1u << CKPT_PEFT_KIND_OFT)
#define AJ_TOK  (1u << CKPT_PEFT_KIND_TOKENS)

/*
 * The members that are read here, or do not affect merging: the adapter's origin, training options,
 * and shapes, which the tensors show.  kinds: the kinds of adapters that have them.
 */
static const struct {
    const char *name;
    unsigned kinds;
} aj_known[] = {
    {"task_type", AJ_ALL},
    {"peft_type", AJ_ALL},
    {"auto_mapping", AJ_ALL},
    {"peft_version", AJ_ALL},
    {"revision", AJ_ALL},
    {"inference_mode", AJ_ALL},
    {"base_model_name_or_path", AJ_ALL},
    {"target_modules", AJ_ALL},
    {"exclude_modules", AJ_ALL},
    {"modules_to_save", AJ_ALL},
    {"layers_to_transform", AJ_ALL & ~AJ_IA3 & ~AJ_TOK},
    {"layers_pattern", AJ_ALL & ~AJ_IA3 & ~AJ_TOK},
    {"r", AJ_ALL & ~AJ_IA3 & ~AJ_TOK},
    {"fan_in_fan_out", AJ_LORA | AJ_IA3 | AJ_VERA | AJ_OFT},
    {"bias", AJ_ALL},
    {"rank_pattern", AJ_LORA | AJ_LOHA | AJ_LOKR},
    {"alpha_pattern", AJ_LORA | AJ_LOHA | AJ_LOKR},
    {"lora_alpha", AJ_LORA},
    {"lora_dropout", AJ_LORA},
    {"use_rslora", AJ_LORA},
    {"init_lora_weights", AJ_LORA},
    {"megatron_core", AJ_LORA},
    {"eva_config", AJ_LORA},
    {"ensure_weight_tying", AJ_LORA},
    {"corda_config", AJ_LORA},
    {"loftq_config", AJ_LORA},
    {"lora_ga_config", AJ_LORA},
    {"qalora_group_size", AJ_LORA},
    {"use_dora", AJ_LORA},
    {"runtime_config", AJ_LORA},
    {"lora_bias", AJ_LORA},
    {"target_parameters", AJ_LORA},
    {"feedforward_modules", AJ_IA3},
    {"init_ia3_weights", AJ_IA3},
    {"init_weights", AJ_LOHA | AJ_LOKR | AJ_VERA | AJ_OFT | AJ_TOK},
    {"trainable_token_indices", AJ_LORA},
    {"token_indices", AJ_TOK},
    {"alpha", AJ_LOHA | AJ_LOKR},
    {"rank_dropout", AJ_LOHA | AJ_LOKR},
    {"module_dropout", AJ_LOHA | AJ_LOKR | AJ_OFT},
    {"use_effective_conv2d", AJ_LOHA | AJ_LOKR},
    {"decompose_both", AJ_LOKR},
    {"decompose_factor", AJ_LOKR},
    {"rank_dropout_scale", AJ_LOKR},
    {"projection_prng_key", AJ_VERA},
    {"save_projection", AJ_VERA},
    {"vera_dropout", AJ_VERA},
    {"d_initial", AJ_VERA},
    {"oft_block_size", AJ_OFT},
    {"coft", AJ_OFT},
    {"eps", AJ_OFT},
    {"block_share", AJ_OFT},
    {"use_cayley_neumann", AJ_OFT},
    {"num_cayley_neumann_terms", AJ_OFT},
};

/* The peft_type of each kind. */
static const char *const aj_kinds[CKPT_PEFT_N_KINDS] = {
    [CKPT_PEFT_KIND_LORA] = "LORA",
    [CKPT_PEFT_KIND_IA3] = "IA3",
    [CKPT_PEFT_KIND_LOHA] = "LOHA",
    [CKPT_PEFT_KIND_LOKR] = "LOKR",
    [CKPT_PEFT_KIND_VERA] = "VERA",
    [CKPT_PEFT_KIND_OFT] = "OFT",
    [CKPT_PEFT_KIND_TOKENS] = "TRAINABLE_TOKENS",
};

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

/* Get the kind of adapter; the message names another one, because peft has thirty others. */
static int aj_kind(ckpt_peft_config *c, const ckpt_value *config, const char *path, ckpt_err *err)
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
    for (int i = 0; i < CKPT_PEFT_N_KINDS; i++) {
        if (ckpt_value_is(type, aj_kinds[i])) {
            c->kind = (ckpt_peft_kind)i;
            return CKPT_OK;
        }
    }
    return ckpt_fail(err, CKPT_EUNSUPPORTED,
                     "%s: an adapter of type %.60s: only LORA (DoRA and rsLoRA too), IA3, LOHA, "
                     "LOKR, VERA, OFT and TRAINABLE_TOKENS are merged; peft's merge_and_unload may "
                     "merge this one",
                     path, type->as.text.at);
}

/* Refuse unknown members that are set, because they may change the sum. */
static int aj_members(const ckpt_peft_config *c, const ckpt_value *config, ckpt_err *err)
{
    const size_t n = sizeof aj_known / sizeof *aj_known;
    ckpt_dict all = ckpt_value_map(config);

    for (uint64_t i = 0; i < all.n; i++) {
        const char *key = all.at[i].key->as.text.at;
        size_t k = 0;

        while (k < n &&
               (strcmp(aj_known[k].name, key) != 0 || !(aj_known[k].kinds & (1u << c->kind))))
            k++;
        if (k == n && aj_is_set(all.at[i].value))
            return ckpt_fail(err, CKPT_EUNSUPPORTED,
                             "%s: %.60s is set, and ckpt does not know what it does to the "
                             "weights: merge with peft's merge_and_unload",
                             c->path, key);
    }
    return CKPT_OK;
}

/* The initialization if it changes the base, else NULL: LoftQ, PiSSA, CorDA, OLoRA and LoRA-GA. */
static const char *aj_odd_init(const ckpt_value *config)
{
    static const char *const fine[] = {"gaussian", "eva", "orthogonal", "mica", "true", NULL};
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

/* Read r and alpha, of the kinds that have them. */
static int aj_scale(ckpt_peft_config *c, const ckpt_value *config, ckpt_err *err)
{
    const bool lora = c->kind == CKPT_PEFT_KIND_LORA, vera = c->kind == CKPT_PEFT_KIND_VERA;
    const char *key = lora ? "lora_alpha" : "alpha";
    double r = 0;

    if (c->kind == CKPT_PEFT_KIND_IA3 || c->kind == CKPT_PEFT_KIND_OFT ||
        c->kind == CKPT_PEFT_KIND_TOKENS)
        return CKPT_OK;
    if (!aj_number(ckpt_value_get(config, "r"), &r) || r < 1 || r > 1e9 ||
        (!vera && !aj_number(ckpt_value_get(config, key), &c->alpha)))
        return ckpt_fail(err, CKPT_EFORMAT, "%s: r%s%s must be %s, r at least 1", c->path,
                         vera ? "" : " and ", vera ? "" : key, vera ? "a number" : "numbers");
    c->r = (int64_t)r;
    return CKPT_OK;
}

/* True if peft_version is at least 0.18; a missing one is older (peft writes it since 0.18). */
static bool aj_since_18(const ckpt_value *config)
{
    const ckpt_value *v = ckpt_value_get(config, "peft_version");
    const char *dot = v && v->kind == CKPT_V_STR ? strchr(v->as.text.at, '.') : NULL;

    return dot && (strtol(v->as.text.at, NULL, 10) > 0 || strtol(dot + 1, NULL, 10) >= 18);
}

/* Read the members of OFT; their defaults are those of peft's OFTConfig. */
static int aj_oft(ckpt_peft_config *c, const ckpt_value *config, ckpt_err *err)
{
    const ckpt_value *series = ckpt_value_get(config, "use_cayley_neumann");
    double terms = 5;

    c->coft = aj_flag(config, "coft");
    c->block_share = aj_flag(config, "block_share");
    c->cayley_neumann = !series || aj_is_set(series);
    c->eps = 6e-5;
    if (!ckpt_value_get(config, "oft_block_size"))
        return ckpt_fail(err, CKPT_EUNSUPPORTED,
                         "%s: has no oft_block_size: adapters of OFT before peft 0.14 have other "
                         "tensors; merge with that peft's merge_and_unload",
                         c->path);
    if (c->cayley_neumann && !aj_since_18(config))
        return ckpt_fail(err, CKPT_EUNSUPPORTED,
                         "%s: use_cayley_neumann of a peft before 0.18, which computed the series "
                         "in another way: merge with that peft's merge_and_unload",
                         c->path);
    if ((ckpt_value_get(config, "eps") && !aj_number(ckpt_value_get(config, "eps"), &c->eps)) ||
        (ckpt_value_get(config, "num_cayley_neumann_terms") &&
         !aj_number(ckpt_value_get(config, "num_cayley_neumann_terms"), &terms)) ||
        !(terms >= 1 && terms <= 1000))
        return ckpt_fail(err, CKPT_EFORMAT,
                         "%s: eps and num_cayley_neumann_terms must be numbers, the latter from 1 "
                         "to 1000",
                         c->path);
    c->neumann_terms = (uint32_t)terms;
    return CKPT_OK;
}

/* Refuse patterns that are set but no dict, and lists of modules that are neither list nor text. */
static int aj_kinds_of_values(const ckpt_peft_config *c, const ckpt_value *config, ckpt_err *err)
{
    static const char *const dicts[] = {"rank_pattern", "alpha_pattern"};
    const ckpt_value *v = ckpt_value_get(config, "modules_to_save");

    for (size_t i = 0; i < sizeof dicts / sizeof *dicts; i++) {
        const ckpt_value *dict = ckpt_value_get(config, dicts[i]);
        if (dict && dict->kind != CKPT_V_DICT && aj_is_set(dict))
            return ckpt_fail(err, CKPT_EFORMAT, "%s: %s: expected an object of modules and numbers",
                             c->path, dicts[i]);
    }
    if (v && v->kind != CKPT_V_LIST && aj_is_set(v))
        return ckpt_fail(err, CKPT_EFORMAT, "%s: modules_to_save: expected a list of modules",
                         c->path);
    return CKPT_OK;
}

static int aj_fill(ckpt_peft_config *c, const ckpt_value *config, ckpt_err *err)
{
    const ckpt_value *bias = ckpt_value_get(config, "bias");
    int rc = aj_scale(c, config, err);

    if (rc == CKPT_OK)
        rc = aj_kinds_of_values(c, config, err);

    if (rc == CKPT_OK && c->kind == CKPT_PEFT_KIND_OFT)
        rc = aj_oft(c, config, err);
    if (rc != CKPT_OK)
        return rc;
    c->rslora = aj_flag(config, "use_rslora");
    c->dora = aj_flag(config, "use_dora");
    c->lora_bias = aj_flag(config, "lora_bias");
    c->tying = aj_flag(config, "ensure_weight_tying");
    c->fan_in_fan_out = aj_flag(config, "fan_in_fan_out");
    c->bias = bias && bias->kind == CKPT_V_STR ? bias->as.text.at : "none";
    c->odd_init = aj_odd_init(config);
    c->ranks = ckpt_value_get(config, "rank_pattern");
    c->alphas = ckpt_value_get(config, "alpha_pattern");
    c->saved = ckpt_value_get(config, "modules_to_save");
    c->parameters = ckpt_value_get(config, "target_parameters");
    c->some_layers = aj_some_layers(config);
    c->targets = ckpt_value_get(config, "target_modules");
    c->layers =
        aj_flag(config, "layers_pattern") ? NULL : ckpt_value_get(config, "layers_to_transform");
    c->tokens = ckpt_value_get(
        config, c->kind == CKPT_PEFT_KIND_TOKENS ? "token_indices" : "trainable_token_indices");
    c->tokens = c->tokens && c->tokens->kind == CKPT_V_NONE ? NULL : c->tokens;
    c->feedforward = ckpt_value_get(config, "feedforward_modules");
    return ckpt_uni_patterns_new(&c->patterns, err);
}

int ckpt_peft_config_read(ckpt_peft_config *out, ckpt_arena *a, const char *path, ckpt_err *err)
{
    assert(out && a && path);
    ckpt_value *config = NULL;
    int rc = ckpt_json_read(&config, a, path, AJ_MAX, err);

    *out = (ckpt_peft_config){.path = path};
    if (rc == CKPT_OK)
        rc = aj_kind(out, config, path, err);
    if (rc == CKPT_OK)
        rc = aj_members(out, config, err);
    return rc == CKPT_OK ? aj_fill(out, config, err) : rc;
}

void ckpt_peft_config_free(ckpt_peft_config *c)
{
    ckpt_uni_patterns_free(c->patterns);
    c->patterns = NULL;
}

const char *ckpt_peft_kind_name(ckpt_peft_kind kind)
{
    assert(kind < CKPT_PEFT_N_KINDS);
    return aj_kinds[kind];
}

const char *ckpt_peft_beyond_products(const ckpt_peft_config *c)
{
    return c->dora                               ? "use_dora is set"
           : c->lora_bias                        ? "lora_bias is set"
           : c->odd_init                         ? "init_lora_weights changed the base"
           : strcmp(c->bias, "none") != 0        ? "its biases are trained"
           : ckpt_value_seq(c->saved).n > 0      ? "modules_to_save has whole modules"
           : ckpt_value_seq(c->parameters).n > 0 ? "target_parameters are trained"
           : c->tokens                           ? "tokens are trained"
                                                 : NULL;
}

int ckpt_peft_only_lora(const ckpt_peft_config *c, const char *what, ckpt_err *err)
{
    assert(c && what);
    if (c->kind == CKPT_PEFT_KIND_LORA)
        return CKPT_OK;
    return ckpt_fail(err, CKPT_EUNSUPPORTED, "%s: an adapter of type %s: only LORA %s", c->path,
                     aj_kinds[c->kind], what);
}

/* Set *yes if a pattern between two texts matches a module's path from its start. */
static int aj_match(const ckpt_peft_config *c, const char *before, const ckpt_value *pattern,
                    const char *module, bool *yes, ckpt_err *err)
{
    char text[1024];
    uint32_t number = 0;
    int n = snprintf(text, sizeof text, "%s(%s)$", before, pattern->as.text.at);
    int rc;

    *yes = false;
    if (n < 0 || (size_t)n >= sizeof text)
        return ckpt_fail(err, CKPT_ELIMIT, "%s: a pattern is longer than %zu bytes", c->path,
                         sizeof text);
    rc = ckpt_uni_patterns_add(c->patterns, text, (uint64_t)n, &number, err);
    return rc == CKPT_OK
               ? ckpt_uni_patterns_match(c->patterns, number, module, strlen(module), yes, err)
               : rc;
}

int ckpt_peft_feedforward(const ckpt_peft_config *c, const char *module, bool *yes, ckpt_err *err)
{
    assert(c && module && yes);
    const ckpt_seq all = c->feedforward ? ckpt_value_seq(c->feedforward) : (ckpt_seq){0};
    const size_t n = strlen(module);

    *yes = false;
    if (c->feedforward && c->feedforward->kind == CKPT_V_STR)
        return aj_match(c, "", c->feedforward, module, yes, err);
    for (uint64_t i = 0; i < all.n && !*yes; i++) {
        const ckpt_value *v = all.at[i];

        // peft compares the ends of paths, also inside a name: "proj" matches "up_proj"
        *yes = v->kind == CKPT_V_STR && v->as.text.n <= n &&
               strcmp(module + n - v->as.text.n, v->as.text.at) == 0;
    }
    return CKPT_OK;
}

/* Look up a module in a dict of patterns, where the first match wins; false if none matches. */
static int aj_lookup(const ckpt_peft_config *c, const ckpt_value *dict, const char *module,
                     double *out, ckpt_err *err)
{
    ckpt_dict all = ckpt_value_map(dict);

    for (uint64_t i = 0; i < all.n; i++) {
        bool yes = false;
        int rc = aj_match(c, "(.*\\.)?", all.at[i].key, module, &yes, err);

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
