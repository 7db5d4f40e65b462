/* SPDX-License-Identifier: Apache-2.0 */
/*
 * state.c: builds the training state: the parameters of groups, fp32 masters, step counts, the
 * values of the run.
 */
#include <assert.h>
#include <string.h>

#include "formats/megatron/megatron.h"
#include "formats/training/kept_values.h"
#include "formats/training/param_values.h"
#include "formats/training/torch_state.h"
#include "libckpt/map/extent.h"

enum { MGS_DEPTH = 3 }; /* nested optimizers */

typedef struct mgs_maker {
    ckpt_meg_job *job;
    ckpt_map *map;
    ckpt_state *state;
    const ckpt_meg_groups *group;
    ckpt_err *err;
} mgs_maker;

int ckpt_meg_none(ckpt_map *map, const char *why, const char *name, ckpt_err *err)
{
    assert(map && why);
    map->no_state =
        ckpt_arena_printf(map->arena, "%s%s%.200s", why, name ? ": " : "", name ? name : "");
    return map->no_state ? CKPT_OK : ckpt_fail_memory(err);
}

static int mgs_fill(mgs_maker *m, size_t number)
{
    const ckpt_meg_group *from = &m->group->at[number];
    ckpt_group *g = ckpt_vec_push(&m->state->group);

    if (!g)
        return ckpt_fail_memory(m->err);
    *g = (ckpt_group){.first = m->state->param.n, .n_lanes = 1};
    g->fields = ckpt_train_fields(m->map->arena, from->settings, number);
    for (size_t i = 0; i < m->map->tensors.n; i++) {
        ckpt_tensor *t = m->map->tensors.at[i], **slot;
        if (t->role != CKPT_ROLE_WEIGHT || ckpt_meg_group_of(m->group, t->name, t->ndim) != number)
            continue;
        slot = ckpt_vec_push(&m->state->param);
        if (!slot)
            return ckpt_fail_memory(m->err);
        *slot = t;
        g->n++;
    }
    return g->fields ? CKPT_OK : ckpt_fail_memory(m->err);
}

/* Check that every trained parameter is in one group, and fill the groups. */
static int mgs_groups_fill(mgs_maker *m)
{
    int rc = CKPT_OK;

    if (m->group->n == 0)
        return ckpt_meg_none(m->map, "its optimizer has no parameter groups", NULL, m->err);
    for (size_t i = 0; i < m->map->tensors.n; i++) {
        const ckpt_tensor *t = m->map->tensors.at[i];
        if (t->role == CKPT_ROLE_WEIGHT &&
            ckpt_meg_group_of(m->group, t->name, t->ndim) == m->group->n)
            return ckpt_meg_none(m->map,
                                 "parameter groups are saved without their parameters, and nothing "
                                 "says which group this one is in",
                                 t->name, m->err);
    }
    for (size_t i = 0; rc == CKPT_OK && i < m->group->n; i++)
        rc = mgs_fill(m, i);
    return rc;
}

/* ---- masters ---- */

/*
 * Make the fp32 master the weight, because training continues from it; the model's weight becomes
 * its twin, to be compared with it.
 */
static int mgs_master(mgs_maker *m, ckpt_tensor *weight, const ckpt_tensor *master)
{
    const bool same =
        weight->ndim == master->ndim &&
        memcmp(weight->shape, master->shape, weight->ndim * sizeof *weight->shape) == 0;
    ckpt_tensor *copy = ckpt_arena_copy(m->map->arena, weight, sizeof *weight);

    if (!same)
        return ckpt_fail(m->err, CKPT_EMISMATCH,
                         "%s: %s has another shape than its weight: they are of different saves; "
                         "ckpt convert takes the weights",
                         m->map->path, master->name);
    if (!copy)
        return ckpt_fail_memory(m->err);
    weight->dtype = master->dtype;
    ckpt_extent_share(weight, master);
    weight->twin = copy;
    return CKPT_OK;
}

