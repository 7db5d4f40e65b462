/* SPDX-License-Identifier: Apache-2.0 */
/*
 * join.c: joins the slices of all model-parallel ranks into one checkpoint.
 *
 * The rules of universal_checkpoint_info (formats/rules/rules.h) or of the user join
 * tensor-parallel slices; moments follow their parameter's rule. Buffers without a rule, step
 * counts and scalars are replicated. Pipeline stages are concatenated; if several stages have a
 * parameter (tied layers), the first one's tensor is kept and the others become copies that must be
 * equal. The single training state joins the groups of all stages by index.
 */
#include <assert.h>
#include <inttypes.h>
#include <string.h>

#include "formats/deepspeed/join/grid.h"
#include "formats/deepspeed/layout/layout.h"
#include "formats/rules/rules.h"
#include "libckpt/map/extent.h"
#include "libckpt/map/map.h"
#include "libckpt/map/state.h"

CKPT_VEC(dsj_set, const ckpt_tensor *);

typedef struct dsj {
    ckpt_ds_grid *grid;
    ckpt_ds_job *job;
    ckpt_uni_rules *rules; /* NULL: tensor-parallel degree 1 */
    dsj_set slice;         /* slices of the current tensor */
    dsj_set hidden;        /* copies to remove from the map's list at the end */
} dsj;

const ckpt_value *ckpt_ds_join_info(const ckpt_ds_grid *grid)
{
    const ckpt_value *values = grid->slice[0].map->values;
    const ckpt_value *model = ckpt_value_get(values, "model_states"),
                     *optim = ckpt_value_get(values, "optim_states");
    const ckpt_value *info = ckpt_value_get(model, "universal_checkpoint_info");

    if (ckpt_value_map(info).n == 0)
        info = ckpt_value_get(ckpt_value_get(optim, "optimizer_state_dict"),
                              "universal_checkpoint_info");
    return ckpt_value_map(info).n ? info : NULL;
}

/* Returns slice k of a stage. */
static const ckpt_ds_slice *dsj_slice(const dsj *j, uint32_t stage, uint32_t k)
{
    // Expert-parallel parts of stage 0 are indexed like stages.
    return &j->grid->slice[j->grid->ep ? stage : stage * j->grid->tp + k];
}

static uint32_t dsj_stages(const dsj *j)
{
    return j->grid->ep ? j->grid->ep : j->grid->pp;
}

/* ---- one tensor of a stage ---- */

/* Returns the parameter whose rule applies to a tensor; a moment's name is "<kind>/<parameter>". */
static const char *dsj_param(const ckpt_tensor *t)
{
    const char *slash = t->role == CKPT_ROLE_STATE ? strchr(t->name, '/') : NULL;

    return slash ? slash + 1 : t->name;
}

/* Reports a slice that is missing or differs from rank 0's. */
static int dsj_differs(dsj *j, const ckpt_tensor *t, uint32_t mp, const char *how)
{
    return ckpt_ds_problem(j->job, CKPT_EMISMATCH,
                           "%s: %.200s %s on model-parallel rank %02" PRIu32
                           ": the files are from different runs",
                           j->job->map->path, t->name, how, mp);
}

/* Collects the slices of a tensor in j->slice, given the tensor of the stage's first rank. */
static int dsj_collect(dsj *j, uint32_t stage, const ckpt_tensor *t)
{
    j->slice.n = 0;
    for (uint32_t k = 0; k < j->grid->tp; k++) {
        const ckpt_map *map = dsj_slice(j, stage, k)->map;
        size_t at = ckpt_map_index(map, t->name, strlen(t->name));
        const ckpt_tensor *s = at == SIZE_MAX ? NULL : map->tensors.at[at];
        uint32_t mp = stage * j->grid->tp + k;
        if (!s)
            return dsj_differs(j, t, mp, "is missing");
        s = s->owner ? s->owner : s;
        if (s->role != t->role)
            return dsj_differs(j, t, mp, "is of another kind (trained, frozen, buffer)");
        if (s->dtype != t->dtype || s->ndim != t->ndim)
            return dsj_differs(j, t, mp, "has another dtype or number of axes");
        const ckpt_tensor **slot = ckpt_vec_push(&j->slice);
        if (!slot)
            return ckpt_fail_memory(j->job->err);
        *slot = s;
    }
    return CKPT_OK;
}

