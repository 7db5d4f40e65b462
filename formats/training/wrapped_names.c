/* SPDX-License-Identifier: Apache-2.0 */
/*
 * wrapped_names.c: gives weights the names that the optimizer has for them, where only wrappers
 * differ.
 *
 * A program may wrap the model and not what it gives to the optimizer (DistributedDataParallel's
 * "module.", torch.compile's "_orig_mod."), or the other way round.  Groups and moments use the
 * optimizer's names, so the weights get these.
 */
#include <assert.h>
#include <string.h>

#include "formats/training/wrapped_names.h"
#include "libckpt/base/index.h"
#include "libckpt/map/map.h"
#include "libckpt/map/whole.h"

typedef struct dnm_work {
    ckpt_map *map;
    ckpt_index index;  /* of `bare` */
    const char **bare; /* by tensor of the map: its name without wrappers; NULL: no weight */
    size_t n_renamed;
    /*
     * how the names of the renamed weights changed, for those that the optimizer does not train:
     * wrappers vanished, or this prefix was added
     */
    bool to_bare;
    const char *prefix;
    ckpt_err *err;
} dnm_work;

static bool dnm_same(const void *ctx, uint32_t number, const void *key)
{
    const dnm_work *w = ctx;

    return strcmp(w->bare[number], key) == 0;
}

static char *dnm_bare(const dnm_work *w, const char *name)
{
    char *bare = ckpt_arena_alloc(w->map->arena, strlen(name) + 1);

    if (bare)
        ckpt_wrapper_bare(bare, name);
    return bare;
}

/* Index the weights by their names without wrappers; false: no memory. */
static bool dnm_index(dnm_work *w)
{
    size_t n = w->map->tensors.n;
    bool ok;

    if (w->bare)
        return true;
    w->bare = ckpt_arena_array(w->map->arena, n + 1, sizeof *w->bare);
    ok = w->bare != NULL;
    for (size_t i = 0; ok && i < n; i++) {
        const ckpt_tensor *t = w->map->tensors.at[i];
        if (t->role == CKPT_ROLE_STATE || t->role == CKPT_ROLE_OTHER)
            continue;
        w->bare[i] = dnm_bare(w, t->name);
        uint32_t hash = w->bare[i] ? ckpt_hash_bytes(w->bare[i], strlen(w->bare[i]), 0) : 0;
        ok = w->bare[i] != NULL;
        // of two weights with one bare name, the first gets the optimizer's name
        if (ok && ckpt_index_find(&w->index, hash, dnm_same, w, w->bare[i]) == CKPT_INDEX_NONE)
            ok = ckpt_index_add(&w->index, hash, (uint32_t)i);
    }
    return ok;
}

/* Rename the weight of a parameter that the map lacks under the optimizer's name. */
static int dnm_param(dnm_work *w, const char *name, size_t n)
{
    const char *full;

    if (ckpt_map_index(w->map, name, n) != SIZE_MAX)
        return CKPT_OK;
    full = ckpt_arena_string(w->map->arena, name, n);
    const char *bare = full && dnm_index(w) ? dnm_bare(w, full) : NULL;
    if (!bare)
        return ckpt_fail_memory(w->err);
    uint32_t at =
        ckpt_index_find(&w->index, ckpt_hash_bytes(bare, strlen(bare), 0), dnm_same, w, bare);
    if (at == CKPT_INDEX_NONE)
        return CKPT_OK;
    ckpt_tensor *t = w->map->tensors.at[at];
    size_t n_old = strlen(t->name);
    if (strcmp(full, bare) == 0)
        w->to_bare = true;
    else if (n > n_old && strcmp(full + n - n_old, t->name) == 0)
        w->prefix = ckpt_arena_string(w->map->arena, full, n - n_old);
    t->name = full;
    w->n_renamed++;
    return CKPT_OK;
}

/*
 * Rename buffers and frozen weights, which the optimizer does not name, in the same way as the
 * trained weights: wrappers are removed, or the prefix is added.
 */
static int dnm_others(dnm_work *w)
{
    for (size_t i = 0; i < w->map->tensors.n; i++) {
        ckpt_tensor *t = w->map->tensors.at[i];
        const char *name = w->bare[i] && w->to_bare ? w->bare[i] : NULL;

        if (w->bare[i] && !w->to_bare && w->prefix &&
            strncmp(t->name, w->prefix, strlen(w->prefix)) != 0) {
            name = ckpt_arena_printf(w->map->arena, "%s%s", w->prefix, t->name);
            if (!name)
                return ckpt_fail_memory(w->err);
        }
        // the name of another tensor stays that tensor's
        if (name && ckpt_map_index(w->map, name, strlen(name)) == SIZE_MAX)
            t->name = name;
    }
    return CKPT_OK;
}

/* Go through the groups' lists, or the keys "param_groups.<parameter>.<setting>" of a flat dict. */
static int dnm_params(dnm_work *w, const ckpt_value *optimizer)
{
    static const char flat[] = "param_groups.";
    ckpt_seq groups = ckpt_value_seq(ckpt_value_get(optimizer, "param_groups"));
    ckpt_dict all = ckpt_value_map(optimizer);
    int rc = CKPT_OK;

    for (uint64_t g = 0; g < groups.n; g++) {
        ckpt_seq params = ckpt_value_seq(ckpt_value_get(groups.at[g], "params"));
        for (uint64_t i = 0; rc == CKPT_OK && i < params.n; i++) {
            if (params.at[i]->kind == CKPT_V_STR)
                rc = dnm_param(w, params.at[i]->as.text.at, (size_t)params.at[i]->as.text.n);
        }
    }
    for (uint64_t i = 0; rc == CKPT_OK && groups.n == 0 && i < all.n; i++) {
        const char *key = all.at[i].key->kind == CKPT_V_STR ? all.at[i].key->as.text.at : "",
                   *dot = strrchr(key, '.');
        if (strncmp(key, flat, sizeof flat - 1) != 0)
            continue;
        const char *name = key + sizeof flat - 1;
        if (dot > name)
            rc = dnm_param(w, name, (size_t)(dot - name));
    }
    return rc;
}

int ckpt_train_wrapped_names(ckpt_map *map, const ckpt_value *optimizer, ckpt_err *err)
{
    assert(map && optimizer);
    dnm_work w = {.map = map, .err = err};
    int rc = dnm_params(&w, optimizer);

    if (rc == CKPT_OK && w.n_renamed > 0)
        rc = dnm_others(&w);
    ckpt_index_free(&w.index);
    if (rc != CKPT_OK || w.n_renamed == 0)
        return rc;
    return ckpt_map_reindex(map, err);
}