/* Remove the masters from the list, because they are the weights now. */
static int mgs_masters(mgs_maker *m)
{
    static const char *const kinds[] = {"param", "fp32_param", "master_param"};
    ckpt_tensors *list = &m->map->tensors;
    size_t n = 0;
    int rc = CKPT_OK;

    for (size_t i = 0; rc == CKPT_OK && i < list->n; i++) {
        ckpt_tensor *t = list->at[i];
        const char *slash = t->role == CKPT_ROLE_STATE ? strchr(t->name, '/') : NULL;
        bool master = false;
        for (size_t k = 0; slash && k < sizeof kinds / sizeof *kinds; k++)
            master = master || (strlen(kinds[k]) == (size_t)(slash - t->name) &&
                                strncmp(t->name, kinds[k], strlen(kinds[k])) == 0);
        size_t at = master ? ckpt_map_index(m->map, slash + 1, strlen(slash + 1)) : SIZE_MAX;
        if (at == SIZE_MAX)
            list->at[n++] = t;
        else
            rc = mgs_master(m, list->at[at], t);
    }
    if (rc != CKPT_OK)
        return rc;
    list->n = n;
    return ckpt_map_reindex(m->map, m->err);
}

/* ---- entries ---- */

/* Add one step count per parameter of a group, as torch's optimizers store them. */
static int mgs_steps(mgs_maker *m, const ckpt_group *g, int64_t step)
{
    static const uint64_t none = 0;
    const ckpt_tensor like = {.dtype = CKPT_F32, .shape = &none, .role = CKPT_ROLE_STATE};
    float value = (float)step;
    ckpt_source memory = {.kind = CKPT_SOURCE_MEMORY, .n_bytes = sizeof value, .name = "a number"};
    uint32_t source;
    int rc;

    memory.memory = ckpt_arena_copy(m->map->arena, &value, sizeof value);
    rc = memory.memory ? ckpt_map_add_source(m->map, &memory, &source, m->err)
                       : ckpt_fail_memory(m->err);
    for (size_t i = g->first; rc == CKPT_OK && i < g->first + g->n; i++) {
        const char *name = ckpt_arena_printf(m->map->arena, "step/%s", m->state->param.at[i]->name);
        ckpt_tensor *t;
        if (!name)
            return ckpt_fail_memory(m->err);
        rc = ckpt_map_add(m->map, name, strlen(name), &like, &t, m->err);
        if (rc == CKPT_OK)
            rc = ckpt_map_back_whole(m->map, t, source, 0, m->err);
    }
    return rc;
}

static int mgs_entries(mgs_maker *m)
{
    ckpt_arena *arena = m->map->arena;
    int rc = CKPT_OK;

    for (size_t i = 0; rc == CKPT_OK && i < m->state->group.n; i++) {
        ckpt_group *g = &m->state->group.at[i];
        ckpt_value *entry = ckpt_value_new(arena, CKPT_V_DICT);
        if (!entry || (m->group->at[i].has_step &&
                       !ckpt_dict_add_cstr(arena, &entry->as.map, "step",
                                           ckpt_value_int(arena, m->group->at[i].step))))
            return ckpt_fail_memory(m->err);
        if (m->group->at[i].has_step)
            rc = mgs_steps(m, g, m->group->at[i].step);
        g->entry = rc == CKPT_OK && entry->as.map.n > 0 ? entry : NULL;
    }
    return rc == CKPT_OK ? ckpt_train_entries(m->map, m->state, NULL, NULL, m->err) : rc;
}

/* True for values without content: None, or a list of it. */
static bool mgs_is_empty(const ckpt_value *v)
{
    ckpt_seq s = ckpt_value_seq(v);

    return v->kind == CKPT_V_NONE ||
           (v->kind == CKPT_V_LIST && s.n == 1 && s.at[0]->kind == CKPT_V_NONE);
}

/*
 * Collect the members of Megatron-FSDP's entry of a parameter, except moments and step count;
 * NULL: none, or no memory (*ok is false).
 */
static ckpt_value *mgs_entry_rest(ckpt_arena *arena, const ckpt_value *entry, bool *ok)
{
    ckpt_dict map = ckpt_value_map(entry);
    ckpt_value *rest = NULL;

    for (uint64_t i = 0; *ok && i < map.n; i++) {
        if (map.at[i].value->kind == CKPT_V_TENSOR || ckpt_value_is(map.at[i].key, "step"))
            continue;
        rest = rest ? rest : ckpt_value_new(arena, CKPT_V_DICT);
        *ok = rest && ckpt_dict_add(arena, &rest->as.map, map.at[i].key, map.at[i].value);
    }
    return rest;
}

