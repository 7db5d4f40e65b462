/* SPDX-License-Identifier: Apache-2.0 */
/*
 * torch_state.c: builds the training state of a distributed checkpoint: the optimizer's groups and
 * settings, step counts, and the program's other values.
 *
 * Each group is put into the model's order, because some readers go by position and param_groups
 * may list units of FSDP1 (libckpt/map/sequence.c).  Flat optimizer dicts have settings for each
 * parameter; neighbours with equal settings become one group, which has the same effect.
 */
#include <assert.h>
#include <inttypes.h>
#include <string.h>

#include "ckpt.h"
#include "formats/training/buffers.h"
#include "formats/training/expert_ranks.h"
#include "formats/training/kept_values.h"
#include "formats/training/masters.h"
#include "formats/training/param_values.h"
#include "formats/training/torch_state.h"
#include "formats/training/wrapped_names.h"
#include "libckpt/base/dtype.h"
#include "libckpt/map/map.h"
#include "libckpt/map/order.h"

enum {
    DPS_DEPTH = 4,    /* dicts above an optimizer that are searched */
    DPS_NODES = 10000 /* limit of nodes for the comparison of two groups' settings */
};

typedef struct dps_maker {
    ckpt_map *map;
    ckpt_state *state;
    const ckpt_value *optimizer;
    const ckpt_value *more;     /* a second optimizer, or NULL */
    const ckpt_value *schedule; /* the schedule found with the optimizer, or NULL */
    ckpt_reader *reader;
    ckpt_map *orphans; /* parameters that have only moments, by name; NULL: not searched yet */
    ckpt_train_order order;
    const char *waits;  /* a parameter that the model was saved without, or NULL */
    size_t n_hidden;    /* parameters without a weight in the model */
    double steps;       /* the largest step count of a parameter */
    bool counted;       /* the optimizer has step counts; SGD has none */
    bool ignore_copies; /* do not compare 16-bit weights with their masters */
    bool told;          /* a tensor setting was reported */
    ckpt_err *err;
} dps_maker;

static const char dps_flat[] = "param_groups.", dps_schedule[] = "lr_scheduler",
                  dps_without[] = "the optimizer has a parameter that is not in the saved model";

/*
 * Reasons for having no state: the optimizer has a fused parameter, the model only its parts. ckpt
 * has a layout map that splits torchtitan's.
 */
static const char dps_waits[] =
    "the optimizer has a parameter that is not in the saved model, and only a layout map can "
    "convert it to parameters of the model (--map, and --size where the map needs it)";
static const char dps_renamed[] =
    "the names of the optimizer's parameters differ from those of the saved model, not only by "
    "parts that torch's wrappers add: save both from the same module";
static const char dps_fused[] = ".wqkv.";
static const char dps_parts[] =
    "the optimizer has a parameter that is not in the saved model; --map fused-qkv:torchtitan (or "
    "torchtitan:hf) --size heads=N --size kv=N splits it";

/* ---- the optimizer ---- */

static bool dps_is_flat(const ckpt_value *v)
{
    ckpt_dict map = ckpt_value_map(v);

    for (uint64_t i = 0; i < map.n; i++) {
        if (map.at[i].key->kind == CKPT_V_STR &&
            strncmp(map.at[i].key->as.text.at, dps_flat, sizeof dps_flat - 1) == 0)
            return true;
    }
    return false;
}

/*
 * Find the first two optimizers below a dict or a list, and the schedule next to one.
 *
 * beside  the dict that contains v, or the list with v
 */
static void dps_find(dps_maker *m, const ckpt_value *v, const ckpt_value *beside, unsigned depth)
{
    ckpt_dict map = ckpt_value_map(v);
    ckpt_seq list = ckpt_value_seq(v);

    if (ckpt_value_get(v, "param_groups") || dps_is_flat(v)) {
        *(m->optimizer ? &m->more : &m->optimizer) = v;
        m->schedule = ckpt_value_get(beside, dps_schedule);
        return;
    }
    for (uint64_t i = 0; depth > 0 && i < map.n && !m->more; i++) {
        if (!ckpt_train_is_kept(&map.at[i]))
            dps_find(m, map.at[i].value, v, depth - 1);
    }
    // Lightning and trainers with several models save a list, which often has one optimizer
    for (uint64_t i = 0; depth > 0 && i < list.n && !m->more; i++)
        dps_find(m, list.at[i], beside, depth - 1);
}

