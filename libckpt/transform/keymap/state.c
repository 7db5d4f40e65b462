/* SPDX-License-Identifier: Apache-2.0 */
/*
 * state.c: rebuilds the training state after the tensors were replaced by those of another layout.
 *
 * A parameter goes to its old group. Parameters of a group get the order of the new tensors or, if
 * their names are those of a known architecture, its order. The order of another layout is
 * otherwise unknown; targets that find parameters by position ask for it. Moments and step counts
 * are tensors, which the rules map like their parameters. If a parameter only has moments (a
 * waiting state), they decide the group of the new tensors.
 */
#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "libckpt/map/extent.h"
#include "libckpt/map/order.h"
#include "libckpt/transform/keymap/instance.h"

/* The state that a layout map changes; NULL: there is none. */
static ckpt_state *rst_of(const ckpt_map *map)
{
    return map->states.n == 1 ? map->states.at[0] : map->states.n == 0 ? map->waiting : NULL;
}

/* Mark the moments of waiting parameters, by the names in `waiting`. */
static void rst_mark(uint32_t *group, const ckpt_map *map, const ckpt_map *waiting)
{
    for (size_t i = 0; waiting->tensors.n > 0 && i < map->tensors.n; i++) {
        const ckpt_tensor *t = map->tensors.at[i];
        const char *slash = t->role == CKPT_ROLE_STATE ? strchr(t->name, '/') : NULL;
        size_t at = slash ? ckpt_map_index(waiting, slash + 1, strlen(slash + 1)) : SIZE_MAX;

        if (at != SIZE_MAX)
            group[i] = waiting->tensors.at[at]->file;
    }
}

/* Set the group of each tensor of the map, + 1. */
static int rst_groups(uint32_t *group, const ckpt_map *map, const ckpt_state *s, ckpt_err *err)
{
    ckpt_map *waiting = NULL;
    int rc = ckpt_map_create(&waiting, 0, err);

    for (size_t g = 0; g < s->group.n; g++) {
        for (size_t i = 0; rc == CKPT_OK && i < s->group.at[g].n * s->group.at[g].n_lanes; i++) {
            const ckpt_tensor *p = s->param.at[s->group.at[g].first + i];
            size_t at = ckpt_map_index(map, p->name, strlen(p->name));
            ckpt_tensor *one;

            if (p->role == CKPT_ROLE_STATE) {
                rc = ckpt_map_add(waiting, p->name, strlen(p->name), p, &one, err);
                if (rc == CKPT_OK)
                    one->file = (uint32_t)g + 1;
            } else if (at != SIZE_MAX)
                group[at] = (uint32_t)g + 1;
        }
    }
    if (rc == CKPT_OK)
        rst_mark(group, map, waiting);
    ckpt_map_free(waiting);
    return rc;
}

