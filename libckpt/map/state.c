/* SPDX-License-Identifier: Apache-2.0 */
/*
 * state.c: making, finding and freeing the training states of a map.
 */
#include <stdio.h>
#include <string.h>

#include "libckpt/map/state.h"

enum { STATE_NAME = 512 }; /* most names fit; longer ones go through the heap */

int ckpt_state_new(ckpt_state **out, ckpt_map *map, const char *prefix, ckpt_err *err)
{
    ckpt_state *s = ckpt_arena_alloc(map->arena, sizeof *s);
    ckpt_state **slot;

    *out = NULL;
    if (s == NULL)
        return ckpt_fail_memory(err);
    s->prefix = ckpt_arena_string(map->arena, prefix, strlen(prefix));
    slot = s->prefix != NULL ? ckpt_vec_push(&map->states) : NULL;
    if (slot == NULL)
        return ckpt_fail_memory(err);
    *slot = *out = s;
    return CKPT_OK;
}

void ckpt_state_free(ckpt_state *state)
{
    ckpt_vec_free(&state->param);
    ckpt_vec_free(&state->group);
}

const char *ckpt_state_name(const ckpt_state *state, const ckpt_tensor *param)
{
    size_t n = strlen(state->prefix);

    return strncmp(param->name, state->prefix, n) == 0 ? param->name + n : param->name;
}

const ckpt_tensor *ckpt_state_moment(const ckpt_map *map, const ckpt_state *state, const char *kind,
                                     const ckpt_tensor *param)
{
    const char *name = ckpt_state_name(state, param);
    size_t n = strlen(state->prefix) + strlen(kind) + 1 + strlen(name), at;
    char small[STATE_NAME], *full = n < sizeof small ? small : ckpt_alloc(n + 1);

    if (full == NULL)
        return NULL;
    (void)snprintf(full, n + 1, "%s%s/%s", state->prefix, kind, name);
    at = ckpt_map_index(map, full, n);
    if (full != small)
        ckpt_free(full);
    return at == SIZE_MAX ? NULL : map->tensors.at[at];
}
