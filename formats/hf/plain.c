/* SPDX-License-Identifier: Apache-2.0 */
/*
 * plain.c: compares models of well-known types with the sizes and the tensors that their
 * config.json implies.
 *
 * Only types whose classes have the same names and sizes in all versions of transformers are in
 * hfp_types.  A model without layers.0.self_attn.q_proj.weight has other names, and is not checked.
 * Of more types, those of hfp_outers, only the modules outside of layers are known.
 */
#include "formats/hf/whole.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "libckpt/base/dtype.h"
#include "libckpt/base/number.h"

/* A model type, and whether config.json must state head_dim or tied embeddings. */
typedef struct hfp_type {
    const char *name;
    bool own_head_dim; /* without head_dim in config.json the class has a size of its own */
    bool tied;         /* embeddings are tied unless config.json says otherwise */
    bool dense;        /* layers have an MLP and no experts */
    bool biased;       /* attention_bias of config.json decides about biases of q_proj */
    bool mlp_biased;   /* mlp_bias decides about those of the MLP */
} hfp_type;

static const hfp_type hfp_types[] = {
    {.name = "llama", .dense = true, .biased = true, .mlp_biased = true},
    {.name = "mistral", .dense = true},
    {.name = "mixtral"},
    {.name = "qwen2", .dense = true},
    {.name = "qwen3", .own_head_dim = true, .dense = true, .biased = true},
    {.name = "qwen2_moe"},
    {.name = "qwen3_moe", .own_head_dim = true, .biased = true},
    {.name = "gemma", .own_head_dim = true, .tied = true, .dense = true, .biased = true},
    {.name = "gemma2", .own_head_dim = true, .tied = true, .dense = true, .biased = true},
    {.name = "gemma3_text", .own_head_dim = true, .tied = true, .dense = true, .biased = true},
    {.name = "gpt_oss", .own_head_dim = true},
};

/*
 * Types whose layers all have the same names, in any configuration of transformers 5.23
 * (tests/interop/uniform_layers.py).
 */
static const char *const hfp_uniform[] = {
    "apertus", "arcee",      "bart",         "bert",    "biogpt",     "bloom",       "camembert",
    "codegen", "cohere",     "cohere2",      "ctrl",    "distilbert", "electra",     "ernie4_5",
    "esmc",    "exaone4",    "falcon_mamba", "gemma",   "gemma2",     "gemma3_text", "glm",
    "glm4",    "gpt2",       "gpt_bigcode",  "gpt_neo", "gpt_neox",   "gpt_oss",     "gptj",
    "granite", "helium",     "jais2",        "llama",   "mamba",      "mamba2",      "marian",
    "mbart",   "ministral",  "ministral3",   "mistral", "mpnet",      "olmo",        "olmo2",
    "olmo3",   "openai-gpt", "opt",          "pegasus", "phi",        "phi3",        "qwen2",
    "qwen3",   "roberta",    "seed_oss",     "smollm3", "stablelm",   "starcoder2",  "xlm-roberta",
    NULL};

#define HFP_NORMS "input_layernorm post_attention_layernorm "
#define HFP_MLP   "mlp.gate_proj mlp.up_proj mlp.down_proj "
#define HFP_QKV   "self_attn.q_proj self_attn.k_proj self_attn.v_proj "
#define HFP_QKVO  HFP_QKV "self_attn.o_proj self_attn.q_norm self_attn.k_norm "
#define HFP_LFM2  "feed_forward.w1 feed_forward.w2 feed_forward.w3 ffn_norm operator_norm "
#define HFP_PARTS                                                                                  \
    "linear_attn.in_proj_a linear_attn.in_proj_b linear_attn.in_proj_qkv linear_attn.in_proj_z "
#define HFP_OUT   "linear_attn.norm linear_attn.out_proj "
#define HFP_DELTA "linear_attn.A_log linear_attn.conv1d linear_attn.dt_bias "
#define HFP_SHARED                                                                                 \
    "mlp.gate mlp.shared_expert_gate mlp.shared_expert.gate_proj mlp.shared_expert.up_proj "       \
    "mlp.shared_expert.down_proj "

