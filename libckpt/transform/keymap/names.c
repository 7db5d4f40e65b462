/* SPDX-License-Identifier: Apache-2.0 */
/*
 * names.c: numbers the names of a layout map, and records the names that its text looks up.
 */
#include <string.h>

#include "libckpt/transform/keymap/rule.h"

uint32_t ckpt_rm_name(ckpt_remap *r, const char *s, size_t n)
{
    for (size_t i = 0; i < r->names.n; i++) {
        if (strlen(r->names.at[i]) == n && memcmp(r->names.at[i], s, n) == 0)
            return (uint32_t)i;
    }
    if (r->names.n >= CKPT_RM_NAMES)
        return CKPT_RM_NO_NAME;
    const char *copy = ckpt_arena_string(r->arena, s, n);
    const char **slot = copy ? ckpt_vec_push(&r->names) : NULL;
    if (!slot)
        return CKPT_RM_NO_NAME;
    *slot = copy;
    return (uint32_t)(r->names.n - 1);
}

ckpt_rm_line *ckpt_rm_size(const ckpt_remap *r, uint32_t name)
{
    for (size_t i = 0; i < r->sizes.n; i++) {
        if (r->sizes.at[i].name == name)
            return &r->sizes.at[i];
    }
    return NULL;
}

bool ckpt_rm_ask(ckpt_remap *r, const char *name)
{
    for (size_t i = 0; i < r->asked.n; i++) {
        if (strcmp(r->asked.at[i], name) == 0)
            return true;
    }
    const char *copy =
        r->asked.n < CKPT_RM_NAMES ? ckpt_arena_string(r->arena, name, strlen(name)) : NULL;
    const char **slot = copy ? ckpt_vec_push(&r->asked) : NULL;
    if (slot)
        *slot = copy;
    return slot != NULL;
}
