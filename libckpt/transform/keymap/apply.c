/* SPDX-License-Identifier: Apache-2.0 */
/*
 * apply.c: applies a layout map to a map of tensors.
 * The first rule that names a tensor and finds all others it needs makes its targets. No tensor may
 * be left over, unless the layout map allows it.
 */
#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "libckpt/map/order.h"
#include "libckpt/transform/keymap/head.h"
#include "libckpt/transform/keymap/instance.h"

typedef struct ap_state {
    ckpt_map *map;
    ckpt_remap *r;
    ckpt_rm_facts facts;
    ckpt_rm_instance *in;
    bool *taken;       /* per tensor of the source: a rule has used it */
    ckpt_tensors made; /* tensors of the target */
    /* the reason why a rule that names the current tensor did not take it */
    ckpt_err near;
    const ckpt_rm_capture *hand; /* captures from the current tensor's name */
    /* per tensor of the source: its group in the state; NULL: no state */
    uint32_t *group;
    ckpt_slots made_group;   /* per tensor of the target */
    uint32_t now;            /* group of the current tensor */
    ckpt_remap_left_fn left; /* as in ckpt_remap_opts */
    void *left_ctx;
    ckpt_err *err;
} ap_state;

enum { AP_MISFIT = 1 }; /* a rule does not fit the current tensor, which is no failure */

/* ---- names ---- */

/* True if a capture is in all terms of the rule; else it numbers the members of its term. */
static bool ap_is_own(const ckpt_rm_rule *rule, uint32_t name)
{
    for (unsigned side = 0; side < 2; side++) {
        for (size_t i = 0; i < rule->term[side].n; i++) {
            if (!ckpt_rm_captures(&rule->term[side].at[i], name))
                return false;
        }
    }
    return true;
}

static bool ap_is_star(const ckpt_remap *r, uint32_t name)
{
    return r->names.at[name][0] == '*';
}

/* Make the name of a member, in the map's arena. */
static int ap_name(ap_state *s, const ckpt_rm_term *t, const ckpt_rm_member *m, const char **out)
{
    ckpt_rm_capture c = s->in->own;
    ckpt_bytes b = {0};
    bool ok = ckpt_bytes_add(&b, s->in->moment, s->in->n_moment);

    for (uint32_t i = 0; i < m->n_indexes && c.n < CKPT_RM_ATOMS; i++)
        c.found[c.n++] = (ckpt_rm_found){m->name[i], NULL, 0, m->value[i]};
    ok = ok && ckpt_rm_make_name(t, &c, &b);
    *out = ok ? ckpt_arena_string(s->map->arena, (const char *)b.at, b.n - 1) : NULL;
    ckpt_vec_free(&b);
    if (!*out)
        return ckpt_fail_memory(s->err);
    if (!ckpt_name_ok(*out, strlen(*out)))
        return ckpt_fail(s->err, CKPT_EUSAGE, "%s:%u: '%.200s' is not a valid name of a tensor",
                         s->r->name, s->in->rule->line, *out);
    return CKPT_OK;
}

/* ---- members ---- */

/* Find the captures in a term whose numbers tell its tensors apart, e.g. {expert}. */
static int ap_indexes(ap_state *s, const ckpt_rm_term *t, ckpt_rm_member *m)
{
    m->n_indexes = 0;
    for (uint32_t i = 0; i < t->n_pieces; i++) {
        const ckpt_rm_piece *p = &t->piece[i];
        if (!ckpt_rm_takes(p) || ap_is_star(s->r, p->name) || ap_is_own(s->in->rule, p->name))
            continue;
        if (m->n_indexes == CKPT_RM_INDEXES)
            return ckpt_fail(s->err, CKPT_EUSAGE, "%s:%u: more than %d captures are also axes",
                             s->r->name, s->in->rule->line, CKPT_RM_INDEXES);
        m->value[m->n_indexes] = 0;
        m->name[m->n_indexes++] = p->name;
    }
    return CKPT_OK;
}

/* Find the tensor of the source that a member names. Unless any is set, it must not be used yet. */
static int ap_find(ap_state *s, const ckpt_rm_term *t, ckpt_rm_member *m, bool any, bool *found)
{
    const char *name = NULL;
    int rc = ap_name(s, t, m, &name);
    size_t at = rc == CKPT_OK ? ckpt_map_index(s->map, name, strlen(name)) : SIZE_MAX;

    *found = at != SIZE_MAX && (any || !s->taken[at]);
    m->t = *found ? s->map->tensors.at[at] : NULL;
    if (rc == CKPT_OK && !*found && s->near.code == CKPT_OK)
        (void)ckpt_fail(&s->near, CKPT_EMISSING, "%s:%u: '%.150s' is %s", s->r->name,
                        s->in->rule->line, name,
                        at == SIZE_MAX ? "missing" : "taken by another rule already");
    return rc;
}