/* True if a tensor of the map is optimizer state, wherever it was saved. */
static bool dps_has_state(const ckpt_map *map)
{
    for (size_t i = 0; i < map->tensors.n; i++) {
        if (map->tensors.at[i]->role == CKPT_ROLE_STATE)
            return true;
    }
    return false;
}

/* ---- groups ---- */

static int dps_none(dps_maker *m, const char *why, const char *name)
{
    m->map->no_state =
        ckpt_arena_printf(m->map->arena, "%s%s%s", why, name ? ": " : "", name ? name : "");
    return m->map->no_state ? CKPT_OK : ckpt_fail_memory(m->err);
}

static int dps_new_group(dps_maker *m, ckpt_group **out)
{
    *out = ckpt_vec_push(&m->state->group);
    if (!*out)
        return ckpt_fail_memory(m->err);
    **out = (ckpt_group){.first = m->state->param.n, .n_lanes = 1};
    return CKPT_OK;
}

/* Collect the names of moments without a parameter in the map, with the largest moment's shape. */
static int dps_orphans(dps_maker *m)
{
    int rc = ckpt_map_create(&m->orphans, 0, m->err);

    for (size_t i = 0; rc == CKPT_OK && i < m->map->tensors.n; i++) {
        const ckpt_tensor *t = m->map->tensors.at[i];
        const char *name = t->role == CKPT_ROLE_STATE ? strchr(t->name, '/') : NULL;
        size_t n = name ? strlen(++name) : 0, at;
        ckpt_tensor *one;

        if (!name || ckpt_map_index(m->map, name, n) != SIZE_MAX)
            continue;
        at = ckpt_map_index(m->orphans, name, n);
        if (at == SIZE_MAX)
            rc = ckpt_map_add(m->orphans, name, n, t, &one, m->err);
        else if (m->orphans->tensors.at[at]->n_elems < t->n_elems)
            rc = ckpt_map_add_hidden(m->orphans, name, n, t, &m->orphans->tensors.at[at], m->err);
    }
    for (size_t i = 0; rc == CKPT_OK && i < m->orphans->tensors.n; i++)
        m->orphans->tensors.at[i]->file = 0; // number of the group, + 1
    return rc;
}

/*
 * Look for a parameter that only the optimizer has: torchtitan saves the parts of a fused weight,
 * but the moments of the whole.  *out has the moments' shape; NULL: there are no moments.
 */
static int dps_waiting(dps_maker *m, const char *name, ckpt_tensor **out)
{
    int rc = m->orphans ? CKPT_OK : dps_orphans(m);
    size_t at = rc == CKPT_OK ? ckpt_map_index(m->orphans, name, strlen(name)) : SIZE_MAX;

    *out = NULL;
    if (at == SIZE_MAX)
        return rc;
    m->orphans->tensors.at[at]->file = (uint32_t)m->state->group.n;
    m->waits = m->waits ? m->waits : name;
    m->n_hidden++;
    return ckpt_map_add_hidden(m->map, name, strlen(name), m->orphans->tensors.at[at], out, m->err);
}

/* Add a parameter to the last group; if the map has no such parameter, there is no state. */
static int dps_param(dps_maker *m, const char *name)
{
    size_t at = ckpt_map_index(m->map, name, strlen(name));
    ckpt_tensor **slot, *param = at == SIZE_MAX ? NULL : m->map->tensors.at[at];
    int rc = CKPT_OK;

    if (param && param->role != CKPT_ROLE_STATE)
        param->role = CKPT_ROLE_WEIGHT; // only the group shows that it is trained
    else
        rc = dps_waiting(m, name, &param);
    if (rc == CKPT_OK && !param)
        return dps_none(m, dps_without, name);
    slot = rc == CKPT_OK ? ckpt_vec_push(&m->state->param) : NULL;
    if (!slot)
        return rc == CKPT_OK ? ckpt_fail_memory(m->err) : rc;
    *slot = param;
    m->state->group.at[m->state->group.n - 1].n++;
    return CKPT_OK;
}

