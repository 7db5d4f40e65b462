/* SPDX-License-Identifier: Apache-2.0 */
/*
 * whole.c: checks that a folder's tensors are all of the model that its config.json describes.
 *
 * Only cases that every loader rejects are errors: fewer layers than num_hidden_layers, a tensor or
 * an expert that one layer lacks, and an embedding that is 1/n of vocab_size x hidden_size.
 * Configurations whose layers share tensors, or have none, are not checked.
 */
#include "formats/hf/whole.h"

#include <assert.h>
#include <inttypes.h>
#include <string.h>

#include "libckpt/base/dtype.h"
#include "libckpt/base/number.h"
#include "libckpt/map/gaps.h"

enum { HFW_LAYERS = 1 << 16 }; /* above any real model */

/*
 * Keys of configurations that are not checked: models with shared or missing layers, parts of
 * diffusers, and detectors, which count layers in other ways.
 */
static const char *const hfc_unlike[] = {
    "num_hidden_groups",
    "block_configs",
    "block_sizes",
    "share_repeated_layers",
    "_class_name",
    "backbone_config",
    "backbone",
    "use_timm_backbone",
    "num_block_repeats", // EfficientNet
    NULL,
};

/* A positive number of the text part, or else of the model, by the first key that has one. */
static uint64_t hfc_said(const ckpt_value *config, const char *const *keys)
{
    const ckpt_value *text = ckpt_value_get(config, "text_config");

    for (; *keys; keys++) {
        const ckpt_value *v = text ? ckpt_value_get(text, *keys) : NULL;
        int64_t n = 0;
        v = v ? v : ckpt_value_get(config, *keys);
        if (v && v->kind == CKPT_V_INT && ckpt_value_as_int(v, &n) && n > 0 && n < INT32_MAX)
            return (uint64_t)n;
    }
    return 0;
}

/* The numbered layers "<prefix>.<number>." of one prefix; the prefix with most numbers counts. */
typedef struct hfc_stack {
    const char *prefix;
    size_t n_prefix;
    uint64_t n;
    uint8_t *is; /* bit set of the numbers seen */
} hfc_stack;

CKPT_VEC(hfc_stacks, hfc_stack);

/* Find or make the stack of a prefix; NULL: out of memory. */
static hfc_stack *hfc_stack_of(hfc_stacks *all, const char *prefix, size_t n)
{
    for (size_t i = 0; i < all->n; i++) {
        if (all->at[i].n_prefix == n && memcmp(all->at[i].prefix, prefix, n) == 0)
            return &all->at[i];
    }
    hfc_stack *s = ckpt_vec_push(all);
    if (s)
        *s = (hfc_stack){.prefix = prefix, .n_prefix = n, .is = ckpt_alloc(HFW_LAYERS / 8)};
    return s && s->is ? s : NULL;
}

/* Record the first number in a name as a layer's. */
static bool hfc_note(hfc_stacks *all, const char *name)
{
    for (const char *s = strchr(name, '.'); s; s = strchr(s + 1, '.')) {
        uint64_t k = 0;
        const char *end = ckpt_scan_u64(s + 1, &k);
        if (!end || *end != '.' || k >= HFW_LAYERS)
            continue;
        hfc_stack *stack = hfc_stack_of(all, name, (size_t)(s - name));
        if (!stack)
            return false;
        stack->n += !(stack->is[k / 8] >> k % 8 & 1);
        stack->is[k / 8] |= (uint8_t)(1 << k % 8);
        return true;
    }
    return true;
}

/* A part of a model that has layers of its own, and the keys that count them. */
typedef struct hfc_part {
    const char *words[2]; /* words; the prefix of its layers has one of them */
    bool exact;           /* a word is a whole word between dots */
    const char *config;   /* key of the part's own dict in config.json, or NULL */
    const char *keys[3];
    const char *text; /* name in messages */
} hfc_part;

static const hfc_part hfc_parts[] = {
    {{"vision", "visual"}, false, "vision_config", {"num_hidden_layers", "depth"}, "vision "},
    {{"audio"}, false, "audio_config", {"num_hidden_layers", "encoder_layers"}, "audio "},
    // the decoder of speech units of SeamlessM4T
    {{"t2u_model"}, false, NULL, {"t2u_decoder_layers", "t2u_encoder_layers"}, "speech unit "},
    {{"decoder"},
     true,
     NULL,
     {"decoder_layers", "num_decoder_layers", "n_decoder_layers"},
     "decoder "},
    {{"encoder"}, true, NULL, {"encoder_layers", "num_encoder_layers"}, "encoder "},
    {{NULL}, false, NULL, {NULL}, ""}, // all other layers
};