/* True if the current tensor's number for this name is n or more. */
static bool ap_beyond(const ap_state *s, uint32_t name, uint64_t n)
{
    for (uint32_t i = 0; i < s->hand->n; i++) {
        if (s->hand->found[i].name == name && s->hand->found[i].number >= n)
            return true;
    }
    return false;
}

/*
 * Compute the number of members of a capture: from the layout map's sizes, or from the existing
 * tensors.
 */
static int ap_extent(ap_state *s, const ckpt_rm_term *t, ckpt_rm_member *m, uint32_t index)
{
    uint64_t *size = &s->in->size[m->name[index]];
    bool found = true;
    int rc = CKPT_OK;

    if (*size == CKPT_RM_UNKNOWN)
        rc = ckpt_rm_size_of(&s->facts, m->name[index], size, s->err);
    if (rc != CKPT_OK || *size != CKPT_RM_UNKNOWN)
        return rc;
    ckpt_err near = s->near;
    for (uint64_t n = 0; rc == CKPT_OK && found && n < CKPT_REMAP_PARTS; n++) {
        m->value[index] = n;
        rc = ap_find(s, t, m, true, &found);
        if (!found && n > 0)
            *size = n;
    }
    if (*size != CKPT_RM_UNKNOWN && !ap_beyond(s, m->name[index], *size))
        s->near = near; // the first missing tensor ends the count, so it is not a failure
    else
        *size = CKPT_RM_UNKNOWN;
    m->value[index] = 0;
    return rc;
}

/* List the tensors of one term for all numbers; the last capture's number varies fastest. */
static int ap_grid(ap_state *s, unsigned side, uint32_t term, bool *complete)
{
    const ckpt_rm_term *t = &s->in->rule->term[side].at[term];
    ckpt_rm_member m = {.term = term};
    int rc = ap_indexes(s, t, &m);
    bool more = rc == CKPT_OK;

    for (uint32_t i = 0; rc == CKPT_OK && side == s->in->from && i < m.n_indexes; i++) {
        rc = ap_extent(s, t, &m, i);
        *complete = *complete && s->in->size[m.name[i]] != CKPT_RM_UNKNOWN;
    }
    for (uint32_t i = 0; i < m.n_indexes; i++)
        more = more && s->in->size[m.name[i]] > 0 && s->in->size[m.name[i]] != CKPT_RM_UNKNOWN;
    while (rc == CKPT_OK && *complete && more) {
        uint32_t k = m.n_indexes;
        if (side == s->in->from)
            rc = ap_find(s, t, &m, false, complete);
        ckpt_rm_member *slot =
            rc == CKPT_OK && *complete && s->in->member[side].n < CKPT_REMAP_PARTS
                ? ckpt_vec_push(&s->in->member[side])
                : NULL;
        if (!slot && rc == CKPT_OK && *complete)
            return ckpt_fail(s->err, CKPT_ELIMIT, "%s:%u: too many tensors", s->r->name,
                             s->in->rule->line);
        if (slot)
            *slot = m;
        while (k > 0 && ++m.value[k - 1] == s->in->size[m.name[k - 1]])
            m.value[--k] = 0;
        more = k > 0;
    }
    return rc;
}

/* ---- making targets ---- */

static int ap_push(ap_state *s, ckpt_tensor *t)
{
    ckpt_tensor **slot = ckpt_vec_push(&s->made);
    uint32_t *group = ckpt_vec_push(&s->made_group);

    if (!slot || !group)
        return ckpt_fail_memory(s->err);
    *slot = t;
    *group = s->now;
    return CKPT_OK;
}

static void ap_take(ap_state *s, const ckpt_tensor *t)
{
    size_t at = ckpt_map_index(s->map, t->name, strlen(t->name));

    assert(at != SIZE_MAX);
    s->in->rule->n_taken += !s->taken[at];
    s->taken[at] = true;
}

