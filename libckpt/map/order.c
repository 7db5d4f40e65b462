/* SPDX-License-Identifier: Apache-2.0 */
/*
 * order.c: knows the order in which models of known architectures give their parameters to an
 * optimizer.
 *
 * named_parameters() walks modules in the order of their registration, a module's own parameters
 * before its children, weight before bias. Files with sorted tensors lose that order; the table
 * below restores it for its models. Checked against transformers 5.23, for models with and without
 * heads.
 */
#include <stdlib.h>
#include <string.h>

#include "libckpt/base/number.h"
#include "libckpt/map/map.h"
#include "libckpt/map/order.h"

/*
 * modules lists modules in order, separated by blanks; each stands for its weight, its bias, or
 * itself. A module that ends in '#' begins a block of layers: the following ones that begin with
 * '.' belong to it and repeat for each layer. ties: names that share another's bytes when the file
 * lacks them.
 */
typedef struct fo_arch {
    const char *types; /* model_type of config.json, separated by blanks */
    const char *base;  /* prefix of all names but the head's in models with a head */
    const char *modules;
    const char *ties; /* "alias=owner" pairs; owners are names under `base` */
} fo_arch;

static const fo_arch fo_archs[] = {
    {.types = "llama mistral qwen2 qwen3 olmo2 gemma gemma2 gemma3_text",
     .base = "model.",
     .modules = "embed_tokens layers.# .self_attn.q_proj .self_attn.k_proj .self_attn.v_proj "
                ".self_attn.o_proj .self_attn.q_norm .self_attn.k_norm .mlp.gate_proj "
                ".mlp.up_proj .mlp.down_proj .input_layernorm .post_attention_layernorm "
                ".pre_feedforward_layernorm .post_feedforward_layernorm norm lm_head score",
     .ties = "lm_head.weight=embed_tokens.weight"},
    {.types = "gpt2",
     .base = "transformer.",
     .modules = "wte wpe h.# .ln_1 .attn.c_attn .attn.c_proj .ln_2 .mlp.c_fc .mlp.c_proj ln_f "
                "lm_head score qa_outputs",
     .ties = "lm_head.weight=wte.weight"},
    {.types = "bert",
     .base = "bert.",
     .modules = "embeddings.word_embeddings embeddings.position_embeddings "
                "embeddings.token_type_embeddings embeddings.LayerNorm encoder.layer.# "
                ".attention.self.query .attention.self.key .attention.self.value "
                ".attention.output.dense .attention.output.LayerNorm .intermediate.dense "
                ".output.dense .output.LayerNorm pooler.dense cls.predictions "
                "cls.predictions.transform.dense cls.predictions.transform.LayerNorm "
                "cls.predictions.decoder cls.seq_relationship classifier qa_outputs",
     .ties = "cls.predictions.decoder.weight=embeddings.word_embeddings.weight "
             "cls.predictions.decoder.bias=cls.predictions.bias"},
    {.types = "roberta",
     .base = "roberta.",
     .modules = "embeddings.word_embeddings embeddings.token_type_embeddings embeddings.LayerNorm "
                "embeddings.position_embeddings encoder.layer.# .attention.self.query "
                ".attention.self.key .attention.self.value .attention.output.dense "
                ".attention.output.LayerNorm .intermediate.dense .output.dense .output.LayerNorm "
                "pooler.dense lm_head lm_head.dense lm_head.layer_norm lm_head.decoder "
                "classifier.dense classifier.out_proj qa_outputs",
     .ties = "lm_head.decoder.weight=embeddings.word_embeddings.weight "
             "lm_head.decoder.bias=lm_head.bias"},
    {.types = "distilbert",
     .base = "distilbert.",
     .modules = "embeddings.word_embeddings embeddings.position_embeddings embeddings.LayerNorm "
                "transformer.layer.# .attention.q_lin .attention.k_lin .attention.v_lin "
                ".attention.out_lin .sa_layer_norm .ffn.lin1 .ffn.lin2 .output_layer_norm "
                "vocab_transform vocab_layer_norm vocab_projector pre_classifier classifier "
                "qa_outputs",
     .ties = "vocab_projector.weight=embeddings.word_embeddings.weight"},
    {.types = "opt",
     .base = "model.",
     .modules = "decoder.embed_tokens decoder.embed_positions decoder.project_out "
                "decoder.project_in decoder.final_layer_norm decoder.layers.# .self_attn.k_proj "
                ".self_attn.v_proj .self_attn.q_proj .self_attn.out_proj .self_attn_layer_norm "
                ".fc1 .fc2 .final_layer_norm lm_head score",
     .ties = "lm_head.weight=decoder.embed_tokens.weight"},
    {.types = "gpt_neox",
     .base = "gpt_neox.",
     .modules = "embed_in layers.# .input_layernorm .post_attention_layernorm "
                ".attention.query_key_value .attention.dense .mlp.dense_h_to_4h "
                ".mlp.dense_4h_to_h final_layer_norm embed_out lm_head",
     .ties = ""},
    {.types = "gpt_neo",
     .base = "transformer.",
     .modules = "wte wpe h.# .ln_1 .attn.attention.k_proj .attn.attention.v_proj "
                ".attn.attention.q_proj .attn.attention.out_proj .ln_2 .mlp.c_fc .mlp.c_proj ln_f "
                "lm_head",
     .ties = "lm_head.weight=wte.weight"},
    {.types = "gptj",
     .base = "transformer.",
     .modules = "wte h.# .ln_1 .attn.k_proj .attn.v_proj .attn.q_proj .attn.out_proj .mlp.fc_in "
                ".mlp.fc_out ln_f lm_head",
     .ties = ""},
    {.types = "phi",
     .base = "model.",
     .modules = "embed_tokens layers.# .self_attn.q_proj .self_attn.k_proj .self_attn.v_proj "
                ".self_attn.dense .mlp.fc1 .mlp.fc2 .input_layernorm final_layernorm lm_head score",
     .ties = ""},
    {.types = "phi3",
     .base = "model.",
     .modules = "embed_tokens layers.# .self_attn.o_proj .self_attn.qkv_proj .mlp.gate_up_proj "
                ".mlp.down_proj .input_layernorm .post_attention_layernorm norm lm_head score",
     .ties = ""},
    {.types = "bloom",
     .base = "transformer.",
     .modules = "word_embeddings word_embeddings_layernorm h.# .input_layernorm "
                ".self_attention.query_key_value .self_attention.dense .post_attention_layernorm "
                ".mlp.dense_h_to_4h .mlp.dense_4h_to_h ln_f lm_head score",
     .ties = "lm_head.weight=word_embeddings.weight"},
};

