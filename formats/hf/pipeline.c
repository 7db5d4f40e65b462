/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pipeline.c: reads a pipeline of diffusers, a folder with one model folder for each component.
 *
 * model_index.json names the class of the pipeline and of its components (diffusers 0.42,
 * pipelines/pipeline_utils.py); null stands for an optional component that is absent:
 *
 *     {"_class_name": "StableDiffusionPipeline", "unet": ["diffusers", "UNet2DConditionModel"],
 *      "scheduler": ["diffusers", "PNDMScheduler"], "safety_checker": [null, null]}
 *
 * A tensor's name is that of its component, a slash, and its name there: unet/conv_in.weight.
 */
#include <assert.h>
#include <string.h>

#include "formats/hf/hf.h"
#include "libckpt/codec/json/json.h"
#include "libckpt/map/adopt.h"

#define PL_INDEX "model_index.json"
#define PL_MAX   (UINT64_C(4) << 20) /* bytes of the index */

/* ckpt_directory.probe */
static int pln_probe(const ckpt_listing *list)
{
    return ckpt_listing_has(list, PL_INDEX, false) ? 90 : 0;
}

/* ckpt_directory.part: the index is no model */
static int pln_part(const char *file_name)
{
    return strcmp(file_name, PL_INDEX) == 0 ? 2 : 0;
}

/* True for classes without weights, by the ends of their names; others are models. */
static bool pln_is_plain(const char *name)
{
    static const char *const ends[] = {"Scheduler",       "Tokenizer",     "TokenizerFast",
                                       "Processor",       "ProcessorFast", "ImageProcessorPil",
                                       "FeatureExtractor"};
    const size_t n = strlen(name);

    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        const size_t m = strlen(ends[i]);

        if (n >= m && strcmp(name + n - m, ends[i]) == 0)
            return true;
    }
    return false;
}

/* The class of a component; NULL: the pair is none, or the component is absent. */
static const char *pln_class(const ckpt_pair *p)
{
    const ckpt_seq pair = ckpt_value_seq(p->value);

    if (pair.n != 2 || pair.at[1]->kind != CKPT_V_STR)
        return NULL;
    return pair.at[1]->as.text.at;
}

/*
 * Refuse a component whose value is no pair of texts and no pair of nulls.  A list or text is a
 * setting of the pipeline unless it has the form of a pair or the name of a folder.
 */
static int pln_check(const ckpt_listing *list, const ckpt_pair *p, ckpt_err *err)
{
    const char *name = p->key->as.text.at;
    const ckpt_seq pair = ckpt_value_seq(p->value);
    const bool text = p->value->kind == CKPT_V_STR;
    const bool full = pair.n == 2 && pair.at[0]->kind == CKPT_V_STR && pln_class(p);
    const bool none =
        pair.n == 2 && pair.at[0]->kind == CKPT_V_NONE && pair.at[1]->kind == CKPT_V_NONE;
    const bool half = pair.n == 2 && !full && !none &&
                      (pair.at[0]->kind == CKPT_V_STR || pair.at[1]->kind == CKPT_V_STR);

    if (name[0] == '_' || full || none || (!text && pair.n == 0))
        return CKPT_OK;
    if (!half && !ckpt_listing_has(list, name, true))
        return CKPT_OK;
    return ckpt_fail(err, CKPT_EFORMAT,
                     "%s/" PL_INDEX
                     ": \"%.100s\": expected the library and the class of a component, or "
                     "null for both",
                     list->folder, name);
}

/* True if a component's folder is read. */
static bool pln_takes(const ckpt_pair *p)
{
    const char *class = pln_class(p);

    return class && p->key->as.text.at[0] != '_' && !pln_is_plain(class);
}

