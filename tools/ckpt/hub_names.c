/* SPDX-License-Identifier: Apache-2.0 */
/* hub_names.c: applies the table of transformers' names, in either direction. */
#include "tools/ckpt/hub_names.h"

#include <string.h>

static bool hn_is_table(const cli_map_text *t)
{
    return strcmp(t->side[0], "hf") == 0 && strcmp(t->side[1], "packed") == 0;
}

/* Find the table that fits, and apply it unless `only` is set. */
static int hn_ask(ckpt_map *map, const hub_source *from, hub_way way, bool only, bool *fits,
                  ckpt_err *err)
{
    const ckpt_remap_opts opts = {.size = sizeof opts,
                                  .backwards = way == HUB_TO_FILES,
                                  .config_text = from->config_text,
                                  .config_name = from->config_name};
    cli_maps own = {0};
    const cli_maps *maps = from->maps ? from->maps : &own;
    int rc = from->maps ? CKPT_OK : maps_read(&own, NULL, err);

    *fits = false;
    for (size_t i = 0; rc == CKPT_OK && !*fits && i < maps->n; i++) {
        ckpt_remap *r;

        if (!hn_is_table(&maps->at[i]))
            continue;
        r = maps_use(&maps->at[i], err);
        rc = r ? ckpt_remap_matches(map, r, &opts, fits, err) : err->code;
        if (rc == CKPT_OK && *fits && !only)
            rc = ckpt_map_remap(map, r, &opts, err);
    }
    maps_free(&own);
    return rc;
}

hub_source hub_source_of(const write_args *a)
{
    // if the user names a map, a->maps contains only that map
    return (hub_source){.maps = a->own_map ? &a->maps : NULL,
                        .config_text = a->config_text,
                        .config_name = a->config};
}

int hub_rename(ckpt_map *map, const hub_source *from, hub_way way, bool *did, ckpt_err *err)
{
    return hn_ask(map, from, way, false, did, err);
}

int hub_rename_like(ckpt_map *folder, ckpt_map *other, const hub_source *from, bool *did,
                    ckpt_err *err)
{
    bool in_memory = false;
    int rc = hn_ask(folder, from, HUB_TO_FILES, true, &in_memory, err);

    *did = false;
    if (rc == CKPT_OK && !in_memory)
        rc = ckpt_map_set_model_folder(other, ckpt_map_path(folder), err);
    return rc == CKPT_OK && !in_memory ? hub_rename(other, from, HUB_TO_FILES, did, err) : rc;
}

/*
 * True if a tensor of the base has this name, of n bytes, before `end`.  The name's first part may
 * be missing in the base, and the base's name may have more parts before it.
 */
static bool hn_has(const ckpt_map *base, const char *name, size_t n, const char *end)
{
    const char *dot = memchr(name, '.', n);
    size_t bare = dot ? n - (size_t)(dot + 1 - name) : n, n_end = strlen(end);

    for (size_t i = 0; i < ckpt_map_tensor_count(base); i++) {
        const char *t = ckpt_map_tensor_at(base, i)->name;
        size_t m = strlen(t);

        if (m <= n_end || strcmp(t + m - n_end, end) != 0)
            continue;
        m -= n_end;
        if ((m == bare && memcmp(t, name + n - bare, bare) == 0) ||
            (m >= n && memcmp(t + m - n, name, n) == 0 && (m == n || t[m - n - 1] == '.')))
            return true;
    }
    return false;
}

/* True if the base has the tensor that an adapter's tensor changes or replaces. */
static bool hn_has_target(const ckpt_map *base, const char *tensor)
{
    static const char prefix[] = "base_model.model.", saved[] = ".modules_to_save.";
    const char *name = tensor + sizeof prefix - 1;

    if (strncmp(tensor, prefix, sizeof prefix - 1) != 0)
        return true;
    const char *pair = strstr(name, ".lora_"), *mark = strstr(name, saved);
    // the matrices of such a module, or its trained copy, are in the file too
    if (!pair && (strstr(name, ".base_layer.") || strstr(name, ".original_module.")))
        return true;
    if (pair)
        return pair == name || hn_has(base, name, (size_t)(pair - name), ".weight");
    // a training run has the adapter's name after the mark
    if (mark) {
        const char *end = strrchr(mark, '.');
        return hn_has(base, name, (size_t)(mark - name), end);
    }
    return hn_has(base, name, strlen(name), "");
}

