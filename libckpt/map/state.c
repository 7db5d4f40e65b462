/* SPDX-License-Identifier: Apache-2.0 */
/*
 * state.c: makes, finds and frees the training states of a map.
 */
#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "libckpt/map/map.h"
#include "libckpt/map/state.h"

enum { STATE_NAME = 512 }; /* most names fit; longer ones use the heap */

int ckpt_state_new(ckpt_state **out, ckpt_map *map, const char *prefix, ckpt_err *err)
{
    assert(out && map && prefix);
    ckpt_state *s = ckpt_arena_alloc(map->arena, sizeof *s);
    ckpt_state **slot;

    *out = NULL;
    if (!s)
        return ckpt_fail_memory(err);
    s->prefix = ckpt_arena_string(map->arena, prefix, strlen(prefix));
    slot = s->prefix ? ckpt_vec_push(&map->states) : NULL;
    if (!slot)
        return ckpt_fail_memory(err);
    *slot = *out = s;
    return CKPT_OK;
}

bool ckpt_state_is_adam(const ckpt_group *g)
{
    return ckpt_value_get(g->fields, "betas") && ckpt_value_get(g->entry, "exp_avg_sq");
}

bool ckpt_state_is_8bit(const ckpt_value *entry)
{
    static const char *const key[] = {CKPT_BNB_KEY, "qmap1", "absmax1", "max1"};

    for (size_t i = 0; i < sizeof key / sizeof *key; i++) {
        if (ckpt_value_get(entry, key[i]))
            return true;
    }
    return false;
}

int ckpt_state_refuse_8bit(const ckpt_map *map, const ckpt_group *g, const char *out, ckpt_err *err)
{
    const char *what = "of bitsandbytes";

    if (g->stored && ckpt_state_is_adam(g))
        return ckpt_fail(
            err, CKPT_EUNSUPPORTED,
            "%s: the optimizer keeps bitsandbytes moments, which the target cannot store: "
            "--moments fp32 (ckpt convert, ckpt reshard) writes them as Adam's; %s",
            map->path, out);
    if (!g->stored && !ckpt_state_is_8bit(g->entry))
        return CKPT_OK;
    for (size_t i = 0; i < map->facts.n; i++)
        what = strcmp(map->facts.at[i].key, CKPT_MOMENTS) == 0 ? map->facts.at[i].text : what;
    return ckpt_fail(err, CKPT_EUNSUPPORTED,
                     "%s: the optimizer keeps moments that are not Adam's, in a form that the "
                     "target cannot store (%.200s); %s",
                     map->path, what, out);
}

/* Add a key if a dict lacks it. */
static bool state_lacks(ckpt_arena *arena, ckpt_value *dict, const char *key, ckpt_value *value)
{
    return ckpt_value_get(dict, key) ||
           (value && ckpt_dict_add_cstr(arena, &dict->as.map, key, value));
}

bool ckpt_state_adam(ckpt_arena *arena, ckpt_value *fields, ckpt_value *decoupled)
{
    static const char *const off[] = {"amsgrad", "maximize", "capturable", "differentiable"};
    static const char *const none[] = {"foreach", "fused"};
    bool ok = !decoupled || state_lacks(arena, fields, "decoupled_weight_decay", decoupled);

    for (size_t i = 0; ok && i < sizeof off / sizeof *off; i++)
        ok = state_lacks(arena, fields, off[i], ckpt_value_bool(arena, false));
    for (size_t i = 0; ok && i < sizeof none / sizeof *none; i++)
        ok = state_lacks(arena, fields, none[i], ckpt_value_new(arena, CKPT_V_NONE));
    return ok;
}

void ckpt_state_look_mode(ckpt_map *map, const ckpt_value *groups)
{
    assert(map);
    ckpt_seq all = ckpt_value_seq(groups);

    for (uint64_t i = 0; i < all.n; i++) {
        const ckpt_value *mode = ckpt_value_get(all.at[i], "train_mode");
        if (mode && mode->kind == CKPT_V_BOOL && mode->as.i != 0 &&
            ckpt_value_get(all.at[i], "weight_sum"))
            map->mode = CKPT_MODE_TRAINS;
    }
}

const char *ckpt_state_why_none(const ckpt_map *map)
{
    if (map->no_state)
        return map->no_state;
    for (size_t i = map->findings.n; i-- > 0;) {
        if (map->findings.at[i].severity == CKPT_WARNING)
            return map->findings.at[i].text;
    }
    return "the checkpoint holds none";
}