enum { HFC_PARTS = sizeof hfc_parts / sizeof *hfc_parts };

/* Number of a part's layers in config.json; 0: the key is missing. */
static uint64_t hfc_part_said(const ckpt_value *config, const hfc_part *part)
{
    // a model that goes through the same layers again counts them in num_hidden_layers, too
    static const char *const keys[] = {"num_layers_per_stack", "num_hidden_layers", "n_layer",
                                       "num_layers",           "n_layers",          NULL};
    const ckpt_value *own = part->config ? ckpt_value_get(config, part->config) : config;
    int64_t n = 0;

    // stages of several layers each (GroupViT, Swin), which num_hidden_layers does not count
    if (part->config && ckpt_value_get(own, "depths"))
        return 0;
    if (!part->words[0])
        return hfc_said(config, keys);
    for (size_t i = 0; i < 3 && part->keys[i]; i++) {
        const ckpt_value *v = ckpt_value_get(own, part->keys[i]);
        if (v && v->kind == CKPT_V_INT && ckpt_value_as_int(v, &n) && n > 0 && n < INT32_MAX)
            return (uint64_t)n;
    }
    return 0;
}

/* True if a prefix of layers has a word of the part. */
static bool hfc_is_of(const hfc_stack *stack, const hfc_part *part)
{
    for (size_t i = 0; i < 2 && part->words[i]; i++) {
        size_t n = strlen(part->words[i]);
        for (size_t k = 0; k + n <= stack->n_prefix; k++) {
            bool begins = k == 0 || stack->prefix[k - 1] == '.';
            bool ends = k + n == stack->n_prefix || stack->prefix[k + n] == '.';
            if (memcmp(stack->prefix + k, part->words[i], n) == 0 &&
                (!part->exact || (begins && ends)))
                return true;
        }
    }
    return !part->words[0];
}

/* Keys of configurations in which some layers use the keys or values of other layers. */
static const char *const hfc_shared[] = {"num_kv_shared_layers", "attention_k_eq_v", "use_cla",
                                         NULL};

/* Read the kinds of the layers from layer_types: equal types get equal numbers. */
static int hfc_kinds(const ckpt_value *config, uint32_t **kinds, size_t *n, ckpt_err *err)
{
    const ckpt_value *types = ckpt_value_get(config, "layer_types");

    types = types ? types : ckpt_value_get(ckpt_value_get(config, "text_config"), "layer_types");
    *kinds = NULL;
    *n = 0;
    if (!types || types->kind != CKPT_V_LIST || types->as.seq.n == 0 ||
        types->as.seq.n > HFW_LAYERS / 64)
        return CKPT_OK;
    *kinds = ckpt_alloc(types->as.seq.n * sizeof **kinds);
    if (!*kinds)
        return ckpt_fail_memory(err);
    *n = types->as.seq.n;
    for (size_t i = 0; i < *n; i++) {
        uint32_t k = 0;
        while (k < i && !ckpt_value_equal(types->as.seq.at[k], types->as.seq.at[i], 16))
            k++;
        (*kinds)[i] = k;
    }
    return CKPT_OK;
}

/* Report the first gap of a stack. */
static int hfc_gap(ckpt_map *map, const ckpt_stack *stack, const char *name, ckpt_err *err)
{
    ckpt_gap gap;
    int rc = ckpt_gap_find(map, stack, &gap, err);

    if (rc != CKPT_OK || !gap.found)
        return rc;
    if (gap.there > 1)
        return ckpt_map_problem(map, CKPT_EMISSING, err,
                                "%s: %.*s.%" PRIu64 ".%s: found for %" PRIu64
                                " experts, expected %" PRIu64
                                ": a part of the model is missing; copy the whole model (%s)",
                                name, (int)stack->n_prefix, stack->prefix, gap.layer, gap.key,
                                gap.here, gap.there, ckpt_hf_as_is(map));
    return ckpt_map_problem(map, CKPT_EMISSING, err,
                            "%s: %.*s.%" PRIu64 ".%s is missing, but layer %" PRIu64
                            " has it: a part of the model is missing; copy the whole model (%s)",
                            name, (int)stack->n_prefix, stack->prefix, gap.layer, gap.key, gap.like,
                            ckpt_hf_as_is(map));
}

/* True if layers of the stack must have the same names: the model's own, of such a type. */
static bool hfc_is_uniform(const hfc_stack *stack, const ckpt_value *config)
{
    static const char model[] = "model.layers", bare[] = "layers";
    const size_t n = stack->n_prefix;

    return ((n == sizeof model - 1 && memcmp(stack->prefix, model, n) == 0) ||
            (n == sizeof bare - 1 && memcmp(stack->prefix, bare, n) == 0)) &&
           ckpt_hf_uniform(config);
}

