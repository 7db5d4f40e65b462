/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pipeline_index.c: reads the list of a pipeline's components.
 */
#include "formats/hf/pipeline.h"

#include <string.h>

#include "libckpt/codec/json/json.h"

#define PLX_MAX (UINT64_C(4) << 20) /* bytes of the index */

/* True for classes without weights, by the ends of their names; others are models. */
static bool plx_is_plain(const char *class)
{
    static const char *const ends[] = {"Scheduler",       "Tokenizer",     "TokenizerFast",
                                       "Processor",       "ProcessorFast", "ImageProcessorPil",
                                       "FeatureExtractor"};
    const size_t n = strlen(class);

    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        const size_t m = strlen(ends[i]);

        if (n >= m && strcmp(class + n - m, ends[i]) == 0)
            return true;
    }
    return false;
}

/* The class of a component; NULL: the pair is none, or the component is absent. */
static const char *plx_class(const ckpt_pair *p)
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
static int plx_check(const ckpt_listing *list, const ckpt_pair *p, ckpt_err *err)
{
    const char *name = p->key->as.text.at;
    const ckpt_seq pair = ckpt_value_seq(p->value);
    const bool text = p->value->kind == CKPT_V_STR;
    const bool full = pair.n == 2 && pair.at[0]->kind == CKPT_V_STR && plx_class(p);
    const bool none =
        pair.n == 2 && pair.at[0]->kind == CKPT_V_NONE && pair.at[1]->kind == CKPT_V_NONE;
    const bool half = pair.n == 2 && !full && !none &&
                      (pair.at[0]->kind == CKPT_V_STR || pair.at[1]->kind == CKPT_V_STR);

    if (full || none || (!text && pair.n == 0))
        return CKPT_OK;
    if (!half && !ckpt_listing_has(list, name, true))
        return CKPT_OK;
    return ckpt_fail(err, CKPT_EFORMAT,
                     "%s/" CKPT_PIPELINE_INDEX
                     ": \"%.100s\": expected the library and the class of a component, or "
                     "null for both",
                     list->folder, name);
}

/* Add an entry to the list if it is a component that must exist. */
static int plx_add(ckpt_pipeline_parts *parts, const ckpt_listing *list, const ckpt_pair *p,
                   ckpt_err *err)
{
    const char *name = p->key->as.text.at, *class = plx_class(p);
    ckpt_pipeline_part *part;
    int rc;

    // names of the pipeline's own settings begin so
    if (name[0] == '_')
        return CKPT_OK;
    rc = plx_check(list, p, err);
    if (rc != CKPT_OK || !class)
        return rc;
    if (!ckpt_path_part_ok(name, p->key->as.text.n))
        return ckpt_fail(err, CKPT_EFORMAT,
                         "%s/" CKPT_PIPELINE_INDEX ": \"%.100s\" is not a folder's name",
                         list->folder, name);
    part = ckpt_vec_push(parts);
    if (!part)
        return ckpt_fail_memory(err);
    *part = (ckpt_pipeline_part){.name = name, .class = class, .plain = plx_is_plain(class)};
    return CKPT_OK;
}

int ckpt_pipeline_read(ckpt_pipeline_parts *parts, const ckpt_value **root, ckpt_arena *arena,
                       const ckpt_listing *list, ckpt_err *err)
{
    const char *path = ckpt_path_join(arena, list->folder, CKPT_PIPELINE_INDEX);
    ckpt_value *tree = NULL;
    int rc = path ? ckpt_json_read(&tree, arena, path, PLX_MAX, err) : ckpt_fail_memory(err);

    if (rc == CKPT_OK && tree->kind != CKPT_V_DICT)
        rc = ckpt_fail(err, CKPT_EFORMAT, "%s: expected a dict of components", path);
    for (uint64_t i = 0; rc == CKPT_OK && i < tree->as.map.n; i++)
        rc = plx_add(parts, list, &tree->as.map.at[i], err);
    *root = tree;
    return rc;
}

const ckpt_pipeline_part *ckpt_pipeline_find(const ckpt_pipeline_parts *parts, const char *name)
{
    for (size_t i = 0; i < parts->n; i++) {
        if (strcmp(parts->at[i].name, name) == 0)
            return &parts->at[i];
    }
    return NULL;
}

bool ckpt_pipeline_is(const ckpt_map *map)
{
    return map->format && strcmp(map->format, CKPT_PIPELINE_NAME) == 0;
}

int ckpt_pipeline_missing(ckpt_map *map, const char *folder, const ckpt_pipeline_part *part,
                          ckpt_err *err)
{
    return ckpt_map_problem(map, CKPT_EMISSING, err,
                            "%s: the component %.100s (%.100s) is missing, but " CKPT_PIPELINE_INDEX
                            " lists it: copy its folder",
                            folder, part->name, part->class);
}
