/* SPDX-License-Identifier: Apache-2.0 */
/*
 * readback.c: compares the parameters, ties, groups, moments and step counts of a written training
 * folder with those of its source.
 */
#include "libckpt/readback/readback.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "libckpt/base/dtype.h"
#include "libckpt/map/extent.h"
#include "libckpt/map/map.h"
#include "libckpt/map/order.h"

enum {
    CL_NODES = 1 << 20, /* nodes of trees compared one by one */
    CL_ELEMS = 1 << 16  /* elements read at once */
};

/* ---- settings of the whole folder ---- */

static int cl_number(ckpt_claim_work *w, const char *what, uint64_t is, uint64_t meant)
{
    if (is == meant)
        return CKPT_OK;
    return ckpt_fail(w->err, CKPT_EMISMATCH,
                     "%s: read back before it was made visible, it has %s %" PRIu64
                     " instead of %" PRIu64 "; nothing was written",
                     w->to->path, what, is, meant);
}

static int cl_settings(ckpt_claim_work *w, const ckpt_state *b)
{
    const ckpt_claim *c = &w->to->claim;
    int rc =
        c->stage >= 0 ? cl_number(w, "stage", (uint64_t)b->stage, (uint64_t)c->stage) : CKPT_OK;

    if (rc == CKPT_OK && c->world)
        rc = cl_number(w, "a world of", b->world, c->world);
    if (rc == CKPT_OK && c->dtype != CKPT_DTYPE_NONE && b->dtype != c->dtype)
        rc = ckpt_fail(w->err, CKPT_EMISMATCH,
                       "%s: read back before it was made visible, it is of a run in %s instead of "
                       "%s; nothing was written",
                       w->to->path, ckpt_dtype_name(b->dtype), ckpt_dtype_name(c->dtype));
    return rc;
}

/* ---- tensors ---- */

static bool cl_same_shape(const ckpt_tensor *a, const ckpt_tensor *b)
{
    return a->ndim == b->ndim &&
           (a->ndim == 0 || memcmp(a->shape, b->shape, a->ndim * sizeof *a->shape) == 0);
}

/* Name of the owner, or of the tensor itself. */
static const char *cl_owner(const ckpt_tensor *t)
{
    return t->owner ? t->owner->name : t->name;
}

/* Read a scalar tensor as a number; *has is false if another process holds its data. */
static int cl_scalar(ckpt_reader *r, const ckpt_map *map, const ckpt_tensor *t, bool *has,
                     double *out, ckpt_err *err)
{
    *has = t->n_extents == 1 && t->n_elems == 1 &&
           map->sources.at[ckpt_extent_source(t, 0)].kind != CKPT_SOURCE_ELSEWHERE;
    return *has ? ckpt_reader_read(r, t, 0, 1, CKPT_F64, out, err) : CKPT_OK;
}

/*
 * Find the largest step count of the group that contains the parameter of `step`
 * ("step/<parameter>"); false if no group does. Without ZeRO each parameter has its own count, and
 * the reader warns if they differ; a ZeRO stage keeps only the largest.
 */
static bool cl_group_step(ckpt_claim_work *w, const ckpt_tensor *step, double *out)
{
    const ckpt_state *s = w->from->states.n == 1 ? w->from->states.at[0] : NULL;
    const ckpt_group *of = NULL;
    bool has = false, any = false;
    double one = 0;

    for (size_t g = 0; s && s->stage == 0 && !of && g < s->group.n; g++) {
        for (size_t i = 0; !of && i < s->group.at[g].n; i++) {
            const ckpt_tensor *p = s->param.at[s->group.at[g].first + i];
            if (ckpt_state_moment(w->from, s, "step", p) == step)
                of = &s->group.at[g];
        }
    }
    for (size_t i = 0; of && i < of->n; i++) {
        const ckpt_tensor *t = ckpt_state_moment(w->from, s, "step", s->param.at[of->first + i]);
        if (t && cl_scalar(w->read_from, w->from, t, &has, &one, NULL) == CKPT_OK && has &&
            (!any || one > *out)) {
            *out = one;
            any = true;
        }
    }
    return any;
}

