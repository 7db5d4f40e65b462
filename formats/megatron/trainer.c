/* SPDX-License-Identifier: Apache-2.0 */
/*
 * trainer.c: reads the configuration of Megatron-Bridge and NeMo 2, which save no arguments.
 *
 *     Megatron-Bridge  iter_0000003/run_config.yaml   model: {num_layers: 2, ...}, or
 *                                                     model: {transformer: {num_layers: 2, ...}}
 *     NeMo 2           NAME/context/model.yaml        config: {num_layers: 2, ...}
 *
 * Both have the fields of Megatron-Core's TransformerConfig and of GPTModel.  They become "args",
 * with the names that Megatron-LM gives its arguments, so that layout maps find them.
 *
 * Source  megatron/bridge/models/gpt_provider.py and models/gpt/model_config.py of Megatron-Bridge
 *         (August 2026); nemo/collections/llm/gpt/model/base.py and llama.py of NeMo 2.5
 */
#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "formats/megatron/megatron.h"
#include "libckpt/codec/yaml/yaml.h"
#include "libckpt/io/address.h"

#define MGT_BRIDGE "run_config.yaml"
#define MGT_BYTES  (UINT64_C(4) << 20) /* limit of a configuration */

typedef struct mgt_reader {
    ckpt_meg_job *job;
    const char *path;
    const ckpt_value *root;  /* the whole configuration */
    const ckpt_value *model; /* the section of the model */
    ckpt_value *args;        /* the result */
    bool ok;                 /* false: no memory */
} mgt_reader;

/* A value of the model; Megatron-Bridge may keep it one level deeper.  NULL: absent, or null. */
static ckpt_value *mgt_get(const mgt_reader *r, const char *key)
{
    ckpt_value *v = ckpt_value_get(r->model, key);

    if (!v)
        v = ckpt_value_get(ckpt_value_get(r->model, "transformer"), key);
    return v && v->kind != CKPT_V_NONE ? v : NULL;
}

static bool mgt_true(const ckpt_value *v)
{
    return v && v->kind == CKPT_V_BOOL && v->as.i;
}

/* The number of a value; `none` for all others. */
static double mgt_number(const ckpt_value *v, double none)
{
    return v && v->kind == CKPT_V_FLOAT ? v->as.f
           : v && v->kind == CKPT_V_INT ? (double)v->as.i
                                        : none;
}

/* Set an argument unless it is set, or the value is absent. */
static void mgt_set(mgt_reader *r, const char *name, ckpt_value *v)
{
    if (r->ok && v && !ckpt_value_get(r->args, name))
        r->ok = ckpt_dict_add_cstr(r->job->map->arena, &r->args->as.map, name, v);
}

static void mgt_set_bool(mgt_reader *r, const char *name, bool is)
{
    ckpt_value *v = ckpt_value_bool(r->job->map->arena, is);

    r->ok = r->ok && v;
    mgt_set(r, name, v);
}

/* ---- arguments ---- */

/* Copy the numbers, flags, texts and lists of a section. */
static void mgt_copy(mgt_reader *r, const ckpt_value *section)
{
    ckpt_dict all = ckpt_value_map(section);

    for (uint64_t i = 0; r->ok && i < all.n; i++) {
        const ckpt_value *key = all.at[i].key;
        ckpt_value *v = all.at[i].value;
        bool plain = v->kind == CKPT_V_BOOL || v->kind == CKPT_V_INT || v->kind == CKPT_V_FLOAT ||
                     v->kind == CKPT_V_STR || v->kind == CKPT_V_LIST;
        if (plain && key->kind == CKPT_V_STR && key->as.text.at[0] != '_')
            mgt_set(r, key->as.text.at, v);
    }
}

/*
 * The activation by the name of its function, from "silu" or {"_target_":
 * "torch.nn.functional.silu"}; "": unknown.
 */
static const char *mgt_activation(const mgt_reader *r)
{
    const ckpt_value *f = mgt_get(r, "activation_func"), *target = ckpt_value_get(f, "_target_");
    const char *name, *dot;

    f = target ? target : f;
    if (!f || f->kind != CKPT_V_STR)
        return "";
    name = f->as.text.at;
    dot = strrchr(name, '.');
    name = dot ? dot + 1 : name;
    return strcmp(name, "gelu_pytorch_tanh") == 0 ? "fast_gelu" : name; // the same function
}

/*
 * Add the arguments that follow from the activation: Megatron-LM has a flag for each gated one,
 * where the trainers have its function.
 */
static void mgt_activations(mgt_reader *r)
{
    const char *name = mgt_activation(r);
    const bool gated = mgt_true(mgt_get(r, "gated_linear_unit"));

    if (*name)
        mgt_set(r, "activation_func", ckpt_value_cstr(r->job->map->arena, name));
    mgt_set_bool(r, "swiglu", gated && strcmp(name, "silu") == 0);
    if (gated && strcmp(name, "quick_gelu") == 0)
        mgt_set_bool(r, "quick_geglu", true);
}

/*
 * Add query_pre_attn_scalar, which Gemma 3's modules state as softmax_scale = 1 / sqrt(scalar): an
 * integer if it is one but for rounding.
 */