/* Finds a tensor's rule. */
static int dsj_rule(dsj *j, const ckpt_tensor *t, ckpt_slice_rule *rule)
{
    const char *param = dsj_param(t);

    *rule = (ckpt_slice_rule){.kind = CKPT_SLICE_SAME};
    if (t->ndim == 0)
        return CKPT_OK;
    int rc = ckpt_uni_rules_find(j->rules, param, strlen(param), rule, j->job->err);
    if (rc == CKPT_OK && t->role == CKPT_ROLE_BUFFER && !rule->pattern)
        *rule = (ckpt_slice_rule){.kind = CKPT_SLICE_SAME, .keep_rows = rule->keep_rows};
    return rc;
}

/* Adds the tensor joined from j->slice under a name. */
static int dsj_enter(dsj *j, const char *name, const ckpt_tensor *t, ckpt_tensor **out)
{
    ckpt_map *map = j->job->map;
    ckpt_slice_rule rule;
    int rc;

    if (j->grid->tp == 1) {
        rc = ckpt_map_add(map, name, strlen(name), t, out, j->job->err);
        if (rc == CKPT_OK) {
            ckpt_extent_share(*out, t);
        }
        return rc;
    }
    const ckpt_slice_set set = {name, j->slice.at, (uint32_t)j->slice.n};
    rc = dsj_rule(j, t, &rule);
    return rc == CKPT_OK ? ckpt_slices_join(out, map, &rule, &set, j->job->err) : rc;
}

/*
 * Adds another stage's tensor of the same name as a copy for comparison. The copy precedes the
 * 16-bit copies in the chain, because precision may only decrease along it.
 */
static int dsj_copy(dsj *j, ckpt_tensor *first, uint32_t stage, const ckpt_tensor *t)
{
    const char *name =
        ckpt_arena_printf(j->job->map->arena, "%s (part %" PRIu32 ")", t->name, stage);
    ckpt_tensor *made = NULL, *end;
    int rc = name ? dsj_enter(j, name, t, &made) : ckpt_fail_memory(j->job->err);

    if (rc != CKPT_OK)
        return rc;
    if (made->dtype != first->dtype || made->ndim != first->ndim || made->role != first->role ||
        (made->ndim && memcmp(made->shape, first->shape, made->ndim * sizeof *made->shape) != 0))
        return ckpt_ds_problem(
            j->job, CKPT_EMISMATCH,
            "%s: %.200s has another dtype or shape in part %" PRIu32
            " of the model than in the first that has it: they are from different "
            "runs",
            j->job->map->path, t->name, stage);
    const ckpt_tensor **slot = ckpt_vec_push(&j->hidden);
    if (!slot)
        return ckpt_fail_memory(j->job->err);
    *slot = made;
    // `twin` is const for readers of a map, but this map is still being built.
    for (end = made; end->twin; memcpy(&end, &end->twin, sizeof end))
        ;
    end->twin = first->twin;
    first->twin = made;
    return CKPT_OK;
}

/*
 * Returns whether both tensors come from the same bytes of the same file. Expert-parallel parts of
 * stage 0 share all tensors except experts and optimizer state, because each part has read the one
 * model file.
 */
static bool dsj_is_same(const ckpt_map *map, const ckpt_tensor *a, const ckpt_tensor *b)
{
    ckpt_box room_a, room_b;

    if (a->n_extents != 1 || b->n_extents != 1)
        return false;
    const ckpt_extent *p = ckpt_extent_of(a, 0, &room_a), *q = ckpt_extent_of(b, 0, &room_b);
    if (p->at != q->at)
        return false;
    const ckpt_source *x = &map->sources.at[p->source], *y = &map->sources.at[q->source];
    return x->kind == CKPT_SOURCE_FILE && y->kind == CKPT_SOURCE_FILE && x->at == y->at &&
           strcmp(map->files.at[x->file].path, map->files.at[y->file].path) == 0;
}