/* Compare a step count; both may have none. */
static int cl_step(ckpt_claim_work *w, const ckpt_tensor *a, const ckpt_tensor *b)
{
    double x = 0, y = 0;
    bool has_x = false, has_y = false;
    int rc = cl_scalar(w->read_from, w->from, a, &has_x, &x, w->err);

    if (rc == CKPT_OK)
        rc = cl_scalar(w->read_back, w->back, b, &has_y, &y, w->err);
    if (rc != CKPT_OK || !has_x)
        return rc;
    if (has_y && x == y) {
        w->to->claim.n_carried++;
        return CKPT_OK;
    }
    if (has_y && ((w->to->claim.fresh && y == 0) || (cl_group_step(w, a, &x) && x == y))) {
        w->to->claim.n_rewritten++;
        return CKPT_OK;
    }
    return ckpt_claim_differs(w, a->name, "is another number");
}

/*
 * True if the module in a map's files has the name. Old releases do not mark buffers, frozen and
 * tied tensors, so a reader leaves them out although the files contain them.
 */
static bool cl_unlisted(const ckpt_claim_work *w, const ckpt_map *map, const char *name)
{
    for (size_t i = 0; w->to->claim.other_release && i < map->states.n; i++) {
        const ckpt_state *s = map->states.at[i];
        size_t n = strlen(s->prefix);
        if (strncmp(name, s->prefix, n) == 0 &&
            ckpt_value_get(ckpt_value_get(s->model, "module"), name + n))
            return true;
    }
    return false;
}

/* Read the kind of a state tensor, for example "exp_avg"; false if the tensor is no state or has
 * another prefix. */
static bool cl_kind(const ckpt_state *s, const ckpt_tensor *t, char kind[CKPT_CLAIM_PATH])
{
    size_t n = strlen(s->prefix);
    const char *from = t->name + n, *slash;

    if (t->role != CKPT_ROLE_STATE || strncmp(t->name, s->prefix, n) != 0)
        return false;
    slash = strchr(from, '/');
    if (!slash || slash - from >= CKPT_CLAIM_PATH)
        return false;
    memcpy(kind, from, (size_t)(slash - from));
    kind[slash - from] = 0;
    return true;
}

/* True if the tensor is state of a parameter without elements, which is no longer trained. */
static bool cl_of_empty(const ckpt_claim_work *w, const ckpt_tensor *t)
{
    char kind[CKPT_CLAIM_PATH];

    for (size_t k = 0; w->to->claim.no_empty && k < w->from->states.n; k++) {
        const ckpt_state *s = w->from->states.at[k];
        for (size_t i = 0; cl_kind(s, t, kind) && i < s->param.n; i++) {
            if (s->param.at[i]->n_elems == 0 &&
                ckpt_state_moment(w->from, s, kind, s->param.at[i]) == t)
                return true;
        }
    }
    return false;
}

/*
 * Check a tensor that a program saved beside its model. If one source contains it, the comparison
 * of trees covers it; if ranks hold it in pieces, no tree can refer to it and it is left out.
 */
static int cl_other(ckpt_claim_work *w, const ckpt_tensor *t)
{
    if (t->n_extents <= 1)
        return CKPT_OK;
    w->to->claim.n_left_out++;
    return ckpt_map_note(w->to, CKPT_WARNING, w->err,
                         "left out: %.300s: it is not part of the model, and ranks hold it in "
                         "pieces; ckpt convert keeps it",
                         t->name);
}

static bool cl_is_one(const ckpt_tensor_value *v)
{
    for (uint32_t i = 0; i < v->ndim; i++) {
        if (v->shape[i] != 1)
            return false;
    }
    return true;
}

/* True if the kind of state is a single value per parameter: the comparison of groups covers it. */
static bool cl_of_group(const ckpt_state *s, const char *kind)
{
    bool is = false;

    for (size_t g = 0; !is && g < s->group.n; g++) {
        const ckpt_value *v = ckpt_value_get(s->group.at[g].entry, kind);
        is = v && v->kind == CKPT_V_TENSOR && cl_is_one(v->as.tensor);
    }
    return is;
}

/*
 * True if the source's tensor is a value of a parameter group, which formats with groups do not
 * list as a tensor.
 */
