/* SPDX-License-Identifier: Apache-2.0 */
/*
 * autoep.c: ties the second names that AutoEP gives its routers, and renames its layers to the
 * names of the model hub.
 *
 * AutoEP replaces a layer of the model by its own (deepspeed/module_inject/auto_ep_layer.py,
 * 0.19.8). Its entries have these names in DeepSpeed and on the hub:
 *     router.gate.weight          gate.weight
 *     router.<more>               gate.<more>
 *     <name>.<more>               the router again, under its name in the model
 *     experts.w1, w2, w3          experts.N.gate_proj, down_proj, up_proj (.weight); Mixtral and
 *                                 its kind: experts.N.w1, w2, w3 of block_sparse_moe
 *     shared_experts              shared_experts, or shared_expert where a gate weights it
 *     shared_experts_gate         shared_expert_gate
 */
#include <string.h>

#include "formats/deepspeed/layout/autoep.h"
#include "formats/deepspeed/module/module.h"
#include "libckpt/codec/json/json.h"

#define AEM_MAX_CONFIG (UINT64_C(4) << 20) /* bytes of config.json */

/* ---- second names ---- */

/* Returns the layer that contains a name, and sets *rest to the name without the layer's path. The
 * search begins at *hint, because neighbouring names share a layer. */
static const ckpt_ds_moe_layer *aem_layer(const ckpt_ds_head *head, const char *name, uint64_t n,
                                          size_t *hint, const char **rest)
{
    for (size_t k = 0; k < head->autoep.n; k++) {
        size_t i = (*hint + k) % head->autoep.n;
        const ckpt_ds_moe_layer *l = &head->autoep.at[i];
        if (n <= l->n_module || memcmp(name, l->prefix, l->n_module) != 0 ||
            (l->n_module && name[l->n_module] != '.'))
            continue;
        *hint = i;
        *rest = name + l->n_module + (l->n_module > 0);
        return l;
    }
    return NULL;
}

static bool aem_begins(const char *text, const char *with)
{
    return strncmp(text, with, strlen(with)) == 0;
}

/* Returns the router's entry that an entry like "gate.gate.weight" repeats, or NULL. */
static const ckpt_pair *aem_router(const ckpt_ds_module *module, const ckpt_ds_moe_layer *l,
                                   const char *rest, ckpt_arena *arena)
{
    const char *dot = strchr(rest, '.');

    if (!dot || aem_begins(rest, "router.") || aem_begins(rest, "experts.") ||
        aem_begins(rest, "shared_experts"))
        return NULL;
    const char *owner = ckpt_arena_printf(arena, "%.*s%srouter%s", (int)l->n_module, l->prefix,
                                          l->n_module ? "." : "", dot);
    return owner ? ckpt_ds_index_find(&module->by_name, owner, strlen(owner)) : NULL;
}

int ckpt_ds_autoep_ties(const ckpt_ds_job *job, const ckpt_ds_head *head, ckpt_ds_module *module)
{
    const ckpt_value *shared = ckpt_ds_head_get(head, "shared_params");
    size_t hint = 0;

    for (uint64_t i = 0; head->autoep.n && i < module->dict.n; i++) {
        const ckpt_value *key = module->dict.at[i].key;
        const char *rest = NULL;
        const ckpt_ds_moe_layer *l =
            key->kind == CKPT_V_STR ? aem_layer(head, key->as.text.at, key->as.text.n, &hint, &rest)
                                    : NULL;
        bool listed = l && ckpt_value_get(shared, key->as.text.at);
        const ckpt_pair *owner = l && !listed ? aem_router(module, l, rest, job->map->arena) : NULL;
        ckpt_pair *tie = owner ? ckpt_vec_push(&module->tie) : NULL;
        if (owner && !tie)
            return ckpt_fail_memory(job->err);
        if (tie)
            *tie = (ckpt_pair){.key = module->dict.at[i].key, .value = owner->key};
    }
    return CKPT_OK;
}

/* ---- names of the hub ---- */

/* Naming of the experts in a model family on the hub. */
typedef enum aem_style { AEM_PROJ, AEM_W } aem_style;

/*
 * Returns whether a model type names its experts w1, w2, w3 below block_sparse_moe: all such types
 * begin with one of these words.
 */
static bool aem_is_w(const char *type)
{
    return aem_begins(type, "mixtral") || aem_begins(type, "phimoe") || aem_begins(type, "minimax");
}

/* Returns model_type of the folder's config.json, or NULL. */
static const char *aem_model_type(const ckpt_ds_job *job, const char *folder)
{
    ckpt_listing list;
    ckpt_value *config = NULL;
    ckpt_err none = {0};
    const char *path = ckpt_path_join(job->map->arena, folder, "config.json");

    if (!path || ckpt_listing_read(&list, job->map, folder, &none) != CKPT_OK ||
        !ckpt_listing_has(&list, "config.json", false) ||
        ckpt_json_read(&config, job->map->arena, path, AEM_MAX_CONFIG, &none) != CKPT_OK)
        return NULL;
    const ckpt_value *type = ckpt_value_get(config, "model_type");
    return type && type->kind == CKPT_V_STR ? type->as.text.at : NULL;
}

/* Returns the run's folder, which contains the tag's. */
static const char *aem_above(const ckpt_ds_job *job)
{
    const char *path = job->map->path, *slash = strrchr(path, '/');

    if (!slash)
        return ".";
    return ckpt_arena_string(job->map->arena, path, slash > path ? (size_t)(slash - path) : 1);
}

