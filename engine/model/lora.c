/* SPDX-License-Identifier: Apache-2.0 */
/*
 * lora.c: adapters (Hu et al. 2021) as PEFT has them: which modules get one, what is trained, names
 * in a PEFT folder, adapter_config.json in both directions.
 *
 * In memory an adapter's parameters are "<module>.lora_A.weight" [rank, in] and
 * "<module>.lora_B.weight" [out, rank]; the base weights keep their names.  A PEFT folder has
 * "base_model.model." before them, and, for classifiers, the classifier itself (modules_to_save).
 */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "engine/config/config.h"
#include "engine/model/layers.h"

#define LR_PREFIX "base_model.model."
#define LR_ALL    "all-linear"

/* A name in a list with commas. */
typedef struct lr_token {
    const char *at;
    size_t n;
} lr_token;

/* Step through "query, value": false at the end. */
static bool lr_next(const char **list, lr_token *t)
{
    const char *at = *list + strspn(*list, ", ");

    t->at = at;
    t->n = strcspn(at, ", ");
    *list = at + t->n;
    return t->n > 0;
}

/* The module's name, or the end of it after a dot, is the target. */
static bool lr_matches(const char *module, size_t n, const lr_token *t)
{
    if (t->n == strlen(LR_ALL) && strncmp(t->at, LR_ALL, t->n) == 0)
        return true;
    return n >= t->n && strncmp(module + n - t->n, t->at, t->n) == 0 &&
           (n == t->n || module[n - t->n - 1] == '.');
}

bool zt_lora_targets(const zt_model *m, const char *module)
{
    const char *list = m->lora.targets;
    lr_token t;

    // trained whole, as PEFT does for sequence classification
    if (m->config.arch == ZT_BERT_CLASSIFIER && strcmp(module, "classifier") == 0)
        return false;
    while (lr_next(&list, &t)) {
        if (lr_matches(module, strlen(module), &t))
            return true;
    }
    return false;
}

/* The spread of PEFT's default, uniform in +-1 / sqrt(in). */
float zt_lora_std(uint64_t in)
{
    return (float)(1.0 / sqrt(3.0 * (double)in));
}

/* PEFT's own choice for each model type. */
static const char *lr_default_targets(zt_arch arch)
{
    switch (arch) {
    case ZT_GPT2:
        return "c_attn";
    case ZT_LLAMA:
        return "q_proj,v_proj";
    case ZT_BERT_CLASSIFIER:
    case ZT_BERT_MLM:
        break;
    }
    return "query,value";
}

int zt_lora_begin(zt_model *m, const zt_lora *lora, ckpt_err *err)
{
    const char *targets = lora->targets;

    if (lora->rank > m->config.hidden * 8 || !isfinite(lora->alpha) || lora->alpha <= 0.0)
        return ckpt_fail(err, CKPT_EUSAGE, "LoRA: rank %" PRIu64 " or alpha %g is out of range",
                         lora->rank, lora->alpha);
    if (!(lora->dropout >= 0.0F && lora->dropout < 1.0F))
        return ckpt_fail(err, CKPT_EUSAGE, "LoRA: dropout %g is not in 0 to 1",
                         (double)lora->dropout);
    if (!targets || targets[0] == '\0')
        targets = lr_default_targets(m->config.arch);
    m->lora = *lora;
    m->lora.targets = ckpt_arena_string(m->arena, targets, strlen(targets));
    return !m->lora.targets ? ckpt_fail_memory(err) : CKPT_OK;
}

static bool lr_ends(const char *name, const char *end)
{
    size_t n = strlen(name);
    size_t k = strlen(end);

    return n >= k && strcmp(name + n - k, end) == 0;
}

static bool lr_is_adapter(const zt_param *p)
{
    return lr_ends(p->name, ".lora_A.weight") || lr_ends(p->name, ".lora_B.weight");
}

