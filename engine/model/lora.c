/* SPDX-License-Identifier: Apache-2.0 */
/*
 * lora.c: implements adapters (Hu et al. 2021) as PEFT does: target modules, trained parameters,
 * names in a PEFT folder, adapter_config.json in both directions.
 *
 * In memory an adapter's parameters are "<module>.lora_A.weight" [rank, in] and
 * "<module>.lora_B.weight" [out, rank]; the base weights keep their names.  A PEFT folder prefixes
 * them with "base_model.model." and, for classifiers, contains the classifier too
 * (modules_to_save).
 */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "engine/config/config.h"
#include "engine/model/layers.h"
#include "libckpt/base/number.h"

#define LR_PREFIX "base_model.model."
#define LR_ALL    "all-linear"

/* A name in a comma-separated list. */
typedef struct lr_token {
    const char *at;
    size_t n;
} lr_token;

/* Get the next name of "query, value"; false at the end. */
static bool lr_next(const char **list, lr_token *t)
{
    const char *at = *list + strspn(*list, ", ");

    t->at = at;
    t->n = strcspn(at, ", ");
    *list = at + t->n;
    return t->n > 0;
}

/* True if the module's name, or its end after a dot, equals the target. */
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

    // the classifier is trained completely, as in PEFT's sequence classification
    if (m->config.arch == ZT_BERT_CLASSIFIER && strcmp(module, "classifier") == 0)
        return false;
    while (lr_next(&list, &t)) {
        if (lr_matches(module, strlen(module), &t))
            return true;
    }
    return false;
}

/* Standard deviation of PEFT's default, which is uniform in +-1 / sqrt(in). */
float zt_lora_std(uint64_t in)
{
    return (float)(1.0 / sqrt(3.0 * (double)in));
}

/* PEFT's default targets for each model type; PEFT has none for OLMo-2 and Phi-3. */
static const char *lr_default_targets(const zt_model_config *f)
{
    switch (f->arch) {
    case ZT_GPT2:
        return "c_attn";
    case ZT_LLAMA:
        return f->fused ? "qkv_proj" : "q_proj,v_proj";
    case ZT_OPT:
        return "q_proj,v_proj";
    case ZT_NEOX:
    case ZT_BLOOM:
        return "query_key_value";
    case ZT_T5:
        return "q,v";
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
        return ckpt_fail(err, CKPT_EUSAGE, "LoRA: dropout is %g; expected 0 to below 1",
                         (double)lora->dropout);
    if (!targets || targets[0] == '\0')
        targets = lr_default_targets(&m->config);
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

/* Length of the name of the module that has this adapter, within the parameter's name. */
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
            return ckpt_fail(err, CKPT_EUSAGE, "LoRA: no linear layer of %s is named '%.*s'",
                             m->config.class_name, (int)t.n, t.at);
    }
    for (size_t i = 0; i < m->params.n; i++)
        m->params.at[i].frozen = !lr_trained(m, &m->params.at[i]);
    return CKPT_OK;
}

/* ---- names ---- */

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

/* The targets as JSON: a text for one name or "all-linear", else a list of names. */
static ckpt_value *lr_target_value(ckpt_arena *arena, const char *list)
{
    ckpt_value *v = ckpt_value_new(arena, CKPT_V_LIST);
    lr_token t;

    if (strcmp(list, LR_ALL) == 0)
        return ckpt_value_cstr(arena, LR_ALL);
    while (v && lr_next(&list, &t)) {
        ckpt_value *name = ckpt_value_str(arena, t.at, t.n);
        if (!name || !ckpt_seq_add(arena, &v->as.seq, name))
            return NULL;
    }
    return v;
}

/* Modules that are trained completely, without an adapter: a classifier's head. */
static ckpt_value *lr_whole_modules(ckpt_arena *arena, zt_arch arch)
{
    static const char heads[] = "classifier,score";

    return arch == ZT_BERT_CLASSIFIER ? lr_target_value(arena, heads)
                                      : ckpt_value_new(arena, CKPT_V_NONE);
}

static const char *lr_task(zt_arch arch)
{
    switch (arch) {
    case ZT_BERT_CLASSIFIER:
        return "SEQ_CLS";
    case ZT_GPT2:
    case ZT_LLAMA:
    case ZT_OPT:
    case ZT_NEOX:
    case ZT_BLOOM:
        return "CAUSAL_LM";
    case ZT_T5:
        return "SEQ_2_SEQ_LM";
    case ZT_BERT_MLM:
        break;
    }
    return NULL;
}

/* A rate with the fewest digits that give the same float, so 0.1 stays 0.1. */
static ckpt_value *lr_rate(ckpt_arena *arena, float rate)
{
    char text[CKPT_NUMBER_TEXT];
    double shortest = (double)rate;

    (void)ckpt_parse_f64(ckpt_print_f32(text, rate, 1), &shortest);
    return ckpt_value_float(arena, shortest);
}

const ckpt_value *zt_lora_config(const zt_model *m, ckpt_arena *arena, const char *base)
{
    const zt_lora *l = &m->lora;
    bool whole = l->alpha == floor(l->alpha) && l->alpha < 1e15; // PEFT stores an int
    const char *task = lr_task(m->config.arch);
    const struct {
        const char *key;
        ckpt_value *value;
    } member[] = {
        {"base_model_name_or_path",
         base ? ckpt_value_cstr(arena, base) : ckpt_value_new(arena, CKPT_V_NONE)},
        {"bias", ckpt_value_cstr(arena, "none")},
        {"fan_in_fan_out", ckpt_value_bool(arena, m->config.arch == ZT_GPT2)},
        {"inference_mode", ckpt_value_bool(arena, true)},
        {"init_lora_weights", ckpt_value_bool(arena, true)},
        {"lora_alpha",
         whole ? ckpt_value_int(arena, (int64_t)l->alpha) : ckpt_value_float(arena, l->alpha)},
        {"lora_dropout", lr_rate(arena, l->dropout)},
        {"modules_to_save", lr_whole_modules(arena, m->config.arch)},
        {"peft_type", ckpt_value_cstr(arena, "LORA")},
        {"r", ckpt_value_int(arena, (int64_t)l->rank)},
        {"target_modules", lr_target_value(arena, l->targets)},
        {"task_type", task ? ckpt_value_cstr(arena, task) : ckpt_value_new(arena, CKPT_V_NONE)},
        {"use_dora", ckpt_value_bool(arena, false)},
        {"use_rslora", ckpt_value_bool(arena, false)},
    };
    ckpt_value *out = ckpt_value_new(arena, CKPT_V_DICT);

    for (size_t i = 0; out && i < sizeof member / sizeof *member; i++) {
        if (!member[i].value ||
            !ckpt_dict_add_cstr(arena, &out->as.map, member[i].key, member[i].value))
            return NULL;
    }
    return out;
}