ckpt_value *ckpt_train_fields(ckpt_arena *arena, const ckpt_value *settings, size_t number)
{
    assert(arena && settings);
    ckpt_dict from = ckpt_value_map(settings);
    ckpt_value *fields = ckpt_value_new(arena, CKPT_V_DICT),
               *params = ckpt_value_new(arena, CKPT_V_LIST),
               *n = ckpt_value_int(arena, (int64_t)number);
    bool ok = fields && params && n && ckpt_seq_add(arena, &params->as.seq, n);

    for (uint64_t i = 0; ok && i < from.n; i++) {
        if (!ckpt_value_is(from.at[i].key, "params"))
            ok = ckpt_dict_add(arena, &fields->as.map, from.at[i].key, from.at[i].value);
    }
    return ok && ckpt_dict_add_cstr(arena, &fields->as.map, "params", params) ? fields : NULL;
}

/*
 * True for a setting that is a number in a tensor: a learning rate without axes, or the step count
 * of apex's FusedAdam, an integer with one element (capturable).
 */
static bool dps_is_number(const ckpt_pair *p)
{
    const ckpt_tensor_value *t = p->value->kind == CKPT_V_TENSOR ? p->value->as.tensor : NULL;
    bool step = ckpt_value_is(p->key, "step");

    if (!t || !t->storage || t->storage->source == UINT32_MAX || t->ndim > (step ? 1 : 0) ||
        (t->ndim == 1 && t->shape[0] != 1))
        return false;
    return ckpt_dtype_get(t->dtype)->kind == CKPT_IS_FLOAT ||
           (step && (t->dtype == CKPT_I32 || t->dtype == CKPT_I64));
}

/*
 * Replace a setting that is a tensor with one element by its number, because training formats store
 * numbers (a learning rate is a tensor if updates are compiled).
 */
static int dps_number(dps_maker *m, ckpt_pair *p)
{
    const ckpt_tensor_value *t = p->value->as.tensor;
    uint64_t one = 1;
    ckpt_axis axis = {0, 1, 1};
    ckpt_extent e = {.ndim = 1, .axis = &axis};
    const ckpt_tensor like = {
        .name = "", .ndim = 1, .shape = &one, .n_elems = 1, .extent = &e, .n_extents = 1};
    ckpt_tensor own = like;
    double number = 0;
    int32_t small = 0;
    int64_t count = 0;
    int rc = CKPT_OK;

    if (!dps_is_number(p))
        return CKPT_OK;
    own.dtype = t->dtype;
    e.source = t->storage->source;
    e.at = t->offset * (ckpt_dtype_get(t->dtype)->bits / 8);
    axis.stride = (int64_t)(ckpt_dtype_get(t->dtype)->bits / 8);
    if (!m->reader)
        rc = ckpt_reader_new(&m->reader, m->map, m->err);
    if (rc == CKPT_OK && t->dtype == CKPT_I32)
        rc = ckpt_reader_read(m->reader, &own, 0, 1, CKPT_I32, &small, m->err);
    else if (rc == CKPT_OK && t->dtype == CKPT_I64)
        rc = ckpt_reader_read(m->reader, &own, 0, 1, CKPT_I64, &count, m->err);
    else if (rc == CKPT_OK)
        rc = ckpt_reader_read(m->reader, &own, 0, 1, CKPT_F64, &number, m->err);
    if (rc == CKPT_OK)
        p->value = ckpt_dtype_get(t->dtype)->kind == CKPT_IS_FLOAT
                       ? ckpt_value_float(m->map->arena, number)
                       : ckpt_value_int(m->map->arena, t->dtype == CKPT_I32 ? small : count);
    if (rc == CKPT_OK && !p->value)
        rc = ckpt_fail_memory(m->err);
    if (rc != CKPT_OK || m->told || p->key->kind != CKPT_V_STR)
        return rc;
    m->told = true;
    return ckpt_map_note(m->map, CKPT_INFO, m->err,
                         "%s: the optimizer stores %.100s as a tensor: it is read as a number, as "
                         "parameter groups have it",
                         m->map->path, p->key->as.text.at);
}

