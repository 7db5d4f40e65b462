/* SPDX-License-Identifier: Apache-2.0 */
/* extract_config.c: makes the adapter_config.json of an extracted LoRA adapter. */
#include <assert.h>
#include <string.h>

#include "formats/peft/adapting.h"
#include "formats/peft/extracting.h"
#include "libckpt/base/index.h"
#include "libckpt/codec/json/json.h"

/* Bytes of a config.json. */
#define XL_CONFIG_MAX (UINT64_C(4) << 20)

/* The length of the name of the module that has a tensor; 0: none. */
size_t ckpt_xl_parent(const char *name)
{
    const char *dot = strrchr(name, '.');

    return dot ? (size_t)(dot - name) : 0;
}

/* True for a module with a transposed matrix, [in, out]. */
bool ckpt_xl_turned(const ckpt_xl_job *j, const char *module)
{
    const ckpt_adapting like = {.model_type = j->info.model_type};

    return ckpt_adapt_is_conv1d(&like, module);
}

/* The last part of a module's name. */
const char *ckpt_xl_last(const char *module)
{
    const char *dot = strrchr(module, '.');

    return dot ? dot + 1 : module;
}

/* A string of a configuration, or the first of a list of strings; NULL: it has none. */
static const char *xc_string(const ckpt_value *config, const char *key)
{
    const ckpt_value *v = ckpt_value_get(config, key);

    if (v && v->kind == CKPT_V_LIST && v->as.seq.n > 0)
        v = v->as.seq.at[0];
    return v && v->kind == CKPT_V_STR ? v->as.text.at : NULL;
}

int ckpt_xl_read_config(ckpt_xl_job *j)
{
    assert(j->opts.config_text);
    const ckpt_json_text text = {.name = j->opts.config_name ? j->opts.config_name : "config.json",
                                 .at = j->opts.config_text,
                                 .n = strlen(j->opts.config_text),
                                 .max = XL_CONFIG_MAX};
    ckpt_value *config = NULL;
    int rc = ckpt_json_parse(&config, j->map->arena, &text, j->err);

    if (rc != CKPT_OK)
        return rc;
    j->info.model_type = xc_string(config, "model_type");
    j->info.architecture = xc_string(config, "architectures");
    return CKPT_OK;
}

/* Texts without an order, each once. */
typedef struct xc_texts {
    const char **at;
    ckpt_index index;
    size_t n;
} xc_texts;

static bool xc_same_text(const void *ctx, uint32_t number, const void *key)
{
    const xc_texts *texts = ctx;

    return strcmp(texts->at[number], key) == 0;
}

static bool xc_has(const xc_texts *texts, const char *text)
{
    return ckpt_index_find(&texts->index, ckpt_hash_bytes(text, strlen(text), 0), xc_same_text,
                           texts, text) != CKPT_INDEX_NONE;
}

/* Put a text in, for which there is room; false: no memory. */
static bool xc_put(xc_texts *texts, const char *text)
{
    if (xc_has(texts, text))
        return true;
    texts->at[texts->n] = text;
    return ckpt_index_add(&texts->index, ckpt_hash_bytes(text, strlen(text), 0),
                          (uint32_t)texts->n++);
}

/* Make room for n texts. */
static bool xc_texts_new(xc_texts *texts, size_t n)
{
    *texts = (xc_texts){.at = n < UINT32_MAX / 2 ? ckpt_alloc((n + 1) * sizeof *texts->at) : NULL};
    return texts->at != NULL;
}

static void xc_texts_free(xc_texts *texts)
{
    ckpt_index_free(&texts->index);
    ckpt_free(texts->at);
}

/*
 * Set *none if peft would take no module without an update for a target by the last part of its
 * name, which only modules with an update may have then.
 */
static bool xc_by_names(const ckpt_xl_job *j, bool *none)
{
    ckpt_arena *a = j->map->arena;
    xc_texts others;
    bool ok = xc_texts_new(&others, j->n);

    for (size_t i = 0; ok && i < j->n; i++) {
        const ckpt_xl_tensor *e = &j->all[i];
        const size_t n = ckpt_xl_parent(e->t->name);

        if ((e->module && e->differs) || n == 0 || strcmp(e->t->name + n, ".weight") != 0)
            continue;
        const char *module = ckpt_arena_string(a, e->t->name, n);

        ok = module && xc_put(&others, ckpt_xl_last(module));
    }
    *none = true;
    for (size_t i = 0; ok && *none && i < j->n; i++) {
        const ckpt_xl_tensor *e = &j->all[i];

        *none = !e->module || !e->differs || !xc_has(&others, ckpt_xl_last(e->module));
    }
    xc_texts_free(&others);
    return ok;
}

/* Append a text to a list unless it is among those seen. */
static bool xc_append(ckpt_arena *a, ckpt_value *list, xc_texts *seen, const char *text)
{
    if (!text || xc_has(seen, text))
        return text != NULL;
    return xc_put(seen, text) && ckpt_seq_add(a, &list->as.seq, ckpt_value_cstr(a, text));
}