/* The position of a parameter; compared member by member. */
typedef struct fo_place {
    uint64_t block; /* index of the module, or of the module that begins its block of layers */
    uint64_t layer;
    uint64_t module;
    uint64_t part; /* kind of parameter: 0 the module's own, 1 weight, 2 bias */
    ckpt_tensor *tensor;
} fo_place;

CKPT_VEC(fo_places, fo_place);

/* ---- words ---- */

/* The next word of a list separated by blanks; false at its end. */
static bool fo_word(const char **at, const char **word, size_t *n)
{
    *word = *at + strspn(*at, " ");
    *n = strcspn(*word, " ");
    *at = *word + *n;
    return *n > 0;
}

static bool fo_ends(const char *text, const char *end)
{
    size_t n = strlen(text), m = strlen(end);

    return n >= m && strcmp(text + n - m, end) == 0;
}

/* ---- possible parameters ---- */

/* True if the map has the name with its last part, after n bytes, replaced. */
static bool fo_beside(const ckpt_map *map, const char *name, size_t n, const char *last)
{
    char full[512];
    size_t m = strlen(last);

    if (n + m >= sizeof full)
        return false;
    memcpy(full, name, n);
    memcpy(full + n, last, m + 1);
    return ckpt_map_index(map, full, n + m) != SIZE_MAX;
}

/* True for buffers of well-known modules that are floating tensors. */
static bool fo_buffer(const ckpt_map *map, const ckpt_tensor *t)
{
    const char *dot = strrchr(t->name, '.'), *last = dot ? dot + 1 : t->name;

    // rotary embeddings, and the mask constants of older attention modules
    if (strcmp(last, "inv_freq") == 0 || strcmp(last, "masked_bias") == 0)
        return true;
    if (t->ndim == 4 && fo_ends(t->name, ".attn.bias"))
        return true;
    // batch norms also have a counter beside their statistics
    return (strcmp(last, "running_mean") == 0 || strcmp(last, "running_var") == 0) &&
           fo_beside(map, t->name, (size_t)(last - t->name), "num_batches_tracked");
}