/* Look for a gap in each stack that has all of its layers. */
static int hfc_gaps(ckpt_map *map, const hfc_stacks *all, const ckpt_value *config,
                    const char *name, ckpt_err *err)
{
    static const char *const experts[] = {"num_local_experts", "num_experts", "n_routed_experts",
                                          NULL};
    static const char *const idle[] = {"zero_expert_num", NULL};
    const hfc_part *rest = &hfc_parts[HFC_PARTS - 1];
    uint64_t said = hfc_part_said(config, rest), n_experts = hfc_said(config, experts);
    uint32_t *kinds = NULL;
    size_t n = 0;
    int rc = CKPT_OK;

    for (size_t i = 0; hfc_shared[i]; i++) {
        const ckpt_value *v = ckpt_value_get(config, hfc_shared[i]);
        int64_t number = 0;
        v = v ? v : ckpt_value_get(ckpt_value_get(config, "text_config"), hfc_shared[i]);
        if (v && ckpt_value_as_int(v, &number) && number != 0)
            return CKPT_OK;
        if (v && v->kind == CKPT_V_BOOL && v->as.i)
            return CKPT_OK;
    }
    rc = hfc_kinds(config, &kinds, &n, err);
    for (size_t i = 0; rc == CKPT_OK && said > 0 && i < all->n; i++) {
        ckpt_stack stack = {.prefix = all->at[i].prefix,
                            .n_prefix = all->at[i].n_prefix,
                            .kind = kinds,
                            .experts = n_experts,
                            .idle = hfc_said(config, idle) > 0};
        stack.uniform = hfc_is_uniform(&all->at[i], config);
        stack.n_kind =
            stack.uniform ? 0 : n; // layers with and without a window have the same names
        if (all->at[i].n >= said)
            rc = hfc_gap(map, &stack, name, err);
    }
    ckpt_free(kinds);
    return rc;
}

/* Compare the number of each part's layers with config.json. */
static int hfc_judge(ckpt_map *map, const hfc_stacks *all, const uint64_t *said, const char *name,
                     ckpt_err *err)
{
    uint64_t most[HFC_PARTS] = {0};
    int rc = CKPT_OK;

    for (size_t i = 0; i < all->n; i++) {
        size_t p = 0;
        while (p + 1 < HFC_PARTS && (said[p] == 0 || !hfc_is_of(&all->at[i], &hfc_parts[p])))
            p++;
        most[p] = all->at[i].n > most[p] ? all->at[i].n : most[p];
    }
    for (size_t p = 0; rc == CKPT_OK && p < HFC_PARTS; p++) {
        if (most[p] == 0 || most[p] >= said[p])
            continue;
        // only a warning for parts like a vision tower: some models omit a tower's last layers
        rc = hfc_parts[p].config
                 ? ckpt_map_note(map, CKPT_WARNING, err,
                                 "%s: tensors of %" PRIu64
                                 " %slayers are here, but config.json says %" PRIu64,
                                 name, most[p], hfc_parts[p].text, said[p])
                 : ckpt_map_problem(map, CKPT_EMISSING, err,
                                    "%s: tensors of %" PRIu64
                                    " %slayers are here, but config.json says %" PRIu64
                                    ": a part of the model is missing, or config.json is from "
                                    "another model (%s)",
                                    name, most[p], hfc_parts[p].text, said[p], ckpt_hf_as_is(map));
    }
    return rc;
}

static int hfc_layers(ckpt_map *map, const ckpt_value *config, const char *name, ckpt_err *err)
{
    uint64_t said[HFC_PARTS] = {0}, any = 0;
    hfc_stacks all = {0};
    bool fits = true;
    int rc = CKPT_OK;

    for (size_t i = 0; hfc_unlike[i]; i++) {
        if (ckpt_value_get(config, hfc_unlike[i]))
            return CKPT_OK;
    }
    for (size_t p = 0; p < HFC_PARTS; p++) {
        said[p] = hfc_part_said(config, &hfc_parts[p]);
        any |= said[p];
    }
    for (size_t i = 0; fits && any > 0 && i < map->tensors.n && all.n < 64; i++)
        fits = hfc_note(&all, map->tensors.at[i]->name);
    if (!fits)
        rc = ckpt_fail_memory(err);
    else if (all.n < 64)
        rc = hfc_judge(map, &all, said, name, err);
    if (rc == CKPT_OK && fits && all.n < 64)
        rc = hfc_gaps(map, &all, config, name, err);
    for (size_t i = 0; i < all.n; i++)
        ckpt_free(all.at[i].is);
    ckpt_vec_free(&all);
    return rc;
}

