/* SPDX-License-Identifier: Apache-2.0 */
/*
 * legacy_state.c: reads the optimizers' state from ranks' files.
 *
 *     optimizer  a list of several (experts have their own), or one:
 *                {state: {number: {step, exp_avg ...}}, param_groups}            of fp32 runs
 *                {optimizer: as above, fp32_from_fp16_params: [masters by group]} of 16-bit runs
 *                {optimizer: {param_groups}}, and distrib_optim.pt next to it:
 *                {0: {(dtypes): {param, exp_avg ..., numel_unpadded}}}           distributed
 *
 * Numbers count the parameters of the first group, then of the second, each in the order of
 * named_parameters().  The flat tensors of the distributed optimizer have the layout of buffer.c
 * with all parameters in one bucket.
 */
#include <inttypes.h>
#include <string.h>

#include "ckpt.h"
#include "formats/megatron/legacy.h"
#include "libckpt/base/dtype.h"
#include "libckpt/map/adopt.h"

enum { MGO_KINDS = 16, MGO_OPTIMIZERS = 16, MGO_NODES = 1 << 20 };

/* One optimizer of a run; MoE runs have a second one for experts. */
typedef struct mgo_optimizer {
    /* prefixes of masters and of state: "optimizer", "optimizer.optimizer" */
    const char *path, *inner;
    size_t first, n; /* index of its first group, and number of groups */
} mgo_optimizer;

typedef struct mgo_reader {
    ckpt_meg_job *job;
    ckpt_map *map;
    ckpt_meg_grid *grid;
    ckpt_meg_groups group;
    mgo_optimizer one[MGO_OPTIMIZERS];
    size_t n_optimizers;
    bool listed; /* rank files have a list of optimizers instead of one */
    const char *kind[MGO_KINDS];
    size_t n_kinds;
    ckpt_tensor ***tensor; /* by kind and rank: the tensor of each slice, or NULL */
    ckpt_err *err;
} mgo_reader;

static int mgo_none(const mgo_reader *r, const char *why, const char *name)
{
    return ckpt_meg_none(r->map, why, name, r->err);
}

/* ---- kinds ---- */

/* Add a kind of state unless it is known. */
static bool mgo_kind(mgo_reader *r, const char *kind)
{
    for (size_t i = 0; i < r->n_kinds; i++) {
        if (strcmp(r->kind[i], kind) == 0)
            return true;
    }
    if (r->n_kinds == MGO_KINDS)
        return false;
    r->kind[r->n_kinds++] = kind;
    return true;
}

static size_t mgo_rank(const mgo_reader *r, const ckpt_meg_rank *rank)
{
    return (size_t)(rank - r->grid->rank.at);
}

static ckpt_tensor **mgo_slot(const mgo_reader *r, const char *kind, const ckpt_meg_rank *rank)
{
    size_t k = 0;

    while (strcmp(r->kind[k], kind) != 0)
        k++;
    return r->tensor[k * r->grid->rank.n + mgo_rank(r, rank)];
}

/* Allocate the lists of tensors for all kinds. */
static int mgo_room(mgo_reader *r)
{
    size_t n = r->grid->rank.n;

    r->tensor = ckpt_arena_array(r->map->arena, r->n_kinds * n, sizeof(ckpt_tensor **));
    for (size_t i = 0; r->tensor && i < r->n_kinds * n; i++) {
        r->tensor[i] = ckpt_arena_array(r->map->arena, r->grid->rank.at[i % n].slice.n + 1,
                                        sizeof(ckpt_tensor *));
        if (!r->tensor[i])
            return ckpt_fail_memory(r->err);
    }
    return r->tensor ? CKPT_OK : ckpt_fail_memory(r->err);
}

/* ---- numbered state ---- */

/* Find optimizer number o of a rank, and the dict with its state. */
static const ckpt_value *mgo_of_rank(const mgo_reader *r, const ckpt_meg_rank *rank, size_t o,
                                     const ckpt_value **inner)
{
    const ckpt_value *v = ckpt_value_get(rank->root, "optimizer");
    ckpt_seq list = ckpt_value_seq(v);

    if (r->listed)
        v = o < list.n ? list.at[o] : NULL;
    *inner = ckpt_value_get(v, "optimizer");
    *inner = *inner ? *inner : v;
    return v;
}

/*
 * Map the numbers of an optimizer to parameters: slices in the order of groups.  The groups must
 * agree with their 'params'.
 */
