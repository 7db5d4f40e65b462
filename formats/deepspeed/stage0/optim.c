/* SPDX-License-Identifier: Apache-2.0 */
/*
 * optim.c: reads optimizer state, step counts, and the groups for writers (stage 0).
 *
 * Every entry of a parameter's state belongs to one of these forms:
 *     step count                        "step/<parameter>"; FusedAdam counts in one parameter only
 *     tensor with the parameter's shape, or (fused) a range of the group's  "<key>/<parameter>"
 *     tensor of another shape (factors)  "<key>/<parameter>", in its own shape
 *     single value (number, [1], None)   remains in the state for writers
 * Entries of any other form are left out, and a warning names them.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "formats/deepspeed/module/state.h"
#include "formats/deepspeed/stage0/entry.h"
#include "libckpt/base/dtype.h"

enum {
    DSUO_MAX_KEYS = 64, /* limit of kinds of state; optimizers have only a few */
    DSUO_MAX_LISTED = 5 /* limit of names in a message */
};

typedef enum dsuo_kind { DSUO_STEP, DSUO_MOMENT, DSUO_SHAPED, DSUO_VALUE, DSUO_UNKNOWN } dsuo_kind;

/* A key of the states, in order of first occurrence. */
typedef struct dsuo_key {
    const ckpt_value *name; /* a STR */
    bool value;             /* some parameter with more than one element has a single value */
    size_t n_values, n_unknown;
} dsuo_key;

/* Parameters of one group: sorted[first .. end). */
typedef struct dsuo_range {
    size_t first, end;
    size_t last; /* parameter with the largest step; SIZE_MAX: no steps */
    bool alone;  /* only `last` counts steps (FusedAdam) */
} dsuo_range;

CKPT_VEC(dsuo_ranges, dsuo_range);

typedef struct dsuo {
    ckpt_dsu *u;
    dsuo_key key[DSUO_MAX_KEYS];
    size_t n_keys;
    dsuo_ranges range;
} dsuo;

/* Names in a message, up to DSUO_MAX_LISTED. */
typedef struct dsuo_names {
    const char *text;
    size_t n;
} dsuo_names;

static int dsuo_name(dsuo *f, dsuo_names *names, const ckpt_dsu_entry *e)
{
    ckpt_arena *arena = f->u->job->map->arena;

    if (names->n++ > DSUO_MAX_LISTED)
        return CKPT_OK;
    names->text = ckpt_arena_printf(arena, "%s%s%.100s", names->text ? names->text : "",
                                    names->text ? ", " : "",
                                    names->n > DSUO_MAX_LISTED ? "..." : e->pair->key->as.text.at);
    return names->text ? CKPT_OK : ckpt_fail_memory(f->u->job->err);
}

/* Returns an entry's state from the model file. */
static ckpt_dict dsuo_state(const dsuo *f, const ckpt_dsu_entry *e)
{
    const ckpt_dict none = {0};

    return e->state == SIZE_MAX ? none : ckpt_value_map(f->u->states.at[e->state].value);
}

/* ---- keys ---- */

static dsuo_key *dsuo_find(dsuo *f, const ckpt_value *key)
{
    for (size_t k = 0; key->kind == CKPT_V_STR && k < f->n_keys; k++) {
        if (ckpt_value_is(key, f->key[k].name->as.text.at))
            return &f->key[k];
    }
    return NULL;
}

/* Classifies an entry of a state by its value and its key. */
static dsuo_kind dsuo_kind_of(const dsuo *f, const ckpt_dsu_entry *e, const dsuo_key *key,
                              const ckpt_value *v)
{
    const ckpt_tensor_value *t = v->kind == CKPT_V_TENSOR ? v->as.tensor : NULL;

    if (!key || v->kind > CKPT_V_TENSOR)
        return DSUO_UNKNOWN;
    if (ckpt_value_is(key->name, "step"))
        return t && ckpt_dsu_elems(t) != 1 ? DSUO_UNKNOWN : DSUO_STEP;
    if (!t)
        return v->kind <= CKPT_V_BYTEARRAY ? DSUO_VALUE : DSUO_UNKNOWN;
    if (ckpt_dsu_elems(t) == 1 && key->value)
        return DSUO_VALUE;
    if (f->u->fused && t->ndim == 1 && e->copy->storage && t->shape[0] == e->copy->storage->n_elems)
        return DSUO_MOMENT;
    if (!f->u->fused && ckpt_dsu_same_shape(t, e->copy))
        return DSUO_MOMENT;
    if (ckpt_dsu_elems(t) == 1)
        return DSUO_VALUE;
    return f->u->fused ? DSUO_UNKNOWN : DSUO_SHAPED;
}