/* True for the prefix of a model's layers; a Sequential has gaps at its activations. */
static bool hfc_is_layers(const hfc_stack *stack)
{
    static const char *const ends[] = {"layers", "layer", "h", "blocks", "block", NULL};

    for (size_t i = 0; ends[i]; i++) {
        size_t n = strlen(ends[i]);
        if (stack->n_prefix < n)
            continue;
        const char *at = stack->prefix + stack->n_prefix - n;
        if (memcmp(at, ends[i], n) == 0 && (stack->n_prefix == n || at[-1] == '.'))
            return true;
    }
    return false;
}

/* Warn of a layer without tensors below the highest layer of a stack. */
static int hfc_hole(ckpt_map *map, const hfc_stack *stack, const char *name, ckpt_err *err)
{
    uint64_t k = 0, seen = 0;

    if (!hfc_is_layers(stack))
        return CKPT_OK;
    for (; k < HFW_LAYERS && stack->is[k / 8] >> k % 8 & 1; k++)
        seen++;
    if (seen == stack->n)
        return CKPT_OK;
    return ckpt_map_note(map, CKPT_WARNING, err,
                         "%s: no tensor of %.*s.%" PRIu64 " is here, but higher layers are: copy "
                         "the whole model, and its config.json",
                         name, (int)stack->n_prefix, stack->prefix, k);
}

int ckpt_hf_alone(ckpt_map *map, const char *name, ckpt_err *err)
{
    assert(map && name);
    hfc_stacks all = {0};
    bool fits = true;
    int rc = CKPT_OK;

    for (size_t i = 0; fits && i < map->tensors.n && all.n < 64; i++)
        fits = hfc_note(&all, map->tensors.at[i]->name);
    rc = fits ? CKPT_OK : ckpt_fail_memory(err);
    for (size_t i = 0; i < all.n; i++) {
        if (rc == CKPT_OK)
            rc = hfc_hole(map, &all.at[i], name, err);
        ckpt_free(all.at[i].is);
    }
    ckpt_vec_free(&all);
    return rc == CKPT_OK ? ckpt_map_note(map, CKPT_INFO, err,
                                         "%s: no config.json is beside it, so the number of layers "
                                         "and the sizes of the model are not checked",
                                         name)
                         : rc;
}

/*
 * The token embedding, or NULL if there is none, it is quantized, or there are several of different
 * sizes.
 */
static const ckpt_tensor *hfc_table(const ckpt_map *map)
{
    static const char *const ends[] = {"embed_tokens.weight", "wte.weight",
                                       "word_embeddings.weight", "embed_in.weight", NULL};

    const ckpt_tensor *found = NULL;

    for (size_t i = 0; i < map->tensors.n; i++) {
        const ckpt_tensor *t = map->tensors.at[i];
        size_t n = strlen(t->name);
        bool floats = ckpt_dtype_get(t->dtype)->kind == CKPT_IS_FLOAT;
        for (size_t k = 0; ends[k] && floats && t->ndim == 2; k++) {
            size_t m = strlen(ends[k]);
            if (n < m || strcmp(t->name + n - m, ends[k]) != 0 ||
                (n > m && t->name[n - m - 1] != '.'))
                continue;
            if (found && (found->shape[0] != t->shape[0] || found->shape[1] != t->shape[1]))
                return NULL;
            found = t;
        }
    }
    return found;
}

/* Check one axis of the embedding: 1/n of the expected size means one rank's slice. */
static int hfc_axis(ckpt_map *map, const ckpt_tensor *t, uint64_t said, const char *key,
                    const char *name, ckpt_err *err)
{
    uint64_t n = t->shape[strcmp(key, "vocab_size") == 0 ? 0 : 1];

    if (said == 0 || n == 0 || n >= said || said % n != 0)
        return CKPT_OK;
    return ckpt_map_problem(map, CKPT_EMISSING, err,
                            "%s: %.200s has %" PRIu64 " of %" PRIu64
                            " by %s in config.json: it is the slice of one of %" PRIu64
                            " ranks, not the whole tensor",
                            name, t->name, n, said, key, said / n);
}

/*
 * Warn if the embedding contradicts config.json, in a model of a type that ckpt_hf_plain does not
 * check. Some classes have more rows than vocab_size (Moshi, Mllama), so only fewer rows are
 * reported.
 */