static int dps_numbers(dps_maker *m, ckpt_value *settings)
{
    int rc = CKPT_OK;

    for (uint64_t i = 0; rc == CKPT_OK && settings && i < settings->as.map.n; i++)
        rc = dps_number(m, &settings->as.map.at[i]);
    return rc;
}

static ckpt_value *dps_fields(dps_maker *m, const ckpt_value *settings)
{
    return ckpt_train_fields(m->map->arena, settings, m->state->group.n - 1);
}

/* Add one entry of a list of groups. */
static int dps_group(dps_maker *m, const ckpt_value *settings)
{
    ckpt_seq params = ckpt_value_seq(ckpt_value_get(settings, "params"));
    ckpt_group *g;
    int rc = dps_new_group(m, &g);

    if (rc == CKPT_OK) {
        g->fields = dps_fields(m, settings);
        rc = g->fields ? dps_numbers(m, g->fields) : ckpt_fail_memory(m->err);
    }
    for (uint64_t i = 0; rc == CKPT_OK && !m->map->no_state && i < params.n; i++)
        rc = params.at[i]->kind == CKPT_V_STR
                 ? dps_param(m, params.at[i]->as.text.at)
                 : dps_none(m,
                            "the optimizer names its parameters by number: save the result of "
                            "torch's get_state_dict, or make one file of the checkpoint "
                            "(dcp_to_torch), where ckpt may find the names by shape",
                            NULL);
    return rc;
}

/* Collect the settings of the parameter at pair *i of a flat dict; its pairs are adjacent. */
static ckpt_value *dps_flat_settings(dps_maker *m, ckpt_dict all, uint64_t *i, const char **name)
{
    const char *first = all.at[*i].key->as.text.at + sizeof dps_flat - 1,
               *dot = strrchr(first, '.');
    size_t n = dot ? (size_t)(dot - first) : 0;
    ckpt_value *settings = ckpt_value_new(m->map->arena, CKPT_V_DICT);
    bool ok = settings != NULL;

    *name = ckpt_arena_string(m->map->arena, first, n);
    for (; ok && *i < all.n && all.at[*i].key->kind == CKPT_V_STR; (*i)++) {
        const char *key = all.at[*i].key->as.text.at;
        if (strncmp(key, dps_flat, sizeof dps_flat - 1) != 0 ||
            strncmp(key + sizeof dps_flat - 1, first, n + 1) != 0 ||
            strchr(key + sizeof dps_flat + n, '.'))
            break;
        ok = ckpt_dict_add_cstr(m->map->arena, &settings->as.map, key + sizeof dps_flat + n,
                                all.at[*i].value);
    }
    return ok && *name ? settings : NULL;
}

static int dps_flat_groups(dps_maker *m)
{
    ckpt_dict all = ckpt_value_map(m->optimizer);
    const ckpt_value *last = NULL;
    ckpt_group *g;
    int rc = CKPT_OK;
    bool same = false;

    for (uint64_t i = 0; rc == CKPT_OK && !m->map->no_state && i < all.n;) {
        const ckpt_value *key = all.at[i].key;
        ckpt_value *settings;
        const char *name;
        if (key->kind != CKPT_V_STR ||
            strncmp(key->as.text.at, dps_flat, sizeof dps_flat - 1) != 0) {
            i++;
            continue;
        }
        settings = dps_flat_settings(m, all, &i, &name);
        if (!settings || settings->as.map.n == 0)
            return settings ? ckpt_fail(m->err, CKPT_EFORMAT,
                                        "%s: %.200s is not a setting of a parameter group",
                                        m->map->path, key->as.text.at)
                            : ckpt_fail_memory(m->err);
        rc = dps_numbers(m, settings);
        if (rc != CKPT_OK)
            return rc;
        rc = last ? ckpt_value_compare(&same, last, settings, DPS_NODES, m->err) : CKPT_OK;
        if (rc != CKPT_OK)
            return rc;
        if (!last || !same) {
            rc = dps_new_group(m, &g);
            if (rc != CKPT_OK || !(g->fields = dps_fields(m, settings)))
                return ckpt_fail_memory(m->err);
            last = settings;
        }
        rc = dps_param(m, name);
    }
    return rc;
}