bool ckpt_order_trains(const ckpt_map *map, const ckpt_tensor *t)
{
    bool wide = t->dtype == CKPT_F64 || t->dtype == CKPT_F32 || t->dtype == CKPT_F16 ||
                t->dtype == CKPT_BF16;

    return wide && !t->owner && t->n_elems > 0 && t->role != CKPT_ROLE_STATE &&
           t->role != CKPT_ROLE_BUFFER && !fo_buffer(map, t);
}

/* ---- placing names ---- */

/*
 * The rest of s after a piece of a pattern, or NULL; '#' stands for a number without leading zeros.
 */
static const char *fo_eat(const char *s, const char *pattern, size_t n, uint64_t *layer)
{
    for (size_t i = 0; i < n; i++) {
        if (pattern[i] != '#') {
            if (*s++ != pattern[i])
                return NULL;
            continue;
        }
        const char *end = ckpt_scan_u64(s, layer);
        if (!end || end - s > 9 || (*s == '0' && end - s > 1))
            return NULL;
        s = end;
    }
    return s;
}

/* The kind of parameter in its module; false when the rest of its name is not one of them. */
static bool fo_part(const char *rest, uint64_t *part)
{
    *part = strcmp(rest, ".weight") == 0 ? 1 : strcmp(rest, ".bias") == 0 ? 2 : 0;
    return *part != 0 || *rest == 0;
}

/*
 * Find the position of a name, without base, among the modules.
 *
 * loose    accept anything inside a module: scales, adapters, wrappers of its weight
 */
static bool fo_find(fo_place *out, const char *modules, const char *name, bool loose)
{
    const char *word, *rest, *layers = "";
    size_t n, n_layers = 0;

    out->block = out->module = 0;
    while (fo_word(&modules, &word, &n)) {
        out->module++;
        if (word[n - 1] == '#') {
            out->block = out->module;
            layers = word;
            n_layers = n;
            continue;
        }
        out->layer = 0;
        if (word[0] != '.')
            out->block = out->module;
        rest = word[0] == '.' ? fo_eat(name, layers, n_layers, &out->layer) : name;
        rest = rest ? fo_eat(rest, word, n, &out->layer) : NULL;
        if (rest && (fo_part(rest, &out->part) || (loose && *rest == '.')))
            return true;
    }
    return false;
}

/* A name without the base, which models without a head do not have. */
static const char *fo_bare(const fo_arch *arch, const char *name)
{
    size_t n = strlen(arch->base);

    return strncmp(name, arch->base, n) == 0 ? name + n : name;
}

/* qsort: ascending, member by member. */
static int fo_compare(const void *pa, const void *pb)
{
    const fo_place *a = pa, *b = pb;

    if (a->block != b->block)
        return a->block < b->block ? -1 : 1;
    if (a->layer != b->layer)
        return a->layer < b->layer ? -1 : 1;
    if (a->module != b->module)
        return a->module < b->module ? -1 : 1;
    return a->part < b->part ? -1 : a->part > b->part;
}

/* The architecture of a model_type, or NULL. */
static const fo_arch *fo_arch_named(const char *type)
{
    for (size_t i = 0; type && i < sizeof fo_archs / sizeof *fo_archs; i++) {
        const char *types = fo_archs[i].types, *word;
        size_t n;
        while (fo_word(&types, &word, &n)) {
            if (strlen(type) == n && strncmp(type, word, n) == 0)
                return &fo_archs[i];
        }
    }
    return NULL;
}

/* The architecture of the model_type in a map's config.json, or NULL. */
static const fo_arch *fo_arch_of(const ckpt_map *map)
{
    return fo_arch_named(map->known.model_type);
}

/* ---- how well names fit ---- */

bool ckpt_order_has(const char *type)
{
    return fo_arch_named(type) != NULL;
}