static void mgt_scalar(mgt_reader *r)
{
    const double scale = mgt_number(mgt_get(r, "softmax_scale"), 0);
    const double scalar = scale > 0 ? 1 / (scale * scale) : 0;
    ckpt_arena *arena = r->job->map->arena;

    if (!(scalar > 0 && scalar < 1e9))
        return;
    const double off = scalar - (double)(int64_t)(scalar + 0.5);
    const bool whole = off < 1e-9 * scalar && off > -1e-9 * scalar;
    mgt_set(r, "query_pre_attn_scalar",
            whole ? ckpt_value_int(arena, (int64_t)(scalar + 0.5))
                  : ckpt_value_float(arena, scalar));
}

/* Add the arguments that Megatron-LM calls otherwise. */
static void mgt_translate(mgt_reader *r)
{
    static const char *const names[][2] = {
        {"num_moe_experts", "num_experts"},
        {"layernorm_epsilon", "norm_epsilon"},
        {"layernorm_zero_centered_gamma", "apply_layernorm_1p"},
        {"seq_length", "max_position_embeddings"},
        {"rope_scaling", "use_rope_scaling"},
        {"scale_factor", "rope_scaling_factor"}, // Llama31Config of NeMo
        {"seq_len_interpolation_factor", "rotary_seq_len_interpolation_factor"},
    };
    const ckpt_value *tied = mgt_get(r, "share_embeddings_and_output_weights");

    // the first value stays: NeMo's Llama 3.1 states the scaling by its factor alone
    if (mgt_get(r, "scale_factor")) {
        mgt_set(r, "rope_scaling_factor", mgt_get(r, "scale_factor"));
        mgt_set_bool(r, "use_rope_scaling", true);
    }
    mgt_activations(r);
    mgt_copy(r, r->model);
    mgt_copy(r, ckpt_value_get(r->model, "transformer"));
    mgt_scalar(r);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        mgt_set(r, names[i][1], mgt_get(r, names[i][0]));
    mgt_set_bool(r, "group_query_attention", mgt_get(r, "num_query_groups") != NULL);
    if (tied)
        mgt_set_bool(r, "untie_embeddings_and_output_weights", !mgt_true(tied));
}

/* Make the arguments an argparse.Namespace, as Megatron-LM saves them; NULL: no memory. */
static ckpt_value *mgt_namespace(const mgt_reader *r)
{
    static const char module[] = "argparse", name[] = "Namespace";
    ckpt_arena *arena = r->job->map->arena;
    ckpt_value *v = ckpt_value_new(arena, CKPT_V_OBJECT),
               *cls = ckpt_value_new(arena, CKPT_V_GLOBAL),
               *none = ckpt_value_new(arena, CKPT_V_TUPLE);
    ckpt_object *o = ckpt_arena_alloc(arena, sizeof *o);

    if (!v || !cls || !none || !o)
        return NULL;
    cls->as.global.module = (ckpt_text){module, sizeof module - 1};
    cls->as.global.name = (ckpt_text){name, sizeof name - 1};
    *o = (ckpt_object){.form = CKPT_BY_NEWOBJ, .cls = cls, .args = none, .state = r->args};
    v->as.object = o;
    return v;
}

/*
 * Warn of a setting that changes the model's results.
 *
 * shown     its value
 * argument  a layout map that looks this one up withdraws the warning
 */
static int mgt_warn(const mgt_reader *r, const char *name, const char *shown, const char *argument)
{
    ckpt_map *map = r->job->map;
    int rc = ckpt_map_note(map, CKPT_WARNING, r->job->err,
                           "%s: %s is %s, which only some layout maps carry: compare the "
                           "config.json that is written",
                           r->path, name, shown);

    if (rc == CKPT_OK)
        map->findings.at[map->findings.n - 1].argument = argument;
    return rc;
}

/* Name settings that change the model's results, and that only some layout maps carry. */
static int mgt_unusual(const mgt_reader *r)
{
    static const struct mgt_plain {
        const char *name;
        double plain;         /* the number (or flag) that changes nothing */
        const char *argument; /* the argument made of it, if it has another name */
    } setting[] = {
        {"rotary_percent", 1, NULL},
        {"softmax_scale", -1, "query_pre_attn_scalar"},
        {"qk_l2_norm", 0, NULL},
        {"attention_output_gate", 0, NULL},
        {"glu_linear_offset", 0, NULL},
        {"activation_func_clamp_value", -1, NULL},
        {"low_freq_factor", 1, NULL},
        {"high_freq_factor", 4, NULL},
        {"old_context_len", 8192, NULL},
        {"seq_len_interpolation_factor", 1, NULL},
        {"moe_router_num_groups", -1, NULL},
        {"moe_router_topk_scaling_factor", -1, NULL},
        {"attn_logit_softcapping", 0, NULL},
        {"final_logit_softcapping", 0, NULL},
    };
    static const char *const present[] = {"window_size", "window_attn_skip_freq", "no_rope_freq",
                                          "interleaved_attn_pattern"};
    int rc = CKPT_OK;

    for (size_t i = 0; rc == CKPT_OK && i < sizeof setting / sizeof *setting; i++) {
        const ckpt_value *v = mgt_get(r, setting[i].name);
        double n = v && v->kind == CKPT_V_BOOL ? (double)v->as.i : mgt_number(v, setting[i].plain);
        char shown[32];
        (void)snprintf(shown, sizeof shown, "%g", n);
        if (n < setting[i].plain || n > setting[i].plain)
            rc = mgt_warn(r, setting[i].name, shown,
                          setting[i].argument ? setting[i].argument : setting[i].name);
    }
    for (size_t i = 0; rc == CKPT_OK && i < sizeof present / sizeof *present; i++) {
        if (mgt_get(r, present[i]))
            rc = mgt_warn(r, present[i], "set", present[i]);
    }
    if (rc == CKPT_OK && ckpt_value_is(mgt_get(r, "position_embedding_type"), "yarn"))
        rc = mgt_warn(r, "position_embedding_type", "yarn", "yarn_rotary_scaling_factor");
    return rc;
}

