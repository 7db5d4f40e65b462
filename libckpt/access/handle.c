/* SPDX-License-Identifier: Apache-2.0 */
/*
 * handle.c: implements the public look-up functions of maps; results are borrowed, nothing is
 * allocated.
 */
#include <string.h>

#include "ckpt_extra.h"
#include "libckpt/base/dtype.h"
#include "libckpt/base/opts.h"
#include "libckpt/format.h"

const char *ckpt_version(void)
{
    return CKPT_VERSION;
}

unsigned ckpt_dtype_bits(ckpt_dtype d)
{
    return ckpt_dtype_get(d)->bits;
}

unsigned ckpt_dtype_block(ckpt_dtype d, unsigned *bytes)
{
    if (bytes)
        *bytes = ckpt_dtype_get(d)->bytes;
    return ckpt_dtype_get(d)->per;
}

/* Store a result unless the caller passed NULL for it. */
#define HANDLE_PUT(to, value)                                                                      \
    do {                                                                                           \
        if (to)                                                                                    \
            *(to) = (value);                                                                       \
    } while (0)

const char *ckpt_map_path(const ckpt_map *map)
{
    return map ? map->path : NULL;
}

const char *ckpt_map_format(const ckpt_map *map)
{
    return map ? map->format : NULL;
}

unsigned ckpt_map_used_options(const ckpt_map *map)
{
    return map ? map->effects : 0;
}

size_t ckpt_map_tensor_count(const ckpt_map *map)
{
    return map ? map->tensors.n : 0;
}

const ckpt_tensor *ckpt_map_tensor_at(const ckpt_map *map, size_t i)
{
    return map && i < map->tensors.n ? map->tensors.at[i] : NULL;
}

const ckpt_tensor *ckpt_map_find(const ckpt_map *map, const char *name)
{
    size_t i = map && name ? ckpt_map_index(map, name, strlen(name)) : SIZE_MAX;

    return i == SIZE_MAX ? NULL : map->tensors.at[i];
}

uint64_t ckpt_tensor_bytes(const ckpt_tensor *t)
{
    uint64_t n = 0;

    return t && ckpt_dtype_bytes(t->dtype, t->n_elems, &n) ? n : 0;
}

size_t ckpt_map_file_count(const ckpt_map *map)
{
    return map ? map->files.n : 0;
}

const char *ckpt_map_file_path(const ckpt_map *map, size_t i)
{
    return map && i < map->files.n ? map->files.at[i].path : NULL;
}

uint64_t ckpt_map_file_size(const ckpt_map *map, size_t i)
{
    return map && i < map->files.n ? map->files.at[i].size : 0;
}

const char *ckpt_map_output_dir(const ckpt_map *map)
{
    return map ? map->into : NULL;
}

const char *ckpt_map_output_folder(const ckpt_map *map)
{
    return map ? map->folder : NULL;
}

const char *ckpt_map_output_pointer(const ckpt_map *map)
{
    return map ? map->pointer : NULL;
}

size_t ckpt_map_fact_count(const ckpt_map *map)
{
    return map ? map->facts.n : 0;
}

bool ckpt_map_fact_at(const ckpt_map *map, size_t i, const char **key, const char **text,
                      bool *is_number)
{
    if (!map || i >= map->facts.n)
        return false;
    HANDLE_PUT(key, map->facts.at[i].key);
    HANDLE_PUT(text, map->facts.at[i].text);
    HANDLE_PUT(is_number, map->facts.at[i].is_number);
    return true;
}

void ckpt_map_training_info(const ckpt_map *map, ckpt_training_info *out)
{
    static const ckpt_training_info nothing = {.size = sizeof nothing, .stage = -1, .step = -1};

    ckpt_opts_give(out, map ? &map->known : &nothing, sizeof nothing);
}

size_t ckpt_map_finding_count(const ckpt_map *map)
{
    return map ? map->findings.n : 0;
}

bool ckpt_map_finding_at(const ckpt_map *map, size_t i, int *severity, int *code, const char **text)
{
    if (!map || i >= map->findings.n)
        return false;
    HANDLE_PUT(severity, (int)map->findings.at[i].severity);
    HANDLE_PUT(code, map->findings.at[i].code);
    HANDLE_PUT(text, map->findings.at[i].text);
    return true;
}

size_t ckpt_map_metadata_count(const ckpt_map *map)
{
    return map ? map->metadata.n : 0;
}

bool ckpt_map_metadata_at(const ckpt_map *map, size_t i, const char **key, const char **text)
{
    if (!map || i >= map->metadata.n)
        return false;
    HANDLE_PUT(key, map->metadata.at[i].key->as.text.at);
    HANDLE_PUT(text, map->metadata.at[i].value->as.text.at);
    return true;
}

const ckpt_extent *ckpt_tensor_extent(const ckpt_tensor *t, uint32_t i, ckpt_box *room)
{
    return t && room && i < t->n_extents ? ckpt_extent_of(t, i, room) : NULL;
}

bool ckpt_map_locate(const ckpt_map *map, const ckpt_extent *e, const char **path,
                     const char **record, uint64_t *at)
{
    if (!map || !e || e->source >= map->sources.n)
        return false;
    const ckpt_source *s = &map->sources.at[e->source];
    HANDLE_PUT(path, s->kind == CKPT_SOURCE_FILE ? map->files.at[s->file].path : NULL);
    HANDLE_PUT(record, s->name);
    HANDLE_PUT(at,
               s->kind == CKPT_SOURCE_FILE && s->coding == CKPT_RAW ? s->at + e->at : UINT64_MAX);
    return true;
}
