/* SPDX-License-Identifier: Apache-2.0 */
/*
 * strip.c: removes the prefixes of names that a layout map calls meaningless.
 */
#include <assert.h>
#include <inttypes.h>
#include <string.h>

#include "libckpt/transform/keymap/rule.h"

size_t ckpt_rm_moment(const ckpt_tensor *t)
{
    const char *slash = t->role == CKPT_ROLE_STATE ? strchr(t->name, '/') : NULL;

    return slash ? (size_t)(slash - t->name) + 1 : 0;
}

/* The name without meaningless prefixes; *prefix: the one that replaces the last, or "". */
static const char *stp_bare(const ckpt_remap *r, const char *name, const char **prefix)
{
    bool more = true;

    *prefix = "";
    while (more) {
        more = false;
        for (size_t i = 0; i < r->strip.n; i++) {
            const char *one = r->strip.at[i];
            const bool equal = i + 2 < r->strip.n && strcmp(r->strip.at[i + 1], "=") == 0;
            i += equal ? 2 : 0;
            if (strncmp(name, one, strlen(one)) != 0)
                continue;
            name += strlen(one);
            if (equal) {
                *prefix = r->strip.at[i];
                return name;
            }
            more = true;
        }
    }
    return name;
}

int ckpt_rm_strip(ckpt_map *map, const ckpt_remap *r, ckpt_err *err)
{
    assert(map && r);
    uint64_t n = 0;
    int rc = CKPT_OK;

    for (size_t i = 0; rc == CKPT_OK && i < map->tensors.n; i++) {
        ckpt_tensor *t = map->tensors.at[i];
        size_t moment = ckpt_rm_moment(t);
        const char *prefix, *bare = stp_bare(r, t->name + moment, &prefix);
        if (bare == t->name + moment)
            continue;
        n++;
        t->name = ckpt_arena_printf(map->arena, "%.*s%s%s", (int)moment, t->name, prefix, bare);
        if (!t->name)
            rc = ckpt_fail_memory(err);
    }
    if (rc == CKPT_OK && n > 0)
        rc = ckpt_map_reindex(map, err);
    if (rc == CKPT_OK && n > 0)
        rc = ckpt_map_note(map, CKPT_INFO, err,
                           "%s: removed the prefixes that the layout map lists from %" PRIu64
                           " name%s",
                           r->name, n, n == 1 ? "" : "s");
    return rc;
}