/*
 * Types in which layers with the same entry of layer_types have tensors of the same names
 * (tests/interop/uniform_layers.py);
 * period: the default of full_attention_interval, which older configurations have instead;
 * full, other: modules and parameters that each layer with full attention, and with another entry,
 * has in files: a kind may have a single layer, which no other one shows to be incomplete. NULL:
 * they are not known.
 */
static const struct {
    const char *name;
    int64_t period;
    const char *full, *other;
    const char *name_of_other; // in layer_types
} hfp_kinds[] = {
    {"lfm2", 0, HFP_LFM2 HFP_QKV "self_attn.out_proj self_attn.q_layernorm self_attn.k_layernorm",
     HFP_LFM2 "conv.conv conv.in_proj conv.out_proj", "conv"},
    {"minimax", 0, HFP_NORMS HFP_QKV "self_attn.o_proj",
     HFP_NORMS "self_attn.norm self_attn.out_proj self_attn.output_gate self_attn.qkv_proj",
     "linear_attention"},
    {"olmo_hybrid", 0, NULL, NULL, "linear_attention"}, // files and models have different names
    {"qwen3_next", 4, HFP_NORMS HFP_QKVO,
     HFP_NORMS "linear_attn.in_proj_ba linear_attn.in_proj_qkvz " HFP_OUT HFP_DELTA,
     "linear_attention"},
    {"qwen3_5_text", 4, HFP_NORMS HFP_MLP HFP_QKVO, HFP_NORMS HFP_MLP HFP_PARTS HFP_OUT HFP_DELTA,
     "linear_attention"},
    {"qwen3_5_moe_text", 4, HFP_NORMS HFP_SHARED HFP_QKVO,
     HFP_NORMS HFP_SHARED HFP_PARTS HFP_OUT HFP_DELTA, "linear_attention"},
};

/* The checked model. */
typedef struct hfp_model {
    ckpt_map *map;
    const ckpt_value *config;
    const char *name;   /* of the weight file, for messages */
    const char *prefix; /* before "layers." */
    ckpt_err *err;
} hfp_model;

static const ckpt_tensor *hfp_tensor(const hfp_model *m, const char *prefix, const char *key)
{
    char name[160];
    size_t i;

    (void)snprintf(name, sizeof name, "%s%s", prefix, key);
    i = ckpt_map_index(m->map, name, strlen(name));
    return i == SIZE_MAX ? NULL : m->map->tensors.at[i];
}

/* True if a module has any tensor but a bias: a quantized module has other names than weight. */
static bool hfp_has(const hfp_model *m, const char *prefix, const char *module)
{
    char start[160];
    int n = snprintf(start, sizeof start, "%s%s.", prefix, module);

    for (size_t i = 0; i < m->map->tensors.n; i++) {
        const char *name = m->map->tensors.at[i]->name;
        if (strncmp(name, start, (size_t)n) == 0 && strcmp(name + n, "bias") != 0)
            return true;
    }
    return false;
}

/* A positive number of config.json; 0: absent. */
static uint64_t hfp_number(const hfp_model *m, const char *key)
{
    const ckpt_value *v = ckpt_value_get(m->config, key);
    int64_t n = 0;

    return v && v->kind == CKPT_V_INT && ckpt_value_as_int(v, &n) && n > 0 && n < INT32_MAX
               ? (uint64_t)n
               : 0;
}

/* True if a layer has a tensor of an expert, or MLX's tensor of all experts. */
static bool hfp_has_experts(const hfp_model *m)
{
    for (size_t i = 0; i < m->map->tensors.n; i++) {
        const char *name = m->map->tensors.at[i]->name;
        if (strstr(name, ".experts.") || strstr(name, ".switch_mlp."))
            return true;
    }
    return false;
}

/* Report a missing module. */
static int hfp_need(const hfp_model *m, const char *prefix, const char *module)
{
    if (hfp_has(m, prefix, module))
        return CKPT_OK;
    return ckpt_map_problem(m->map, CKPT_EMISSING, m->err,
                            "%s: %s%s.weight is missing, which the model of config.json has: copy "
                            "the whole model (%s)",
                            m->name, prefix, module, ckpt_hf_as_is(m->map));
}