static bool cl_grouped(const ckpt_claim_work *w, const ckpt_tensor *t)
{
    char kind[CKPT_CLAIM_PATH];
    bool is = false;

    for (size_t i = 0;
         t->role == CKPT_ROLE_STATE && t->n_elems == 1 && !is && i < w->from->states.n; i++)
        is = cl_kind(w->from->states.at[i], t, kind) && cl_of_group(w->from->states.at[i], kind);
    return is;
}

/*
 * Compare a tensor beside the source's model with the model's values: float32 masters are written
 * as values of the run, so no writer compares them.
 */
static int cl_copies(ckpt_claim_work *w, const ckpt_tensor *a)
{
    float *values = a->twin ? ckpt_alloc(CL_ELEMS * sizeof *values) : NULL;
    int rc = a->twin && !values ? ckpt_fail_memory(w->err) : CKPT_OK;

    for (uint64_t at = 0, n; values && rc == CKPT_OK && at < a->n_elems; at += n) {
        n = a->n_elems - at < CL_ELEMS ? a->n_elems - at : CL_ELEMS;
        rc = ckpt_reader_read(w->read_from, a, at, n, CKPT_F32, values, w->err);
    }
    ckpt_free(values);
    return rc;
}

/* Compare one tensor of the source. */
static int cl_tensor(ckpt_claim_work *w, const ckpt_tensor *a)
{
    size_t at = ckpt_map_index(w->back, a->name, strlen(a->name));
    const ckpt_tensor *b = at == SIZE_MAX ? NULL : w->back->tensors.at[at];
    int rc = a->role == CKPT_ROLE_OTHER ? cl_copies(w, a) : CKPT_OK;

    if (rc != CKPT_OK)
        return rc;
    if (!b && w->unnamed && a->role == CKPT_ROLE_STATE) {
        w->to->claim.n_carried++;
        return CKPT_OK;
    }
    // The user asked to leave it out, so its shape may differ.
    if ((w->to->claim.fresh && a->role == CKPT_ROLE_STATE && (!b || !cl_same_shape(a, b))) ||
        (!b && cl_of_empty(w, a))) {
        w->to->claim.n_left_out++;
        return CKPT_OK;
    }
    if (!b && cl_grouped(w, a))
        return CKPT_OK;
    if (!b && a->role == CKPT_ROLE_OTHER)
        return cl_other(w, a);
    if (!b)
        return cl_unlisted(w, w->back, a->name) ? CKPT_OK
                                                : ckpt_claim_differs(w, a->name, "is not there");
    if (!cl_same_shape(a, b))
        return ckpt_claim_differs(w, a->name, "has another shape");
    if (strcmp(cl_owner(a), cl_owner(b)) != 0 && !w->to->claim.other_release)
        return ckpt_claim_differs(w, a->name, "is tied to something else");
    if (a->role != CKPT_ROLE_STATE)
        return CKPT_OK;
    if (a->ndim == 0 && a->n_extents == 1)
        return cl_step(w, a, b);
    if (w->to->claim.fresh)
        w->to->claim.n_rewritten++;
    else
        w->to->claim.n_carried++;
    return CKPT_OK;
}

/*
 * True if the writer may have created this state: zero moments for the source's None, or values
 * that a source in memory keeps in its groups (step counts, single values per parameter).
 */
static bool cl_is_made(const ckpt_claim_work *w, const ckpt_state *a, const char *kind)
{
    if (strcmp(kind, "step") == 0 || cl_of_group(a, kind))
        return true;
    for (size_t g = 0; g < a->group.n; g++) {
        const ckpt_value *v = ckpt_value_get(a->group.at[g].entry, kind);
        if (v && (v->kind == CKPT_V_NONE || w->to->claim.fresh))
            return true;
    }
    return false;
}

