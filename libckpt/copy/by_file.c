/* SPDX-License-Identifier: Apache-2.0 */
/*
 * by_file.c: groups sources with a counting sort.
 */
#include <assert.h>

#include "libckpt/base/mem.h"
#include "libckpt/copy/by_file.h"

int ckpt_by_file(uint32_t **source, size_t **first, const ckpt_map *map, ckpt_err *err)
{
    assert(source && first && map);
    size_t n = map->files.n, *next;

    *source = ckpt_alloc((map->sources.n + 1) * sizeof **source);
    *first = ckpt_alloc((n + 2) * sizeof **first);
    if (!*source || !*first)
        return ckpt_fail_memory(err);
    // Counts are stored two places ahead, so that after the sum each group's start is one place
    // ahead; filling the groups then moves each start to its place.
    next = *first + 1;
    for (size_t i = 0; i < map->sources.n; i++) {
        const ckpt_source *s = &map->sources.at[i];

        if (s->kind == CKPT_SOURCE_FILE && s->file + 1 < n)
            next[s->file + 1]++;
    }
    for (size_t i = 1; i < n; i++)
        next[i] += next[i - 1];
    for (size_t i = 0; i < map->sources.n; i++) {
        const ckpt_source *s = &map->sources.at[i];

        if (s->kind == CKPT_SOURCE_FILE && s->file < n)
            (*source)[next[s->file]++] = (uint32_t)i;
    }
    return CKPT_OK;
}
