/* SPDX-License-Identifier: Apache-2.0 */
/*
 * handle.c: what callers may ask of a map: the public look-ups, all borrowed, none allocating.
 */
#include <string.h>

#include "libckpt/base/dtype.h"
#include "libckpt/format.h"

const char *ckpt_version(void)
{
    return CKPT_VERSION;
}

unsigned ckpt_dtype_bits(ckpt_dtype d)
{
    return ckpt_dtype_get(d)->bits;
}

const char *ckpt_map_path(const ckpt_map *map)
{
    return map->path;
}

const char *ckpt_map_format(const ckpt_map *map)
{
    return map->format;
}

unsigned ckpt_map_effects(const ckpt_map *map)
{
    return map->effects;
}

size_t ckpt_map_count(const ckpt_map *map)
{
    return map->tensors.n;
}

const ckpt_tensor *ckpt_map_tensor(const ckpt_map *map, size_t i)
{
    return i < map->tensors.n ? map->tensors.at[i] : NULL;
}

const ckpt_tensor *ckpt_map_find(const ckpt_map *map, const char *name)
{
    size_t i = ckpt_map_index(map, name, strlen(name));

    return i == SIZE_MAX ? NULL : map->tensors.at[i];
}

uint64_t ckpt_tensor_bytes(const ckpt_tensor *t)
{
    uint64_t n = 0;

    return ckpt_dtype_bytes(t->dtype, t->n_elems, &n) ? n : 0;
}

size_t ckpt_map_n_files(const ckpt_map *map)
{
    return map->files.n;
}

const char *ckpt_map_file_path(const ckpt_map *map, size_t i)
{
    return i < map->files.n ? map->files.at[i].path : NULL;
}

uint64_t ckpt_map_file_size(const ckpt_map *map, size_t i)
{
    return i < map->files.n ? map->files.at[i].size : 0;
}

const char *ckpt_map_folder(const ckpt_map *map)
{
    return map->folder;
}

const char *ckpt_map_pointer(const ckpt_map *map)
{
    return map->pointer;
}

bool ckpt_map_fact_at(const ckpt_map *map, size_t i, const char **key, const char **text,
                      bool *is_number)
{
    if (i >= map->facts.n)
        return false;
    *key = map->facts.at[i].key;
    *text = map->facts.at[i].text;
    *is_number = map->facts.at[i].is_number;
    return true;
}

bool ckpt_map_finding_at(const ckpt_map *map, size_t i, int *severity, int *code, const char **text)
{
    if (i >= map->findings.n)
        return false;
    *severity = (int)map->findings.at[i].severity;
    *code = map->findings.at[i].code;
    *text = map->findings.at[i].text;
    return true;
}

bool ckpt_map_metadata_at(const ckpt_map *map, size_t i, const char **key, const char **text)
{
    if (i >= map->metadata.n)
        return false;
    *key = map->metadata.at[i].key->as.text.at;
    *text = map->metadata.at[i].value->as.text.at;
    return true;
}

bool ckpt_map_where(const ckpt_map *map, const ckpt_extent *e, const char **path,
                    const char **record, uint64_t *at)
{
    if (e->source >= map->sources.n)
        return false;
    const ckpt_source *s = &map->sources.at[e->source];
    *path = s->kind == CKPT_SOURCE_FILE ? map->files.at[s->file].path : NULL;
    *record = s->name;
    *at = s->kind == CKPT_SOURCE_FILE && s->coding == CKPT_RAW ? s->at + e->at : UINT64_MAX;
    return true;
}