/* True if the tensor was inside a value of the source: the comparison of trees covers it. */
static bool cl_of_value(const ckpt_claim_work *w, const ckpt_tensor *t)
{
    for (size_t i = 0; t->role == CKPT_ROLE_OTHER && i < w->from->states.n; i++) {
        ckpt_dict model = ckpt_value_map(w->from->states.at[i]->model);
        for (uint64_t k = 0; k < model.n; k++) {
            const ckpt_text *key = &model.at[k].key->as.text;
            if (model.at[k].key->kind == CKPT_V_STR && key->n <= strlen(t->name) &&
                memcmp(key->at, t->name, (size_t)key->n) == 0 &&
                (t->name[key->n] == '.' || t->name[key->n] == 0))
                return true;
        }
    }
    return false;
}

/* Check a tensor that the source lacks: only unlisted tensors and created state are allowed. */
static int cl_surplus_one(ckpt_claim_work *w, const ckpt_tensor *b)
{
    char kind[CKPT_CLAIM_PATH];

    for (size_t i = 0; i < w->from->states.n; i++) {
        const ckpt_state *a = w->from->states.at[i];
        if (cl_kind(a, b, kind))
            return cl_is_made(w, a, kind) ? CKPT_OK
                                          : ckpt_claim_differs(w, kind, "is there, and was not");
    }
    return cl_unlisted(w, w->from, b->name) || cl_of_value(w, b)
               ? CKPT_OK
               : ckpt_claim_differs(w, b->name, "is there, and was not");
}

static int cl_surplus(ckpt_claim_work *w)
{
    int rc = CKPT_OK;

    for (size_t i = 0; rc == CKPT_OK && i < w->back->tensors.n; i++) {
        const ckpt_tensor *b = w->back->tensors.at[i];
        if (ckpt_map_index(w->from, b->name, strlen(b->name)) == SIZE_MAX)
            rc = cl_surplus_one(w, b);
    }
    return rc;
}

/* ---- groups ---- */

static int cl_by_name(const void *a, const void *b)
{
    return strcmp((*(ckpt_tensor *const *)a)->name, (*(ckpt_tensor *const *)b)->name);
}

/*
 * Compare the experts of a group after a change of the number of expert-parallel ranks: their order
 * differs, so only the set must be equal.
 */
static int cl_dealt(ckpt_claim_work *w, const ckpt_state *a, const ckpt_state *b, size_t g)
{
    const ckpt_group *x = &a->group.at[g], *y = &b->group.at[g];
    size_t n = x->n * x->n_lanes, room = 2 * (n + 1) * sizeof(ckpt_tensor *);
    ckpt_tensor **own = ckpt_alloc(room), **back = own + n;
    int rc = own ? CKPT_OK : ckpt_fail_memory(w->err);

    if (rc == CKPT_OK && n) {
        memcpy(own, a->param.at + x->first, n * sizeof *own);
        memcpy(back, b->param.at + y->first, n * sizeof *own);
        qsort(own, n, sizeof *own, cl_by_name);
        qsort(back, n, sizeof *back, cl_by_name);
    }
    for (size_t i = 0; rc == CKPT_OK && i < n; i++) {
        if (strcmp(own[i]->name, back[i]->name) != 0)
            rc = ckpt_fail(w->err, CKPT_EMISMATCH,
                           "%s: read back before it was made visible, group %zu of its optimizer "
                           "has parameter %.200s, but not %.200s; nothing was written",
                           w->to->path, g, back[i]->name, own[i]->name);
    }
    ckpt_free(own);
    return rc;
}

/*
 * True if the number of expert-parallel ranks of the group changed; all other groups keep their
 * order.
 */
static bool cl_is_dealt(const ckpt_group *x, const ckpt_group *y)
{
    return x->n_lanes != y->n_lanes && x->n * x->n_lanes == y->n * y->n_lanes &&
           x->first == y->first;
}

/* Compare the values of `list` that differ by rank with those of the target. */
static int cl_ranked(ckpt_claim_work *w, const ckpt_state *a, const ckpt_ranked *list,
                     const ckpt_ranked *target, const char *group)
{
    int rc = CKPT_OK;

    for (const ckpt_ranked *r = list; rc == CKPT_OK && r; r = r->next) {
        const ckpt_ranked *own = ckpt_ranked_find(target, r->key, r->in_entry);
        bool same = !r->at || (own && own->at);
        char path[CKPT_CLAIM_PATH];

        for (uint32_t i = 0; rc == CKPT_OK && same && r->at && i < a->world; i++) {
            const ckpt_value *p = r->at[i], *q = own->at[i];
            bool bytes = p && q && p->kind == CKPT_V_TENSOR && q->kind == CKPT_V_TENSOR;
            if (!bytes)
                rc = ckpt_value_compare(&same, p, q, 1 << 16, w->err);
        }
        (void)snprintf(path, sizeof path, "%s.%.200s", group, r->key->as.text.at);
        if (rc == CKPT_OK && !same)
            rc = ckpt_claim_differs(w, path, "has another value on a rank");
    }
    return rc;
}