static int dps_groups(dps_maker *m)
{
    const ckpt_value *list = ckpt_value_get(m->optimizer, "param_groups");
    ckpt_seq groups = ckpt_value_seq(list);
    int rc = list ? CKPT_OK : dps_flat_groups(m);

    if (list && list->kind != CKPT_V_LIST)
        return ckpt_fail(m->err, CKPT_EFORMAT, "%s: the optimizer's param_groups are not a list",
                         m->map->path);
    for (uint64_t i = 0; rc == CKPT_OK && !m->map->no_state && i < groups.n; i++)
        rc = dps_group(m, groups.at[i]);
    return rc;
}

/* ---- the optimizer's state ---- */

/*
 * Read a parameter's step count; *has is false if there is none.  Copies on several ranks must be
 * equal.  They are compared here because no writer reads them: the count becomes the group's.
 */
static int dps_step(dps_maker *m, const ckpt_tensor *param, bool *has, double *step)
{
    const ckpt_tensor *t = ckpt_state_moment(m->map, m->state, "step", param);
    double copy = 0;
    int rc = CKPT_OK;

    *has = t && t->n_elems == 1;
    if (!*has)
        return CKPT_OK;
    if (!m->reader)
        rc = ckpt_reader_new(&m->reader, m->map, m->err);
    if (rc == CKPT_OK)
        rc = ckpt_reader_read(m->reader, t, 0, 1, CKPT_F64, step, m->err);
    for (const ckpt_tensor *c = t->twin; rc == CKPT_OK && c; c = c->twin) {
        rc = ckpt_reader_read(m->reader, c, 0, 1, CKPT_F64, &copy, m->err);
        if (rc == CKPT_OK && (copy < *step || copy > *step))
            rc = ckpt_fail(
                m->err, CKPT_EMISMATCH,
                "%s: the files of two ranks are from different saves: the optimizer step of "
                "%.100s is %.0f in one and %.0f in the other; copy all files of one save",
                m->map->path, param->name, *step, copy);
    }
    return rc;
}

/* Require equal step counts in a group, because training formats step its parameters together. */
static int dps_steps(dps_maker *m, const ckpt_group *g, ckpt_value *entry)
{
    const ckpt_tensor *first = NULL;
    double common = 0, step = 0;
    bool has;
    int rc = CKPT_OK;

    for (size_t i = g->first; rc == CKPT_OK && i < g->first + g->n; i++) {
        const ckpt_tensor *p = m->state->param.at[i];
        rc = dps_step(m, p, &has, &step);
        if (rc != CKPT_OK || !has)
            continue;
        if (first && (step < common || step > common))
            return ckpt_fail(m->err, CKPT_EMISMATCH,
                             "%s: the optimizer counts %.0f steps for %.100s and %.0f for %.100s, "
                             "which are in one group",
                             m->map->path, common, first->name, step, p->name);
        first = first ? first : p;
        common = step;
    }
    if (rc == CKPT_OK && first &&
        !ckpt_dict_add_cstr(m->map->arena, &entry->as.map, "step",
                            ckpt_value_int(m->map->arena, (int64_t)common)))
        rc = ckpt_fail_memory(m->err);
    return rc;
}

/*
 * A group's step count, or NULL.  apex's FusedAdam counts in the group's settings, and so do the
 * schedule-free optimizers, as `k` beside `weight_sum`.
 */
static const ckpt_value *dps_count(const ckpt_group *g)
{
    const ckpt_value *step = ckpt_value_get(g->entry, "step");

    step = step ? step : ckpt_value_get(g->fields, "step");
    return step || !ckpt_value_get(g->fields, "weight_sum") ? step : ckpt_value_get(g->fields, "k");
}