int ckpt_rm_groups(uint32_t **out, const ckpt_map *map, ckpt_err *err)
{
    assert(out && map);
    const ckpt_state *s = rst_of(map);

    *out = NULL;
    if (map->states.n > 1)
        return ckpt_fail(err, CKPT_EUNSUPPORTED,
                         "%s: a layout map needs whole tensors, but the slices of %zu "
                         "model-parallel ranks are kept apart: join them first",
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
    return rst_groups(*out, map, s, err);
}

/* Copy the tree of the model's file without its lists of names, because the new tensors have other
 * names. */
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

/* Warn about values of the module that are no tensors, which go with its list. */
static int rst_lost(ckpt_map *map, const ckpt_value *model, ckpt_err *err)
{
    ckpt_dict module = ckpt_value_map(ckpt_value_get(model, "module"));
    int rc = CKPT_OK;

    for (uint64_t i = 0; rc == CKPT_OK && i < module.n; i++) {
        const ckpt_pair *p = &module.at[i];
        if (p->key->kind == CKPT_V_STR && p->value->kind != CKPT_V_TENSOR &&
            p->value->kind != CKPT_V_NONE)
            rc = ckpt_map_note(map, CKPT_WARNING, err,
                               "%s: module.%.200s is left out: it is not a tensor, and a layout "
                               "map names tensors",
                               map->path, p->key->as.text.at);
    }
    return rc;
}

/* The count of steps of a group's parameters; NULL: they have none. */
static const ckpt_tensor *rst_step(const ckpt_map *map, const ckpt_state *s, const ckpt_group *g)
{
    const ckpt_tensor *step = NULL;

    for (size_t i = g->first; !step && i < g->first + g->n; i++)
        step = ckpt_state_moment(map, s, "step", s->param.at[i]);
    return step;
}

/*
 * Refuse moments of another shape than their parameter, because the layout map was then applied
 * with wrong sizes.
 */
static int rst_fits(const ckpt_tensor *moment, const ckpt_tensor *t, ckpt_err *err)
{
    // a single value per parameter has no shape to compare, nor do factored rows and columns
    for (uint32_t k = 0; moment->n_elems > 1 && moment->ndim == t->ndim && k < t->ndim; k++) {
        if (moment->shape[k] != t->shape[k])
            return ckpt_fail(err, CKPT_EMISMATCH,
                             "after the layout map, axis %" PRIu32 " of '%.150s' has %" PRIu64
                             " elements, but that of its weight has %" PRIu64
                             ": a --size does not match the model",
                             k, moment->name, moment->shape[k], t->shape[k]);
    }
    return CKPT_OK;
}

/* Put a parameter into the group that its moments have. */
static int rst_join(ckpt_tensor *t, const ckpt_tensor *moment, uint32_t *group, uint32_t of,
                    ckpt_err *err)
{
    int rc = rst_fits(moment, t, err);

    if (rc != CKPT_OK)
        return rc;
    if (*group && *group != of)
        return ckpt_fail(err, CKPT_EMISMATCH,
                         "'%.150s' and its moments are in different parameter groups", t->name);
    *group = of;
    t->role = CKPT_ROLE_WEIGHT;
    return CKPT_OK;
}

/*
 * Check that each moment has a parameter. A new tensor that has moments of a waiting parameter
 * joins only that parameter's group.
 */
static int rst_settle(const ckpt_tensors *made, uint32_t *group, ckpt_err *err)
{
    ckpt_map *names = NULL;
    int rc = ckpt_map_create(&names, 0, err);

    for (size_t i = 0; rc == CKPT_OK && i < made->n; i++) {
        const ckpt_tensor *t = made->at[i];
        ckpt_tensor *one;

        if (t->role == CKPT_ROLE_STATE)
            continue;
        rc = ckpt_map_add(names, t->name, strlen(t->name), t, &one, err);
        if (rc == CKPT_OK)
            one->file = (uint32_t)i;
    }
    for (size_t i = 0; rc == CKPT_OK && i < made->n; i++) {
        const char *name =
            made->at[i]->role == CKPT_ROLE_STATE ? strchr(made->at[i]->name, '/') : NULL;
        size_t at = name ? ckpt_map_index(names, name + 1, strlen(name + 1)) : SIZE_MAX;

        if (!name)
            continue;
        if (at == SIZE_MAX)
            rc = ckpt_fail(err, CKPT_EMISMATCH,
                           "the optimizer has moments of '%.150s', and after the layout map the "
                           "model has no such parameter",
                           name + 1);
        else if (group[i])
            rc = rst_join(made->at[names->tensors.at[at]->file], made->at[i],
                          &group[names->tensors.at[at]->file], group[i], err);
    }
    ckpt_map_free(names);
    return rc;
}

/*
 * List all tensors except state, for the common prefix of their names; the caller frees the list.
 */
static int rst_weights(ckpt_tensors *out, const ckpt_tensors *all, ckpt_err *err)
{
    for (size_t i = 0; i < all->n; i++) {
        ckpt_tensor **slot;
        if (all->at[i]->role == CKPT_ROLE_STATE || all->at[i]->role == CKPT_ROLE_OTHER)
            continue;
        slot = ckpt_vec_push(out);
        if (!slot)
            return ckpt_fail_memory(err);
        *slot = all->at[i];
    }
    return CKPT_OK;
}

/* A new parameter, and the position of its old name among the optimizer's; SIZE_MAX: none. */
typedef struct rst_place {
    size_t at;
    ckpt_tensor *param;
} rst_place;

static int rst_compare(const void *pa, const void *pb)
{
    const rst_place *a = pa, *b = pb;

    return (a->at > b->at) - (a->at < b->at);
}

/* The difference between new and old names: the common prefix of each. */
typedef struct rst_names {
    const char *old; /* a name */
    size_t before, after;
} rst_names;

static int rst_prefixes(rst_names *out, const ckpt_map *map, const ckpt_tensors *made,
                        ckpt_err *err)
{
    ckpt_tensors old = {0}, new = {0};
    int rc = rst_weights(&old, &map->tensors, err);

    if (rc == CKPT_OK)
        rc = rst_weights(&new, made, err);
    if (rc == CKPT_OK)
        *out = (rst_names){old.n ? old.at[0]->name : "", ckpt_order_prefix(old.at, old.n),
                           ckpt_order_prefix(new.at, new.n)};
    ckpt_vec_free(&old);
    ckpt_vec_free(&new);
    return rc;
}

/*
 * Find the old position of each new parameter; *same: all have the names of old tensors except for
 * a common prefix: the model, and therefore its order, is the same.
 */
static int rst_places(rst_place *place, bool *same, const ckpt_map *map, const ckpt_map *was,
                      const ckpt_tensors *param, const rst_names *names)
{
    *same = true;
    for (size_t i = 0; *same && i < param->n; i++) {
        const char *name = ckpt_arena_printf(map->arena, "%.*s%s", (int)names->before, names->old,
                                             param->at[i]->name + names->after);
        if (!name)
            return CKPT_ELIMIT;
        *same = ckpt_map_index(map, name, strlen(name)) != SIZE_MAX;
        place[i] = (rst_place){ckpt_map_index(was, name, strlen(name)), param->at[i]};
    }
    return CKPT_OK;
}

/* Restore the old order of groups if the model is the same and all positions are known. */
static void rst_reorder(ckpt_tensors *param, const ckpt_groups *group, rst_place *place)
{
    for (size_t i = 0; i < param->n; i++) {
        if (place[i].at == SIZE_MAX)
            return;
    }
    for (size_t g = 0; g < group->n; g++) {
        const ckpt_group *of = &group->at[g];
        if (of->n > 1)
            qsort(place + of->first, of->n, sizeof *place, rst_compare);
        for (size_t i = of->first; i < of->first + of->n; i++)
            param->at[i] = place[i].param;
    }
}

/* Order the new parameters, which have the order of the new tensors; old: the former parameters. */
static int rst_order(ckpt_state *s, ckpt_map *map, const ckpt_tensors *made,
                     const ckpt_tensors *old, ckpt_err *err)
{
    rst_place *place = ckpt_alloc((s->param.n + 1) * sizeof *place);
    ckpt_map *was = NULL;
    rst_names names = {0};
    bool same = false;
    int rc = place ? ckpt_map_create(&was, 0, err) : ckpt_fail_memory(err);

    for (size_t i = 0; rc == CKPT_OK && i < old->n; i++) {
        ckpt_tensor *one;
        rc = ckpt_map_add(was, old->at[i]->name, strlen(old->at[i]->name), old->at[i], &one, err);
    }
    if (rc == CKPT_OK)
        rc = rst_prefixes(&names, map, made, err);
    if (rc == CKPT_OK && rst_places(place, &same, map, was, &s->param, &names) != CKPT_OK)
        rc = ckpt_fail_memory(err);
    if (rc == CKPT_OK && same)
        rst_reorder(&s->param, &s->group, place);
    s->renamed = !same;
    ckpt_map_free(was);
    ckpt_free(place);
    return rc;
}

/* Add map->waiting, a state whose parameters were still missing, to the map's states. */
static int rst_arrived(ckpt_map *map, ckpt_err *err)
{
    ckpt_state **slot = map->waiting ? ckpt_vec_push(&map->states) : NULL;

    if (!map->waiting)
        return CKPT_OK;
    if (!slot)
        return ckpt_fail_memory(err);
    *slot = map->waiting;
    map->waiting = NULL;
    map->no_state = NULL;
    return CKPT_OK;
}

int ckpt_rm_state(ckpt_map *map, const ckpt_tensors *made, uint32_t *group,
                  const ckpt_tensor ***step, ckpt_err *err)
{
    assert(map && made && group && step);
    ckpt_state *s = rst_of(map);
    ckpt_tensors param = {0};
    int rc = rst_settle(made, group, err);

    *step = ckpt_arena_array(map->arena, s->group.n + 1, sizeof **step);
    if (rc != CKPT_OK || !*step)
        return rc != CKPT_OK ? rc : ckpt_fail_memory(err);
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
    const ckpt_tensors old = s->param;
    s->param = param;
    rc = rst_order(s, map, made, &old, err);
    ckpt_free(old.at);
    if (rc == CKPT_OK)
        rc = rst_lost(map, s->model, err);
    if (rc == CKPT_OK && s->model && !(s->model = rst_model(map->arena, s->model)))
        rc = ckpt_fail_memory(err);
    // the module has other buffers now, which are rank 0's
    for (ckpt_ranked *r = s->client; r; r = r->next)
        r->at = r->in_entry ? NULL : r->at;
    return rc == CKPT_OK ? rst_arrived(map, err) : rc;
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
                ckpt_extent_share(t, step[g]);
                t->twin = step[g]->twin;
            }
        }
    }
    return rc;
}