/* Adds one tensor of a stage's first rank. */
static int dsj_tensor(dsj *j, uint32_t stage, const ckpt_tensor *t)
{
    ckpt_map *map = j->job->map;
    size_t at = ckpt_map_index(map, t->name, strlen(t->name));
    ckpt_tensor *made = NULL;
    int rc = dsj_collect(j, stage, t);

    if (rc != CKPT_OK || j->slice.n != j->grid->tp)
        return rc;
    if (at == SIZE_MAX)
        return dsj_enter(j, t->name, t, &made);
    if (j->grid->tp == 1 && dsj_is_same(map, map->tensors.at[at], t))
        return CKPT_OK;
    return dsj_copy(j, map->tensors.at[at], stage, t);
}

/* Reports tensors that the stage's first rank lacks. */
static int dsj_surplus(dsj *j, uint32_t stage)
{
    const ckpt_map *first = dsj_slice(j, stage, 0)->map;
    int rc = CKPT_OK;

    for (uint32_t k = 1; rc == CKPT_OK && k < j->grid->tp; k++) {
        const ckpt_map *map = dsj_slice(j, stage, k)->map;
        for (size_t i = 0; rc == CKPT_OK && i < map->tensors.n; i++) {
            const ckpt_tensor *t = map->tensors.at[i];
            if (ckpt_map_index(first, t->name, strlen(t->name)) == SIZE_MAX)
                rc = dsj_differs(j, t, stage * j->grid->tp, "is missing");
        }
    }
    return rc;
}

/* Adds a tied name once the map has its owner. */
static int dsj_alias(dsj *j, const ckpt_tensor *t)
{
    ckpt_map *map = j->job->map;
    size_t owner = ckpt_map_index(map, t->owner->name, strlen(t->owner->name));
    ckpt_tensor *made = NULL;

    if (owner == SIZE_MAX || ckpt_map_index(map, t->name, strlen(t->name)) != SIZE_MAX)
        return CKPT_OK;
    ckpt_tensor like = *map->tensors.at[owner];
    like.twin = like.addend = NULL;
    int rc = ckpt_map_add(map, t->name, strlen(t->name), &like, &made, j->job->err);
    if (rc == CKPT_OK)
        made->owner = map->tensors.at[owner];
    return rc;
}

/* The passes over all stages, in order: a map has the weights of all stages before any state. */
typedef enum dsj_pass { DSJ_WEIGHTS, DSJ_ALIASES, DSJ_STATES, DSJ_END } dsj_pass;

static dsj_pass dsj_pass_of(const ckpt_tensor *t)
{
    if (t->owner)
        return DSJ_ALIASES;
    return t->role == CKPT_ROLE_STATE ? DSJ_STATES : DSJ_WEIGHTS;
}

static int dsj_tensors(dsj *j)
{
    int rc = CKPT_OK;

    for (dsj_pass pass = DSJ_WEIGHTS; rc == CKPT_OK && pass < DSJ_END; pass++) {
        for (uint32_t s = 0; rc == CKPT_OK && s < dsj_stages(j); s++) {
            const ckpt_map *map = dsj_slice(j, s, 0)->map;
            for (size_t i = 0; rc == CKPT_OK && i < map->tensors.n; i++) {
                const ckpt_tensor *t = map->tensors.at[i];
                if (dsj_pass_of(t) != pass)
                    continue;
                rc = t->owner ? dsj_alias(j, t) : dsj_tensor(j, s, t);
            }
            if (rc == CKPT_OK && pass == DSJ_WEIGHTS)
                rc = dsj_surplus(j, s);
        }
    }
    return rc;
}

