/* SPDX-License-Identifier: Apache-2.0 */
/*
 * state.c: owns the training state of a torch_dist checkpoint: which parameters are in which group,
 * fp32 masters, step counts, and what else common.pt holds.
 *
 * param_groups are saved without their parameters.  Megatron-LM makes them by rule: parameters of
 * one axis and those named ".bias" have no weight decay (wd_mult 0), experts that are spread over
 * ranks stand apart, and so do embedding and output layer where they have a learning rate of their
 * own (is_decoupled_lr).  Where the rule does not lead to one group, there is no state.
 */
#include <string.h>

#include "formats/megatron/megatron.h"
#include "libckpt/copy/reader.h"

enum { MGS_MAX_OPTIMIZERS = 64 };

/* What a group says of its parameters. */
typedef struct mgs_group {
    const ckpt_value *settings;
    bool decays, expert, decoupled;
    bool has_step;
    int64_t step;
} mgs_group;

CKPT_VEC(mgs_groups, mgs_group);

typedef struct mgs_maker {
    ckpt_meg_job *job;
    ckpt_map *map;
    ckpt_state *state;
    mgs_groups group;
    bool experts, decoupled; /* some group is of such */
    ckpt_err *err;
} mgs_maker;

static int mgs_none(mgs_maker *m, const char *why, const char *name)
{
    m->map->no_state =
        ckpt_arena_printf(m->map->arena, "%s%s%.200s", why, name ? ": " : "", name ? name : "");
    return m->map->no_state ? CKPT_OK : ckpt_fail_memory(m->err);
}

static bool mgs_true(const ckpt_value *settings, const char *key)
{
    const ckpt_value *v = ckpt_value_get(settings, key);

    return v && v->kind == CKPT_V_BOOL && v->as.i;
}

static bool mgs_number(const ckpt_value *v, double *out)
{
    if (!v || (v->kind != CKPT_V_FLOAT && v->kind != CKPT_V_INT))
        return false;
    *out = v->kind == CKPT_V_FLOAT ? v->as.f : (double)v->as.i;
    return true;
}

/* ---- groups ---- */

/* The step count that an optimizer of torch keeps once for all parameters. */
static int mgs_common_step(mgs_maker *m, const char *path, bool *has, double *step)
{
    const ckpt_map *common = m->job->common;
    const char *name = ckpt_arena_printf(m->map->arena, "%s.state.common_step", path);
    ckpt_reader *reader = NULL;
    size_t at;
    int rc;

    if (!name)
        return ckpt_fail_memory(m->err);
    at = ckpt_map_index(common, name, strlen(name));
    *has = at != SIZE_MAX && common->tensors.at[at]->n_elems == 1;
    if (!*has)
        return CKPT_OK;
    // its bytes are the map's since the map has common.pt
    rc = ckpt_reader_new(&reader, m->map, m->err);
    if (rc == CKPT_OK)
        rc = ckpt_reader_read(reader, common->tensors.at[at], 0, 1, CKPT_F64, step, m->err);
    ckpt_reader_free(reader);
    return rc;
}

/* One entry of param_groups. */
static int mgs_group_add(mgs_maker *m, const ckpt_value *settings, bool has, double step)
{
    mgs_group *g = ckpt_vec_push(&m->group);
    double mult = 1;

    if (!g)
        return ckpt_fail_memory(m->err);
    if (!settings || settings->kind != CKPT_V_DICT)
        return ckpt_fail(m->err, CKPT_EFORMAT, "%s: a parameter group is no dict",
                         m->job->common->path);
    (void)mgs_number(ckpt_value_get(settings, "wd_mult"), &mult);
    has = mgs_number(ckpt_value_get(settings, "step"), &step) || has;
    *g = (mgs_group){.settings = settings,
                     .decays = mult > 0,
                     .expert = mgs_true(settings, "is_expert_parallel"),
                     .decoupled = mgs_true(settings, "is_decoupled_lr"),
                     .has_step = has && step >= 0 && step < 1e15,
                     .step = has && step >= 0 && step < 1e15 ? (int64_t)step : 0};
    m->experts = m->experts || g->expert;
    m->decoupled = m->decoupled || g->decoupled;
    return CKPT_OK;
}

static int mgs_list(mgs_maker *m, const ckpt_value *list, bool has, double step)
{
    ckpt_seq s = ckpt_value_seq(list);
    int rc = CKPT_OK;

    if (list->kind != CKPT_V_LIST)
        return ckpt_fail(m->err, CKPT_EFORMAT, "%s: the optimizer's param_groups are no list",
                         m->job->common->path);
    for (uint64_t i = 0; rc == CKPT_OK && i < s.n; i++)
        rc = mgs_group_add(m, s.at[i], has, step);
    return rc;
}

