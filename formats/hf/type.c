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

enum { HFT_NAME = 512, HFT_WORDS = 64 /* more than any row has */ };

/* The weight of a layer. */
typedef struct hft_weight {
    size_t n_prefix; /* bytes before the layer's number, with the dot */
    uint64_t layer;
    char key[HFT_NAME]; /* as in ckpt_hf_layer_names */
} hft_weight;

/* True if a list of words has this word; *at is its position. */
static bool hft_has(const char *words, const char *word, size_t n, size_t *at)
{
    *at = 0;
    for (const char *s = words; *s; s += strspn(s, " "), ++*at) {
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
    size_t n = 0;

    for (; *s && !end; s++) {
        end = s == name || s[-1] == '.' ? ckpt_scan_u64(s, &w->layer) : NULL;
        end = end && *end == '.' ? end + 1 : NULL;
        w->n_prefix = (size_t)(s - name);
    }
    if (!end || w->n_prefix == 0 || strlen(end) >= sizeof w->key)
        return false;
    for (s = end; *s;) {
        uint64_t number;
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

/* The row of a configuration's language model, or NULL; *part: it is a part of the model. */
static const ckpt_hf_layer_names *hft_row(const ckpt_value *config, const char **type, bool *part)
{
    const ckpt_value *text = ckpt_value_get(config, "text_config");
    const ckpt_value *v = ckpt_value_get(text, "model_type");
    size_t at;

    *part = v != NULL;
    v = v ? v : ckpt_value_get(config, "model_type");
    if (!v || v->kind != CKPT_V_STR)
        return NULL;
    *type = v->as.text.at;
    for (const ckpt_hf_layer_names *row = ckpt_hf_layers; row->types; row++) {
        if (hft_has(row->types, *type, strlen(*type), &at))
            return row;
    }
    return NULL;
}

/* Warn of names that no layer has. */
static int hft_missing(ckpt_map *map, const ckpt_hf_layer_names *row, const bool *found,
                       const char *type, const char *name, ckpt_err *err)
{
    const char *first = NULL;
    size_t n = 0, all = 0;

    for (const char *s = row->needed; *s; s += strcspn(s, " "), s += strspn(s, " "), all++) {
        first = first || found[all] ? first : s;
        n += !found[all];
    }
    return n == 0 ? CKPT_OK
                  : ckpt_map_note(map, CKPT_WARNING, err,
                                  "%s: models of type %.60s, which config.json states, have "
                                  "%.*s.weight in their layers, but no tensor has such a name "
                                  "(%zu of %zu names are missing): config.json may be from another "
                                  "model",
                                  name, type, (int)strcspn(first, " "), first, n, all);
}

int ckpt_hf_type(ckpt_map *map, const ckpt_value *config, const char *name, ckpt_err *err)
{
    assert(map && name);
    const char *type = "";
    const ckpt_tensor *main = NULL, *odd = NULL; // main: a layer's known weight
    bool part, found[HFT_WORDS] = {false};
    size_t n_prefix = 0;
    const ckpt_hf_layer_names *row = hft_row(config, &type, &part);

    // code beside the model may make other modules, and quantized modules have other names
    if (!row || ckpt_value_get(config, "auto_map") || ckpt_hf_quantization(config))
        return CKPT_OK;
    for (size_t i = 0; i < map->tensors.n; i++) {
        const ckpt_tensor *t = map->tensors.at[i];
        hft_weight w;
        size_t at;
        if (!hft_parse(&w, t->name))
            continue;
        if (hft_has(row->needed, w.key, strlen(w.key), &at) && at < HFT_WORDS) {
            found[at] = true;
            n_prefix = main ? n_prefix : w.n_prefix;
            main = main ? main : t;
        } else if (!odd && w.layer == 0 && !strstr(w.key, "cross") && // a decoder's own attention
                   !hft_has(row->more, w.key, strlen(w.key), &at)) {
            odd = t;
        }
    }
    // some classes leave the language model out (Blip2ForImageTextRetrieval)
    if (part && !main)
        return CKPT_OK;
    size_t n = map->findings.n;
    int rc = hft_missing(map, row, found, type, name, err);
    if (rc != CKPT_OK || map->findings.n > n || part || !odd || !main ||
        strncmp(odd->name, main->name, n_prefix) != 0)
        return rc;
    return ckpt_map_note(map, CKPT_WARNING, err,
                         "%s: models of type %.60s, which config.json states, have no %.200s, so "
                         "programs ignore it: config.json may be from another model",
                         name, type, odd->name);
}
