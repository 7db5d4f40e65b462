/* SPDX-License-Identifier: Apache-2.0 */
/*
 * chosen.c: compares an adapter's tensors with the modules that its configuration chooses.
 *
 * peft makes modules by the configuration and then loads the tensors: it leaves out those of other
 * modules, and keeps the base's values where a tensor is missing.  Source: peft 0.21,
 * tuners/tuners_utils.py (check_target_module_exists).
 */
#include <assert.h>
#include <inttypes.h>
#include <string.h>

#include "formats/peft/peft.h"
#include "libckpt/base/number.h"

/* True if a path of n bytes is a target or ends with one, in whole words. */
static bool pch_ends(const char *path, size_t n, const ckpt_value *target)
{
    const size_t m = target->kind == CKPT_V_STR ? target->as.text.n : 0;

    return m > 0 && n >= m && memcmp(path + n - m, target->as.text.at, m) == 0 &&
           (n == m || path[n - m - 1] == '.');
}

/* The last number of a path that is a whole word behind two others, before another; -1: none. */
static int64_t pch_layer(const char *path, size_t n)
{
    int64_t layer = -1;
    size_t words = 0;

    for (const char *at = path; at && at < path + n; words++) {
        uint64_t k = 0;
        const char *end = words > 1 ? ckpt_scan_u64(at, &k) : NULL;
        if (end && end < path + n && *end == '.' && k < INT32_MAX)
            layer = (int64_t)k;
        at = memchr(at, '.', (size_t)(path + n - at));
        at = at ? at + 1 : NULL;
    }
    return layer;
}

/* True if layers_to_transform, a number or a list, has a layer, or chooses none. */
static bool pch_has_layer(const ckpt_peft_config *c, int64_t layer)
{
    const ckpt_seq all = ckpt_value_seq(c->layers);
    int64_t k;

    if (!c->layers || layer < 0 || (c->layers->kind == CKPT_V_LIST && all.n == 0))
        return true;
    if (ckpt_value_as_int(c->layers, &k))
        return k == layer;
    for (uint64_t i = 0; i < all.n; i++) {
        if (ckpt_value_as_int(all.at[i], &k) && k == layer)
            return true;
    }
    return all.n == 0;
}

/* True if the configuration chooses a module, or chooses by an expression, which is not read. */
static bool pch_is_chosen(const ckpt_peft_config *c, const char *module, size_t n)
{
    const ckpt_seq targets = ckpt_value_seq(c->targets);
    bool is = targets.n == 0;

    for (uint64_t i = 0; i < targets.n && !is; i++)
        is = pch_ends(module, n, targets.at[i]);
    return is && pch_has_layer(c, pch_layer(module, n));
}

/* Warn of updates of modules that the configuration does not choose. */
static int pch_others(ckpt_map *map, const ckpt_map *adapter, const ckpt_peft_config *c,
                      const char *path, ckpt_err *err)
{
    const char *first = NULL;
    size_t n_first = 0;
    uint64_t n = 0;

    for (size_t i = 0; i < adapter->tensors.n; i++) {
        ckpt_peft_name name;
        if (!ckpt_peft_parse(&name, adapter->tensors.at[i]->name) ||
            ckpt_peft_kind_of(name.part) == CKPT_PEFT_N_KINDS ||
            pch_is_chosen(c, name.module, name.n))
            continue;
        first = first ? first : name.module;
        n_first = n_first ? n_first : name.n;
        n++;
    }
    if (n == 0)
        return CKPT_OK;
    return ckpt_map_note(map, CKPT_WARNING, err,
                         "%s: has %" PRIu64 " tensor%s of modules, such as %.*s, that its "
                         "configuration does not choose (target_modules, layers_to_transform): "
                         "they are merged, but peft leaves them out; %s may be of another adapter",
                         path, n, n == 1 ? "" : "s", n_first < 200 ? (int)n_first : 200, first,
                         c->path);
}

/* True if the name of a tensor has a module of modules_to_save on its path. */
static bool pch_is_saved(const char *name, const ckpt_value *module)
{
    for (const char *at = name; (at = strstr(at, module->as.text.at)) != NULL; at++) {
        if (at[module->as.text.n] == '.' && (at == name || at[-1] == '.'))
            return true;
    }
    return false;
}

/* True if a map has a tensor of a module; adapter: its names are those of an adapter. */
static bool pch_has(const ckpt_map *map, const ckpt_value *module, bool adapter)
{
    for (size_t i = 0; i < map->tensors.n; i++) {
        const ckpt_tensor *t = map->tensors.at[i];
        ckpt_peft_name name;
        if (adapter ? ckpt_peft_parse(&name, t->name) && pch_is_saved(t->name, module)
                    : !t->owner && pch_is_saved(t->name, module))
            return true;
    }
    return false;
}

/* Refuse an adapter without a module of the base that it says it has saved. */
static int pch_saved(const ckpt_map *map, const ckpt_map *adapter, const ckpt_peft_config *c,
                     const char *path, ckpt_err *err)
{
    const ckpt_seq all = ckpt_value_seq(c->saved);

    for (uint64_t i = 0; i < all.n; i++) {
        const ckpt_value *module = all.at[i];
        if (module->kind != CKPT_V_STR || module->as.text.n == 0 ||
            pch_has(adapter, module, true) || !pch_has(map, module, false))
            continue;
        return ckpt_fail(err, CKPT_EMISSING,
                         "%s: has no tensor of %.200s, which modules_to_save in %s names: a part "
                         "of the adapter is missing; copy the whole adapter",
                         path, module->as.text.at, c->path);
    }
    return CKPT_OK;
}

int ckpt_peft_chosen(ckpt_map *map, const ckpt_map *adapter, const ckpt_peft_config *config,
                     const char *path, ckpt_err *err)
{
    assert(map && adapter && config && path);
    int rc = pch_saved(map, adapter, config, path, err);

    // a tied head gets updates of its own, and parameters are not modules
    if (rc == CKPT_OK && !config->tying && ckpt_value_seq(config->parameters).n == 0)
        rc = pch_others(map, adapter, config, path, err);
    return rc;
}
