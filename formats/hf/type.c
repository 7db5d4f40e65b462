/* SPDX-License-Identifier: Apache-2.0 */
/*
 * type.c: checks that a folder's layers have the weights of the model type in config.json.
 *
 * transformers fills missing weights with random numbers and ignores unknown ones. Both are only
 * warnings here, because code beside the model, or a newer transformers, may know other names.
 */
#include "formats/hf/whole.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "formats/hf/layer_names.h"
#include "libckpt/base/number.h"

enum { HFT_NAME = 128, HFT_KEYS = 160 };

/* The weight of a layer. */
typedef struct hft_weight {
    size_t n_prefix;    /* bytes before the layer's number, with the dot */
    char key[HFT_NAME]; /* as in ckpt_hf_layer_names */
} hft_weight;

/* The names in all layers, each once. */
typedef struct hft_layers {
    size_t n;
    struct {
        char name[HFT_NAME];
        const char *in_main; /* a tensor of the language model's layers with this name, or NULL */
    } key[HFT_KEYS];
} hft_layers;

/* How layers fit a row. */
typedef struct hft_fit {
    size_t needed, missing, main, odd; /* numbers of names: odd are those of main not in the row */
    const char *first_missing;         /* in the row's list */
    const char *first_odd;             /* a tensor's name */
} hft_fit;

/* True if a list of words has this word. */
static bool hft_has(const char *words, const char *word, size_t n)
{
    for (const char *s = words; *s; s += strspn(s, " ")) {
        size_t m = strcspn(s, " ");
        if (m == n && memcmp(s, word, n) == 0)
            return true;
        s += m;
    }
    return false;
}

/* Take a name apart; false: it is no weight of a layer. */
static bool hft_parse(hft_weight *w, const char *name)
{
    const char *end = NULL, *s = name;
    uint64_t number;
    size_t n = 0;

    for (; *s && !end; s++) {
        end = s == name || s[-1] == '.' ? ckpt_scan_u64(s, &number) : NULL;
        end = end && *end == '.' ? end + 1 : NULL;
        w->n_prefix = (size_t)(s - name);
    }
    if (!end || w->n_prefix == 0 || strlen(end) >= sizeof w->key)
        return false;
    for (s = end; *s;) {
        const char *after = s == end || s[-1] == '.' ? ckpt_scan_u64(s, &number) : NULL;
        const bool is = after && *after == '.';
        w->key[n++] = is ? '#' : *s;
        s = is ? after : s + 1;
    }
    w->key[n] = 0;
    // checkpoints of TensorFlow call the weight of a norm gamma
    char *dot = strrchr(w->key, '.');
    if (!dot || (strcmp(dot, ".weight") != 0 && strcmp(dot, ".gamma") != 0))
        return false;
    *dot = 0;
    return true;
}

const ckpt_hf_layer_names *ckpt_hf_layer_row(const ckpt_value *config, const char **type,
                                             bool *part)
{
    const ckpt_value *text = ckpt_value_get(config, "text_config");
    const ckpt_value *v = ckpt_value_get(text, "model_type");

    *part = v != NULL;
    v = v ? v : ckpt_value_get(config, "model_type");
    if (!v || v->kind != CKPT_V_STR)
        return NULL;
    *type = v->as.text.at;
    for (const ckpt_hf_layer_names *row = ckpt_hf_layers; row->types; row++) {
        if (hft_has(row->types, *type, strlen(*type)))
            return row;
    }
    return NULL;
}

/* The first weight that the row needs: the language model's layers begin as its name does. */
static const char *hft_main(const ckpt_map *map, const ckpt_hf_layer_names *row, size_t *n_prefix)
{
    for (size_t i = 0; i < map->tensors.n; i++) {
        hft_weight w;
        const char *name = map->tensors.at[i]->name;
        if (hft_parse(&w, name) && hft_has(row->needed, w.key, strlen(w.key))) {
            *n_prefix = w.n_prefix;
            return name;
        }
    }
    *n_prefix = 0;
    return NULL;
}