static int mgo_numbers(mgo_reader *r, const ckpt_meg_rank *rank, size_t o, size_t *of,
                       size_t *first)
{
    const mgo_optimizer *one = &r->one[o];
    const ckpt_value *inner;
    size_t n = 0;

    (void)mgo_of_rank(r, rank, o, &inner);
    ckpt_seq groups = ckpt_value_seq(ckpt_value_get(inner, "param_groups"));
    for (size_t g = 0; g < one->n; g++) {
        first[g] = n;
        for (size_t i = 0; i < rank->slice.n; i++) {
            const ckpt_meg_slice *s = &rank->slice.at[i];
            if (!ckpt_meg_is_buffer(s->name) &&
                ckpt_meg_group_of(&r->group, s->name, s->tensor->ndim) == one->first + g)
                of[n++] = i;
        }
        const ckpt_value *params = g < groups.n ? ckpt_value_get(groups.at[g], "params") : NULL;
        ckpt_seq own = ckpt_value_seq(params);
        bool fits = !params || own.n == n - first[g];
        for (uint64_t k = 0; fits && k < own.n; k++) {
            int64_t number = -1;
            fits = ckpt_value_as_int(own.at[k], &number) && number == (int64_t)(first[g] + k);
        }
        if (!fits)
            return mgo_none(r, "nothing says which parameters are in which group", rank->path);
    }
    first[one->n] = n;
    return groups.n == one->n ? CKPT_OK
                              : mgo_none(r, "ranks have other parameter groups", rank->path);
}

/* Find a tensor of a rank's file.  *fits: it has the parameter's shape, or does not exist. */
static ckpt_tensor *mgo_find(const ckpt_meg_rank *rank, const char *name, const ckpt_tensor *like,
                             bool *fits)
{
    size_t at = ckpt_map_index(rank->map, name, strlen(name));
    ckpt_tensor *t = at == SIZE_MAX ? NULL : rank->map->tensors.at[at];

    *fits =
        !t || (t->ndim == like->ndim &&
               (t->ndim == 0 || memcmp(t->shape, like->shape, t->ndim * sizeof *t->shape) == 0));
    return t;
}

/* The name of a parameter's state in its rank's map: number n of all parameters, in group g. */
static const char *mgo_name(mgo_reader *r, const mgo_optimizer *one, const char *kind, size_t g,
                            size_t n, size_t before)
{
    return strcmp(kind, "fp32_param") == 0
               ? ckpt_arena_printf(r->map->arena, "%s.fp32_from_fp16_params.%zu.%zu", one->path, g,
                                   n - before)
               : ckpt_arena_printf(r->map->arena, "%s.state.%zu.%s", one->inner, n, kind);
}

/* Assign a rank's tensors of one kind and optimizer to their parameters. */
static int mgo_take(mgo_reader *r, const ckpt_meg_rank *rank, const char *kind, size_t o)
{
    const mgo_optimizer *one = &r->one[o];
    size_t *of = ckpt_arena_array(r->map->arena, rank->slice.n + 1, sizeof *of);
    size_t *first = ckpt_arena_array(r->map->arena, one->n + 1, sizeof *first);
    ckpt_tensor **to = mgo_slot(r, kind, rank);
    int rc = of && first ? mgo_numbers(r, rank, o, of, first) : ckpt_fail_memory(r->err);

    for (size_t g = 0; rc == CKPT_OK && !r->map->no_state && g < one->n; g++) {
        for (size_t n = first[g]; rc == CKPT_OK && n < first[g + 1]; n++) {
            const ckpt_meg_slice *s = &rank->slice.at[of[n]];
            const char *name = mgo_name(r, one, kind, g, n, first[g]);
            bool fits;
            if (!name)
                return ckpt_fail_memory(r->err);
            to[of[n]] = mgo_find(rank, name, s->tensor, &fits);
            if (!fits || !to[of[n]])
                rc = mgo_none(r, "it has no state with the shape of this parameter", s->name);
        }
    }
    return rc;
}

/* Find the kinds of state that the first parameter has as tensors of its shape; *step: a common
 * step count. */