bool hub_misses(const ckpt_map *base, const char *adapter)
{
    ckpt_map *map = NULL;
    bool misses = false;

    if (ckpt_open(&map, adapter, NULL, NULL) != CKPT_OK)
        return false;
    for (size_t i = 0; !misses && i < ckpt_map_tensor_count(map); i++)
        misses = !hn_has_target(base, ckpt_map_tensor_at(map, i)->name);
    ckpt_map_free(map);
    return misses;
}

hub_adapter hub_adapter_of(const ckpt_map *map)
{
    bool live = false, base = false, file = false, wrapped = false;

    for (size_t i = 0; i < ckpt_map_tensor_count(map); i++) {
        const char *name = ckpt_map_tensor_at(map, i)->name, *at = strstr(name, ".lora_A.");

        const char *table = strstr(name, ".lora_embedding_A");

        file = file || (at && strcmp(at, ".lora_A.weight") == 0) ||
               (table && strcmp(table, ".lora_embedding_A") == 0);
        // PEFT puts a changed layer under "base_layer", and the vectors of a prompt in an encoder
        wrapped = wrapped || strstr(name, ".base_layer.weight") ||
                  strncmp(name, "prompt_encoder.", 15) == 0;

        // names end like this in adapter files; a training run puts the adapter's name after
        // ".lora_A"
        live =
            live || (at && strcmp(at, ".lora_A.weight") != 0) || strstr(name, ".lora_embedding_A.");
        base = base || !(strstr(name, ".lora_") || strstr(name, ".modules_to_save."));
    }
    if (!live)
        return wrapped && !file ? HUB_NOT_LORA : HUB_NONE;
    return base ? HUB_WITH_BASE : HUB_ALONE;
}

/* Find the first model folder that has the hub's names; NULL: none. */
static int hn_folder(ckpt_map *const *maps, size_t n, const hub_source *from, ckpt_map **out,
                     ckpt_err *err)
{
    bool in_memory = true;
    int rc = CKPT_OK;

    *out = NULL;
    for (size_t i = 0; rc == CKPT_OK && !*out && i < n; i++) {
        if (strcmp(ckpt_map_format(maps[i]), "hf") != 0)
            continue;
        rc = hn_ask(maps[i], from, HUB_TO_FILES, true, &in_memory, err);
        *out = in_memory ? NULL : maps[i];
    }
    return rc;
}

/* True if the folder has all names of the other model. */
static bool hn_meets(const ckpt_map *map, const ckpt_map *folder)
{
    bool meets = true;

    for (size_t i = 0; meets && i < ckpt_map_tensor_count(map); i++)
        meets = ckpt_map_find(folder, ckpt_map_tensor_at(map, i)->name) != NULL;
    return meets;
}

int hub_meet(ckpt_map *const *maps, size_t n, const hub_source *from, size_t *n_did, ckpt_err *err)
{
    ckpt_map *folder = NULL;
    int rc = hn_folder(maps, n, from, &folder, err);

    *n_did = 0;
    for (size_t i = 0; rc == CKPT_OK && folder && i < n; i++) {
        bool own = strcmp(ckpt_map_format(maps[i]), "hf") == 0, did = false;

        if (maps[i] == folder || hn_meets(maps[i], folder))
            continue;
        // a run has no model configuration, which the table needs, so use the folder's
        if (!own)
            rc = ckpt_map_set_model_folder(maps[i], ckpt_map_path(folder), err);
        if (rc == CKPT_OK)
            rc = hub_rename(maps[i], from, HUB_TO_FILES, &did, err);
        *n_did += did;
    }
    return rc;
}
