/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pipeline.c: reads a pipeline of diffusers, a folder with one model folder for each component.
 * Quantized weights of components are dequantized.
 */
#include <assert.h>
#include <string.h>

#include "ckpt_shape.h"
#include "formats/hf/hf.h"
#include "formats/hf/pipeline.h"
#include "libckpt/map/adopt.h"

/* ckpt_directory.probe */
static int pln_probe(const ckpt_listing *list)
{
    return ckpt_listing_has(list, CKPT_PIPELINE_INDEX, false) ? 90 : 0;
}

/* ckpt_directory.part: the index is no model */
static int pln_part(const char *file_name)
{
    return strcmp(file_name, CKPT_PIPELINE_INDEX) == 0 ? 2 : 0;
}

/* Name a subfolder if it has weights that no component took. */
static int pln_left(ckpt_map *map, const ckpt_listing *list, const ckpt_pipeline_parts *parts,
                    const char *name, ckpt_err *err)
{
    const ckpt_pipeline_part *part = ckpt_pipeline_find(parts, name);
    const char *folder = ckpt_path_join(map->arena, list->folder, name), *found = NULL;
    ckpt_listing own = {0};
    int rc = folder ? CKPT_OK : ckpt_fail_memory(err);

    if (part && !part->plain)
        return CKPT_OK;
    if (rc == CKPT_OK)
        rc = ckpt_listing_read(&own, map, folder, err);
    for (size_t i = 0; rc == CKPT_OK && !found && i < own.n; i++) {
        const char *end = own.entry[i].is_dir ? NULL : strrchr(own.entry[i].name, '.');

        if (end && (strcmp(end, ".safetensors") == 0 || strcmp(end, ".bin") == 0))
            found = own.entry[i].name;
    }
    if (rc == CKPT_OK && found)
        rc = ckpt_map_note(map, CKPT_WARNING, err,
                           "%s/%s is not read, because " CKPT_PIPELINE_INDEX
                           " lists no component with weights of the name %.100s: open that folder "
                           "alone",
                           folder, found, name);
    return rc;
}

/* Read a component's folder into a map of its own. */
static int pln_read(ckpt_map **out, ckpt_map *map, const ckpt_listing *list, const char *folder,
                    const ckpt_open_opts *opts, ckpt_err *err)
{
    ckpt_map *child = NULL;
    ckpt_listing own;
    int rc = ckpt_map_create(&child, 0, err);

    if (rc == CKPT_OK) {
        child->path = folder;
        child->collect = map->collect;
        rc = ckpt_listing_read(&own, child, folder, err);
    }
    if (rc == CKPT_OK) {
        own.read = list->read;
        rc = ckpt_directory_hf.gather(child, &own, opts, err);
    }
    if (rc != CKPT_OK) {
        ckpt_map_free(child);
        child = NULL;
    }
    *out = child;
    return rc;
}

/* Remember that a component's weights are quantized. */
static int pln_quantized(ckpt_map *map, const char *name, const char *folder, const char *how,
                         ckpt_err *err)
{
    map->quantized_part = map->quantized_part ? map->quantized_part : folder;
    return ckpt_map_fact(map, err, "quantized", "%.100s, %.100s", name, how);
}

/* The text of a fact; NULL: the map has none of that key. */
static const char *pln_fact(const ckpt_map *map, const char *key)
{
    for (size_t i = 0; i < map->facts.n; i++) {
        if (strcmp(map->facts.at[i].key, key) == 0)
            return map->facts.at[i].text;
    }
    return NULL;
}

/*
 * Make floats of a component's quantized weights, because the pipeline has no config.json to say
 * how they are stored. Kinds that cannot be dequantized stay, and the map remembers the component.
 */
static int pln_floats(ckpt_map *map, ckpt_map *child, const char *name, const char *folder,
                      ckpt_err *err)
{
    ckpt_err own = {0};
    int rc;

    if (!child->known.quantized && !child->wrapped)
        return CKPT_OK;
    rc = ckpt_map_dequantize(child, false, &own);
    if (rc == CKPT_OK) {
        const char *how = pln_fact(child, "dequantized");

        return how ? ckpt_map_fact(map, err, "dequantized", "%.100s, %.200s", name, how) : CKPT_OK;
    }
    if (rc == CKPT_EUNSUPPORTED && !child->wrapped)
        return pln_quantized(map, name, folder, child->known.quantized, err);
    child->wrapped = false; // reported here
    return ckpt_map_problem(map, rc, err, "%s", own.text);
}

/* Add a component that the index lists. */
static int pln_component(ckpt_map *map, const ckpt_listing *list, const ckpt_pipeline_part *part,
                         const ckpt_open_opts *opts, ckpt_err *err)
{
    const char *name = part->name, *folder, *prefix;
    ckpt_map *child = NULL;
    size_t n = map->tensors.n;
    int rc;

    if (!ckpt_listing_has(list, name, true))
        return ckpt_pipeline_missing(map, list->folder, part, err);
    if (part->plain)
        return CKPT_OK;
    folder = ckpt_path_join(map->arena, list->folder, name);
    prefix = ckpt_arena_printf(map->arena, "%s/", name);
    if (!folder || !prefix)
        return ckpt_fail_memory(err);
    rc = pln_read(&child, map, list, folder, opts, err);
    if (rc == CKPT_OK) {
        rc = pln_floats(map, child, name, folder, err);
        if (rc == CKPT_OK)
            rc = ckpt_map_adopt(map, child, prefix, err);
        if (rc != CKPT_OK)
            ckpt_map_free(child);
    }
    return rc == CKPT_OK ? ckpt_map_fact(map, err, name, "%.100s, %zu tensors", part->class,
                                         map->tensors.n - n)
                         : rc;
}

/* ckpt_directory.gather */
static int pln_gather(ckpt_map *map, const ckpt_listing *list, const ckpt_open_opts *opts,
                      ckpt_err *err)
{
    assert(map && list && list->read);
    const ckpt_value *root = NULL, *class = NULL;
    ckpt_pipeline_parts parts = {0};
    int rc = ckpt_pipeline_read(&parts, &root, map->arena, list, err);

    if (rc == CKPT_OK)
        class = ckpt_value_get(root, "_class_name");
    if (class && class->kind == CKPT_V_STR)
        rc = ckpt_map_fact(map, err, "pipeline", "%.200s", class->as.text.at);
    for (size_t i = 0; rc == CKPT_OK && i < parts.n; i++)
        rc = pln_component(map, list, &parts.at[i], opts, err);
    for (size_t i = 0; rc == CKPT_OK && i < list->n; i++) {
        if (list->entry[i].is_dir && list->entry[i].name[0] != '.')
            rc = pln_left(map, list, &parts, list->entry[i].name, err);
    }
    if (rc == CKPT_OK && map->tensors.n == 0)
        rc = ckpt_map_problem(map, CKPT_EMISSING, err,
                              "%s/" CKPT_PIPELINE_INDEX " lists no component with weights",
                              list->folder);
    ckpt_vec_free(&parts);
    return rc;
}

const ckpt_directory ckpt_directory_pipeline = {
    .is =
        {
            .name = CKPT_PIPELINE_NAME,
            .signs = "model_index.json (diffusers)",
            .note = "diffusers pipeline: reads the model folders of its components",
            .caps = CKPT_CAN_READ | CKPT_IS_FOLDER,
        },
    .probe = pln_probe,
    .gather = pln_gather,
    .part = pln_part,
};