static int mgo_kinds(mgo_reader *r, const ckpt_value *optimizer, const char *inner, bool *has,
                     double *step)
{
    ckpt_dict all = ckpt_value_map(ckpt_value_get(optimizer, "state"));
    ckpt_dict one = all.n > 0 ? ckpt_value_map(all.at[0].value) : (ckpt_dict){0};
    const ckpt_map *first = r->grid->rank.at[0].map;
    ckpt_reader *reader = NULL;
    int rc = CKPT_OK;

    for (uint64_t i = 0; rc == CKPT_OK && i < one.n; i++) {
        const ckpt_value *key = one.at[i].key, *v = one.at[i].value;
        if (key->kind != CKPT_V_STR || v->kind != CKPT_V_TENSOR)
            continue;
        if (strcmp(key->as.text.at, "step") != 0) {
            rc = mgo_kind(r, key->as.text.at)
                     ? CKPT_OK
                     : mgo_none(r, "it has too many kinds of optimizer state", NULL);
            continue;
        }
        const char *name = ckpt_arena_printf(r->map->arena, "%s.state.0.step", inner);
        size_t at = name ? ckpt_map_index(first, name, strlen(name)) : SIZE_MAX;
        *has = at != SIZE_MAX && first->tensors.at[at]->n_elems == 1;
        if (*has)
            rc = ckpt_reader_new(&reader, r->map, r->err);
        if (*has && rc == CKPT_OK)
            rc = ckpt_reader_read(reader, first->tensors.at[at], 0, 1, CKPT_F64, step, r->err);
        ckpt_reader_free(reader);
        reader = NULL;
    }
    return rc;
}

/* Warn about a value of the state that is left out. */
static int mgo_state_left(const mgo_reader *r, const ckpt_meg_rank *rank, const ckpt_value *key,
                          const char *why)
{
    return ckpt_map_note(r->map, CKPT_WARNING, r->err,
                         "%s: optimizer state '%.100s' is left out: %s", rank->path,
                         key->kind == CKPT_V_STR ? key->as.text.at : "(a number)", why);
}

/* Report the values in a rank's numbered state that are not read. */
static int mgo_state_rest(mgo_reader *r, const ckpt_meg_rank *rank, size_t o)
{
    const ckpt_value *inner;
    int rc = CKPT_OK;

    (void)mgo_of_rank(r, rank, o, &inner);
    ckpt_dict all = ckpt_value_map(ckpt_value_get(inner, "state"));
    for (uint64_t i = 0; rc == CKPT_OK && i < all.n; i++) {
        ckpt_dict one = ckpt_value_map(all.at[i].value);
        if (all.at[i].key->kind != CKPT_V_INT)
            rc = mgo_state_left(r, rank, all.at[i].key, "it belongs to no parameter");
        for (uint64_t k = 0; rc == CKPT_OK && k < one.n; k++) {
            const ckpt_value *key = one.at[k].key;
            bool read = ckpt_value_is(key, "step") || one.at[k].value->kind == CKPT_V_NONE;
            for (size_t n = 0; !read && n < r->n_kinds && one.at[k].value->kind == CKPT_V_TENSOR;
                 n++)
                read = ckpt_value_is(key, r->kind[n]);
            if (!read)
                return mgo_state_left(r, rank, key,
                                      "it is not a tensor, or the first parameter lacks it");
        }
    }
    return rc;
}

/* Read numbered state of every rank. */
static int mgo_numbered(mgo_reader *r)
{
    int rc = mgo_room(r);

    for (size_t i = 0; i < r->grid->rank.n; i++) {
        for (size_t o = 0; rc == CKPT_OK && o < r->n_optimizers; o++)
            rc = mgo_state_rest(r, &r->grid->rank.at[i], o);
    }
    for (size_t k = 0; rc == CKPT_OK && k < r->n_kinds; k++) {
        for (size_t i = 0; i < r->grid->rank.n; i++) {
            for (size_t o = 0; rc == CKPT_OK && !r->map->no_state && o < r->n_optimizers; o++)
                rc = mgo_take(r, &r->grid->rank.at[i], r->kind[k], o);
        }
    }
    return rc;
}

/* ---- flat state ---- */

/* The dict of flat tensors in distrib_optim.pt; NULL if its form is unknown. */
static const ckpt_value *mgo_flat_dict(const ckpt_value *root)
{
    ckpt_dict map = ckpt_value_map(root), types;
    const ckpt_value *found = NULL;

    for (uint64_t i = 0; i < map.n; i++) {
        if (map.at[i].key->kind != CKPT_V_INT)
            continue;
        types = ckpt_value_map(map.at[i].value);
        if (found || types.n != 1 || types.at[0].key->kind != CKPT_V_TUPLE)
            return NULL;
        found = types.at[0].value;
    }
    return found && found->kind == CKPT_V_DICT ? found : NULL;
}