/* Apply a rule with only names: the tensor stays unchanged. */
static int ap_rename(ap_state *s)
{
    ckpt_rm_member *m = &s->in->member[s->in->from].at[0];
    const char *name = NULL;
    ckpt_rm_member target = {0};
    int rc = ap_indexes(s, &s->in->rule->term[s->in->to].at[0], &target);

    if (rc == CKPT_OK)
        rc = ap_name(s, &s->in->rule->term[s->in->to].at[0], &target, &name);
    if (rc != CKPT_OK)
        return rc;
    ap_take(s, m->t);
    ckpt_tensor *moved = ckpt_arena_copy(s->map->arena, m->t, sizeof *m->t);
    if (!moved)
        return ckpt_fail_memory(s->err);
    moved->name = name;
    if (s->in->rule->log && s->in->n_moment > 0)
        return ckpt_fail(s->err, CKPT_EUNSUPPORTED,
                         "%s:%u: '%.150s' cannot follow its parameter, of which the rule takes the "
                         "logarithm",
                         s->r->name, s->in->rule->line, m->t->name);
    // not for moments: a constant does not change them
    if ((s->in->rule->plus != 0 || s->in->rule->log) && s->in->n_moment == 0)
        rc = ckpt_rm_plus(moved, s->in, s->err);
    return rc == CKPT_OK ? ap_push(s, moved) : rc;
}

/* The group of a tensor of the source. */
static uint32_t ap_group(const ap_state *s, const ckpt_tensor *t)
{
    size_t at = s->group ? ckpt_map_index(s->map, t->name, strlen(t->name)) : SIZE_MAX;

    return at == SIZE_MAX ? 0 : s->group[at];
}

/* Check that all tensors of an instance have one dtype, one role, and one parameter group. */
static int ap_alike(ap_state *s, bool unpacked)
{
    const ckpt_rm_members *in = &s->in->member[s->in->from];
    const ckpt_tensor *first = in->at[0].t;

    for (size_t i = 1; i < in->n; i++) {
        const ckpt_tensor *t = in->at[i].t;
        if (ap_group(s, t) != ap_group(s, first))
            return ckpt_fail(s->err, CKPT_EUNSUPPORTED,
                             "%s:%u: '%.150s' and '%.150s' are in different parameter groups, or "
                             "one of them is not trained: they cannot be joined into one tensor",
                             s->r->name, s->in->rule->line, first->name, t->name);
        if (!ckpt_rm_one_dtype(first, t, unpacked))
            return ckpt_fail(
                s->err, CKPT_EUNSUPPORTED,
                "%s:%u: '%.120s' (%s) and '%.120s' (%s) go into one tensor, but have different "
                "dtypes: convert the source to one dtype first, with --map none",
                s->r->name, s->in->rule->line, first->name, ckpt_dtype_name(first->dtype), t->name,
                ckpt_dtype_name(t->dtype));
    }
    return CKPT_OK;
}

/* Make the tensor of one target, or of some rows of it: its name, its shape, its extents. */
static int ap_make_one(ap_state *s, ckpt_rm_member *target)
{
    const ckpt_rm_view *v = &s->in->view[s->in->to][target->term];
    const ckpt_tensor *first = s->in->member[s->in->from].at[0].t;
    uint64_t shape[CKPT_MAX_DIM];
    ckpt_dtype dtype = ckpt_rm_dtype(s->in, first);
    ckpt_tensor like = {.dtype = dtype,
                        .export_dtype = dtype == first->dtype ? first->export_dtype : dtype,
                        .ndim = v->n_axes,
                        .shape = shape,
                        .role = first->role,
                        .flags = first->flags & (CKPT_TENSOR_GRAD | CKPT_TENSOR_PARAMETER),
                        .file = UINT32_MAX};
    const char *name = NULL;
    int rc = ap_name(s, &s->in->rule->term[s->in->to].at[target->term], target, &name);

    if (v->n_axes > CKPT_MAX_DIM)
        return ckpt_fail(s->err, CKPT_EMISMATCH, "%s:%u: too many axes", s->r->name,
                         s->in->rule->line);
    for (uint32_t a = 0; a < v->n_axes; a++)
        shape[a] = 1;
    for (uint32_t i = 0; rc == CKPT_OK && i < v->n_atoms; i++) {
        if (!ckpt_mul(shape[v->atom[i].axis], v->size[i], &shape[v->atom[i].axis]))
            rc = ckpt_fail(s->err, CKPT_ELIMIT, "%s:%u: '%.150s' would be too large", s->r->name,
                           s->in->rule->line, name);
    }
    if (rc == CKPT_OK)
        rc = ckpt_map_add_hidden(s->map, name, strlen(name), &like, &target->t, s->err);
    if (rc == CKPT_OK)
        rc = ckpt_rm_back(s->in, target, s->err);
    return rc;
}