/* Returns the elements of a state with its parameter's shape. */
static uint64_t dsuo_elems(const dsuo *f, const ckpt_dsu_entry *e)
{
    if (f->u->fused)
        return e->copy->storage ? e->copy->storage->n_elems : 0;
    return ckpt_dsu_elems(e->copy);
}

/* Records a key of a parameter's state. */
static int dsuo_key_add(dsuo *f, const ckpt_dsu_entry *e, const ckpt_pair *p)
{
    dsuo_key *key = dsuo_find(f, p->key);

    if (p->key->kind != CKPT_V_STR)
        return CKPT_OK;
    if (!key && f->n_keys == DSUO_MAX_KEYS)
        return ckpt_fail(f->u->job->err, CKPT_ELIMIT,
                         "%s: more than %d kinds of optimizer state; the last is \"%.200s\"",
                         f->u->path, DSUO_MAX_KEYS, p->key->as.text.at);
    if (!key) {
        key = &f->key[f->n_keys++];
        *key = (dsuo_key){.name = p->key};
    }
    if (p->value->kind == CKPT_V_TENSOR && ckpt_dsu_elems(p->value->as.tensor) == 1 &&
        dsuo_elems(f, e) != 1)
        key->value = true;
    return CKPT_OK;
}

static int dsuo_keys(dsuo *f)
{
    int rc = CKPT_OK;

    for (size_t i = 0; i < f->u->entry.n; i++) {
        const ckpt_dsu_entry *e = f->u->sorted[i];
        ckpt_dict state = dsuo_state(f, e);
        for (uint64_t k = 0; rc == CKPT_OK && ckpt_dsu_is_trained(f->u, e) && k < state.n; k++)
            rc = dsuo_key_add(f, e, &state.at[k]);
    }
    return rc;
}

/* ---- tensors ---- */

/* Adds one entry of a parameter's state to the map. */
static int dsuo_add(dsuo *f, const ckpt_dsu_entry *e, const ckpt_pair *state, dsuo_kind kind)
{
    const ckpt_tensor_value *v = state->value->as.tensor;
    const ckpt_tensor_value *shape = kind == DSUO_MOMENT ? e->copy : v;
    const char *name = ckpt_arena_printf(f->u->job->map->arena, "%s/%s", state->key->as.text.at,
                                         e->pair->key->as.text.at);
    ckpt_tensor like = {
        .dtype = v->dtype, .ndim = shape->ndim, .shape = shape->shape, .role = CKPT_ROLE_STATE};
    if (ckpt_dtype_get(v->dtype)->kind == CKPT_IS_FLOAT)
        like.export_dtype = CKPT_F32; // F32 at every stage, because the run's dtype must not limit
                                      // the state
    ckpt_ds_flat flat;
    ckpt_tensor *t = NULL;

    if (!name)
        return ckpt_fail_memory(f->u->job->err);
    int rc = ckpt_map_add(f->u->job->map, name, strlen(name), &like, &t, f->u->job->err);
    if (rc != CKPT_OK || !f->u->fused)
        return rc == CKPT_OK ? ckpt_ds_shard_back(f->u->job, &f->u->head->model, v, t) : rc;
    rc = ckpt_ds_shard_flat(f->u->job, &f->u->head->model, state->value, name, &flat);
    return rc == CKPT_OK ? ckpt_ds_flat_back(f->u->job, &flat, e->slot, t) : rc;
}

/* Adds one kind of state for all parameters. */
static int dsuo_add_key(dsuo *f, dsuo_key *key)
{
    int rc = CKPT_OK;

    for (size_t i = 0; rc == CKPT_OK && i < f->u->entry.n; i++) {
        const ckpt_dsu_entry *e = f->u->sorted[i];
        ckpt_dict state = dsuo_state(f, e);
        for (uint64_t k = 0; rc == CKPT_OK && ckpt_dsu_is_trained(f->u, e) && k < state.n; k++) {
            if (dsuo_find(f, state.at[k].key) != key)
                continue;
            dsuo_kind kind = dsuo_kind_of(f, e, key, state.at[k].value);
            key->n_values += kind == DSUO_VALUE;
            key->n_unknown += kind == DSUO_UNKNOWN;
            if (kind == DSUO_MOMENT || kind == DSUO_SHAPED)
                rc = dsuo_add(f, e, &state.at[k], kind);
        }
    }
    return rc;
}