/* Compare client state and buffers that differ by rank, unless objects in them were dropped. */
static int cl_client(ckpt_claim_work *w, const ckpt_state *a, const ckpt_state *b)
{
    int rc = CKPT_OK;
    for (const ckpt_ranked *r = a->client; rc == CKPT_OK && r; r = r->next) {
        const ckpt_ranked one = {NULL, r->key, r->in_entry, false, r->at};
        // the writer has reported members that the release of the output does not have
        bool has = ckpt_value_get(b->model, r->in_entry ? "buffer_names" : r->key->as.text.at);
        if (r->at && has && !w->to->claim.drop_objects)
            rc = cl_ranked(w, a, &one, b->client, "model_states");
    }
    return rc;
}

static int cl_deals(ckpt_claim_work *w, const ckpt_state *a, const ckpt_state *b)
{
    int rc = CKPT_OK;

    for (size_t g = 0; rc == CKPT_OK && g < a->group.n && g < b->group.n; g++) {
        if (cl_is_dealt(&a->group.at[g], &b->group.at[g]))
            rc = cl_dealt(w, a, b, g);
    }
    return rc;
}

/*
 * True if parameter i of the source may have another position in its group. Stages 1 and 2 sort
 * Muon's matrices by size and stage 3 does not; no other optimizer's order changes.
 */
static bool cl_moved(const ckpt_state *a, const ckpt_state *b, size_t i)
{
    for (size_t g = 0; g < a->group.n && g < b->group.n; g++) {
        const ckpt_group *x = &a->group.at[g], *y = &b->group.at[g];
        size_t n = x->n * x->n_lanes;
        if (i < x->first || i - x->first >= n)
            continue;
        if (cl_is_dealt(x, y))
            return true;
        if (!ckpt_value_get(x->fields, "use_muon") || y->n * y->n_lanes != n)
            return false;
        for (size_t k = 0; k < n && y->first + k < b->param.n; k++) {
            if (strcmp(a->param.at[i]->name, b->param.at[y->first + k]->name) == 0)
                return true;
        }
    }
    return false;
}

/*
 * Check that parameters have the order of the source's model, because a reader by position would
 * otherwise mix them up, which a comparison by name cannot detect.
 */
static int cl_positions(ckpt_claim_work *w, const ckpt_state *a)
{
    const ckpt_tensor *wrong = NULL;
    int rc = ckpt_state_misplaced(w->from, a, &wrong, w->err);

    if (rc != CKPT_OK || !wrong)
        return rc;
    return ckpt_fail(w->err, CKPT_EMISMATCH,
                     "%s: read back before it was made visible, its optimizer has %.200s in the "
                     "place of another parameter of the model in %.200s; nothing was written",
                     w->to->path, wrong->name, w->from->path);
}

/* Check that both optimizers train the same parameters, in any order. */
static int cl_same_params(ckpt_claim_work *w, const ckpt_state *a, const ckpt_state *b)
{
    size_t n = a->param.n;
    ckpt_tensor **own = ckpt_alloc(2 * (n + 1) * sizeof(ckpt_tensor *)), **back = own + n;
    int rc = own ? CKPT_OK : ckpt_fail_memory(w->err);

    if (rc == CKPT_OK && n > 0) {
        memcpy(own, a->param.at, n * sizeof *own);
        memcpy(back, b->param.at, n * sizeof *own);
        qsort(own, n, sizeof *own, cl_by_name);
        qsort(back, n, sizeof *back, cl_by_name);
    }
    for (size_t i = 0; rc == CKPT_OK && i < n; i++) {
        if (strcmp(own[i]->name, back[i]->name) != 0)
            rc = ckpt_claim_differs(w, own[i]->name, "is not trained");
    }
    ckpt_free(own);
    return rc;
}