/* Groups that were saved beside flat buffers; those of the first rank stand for all. */
static const ckpt_value *mgs_beside(const mgs_maker *m)
{
    static const char name[] = "optimizer.distributed.dp_group_idx_0.optimizer/";
    ckpt_dict all = ckpt_value_map(m->map->values);

    for (uint64_t i = 0; i < all.n; i++) {
        const ckpt_value *key = all.at[i].key;
        ckpt_seq one = ckpt_value_seq(all.at[i].value);
        if (key->kind == CKPT_V_STR && strncmp(key->as.text.at, name, sizeof name - 1) == 0)
            return one.n == 1 ? ckpt_value_get(one.at[0], "param_groups") : NULL;
    }
    return NULL;
}

/* One optimizer: its groups stand in it, or in the one that it wraps. */
static int mgs_optimizer(mgs_maker *m, const ckpt_value *optimizer, const char *path)
{
    const ckpt_value *inner = ckpt_value_get(optimizer, "optimizer"), *list;
    bool has = false;
    double step = 0;

    if (inner) {
        path = ckpt_arena_printf(m->map->arena, "%s.optimizer", path);
        optimizer = inner;
        if (!path)
            return ckpt_fail_memory(m->err);
    }
    list = ckpt_value_get(optimizer, "param_groups");
    if (!list)
        list = mgs_beside(m);
    if (!list)
        return CKPT_OK;
    int rc = mgs_common_step(m, path, &has, &step);
    return rc == CKPT_OK ? mgs_list(m, list, has, step) : rc;
}

/* All optimizers: one, or a dict of them by number. */
static int mgs_optimizers(mgs_maker *m)
{
    const ckpt_value *all = ckpt_value_get(m->job->root, "optimizer");
    ckpt_dict map = ckpt_value_map(all);
    int rc = CKPT_OK;

    if (!all)
        return mgs_none(m, "it was saved without its optimizer", NULL);
    if (map.n == 0 || map.at[0].key->kind != CKPT_V_INT)
        return mgs_optimizer(m, all, "optimizer");
    for (uint64_t i = 0; rc == CKPT_OK && i < map.n && i < MGS_MAX_OPTIMIZERS; i++) {
        const char *path =
            map.at[i].key->kind == CKPT_V_INT
                ? ckpt_arena_printf(m->map->arena, "optimizer.%lld", (long long)map.at[i].key->as.i)
                : "";
        rc = path ? mgs_optimizer(m, map.at[i].value, path) : ckpt_fail_memory(m->err);
    }
    return rc;
}

/* ---- parameters of groups ---- */

static bool mgs_ends(const char *name, const char *end)
{
    size_t n = strlen(name), k = strlen(end);

    return n >= k && strcmp(name + n - k, end) == 0;
}

static bool mgs_decays(const ckpt_tensor *t)
{
    return t->ndim > ckpt_meg_stacked(t->name) + 1 && !mgs_ends(t->name, ".bias");
}

/* Embedding and output layer, which may have a learning rate of their own. */
static bool mgs_decoupled(const char *name)
{
    return mgs_ends(name, "word_embeddings.weight") || mgs_ends(name, "output_layer.weight");
}

/* The one group of a parameter; n_groups: none, or several. */
static size_t mgs_group_of(const mgs_maker *m, const ckpt_tensor *t)
{
    size_t found = m->group.n;

    for (size_t i = 0; i < m->group.n; i++) {
        const mgs_group *g = &m->group.at[i];
        if (g->decays != mgs_decays(t) ||
            (m->experts && g->expert != ckpt_meg_is_expert(t->name)) ||
            (m->decoupled && g->decoupled != mgs_decoupled(t->name)))
            continue;
        if (found < m->group.n)
            return m->group.n;
        found = i;
    }
    return found;
}

static int mgs_fill(mgs_maker *m, size_t number)
{
    const mgs_group *from = &m->group.at[number];
    ckpt_group *g = ckpt_vec_push(&m->state->group);

    if (!g)
        return ckpt_fail_memory(m->err);
    *g = (ckpt_group){.first = m->state->param.n, .n_lanes = 1};
    g->fields = ckpt_dcp_fields(m->map->arena, from->settings, number);
    for (size_t i = 0; i < m->map->tensors.n; i++) {
        ckpt_tensor *t = m->map->tensors.at[i], **slot;
        if (t->role != CKPT_ROLE_WEIGHT || mgs_group_of(m, t) != number)
            continue;
        slot = ckpt_vec_push(&m->state->param);
        if (!slot)
            return ckpt_fail_memory(m->err);
        *slot = t;
        g->n++;
    }
    return g->fields ? CKPT_OK : ckpt_fail_memory(m->err);
}

/* Every trained parameter is in one group. */
static int mgs_groups_fill(mgs_maker *m)
{
    int rc = CKPT_OK;

    if (m->group.n == 0)
        return mgs_none(m, "its optimizer has no parameter groups", NULL);
    for (size_t i = 0; i < m->map->tensors.n; i++) {
        const ckpt_tensor *t = m->map->tensors.at[i];
        if (t->role == CKPT_ROLE_WEIGHT && mgs_group_of(m, t) == m->group.n)
            return mgs_none(m,
                            "parameter groups are saved without their parameters, and nothing "
                            "says in which this one is",
                            t->name);
    }
    for (size_t i = 0; rc == CKPT_OK && i < m->group.n; i++)
        rc = mgs_fill(m, i);
    return rc;
}