/* Name a subfolder if it has weights that no component took. */
static int pln_left(ckpt_map *map, const ckpt_listing *list, const ckpt_value *root,
                    const char *name, ckpt_err *err)
{
    const char *folder = ckpt_path_join(map->arena, list->folder, name), *found = NULL;
    ckpt_listing own = {0};
    int rc = folder ? CKPT_OK : ckpt_fail_memory(err);

    for (uint64_t i = 0; i < root->as.map.n; i++) {
        if (ckpt_value_is(root->as.map.at[i].key, name) && pln_takes(&root->as.map.at[i]))
            return CKPT_OK;
    }
    if (rc == CKPT_OK)
        rc = ckpt_listing_read(&own, map, folder, err);
    for (size_t i = 0; rc == CKPT_OK && !found && i < own.n; i++) {
        const char *end = own.entry[i].is_dir ? NULL : strrchr(own.entry[i].name, '.');

        if (end && (strcmp(end, ".safetensors") == 0 || strcmp(end, ".bin") == 0))
            found = own.entry[i].name;
    }
    if (rc == CKPT_OK && found)
        rc = ckpt_map_note(map, CKPT_WARNING, err,
                           "%s/%s is not read, because " PL_INDEX
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

/* Add a component that the index lists. */
static int pln_component(ckpt_map *map, const ckpt_listing *list, const ckpt_pair *p,
                         const ckpt_open_opts *opts, ckpt_err *err)
{
    const char *name = p->key->as.text.at, *class = pln_class(p), *folder, *prefix;
    ckpt_map *child = NULL;
    size_t n = map->tensors.n;
    int rc;

    rc = pln_check(list, p, err);
    // names of the pipeline's own settings begin so
    if (rc != CKPT_OK || !class || name[0] == '_')
        return rc;
    if (!ckpt_path_part_ok(name, p->key->as.text.n))
        return ckpt_fail(err, CKPT_EFORMAT, "%s/" PL_INDEX ": \"%.100s\" is not a folder's name",
                         list->folder, name);
    if (!ckpt_listing_has(list, name, true))
        return ckpt_map_problem(map, CKPT_EMISSING, err,
                                "%s: the component %.100s (%.100s) is missing, but " PL_INDEX
                                " lists it: copy its folder",
                                list->folder, name, class);
    if (!pln_takes(p))
        return CKPT_OK;
    folder = ckpt_path_join(map->arena, list->folder, name);
    prefix = ckpt_arena_printf(map->arena, "%s/", name);
    if (!folder || !prefix)
        return ckpt_fail_memory(err);
    rc = pln_read(&child, map, list, folder, opts, err);
    if (rc == CKPT_OK) {
        rc = ckpt_map_adopt(map, child, prefix, err);
        if (rc != CKPT_OK)
            ckpt_map_free(child);
        else if (child->known.quantized) // the map has no config.json for it
            rc = pln_quantized(map, name, folder, child->known.quantized, err);
    }
    return rc == CKPT_OK
               ? ckpt_map_fact(map, err, name, "%.100s, %zu tensors", class, map->tensors.n - n)
               : rc;
}

/* Read the index; the tree lives in the map's arena. */
static int pln_index(const ckpt_value **out, ckpt_map *map, const ckpt_listing *list, ckpt_err *err)
{
    const char *path = ckpt_path_join(map->arena, list->folder, PL_INDEX);
    ckpt_value *root = NULL;
    int rc = path ? ckpt_json_read(&root, map->arena, path, PL_MAX, err) : ckpt_fail_memory(err);

    if (rc == CKPT_OK && root->kind != CKPT_V_DICT)
        rc = ckpt_fail(err, CKPT_EFORMAT, "%s: expected a dict of components", path);
    *out = root;
    return rc;
}

/* ckpt_directory.gather */
static int pln_gather(ckpt_map *map, const ckpt_listing *list, const ckpt_open_opts *opts,
                      ckpt_err *err)
{
    assert(map && list && list->read);
    const ckpt_value *root = NULL, *class;
    int rc = pln_index(&root, map, list, err);

    if (rc != CKPT_OK)
        return rc;
    class = ckpt_value_get(root, "_class_name");
    if (class && class->kind == CKPT_V_STR)
        rc = ckpt_map_fact(map, err, "pipeline", "%.200s", class->as.text.at);
    for (uint64_t i = 0; rc == CKPT_OK && i < root->as.map.n; i++)
        rc = pln_component(map, list, &root->as.map.at[i], opts, err);
    for (size_t i = 0; rc == CKPT_OK && i < list->n; i++) {
        if (list->entry[i].is_dir && list->entry[i].name[0] != '.')
            rc = pln_left(map, list, root, list->entry[i].name, err);
    }
    if (rc == CKPT_OK && map->tensors.n == 0)
        rc = ckpt_map_problem(map, CKPT_EMISSING, err,
                              "%s/" PL_INDEX " lists no component with weights", list->folder);
    return rc;
}

const ckpt_directory ckpt_directory_pipeline = {
    .is =
        {
            .name = CKPT_HF_PIPELINE,
            .signs = "model_index.json (diffusers)",
            .note = "diffusers pipeline: reads the model folders of its components",
            .caps = CKPT_CAN_READ | CKPT_IS_FOLDER,
        },
    .probe = pln_probe,
    .gather = pln_gather,
    .part = pln_part,
};