static int hfc_table_size(ckpt_map *map, const ckpt_tensor *t, uint64_t rows, uint64_t columns,
                          const char *name, ckpt_err *err)
{
    const bool short_of_rows = t->shape[0] < rows;

    if (!short_of_rows && (columns == 0 || t->shape[1] == columns))
        return CKPT_OK;
    return ckpt_map_note(map, CKPT_WARNING, err,
                         "%s: %.200s has %" PRIu64 " %s, but config.json says %" PRIu64
                         " (%s): config.json may be from another model",
                         name, t->name, t->shape[!short_of_rows],
                         short_of_rows ? "rows" : "columns", short_of_rows ? rows : columns,
                         short_of_rows ? "vocab_size" : "hidden_size");
}

int ckpt_hf_whole(ckpt_map *map, const ckpt_value *config, const char *name, ckpt_err *err)
{
    assert(map && name);
    static const char *const vocab[] = {"vocab_size", NULL};
    static const char *const hidden[] = {"hidden_size", "n_embd", "d_model", NULL};
    static const char *const narrow[] = {"embedding_size",
                                         "input_embedding_size",
                                         "word_embed_proj_dim",
                                         "emb_dim",
                                         "d_embed",
                                         "embedding_dim",
                                         NULL};
    const ckpt_tensor *t = hfc_table(map);
    const size_t n_findings = map->findings.n;
    int rc = hfc_layers(map, config, name, err);

    if (rc == CKPT_OK && t)
        rc = hfc_axis(map, t, hfc_said(config, vocab), "vocab_size", name, err);
    if (rc == CKPT_OK && t && hfc_said(config, narrow) == 0)
        rc = hfc_axis(map, t, hfc_said(config, hidden), "hidden_size", name, err);
    if (rc == CKPT_OK && t && map->findings.n == n_findings && !ckpt_hf_is_plain(config))
        rc = hfc_table_size(map, t, hfc_said(config, vocab),
                            hfc_said(config, narrow) ? 0 : hfc_said(config, hidden), name, err);
    // a part of a model contradicts its config.json, too: that is no second finding
    if (rc == CKPT_OK && map->findings.n == n_findings)
        rc = ckpt_hf_plain(map, config, name, err);
    if (rc == CKPT_OK && map->findings.n == n_findings)
        rc = ckpt_hf_type(map, config, name, err);
    if (rc == CKPT_OK && map->findings.n == n_findings)
        rc = ckpt_hf_quant_parts(map, config, name, err);
    if (rc == CKPT_OK)
        rc = ckpt_hf_mlx(map, config, name, err);
    return rc;
}

/* Warn of the first tensor that a layer lacks, in a model without a configuration. */
static int hfc_gaps_alone(ckpt_map *to, const char *name, ckpt_err *err)
{
    hfc_stacks all = {0};
    bool fits = true;
    int rc = CKPT_OK;

    for (size_t i = 0; fits && i < to->tensors.n && all.n < 64; i++)
        fits = hfc_note(&all, to->tensors.at[i]->name);
    rc = fits ? CKPT_OK : ckpt_fail_memory(err);
    for (size_t i = 0; i < all.n; i++) {
        ckpt_stack stack = {.prefix = all.at[i].prefix, .n_prefix = all.at[i].n_prefix};
        ckpt_gap gap = {.found = false};
        if (rc == CKPT_OK && all.n < 64 && hfc_is_layers(&all.at[i]))
            rc = ckpt_gap_find(to, &stack, &gap, err);
        if (rc == CKPT_OK && gap.found)
            rc = ckpt_map_note(to, CKPT_WARNING, err,
                               "%s: %.*s.%" PRIu64 ".%s is missing, but other layers have it: "
                               "give the model's config.json with --config to have this checked",
                               name, (int)stack.n_prefix, stack.prefix, gap.layer, gap.key);
        ckpt_free(all.at[i].is);
    }
    ckpt_vec_free(&all);
    return rc;
}

int ckpt_hf_written(ckpt_map *to, const ckpt_value *config, const char *name, ckpt_err *err)
{
    assert(to && name);
    const size_t n_findings = to->findings.n;
    int rc;

    rc = config ? ckpt_hf_whole(to, config, name, err) : CKPT_OK;
    to->findings.n = n_findings; // readers of the source and of the output give its warnings
    // without the number of layers, only gaps between the layers that are here can be found
    if (rc == CKPT_OK && (!config || hfc_part_said(config, &hfc_parts[HFC_PARTS - 1]) == 0))
        rc = hfc_gaps_alone(to, name, err);
    return rc;
}