/* target_modules: the last parts of names if they choose exactly the modules with an update. */
static ckpt_value *xc_targets(const ckpt_xl_job *j)
{
    ckpt_arena *a = j->map->arena;
    ckpt_value *list = ckpt_value_new(a, CKPT_V_LIST);
    xc_texts seen;
    bool by_names = true, ok = xc_texts_new(&seen, j->n) && list && xc_by_names(j, &by_names);

    for (size_t i = 0; ok && i < j->n; i++) {
        const ckpt_xl_tensor *e = &j->all[i];

        if (e->module && e->differs)
            ok = xc_append(a, list, &seen, by_names ? ckpt_xl_last(e->module) : e->module);
    }
    xc_texts_free(&seen);
    return ok ? list : NULL;
}

/* modules_to_save: the whole paths, because peft compares the ends of names; null if empty. */
static ckpt_value *xc_saved(const ckpt_xl_job *j)
{
    static const char before[] = "base_model.model.";
    ckpt_arena *a = j->map->arena;
    ckpt_value *list = ckpt_value_new(a, CKPT_V_LIST);
    xc_texts seen;
    bool ok = xc_texts_new(&seen, j->n) && list, any = false;

    for (size_t i = 0; ok && i < j->n; i++) {
        const ckpt_xl_tensor *e = &j->all[i];
        // saved tensors have their new names by now
        const char *name = e->t->name + (e->saved ? sizeof before - 1 : 0);

        if (e->module || !e->differs || !e->saved || e->bias)
            continue;
        any = true;
        ok = xc_append(a, list, &seen, ckpt_arena_string(a, name, ckpt_xl_parent(name)));
    }
    xc_texts_free(&seen);
    return !ok ? NULL : any ? list : ckpt_value_new(a, CKPT_V_NONE);
}

/* True if biases are saved beside factors. */
static bool xc_any_bias(const ckpt_xl_job *j)
{
    bool any = false;

    for (size_t i = 0; !any && i < j->n; i++)
        any = j->all[i].bias;
    return any;
}

/* True if a matrix with an update is transposed. */
static bool xc_any_turned(const ckpt_xl_job *j)
{
    bool any = false;

    for (size_t i = 0; !any && i < j->n; i++)
        any = j->all[i].module && j->all[i].differs && ckpt_xl_turned(j, j->all[i].module);
    return any;
}

/* Make adapter_config.json: peft's LoraConfig, with the other members at their defaults. */
int ckpt_xl_config(const ckpt_xl_job *j)
{
    static const ckpt_json_style style = {.indent = 2, .sort_keys = true};
    ckpt_arena *a = j->map->arena;
    const char *base = j->opts.base_name ? j->opts.base_name : j->base->path;
    const bool causal = j->info.architecture && strstr(j->info.architecture, "ForCausalLM");
    const struct {
        const char *key;
        ckpt_value *value;
    } member[] = {
        {"base_model_name_or_path", ckpt_value_cstr(a, base)},
        {"bias", ckpt_value_cstr(a, xc_any_bias(j) ? "lora_only" : "none")},
        {"fan_in_fan_out", ckpt_value_bool(a, xc_any_turned(j))},
        {"inference_mode", ckpt_value_bool(a, true)},
        {"init_lora_weights", ckpt_value_bool(a, true)},
        {"lora_alpha", ckpt_value_int(a, (int64_t)j->opts.rank)},
        {"lora_dropout", ckpt_value_int(a, 0)},
        {"modules_to_save", xc_saved(j)},
        {"peft_type", ckpt_value_cstr(a, "LORA")},
        {"r", ckpt_value_int(a, (int64_t)j->opts.rank)},
        {"target_modules", xc_targets(j)},
        {"task_type", causal ? ckpt_value_cstr(a, "CAUSAL_LM") : ckpt_value_new(a, CKPT_V_NONE)},
        {"use_dora", ckpt_value_bool(a, false)},
        {"use_rslora", ckpt_value_bool(a, false)},
    };
    ckpt_value *root = ckpt_value_new(a, CKPT_V_DICT);
    ckpt_bytes text = {0};
    bool ok = root != NULL;
    int rc;

    for (size_t i = 0; ok && i < sizeof member / sizeof *member; i++)
        ok =
            member[i].value && ckpt_dict_add_cstr(a, &root->as.map, member[i].key, member[i].value);
    rc = ok ? ckpt_json_write(&text, root, &style, j->err) : ckpt_fail_memory(j->err);
    if (rc == CKPT_OK) {
        j->map->n_adapter_config = text.n;
        j->map->adapter_config = ckpt_arena_copy(a, text.at, text.n);
        rc = j->map->adapter_config ? CKPT_OK : ckpt_fail_memory(j->err);
    }
    ckpt_vec_free(&text);
    return rc;
}