/*
 * Collect the members of a state, except the step count and the entries of parameters, which have
 * numbers in Megatron-LM's files, are tensors in torch_dist, and dicts with the names of modules in
 * Megatron-FSDP's; NULL: nothing, or no memory (*ok is false).
 */
static ckpt_value *mgs_state_rest(ckpt_arena *arena, const ckpt_value *state, bool *ok)
{
    ckpt_dict map = ckpt_value_map(state);
    ckpt_value *rest = NULL;

    for (uint64_t i = 0; *ok && i < map.n; i++) {
        ckpt_value *key = map.at[i].key, *v = map.at[i].value;
        if (key->kind != CKPT_V_STR || ckpt_value_is(key, "common_step") ||
            (v->kind == CKPT_V_TENSOR && !v->as.tensor->storage))
            continue;
        if (v->kind == CKPT_V_DICT && strncmp(key->as.text.at, "module.", 7) == 0)
            v = mgs_entry_rest(arena, v, ok);
        if (!v)
            continue;
        rest = rest ? rest : ckpt_value_new(arena, CKPT_V_DICT);
        *ok = rest && ckpt_dict_add(arena, &rest->as.map, key, v);
    }
    return rest;
}

/*
 * Collect an optimizer's values other than groups and state (e.g. grad_scaler), in their dicts;
 * NULL: nothing, or no memory (*ok is false).
 */
static ckpt_value *mgs_beside(ckpt_arena *arena, const ckpt_value *optimizer, unsigned depth,
                              bool *ok)
{
    static const char *const known[] = {"param_groups", "fp32_from_fp16_params",
                                        "fp32_from_fp32_params", "param_state_sharding_type",
                                        "param_to_group_meta"};
    ckpt_dict map = ckpt_value_map(optimizer);
    ckpt_value *rest = NULL;

    for (uint64_t i = 0; *ok && i < map.n; i++) {
        ckpt_value *key = map.at[i].key, *v = map.at[i].value;
        bool taken = false;
        for (size_t k = 0; k < sizeof known / sizeof *known; k++)
            taken = taken || ckpt_value_is(key, known[k]);
        if (depth > 0 && (ckpt_value_is(key, "optimizer") || key->kind == CKPT_V_INT))
            v = mgs_beside(arena, v, depth - 1, ok);
        else if (ckpt_value_is(key, "state"))
            v = mgs_state_rest(arena, v, ok);
        if (taken || !v || mgs_is_empty(v))
            continue;
        rest = rest ? rest : ckpt_value_new(arena, CKPT_V_DICT);
        *ok = rest && ckpt_dict_add(arena, &rest->as.map, key, v);
    }
    return rest;
}

/* The same of all optimizers: NeMo 2 has a list of them. */
static ckpt_value *mgs_beside_all(ckpt_arena *arena, const ckpt_value *optimizer, bool *ok)
{
    ckpt_seq list = ckpt_value_seq(optimizer);
    ckpt_value *rest = NULL;

    if (!optimizer || optimizer->kind != CKPT_V_LIST)
        return mgs_beside(arena, optimizer, MGS_DEPTH, ok);
    for (uint64_t i = 0; *ok && i < list.n; i++) {
        ckpt_value *v = list.at[i], *key = ckpt_value_int(arena, (int64_t)i);
        if (v->kind == CKPT_V_DICT)
            v = mgs_beside(arena, v, MGS_DEPTH, ok);
        if (!v || mgs_is_empty(v))
            continue;
        rest = rest ? rest : ckpt_value_new(arena, CKPT_V_DICT);
        *ok = *ok && rest && key && ckpt_dict_add(arena, &rest->as.map, key, v);
    }
    return rest;
}