/* Warn about a save that has the weights of an adapter only. */
static int mgt_adapter(const mgt_reader *r)
{
    const ckpt_value *peft = ckpt_value_get(r->root, "peft");

    if (!peft || peft->kind == CKPT_V_NONE)
        peft = ckpt_value_get(r->root, "model_transform");
    if (!peft || peft->kind != CKPT_V_DICT)
        return CKPT_OK;
    return ckpt_map_note(r->job->map, CKPT_WARNING, r->job->err,
                         "%s: the run trains an adapter: its checkpoints may hold the adapter's "
                         "weights alone, which only the trainer itself can merge",
                         r->path);
}

/* ---- the file ---- */

/* Parse the configuration.  A failure is only a finding, because weights do not need it. */
static int mgt_parse(mgt_reader *r)
{
    ckpt_err local = {0};
    ckpt_value *root = NULL;
    char *text = NULL;
    uint64_t n = 0;
    int rc = ckpt_io_slurp(&text, &n, r->path, MGT_BYTES, &local);

    if (rc == CKPT_OK)
        rc = ckpt_yaml_parse(&root, r->job->map->arena, r->path, text, n, &local);
    ckpt_free(text);
    if (rc != CKPT_OK)
        return ckpt_map_note(r->job->map, CKPT_WARNING, r->job->err,
                             "%s: so the model's arguments are unknown", local.text);
    r->root = root;
    r->model = ckpt_value_get(root, "model");
    if (!r->model)
        r->model = ckpt_value_get(root, "config");
    if (!r->model || r->model->kind != CKPT_V_DICT)
        return ckpt_map_note(r->job->map, CKPT_WARNING, r->job->err,
                             "%s: has no section of the model, so its arguments are unknown",
                             r->path);
    return CKPT_OK;
}

/* Find the configuration of the folder; path stays NULL if there is none. */
static int mgt_find(mgt_reader *r)
{
    static const char below[] = "/" CKPT_MEG_WEIGHTS;
    ckpt_meg_job *job = r->job;
    const ckpt_entry *e = ckpt_listing_find(job->list, MGT_BRIDGE);
    const char *folder = job->list->folder, *path;
    size_t n = strlen(folder);
    bool there = e && !e->is_dir;
    bool nemo = n >= sizeof below && strcmp(folder + n - (sizeof below - 1), below) == 0;
    int rc = CKPT_OK;

    if (!there && !nemo)
        return CKPT_OK;
    path = there ? ckpt_arena_printf(job->map->arena, "%s/" MGT_BRIDGE, folder)
                 : ckpt_arena_printf(job->map->arena, "%.*s/" CKPT_MEG_CONTEXT "/model.yaml",
                                     (int)(n - (sizeof below - 1)), folder);
    if (!path)
        return ckpt_fail_memory(job->err);
    if (!there)
        rc = ckpt_address_there(path, &there, job->err);
    r->path = there ? path : NULL;
    return rc;
}

int ckpt_meg_trainer(ckpt_meg_job *job, ckpt_value *root)
{
    assert(job && job->map && root && root->kind == CKPT_V_DICT);
    mgt_reader r = {.job = job, .ok = true};
    int rc;

    if (ckpt_value_get(root, "args"))
        return CKPT_OK;
    rc = mgt_find(&r);
    if (rc == CKPT_OK && r.path)
        rc = mgt_parse(&r);
    if (rc != CKPT_OK || !r.model || r.model->kind != CKPT_V_DICT)
        return rc;
    r.args = ckpt_value_new(job->map->arena, CKPT_V_DICT);
    if (!r.args)
        return ckpt_fail_memory(job->err);
    mgt_translate(&r);
    ckpt_value *args = mgt_namespace(&r);
    if (!r.ok || !args || !ckpt_dict_add_cstr(job->map->arena, &root->as.map, "args", args))
        return ckpt_fail_memory(job->err);
    rc = ckpt_map_note(job->map, CKPT_INFO, job->err, "%s: read for the model's arguments", r.path);
    if (rc == CKPT_OK)
        rc = mgt_unusual(&r);
    return rc == CKPT_OK ? mgt_adapter(&r) : rc;
}