static int dps_entries(dps_maker *m)
{
    int rc = CKPT_OK;

    for (size_t i = 0; rc == CKPT_OK && i < m->state->group.n; i++) {
        ckpt_group *g = &m->state->group.at[i];
        ckpt_value *entry = ckpt_value_new(m->map->arena, CKPT_V_DICT);
        rc = entry ? dps_steps(m, g, entry) : ckpt_fail_memory(m->err);
        g->entry = rc == CKPT_OK && entry->as.map.n > 0 ? entry : NULL;
    }
    if (rc == CKPT_OK)
        rc = ckpt_train_entries(m->map, m->state, m->orphans, m->optimizer, m->err);
    for (size_t i = 0; rc == CKPT_OK && i < m->state->group.n; i++) {
        const ckpt_value *step = dps_count(&m->state->group.at[i]);
        int64_t n;
        if (!ckpt_value_as_int(step, &n) && !(step && step->kind == CKPT_V_FLOAT))
            continue;
        double steps = step->kind == CKPT_V_FLOAT ? step->as.f : (double)n;
        m->counted = true;
        m->steps = steps > m->steps ? steps : m->steps;
    }
    return rc;
}

/* ---- the whole ---- */

/* ---- other values ---- */

/* True for a dict of tensors without storages, which is the model or a copy of it. */
static bool dps_is_model(const ckpt_value *v)
{
    ckpt_dict map = ckpt_value_map(v);
    bool is = map.n > 0;

    for (uint64_t i = 0; is && i < map.n; i++)
        is = map.at[i].value->kind == CKPT_V_TENSOR && !map.at[i].value->as.tensor->storage;
    return is;
}

/* True for a list that holds the optimizer alone, as trainers for several models save it. */
static bool dps_lists_optimizer(const dps_maker *m, const ckpt_value *v)
{
    ckpt_seq list = ckpt_value_seq(v);

    return list.n == 1 && list.at[0] == m->optimizer;
}

/*
 * Copy a dict without model and optimizer.  A tensor of several chunks has no single storage for
 * the tree to refer to, so it is left out and reported.
 */
static int dps_rest(dps_maker *m, const ckpt_value *v, ckpt_value *to, unsigned depth)
{
    ckpt_arena *arena = m->map->arena;
    ckpt_dict map = ckpt_value_map(v);
    int rc = CKPT_OK;

    for (uint64_t i = 0; rc == CKPT_OK && i < map.n; i++) {
        ckpt_value *key = map.at[i].key, *value = map.at[i].value;
        bool open = depth > 0 && value->kind == CKPT_V_DICT && value->as.map.n > 0;
        if (value == m->optimizer || value == m->schedule || dps_lists_optimizer(m, value) ||
            dps_is_model(value) || (value->kind == CKPT_V_TENSOR && !value->as.tensor->storage) ||
            ckpt_train_is_kept(&map.at[i]))
            continue;
        if (open) {
            ckpt_value *copy = ckpt_value_new(arena, CKPT_V_DICT);
            rc = copy ? dps_rest(m, value, copy, depth - 1) : ckpt_fail_memory(m->err);
            value = copy;
            if (rc == CKPT_OK && copy->as.map.n == 0)
                continue;
        }
        if (rc == CKPT_OK && !ckpt_dict_add(arena, &to->as.map, key, value))
            rc = ckpt_fail_memory(m->err);
    }
    return rc;
}

/* Copy the schedule to the root, where training formats have it; programs nest it. */
static int dps_lift(dps_maker *m, const ckpt_value *schedule, ckpt_value *root)
{
    ckpt_value *copy = ckpt_value_new(m->map->arena, CKPT_V_DICT);
    int rc = copy ? dps_rest(m, schedule, copy, DPS_DEPTH) : ckpt_fail_memory(m->err);

    if (rc == CKPT_OK && !ckpt_dict_add_cstr(m->map->arena, &root->as.map, dps_schedule, copy))
        rc = ckpt_fail_memory(m->err);
    return rc;
}