/*
 * Decides by parameter names: every model type of DeepSpeed (module_inject/auto_ep_presets) except
 * Mixtral has query norms, attention biases, shared experts, low-rank queries or keys, or a score
 * correction bias.
 */
static aem_style aem_by_names(const ckpt_map *map)
{
    static const char *const other[] = {
        ".q_norm.",   ".q_proj.bias", ".shared_experts",         ".shared_expert",
        ".kv_a_proj", ".q_a_proj",    ".e_score_correction_bias"};

    for (size_t i = 0; i < map->tensors.n; i++) {
        for (size_t k = 0; k < sizeof other / sizeof *other; k++) {
            if (strstr(map->tensors.at[i]->name, other[k]))
                return AEM_PROJ;
        }
    }
    return AEM_W;
}

/*
 * Reads the style from the config.json next to the tag folder, else from the preset in ds_config,
 * else decides by parameter names.
 */
static aem_style aem_find_style(const ckpt_ds_job *job, const ckpt_ds_head *head)
{
    const ckpt_value *parallel =
        ckpt_value_get(ckpt_ds_head_get(head, "ds_config"), "expert_parallel");
    const ckpt_value *preset = ckpt_value_get(parallel, "preset_model");
    const char *above = aem_above(job), *type = aem_model_type(job, job->map->path);

    if (!type && above)
        type = aem_model_type(job, above);
    if (!type && preset && preset->kind == CKPT_V_STR)
        type = preset->as.text.at;
    if (type)
        return aem_is_w(type) ? AEM_W : AEM_PROJ;
    return aem_by_names(job->map);
}

/* Returns a layer's path on the hub. */
static const char *aem_path(ckpt_arena *arena, const ckpt_ds_moe_layer *l, aem_style style)
{
    static const char mlp[] = "mlp";
    size_t n = l->n_module, m = sizeof mlp - 1;
    bool ends =
        n >= m && memcmp(l->prefix + n - m, mlp, m) == 0 && (n == m || l->prefix[n - m - 1] == '.');

    if (style == AEM_W && ends)
        return ckpt_arena_printf(arena, "%.*sblock_sparse_moe.", (int)(n - m), l->prefix);
    return ckpt_arena_printf(arena, "%.*s%s", (int)n, l->prefix, n ? "." : "");
}

/* Returns an entry's name on the hub, without the layer's path; NULL when memory runs out. */
static const char *aem_part(ckpt_arena *arena, const char *rest, aem_style style, bool gated)
{
    static const char *const proj[] = {"gate_proj", "down_proj", "up_proj"};
    size_t at = 0, n = 0;
    uint64_t number = 0;

    if (aem_begins(rest, "experts.w") && ckpt_train_expert_number(rest, &at, &n, &number)) {
        char w[] = {rest[sizeof "experts." - 1], rest[sizeof "experts.w" - 1], 0};
        return ckpt_arena_printf(arena, "experts.%s.%s.weight", rest + at,
                                 style == AEM_W ? w : proj[w[1] - '1']);
    }
    if (aem_begins(rest, "router.gate."))
        return ckpt_arena_printf(arena, "gate.%s", rest + sizeof "router.gate." - 1);
    if (aem_begins(rest, "router."))
        return ckpt_arena_printf(arena, "gate.%s", rest + sizeof "router." - 1);
    if (aem_begins(rest, "shared_experts_gate."))
        return ckpt_arena_printf(arena, "shared_expert_gate.%s",
                                 rest + sizeof "shared_experts_gate." - 1);
    if (gated && aem_begins(rest, "shared_experts."))
        return ckpt_arena_printf(arena, "shared_expert.%s", rest + sizeof "shared_experts." - 1);
    return rest;
}

/* Returns whether some layer has a gate for its shared experts. */
static bool aem_is_gated(const ckpt_map *map)
{
    bool gated = false;

    for (size_t i = 0; !gated && i < map->tensors.n; i++)
        gated = strstr(map->tensors.at[i]->name, ".shared_experts_gate.") != NULL;
    return gated;
}

int ckpt_ds_autoep_hub(const ckpt_ds_job *job, const ckpt_ds_head *head,
                       const ckpt_ds_module *module)
{
    ckpt_map *map = job->map;
    size_t hint = 0, n = 0;

    if (head->autoep.n == 0)
        return CKPT_OK;
    const aem_style style = aem_find_style(job, head);
    const bool gated = aem_is_gated(map);
    for (size_t i = 0; i < map->tensors.n; i++) {
        ckpt_tensor *t = map->tensors.at[i];
        const char *rest = NULL, *path, *part;
        const ckpt_ds_moe_layer *l = aem_layer(head, t->name, strlen(t->name), &hint, &rest);
        // The hub stores a router once; without optimizer files no tensor is an owner.
        if (l && (t->owner || job->opts->weights_only) && aem_router(module, l, rest, map->arena))
            continue;
        map->tensors.at[n++] = t;
        if (!l)
            continue;
        path = aem_path(map->arena, l, style);
        part = aem_part(map->arena, rest, style, gated);
        t->name = path && part ? ckpt_arena_printf(map->arena, "%s%s", path, part) : NULL;
        if (!t->name)
            return ckpt_fail_memory(job->err);
    }
    map->tensors.n = n;
    return ckpt_map_reindex(map, job->err);
}