static int cl_params(ckpt_claim_work *w, const ckpt_state *a, const ckpt_state *b)
{
    int rc = cl_number(w, "trained parameters:", b->param.n, a->param.n);

    if (rc == CKPT_OK)
        rc = cl_positions(w, a);
    if (rc == CKPT_OK && w->to->claim.regroups)
        return cl_same_params(w, a, b);
    if (rc == CKPT_OK)
        rc = cl_deals(w, a, b);

    for (size_t i = 0; rc == CKPT_OK && i < a->param.n; i++) {
        const char *name = b->given ? b->given[i]->name : b->param.at[i]->name;
        if (strcmp(a->param.at[i]->name, name) != 0 && !cl_moved(a, b, i))
            rc = ckpt_fail(w->err, CKPT_EMISMATCH,
                           "%s: read back before it was made visible, its optimizer has parameter "
                           "%.200s in the place of %.200s; nothing was written",
                           w->to->path, name, a->param.at[i]->name);
    }
    return rc;
}

/* Read an unpartitioned entry of a group's state as a number. */
static int cl_value_number(ckpt_reader *r, const ckpt_map *map, const ckpt_value *v, bool *has,
                           double *out, ckpt_err *err)
{
    static const uint64_t none = 0;
    const ckpt_tensor_value *tv = v && v->kind == CKPT_V_TENSOR ? v->as.tensor : NULL;
    ckpt_axis axis = {0, 1, 1};
    ckpt_extent e = {.ndim = 1, .axis = &axis};
    ckpt_tensor t = {.name = "a number", .shape = &none, .n_elems = 1, .extent = &e};

    *has = v && (v->kind == CKPT_V_INT || v->kind == CKPT_V_FLOAT);
    *out = v && v->kind == CKPT_V_INT ? (double)v->as.i : *has ? v->as.f : 0;
    if (!tv || !tv->storage || tv->storage->source >= map->sources.n)
        return CKPT_OK;
    uint64_t item = ckpt_dtype_get(tv->dtype)->bits / 8;
    for (uint32_t i = 0; i < tv->ndim; i++) {
        if (tv->shape[i] != 1)
            return CKPT_OK;
    }
    if (item == 0 || !ckpt_mul(tv->offset, item, &e.at) ||
        !ckpt_within(e.at, item, map->sources.at[tv->storage->source].n_bytes))
        return CKPT_OK;
    t.dtype = tv->dtype;
    t.n_extents = 1;
    axis.stride = (int64_t)item;
    e.source = tv->storage->source;
    return cl_scalar(r, map, &t, has, out, err);
}

/* Read such an entry back. FusedAdam without ZeRO stores the step count with a group's last
 * parameter only. */
static int cl_entry_back(ckpt_claim_work *w, const ckpt_state *b, const ckpt_group *y,
                         const char *key, bool *has, double *out)
{
    const ckpt_tensor *step = NULL;

    if (b->stage == 0 && strcmp(key, "step") == 0 && y->n)
        step = ckpt_state_moment(w->back, b, key, b->param.at[y->first + y->n - 1]);
    if (step)
        return cl_scalar(w->read_back, w->back, step, has, out, w->err);
    return cl_value_number(w->read_back, w->back, ckpt_value_get(y->entry, key), has, out, w->err);
}