/* Make the values of a training format's model file; the run's steps are the optimizer's. */
static int dps_values(dps_maker *m)
{
    ckpt_arena *arena = m->map->arena;
    ckpt_value *root = ckpt_value_new(arena, CKPT_V_DICT);
    int rc;

    if (ckpt_value_get(m->map->values, dps_schedule) ||
        (m->schedule && m->schedule->kind != CKPT_V_DICT))
        m->schedule = NULL;
    rc = root ? dps_rest(m, m->map->values, root, DPS_DEPTH) : ckpt_fail_memory(m->err);
    if (rc == CKPT_OK && m->schedule)
        rc = dps_lift(m, m->schedule, root);
    m->state->foreign = true;
    if (rc == CKPT_OK)
        rc = ckpt_train_take_back(m->map, m->state, root, (int64_t)m->steps, m->err);
    if (rc == CKPT_OK && !m->counted && !ckpt_value_get(root, "global_steps"))
        rc = ckpt_map_note(m->map, CKPT_WARNING, m->err,
                           "%s: its optimizer counts no steps, so the run's count of them begins "
                           "at 0",
                           m->map->path);
    if (rc == CKPT_OK && !ckpt_value_get(root, "global_steps") &&
        !ckpt_dict_add_cstr(arena, &root->as.map, "global_steps",
                            ckpt_value_int(arena, (int64_t)m->steps)))
        rc = ckpt_fail_memory(m->err);
    m->state->model = root;
    return rc;
}

ckpt_dtype ckpt_train_dtype(const ckpt_state *s)
{
    assert(s);
    ckpt_dtype d = CKPT_DTYPE_NONE;

    for (size_t i = 0; i < s->param.n; i++) {
        const ckpt_tensor *p = s->param.at[i];

        // a parameter without a value has the dtype of its moments
        if (p->role != CKPT_ROLE_STATE)
            d = d == CKPT_DTYPE_NONE || d == p->dtype ? p->dtype : CKPT_F32;
    }
    return d == CKPT_BF16 || d == CKPT_F16 ? d : CKPT_F32;
}

/*
 * Put `param_names`, torch's list of the names of a group's parameters, into the order of the
 * parameters, which may have changed.
 */
static int dps_param_names(dps_maker *m)
{
    ckpt_arena *arena = m->map->arena;

    for (size_t g = 0; g < m->state->group.n; g++) {
        const ckpt_group *group = &m->state->group.at[g];
        ckpt_value *names = ckpt_value_get(group->fields, "param_names");
        if (!names || names->kind != CKPT_V_LIST || names->as.seq.n != group->n)
            continue;
        for (size_t i = 0; i < group->n; i++) {
            const ckpt_tensor *p = m->state->param.at[group->first + i];
            names->as.seq.at[i] = ckpt_value_cstr(arena, ckpt_state_name(m->state, p));
            if (!names->as.seq.at[i])
                return ckpt_fail_memory(m->err);
        }
    }
    return CKPT_OK;
}

/*
 * Refuse state of a parameter that no group has: a run would lose it, because training formats find
 * state through groups.
 */
static int dps_ungrouped(dps_maker *m)
{
    bool *has = ckpt_alloc(m->map->tensors.n + 1);
    int rc = CKPT_OK;

    if (!has)
        return ckpt_fail_memory(m->err);
    memset(has, 0, m->map->tensors.n + 1);
    for (size_t i = 0; i < m->state->param.n; i++) {
        const char *name = m->state->param.at[i]->name;
        size_t at = ckpt_map_index(m->map, name, strlen(name));
        if (at != SIZE_MAX)
            has[at] = true;
    }
    for (size_t i = 0; rc == CKPT_OK && !m->map->no_state && i < m->map->tensors.n; i++) {
        const ckpt_tensor *t = m->map->tensors.at[i];
        const char *name = t->role == CKPT_ROLE_STATE ? strchr(t->name, '/') : NULL;
        size_t at = name ? ckpt_map_index(m->map, name + 1, strlen(name + 1)) : SIZE_MAX;
        if (name && (at == SIZE_MAX || !has[at]))
            rc = dps_none(m, "the optimizer has state of a parameter that is in none of its groups",
                          name + 1);
    }
    ckpt_free(has);
    return rc;
}

/*
 * Refuse 8-bit moments of bitsandbytes, because no training format of ckpt has codes and scales for
 * each parameter.
 */