/* The module that an adapter was added to: how much of the parameter's name. */
static size_t lr_module_length(const zt_param *p)
{
    return strlen(p->name) - strlen(".lora_A.weight");
}

static bool lr_trained(const zt_model *m, const zt_param *p)
{
    bool head = m->config.arch == ZT_BERT_CLASSIFIER && strncmp(p->name, "classifier.", 11) == 0;

    return head || lr_is_adapter(p);
}

static bool lr_found(const zt_model *m, const lr_token *t)
{
    for (size_t i = 0; i < m->params.n; i++) {
        const zt_param *p = &m->params.at[i];

        if (lr_is_adapter(p) && lr_matches(p->name, lr_module_length(p), t))
            return true;
    }
    return false;
}

int zt_lora_finish(zt_model *m, ckpt_err *err)
{
    const char *list = m->lora.targets;
    lr_token t;

    while (lr_next(&list, &t)) {
        if (!lr_found(m, &t))
            return ckpt_fail(err, CKPT_EUSAGE, "LoRA: no linear map of %s is named '%.*s'",
                             m->config.class_name, (int)t.n, t.at);
    }
    for (size_t i = 0; i < m->params.n; i++)
        m->params.at[i].frozen = !lr_trained(m, &m->params.at[i]);
    return CKPT_OK;
}

/* ---- names ---- */

/* Cut every occurrence of a part out of a string. */
static void lr_cut(char *s, const char *part)
{
    size_t n = strlen(part);

    for (char *at = strstr(s, part); at != NULL; at = strstr(at, part))
        memmove(at, at + n, strlen(at + n) + 1);
}

bool zt_lora_plain_name(char *out, size_t room, const char *name)
{
    size_t prefix = strlen(LR_PREFIX);
    size_t n = strlen(name);

    if (n >= room || strncmp(name, LR_PREFIX, prefix) != 0)
        return false;
    memcpy(out, name + prefix, n - prefix + 1);
    lr_cut(out, ".base_layer");
    lr_cut(out, ".modules_to_save.default");
    if (lr_ends(out, ".default.weight"))
        lr_cut(out, ".default");
    return true;
}

const zt_alias *zt_lora_saved(const zt_model *m, ckpt_arena *arena, size_t *n)
{
    zt_alias *out = ckpt_arena_array(arena, m->params.n, sizeof *out);

    *n = 0;
    for (size_t i = 0; out && i < m->params.n; i++) {
        const zt_param *p = &m->params.at[i];

        if (!lr_trained(m, p))
            continue;
        out[*n].param = (uint32_t)i;
        out[*n].name = ckpt_arena_printf(arena, LR_PREFIX "%s", p->name);
        if (!out[*n].name)
            return NULL;
        *n += 1;
    }
    return out;
}

/* ---- adapter_config.json ---- */

static bool lr_put_string(ckpt_bytes *b, const char *s, size_t n)
{
    bool ok = ckpt_bytes_add(b, "\"", 1);

    for (size_t i = 0; ok && i < n; i++) {
        unsigned char c = (unsigned char)s[i];

        if (c < 0x20) {
            ok = ckpt_bytes_printf(b, "\\u%04x", c);
        } else {
            ok = (c != '"' && c != '\\') || ckpt_bytes_add(b, "\\", 1);
            ok = ok && ckpt_bytes_add(b, &s[i], 1);
        }
    }
    return ok && ckpt_bytes_add(b, "\"", 1);
}

static bool lr_put_targets(ckpt_bytes *b, const char *list)
{
    bool ok = true;
    const char *between = "";
    lr_token t;

    if (strcmp(list, LR_ALL) == 0)
        return lr_put_string(b, LR_ALL, strlen(LR_ALL));
    ok = ckpt_bytes_add(b, "[", 1);
    while (ok && lr_next(&list, &t)) {
        ok = ckpt_bytes_printf(b, "%s", between) && lr_put_string(b, t.at, t.n);
        between = ", ";
    }
    return ok && ckpt_bytes_add(b, "]", 1);
}