/* ---- masters ---- */

/* Let a weight be the fp32 master, with the model's own as a copy of it. */
static int mgs_master(mgs_maker *m, ckpt_tensor *weight, const ckpt_tensor *master)
{
    ckpt_tensor *copy = ckpt_arena_copy(m->map->arena, weight, sizeof *weight);

    if (!copy)
        return ckpt_fail_memory(m->err);
    weight->dtype = master->dtype;
    weight->extent = master->extent;
    weight->n_extents = master->n_extents;
    weight->twin = copy;
    return CKPT_OK;
}

/* Masters leave the list of tensors: they are the weights now. */
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

/* The step counts of a group's parameters, as torch's optimizers keep them: one number each. */
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
        if (!entry || (m->group.at[i].has_step &&
                       !ckpt_dict_add_cstr(arena, &entry->as.map, "step",
                                           ckpt_value_int(arena, m->group.at[i].step))))
            return ckpt_fail_memory(m->err);
        if (m->group.at[i].has_step)
            rc = mgs_steps(m, g, m->group.at[i].step);
        if (rc == CKPT_OK)
            rc = ckpt_dcp_kinds(m->map, m->state, g, entry, m->err);
        g->entry = rc == CKPT_OK && entry->as.map.n > 0 ? entry : NULL;
    }
    return rc;
}

/* Nothing that a run could want back: None, or lists of it. */
static bool mgs_is_empty(const ckpt_value *v)
{
    ckpt_seq s = ckpt_value_seq(v);

    return v->kind == CKPT_V_NONE ||
           (v->kind == CKPT_V_LIST && s.n == 1 && s.at[0]->kind == CKPT_V_NONE);
}

/* What goes into the model file of a training format: all but model and optimizer. */
static int mgs_values(mgs_maker *m)
{
    ckpt_arena *arena = m->map->arena;
    ckpt_value *root = ckpt_value_new(arena, CKPT_V_DICT);
    ckpt_dict all = ckpt_value_map(m->map->values);
    bool ok = root != NULL;

    for (uint64_t i = 0; ok && i < all.n; i++) {
        const ckpt_value *key = all.at[i].key, *v = all.at[i].value;
        bool optimizer =
            key->kind == CKPT_V_STR && (strncmp(key->as.text.at, "optimizer", 9) == 0 ||
                                        strncmp(key->as.text.at, "chained_", 8) == 0);
        if (optimizer || mgs_is_empty(v) || (v->kind == CKPT_V_TENSOR && !v->as.tensor->storage))
            continue;
        ok = ckpt_dict_add(arena, &root->as.map, all.at[i].key, all.at[i].value);
    }
    if (ok && !ckpt_value_get(root, "global_steps") && m->map->known.step >= 0)
        ok = ckpt_dict_add_cstr(arena, &root->as.map, "global_steps",
                                ckpt_value_int(arena, m->map->known.step));
    m->state->model = root;
    m->state->foreign = true;
    return ok ? CKPT_OK : ckpt_fail_memory(m->err);
}

/* ---- the whole ---- */

/* State whose parameter is not told. */
static const char *mgs_nobodys(const ckpt_map *map)
{
    for (size_t i = 0; i < map->tensors.n; i++) {
        const ckpt_tensor *t = map->tensors.at[i];
        if (t->role == CKPT_ROLE_OTHER && strstr(t->name, "optimizer."))
            return t->name;
    }
    return NULL;
}

static int mgs_make(mgs_maker *m)
{
    const char *why = NULL;
    int rc = mgs_optimizers(m);

    if (rc == CKPT_OK && !m->map->no_state)
        rc = ckpt_meg_buffers(m->job, &why);
    if (rc != CKPT_OK || m->map->no_state)
        return rc;
    if (!why)
        why = mgs_nobodys(m->map);
    if (why)
        return mgs_none(m,
                        "optimizer state in flat buffers without the names of its parameters (with "
                        "--dist-ckpt-optim-fully-reshardable Megatron-LM saves them)",
                        why);
    rc = mgs_groups_fill(m);
    if (rc != CKPT_OK || m->map->no_state)
        return rc;
    m->state->dtype = ckpt_dcp_dtype(m->state);
    rc = mgs_masters(m);
    if (rc == CKPT_OK)
        rc = mgs_entries(m);
    return rc == CKPT_OK ? mgs_values(m) : rc;
}

int ckpt_meg_state(ckpt_meg_job *job)
{
    mgs_maker m = {.job = job, .map = job->map, .err = job->err};
    int rc;

    if (!job->common)
        return mgs_none(&m, CKPT_MEG_COMMON " is not there", NULL);
    rc = ckpt_state_new(&m.state, job->map, "", job->err);
    if (rc == CKPT_OK)
        rc = mgs_make(&m);
    ckpt_vec_free(&m.group);
    if (m.state && (rc != CKPT_OK || job->map->no_state)) {
        ckpt_state_free(m.state);
        job->map->states.n--;
    }
    return rc;
}