/* Make the target at *i, and move past it. */
static int ap_make(ap_state *s, size_t *i)
{
    const ckpt_rm_terms *terms = &s->in->rule->term[s->in->to];
    ckpt_rm_member *first = &s->in->member[s->in->to].at[*i];
    const bool rows = ckpt_rm_is_rows(terms, first->term);
    ckpt_tensor *made = NULL;
    size_t n = 1;
    int rc = ap_make_one(s, first);

    // a term of rows has one member
    for (;
         rc == CKPT_OK && rows && first->term + n < terms->n && terms->at[first->term + n].follows;
         n++)
        rc = ap_make_one(s, first + n);
    *i += n;
    made = first->t;
    if (rc == CKPT_OK && rows)
        rc = ckpt_rm_stack_rows(&made, s->in, first, n, s->err);
    return rc == CKPT_OK ? ap_push(s, made) : rc;
}

/* Compute sizes; a shape that does not fit is no failure, because another rule may match. */
static int ap_bind(ap_state *s)
{
    ckpt_err why = {0};
    int rc = ckpt_rm_bind(s->in, &why);

    if (rc == CKPT_EMISMATCH) {
        if (s->near.code == CKPT_OK)
            s->near = why;
        return AP_MISFIT;
    }
    return rc == CKPT_OK ? rc : ckpt_fail(s->err, rc, "%s", why.text);
}

/* True if all members are values that an optimizer stores once per parameter: step counts. */
static bool ap_scalars(const ckpt_rm_members *from)
{
    for (size_t i = 0; i < from->n; i++) {
        if (from->at[i].t->role != CKPT_ROLE_STATE || from->at[i].t->ndim > 0)
            return false;
    }
    return true;
}

/*
 * Handle such values without axes: those of joined parameters must be equal, and each of several
 * targets gets the value.
 */
static int ap_share(ap_state *s)
{
    ckpt_rm_instance *in = s->in;
    bool complete = true;
    int rc = CKPT_OK;

    for (uint32_t k = 0; rc == CKPT_OK && k < in->rule->term[in->to].n; k++)
        rc = ap_grid(s, in->to, k, &complete);
    for (size_t i = 0; i < in->member[in->from].n; i++)
        ap_take(s, in->member[in->from].at[i].t);
    // not lost, because the state's groups contain the step counts
    if (rc == CKPT_OK && in->member[in->to].n == 0 && s->group &&
        strncmp(in->moment, "step/", 5) == 0)
        return CKPT_OK;
    if (rc == CKPT_OK && in->member[in->to].n == 0)
        return ckpt_map_note(
            s->map, CKPT_WARNING, s->err,
            "%s:%u: '%.150s' is left out: the number of its target tensors is unknown", s->r->name,
            in->rule->line, in->member[in->from].at[0].t->name);
    for (size_t i = 0; rc == CKPT_OK && i < in->member[in->to].n; i++) {
        ckpt_rm_member *m = &in->member[in->to].at[i];
        ckpt_tensor *t = NULL;
        const char *name = NULL;
        if (in->rule->term[in->to].at[m->term].follows)
            continue; // the tensor has got it with its first rows
        rc = ckpt_rm_joined(&t, in, &in->member[in->from], CKPT_RM_COPIES, s->err);
        if (rc != CKPT_OK)
            return rc;
        rc = ap_name(s, &in->rule->term[in->to].at[m->term], m, &name);
        t->name = name;
        rc = rc == CKPT_OK ? ap_push(s, t) : rc;
    }
    return rc;
}

/* Join slices of several ranks into one tensor, and leave the slices as they are. */
static int ap_join(ap_state *s, ckpt_rm_joins how)
{
    ckpt_rm_members *from = &s->in->member[s->in->from];
    const ckpt_rm_term *to = &s->in->rule->term[s->in->to].at[0];
    ckpt_rm_member target = {0};
    const char *name = NULL;
    ckpt_tensor *t = NULL;
    int rc = ap_alike(s, false);

    if (rc == CKPT_OK)
        rc = ap_indexes(s, to, &target);
    if (rc == CKPT_OK)
        rc = ap_name(s, to, &target, &name);
    if (rc == CKPT_OK)
        rc = ckpt_rm_joined(&t, s->in, from, how, s->err);
    for (size_t i = 0; rc == CKPT_OK && i < from->n; i++)
        ap_take(s, from->at[i].t);
    if (rc == CKPT_OK) {
        t->name = name;
        rc = ap_push(s, t);
    }
    return rc;
}