static const char *lr_task(zt_arch arch)
{
    switch (arch) {
    case ZT_BERT_CLASSIFIER:
        return "\"SEQ_CLS\"";
    case ZT_GPT2:
    case ZT_LLAMA:
        return "\"CAUSAL_LM\"";
    case ZT_BERT_MLM:
        break;
    }
    return "null";
}

static bool lr_put_config(ckpt_bytes *b, const zt_model *m, const char *base)
{
    const zt_lora *l = &m->lora;
    bool whole = l->alpha == floor(l->alpha) && l->alpha < 1e15; // PEFT has an int
    bool ok = ckpt_bytes_printf(b, "{\n  \"base_model_name_or_path\": ");

    ok = ok && (base ? lr_put_string(b, base, strlen(base)) : ckpt_bytes_printf(b, "null"));
    ok = ok && ckpt_bytes_printf(b, ",\n  \"bias\": \"none\",\n  \"fan_in_fan_out\": %s,\n",
                                 m->config.arch == ZT_GPT2 ? "true" : "false");
    ok =
        ok && ckpt_bytes_printf(b, "  \"inference_mode\": true,\n  \"init_lora_weights\": true,\n");
    ok = ok && ckpt_bytes_printf(
                   b, whole ? "  \"lora_alpha\": %.0f,\n" : "  \"lora_alpha\": %.17g,\n", l->alpha);
    ok = ok && ckpt_bytes_printf(b, "  \"lora_dropout\": %.9g,\n", (double)l->dropout);
    ok = ok && ckpt_bytes_printf(
                   b, "  \"modules_to_save\": %s,\n",
                   m->config.arch == ZT_BERT_CLASSIFIER ? "[\"classifier\", \"score\"]" : "null");
    ok = ok && ckpt_bytes_printf(b, "  \"peft_type\": \"LORA\",\n  \"r\": %" PRIu64 ",\n", l->rank);
    ok = ok && ckpt_bytes_printf(b, "  \"target_modules\": ") && lr_put_targets(b, l->targets);
    return ok &&
           ckpt_bytes_printf(
               b, ",\n  \"task_type\": %s,\n  \"use_dora\": false,\n  \"use_rslora\": false\n}\n",
               lr_task(m->config.arch));
}

const char *zt_lora_config_json(const zt_model *m, ckpt_arena *arena, const char *base_model)
{
    ckpt_bytes b = {0};
    const char *text = NULL;

    if (m->lora.rank > 0 && lr_put_config(&b, m, base_model))
        text = ckpt_arena_string(arena, (const char *)b.at, b.n);
    ckpt_vec_free(&b);
    return text;
}

/* ---- reading adapter_config.json ---- */

static bool lr_is_nothing(const ckpt_value *v)
{
    if (!v || v->kind == CKPT_V_NONE || (v->kind == CKPT_V_BOOL && v->as.i == 0))
        return true;
    return (v->kind == CKPT_V_DICT && ckpt_value_map(v).n == 0) ||
           (v->kind == CKPT_V_LIST && ckpt_value_seq(v).n == 0);
}

/* Settings that change results and are not for this engine must not be there. */
static int lr_refuse_others(const ckpt_value *json, const char *path, ckpt_err *err)
{
    static const char *const keys[] = {"use_dora",
                                       "use_rslora",
                                       "use_qalora",
                                       "lora_bias",
                                       "rank_pattern",
                                       "alpha_pattern",
                                       "layers_to_transform",
                                       "layers_pattern",
                                       "exclude_modules",
                                       "layer_replication",
                                       "target_parameters",
                                       "trainable_token_indices",
                                       "alora_invocation_tokens",
                                       "megatron_config",
                                       "use_bdlora",
                                       "arrow_config",
                                       "kasa_config",
                                       "velora_config",
                                       "monteclora_config"};
    const ckpt_value *bias = ckpt_value_get(json, "bias");

    if (!ckpt_value_is(ckpt_value_get(json, "peft_type"), "LORA"))
        return ckpt_fail(err, CKPT_EUNSUPPORTED, "%s: peft_type is not LORA", path);
    if (!lr_is_nothing(bias) && !ckpt_value_is(bias, "none"))
        return ckpt_fail(err, CKPT_EUNSUPPORTED,
                         "%s: bias is not none: biases are not trained here", path);
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        if (!lr_is_nothing(ckpt_value_get(json, keys[i])))
            return ckpt_fail(err, CKPT_EUNSUPPORTED, "%s: %s is set, which is not supported", path,
                             keys[i]);
    }
    return CKPT_OK;
}

