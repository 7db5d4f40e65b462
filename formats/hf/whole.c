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

#include "formats/hf/layer_names.h"
#include "formats/hf/stacks.h"
#include "libckpt/base/dtype.h"
#include "libckpt/base/number.h"
#include "libckpt/map/gaps.h"

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

/* Layers of multi-token prediction (MTP). They are a stack of their own, numbered from 0. */
static const hfc_part hfc_draft = {{"mtp"}, true, NULL, {NULL}, ""};

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
static bool hfc_is_of(const ckpt_hf_stack *stack, const hfc_part *part)
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

static bool hfc_shares(const ckpt_value *config)
{
    for (size_t i = 0; hfc_shared[i]; i++) {
        const ckpt_value *v = ckpt_value_get(config, hfc_shared[i]);
        int64_t number = 0;
        v = v ? v : ckpt_value_get(ckpt_value_get(config, "text_config"), hfc_shared[i]);
        if ((v && ckpt_value_as_int(v, &number) && number != 0) ||
            (v && v->kind == CKPT_V_BOOL && v->as.i))
            return true;
    }
    return false;
}

/* Give each of `said` layers a kind: 1 if it is a period-th one, with full attention, else 0. */
static int hfc_period(uint32_t **kinds, size_t *n, uint64_t said, int64_t period, ckpt_err *err)
{
    *n = period > 0 && said <= CKPT_HF_LAYERS / 64 ? (size_t)said : 0;
    *kinds = *n > 0 ? ckpt_alloc(*n * sizeof **kinds) : NULL;
    if (*n > 0 && !*kinds)
        return ckpt_fail_memory(err);
    for (size_t i = 0; i < *n; i++)
        (*kinds)[i] = (i + 1) % (uint64_t)period == 0;
    return CKPT_OK;
}

/* The types of the layers, of the model or of its text part; NULL: none. */
static const ckpt_value *hfc_layer_types(const ckpt_value *config)
{
    const ckpt_value *types = ckpt_value_get(config, "layer_types");

    return types ? types : ckpt_value_get(ckpt_value_get(config, "text_config"), "layer_types");
}