/* Make a hidden tensor for a flat tensor of the file; NULL if it is not one. */
static int mgo_flat_tensor(mgo_reader *r, const ckpt_value *v, ckpt_tensor **out)
{
    const ckpt_tensor_value *t = v->kind == CKPT_V_TENSOR ? v->as.tensor : NULL;
    uint64_t at;

    *out = NULL;
    if (!t || t->ndim != 1 || !t->storage || t->storage->source == UINT32_MAX ||
        (t->shape[0] > 1 && t->stride[0] != 1) ||
        !ckpt_mul(t->offset, ckpt_dtype_get(t->dtype)->bits / 8, &at))
        return CKPT_OK;
    const ckpt_tensor like = {.dtype = t->dtype, .ndim = 1, .shape = t->shape};
    int rc = ckpt_map_add_hidden(r->map, "flat", 4, &like, out, r->err);
    uint64_t n = 0;
    if (rc == CKPT_OK && (!ckpt_dtype_bytes(t->dtype, (*out)->n_elems, &n) ||
                          !ckpt_within(at, n, r->map->sources.at[t->storage->source].n_bytes))) {
        *out = NULL;
        return CKPT_OK;
    }
    return rc == CKPT_OK ? ckpt_map_back_whole(r->map, *out, t->storage->source, at, r->err) : rc;
}

/* Cut a flat tensor of a rank into its parameters' tensors. */
static int mgo_flat_cut(mgo_reader *r, const ckpt_meg_rank *rank, const char *kind,
                        const ckpt_tensor *flat)
{
    ckpt_meg_params all = {0};
    ckpt_tensor **to = mgo_slot(r, kind, rank);
    int rc = CKPT_OK;

    for (size_t i = 0; rc == CKPT_OK && i < rank->slice.n; i++) {
        const ckpt_meg_slice *s = &rank->slice.at[i];
        ckpt_meg_param *p = ckpt_meg_is_buffer(s->name) ? NULL : ckpt_vec_push(&all);
        if (p)
            *p = (ckpt_meg_param){.name = s->name,
                                  .layer = i,
                                  .ndim = s->tensor->ndim,
                                  .shape = s->tensor->shape,
                                  .n = s->tensor->n_elems};
        else if (!ckpt_meg_is_buffer(s->name))
            rc = ckpt_fail_memory(r->err);
    }
    if (rc == CKPT_OK && !ckpt_meg_layout(all.at, all.n, &flat->n_elems, 1))
        rc = mgo_none(r, CKPT_MEG_FLAT " does not hold the parameters of its rank in one bucket",
                      rank->path);
    for (size_t i = 0; rc == CKPT_OK && !r->map->no_state && i < all.n; i++)
        rc = ckpt_meg_cut(r->map, flat, &all.at[i], &to[all.at[i].layer], r->err);
    ckpt_vec_free(&all);
    return rc;
}

/* Report the values in a rank's file of flat tensors that are not read. */
static int mgo_flat_rest(const mgo_reader *r, const ckpt_meg_rank *rank, ckpt_dict root,
                         ckpt_dict flat)
{
    static const char *const known[] = {"buckets_coalesced", "per_bucket_numel",
                                        "per_bucket_numel_unpadded", "numel_unpadded"};
    int rc = CKPT_OK;

    for (uint64_t i = 0; rc == CKPT_OK && i < root.n + flat.n; i++) {
        const ckpt_pair *p = i < root.n ? &root.at[i] : &flat.at[i - root.n];
        bool read = i < root.n ? p->key->kind == CKPT_V_INT
                               : p->key->kind == CKPT_V_STR && p->value->kind == CKPT_V_TENSOR;

        for (size_t k = 0; !read && k < sizeof known / sizeof *known; k++)
            read = ckpt_value_is(p->key, known[k]);
        if (!read)
            rc = mgo_state_left(r, rank, p->key,
                                i < root.n
                                    ? "it belongs to no buffer of parameters in " CKPT_MEG_FLAT
                                    : "it is not a tensor");
    }
    return rc;
}

/* Read the file of one rank; the map owns it afterwards. */
static int mgo_flat_read(mgo_reader *r, const ckpt_meg_rank *rank, const ckpt_value **dict)
{
    const char *path = ckpt_arena_printf(r->map->arena, "%s/" CKPT_MEG_FLAT, rank->path);
    ckpt_map *file = NULL;
    int rc = path ? r->job->list->read(&file, path, NULL, r->err) : ckpt_fail_memory(r->err);

    if (rc == CKPT_OK)
        rc = ckpt_map_adopt(r->map, file, NULL, r->err);
    if (rc != CKPT_OK) {
        ckpt_map_free(file);
        return rc;
    }
    *dict = mgo_flat_dict(file->values);
    return *dict ? mgo_flat_rest(r, rank, ckpt_value_map(file->values), ckpt_value_map(*dict))
                 : CKPT_OK;
}