/* Adds all kinds of state, and warns about entries with an unknown form. */
static int dsuo_add_states(dsuo *f)
{
    int rc = CKPT_OK;

    for (size_t k = 0; rc == CKPT_OK && k < f->n_keys; k++) {
        dsuo_key *key = &f->key[k];
        rc = dsuo_add_key(f, key);
        if (rc == CKPT_OK && key->n_unknown)
            rc = ckpt_map_note(f->u->job->map, CKPT_WARNING, f->u->job->err,
                               "%s: optimizer state '%.100s' of %zu parameters has an unknown form "
                               "and is left out of the tensors",
                               f->u->path, key->name->as.text.at, key->n_unknown);
    }
    return rc;
}

/* ---- step counts ---- */

/* Returns an entry's step from its own state, otherwise from its group. */
static const ckpt_value *dsuo_step(const dsuo *f, const ckpt_dsu_entry *e)
{
    const ckpt_value *own =
        e->state == SIZE_MAX ? NULL : ckpt_value_get(f->u->states.at[e->state].value, "step");

    if (own && own->kind != CKPT_V_NONE)
        return own;
    return e->group < f->u->param_groups.n ? ckpt_value_get(f->u->param_groups.at[e->group], "step")
                                           : NULL;
}

/* Reads every step. */
static int dsuo_read_steps(dsuo *f)
{
    const ckpt_value *known = NULL;
    bool has = false;
    double step = 0;
    int rc = CKPT_OK;

    for (size_t i = 0; rc == CKPT_OK && i < f->u->entry.n; i++) {
        ckpt_dsu_entry *e = f->u->sorted[i];
        const ckpt_value *v = ckpt_dsu_is_trained(f->u, e) ? dsuo_step(f, e) : NULL;
        if (!v)
            continue;
        if (v != known)
            rc = ckpt_ds_shard_step(f->u->job, &f->u->head->model, v, &has, &step);
        known = v;
        e->has_step = has;
        e->step = step;
    }
    return rc;
}

static dsuo_range dsuo_range_of(const dsuo *f, size_t first)
{
    dsuo_range r = {first, first, SIZE_MAX, false};
    uint32_t group = f->u->sorted[first]->group;

    while (r.end < f->u->entry.n && f->u->sorted[r.end]->group == group)
        r.end++;
    for (size_t i = first; i < r.end; i++) {
        const ckpt_dsu_entry *e = f->u->sorted[i];
        if (e->has_step && (r.last == SIZE_MAX || !(e->step < f->u->sorted[r.last]->step)))
            r.last = i;
    }
    return r;
}

/*
 * Checks the steps of a group. DeepSpeed's FusedAdam increments and reads only the count of a
 * group's last parameter, so a single nonzero count holds for the group. Other differences are
 * kept, because the run itself made them.
 */
static int dsuo_agree(dsuo *f, dsuo_range *r)
{
    double most = r->last == SIZE_MAX ? 0 : f->u->sorted[r->last]->step, least = most;
    size_t counting = 0, others = 0;

    for (size_t i = r->first; i < r->end; i++) {
        const ckpt_dsu_entry *e = f->u->sorted[i];
        if (!e->has_step)
            continue;
        counting += e->step != 0;
        others += e->step == 0;
        least = e->step < least ? e->step : least;
    }
    if (counting == 0 || least == most)
        return CKPT_OK;
    const ckpt_value *v = dsuo_step(f, f->u->sorted[r->last]);
    r->alone = counting == 1 && others > 0 && v->kind == CKPT_V_INT;
    for (size_t i = r->first; r->alone && i < r->end; i++)
        f->u->sorted[i]->step = most;
    if (r->alone)
        return CKPT_OK;
    return ckpt_map_note(f->u->job->map, CKPT_WARNING, f->u->job->err,
                         "%s: the parameters of group %" PRIu32
                         " count different optimizer steps (%.0f to %.0f): some had no gradient at "
                         "times; a ZeRO stage keeps one count, which is the largest",
                         f->u->path, f->u->sorted[r->first]->group, least, most);
}