/* The step count of the optimizer: the largest of its groups. */
static int64_t mgs_most_steps(const mgs_maker *m)
{
    int64_t most = 0;

    for (size_t i = 0; i < m->group->n; i++)
        most =
            m->group->at[i].has_step && m->group->at[i].step > most ? m->group->at[i].step : most;
    return most;
}

/* True for a value that ckpt added to a run of DeepSpeed for Megatron, or that it kept of it. */
static bool mgs_was_added(const mgs_maker *m, const ckpt_pair *p)
{
    ckpt_dict all = ckpt_value_map(m->map->values);
    ckpt_seq added = {0};

    if (p->key->kind != CKPT_V_STR)
        return false;
    for (uint64_t i = 0; i < all.n; i++) {
        if (all.at[i].key->kind == CKPT_V_STR && ckpt_train_is_kept(&all.at[i]))
            added = ckpt_value_seq(ckpt_value_get(all.at[i].value, CKPT_MEG_ADDED));
    }
    for (uint64_t i = 0; i < added.n; i++) {
        if (added.at[i]->kind == CKPT_V_STR && ckpt_value_is(p->key, added.at[i]->as.text.at))
            return true;
    }
    return ckpt_train_is_kept(p);
}

/* Make the values of a training format's model file: everything except model and optimizer. */
static int mgs_values(mgs_maker *m)
{
    ckpt_arena *arena = m->map->arena;
    ckpt_value *root = ckpt_value_new(arena, CKPT_V_DICT);
    ckpt_dict all = ckpt_value_map(m->job->rest ? m->job->rest : m->map->values);
    bool ok = root != NULL;

    for (uint64_t i = 0; ok && i < all.n; i++) {
        const ckpt_value *key = all.at[i].key, *v = all.at[i].value;
        bool optimizer =
            key->kind == CKPT_V_STR && (strcmp(key->as.text.at, "optimizer") == 0 ||
                                        strncmp(key->as.text.at, "optimizer.", 10) == 0 ||
                                        strncmp(key->as.text.at, "chained_", 8) == 0);
        if (optimizer || mgs_is_empty(v) || (v->kind == CKPT_V_TENSOR && !v->as.tensor->storage) ||
            mgs_was_added(m, &all.at[i]))
            continue;
        ok = ckpt_value_is(key, CKPT_MEG_SCHEDULE)
                 ? ckpt_dict_add_cstr(arena, &root->as.map, "lr_scheduler", all.at[i].value)
                 : ckpt_dict_add(arena, &root->as.map, all.at[i].key, all.at[i].value);
    }
    ckpt_value *beside = mgs_beside_all(arena, ckpt_value_get(m->job->root, "optimizer"), &ok);
    if (ok && beside)
        ok = ckpt_dict_add_cstr(arena, &root->as.map, "megatron_optimizer", beside);
    if (ok && !ckpt_value_get(root, "global_steps") && m->map->known.step >= 0)
        ok = ckpt_dict_add_cstr(arena, &root->as.map, "global_steps",
                                ckpt_value_int(arena, m->map->known.step));
    m->state->model = root;
    m->state->foreign = true;
    if (!ok)
        return ckpt_fail_memory(m->err);
    return ckpt_train_take_back(m->map, m->state, root, mgs_most_steps(m), m->err);
}

/* ---- the state ---- */

static int mgs_make(mgs_maker *m)
{
    int rc = mgs_groups_fill(m);

    if (rc != CKPT_OK || m->map->no_state)
        return rc;
    m->state->dtype = ckpt_train_dtype(m->state);
    rc = mgs_masters(m);
    if (rc == CKPT_OK)
        rc = mgs_entries(m);
    return rc == CKPT_OK ? mgs_values(m) : rc;
}

int ckpt_meg_state(ckpt_meg_job *job, const ckpt_meg_groups *groups)
{
    assert(job->map && groups);
    mgs_maker m = {.job = job, .map = job->map, .group = groups, .err = job->err};
    int rc = ckpt_state_new(&m.state, job->map, "", job->err);

    if (rc == CKPT_OK)
        rc = mgs_make(&m);
    if (m.state && (rc != CKPT_OK || job->map->no_state)) {
        ckpt_state_free(m.state);
        job->map->states.n--;
    }
    return rc;
}