static int mgo_flat_rank(mgo_reader *r, const ckpt_meg_rank *rank)
{
    const ckpt_value *dict = NULL;
    int rc = rank->flat ? mgo_flat_read(r, rank, &dict) : CKPT_OK;

    // this run has an optimizer, because a run saved without one has no groups
    if (rc == CKPT_OK && !rank->flat)
        rc = ckpt_map_problem(r->map, CKPT_EMISSING, r->err,
                              "%s/" CKPT_MEG_FLAT " is missing: it holds the optimizer's state; "
                              "the rank's other file holds only the groups",
                              rank->path);
    if (rc == CKPT_OK && !dict)
        return mgo_none(
            r, rank->flat ? CKPT_MEG_FLAT " has an unknown form" : CKPT_MEG_FLAT " is not there",
            rank->path);
    ckpt_dict map = ckpt_value_map(dict);
    for (uint64_t i = 0; rank == r->grid->rank.at && i < map.n; i++) {
        if (map.at[i].key->kind == CKPT_V_STR && map.at[i].value->kind == CKPT_V_TENSOR &&
            !mgo_kind(r, map.at[i].key->as.text.at))
            return mgo_none(r, "it has too many kinds of optimizer state", NULL);
    }
    if (rc == CKPT_OK && rank == r->grid->rank.at)
        rc = mgo_room(r);
    for (size_t k = 0; rc == CKPT_OK && !r->map->no_state && k < r->n_kinds; k++) {
        const ckpt_value *v = ckpt_value_get(dict, r->kind[k]);
        ckpt_tensor *flat = NULL;
        rc = v ? mgo_flat_tensor(r, v, &flat) : CKPT_OK;
        if (rc == CKPT_OK)
            rc = flat ? mgo_flat_cut(r, rank, r->kind[k], flat)
                      : mgo_none(r, CKPT_MEG_FLAT " lacks a kind of state", r->kind[k]);
    }
    return rc;
}

static int mgo_flat(mgo_reader *r)
{
    int rc = CKPT_OK;

    for (size_t i = 0; rc == CKPT_OK && !r->map->no_state && i < r->grid->rank.n; i++)
        rc = mgo_flat_rank(r, &r->grid->rank.at[i]);
    return rc;
}

/* ---- the state ---- */

/* Join all kinds like the weights. */
static int mgo_join(mgo_reader *r)
{
    int rc = CKPT_OK;

    for (size_t k = 0; rc == CKPT_OK && k < r->n_kinds; k++) {
        for (size_t i = 0; i < r->grid->rank.n; i++) {
            ckpt_meg_rank *rank = &r->grid->rank.at[i];
            for (size_t s = 0; s < rank->slice.n; s++)
                rank->slice.at[s].tensor = mgo_slot(r, r->kind[k], rank)[s];
        }
        rc = ckpt_meg_join(r->job, r->grid, r->kind[k]);
    }
    return rc;
}

/*
 * Add one optimizer of the first rank: its groups and kinds of state. *flat: true if its state is
 * in flat tensors.
 */
static int mgo_add(mgo_reader *r, size_t o, bool *flat)
{
    mgo_optimizer *one = &r->one[o];
    const ckpt_value *inner, *v = mgo_of_rank(r, &r->grid->rank.at[0], o, &inner),
                             *list = ckpt_value_get(inner, "param_groups");
    bool has = false;
    double step = 0;
    int rc = CKPT_OK;

    if (!list)
        return mgo_none(r, "its optimizer has an unknown form", NULL);
    one->path = r->listed ? ckpt_arena_printf(r->map->arena, "optimizer.%zu", o) : "optimizer";
    if (one->path)
        one->inner =
            inner == v ? one->path : ckpt_arena_printf(r->map->arena, "%s.optimizer", one->path);
    if (!one->path || !one->inner)
        return ckpt_fail_memory(r->err);
    *flat = !ckpt_value_get(inner, "state");
    if (!*flat)
        rc = mgo_kinds(r, inner, one->inner, &has, &step);
    if (rc == CKPT_OK && ckpt_value_get(v, "fp32_from_fp16_params"))
        (void)mgo_kind(r, "fp32_param");
    one->first = r->group.n;
    if (rc == CKPT_OK)
        rc = ckpt_meg_groups_add(&r->group, r->job, list, has ? &step : NULL);
    one->n = r->group.n - one->first;
    return rc;
}