/* Adds the steps of a group to the map. */
static int dsuo_add_steps(dsuo *f, const dsuo_range *r)
{
    const ckpt_value *known = NULL;
    ckpt_ds_scalar step = {0};
    int rc = CKPT_OK;

    for (size_t i = r->first; rc == CKPT_OK && i < r->end; i++) {
        const ckpt_dsu_entry *e = f->u->sorted[i];
        if (!e->has_step || !ckpt_dsu_is_trained(f->u, e))
            continue;
        const ckpt_value *v = dsuo_step(f, r->alone ? f->u->sorted[r->last] : e);
        // The group's parameters share one source if they share the value.
        if (v != known)
            rc = ckpt_ds_state_scalar(f->u->job, &f->u->head->model, v, &step);
        known = v;
        if (rc == CKPT_OK && step.has)
            rc = ckpt_ds_state_add_scalar(f->u->job, "step", e->pair->key->as.text.at, &step);
    }
    return rc;
}

/* Adds the step counts of all groups. */
static int dsuo_steps(dsuo *f)
{
    int rc = dsuo_read_steps(f);

    for (size_t i = 0; rc == CKPT_OK && i < f->u->entry.n;) {
        dsuo_range *r = ckpt_vec_push(&f->range);
        if (!r)
            return ckpt_fail_memory(f->u->job->err);
        *r = dsuo_range_of(f, i);
        i = r->end;
        if (f->u->sorted[r->first]->group == CKPT_DSU_NONE)
            continue;
        rc = dsuo_agree(f, r);
        if (rc == CKPT_OK)
            rc = dsuo_add_steps(f, r);
    }
    return rc;
}

/* ---- groups for writers ---- */

/* Returns the optimizer's states from the writers' copy of the model file's tree. */
static ckpt_dict dsuo_copied(const ckpt_state *state)
{
    const ckpt_value *optimizer = ckpt_value_get(state->model, "optimizer");

    return ckpt_value_map(ckpt_value_get(ckpt_dsu_base(optimizer), "state"));
}

/* Returns a tensor value as a flat one of n elements. */
static ckpt_value *dsuo_flattened(ckpt_arena *arena, const ckpt_tensor_value *from, uint64_t n)
{
    uint64_t *shape = ckpt_arena_copy(arena, &n, sizeof n);
    uint64_t *stride = ckpt_arena_alloc(arena, sizeof *stride);
    ckpt_value *v = ckpt_value_new(arena, CKPT_V_TENSOR);

    if (!shape || !stride || !v)
        return NULL;
    v->as.tensor = ckpt_arena_copy(arena, from, sizeof *from);
    if (!v->as.tensor)
        return NULL;
    *stride = 1;
    v->as.tensor->ndim = 1;
    v->as.tensor->shape = shape;
    v->as.tensor->stride = stride;
    return v;
}

/* Compares two values of one key. */
static int dsuo_same_value(dsuo *f, const ckpt_value *a, const ckpt_value *b, bool *same)
{
    bool has[2] = {false, false};
    double n[2] = {0, 0};
    int rc = ckpt_ds_shard_step(f->u->job, &f->u->head->model, a, &has[0], &n[0]);

    if (rc == CKPT_OK)
        rc = ckpt_ds_shard_step(f->u->job, &f->u->head->model, b, &has[1], &n[1]);
    *same = has[0] && has[1] && n[0] == n[1];
    if (rc == CKPT_OK && !(has[0] && has[1]) && a->kind == b->kind)
        rc = ckpt_value_compare(same, a, b, 4096, f->u->job->err);
    return rc;
}

/* Warns that parameters of a group differ in a value that ZeRO stores once per group. */
static int dsuo_note_value(dsuo *f, const ckpt_dsu_entry *e, const ckpt_value *key)
{
    return ckpt_map_note(
        f->u->job->map, CKPT_WARNING, f->u->job->err,
        "%s: optimizer state '%.100s' differs between the parameters of group %" PRIu32
        ": a ZeRO stage keeps one value, that of the first parameter",
        f->u->path, key->as.text.at, e->group);
}

/* Checks that every parameter of a group has the same value as the first. */
static int dsuo_check_value(dsuo *f, const dsuo_range *r, const ckpt_value *key,
                            const ckpt_value *v)
{
    bool same = true;
    int rc = CKPT_OK;

    for (size_t i = r->first; rc == CKPT_OK && same && i < r->end; i++) {
        const ckpt_dsu_entry *e = f->u->sorted[i];
        const ckpt_value *own =
            e->state == SIZE_MAX || !ckpt_dsu_is_trained(f->u, e)
                ? NULL
                : ckpt_value_get(f->u->states.at[e->state].value, key->as.text.at);
        if (own && own != v)
            rc = dsuo_same_value(f, v, own, &same);
    }
    return rc == CKPT_OK && !same ? dsuo_note_value(f, f->u->sorted[r->first], key) : rc;
}