/* Read the kinds of the layers from layer_types: equal types get equal numbers. */
static int hfc_kinds(const ckpt_value *config, uint32_t **kinds, size_t *n, ckpt_err *err)
{
    const ckpt_value *types = hfc_layer_types(config);

    *kinds = NULL;
    *n = 0;
    if (!types || types->kind != CKPT_V_LIST || types->as.seq.n == 0 ||
        types->as.seq.n > CKPT_HF_LAYERS / 64)
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

/*
 * The names that each of `said` layers has, as ckpt_stack.needed; NULL: the layers of a kind may
 * have different ones.
 */
static int hfc_needed(const char ***out, const ckpt_map *map, const ckpt_value *config,
                      uint64_t said, ckpt_err *err)
{
    static const char draft[] = "fc.weight"; // a draft head of EAGLE lacks norms of its type
    const ckpt_value *types = hfc_layer_types(config);
    int64_t period = 0;

    *out = NULL;
    if (!ckpt_hf_uniform_kinds(config, &period) || said > CKPT_HF_LAYERS / 64 ||
        ckpt_map_index(map, draft, sizeof draft - 1) != SIZE_MAX)
        return CKPT_OK;
    *out = ckpt_alloc(said * sizeof **out);
    if (!*out)
        return ckpt_fail_memory(err);
    for (uint64_t i = 0; i < said; i++) {
        const bool listed = types && types->kind == CKPT_V_LIST && i < types->as.seq.n;
        const bool known = listed || period > 0;
        const bool full = listed ? ckpt_value_is(types->as.seq.at[i], "full_attention")
                                 : known && (i + 1) % (uint64_t)period == 0;
        (*out)[i] = known ? ckpt_hf_kind_names(config, full) : NULL;
    }
    return CKPT_OK;
}

/* Report the first gap of a stack; type: the model's. */
static int hfc_gap(ckpt_map *map, const ckpt_stack *stack, const char *type, const char *name,
                   ckpt_err *err)
{
    const bool kinds = stack->uniform && stack->n_kind > 0;
    ckpt_gap gap;
    int rc = ckpt_gap_find(map, stack, &gap, err);

    if (rc != CKPT_OK || !gap.found)
        return rc;
    if (gap.alone)
        return ckpt_map_problem(map, CKPT_EMISSING, err,
                                "%s: %.*s.%" PRIu64 ".%s is missing, but models of type %.60s have "
                                "it in such a layer: a part of the model is missing%s; copy the "
                                "whole model (%s)",
                                name, (int)stack->n_prefix, stack->prefix, gap.layer, gap.key, type,
                                kinds ? ", or config.json has wrong types of layers" : "",
                                ckpt_hf_as_is(map));
    if (gap.there > 1)
        return ckpt_map_problem(map, CKPT_EMISSING, err,
                                "%s: %.*s.%" PRIu64 ".%s: found for %" PRIu64
                                " experts, expected %" PRIu64
                                ": a part of the model is missing; copy the whole model (%s)",
                                name, (int)stack->n_prefix, stack->prefix, gap.layer, gap.key,
                                gap.here, gap.there, ckpt_hf_as_is(map));
    return ckpt_map_problem(map, CKPT_EMISSING, err,
                            "%s: %.*s.%" PRIu64 ".%s is missing, but layer %" PRIu64
                            " %shas it: a part of the model is missing%s; copy the whole model "
                            "(%s)",
                            name, (int)stack->n_prefix, stack->prefix, gap.layer, gap.key, gap.like,
                            kinds ? "of the same type " : "",
                            kinds ? ", or config.json has wrong types of layers" : "",
                            ckpt_hf_as_is(map));
}

/* Look for a gap in each stack that has all of its layers. */
static int hfc_gaps(ckpt_map *map, const ckpt_hf_stack_vec *all, const ckpt_value *config,
                    const char *name, ckpt_err *err)
{
    static const char *const experts[] = {"num_local_experts", "num_experts", "n_routed_experts",
                                          NULL};
    static const char *const idle[] = {"zero_expert_num", NULL};
    const hfc_part *rest = &hfc_parts[HFC_PARTS - 1];
    uint64_t said = hfc_part_said(config, rest), n_experts = hfc_said(config, experts);
    const bool uniform = ckpt_hf_uniform(config);
    int64_t period = 0;
    const bool by_kind = ckpt_hf_uniform_kinds(config, &period);
    uint32_t *kinds = NULL;
    const char *type = "", **needed = NULL;
    bool part;
    (void)ckpt_hf_layer_row(config, &type, &part);
    size_t n = 0;
    int rc = CKPT_OK;

    if (hfc_shares(config))
        return CKPT_OK;
    rc = hfc_kinds(config, &kinds, &n, err);
    if (rc == CKPT_OK && !kinds && by_kind)
        rc = hfc_period(&kinds, &n, said, period, err);
    if (rc == CKPT_OK)
        rc = hfc_needed(&needed, map, config, said, err);
    for (size_t i = 0; rc == CKPT_OK && said > 0 && i < all->n; i++) {
        const ckpt_hf_stack *s = &all->at[i];
        ckpt_stack stack = {.prefix = s->prefix,
                            .n_prefix = s->n_prefix,
                            .names = s->names,
                            .n_names = s->n_names,
                            .kind = kinds,
                            .experts = n_experts,
                            .uniform =
                                (uniform || (by_kind && n > 0)) && ckpt_hf_stack_is_layers(s),
                            .idle = hfc_said(config, idle) > 0};
        if (ckpt_hf_stack_is_layers(s) && !hfc_is_of(s, &hfc_draft)) {
            stack.needed = needed;
            stack.n_needed = needed ? said : 0;
        }
        // layers with and without a window have the same names
        stack.n_kind = uniform && stack.uniform ? 0 : n;
        if (s->n >= said)
            rc = hfc_gap(map, &stack, type, name, err);
    }
    ckpt_free(needed);
    ckpt_free(kinds);
    return rc;
}

/* Report that a part has n layers, and not as many as config.json says. */
static int hfc_few(ckpt_map *map, const hfc_part *part, uint64_t n, uint64_t said, const char *name,
                   ckpt_err *err)
{
    // only a warning for parts like a vision tower: some models omit a tower's last layers
    if (part->config)
        return ckpt_map_note(map, CKPT_WARNING, err,
                             "%s: tensors of %" PRIu64
                             " %slayers are here, but config.json says %" PRIu64,
                             name, n, part->text, said);
    return ckpt_map_problem(map, CKPT_EMISSING, err,
                            "%s: tensors of %" PRIu64
                            " %slayers are here, but config.json says %" PRIu64
                            ": a part of the model is missing, or config.json is from "
                            "another model (%s)",
                            name, n, part->text, said, ckpt_hf_as_is(map));
}

/*
 * Report that layers have higher numbers than config.json says, and no lower ones: layers that
 * predict more tokens come after the last one, and do not replace it.
 */
static int hfc_shifted(ckpt_map *map, const ckpt_hf_stack *stack, uint64_t said, const char *name,
                       ckpt_err *err)
{
    return ckpt_map_problem(
        map, CKPT_EMISSING, err,
        "%s: no tensor of %.*s.%" PRIu64 " is here, but config.json says %" PRIu64
        " layers: a part of the model is missing, or config.json is from "
        "another model (%s)",
        name, (int)stack->n_prefix, stack->prefix, stack->hole, said, ckpt_hf_as_is(map));
}

/* Compare the layers of each part with config.json. */
static int hfc_judge(ckpt_map *map, const ckpt_hf_stack_vec *all, const uint64_t *said,
                     const char *name, ckpt_err *err)
{
    const ckpt_hf_stack *most[HFC_PARTS] = {NULL};
    bool whole[HFC_PARTS] = {false};
    int rc = CKPT_OK;

    for (size_t i = 0; i < all->n; i++) {
        const ckpt_hf_stack *s = &all->at[i];
        size_t p = 0;
        while (p + 1 < HFC_PARTS && (said[p] == 0 || !hfc_is_of(s, &hfc_parts[p])))
            p++;
        most[p] = !most[p] || s->n > most[p]->n ? s : most[p];
        whole[p] = whole[p] || s->hole >= said[p];
    }
    for (size_t p = 0; rc == CKPT_OK && p < HFC_PARTS; p++) {
        const ckpt_hf_stack *s = most[p];
        if (s && s->n < said[p])
            rc = hfc_few(map, &hfc_parts[p], s->n, said[p], name, err);
        else if (s && !whole[p] && !hfc_parts[p].config && ckpt_hf_stack_is_layers(s))
            rc = hfc_shifted(map, s, said[p], name, err);
    }
    return rc;
}

int ckpt_hf_check_layers(ckpt_map *map, const ckpt_value *config, const char *name, ckpt_err *err)
{
    uint64_t said[HFC_PARTS] = {0}, any = 0;
    ckpt_hf_stacks all = {0};
    int rc = CKPT_OK;

    for (size_t i = 0; hfc_unlike[i]; i++) {
        if (ckpt_value_get(config, hfc_unlike[i]))
            return CKPT_OK;
    }
    for (size_t p = 0; p < HFC_PARTS; p++) {
        said[p] = hfc_part_said(config, &hfc_parts[p]);
        any |= said[p];
    }
    if (any == 0)
        return CKPT_OK;
    rc = ckpt_hf_stacks_find(&all, map, err);
    if (rc == CKPT_OK)
        rc = hfc_judge(map, &all.stack, said, name, err);
    if (rc == CKPT_OK)
        rc = hfc_gaps(map, &all.stack, config, name, err);
    ckpt_hf_stacks_free(&all);
    return rc;
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

/* Report a model with an embedding and without any layer. */
static int hfc_bare(ckpt_map *map, const ckpt_value *config, const ckpt_tensor *table,
                    const char *name, ckpt_err *err)
{
    const hfc_part *rest = &hfc_parts[HFC_PARTS - 1];
    const uint64_t said = hfc_part_said(config, rest);
    ckpt_hf_stacks all = {0};
    int rc;

    if (said == 0 || !table || !ckpt_hf_uniform(config))
        return CKPT_OK;
    rc = ckpt_hf_stacks_find(&all, map, err);
    if (rc == CKPT_OK && all.stack.n == 0)
        rc = hfc_few(map, rest, 0, said, name, err);
    ckpt_hf_stacks_free(&all);
    return rc;
}

/* Warn of a list of the layers' types that has another length than the layers. */
static int hfc_types(ckpt_map *map, const ckpt_value *config, ckpt_err *err)
{
    static const char *const keys[] = {"num_hidden_layers", NULL};
    const uint64_t said = hfc_said(config, keys);
    const ckpt_value *types = hfc_layer_types(config);

    if (said == 0 || !types || types->kind != CKPT_V_LIST || types->as.seq.n == said)
        return CKPT_OK;
    return ckpt_map_note(map, CKPT_WARNING, err,
                         "config.json: layer_types has %" PRIu64
                         " entries, but num_hidden_layers is %" PRIu64
                         ": transformers refuses to load the model; correct one of them",
                         types->as.seq.n, said);
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
    int rc = ckpt_hf_numbers(map, config, err);

    if (rc == CKPT_OK && map->findings.n == n_findings)
        rc = ckpt_hf_check_layers(map, config, name, err);
    if (rc == CKPT_OK)
        rc = hfc_bare(map, config, t, name, err);
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
    if (rc == CKPT_OK)
        rc = hfc_types(map, config, err);
    return rc;
}

bool ckpt_hf_counts_layers(const ckpt_value *config)
{
    return config && hfc_part_said(config, &hfc_parts[HFC_PARTS - 1]) > 0;
}