/* Take the names of all layers; false: there are too many. main == NULL: all are the main ones. */
static bool hft_collect(hft_layers *layers, const ckpt_map *map, const char *main, size_t n_prefix)
{
    for (size_t i = 0; i < map->tensors.n; i++) {
        const char *name = map->tensors.at[i]->name;
        hft_weight w;
        size_t at = 0;
        if (!hft_parse(&w, name))
            continue;
        while (at < layers->n && strcmp(layers->key[at].name, w.key) != 0)
            at++;
        if (at == HFT_KEYS)
            return false;
        if (at == layers->n) {
            memcpy(layers->key[at].name, w.key, sizeof w.key);
            layers->n++;
        }
        // a decoder may attend to an encoder
        const bool in_main =
            (!main || strncmp(name, main, n_prefix) == 0) && !strstr(w.key, "cross");
        if (in_main && !layers->key[at].in_main)
            layers->key[at].in_main = name;
    }
    return true;
}

static hft_fit hft_compare(const hft_layers *layers, const ckpt_hf_layer_names *row)
{
    hft_fit fit = {0};

    for (const char *s = row->needed; *s; s += strspn(s, " "), fit.needed++) {
        size_t n = strcspn(s, " "), at = 0;
        while (at < layers->n &&
               (strncmp(layers->key[at].name, s, n) != 0 || layers->key[at].name[n] != 0))
            at++;
        if (at == layers->n) {
            fit.first_missing = fit.missing == 0 ? s : fit.first_missing;
            fit.missing++;
        }
        s += n;
    }
    for (size_t i = 0; i < layers->n; i++) {
        const char *key = layers->key[i].name;
        if (!layers->key[i].in_main)
            continue;
        fit.main++;
        if (!hft_has(row->needed, key, strlen(key)) && !hft_has(row->more, key, strlen(key))) {
            fit.first_odd = fit.odd == 0 ? layers->key[i].in_main : fit.first_odd;
            fit.odd++;
        }
    }
    return fit;
}

/*
 * True if the layers are another model's: most names are missing or unknown, or they have just the
 * names of another row. A name more or less may be that of an option unknown to the table.
 */
static bool hft_another(const hft_layers *layers, const hft_fit *fit)
{
    if (fit->missing > fit->needed / 2 || fit->odd > fit->main / 2)
        return true;
    size_t amiss = fit->missing + fit->odd;
    if (amiss == 0)
        return false;
    // a row of few needed names fits many models, and a single name is weak evidence
    size_t needed = amiss == 1 ? fit->main : fit->main / 2 + 1;
    for (const ckpt_hf_layer_names *row = ckpt_hf_layers; row->types; row++) {
        const hft_fit other = hft_compare(layers, row);
        if (other.missing == 0 && other.odd == 0 && other.needed >= needed)
            return true;
    }
    return false;
}

/* True if a weight is quantized, perhaps without a word in config.json (GPTQ, AWQ). */
static bool hft_quantized(const ckpt_map *map)
{
    static const char *const ends[] = {".qweight", ".weight_packed", ".SCB", "_blocks"};

    for (size_t i = 0; i < map->tensors.n; i++) {
        const char *name = map->tensors.at[i]->name;
        size_t n = strlen(name);
        for (size_t k = 0; k < sizeof ends / sizeof *ends; k++) {
            size_t m = strlen(ends[k]);
            if (n >= m && strcmp(name + n - m, ends[k]) == 0)
                return true;
        }
    }
    return false;
}

static int hft_warn(ckpt_map *map, const hft_fit *fit, const char *type, const char *name,
                    ckpt_err *err)
{
    if (fit->missing > 0)
        return ckpt_map_note(
            map, CKPT_WARNING, err,
            "%s: models of type %.60s, which config.json states, have %.*s.weight in their "
            "layers, but no tensor has such a name (%zu of %zu names are missing): %sconfig.json "
            "may be from another model",
            name, type, (int)strcspn(fit->first_missing, " "), fit->first_missing, fit->missing,
            fit->needed,
            fit->odd == 0 && fit->missing <= fit->needed / 2 ? "a part of the model is missing, or "
                                                             : "");
    return ckpt_map_note(map, CKPT_WARNING, err,
                         "%s: models of type %.60s, which config.json states, have no %.200s, so "
                         "programs ignore it: config.json may be from another model",
                         name, type, fit->first_odd);
}

/* ---- biases of the attention ---- */

/* Model types, and whether their attention has biases; key: the member of config.json for that. */
typedef struct hft_bias {
    const char *types, *key;
    bool usual; /* without the member */
} hft_bias;