/* Removes the copies from the map's list. */
static int dsj_hide(dsj *j)
{
    ckpt_map *map = j->job->map;
    size_t n = 0, h = 0;

    if (j->hidden.n == 0)
        return CKPT_OK;
    // Both lists are in order of creation.
    for (size_t i = 0; i < map->tensors.n; i++) {
        if (h < j->hidden.n && map->tensors.at[i] == j->hidden.at[h])
            h++;
        else
            map->tensors.at[n++] = map->tensors.at[i];
    }
    map->tensors.n = n;
    return ckpt_map_reindex(map, j->job->err);
}

/* ---- the training state ---- */

/* Returns the state of a stage's first rank; NULL if the caller asked for none. */
static const ckpt_state *dsj_state_of(const dsj *j, uint32_t stage)
{
    const ckpt_map *map = dsj_slice(j, stage, 0)->map;

    return map->states.n ? map->states.at[0] : NULL;
}

/* Appends the joined tensors of parameters; `seen` marks those already appended (tied layers). */
static int dsj_add_params(dsj *j, ckpt_state *to, const ckpt_state *from, size_t first, size_t n,
                          uint8_t *seen)
{
    ckpt_map *map = j->job->map;

    for (size_t i = first; i < first + n; i++) {
        const char *name = from->param.at[i]->name;
        size_t at = ckpt_map_index(map, name, strlen(name));
        if (at == SIZE_MAX || seen[at])
            continue;
        seen[at] = 1;
        ckpt_tensor **slot = ckpt_vec_push(&to->param);
        if (!slot)
            return ckpt_fail_memory(j->job->err);
        *slot = map->tensors.at[at];
    }
    return CKPT_OK;
}

/* Returns whether a group is expert-parallel, that is its parameters differ between the parts. */
static bool dsj_is_expert(const dsj *j, size_t g)
{
    const ckpt_state *a = dsj_state_of(j, 0), *b = dsj_state_of(j, 1);

    if (g >= a->group.n || g >= b->group.n || a->group.at[g].n == 0 || b->group.at[g].n == 0)
        return false;
    return strcmp(a->param.at[a->group.at[g].first]->name,
                  b->param.at[b->group.at[g].first]->name) != 0;
}

/* Adds a group's parameters: one expert-parallel rank after the other, within each the stages in
 * order. */
static int dsj_group(dsj *j, ckpt_state *to, size_t g, uint8_t *seen)
{
    ckpt_group *group = ckpt_vec_push(&to->group);
    bool parts = j->grid->ep > 1 && dsj_is_expert(j, g);
    int rc = CKPT_OK;

    if (!group)
        return ckpt_fail_memory(j->job->err);
    *group = (ckpt_group){.first = to->param.n, .n_lanes = parts ? j->grid->ep : 1};
    for (uint32_t s = 0; s < dsj_stages(j); s++) {
        const ckpt_state *from = dsj_state_of(j, s);
        const ckpt_group *own = g < from->group.n ? &from->group.at[g] : NULL;
        if (own && !group->fields && !group->entry) {
            group->fields = own->fields;
            group->entry = own->entry;
            group->ranked = own->ranked; // valid for other partitions only, so group->cut stays 0
            group->stored = own->stored;
        }
        if (own && !parts && own->n_lanes > group->n_lanes)
            group->n_lanes = own->n_lanes;
    }
    for (uint32_t e = 0; rc == CKPT_OK && e < (parts ? 1 : group->n_lanes); e++) {
        for (uint32_t s = 0; rc == CKPT_OK && s < dsj_stages(j); s++) {
            const ckpt_state *from = dsj_state_of(j, s);
            const ckpt_group *own = g < from->group.n ? &from->group.at[g] : NULL;
            if (own && e < own->n_lanes)
                rc = dsj_add_params(j, to, from, own->first + e * own->n, own->n, seen);
        }
    }
    group->n = (to->param.n - group->first) / group->n_lanes;
    if (rc == CKPT_OK && group->n * group->n_lanes != to->param.n - group->first)
        rc = ckpt_fail(j->job->err, CKPT_EUNSUPPORTED,
                       "%s: parameter group %zu has experts in some pipeline stages only",
                       j->job->map->path, g);
    return rc;
}

