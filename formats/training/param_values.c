/* SPDX-License-Identifier: Apache-2.0 */
/*
 * param_values.c: finds an optimizer's kinds of moments, and values that it keeps once per
 * parameter (a count, NAdam's mu_product).
 *
 * Training formats store such a value per group, because a group's parameters are stepped together;
 * FSDP stores it per parameter.  Parameters with different values therefore cannot share a group.
 */
#include <assert.h>
#include <string.h>

#include "ckpt.h"
#include "formats/training/param_values.h"
#include "libckpt/base/dtype.h"
#include "libckpt/map/extent.h"
#include "libckpt/map/map.h"

enum { DMB_NODES = 1000 }; /* limit of nodes for the comparison of two values */

typedef struct dmb_maker {
    ckpt_map *map;
    ckpt_state *state;
    uint32_t *group;         /* by tensor of the map: its group's number + 1; 0: none */
    const ckpt_map *orphans; /* parameters that are not in the map; or NULL */
    ckpt_reader *reader;
    ckpt_err *err;
} dmb_maker;

ckpt_value *ckpt_train_leaf(ckpt_arena *arena, const ckpt_tensor *t)
{
    assert(arena && t);
    ckpt_value *v = ckpt_value_new(arena, CKPT_V_TENSOR);
    ckpt_tensor_value *tensor = ckpt_arena_alloc(arena, sizeof *tensor);
    uint64_t *stride = ckpt_arena_array(arena, t->ndim + 1, sizeof *stride), row = 1;

    if (!v || !tensor || !stride)
        return NULL;
    for (uint32_t k = t->ndim; k-- > 0;) {
        stride[k] = row;
        row *= t->shape[k];
    }
    *tensor = (ckpt_tensor_value){
        .dtype = t->dtype, .ndim = t->ndim, .shape = t->shape, .stride = stride, .flags = t->flags};
    v->as.tensor = tensor;
    return v;
}

/* The group of a parameter by name, or NULL. */
static ckpt_group *dmb_group(const dmb_maker *m, const char *name, size_t n,
                             const ckpt_tensor **param)
{
    size_t at = ckpt_map_index(m->map, name, n);

    if (at != SIZE_MAX) {
        *param = m->map->tensors.at[at];
        return m->group[at] ? &m->state->group.at[m->group[at] - 1] : NULL;
    }
    at = m->orphans ? ckpt_map_index(m->orphans, name, n) : SIZE_MAX;
    if (at == SIZE_MAX || !m->orphans->tensors.at[at]->file)
        return NULL;
    *param = m->orphans->tensors.at[at];
    return &m->state->group.at[(*param)->file - 1];
}

static int dmb_put(const dmb_maker *m, ckpt_group *g, const char *key, ckpt_value *v)
{
    if (!g->entry)
        g->entry = ckpt_value_new(m->map->arena, CKPT_V_DICT);
    if (!v || !g->entry || !ckpt_dict_add_cstr(m->map->arena, &g->entry->as.map, key, v))
        return ckpt_fail_memory(m->err);
    return CKPT_OK;
}

/* Record why there is no state: values differ within one group. */
static int dmb_differ(const dmb_maker *m, const char *key, const char *name)
{
    m->map->no_state =
        ckpt_arena_printf(m->map->arena,
                          "the optimizer's '%s' of %s differs from that of other parameters of its "
                          "group, but a training format stores one value per group",
                          key, name);
    return m->map->no_state ? CKPT_OK : ckpt_fail_memory(m->err);
}

/* ---- tensors ---- */

/* A tensor value with the tensor's storage: flat, or with `one` of the tensor's own shape. */
static ckpt_value *dmb_stands(const dmb_maker *m, const ckpt_tensor *t, bool one)
{
    ckpt_arena *arena = m->map->arena;
    uint64_t n = t->n_elems;
    const ckpt_tensor like = {
        .dtype = t->dtype, .ndim = one ? t->ndim : 1, .shape = one ? t->shape : &n};
    ckpt_value *v = ckpt_train_leaf(arena, &like);
    ckpt_storage *s = ckpt_arena_alloc(arena, sizeof *s);
    const uint64_t *shape = one ? t->shape : ckpt_arena_copy(arena, &n, sizeof n);

    if (!v || !s || !shape)
        return NULL;
    *s = (ckpt_storage){.key = {"0", 1}, .location = {"cpu", 3}, .dtype = t->dtype, .n_elems = n};
    s->source = t->n_extents ? ckpt_extent_source(t, 0) : UINT32_MAX;
    (void)ckpt_dtype_bytes(t->dtype, n, &s->n_bytes); // checked by the map
    v->as.tensor->shape = shape;
    v->as.tensor->storage = s;
    return v;
}

/* Add a single value per parameter; it must be equal for all parameters of the group. */
static int dmb_scalar(dmb_maker *m, ckpt_group *g, const char *key, const ckpt_tensor *t)
{
    const ckpt_tensor *first = NULL;
    double is = 0, other = 0;
    int rc = m->reader ? CKPT_OK : ckpt_reader_new(&m->reader, m->map, m->err);

    for (size_t i = g->first; !first && i < g->first + g->n; i++)
        first = ckpt_state_moment(m->map, m->state, key, m->state->param.at[i]);
    if (rc == CKPT_OK)
        rc = ckpt_reader_read(m->reader, t, 0, 1, CKPT_F64, &is, m->err);
    if (rc == CKPT_OK && first != t)
        rc = ckpt_reader_read(m->reader, first, 0, 1, CKPT_F64, &other, m->err);
    if (rc != CKPT_OK)
        return rc;
    if (first != t)
        return memcmp(&is, &other, sizeof is) == 0 ? CKPT_OK : dmb_differ(m, key, t->name);
    return dmb_put(m, g, key, dmb_stands(m, t, true));
}