/* Compare an axis of a tensor, if it is there and not quantized, with what config.json says. */
static int hfp_axis(const hfp_model *m, const char *tensor, unsigned axis, uint64_t said,
                    const char *key)
{
    const ckpt_tensor *t = hfp_tensor(m, m->prefix, tensor);

    if (!t || t->ndim != 2 || said == 0 || t->shape[axis] == said ||
        ckpt_dtype_get(t->dtype)->kind != CKPT_IS_FLOAT)
        return CKPT_OK;
    return ckpt_map_problem(m->map, CKPT_EMISMATCH, m->err,
                            "%s: %s%s has %" PRIu64 " %s, but config.json says %" PRIu64
                            " (%s): config.json is from another model; copy the model's own (%s)",
                            m->name, m->prefix, tensor, t->shape[axis], axis ? "columns" : "rows",
                            said, key, ckpt_hf_as_is(m->map));
}

/* The table's line for the configuration's model_type; NULL: there is none. */
static const hfp_type *hfp_find(const ckpt_value *config)
{
    const ckpt_value *kind = ckpt_value_get(config, "model_type");

    for (size_t i = 0; kind && i < sizeof hfp_types / sizeof *hfp_types; i++) {
        if (ckpt_value_is(kind, hfp_types[i].name))
            return &hfp_types[i];
    }
    return NULL;
}

bool ckpt_hf_is_plain(const ckpt_value *config)
{
    return hfp_find(config) != NULL;
}

/* True for params.json of Meta's Llama, whose layers are all alike but in a mixture of experts. */
static bool hfp_is_meta(const ckpt_value *config)
{
    return ckpt_value_get(config, "dim") && ckpt_value_get(config, "n_layers") &&
           !ckpt_value_get(config, "moe") && !ckpt_value_get(config, "moe_args");
}

bool ckpt_hf_uniform(const ckpt_value *config)
{
    const ckpt_value *type = ckpt_value_get(config, "model_type");
    bool is = !type && hfp_is_meta(config);

    for (size_t i = 0; type && !is && hfp_uniform[i]; i++)
        is = ckpt_value_is(type, hfp_uniform[i]);
    return is && !ckpt_hf_quantization(config) && !ckpt_value_get(config, "auto_map");
}

bool ckpt_hf_uniform_kinds(const ckpt_value *config, int64_t *period)
{
    const ckpt_value *type = ckpt_value_get(config, "model_type");
    const ckpt_value *dense = ckpt_value_get(config, "mlp_only_layers");
    const ckpt_value *step = ckpt_value_get(config, "decoder_sparse_step");
    const ckpt_value *every = ckpt_value_get(config, "full_attention_interval");
    int64_t n = 1;

    *period = 0;
    // layers of one kind of attention may have experts or not
    if ((dense && dense->kind == CKPT_V_LIST && dense->as.seq.n > 0) ||
        (step && (!ckpt_value_as_int(step, &n) || n != 1)) || ckpt_hf_quantization(config))
        return false;
    for (size_t i = 0; type && i < sizeof hfp_kinds / sizeof *hfp_kinds; i++) {
        if (!ckpt_value_is(type, hfp_kinds[i].name))
            continue;
        *period = hfp_kinds[i].period;
        if (*period > 0 && every && ckpt_value_as_int(every, &n))
            *period = n > 0 ? n : 0;
        return true;
    }
    return false;
}

const char *ckpt_hf_kind_names(const ckpt_value *config, bool full)
{
    const ckpt_value *type = ckpt_value_get(config, "model_type");

    for (size_t i = 0; type && i < sizeof hfp_kinds / sizeof *hfp_kinds; i++) {
        if (ckpt_value_is(type, hfp_kinds[i].name))
            return full ? hfp_kinds[i].full : hfp_kinds[i].other;
    }
    return NULL;
}

const char *ckpt_hf_kind_other(const ckpt_value *config)
{
    const ckpt_value *type = ckpt_value_get(config, "model_type");

    for (size_t i = 0; type && i < sizeof hfp_kinds / sizeof *hfp_kinds; i++) {
        if (ckpt_value_is(type, hfp_kinds[i].name))
            return hfp_kinds[i].name_of_other;
    }
    return NULL;
}