/*
 * Handle an instance whose source members are complete: compute sizes, make targets, check
 * coverage.
 */
static int ap_instance(ap_state *s)
{
    ckpt_rm_instance *in = s->in;
    ckpt_rm_members *from = &in->member[in->from], *to = &in->member[in->to];
    bool complete = true;
    uint64_t pairs;
    int rc = ap_alike(s, true);

    if (rc == CKPT_OK && ap_scalars(from))
        return ap_share(s);
    if (rc == CKPT_OK)
        rc = ap_bind(s);
    for (uint32_t k = 0; rc == CKPT_OK && k < in->rule->term[in->to].n; k++)
        rc = ap_grid(s, in->to, k, &complete);
    if (rc == CKPT_OK && (!ckpt_mul(from->n, to->n, &pairs) || pairs > CKPT_REMAP_PARTS))
        rc = ckpt_fail(s->err, CKPT_ELIMIT, "%s:%u: too many tensors", s->r->name, in->rule->line);
    in->blocks = rc == CKPT_OK && ckpt_rm_keeps_rows(in);
    for (size_t i = 0; rc == CKPT_OK && i < from->n; i++)
        rc = ckpt_rm_place(in, &from->at[i], s->err);
    for (size_t i = 0; rc == CKPT_OK && i < to->n;)
        rc = ap_make(s, &i);
    for (size_t i = 0; rc == CKPT_OK && i < from->n; i++) {
        rc = ckpt_rm_prove(in, &from->at[i], s->err);
        ap_take(s, from->at[i].t);
    }
    return rc;
}

/* ---- rules ---- */

/* Forget all sizes and members of the rule's names. */
static void ap_reset(ap_state *s)
{
    for (size_t i = 0; i < s->r->names.n; i++)
        s->in->size[i] = CKPT_RM_UNKNOWN;
    s->in->member[0].n = s->in->member[1].n = 0;
}

/*
 * Keep the captures that all terms share, because they identify the instance; stars are always
 * kept.
 */
static void ap_own(ap_state *s, const ckpt_rm_capture *c)
{
    s->in->own.n = 0;
    for (uint32_t i = 0; i < c->n; i++) {
        if (ap_is_star(s->r, c->found[i].name) || ap_is_own(s->in->rule, c->found[i].name))
            s->in->own.found[s->in->own.n++] = c->found[i];
    }
}

/* Try a rule that names a tensor: *took is true if all that it needs exists. */
static int ap_try(ap_state *s, ckpt_rm_rule *rule, const ckpt_rm_capture *c, bool *took)
{
    ckpt_rm_instance *in = s->in;
    bool complete = true, rename = rule->term[0].at[0].plain;
    int rc = s->facts.lora ? ckpt_rm_lora_check(in, rule, &rename, s->err) : CKPT_OK;

    if (rule->term[in->to].at[0].joins != CKPT_RM_APART)
        return CKPT_OK; // one tensor cannot be split again into several
    in->rule = rule;
    s->hand = c;
    ap_reset(s);
    ap_own(s, c);
    for (uint32_t k = 0; rc == CKPT_OK && complete && k < rule->term[in->from].n; k++)
        rc = ap_grid(s, in->from, k, &complete);
    if (rc != CKPT_OK || !complete || in->member[in->from].n == 0)
        return rc;
    if (rule->term[in->from].at[0].joins != CKPT_RM_APART)
        rc = ap_join(s, rule->term[in->from].at[0].joins);
    else
        rc = rename ? ap_rename(s) : ap_instance(s);
    *took = rule->met = rc != AP_MISFIT;
    return *took ? rc : CKPT_OK;
}

/* Report a tensor that is dropped, or that no rule takes, to a caller that wants to know all. */
static int ap_leave(ap_state *s, const ckpt_tensor *t, unsigned line, const char *why)
{
    return s->left(s->left_ctx, t->name, line, why) == 0
               ? CKPT_OK
               : ckpt_fail(s->err, CKPT_ECANCELED, "canceled");
}