static int mgo_read(mgo_reader *r)
{
    const ckpt_value *all = ckpt_value_get(r->grid->rank.at[0].root, "optimizer");
    bool flat = false;
    int rc = CKPT_OK;

    if (!all || all->kind == CKPT_V_NONE)
        return mgo_none(r, "it was saved without its optimizer", NULL);
    r->listed = all->kind == CKPT_V_LIST;
    r->n_optimizers = r->listed ? (size_t)all->as.seq.n : 1;
    if (r->n_optimizers > MGO_OPTIMIZERS)
        return mgo_none(r, "it has too many optimizers", NULL);
    for (size_t o = 0; rc == CKPT_OK && !r->map->no_state && o < r->n_optimizers; o++)
        rc = mgo_add(r, o, &flat);
    if (rc == CKPT_OK && !r->map->no_state && flat && r->n_optimizers > 1)
        return mgo_none(r, CKPT_MEG_FLAT " holds the state of several optimizers", NULL);
    if (rc == CKPT_OK && !r->map->no_state)
        rc = flat ? mgo_flat(r) : mgo_numbered(r);
    if (rc == CKPT_OK && !r->map->no_state)
        rc = mgo_join(r);
    return rc == CKPT_OK && !r->map->no_state ? ckpt_meg_state(r->job, &r->group) : rc;
}

/* True for a rank's values beside model and optimizer. */
static bool mgo_is_rest(const ckpt_value *key)
{
    return key->kind == CKPT_V_STR && strncmp(key->as.text.at, "model", 5) != 0 &&
           strcmp(key->as.text.at, "optimizer") != 0;
}

/* Collect the values of a rank that the first rank lacks or has otherwise; the arguments, which
 * number the rank, stay out. */
static int mgo_rest_own(mgo_reader *r, const ckpt_meg_rank *rank, ckpt_value *rest)
{
    ckpt_value *of = ckpt_value_new(r->map->arena, CKPT_V_DICT);
    ckpt_dict all = ckpt_value_map(rank->root);
    bool ok = of != NULL;

    for (uint64_t i = 0; ok && i < all.n; i++) {
        ckpt_value *key = all.at[i].key;
        const ckpt_value *first;
        if (!mgo_is_rest(key) || ckpt_value_is(key, "args"))
            continue;
        first = ckpt_value_get(r->grid->rank.at[0].root, key->as.text.at);
        bool same = false;
        if (!ckpt_value_is(key, "rng_state") && first) {
            const int rc = ckpt_value_compare(&same, first, all.at[i].value, MGO_NODES, r->err);
            if (rc != CKPT_OK)
                return rc;
        }
        ok = same || ckpt_dict_add(r->map->arena, &of->as.map, key, all.at[i].value);
    }
    ok = ok &&
         (of->as.map.n == 0 || ckpt_dict_add_cstr(r->map->arena, &rest->as.map, rank->name, of));
    return ok ? CKPT_OK : ckpt_fail_memory(r->err);
}

/* Collect the first rank's other values, and those that are each rank's own. */
static int mgo_rest(mgo_reader *r)
{
    ckpt_arena *arena = r->map->arena;
    ckpt_value *rest = ckpt_value_new(arena, CKPT_V_DICT);
    ckpt_dict first = ckpt_value_map(r->grid->rank.at[0].root);
    bool ok = rest != NULL;

    for (uint64_t i = 0; ok && i < first.n; i++) {
        if (mgo_is_rest(first.at[i].key))
            ok = ckpt_dict_add(arena, &rest->as.map, first.at[i].key, first.at[i].value);
    }
    int rc = ok ? CKPT_OK : ckpt_fail_memory(r->err);
    for (size_t i = 1; rc == CKPT_OK && i < r->grid->rank.n; i++)
        rc = mgo_rest_own(r, &r->grid->rank.at[i], rest);
    r->job->rest = rest;
    return rc;
}

int ckpt_meg_legacy_state(ckpt_meg_job *job, ckpt_meg_grid *grid)
{
    mgo_reader r = {.job = job, .map = job->map, .grid = grid, .err = job->err};
    int rc = mgo_rest(&r);

    if (rc == CKPT_OK)
        rc = mgo_read(&r);
    ckpt_vec_free(&r.group);
    return rc;
}