/* Records the values that differ between model-parallel ranks, or between the optimizer files of
 * expert-parallel ranks (stage 0). */
static int dsj_client(dsj *j, ckpt_state *to)
{
    const ckpt_state *first = dsj_state_of(j, 0);
    int rc = CKPT_OK;

    for (uint32_t i = 1; rc == CKPT_OK && i < j->grid->n; i++) {
        const ckpt_map *own = j->grid->slice[i].map;
        if (own->states.n > 0)
            rc = ckpt_ds_client_join(j->job, to, first, own->states.at[0]);
    }
    return rc;
}

/* Builds the single state from rank 0's state and the parameters of all ranks. */
static int dsj_state(dsj *j)
{
    ckpt_map *map = j->job->map;
    const ckpt_state *first = dsj_state_of(j, 0);
    ckpt_state *to = NULL;
    size_t most = 0;

    for (uint32_t s = 0; s < dsj_stages(j); s++) {
        const ckpt_state *own = dsj_state_of(j, s);
        if (!own)
            return CKPT_OK;
        most = own->group.n > most ? own->group.n : most;
    }
    uint8_t *seen = ckpt_alloc(map->tensors.n + 1);
    int rc = seen ? ckpt_state_new(&to, map, "", j->job->err) : ckpt_fail_memory(j->job->err);
    if (rc == CKPT_OK) {
        const char *prefix = to->prefix;
        *to = *first;
        to->prefix = prefix;
        to->mp = 0;
        to->joined = j->grid->dir->n_mp > 1;
        memset(&to->param, 0, sizeof to->param);
        memset(&to->group, 0, sizeof to->group);
        to->own = NULL; // dropped: it is indexed by rank 0's parameters
    }
    for (size_t g = 0; rc == CKPT_OK && g < most; g++)
        rc = dsj_group(j, to, g, seen);
    if (rc == CKPT_OK)
        rc = dsj_client(j, to);
    ckpt_free(seen);
    return rc;
}

/* ---- joining ---- */

/*
 * Warns about patterns that match no parameter, because they are misspelt or meant for another
 * model.
 */
static int dsj_unused(dsj *j)
{
    size_t cursor = 0;
    const char *pattern;
    int rc = CKPT_OK;

    while (rc == CKPT_OK && (pattern = ckpt_uni_rules_unused(j->rules, &cursor)))
        rc = ckpt_map_note(j->job->map, CKPT_WARNING, j->job->err,
                           "%s: the rule for '%.200s' matches no parameter", j->job->map->path,
                           pattern);
    return rc;
}

/* Loads the rules; the user's rules override the checkpoint's. */
static int dsj_rules(dsj *j)
{
    if (j->grid->tp == 1)
        return CKPT_OK;
    if (j->job->opts->slice_rules)
        j->job->map->effects |= CKPT_USED_RULES;
    if (j->job->opts->slice_rules)
        return ckpt_uni_rules_parse(&j->rules, j->job->opts->slice_rules, j->job->err);
    return ckpt_uni_rules_new(&j->rules, ckpt_ds_join_info(j->grid), j->job->err);
}

int ckpt_ds_join(ckpt_ds_grid *grid)
{
    assert(grid);
    dsj j = {.grid = grid, .job = grid->job};
    int rc = dsj_rules(&j);

    if (rc == CKPT_OK)
        rc = dsj_tensors(&j);
    if (rc == CKPT_OK)
        rc = dsj_hide(&j);
    if (rc == CKPT_OK && j.rules)
        rc = dsj_unused(&j);
    if (rc == CKPT_OK && !j.job->broken)
        rc = dsj_state(&j);
    ckpt_uni_rules_free(j.rules);
    ckpt_vec_free(&j.slice);
    ckpt_vec_free(&j.hidden);
    return rc;
}
