/* SPDX-License-Identifier: Apache-2.0 */
/*
 * state.c: what the training state becomes when the tensors are those of another layout.
 *
 * A parameter goes where its group was; those of a group stand in the order of the new tensors.
 * Moments and step counts are tensors, which the rules map like their parameters.
 */
#include <assert.h>
#include <string.h>

#include "libckpt/map/state.h"
#include "libckpt/remap/instance.h"

int ckpt_rm_groups(uint32_t **out, const ckpt_map *map, ckpt_err *err)
{
    assert(out && map);
    const ckpt_state *s = map->states.n == 1 ? map->states.at[0] : NULL;

    *out = NULL;
    if (map->states.n > 1)
        return ckpt_fail(err, CKPT_EUNSUPPORTED,
                         "%s: a layout map is for whole tensors, and %zu model-parallel ranks are "
                         "kept apart: join them first",
                         map->path, map->states.n);
    if (!s)
        return CKPT_OK;
    if (s->own || *s->prefix)
        return ckpt_fail(err, CKPT_EUNSUPPORTED,
                         "%s: the optimizer keeps its state by parameter (stage 0), which a layout "
                         "map does not follow; reshard it to stage 1 first",
                         map->path);
    *out = ckpt_alloc((map->tensors.n + 1) * sizeof **out);
    if (!*out)
        return ckpt_fail_memory(err);
    for (size_t g = 0; g < s->group.n; g++) {
        for (size_t i = 0; i < s->group.at[g].n * s->group.at[g].n_lanes; i++) {
            const char *name = s->param.at[s->group.at[g].first + i]->name;
            size_t at = ckpt_map_index(map, name, strlen(name));
            if (at != SIZE_MAX)
                (*out)[at] = (uint32_t)g + 1;
        }
    }
    return CKPT_OK;
}

/* The tree of the model's file without lists of names that are no longer there. */
static ckpt_value *rst_model(ckpt_arena *arena, const ckpt_value *old)
{
    static const char *const lists[] = {
        "module",        "buffer_names",           "param_shapes", "frozen_param_shapes",
        "shared_params", "frozen_param_fragments",
    };
    ckpt_dict all = ckpt_value_map(old);
    ckpt_value *out = ckpt_value_new(arena, CKPT_V_DICT);

    for (uint64_t i = 0; out && i < all.n; i++) {
        bool list = false;
        for (size_t k = 0; k < sizeof lists / sizeof *lists; k++)
            list |= ckpt_value_is(all.at[i].key, lists[k]);
        if (!list && !ckpt_dict_add(arena, &out->as.map, all.at[i].key, all.at[i].value))
            return NULL;
    }
    return out;
}

/* The count of steps of a group's parameters; NULL: they have none. */
static const ckpt_tensor *rst_step(const ckpt_map *map, const ckpt_state *s, const ckpt_group *g)
{
    const ckpt_tensor *step = NULL;

    for (size_t i = g->first; !step && i < g->first + g->n; i++)
        step = ckpt_state_moment(map, s, "step", s->param.at[i]);
    return step;
}

int ckpt_rm_state(ckpt_map *map, const ckpt_tensors *made, const uint32_t *group,
                  const ckpt_tensor ***step, ckpt_err *err)
{
    assert(map && made && group && step && map->states.n == 1);
    ckpt_state *s = map->states.at[0];
    ckpt_tensors param = {0};

    *step = ckpt_arena_array(map->arena, s->group.n + 1, sizeof **step);
    if (!*step)
        return ckpt_fail_memory(err);
    for (size_t g = 0; g < s->group.n; g++) {
        ckpt_group *to = &s->group.at[g];
        (*step)[g] = rst_step(map, s, to);
        to->first = param.n;
        to->n = 0;
        to->n_lanes = 1;
        for (size_t i = 0; i < made->n; i++) {
            ckpt_tensor **slot;
            if (group[i] != g + 1 || made->at[i]->role == CKPT_ROLE_STATE || made->at[i]->owner)
                continue;
            slot = ckpt_vec_push(&param);
            if (!slot) {
                ckpt_vec_free(&param);
                return ckpt_fail_memory(err);
            }
            *slot = made->at[i];
            to->n++;
        }
    }
    ckpt_vec_free(&s->param);
    s->param = param;
    if (s->model && !(s->model = rst_model(map->arena, s->model)))
        return ckpt_fail_memory(err);
    return CKPT_OK;
}

int ckpt_rm_steps(ckpt_map *map, const ckpt_tensor *const *step, ckpt_err *err)
{
    assert(map && step && map->states.n == 1);
    const ckpt_state *s = map->states.at[0];
    int rc = CKPT_OK;

    for (size_t g = 0; g < s->group.n; g++) {
        for (size_t i = 0; rc == CKPT_OK && step[g] && i < s->group.at[g].n; i++) {
            const ckpt_tensor *p = s->param.at[s->group.at[g].first + i];
            const char *name = ckpt_arena_printf(map->arena, "step/%s", p->name);
            ckpt_tensor *t = NULL;
            if (!name)
                return ckpt_fail_memory(err);
            if (ckpt_map_index(map, name, strlen(name)) != SIZE_MAX)
                continue;
            rc = ckpt_map_add(map, name, strlen(name), step[g], &t, err);
            if (rc == CKPT_OK) {
                t->extent = step[g]->extent;
                t->n_extents = step[g]->n_extents;
                t->twin = step[g]->twin;
            }
        }
    }
    return rc;
}