/* Try rules until one takes a tensor; its name begins after n_moment bytes. */
static int ap_rules(ap_state *s, size_t at, size_t n_moment, bool *took)
{
    ckpt_tensor *t = s->map->tensors.at[at];
    ckpt_rm_capture c;
    bool rename;
    int rc = CKPT_OK;

    s->in->moment = t->name;
    s->in->n_moment = n_moment;
    for (size_t i = 0; rc == CKPT_OK && !*took && i < s->r->rules.n; i++) {
        ckpt_rm_rule *rule = &s->r->rules.at[i];
        if (rule->off)
            continue;
        if (rule->does == CKPT_RM_DROP && rule->side == s->in->from &&
            ckpt_rm_match(&rule->term[0].at[0], t->name + n_moment, &c)) {
            s->r->proof.n_dropped += *took = s->taken[at] = rule->met = true;
            rule->n_taken++;
            rc = s->facts.lora ? ckpt_rm_lora_check(s->in, rule, &rename, s->err) : CKPT_OK;
            if (rc == CKPT_OK && s->left)
                rc = ap_leave(s, t, rule->line, rule->because);
        }
        for (size_t k = 0; rule->does == CKPT_RM_EQUAL && !*took && rc == CKPT_OK &&
                           k < rule->term[s->in->from].n;
             k++) {
            if (ckpt_rm_match(&rule->term[s->in->from].at[k], t->name + n_moment, &c))
                rc = ap_try(s, rule, &c, took);
        }
    }
    return rc;
}

/* Handle the current tensor; optimizer state follows its parameter's name, or its own. */
static int ap_tensor(ap_state *s, size_t at)
{
    ckpt_tensor *t = s->map->tensors.at[at];
    size_t n_moment = ckpt_rm_moment(t);
    bool took = false;
    int rc;

    s->near = (ckpt_err){0};
    s->now = s->group ? s->group[at] : 0;
    rc = ap_rules(s, at, n_moment, &took);
    if (rc == CKPT_OK && !took && n_moment > 0 && !s->facts.lora)
        rc = ap_rules(s, at, 0, &took);
    if (rc != CKPT_OK || took)
        return rc;
    if (s->near.code != CKPT_OK && s->left)
        return ap_leave(s, t, 0, s->near.text);
    if (s->near.code == CKPT_EMISMATCH)
        return ckpt_fail(s->err, CKPT_EMISMATCH, "%s", s->near.text);
    if (s->near.code != CKPT_OK)
        return ckpt_fail(s->err, s->near.code, "%s, which '%.150s' needs", s->near.text, t->name);
    if (!s->r->others_stay && s->left)
        return ap_leave(s, t, 0, "no rule names it");
    if (!s->r->others_stay)
        return CKPT_OK; // reported at the end, so that one message lists all of them
    s->taken[at] = true;
    return ap_push(s, t);
}

/* Report tensors without a rule, the first few by name. */
static int ap_left_over(const ap_state *s)
{
    char text[320];
    size_t n = 0;
    uint64_t left = 0;

    text[0] = 0;
    for (size_t i = 0; i < s->map->tensors.n; i++) {
        if (s->taken[i])
            continue;
        if (left++ < 4 && n < sizeof text)
            n += (size_t)snprintf(text + n, sizeof text - n, "%s%.64s", n ? ", " : "",
                                  s->map->tensors.at[i]->name);
    }
    if (left == 0 || s->left)
        return CKPT_OK;
    return ckpt_fail(
        s->err, CKPT_EMISMATCH,
        "%s: no rule names %" PRIu64
        " tensor%s of the %s side: %.280s%s; add a rule, or the line drop %s NAME because \"...\"",
        s->r->name, left, left == 1 ? "" : "s", s->in->from ? "right" : "left", text,
        left > 4 ? " ..." : "", s->in->from ? "right" : "left");
}

/* ---- before and after ---- */

/* Add a name that may be missing because another tensor has its values. */
static int ap_tie(ap_state *s, ckpt_rm_rule *rule)
{
    const char *name = rule->term[0].at[0].text, *other = rule->term[1].at[0].text;
    size_t at = ckpt_map_index(s->map, other, strlen(other));
    ckpt_tensor like, *made = NULL;

    if (rule->side != s->in->from || at == SIZE_MAX ||
        ckpt_map_index(s->map, name, strlen(name)) != SIZE_MAX)
        return CKPT_OK;
    like = *s->map->tensors.at[at];
    int rc = ckpt_map_add(s->map, name, strlen(name), &like, &made, s->err);
    if (rc == CKPT_OK) {
        made->owner = like.owner ? like.owner : s->map->tensors.at[at];
        rule->met = true;
    }
    return rc;
}