/* Compare the entries of a group's state that are no moments; group x of a is group y of b. */
static int cl_entry(ckpt_claim_work *w, const ckpt_state *a, const ckpt_state *b,
                    const ckpt_group *x, const ckpt_group *y, const char *group)
{
    ckpt_dict entry = ckpt_value_map(x->entry);
    int rc = CKPT_OK;

    for (uint64_t i = 0; rc == CKPT_OK && i < entry.n; i++) {
        const ckpt_value *key = entry.at[i].key, *v = entry.at[i].value, *other;
        char path[CKPT_CLAIM_PATH];
        bool has_x = false, has_y = false;
        double p = 0, q = 0;
        if (key->kind != CKPT_V_STR || v->kind == CKPT_V_NONE ||
            ckpt_claim_is_moment(w->from, a, x, key->as.text.at))
            continue;
        (void)snprintf(path, sizeof path, "%s.state.%.200s", group, key->as.text.at);
        other = ckpt_value_get(y->entry, key->as.text.at);
        rc = cl_value_number(w->read_from, w->from, v, &has_x, &p, w->err);
        if (rc == CKPT_OK)
            rc = cl_entry_back(w, b, y, key->as.text.at, &has_y, &q);
        if (rc != CKPT_OK)
            break;
        if (has_x && has_y && p == q)
            w->to->claim.n_carried++;
        else if (w->to->claim.fresh)
            w->to->claim.n_rewritten++;
        else if (has_x || has_y)
            rc = ckpt_claim_differs(w, path, other ? "has another value" : "is not there");
        else
            rc = ckpt_claim_tree(w, path, v, other);
    }
    return rc;
}

/*
 * True for a list of a group's parameters.  `params` has numbers that the writer changes, and
 * torch's `param_names` repeats the names of the parameters: readers that find parameters by it do
 * not keep it.
 */
static bool cl_lists_params(const ckpt_value *key, const ckpt_value *other)
{
    return ckpt_value_is(key, "params") || (!other && ckpt_value_is(key, "param_names"));
}

/* Compare the hyper-parameters, except lists of parameters. */
static int cl_fields(ckpt_claim_work *w, const ckpt_group *x, const ckpt_group *y,
                     const char *group)
{
    ckpt_dict fields = ckpt_value_map(x->fields);
    int rc = CKPT_OK;

    for (uint64_t i = 0; rc == CKPT_OK && i < fields.n; i++) {
        const ckpt_value *key = fields.at[i].key, *v = fields.at[i].value, *other;
        char path[CKPT_CLAIM_PATH];
        other = key->kind == CKPT_V_STR ? ckpt_value_get(y->fields, key->as.text.at) : NULL;
        if (key->kind != CKPT_V_STR || cl_lists_params(key, other))
            continue;
        (void)snprintf(path, sizeof path, "%s.%.200s", group, key->as.text.at);
        // Megatron counts steps in groups; cl_entry and the moments compare them with the source's
        if ((w->to->claim.fresh || w->to->claim.regroups) && ckpt_value_is(key, "step") && other)
            w->to->claim.n_rewritten++;
        else
            rc = ckpt_claim_tree(w, path, v, other);
    }
    return rc;
}

/* Find the joined group with all parameters of x; NULL if there is none. */
static const ckpt_group *cl_joined(const ckpt_state *b, const ckpt_group *x)
{
    for (size_t g = 0; g < b->group.n; g++) {
        const ckpt_group *y = &b->group.at[g];
        if (x->first >= y->first && x->first + x->n <= y->first + y->n)
            return y;
    }
    return NULL;
}

/* True if two groups have a parameter in common. */
static bool cl_shares(const ckpt_state *a, const ckpt_group *x, const ckpt_state *b,
                      const ckpt_group *y)
{
    for (size_t i = 0; i < x->n; i++) {
        for (size_t k = 0; k < y->n; k++) {
            if (strcmp(a->param.at[x->first + i]->name, b->param.at[y->first + k]->name) == 0)
                return true;
        }
    }
    return false;
}

/* Compare each group with all groups that have one of its parameters. */
static int cl_regroups(ckpt_claim_work *w, const ckpt_state *a, const ckpt_state *b)
{
    int rc = CKPT_OK;

    for (size_t g = 0; rc == CKPT_OK && g < a->group.n; g++) {
        const ckpt_group *x = &a->group.at[g];
        char name[64];
        (void)snprintf(name, sizeof name, "param_groups[%zu]", g);
        for (size_t k = 0; rc == CKPT_OK && k < b->group.n; k++) {
            const ckpt_group *y = &b->group.at[k];
            if (!cl_shares(a, x, b, y))
                continue;
            rc = cl_fields(w, x, y, name);
            if (rc == CKPT_OK)
                rc = cl_entry(w, a, b, x, y, name);
        }
    }
    return rc;
}