static int dps_bitsandbytes(dps_maker *m)
{
    static const char *const kinds[] = {"qmap1/", "absmax1/", "max1/"};
    bool found = false;

    for (size_t i = 0; !found && i < m->map->tensors.n; i++) {
        const ckpt_tensor *t = m->map->tensors.at[i];
        for (size_t k = 0; t->role == CKPT_ROLE_STATE && k < sizeof kinds / sizeof *kinds; k++)
            found = found || strncmp(t->name, kinds[k], strlen(kinds[k])) == 0;
    }
    if (!found)
        return CKPT_OK;
    int rc = ckpt_map_fact(m->map, m->err, CKPT_MOMENTS, "%s", "8-bit moments of bitsandbytes");
    return rc == CKPT_OK
               ? dps_none(m,
                          "the optimizer has 8-bit moments of bitsandbytes for each parameter, and "
                          "ckpt reads such moments (--moments) only from DeepSpeed's files",
                          NULL)
               : rc;
}

static int dps_make(dps_maker *m)
{
    const char *odd;
    int rc = dps_bitsandbytes(m);

    if (rc == CKPT_OK && !m->map->no_state)
        rc = dps_groups(m);

    if (rc == CKPT_OK && !m->map->no_state && !m->waits)
        rc = dps_ungrouped(m);

    if (rc == CKPT_OK && !m->map->no_state)
        rc = ckpt_train_masters(m->map, m->state, m->ignore_copies, m->err);
    if (rc == CKPT_OK && !m->map->no_state)
        rc = dps_entries(m);
    if (rc != CKPT_OK || m->map->no_state)
        return rc;
    rc = ckpt_train_lanes_cut(m->state, &odd, m->err);
    if (rc != CKPT_OK || odd)
        return rc != CKPT_OK ? rc
                             : dps_none(m,
                                        "a group of experts does not have the parameters of the "
                                        "number of ranks in its name",
                                        odd);
    m->state->dtype = ckpt_train_dtype(m->state);
    rc = dps_values(m);
    // a DeepSpeed run has a list of its buffers
    if (rc == CKPT_OK && m->state->foreign)
        rc = ckpt_train_buffers(m->map, m->state, m->err);
    // a DeepSpeed run keeps its optimizer's order; a layout map will order split parameters
    if (rc != CKPT_OK || !m->state->foreign || m->waits)
        return rc;
    m->state->numbered = m->order == CKPT_TRAIN_BY_NUMBER;
    m->map->in_order = m->order != CKPT_TRAIN_UNORDERED;
    if (m->state->numbered)
        return CKPT_OK;
    rc = ckpt_state_sequence(m->map, m->state, m->map->in_order, m->err);
    return rc == CKPT_OK ? dps_param_names(m) : rc;
}

int ckpt_train_torch_state(ckpt_map *map, ckpt_train_order order, bool ignore_copies, ckpt_err *err)
{
    assert(map && map->states.n == 0);
    dps_maker m = {.map = map, .order = order, .ignore_copies = ignore_copies, .err = err};
    int rc;

    dps_find(&m, map->values, NULL, DPS_DEPTH);
    map->no_optimizer = !m.optimizer && !dps_has_state(map);
    if (map->no_optimizer)
        return dps_none(&m, "it holds no optimizer", NULL);
    if (!m.optimizer)
        return dps_none(&m, "its optimizer state has no param_groups beside it", NULL);
    if (m.more)
        return dps_none(&m, "it holds several optimizers", NULL);
    rc = ckpt_train_wrapped_names(map, m.optimizer, err);
    if (rc == CKPT_OK)
        rc = ckpt_state_new(&m.state, map, "", err);
    if (rc == CKPT_OK)
        rc = dps_make(&m);
    ckpt_reader_free(m.reader);
    ckpt_map_free(m.orphans);
    if (rc == CKPT_OK && !map->no_state && m.waits) {
        map->waiting = m.state;
        map->states.n--;
        return dps_none(&m,
                        m.n_hidden == m.state->param.n ? dps_renamed
                        : strstr(m.waits, dps_fused)   ? dps_parts
                                                       : dps_waits,
                        m.waits);
    }
    if (m.state && (rc != CKPT_OK || map->no_state)) {
        ckpt_state_free(m.state);
        map->states.n--;
    }
    return rc;
}