size_t ckpt_order_fit(const char *type, const char *const *name, size_t n, size_t skip)
{
    const fo_arch *only = fo_arch_named(type);
    size_t best = 0;

    for (size_t a = 0; a < sizeof fo_archs / sizeof *fo_archs; a++) {
        const fo_arch *arch = &fo_archs[a];
        size_t fit = 0;
        if (only && arch != only)
            continue;
        for (size_t i = 0; i < n; i++) {
            fo_place place;
            fit += fo_find(&place, arch->modules, fo_bare(arch, name[i] + skip), true);
        }
        best = fit > best ? fit : best;
    }
    return best;
}

/* ---- tied names ---- */

/*
 * Index of a name in the map, as it is or after the architecture's base; SIZE_MAX if it is absent.
 */
static size_t fo_index(const ckpt_map *map, const fo_arch *arch, const char *name, size_t n)
{
    size_t n_base = strlen(arch->base), at = ckpt_map_index(map, name, n);
    char full[256];

    if (at != SIZE_MAX || n_base + n >= sizeof full)
        return at;
    memcpy(full, arch->base, n_base);
    memcpy(full + n_base, name, n);
    return ckpt_map_index(map, full, n_base + n);
}

/* Add the alias of one "alias=owner", if the file has only the owner. */
static int fo_tie(ckpt_map *map, const fo_arch *arch, const char *word, size_t n, ckpt_err *err)
{
    size_t n_alias = strcspn(word, "="), n_owner = n - n_alias - 1;
    size_t owner = fo_index(map, arch, word + n_alias + 1, n_owner);
    ckpt_tensor *made = NULL;

    if (owner == SIZE_MAX || ckpt_map_index(map, word, n_alias) != SIZE_MAX)
        return CKPT_OK;
    const ckpt_tensor *to = map->tensors.at[owner];
    to = to->owner ? to->owner : to;
    ckpt_tensor like = {.dtype = to->dtype,
                        .export_dtype = to->export_dtype,
                        .ndim = to->ndim,
                        .shape = to->shape,
                        .role = to->role,
                        .flags = to->flags,
                        .owner = to};
    int rc = ckpt_map_add(map, word, n_alias, &like, &made, err);
    return rc == CKPT_OK ? ckpt_map_note(map, CKPT_INFO, err, "%s is tied to %s, as in this model",
                                         made->name, to->name)
                         : rc;
}

int ckpt_order_ties(ckpt_map *map, ckpt_err *err)
{
    const char *model = map->known.architecture, *word;
    const fo_arch *arch = fo_arch_of(map);
    const char *ties = arch ? arch->ties : "";
    int rc = CKPT_OK;
    size_t n;

    // only a language head is ever tied, and a file that lacks its weight ties it
    if (!model || !(fo_ends(model, "ForCausalLM") || fo_ends(model, "LMHeadModel") ||
                    fo_ends(model, "ForMaskedLM") || fo_ends(model, "ForPreTraining")))
        return CKPT_OK;
    while (rc == CKPT_OK && fo_word(&ties, &word, &n))
        rc = fo_tie(map, arch, word, n, err);
    return rc;
}

const ckpt_tensor *ckpt_order_table(const ckpt_map *map, const char *name)
{
    const size_t n_name = strlen(name);

    for (size_t i = 0; i < sizeof fo_archs / sizeof *fo_archs; i++) {
        const char *ties = fo_archs[i].ties, *word;
        size_t n, at = SIZE_MAX;

        while (at == SIZE_MAX && fo_word(&ties, &word, &n)) {
            if (strcspn(word, "=") == n_name && memcmp(word, name, n_name) == 0)
                at = fo_index(map, &fo_archs[i], word + n_name + 1, n - n_name - 1);
        }
        if (at != SIZE_MAX)
            return map->tensors.at[at];
    }
    return NULL;
}

/* ---- the order ---- */

/* Parameters of a model. */
typedef struct fo_list {
    ckpt_tensor *const *at;
    size_t n, cut; /* cut: bytes before each name that do not belong to the model */
} fo_list;

/*
 * Sort a list of parameters by position; *odd is one without a position, or one of two with the
 * same.
 */
static int fo_places_of(fo_places *places, const fo_list *list, const fo_arch *arch,
                        const ckpt_tensor **odd, ckpt_err *err)
{
    for (size_t i = 0; i < list->n && !*odd; i++) {
        fo_place *p = ckpt_vec_push(places);
        if (!p)
            return ckpt_fail_memory(err);
        p->tensor = list->at[i];
        if (!fo_find(p, arch->modules, fo_bare(arch, list->at[i]->name + list->cut), false))
            *odd = list->at[i];
    }
    if (places->n && !*odd)
        qsort(places->at, places->n, sizeof *places->at, fo_compare);
    for (size_t i = 1; i < places->n && !*odd; i++) {
        if (fo_compare(&places->at[i - 1], &places->at[i]) == 0)
            *odd = places->at[i].tensor;
    }
    return CKPT_OK;
}