/* Add a tensor that only the target has. */
static int ap_fill(ap_state *s, const ckpt_rm_rule *rule)
{
    ckpt_tensor *made = NULL;
    int rc =
        rule->side == s->in->to ? ckpt_rm_fill(&made, s->map, &s->facts, rule, s->err) : CKPT_OK;

    return made ? ap_push(s, made) : rc;
}

/* True if a rule has made the targets of this one from other tensors of the source. */
static bool ap_made_otherwise(const ap_state *s, const ckpt_rm_rule *rule)
{
    const ckpt_rm_terms *to = &rule->term[s->in->to];
    bool same = false;

    for (size_t i = 0; !same && i < s->r->rules.n; i++) {
        const ckpt_rm_rule *other = &s->r->rules.at[i];

        same = other->does == CKPT_RM_EQUAL && other->met && other->term[s->in->to].n == to->n;
        for (size_t k = 0; same && k < to->n; k++)
            same = strcmp(other->term[s->in->to].at[k].text, to->at[k].text) == 0;
    }
    return same;
}

/* Handle ties and dropped heads before, fills after; report drops and rules without a match. */
static int ap_special(ap_state *s, bool before)
{
    int rc = CKPT_OK;

    for (size_t i = 0; rc == CKPT_OK && i < s->r->rules.n; i++) {
        ckpt_rm_rule *rule = &s->r->rules.at[i];
        if (rule->off)
            continue;
        if (before && rule->does == CKPT_RM_TIE)
            rc = ap_tie(s, rule);
        else if (before && rule->does == CKPT_RM_DROP && rule->side == s->in->from)
            rc = ckpt_head_dropped(s->map, s->r, rule, s->err);
        else if (!before && rule->does == CKPT_RM_FILL)
            rc = ap_fill(s, rule);
        else if (!before && rule->does == CKPT_RM_DROP && rule->met)
            rc = ckpt_map_note(s->map, CKPT_INFO, s->err, "%s:%u: '%.150s' is left out: %.200s",
                               s->r->name, rule->line, rule->term[0].at[0].text, rule->because);
        else if (!before && rule->does == CKPT_RM_EQUAL && !rule->met && !rule->optional &&
                 !ap_made_otherwise(s, rule))
            rc = ckpt_map_note(
                s->map, CKPT_WARNING, s->err,
                "%s, line %u: '%.200s' matches no tensor that the earlier rules leave", s->r->name,
                rule->line, rule->term[s->in->from].at[0].text);
    }
    return rc;
}

/* Switch rules for other models off; without the key, those that only rename tensors are tried. */
static void ap_switch(ap_state *s)
{
    for (size_t i = 0; i < s->r->rules.n; i++) {
        ckpt_rm_rule *rule = &s->r->rules.at[i];
        bool known = false;

        rule->met = false;
        rule->n_taken = 0;
        s->r->proof = (ckpt_remap_proof){0};
        rule->off = rule->when &&
                    !ckpt_rm_holds(&s->facts, &s->r->only.at[rule->when - 1], &known) &&
                    (known || rule->does != CKPT_RM_EQUAL);
    }
}

/*
 * Compute the parts of names that are expressions; a rule with an unknown value is for other
 * models.
 */
static int ap_expressions(ap_state *s, ckpt_rm_rule *rule, ckpt_rm_term *t)
{
    const ckpt_value *v = NULL;
    int rc = CKPT_OK;

    for (uint32_t i = 0; rc == CKPT_OK && i < t->n_pieces; i++) {
        ckpt_rm_line line = {.text = t->piece[i].from, .line = rule->line};
        if (t->piece[i].kind != CKPT_RM_EXPR)
            continue;
        rc = ckpt_rm_expr(&v, &s->facts, &line, NULL, s->err);
        rule->off = rule->off || !v || v->kind != CKPT_V_INT;
        t->piece[i].text = NULL;
        if (rc == CKPT_OK && !rule->off) {
            t->piece[i].text = ckpt_arena_printf(s->map->arena, "%" PRId64, v->as.i);
            rc = t->piece[i].text ? CKPT_OK : ckpt_fail_memory(s->err);
            t->piece[i].n = t->piece[i].text ? strlen(t->piece[i].text) : 0;
        }
    }
    return rc;
}