/* modeling_*.py of transformers 5.23 */
static const hft_bias hft_biased[] = {
    {"qwen2", NULL, true},
    {"qwen2_moe", "qkv_bias", true},
    {"starcoder2", "use_bias", true},
    {"stablelm", "use_qkv_bias", false},
    {"mistral mixtral", NULL, false},
    {"llama qwen3 qwen3_moe olmo olmo2 gemma gemma2 gemma3_text cohere granite smollm3",
     "attention_bias", false},
};

/* True if the name of a layer has "language_model" in its prefix. */
static bool hft_says_text(const char *name, size_t n_prefix)
{
    const char *at = strstr(name, "language_model");

    return at && (size_t)(at - name) < n_prefix;
}

/* Compare the biases of the layers beside `main` with the model type. */
static int hft_check_bias(ckpt_map *map, const ckpt_value *config, const char *type,
                          const char *main, size_t n_prefix, ckpt_err *err)
{
    static const char weight_end[] = ".self_attn.q_proj.weight", end[] = ".self_attn.q_proj.bias";
    const ckpt_value *text = ckpt_value_get(config, "text_config");
    const hft_bias *b = NULL;
    const char *weight = NULL, *bias = NULL;

    for (size_t i = 0; !b && i < sizeof hft_biased / sizeof *hft_biased; i++)
        b = hft_has(hft_biased[i].types, type, strlen(type)) ? &hft_biased[i] : NULL;
    for (size_t i = 0; b && i < map->tensors.n; i++) {
        const char *name = map->tensors.at[i]->name;
        size_t n = strlen(name);
        bool of_main = strncmp(name, main, n_prefix) == 0;
        bool is_weight =
            n > sizeof weight_end && strcmp(name + n + 1 - sizeof weight_end, weight_end) == 0;

        // layers of a tower may have the same names, and come first (GlmAsr)
        if (text && is_weight && !of_main && !hft_says_text(main, n_prefix))
            return CKPT_OK;
        if (!of_main)
            continue;
        if (is_weight && !weight)
            weight = name;
        if (!bias && n > sizeof end && strcmp(name + n + 1 - sizeof end, end) == 0)
            bias = name;
    }
    const ckpt_value *said = b && b->key ? ckpt_value_get(text ? text : config, b->key) : NULL;
    const bool has = said && said->kind == CKPT_V_BOOL ? said->as.i != 0 : b && b->usual;

    if (!weight || has == (bias != NULL))
        return CKPT_OK;
    if (has)
        return ckpt_map_note(
            map, CKPT_WARNING, err,
            "%.*s.bias is missing: models of type %.60s with this config.json have it: "
            "config.json may be from another model",
            (int)(strlen(weight) - strlen(".weight")), weight, type);
    return ckpt_map_note(
        map, CKPT_WARNING, err,
        "%s is ignored: models of type %.60s with this config.json have no bias there: "
        "config.json may be from another model",
        bias, type);
}

int ckpt_hf_type(ckpt_map *map, const ckpt_value *config, const char *name, ckpt_err *err)
{
    assert(map && name);
    const char *type = "";
    bool part;
    size_t n_prefix;
    hft_layers layers = {0};
    const ckpt_hf_layer_names *row = ckpt_hf_layer_row(config, &type, &part);

    // code beside the model may make other modules, and quantized modules have other names
    if (!row || ckpt_value_get(config, "auto_map") || ckpt_hf_quantization(config) ||
        hft_quantized(map))
        return CKPT_OK;
    const char *main = hft_main(map, row, &n_prefix);
    // some classes leave the language model out (Blip2ForImageTextRetrieval)
    if (part && !main)
        return CKPT_OK;
    if (!hft_collect(&layers, map, main, n_prefix))
        return CKPT_OK;
    const hft_fit fit = hft_compare(&layers, row);
    // all names are the type's, but no layer has some that each model of it has; a draft head of
    // EAGLE lacks norms
    const bool lacks = main && fit.missing > 0 && fit.odd == 0 &&
                       ckpt_map_index(map, "fc.weight", strlen("fc.weight")) == SIZE_MAX;
    // the layers of other parts may have any names
    if (!lacks && ((part && fit.missing == 0) || !hft_another(&layers, &fit)))
        return main ? hft_check_bias(map, config, type, main, n_prefix, err) : CKPT_OK;
    return hft_warn(map, &fit, type, name, err);
}