/* Adds a parameter's state to the group's state in ZeRO's form: flat tensors, one step. */
static int dsuo_merge(dsuo *f, const dsuo_range *r, size_t i, ckpt_dict copied, ckpt_value *out)
{
    ckpt_arena *arena = f->u->job->map->arena;
    const ckpt_dsu_entry *e = f->u->sorted[i];
    ckpt_dict own = dsuo_state(f, e);
    ckpt_dict from =
        e->state < copied.n ? ckpt_value_map(copied.at[e->state].value) : (ckpt_dict){0};
    int rc = CKPT_OK;

    for (uint64_t k = 0; rc == CKPT_OK && k < from.n && k < own.n; k++) {
        const ckpt_value *key = from.at[k].key;
        ckpt_value *v = from.at[k].value;
        if (key->kind != CKPT_V_STR || ckpt_value_get(out, key->as.text.at))
            continue;
        dsuo_kind kind = dsuo_kind_of(f, e, dsuo_find(f, key), own.at[k].value);
        if (kind == DSUO_STEP && r->last != SIZE_MAX && f->u->sorted[r->last]->state < copied.n)
            v = ckpt_value_get(copied.at[f->u->sorted[r->last]->state].value, "step");
        if (kind == DSUO_MOMENT && !f->u->fused)
            v = dsuo_flattened(arena, v->as.tensor, ckpt_dsu_elems(e->copy));
        if (kind == DSUO_VALUE)
            rc = dsuo_check_value(f, r, key, own.at[k].value);
        if (rc == CKPT_OK && (!v || !ckpt_dict_add(arena, &out->as.map, from.at[k].key, v)))
            rc = ckpt_fail_memory(f->u->job->err);
    }
    return rc;
}

/* Appends a parameter to the last group. */
static int dsuo_add_param(dsuo *f, ckpt_state *state, const ckpt_dsu_entry *e, ckpt_dict copied)
{
    const ckpt_text *name = &e->pair->key->as.text;
    size_t at = ckpt_map_index(f->u->job->map, name->at, name->n);
    ckpt_tensor **slot = at == SIZE_MAX ? NULL : ckpt_vec_push(&state->param);

    if (!slot)
        return ckpt_fail_memory(f->u->job->err);
    *slot = f->u->job->map->tensors.at[at];
    if (e->state < copied.n)
        state->own[state->param.n - 1] = copied.at[e->state].value;
    state->group.at[state->group.n - 1].n++;
    return CKPT_OK;
}

/* Adds a group's parameters and its merged state. */
static int dsuo_add_group(dsuo *f, ckpt_state *state, const dsuo_range *r)
{
    ckpt_group *group = &state->group.at[state->group.n - 1];
    ckpt_dict copied = dsuo_copied(state);
    ckpt_value *entry = ckpt_value_new(f->u->job->map->arena, CKPT_V_DICT);
    int rc = entry ? CKPT_OK : ckpt_fail_memory(f->u->job->err);

    state->last_step = state->last_step || r->alone;
    for (size_t i = r->first; rc == CKPT_OK && i < r->end; i++) {
        const ckpt_dsu_entry *e = f->u->sorted[i];
        if (!ckpt_dsu_is_trained(f->u, e))
            continue;
        if (e->state != SIZE_MAX)
            group->entry = entry;
        if (e->state != SIZE_MAX)
            rc = dsuo_merge(f, r, i, copied, entry);
        if (rc == CKPT_OK)
            rc = dsuo_add_param(f, state, e, copied);
    }
    return rc;
}