static int ap_run(ap_state *s)
{
    const bool lora = s->facts.lora;
    int rc = CKPT_OK;

    ap_switch(s);
    for (size_t i = 0; i < s->r->rules.n; i++) {
        ckpt_rm_rule *rule = &s->r->rules.at[i];
        for (unsigned side = 0; side < 2; side++) {
            for (size_t k = 0; rc == CKPT_OK && k < rule->term[side].n; k++)
                rc = ap_expressions(s, rule, &rule->term[side].at[k]);
        }
    }
    if (rc == CKPT_OK && !lora)
        rc = ap_special(s, true);
    s->taken = ckpt_alloc(s->map->tensors.n + 1);
    if (rc == CKPT_OK && !s->taken)
        rc = ckpt_fail_memory(s->err);
    if (rc == CKPT_OK)
        rc = ckpt_rm_groups(&s->group, s->map, s->err);
    for (size_t i = 0; rc == CKPT_OK && i < s->map->tensors.n; i++)
        rc = s->taken[i] ? CKPT_OK : ap_tensor(s, i);
    s->now = 0;
    if (rc == CKPT_OK)
        rc = ap_left_over(s);
    if (rc == CKPT_OK && !lora)
        rc = ap_special(s, false);
    if (rc == CKPT_OK && !lora)
        rc = ckpt_rm_fields(s->map, &s->facts, s->err); // of the source's configuration
    if (rc == CKPT_OK && !lora)
        rc = ckpt_rm_config(s->map, &s->facts, s->err);
    if (rc == CKPT_OK && s->r->keys.n > 0 && s->in->from == 0)
        rc = ckpt_rm_keys(s->map, &s->facts, s->err);
    else if (rc == CKPT_OK && s->r->keys.n > 0 && !lora)
        rc = ckpt_rm_drop_keys(s->map, &s->facts, s->err);
    if (rc != CKPT_OK)
        return rc;
    ckpt_rm_owners(&s->made);
    const ckpt_tensor **step = NULL;
    if (s->group)
        rc = ckpt_rm_state(s->map, &s->made, s->made_group.at, &step, s->err);
    if (rc != CKPT_OK)
        return rc;
    ckpt_tensors old = s->map->tensors;
    s->map->tensors = s->made;
    s->made = old;
    // the rules cover each tensor, so the caller has chosen those of the model
    if (!s->r->others_stay)
        s->map->dicts = NULL;
    rc = ckpt_map_reindex(s->map, s->err);
    if (rc == CKPT_OK && step)
        rc = ckpt_rm_steps(s->map, step, s->err);
    if (rc == CKPT_OK && step && s->map->states.at[0]->renamed)
        rc = ckpt_state_sequence(s->map, s->map->states.at[0], false, s->err);
    return rc;
}

int ckpt_remap_apply(ckpt_map *map, ckpt_remap *r, const ckpt_remap_how *how, ckpt_err *err)
{
    assert(map && r && how);
    ap_state s = {.map = map, .r = r, .left = how->left, .left_ctx = how->left_ctx, .err = err};
    size_t n_sizes = CKPT_RM_NAMES + CKPT_MAX_DIM;
    int rc = CKPT_OK;

    s.in = ckpt_alloc(sizeof *s.in);
    uint64_t *size = s.in ? ckpt_alloc(n_sizes * sizeof *size) : NULL;
    if (!size)
        rc = ckpt_fail_memory(err);
    else
        *s.in = (ckpt_rm_instance){.f = &s.facts,
                                   .map = map,
                                   .from = how->backwards,
                                   .to = !how->backwards,
                                   .moment = "",
                                   .size = size};
    if (rc == CKPT_OK)
        rc = ckpt_rm_strip(map, r, err);
    if (rc == CKPT_OK)
        rc = ckpt_rm_facts_open(&s.facts, r, map, how, err);
    if (rc == CKPT_OK)
        rc = ckpt_rm_agrees(map, &s.facts, s.in->to, err);
    if (rc == CKPT_OK && s.facts.lora)
        rc = ckpt_rm_lora_width(map, ckpt_rm_fact(&s.facts, "hidden_size"), err);
    if (rc == CKPT_OK && s.facts.lora)
        rc = ckpt_rm_lora_sizes(map, &s.facts, err);
    if (rc == CKPT_OK)
        rc = ap_run(&s);
    if (size) {
        ckpt_vec_free(&s.in->member[0]);
        ckpt_vec_free(&s.in->member[1]);
    }
    ckpt_free(size);
    ckpt_free(s.in);
    ckpt_free(s.taken);
    ckpt_free(s.group);
    ckpt_vec_free(&s.made_group);
    ckpt_vec_free(&s.made);
    return rc;
}