/* Compare parameter groups in order: their sizes, then their entries except moments. */
static int cl_groups(ckpt_claim_work *w, const ckpt_state *a, const ckpt_state *b)
{
    bool joins = w->to->claim.joins_groups;
    int rc = joins ? CKPT_OK : cl_number(w, "parameter groups:", b->group.n, a->group.n);

    for (size_t g = 0; rc == CKPT_OK && g < a->group.n; g++) {
        const ckpt_group *x = &a->group.at[g], *y = joins ? cl_joined(b, x) : &b->group.at[g];
        char name[64];
        (void)snprintf(name, sizeof name, "param_groups[%zu]", g);
        if (joins && (!y || x->n == 0)) {
            rc = ckpt_claim_differs(w, name, "is not there");
            continue;
        }
        bool dealt = !joins && cl_is_dealt(x, y);
        rc = joins || dealt ? CKPT_OK : cl_number(w, "in a group, parameters:", y->n, x->n);
        if (rc == CKPT_OK && !dealt)
            rc = cl_number(w, "of a group, lanes:", y->n_lanes, x->n_lanes);
        if (rc == CKPT_OK)
            rc = cl_fields(w, x, y, name);
        if (rc == CKPT_OK)
            rc = cl_entry(w, a, b, x, y, name);
        if (rc == CKPT_OK)
            rc = cl_ranked(w, a, w->to->claim.keeps_ranked ? x->ranked : NULL, y->ranked, name);
    }
    return rc == CKPT_OK && w->to->claim.keeps_client ? cl_client(w, a, b) : rc;
}

/* ---- the whole folder ---- */

/*
 * Stage 0 only numbers its optimizer's parameters. If the optimizer lacks some of the model's
 * parameters, a reader without the model cannot assign the states; DeepSpeed has the model and can
 * resume.
 */
static int cl_unnamed(ckpt_claim_work *w)
{
    w->unnamed = w->to->claim.stage == 0 && w->from->states.n == 1 && w->back->states.n == 0;
    return w->unnamed ? ckpt_map_note(w->to, CKPT_WARNING, w->err,
                                      "the output does not name the parameters of its optimizer "
                                      "state: only DeepSpeed with the same model can resume it")
                      : CKPT_OK;
}

/*
 * Check that the written folder has every entry of the source, equal or reported, and no others.
 */
static int cl_compare(ckpt_claim_work *w)
{
    int rc = cl_unnamed(w);

    if (rc == CKPT_OK && !w->unnamed)
        rc = cl_number(w, "model-parallel ranks:", w->back->states.n, w->from->states.n);
    for (size_t i = 0; rc == CKPT_OK && !w->unnamed && i < w->from->states.n; i++) {
        const ckpt_state *a = w->from->states.at[i], *b = w->back->states.at[i];
        rc = cl_settings(w, b);
        if (rc == CKPT_OK && w->to->claim.no_empty)
            rc = ckpt_state_not_empty(&a, a, w->to->arena, w->err);
        if (rc == CKPT_OK)
            rc = cl_params(w, a, b);
        if (rc == CKPT_OK)
            rc = w->to->claim.regroups ? cl_regroups(w, a, b) : cl_groups(w, a, b);
        if (rc == CKPT_OK)
            rc = ckpt_claim_files(w, a, b);
    }
    for (size_t i = 0; rc == CKPT_OK && i < w->from->tensors.n; i++)
        rc = cl_tensor(w, w->from->tensors.at[i]);
    return rc == CKPT_OK ? cl_surplus(w) : rc;
}

int ckpt_claim_compare(const ckpt_map *from, ckpt_map *to, const ckpt_map *back, ckpt_err *err)
{
    ckpt_claim_work w = {.from = from, .to = to, .back = back, .budget = CL_NODES, .err = err};
    int rc = ckpt_reader_new(&w.read_from, from, err);

    if (rc == CKPT_OK)
        ckpt_reader_compare(w.read_from);
    if (rc == CKPT_OK)
        rc = ckpt_reader_new(&w.read_back, back, err);
    if (rc == CKPT_OK)
        rc = cl_compare(&w);
    ckpt_reader_free(w.read_from);
    ckpt_reader_free(w.read_back);
    return rc;
}