/* An int or a float; false: neither. */
static bool lr_number(const ckpt_value *v, double *out)
{
    int64_t i;

    if (v && v->kind == CKPT_V_FLOAT) {
        *out = v->as.f;
        return true;
    }
    if (!v || v->kind != CKPT_V_INT || !ckpt_value_as_int(v, &i))
        return false;
    *out = (double)i;
    return true;
}

/* A list of names, or one name, with commas between. */
static int lr_read_targets(zt_lora *out, ckpt_arena *arena, const ckpt_value *v, const char *path,
                           ckpt_err *err)
{
    ckpt_seq seq = ckpt_value_seq(v);
    const char *list = "";

    if (v && v->kind == CKPT_V_STR) {
        seq.n = 1; // the value itself
    }
    for (uint64_t i = 0; i < seq.n; i++) {
        const ckpt_value *item = v->kind == CKPT_V_STR ? v : seq.at[i];

        if (item->kind != CKPT_V_STR ||
            strcspn(item->as.text.at, "*[](){}^$|\\?+, ") != item->as.text.n)
            return ckpt_fail(err, CKPT_EUNSUPPORTED,
                             "%s: target_modules has something else than names of modules", path);
        list = ckpt_arena_printf(arena, "%s%s%s", list, i > 0 ? "," : "", item->as.text.at);
        if (!list)
            return ckpt_fail_memory(err);
    }
    out->targets = list;
    return CKPT_OK;
}

static int lr_read(zt_lora *out, ckpt_arena *arena, const ckpt_value *json, const char *path,
                   ckpt_err *err)
{
    const ckpt_value *drop = ckpt_value_get(json, "lora_dropout");
    double rank = 0;
    double dropout = 0;
    int rc = lr_refuse_others(json, path, err);

    if (rc != CKPT_OK)
        return rc;
    *out = (zt_lora){0};
    if (!lr_number(ckpt_value_get(json, "r"), &rank) || rank < 1 || rank > 65536 ||
        rank != floor(rank))
        return ckpt_fail(err, CKPT_EFORMAT, "%s: r is not a whole number from 1 to 65536", path);
    if (!lr_number(ckpt_value_get(json, "lora_alpha"), &out->alpha))
        return ckpt_fail(err, CKPT_EFORMAT, "%s: lora_alpha is not a number", path);
    if (drop && !lr_number(drop, &dropout))
        return ckpt_fail(err, CKPT_EFORMAT, "%s: lora_dropout is not a number", path);
    out->rank = (uint64_t)rank;
    out->dropout = (float)dropout;
    return lr_read_targets(out, arena, ckpt_value_get(json, "target_modules"), path, err);
}

int zt_lora_read(zt_lora *out, ckpt_arena *arena, const char *path, ckpt_err *err)
{
    ckpt_value *json = NULL;
    int rc;

    if (!lr_ends(path, ".json")) {
        path = ckpt_arena_printf(arena, "%s/adapter_config.json", path);
        if (!path)
            return ckpt_fail_memory(err);
    }
    rc = zt_hjson_read(&json, arena, path, err);
    return rc == CKPT_OK ? lr_read(out, arena, json, path, err) : rc;
}