/*
 * True if a kind of state is a single value per parameter.  A parameter with several elements
 * decides, because moments of a scalar parameter would look the same.
 */
static bool dmb_is_one(const dmb_maker *m, const char *key, const ckpt_tensor *t,
                       const ckpt_tensor *param)
{
    for (size_t i = 0; i < m->state->param.n; i++) {
        const ckpt_tensor *p = m->state->param.at[i],
                          *of = p->n_elems > 1 ? ckpt_state_moment(m->map, m->state, key, p) : NULL;
        if (of)
            return of->n_elems == 1;
    }
    return t->ndim == 0 && param->ndim > 0;
}

/* Add the tensor "<kind>/<parameter>" to its group's entry. */
static int dmb_tensor(dmb_maker *m, const ckpt_tensor *t)
{
    const char *slash = strchr(t->name, '/');
    const ckpt_tensor *param = NULL;
    ckpt_group *g = slash ? dmb_group(m, slash + 1, strlen(slash + 1), &param) : NULL;
    const char *key;

    // the caller sets step counts
    if (!g || t->n_elems == 0 || strncmp(t->name, "step/", 5) == 0)
        return CKPT_OK;
    key = ckpt_arena_string(m->map->arena, t->name, (size_t)(slash - t->name));
    if (!key)
        return ckpt_fail_memory(m->err);
    if (dmb_is_one(m, key, t, param))
        return dmb_scalar(m, g, key, t);
    return ckpt_value_get(g->entry, key) ? CKPT_OK : dmb_put(m, g, key, dmb_stands(m, t, false));
}

/* ---- objects ---- */

/* Add an object that the optimizer keeps for one parameter. */
static int dmb_object(const dmb_maker *m, const char *name, size_t n, const char *key,
                      ckpt_value *v)
{
    const ckpt_tensor *param = NULL;
    ckpt_group *g = dmb_group(m, name, n, &param);
    ckpt_value *had = g ? ckpt_value_get(g->entry, key) : NULL;

    if (!g || v->kind == CKPT_V_TENSOR)
        return CKPT_OK;
    if (!had)
        return dmb_put(m, g, key, v);
    bool same = false;
    const int rc = ckpt_value_compare(&same, had, v, DMB_NODES, m->err);
    return rc != CKPT_OK || same ? rc : dmb_differ(m, key, param->name);
}

/* Add objects from {parameter: {key: value}}, or from {"state.<parameter>.<key>": value}. */
static int dmb_objects(const dmb_maker *m, const ckpt_value *optimizer)
{
    static const char flat[] = "state.";
    ckpt_dict state = ckpt_value_map(ckpt_value_get(optimizer, "state")),
              all = ckpt_value_map(optimizer);
    int rc = CKPT_OK;

    for (uint64_t i = 0; rc == CKPT_OK && i < state.n; i++) {
        const ckpt_value *name = state.at[i].key;
        ckpt_dict of = ckpt_value_map(state.at[i].value);
        for (uint64_t k = 0; rc == CKPT_OK && name->kind == CKPT_V_STR && k < of.n; k++) {
            if (of.at[k].key->kind == CKPT_V_STR)
                rc = dmb_object(m, name->as.text.at, (size_t)name->as.text.n,
                                of.at[k].key->as.text.at, of.at[k].value);
        }
    }
    for (uint64_t i = 0; rc == CKPT_OK && i < all.n; i++) {
        const char *key = all.at[i].key->kind == CKPT_V_STR ? all.at[i].key->as.text.at : "",
                   *dot = strrchr(key, '.');
        if (strncmp(key, flat, sizeof flat - 1) != 0)
            continue;
        const char *name = key + sizeof flat - 1;
        if (dot > name)
            rc = dmb_object(m, name, (size_t)(dot - name), dot + 1, all.at[i].value);
    }
    return rc;
}

/* ---- the whole ---- */

int ckpt_train_entries(ckpt_map *map, ckpt_state *state, const ckpt_map *orphans,
                       const ckpt_value *optimizer, ckpt_err *err)
{
    assert(map && state && !*state->prefix);
    dmb_maker m = {.map = map, .state = state, .orphans = orphans, .err = err};
    int rc;

    m.group = ckpt_alloc((map->tensors.n + 1) * sizeof *m.group);
    rc = m.group ? CKPT_OK : ckpt_fail_memory(err);
    for (size_t g = 0; rc == CKPT_OK && g < state->group.n; g++) {
        for (size_t i = 0; i < state->group.at[g].n; i++) {
            const ckpt_tensor *p = state->param.at[state->group.at[g].first + i];
            size_t at = ckpt_map_index(map, p->name, strlen(p->name));
            if (at != SIZE_MAX)
                m.group[at] = (uint32_t)g + 1;
        }
    }
    for (size_t i = 0; rc == CKPT_OK && !map->no_state && i < map->tensors.n; i++) {
        if (map->tensors.at[i]->role == CKPT_ROLE_STATE)
            rc = dmb_tensor(&m, map->tensors.at[i]);
    }
    if (rc == CKPT_OK && !map->no_state)
        rc = dmb_objects(&m, optimizer);
    ckpt_reader_free(m.reader);
    ckpt_free(m.group);
    return rc;
}

const ckpt_value *ckpt_train_param_entry(const ckpt_state *state, const ckpt_group *g, size_t param)
{
    assert(state && g && param < state->param.n);
    return state->own && state->own[param] ? state->own[param] : g->entry;
}