/* True if the configuration is of one class, whose name has this end. */
static bool hfp_is_class(const ckpt_value *config, const char *end)
{
    const ckpt_value *classes = ckpt_value_get(config, "architectures");

    if (!classes || classes->kind != CKPT_V_LIST || classes->as.seq.n != 1 ||
        classes->as.seq.at[0]->kind != CKPT_V_STR)
        return false;
    const char *name = classes->as.seq.at[0]->as.text.at;
    size_t n = strlen(name), m = strlen(end);
    return n > m && strcmp(name + n - m, end) == 0;
}

bool ckpt_hf_untied(const ckpt_value *config)
{
    const hfp_type *type = hfp_find(config);
    const ckpt_value *tie = ckpt_value_get(config, "tie_word_embeddings");

    return hfp_is_class(config, "ForCausalLM") &&
           (tie && tie->kind == CKPT_V_BOOL ? !tie->as.i : type && !type->tied);
}

/* Check the tensors of the first layer and those outside of layers; gaps in other layers are found
 * by comparison with it. */
static int hfp_names(const hfp_model *m, const hfp_type *type)
{
    static const char *const mlp[] = {"layers.0.mlp.gate_proj", "layers.0.mlp.up_proj",
                                      "layers.0.mlp.down_proj", NULL};
    static const char *const needed[] = {"embed_tokens",
                                         "norm",
                                         "layers.0.input_layernorm",
                                         "layers.0.post_attention_layernorm",
                                         "layers.0.self_attn.k_proj",
                                         "layers.0.self_attn.v_proj",
                                         "layers.0.self_attn.o_proj",
                                         NULL};
    int rc = CKPT_OK;

    // a draft head of EAGLE: some layers of the type behind a layer `fc`, without its norms
    if (!*m->prefix && hfp_tensor(m, "", "fc.weight"))
        return CKPT_OK;
    for (size_t i = 0; rc == CKPT_OK && needed[i]; i++)
        rc = hfp_need(m, m->prefix, needed[i]);
    for (size_t i = 0; rc == CKPT_OK && type->dense && mlp[i]; i++)
        rc = hfp_need(m, m->prefix, mlp[i]);
    if (rc == CKPT_OK && !type->dense && !hfp_has_experts(m))
        rc =
            ckpt_map_problem(m->map, CKPT_EMISMATCH, m->err,
                             "%s: no layer has experts, but config.json is of a mixture of experts "
                             "(%s): it is from another model; copy the model's own (%s)",
                             m->name, type->name, ckpt_hf_as_is(m->map));
    if (rc == CKPT_OK && hfp_is_class(m->config, "ForSequenceClassification"))
        rc = hfp_need(m, "", "score");
    return rc == CKPT_OK && ckpt_hf_untied(m->config) ? hfp_need(m, "", "lm_head") : rc;
}

/* Number of the last layer that has a tensor, plus one. */
static uint64_t hfp_layers(const hfp_model *m)
{
    char start[160];
    int n = snprintf(start, sizeof start, "%slayers.", m->prefix);
    uint64_t most = 0, layer = 0;

    for (size_t i = 0; i < m->map->tensors.n; i++) {
        const char *name = m->map->tensors.at[i]->name;
        const char *end =
            strncmp(name, start, (size_t)n) == 0 ? ckpt_scan_u64(name + n, &layer) : NULL;
        if (end && *end == '.' && layer < INT32_MAX && layer >= most)
            most = layer + 1;
    }
    return most;
}

/* More layers than config.json says, which transformers would not load. */
static int hfp_more_layers(const hfp_model *m)
{
    uint64_t here = hfp_layers(m), said = hfp_number(m, "num_hidden_layers");

    if (said == 0 || here <= said)
        return CKPT_OK;
    return ckpt_map_problem(m->map, CKPT_EMISMATCH, m->err,
                            "%s: tensors of %" PRIu64 " layers are here, but config.json says "
                            "%" PRIu64 " (num_hidden_layers), and programs load no more: "
                            "config.json is from another model; copy the model's own (%s)",
                            m->name, here, said, ckpt_hf_as_is(m->map));
}