/* Builds the run's state for writers with the optimizer's groups. */
static int dsuo_make_state(dsuo *f)
{
    ckpt_dsu *u = f->u;
    ckpt_state *state = NULL;
    size_t next = 0;
    int rc = ckpt_ds_state_new(u->job, u->head, u->module, &state);
    const ckpt_value *optimizer = rc == CKPT_OK ? ckpt_value_get(state->model, "optimizer") : NULL;
    ckpt_seq groups = ckpt_value_seq(ckpt_value_get(ckpt_dsu_base(optimizer), "param_groups"));

    if (rc == CKPT_OK)
        state->own = ckpt_arena_array(u->job->map->arena, u->entry.n + 1, sizeof *state->own);
    if (rc == CKPT_OK && !state->own)
        return ckpt_fail_memory(u->job->err);
    for (uint32_t g = 0; rc == CKPT_OK && g < u->n_groups; g++) {
        ckpt_group *group = ckpt_vec_push(&state->group);
        if (!group)
            return ckpt_fail_memory(u->job->err);
        *group = (ckpt_group){.first = state->param.n, .n_lanes = 1};
        group->fields = groups.n == u->n_groups ? groups.at[g] : NULL;
        if (next < f->range.n && u->sorted[f->range.at[next].first]->group == g)
            rc = dsuo_add_group(f, state, &f->range.at[next++]);
    }
    return rc;
}

/* ---- notes ---- */

/* Notes states that no group lists, and parameters without a state in a group that has states. */
static int dsuo_note_owners(dsuo *f)
{
    ckpt_dsu *u = f->u;
    dsuo_names missing = {0};
    size_t orphans = 0, with = 0;
    int rc = CKPT_OK;

    for (uint64_t g = 0; g < u->param_groups.n; g++) {
        uint64_t n = ckpt_value_seq(ckpt_value_get(u->param_groups.at[g], "params")).n;
        for (uint64_t k = 0; k < n; k++)
            (void)ckpt_dsu_state_at(u, g, k);
    }
    for (size_t i = 0; i < u->number.n; i++)
        orphans += !u->number.at[i].claimed;
    for (size_t i = 0; rc == CKPT_OK && i < u->entry.n; i++) {
        const ckpt_dsu_entry *e = u->sorted[i];
        if (!ckpt_dsu_is_trained(u, e))
            continue;
        with += e->state != SIZE_MAX;
        if (e->state == SIZE_MAX)
            rc = dsuo_name(f, &missing, e);
    }
    orphans += u->states.n - u->number.n;
    if (rc == CKPT_OK && orphans)
        rc = ckpt_map_note(u->job->map, CKPT_WARNING, u->job->err,
                           "%s: optimizer states without a parameter that a group lists: %zu; "
                           "they are left out",
                           u->path, orphans);
    if (rc == CKPT_OK && missing.n && with)
        rc = ckpt_map_note(u->job->map, CKPT_INFO, u->job->err,
                           "%s: %zu of %zu parameters have no optimizer state, perhaps because "
                           "they never had a gradient (%s)",
                           u->path, missing.n, missing.n + with, missing.text);
    return rc;
}

/* Leaves out, with a warning, the states whose parameter is not certain, because a guess could mix
 * up parameters. */
static int dsuo_note_doubt(dsuo *f)
{
    ckpt_dsu *u = f->u;

    if (u->param_groups.n == 0 || u->named)
        return CKPT_OK;
    u->job->map->no_state =
        ckpt_arena_printf(u->job->map->arena,
                          "stage 0 writes its optimizer state under numbers, and ckpt cannot match "
                          "it with certainty for %s%zu parameters",
                          u->doubt ? "" : "all ", u->doubt ? u->doubt : u->entry.n);
    if (!u->job->map->no_state)
        return ckpt_fail_memory(u->job->err);
    return ckpt_map_note(u->job->map, CKPT_WARNING, u->job->err,
                         "%s: %s: their state is left out, and the run cannot be resharded",
                         u->path, u->job->map->no_state);
}

int ckpt_dsu_add_optimizer(ckpt_dsu *u)
{
    dsuo *f = ckpt_alloc(sizeof *f);
    int rc = f ? CKPT_OK : ckpt_fail_memory(u->job->err);

    if (rc != CKPT_OK)
        return rc;
    f->u = u;
    rc = dsuo_note_doubt(f);
    if (rc == CKPT_OK && (u->named || u->doubt))
        rc = dsuo_note_owners(f);
    if (rc == CKPT_OK)
        rc = dsuo_keys(f);
    if (rc == CKPT_OK)
        rc = dsuo_add_states(f);
    if (rc == CKPT_OK)
        rc = dsuo_steps(f);
    if (rc == CKPT_OK && u->named)
        rc = dsuo_make_state(f);
    ckpt_vec_free(&f->range);
    ckpt_free(f);
    return rc;
}