/* Sort a list by one architecture, if all names belong to it. */
static int fo_named_as(fo_places *places, ckpt_tensor *const *list, size_t n, const fo_arch *arch,
                       const ckpt_tensor **odd, ckpt_err *err)
{
    size_t prefix = ckpt_order_prefix(list, n);
    int rc = CKPT_OK;

    *odd = NULL;
    for (int i = 0; rc == CKPT_OK && i < (prefix ? 2 : 1) && (i == 0 || *odd); i++) {
        const fo_list names = {list, n, i ? prefix : 0};
        *odd = NULL;
        places->n = 0;
        rc = fo_places_of(places, &names, arch, odd, err);
    }
    return rc;
}

static bool fo_agree(const fo_places *a, const fo_places *b)
{
    for (size_t i = 0; i < a->n; i++) {
        if (a->at[i].tensor != b->at[i].tensor)
            return false;
    }
    return true;
}

/*
 * Sort by the architecture in config.json. Without one, use every known architecture with these
 * names, if all of them give the same order.
 */
static int fo_agreed(fo_places *best, const ckpt_map *map, ckpt_tensor *const *list, size_t n,
                     bool *known, ckpt_err *err)
{
    const fo_arch *only = fo_arch_of(map);
    fo_places one = {0};
    bool agreed = !map->known.model_type || only;
    int rc = CKPT_OK;

    *known = false;
    for (size_t i = 0; rc == CKPT_OK && agreed && i < sizeof fo_archs / sizeof *fo_archs; i++) {
        const ckpt_tensor *odd;
        if (only && only != &fo_archs[i])
            continue;
        rc = fo_named_as(*known ? &one : best, list, n, &fo_archs[i], &odd, err);
        if (rc != CKPT_OK || odd)
            continue;
        agreed = !*known || fo_agree(&one, best);
        *known = true;
    }
    ckpt_vec_free(&one);
    *known = *known && agreed;
    return rc;
}

int ckpt_order_named(const ckpt_map *map, ckpt_tensor **list, size_t n, bool *known, ckpt_err *err)
{
    fo_places best = {0};
    int rc = CKPT_OK;

    *known = false;
    if (n > 0)
        rc = fo_agreed(&best, map, list, n, known, err);
    for (size_t i = 0; rc == CKPT_OK && *known && i < n; i++)
        list[i] = best.at[i].tensor;
    ckpt_vec_free(&best);
    return rc;
}

int ckpt_order_known(ckpt_tensors *out, const ckpt_map *map, bool *known, const ckpt_tensor **odd,
                     ckpt_err *err)
{
    const fo_arch *arch = fo_arch_of(map);
    fo_places places = {0};

    *known = false;
    *odd = NULL;
    if (!arch)
        return CKPT_OK;
    ckpt_tensors trained = {0};
    int rc = CKPT_OK;
    for (size_t i = 0; rc == CKPT_OK && i < map->tensors.n; i++) {
        ckpt_tensor **slot =
            ckpt_order_trains(map, map->tensors.at[i]) ? ckpt_vec_push(&trained) : NULL;
        if (slot)
            *slot = map->tensors.at[i];
        else if (ckpt_order_trains(map, map->tensors.at[i]))
            rc = ckpt_fail_memory(err);
    }
    const fo_list list = {trained.at, trained.n, 0};
    if (rc == CKPT_OK)
        rc = fo_places_of(&places, &list, arch, odd, err);
    ckpt_vec_free(&trained);
    for (size_t i = 0; rc == CKPT_OK && !*odd && i < places.n; i++) {
        ckpt_tensor **slot = ckpt_vec_push(out);
        rc = slot ? CKPT_OK : ckpt_fail_memory(err);
        if (slot)
            *slot = places.at[i].tensor;
    }
    *known = rc == CKPT_OK && !*odd && places.n > 0;
    ckpt_vec_free(&places);
    return rc;
}