/* Biases that config.json says the model has, or has not: programs take zeros, or ignore them. */
static int hfp_bias(const hfp_model *m, const char *key, const char *tensor, const char *what)
{
    const ckpt_value *v = ckpt_value_get(m->config, key);
    const bool said = v && v->kind == CKPT_V_BOOL && v->as.i;
    const bool is = hfp_tensor(m, m->prefix, tensor) != NULL;

    if (said == is || (v && v->kind != CKPT_V_BOOL && v->kind != CKPT_V_NONE))
        return CKPT_OK;
    return ckpt_map_note(m->map, CKPT_WARNING, m->err,
                         "%s: the %s has %s, but %s is %s in config.json: programs %s; "
                         "config.json may be from another model",
                         m->name, what, is ? "biases" : "no biases", key,
                         said ? "true" : "not true",
                         is ? "ignore the biases" : "make biases of their own");
}

static int hfp_biases(const hfp_model *m, const hfp_type *type)
{
    int rc = CKPT_OK;

    // quantizers may write biases of zero
    if (ckpt_hf_quantization(m->config))
        return CKPT_OK;
    if (type->biased)
        rc = hfp_bias(m, "attention_bias", "layers.0.self_attn.q_proj.bias", "attention");
    if (rc == CKPT_OK && type->mlp_biased)
        rc = hfp_bias(m, "mlp_bias", "layers.0.mlp.up_proj.bias", "MLP");
    return rc;
}

/* Compare the sizes of config.json with the first layer and the embedding. */
static int hfp_sizes(const hfp_model *m, const hfp_type *type)
{
    uint64_t hidden = hfp_number(m, "hidden_size"), heads = hfp_number(m, "num_attention_heads");
    uint64_t kv = hfp_number(m, "num_key_value_heads"), head = hfp_number(m, "head_dim");
    uint64_t inner = hfp_number(m, "intermediate_size");
    int rc = hfp_axis(m, "embed_tokens.weight", 0, hfp_number(m, "vocab_size"), "vocab_size");

    head = head ? head : heads && !type->own_head_dim ? hidden / heads : 0;
    if (rc == CKPT_OK)
        rc = hfp_axis(m, "embed_tokens.weight", 1, hidden, "hidden_size");
    if (rc == CKPT_OK)
        rc = hfp_axis(m, "layers.0.mlp.up_proj.weight", 0, inner, "intermediate_size");
    if (rc == CKPT_OK)
        rc = hfp_axis(m, "layers.0.block_sparse_moe.experts.0.w1.weight", 0, inner,
                      "intermediate_size");
    if (rc == CKPT_OK)
        rc = hfp_axis(m, "layers.0.mlp.experts.0.up_proj.weight", 0,
                      hfp_number(m, "moe_intermediate_size"), "moe_intermediate_size");
    if (rc == CKPT_OK)
        rc = hfp_axis(m, "layers.0.self_attn.q_proj.weight", 0, heads * head,
                      "num_attention_heads x head_dim");
    return rc == CKPT_OK ? hfp_axis(m, "layers.0.self_attn.k_proj.weight", 0, kv * head,
                                    "num_key_value_heads x head_dim")
                         : rc;
}

/* The modules of types outside of their layers. */
typedef struct hfp_outer {
    const char *types;  /* words */
    const char *prefix; /* of the model inside a class with a head */
    const char *layer;  /* begins the names of the first layer */
    const char *needed[4];
    const char *head[2]; /* its names: one of them, if the embedding is not tied */
    bool tied;           /* unless config.json says otherwise */
} hfp_outer;