int ckpt_state_none(const ckpt_map *map, ckpt_err *err)
{
    // other formats hold only weights
    if (map->known.training)
        return ckpt_fail(
            err, CKPT_EUNSUPPORTED,
            "%.150s: no training state was read: %.260s; --drop-optimizer begins a new "
            "run at step 0 with the weights",
            map->path, ckpt_state_why_none(map));
    return ckpt_fail(err, CKPT_EUNSUPPORTED,
                     "%.200s: holds no training state, and the order of the optimizer's parameters "
                     "is unknown; give it with --order",
                     map->path);
}

/* True if parameter i of a group has no elements on any expert-parallel rank. */
static bool state_is_empty(const ckpt_state *s, const ckpt_group *g, size_t i)
{
    for (uint32_t e = 0; e < g->n_lanes; e++) {
        if (s->param.at[g->first + e * g->n + i]->n_elems)
            return false;
    }
    return true;
}

int ckpt_state_not_empty(const ckpt_state **out, const ckpt_state *s, ckpt_arena *arena,
                         ckpt_err *err)
{
    assert(out && arena);
    ckpt_state *to = ckpt_arena_copy(arena, s, sizeof *s);
    size_t n = 0;

    *out = s;
    if (!to)
        return ckpt_fail_memory(err);
    to->param.at = ckpt_arena_array(arena, s->param.n, sizeof *to->param.at);
    to->group.at = ckpt_arena_array(arena, s->group.n, sizeof *to->group.at);
    to->own = s->own ? ckpt_arena_array(arena, s->param.n, sizeof(*to->own)) : NULL;
    if (!to->param.at || !to->group.at || (s->own && !to->own))
        return ckpt_fail_memory(err);
    for (size_t k = 0; k < s->group.n; k++) {
        const ckpt_group *g = &s->group.at[k];
        size_t first = n;
        for (size_t i = 0; i < g->n * g->n_lanes; i++) {
            if (state_is_empty(s, g, i % g->n))
                continue;
            to->param.at[n] = s->param.at[g->first + i];
            if (s->own)
                to->own[n] = s->own[g->first + i];
            n++;
        }
        to->group.at[k] = *g;
        to->group.at[k].first = first;
        to->group.at[k].n = g->n_lanes ? (n - first) / g->n_lanes : 0;
    }
    to->param.n = n;
    if (n < s->param.n)
        *out = to;
    return CKPT_OK;
}

const char *ckpt_state_name(const ckpt_state *state, const ckpt_tensor *param)
{
    assert(state && param);
    size_t n = strlen(state->prefix);

    return strncmp(param->name, state->prefix, n) == 0 ? param->name + n : param->name;
}

size_t ckpt_state_index(const ckpt_map *map, const ckpt_state *state, const ckpt_value *name)
{
    assert(map && state && name);
    size_t n = strlen(state->prefix), at = SIZE_MAX;
    char small[STATE_NAME], *full = small;

    if (!name || name->kind != CKPT_V_STR || name->as.text.n >= SIZE_MAX - n)
        return SIZE_MAX;
    if (n == 0)
        return ckpt_map_index(map, name->as.text.at, (size_t)name->as.text.n);
    if (n + name->as.text.n > sizeof small)
        full = ckpt_alloc(n + (size_t)name->as.text.n);
    if (full) {
        memcpy(full, state->prefix, n);
        memcpy(full + n, name->as.text.at, (size_t)name->as.text.n);
        at = ckpt_map_index(map, full, n + (size_t)name->as.text.n);
    }
    if (full != small)
        ckpt_free(full);
    return at;
}

const ckpt_tensor *ckpt_state_moment(const ckpt_map *map, const ckpt_state *state, const char *kind,
                                     const ckpt_tensor *param)
{
    assert(map && state && kind && param);
    const char *name = ckpt_state_name(state, param);
    size_t n = strlen(state->prefix) + strlen(kind) + 1 + strlen(name), at;
    char small[STATE_NAME], *full = n < sizeof small ? small : ckpt_alloc(n + 1);

    if (!full)
        return NULL;
    (void)snprintf(full, n + 1, "%s%s/%s", state->prefix, kind, name);
    at = ckpt_map_index(map, full, n);
    if (full != small)
        ckpt_free(full);
    return at == SIZE_MAX ? NULL : map->tensors.at[at];
}

bool ckpt_state_marked(const ckpt_value *group)
{
    return ckpt_value_get(group, "initial_lr") != NULL;
}

bool ckpt_state_scheduled(const ckpt_map *map)
{
    assert(map);
    bool marked = false, held = false;

    for (size_t k = 0; k < map->states.n; k++) {
        const ckpt_state *state = map->states.at[k];
        const ckpt_value *own = ckpt_value_get(state->model, "lr_scheduler");
        for (size_t g = 0; g < state->group.n; g++)
            marked = marked || ckpt_state_marked(state->group.at[g].fields);
        held = held || (own && own->kind != CKPT_V_NONE);
    }
    return marked && !held;
}