static const hfp_outer hfp_outers[] = {
    {"apertus arcee exaone4 glm glm4 granite helium jais2 ministral ministral3 olmo2 olmo3 phi3 "
     "seed_oss stablelm",
     "model.",
     "layers.0.",
     {"embed_tokens", "norm"},
     {"lm_head"},
     false},
    {"cohere cohere2 ernie4_5 smollm3 starcoder2",
     "model.",
     "layers.0.",
     {"embed_tokens", "norm"},
     {"lm_head"},
     true},
    {"phi", "model.", "layers.0.", {"embed_tokens", "final_layernorm"}, {"lm_head"}, false},
    {"gpt2 gpt_bigcode gpt_neo", "transformer.", "h.0.", {"wte", "wpe", "ln_f"}, {"lm_head"}, true},
    {"gptj codegen", "transformer.", "h.0.", {"wte", "ln_f"}, {"lm_head"}, false},
    {"gpt_neox",
     "gpt_neox.",
     "layers.0.",
     {"embed_in", "final_layer_norm"},
     {"embed_out", "lm_head"},
     false},
    {"bloom", "transformer.", "h.0.", {"word_embeddings", "ln_f"}, {"lm_head"}, true},
};

/* True if a list of words has this word. */
static bool hfp_lists(const char *words, const char *word)
{
    const size_t n = strlen(word);

    for (const char *at = strstr(words, word); at && n > 0; at = strstr(at + 1, word)) {
        if ((at == words || at[-1] == ' ') && (at[n] == ' ' || at[n] == 0))
            return true;
    }
    return false;
}

/* The row of the configuration's model_type; NULL: there is none. */
static const hfp_outer *hfp_outer_of(const ckpt_value *config)
{
    const ckpt_value *type = ckpt_value_get(config, "model_type");

    for (size_t i = 0;
         type && type->kind == CKPT_V_STR && i < sizeof hfp_outers / sizeof *hfp_outers; i++) {
        if (hfp_lists(hfp_outers[i].types, type->as.text.at))
            return &hfp_outers[i];
    }
    return NULL;
}

/* True if a tensor's name begins with two texts. */
static bool hfp_begins(const hfp_model *m, const char *a, const char *b)
{
    const size_t n = strlen(a), k = strlen(b);

    for (size_t i = 0; i < m->map->tensors.n; i++) {
        const char *name = m->map->tensors.at[i]->name;
        if (strncmp(name, a, n) == 0 && strncmp(name + n, b, k) == 0)
            return true;
    }
    return false;
}

/* Check that a model of a type without a line in hfp_types has its embeddings, norm and head. */
static int hfp_check_outer(hfp_model *m)
{
    const hfp_outer *row = hfp_outer_of(m->config);
    const ckpt_value *tie = ckpt_value_get(m->config, "tie_word_embeddings");
    int rc = CKPT_OK;

    // code beside the model may make other modules
    if (!row || ckpt_value_get(m->config, "auto_map"))
        return CKPT_OK;
    m->prefix = hfp_begins(m, row->prefix, row->layer) ? row->prefix : "";
    // a part of a model, or a draft head
    if (!hfp_begins(m, m->prefix, row->layer) || hfp_tensor(m, "", "fc.weight"))
        return CKPT_OK;
    for (size_t i = 0; rc == CKPT_OK && i < 4 && row->needed[i]; i++)
        rc = hfp_need(m, m->prefix, row->needed[i]);
    const bool tied = tie && tie->kind == CKPT_V_BOOL ? tie->as.i != 0 : row->tied;
    if (rc != CKPT_OK || tied || !*m->prefix || !hfp_is_class(m->config, "ForCausalLM") ||
        (row->head[1] && hfp_has(m, "", row->head[1])))
        return rc;
    return hfp_need(m, "", row->head[0]);
}

int ckpt_hf_plain(ckpt_map *map, const ckpt_value *config, const char *name, ckpt_err *err)
{
    assert(map && name);
    hfp_model m = {.map = map, .config = config, .name = name, .prefix = "model.", .err = err};
    const hfp_type *type = hfp_find(config);
    int rc;

    if (!type)
        return hfp_check_outer(&m);
    if (!hfp_has(&m, m.prefix, "layers.0.self_attn.q_proj"))
        m.prefix = "";
    if (!hfp_has(&m, m.prefix, "layers.0.self_attn.q_proj"))
        return CKPT_OK;
    rc = hfp_names(&m, type);
    if (rc == CKPT_OK)
        rc = hfp_more_layers(&m);
    if (rc == CKPT_OK)
        rc = hfp_biases(&m, type);
    return rc == CKPT_OK ? hfp_sizes(&m, type) : rc;
}
