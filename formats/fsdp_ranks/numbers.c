/* SPDX-License-Identifier: Apache-2.0 */
/*
 * numbers.c: maps the numbers of an optimizer's state to parameters.
 *
 * torch numbers parameters group by group, in a group in the model's order.  But the model's dict
 * has more entries than the optimizer: buffers, tied names, frozen parameters.  Shapes decide: an
 * assignment is accepted only if it is the only one that fits.
 */
#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/fsdp_ranks/ranks.h"
#include "libckpt/map/extent.h"
#include "libckpt/map/order.h"
#include "libckpt/map/whole.h"

#define RNM_ABSENT UINT32_MAX

/* A name of the model without the parts that wrappers insert. */
typedef struct rnm_bare {
    const char *name;
    const ckpt_ranks_item *item;
} rnm_bare;

/* A kind of state: the bytes of a name before its number, "exp_avg/". */
typedef struct rnm_kind {
    const char *name;
    size_t n;
    bool single; /* each tensor has one element, such as a step count of shape [1] */
    bool shaped; /* a tensor has axes */
} rnm_kind;

enum { RNM_KINDS = 32 }; /* more than any optimizer has */

/* The advice in messages about an unknown order. */
#define RNM_HELP                                                                                   \
    "; give their names in the optimizer's order (--order FILE; order_text in "                    \
    "the library)"

typedef struct rnm_finder {
    ckpt_ranks_numbers *out;
    ckpt_arena *arena;
    const char *path;
    const ckpt_ranks_item **param; /* in the model's order, without buffers and tied names */
    size_t n_params;
    const ckpt_ranks_item **moment; /* by number: a state tensor of its shape, or NULL */
    uint32_t *group;                /* by number: parameter group, or RNM_ABSENT */
    const char **name;              /* by number: name in param_names, or NULL */
    size_t *at;                     /* by number: index in param */
    bool by_model;                  /* numbers follow the model, not the groups */
    rnm_bare *bare;                 /* the model's names, sorted; NULL: not yet needed */
    rnm_kind kind[RNM_KINDS];       /* the kinds of state that were asked for */
    size_t n_kinds;
    ckpt_err *err;
} rnm_finder;

/* ---- parameters and numbers ---- */

/* True for another name of an earlier parameter. */
static bool rnm_tied(const rnm_finder *f, const ckpt_ranks_item *item)
{
    for (size_t i = 0; i < f->n_params; i++) {
        if (ckpt_ranks_same(f->param[i], item))
            return true;
    }
    return false;
}

bool ckpt_ranks_is_buffer(const ckpt_ranks_set *model, const ckpt_ranks_item *item)
{
    static const char *const last[] = {"running_mean", "running_var", "num_batches_tracked"};
    const char *dot = strrchr(item->name, '.');
    size_t n = dot ? (size_t)(dot + 1 - item->name) : 0;
    bool is = false;

    for (size_t i = 0; i < sizeof last / sizeof *last; i++)
        is |= strcmp(item->name + n, last[i]) == 0;
    // batch norms have all three; a parameter may have one of the names
    for (size_t i = 0; is && i < sizeof last / sizeof *last; i++) {
        char name[512];
        int wrote = snprintf(name, sizeof name, "%.*s%s", (int)n, item->name, last[i]);
        is = wrote > 0 && (size_t)wrote < sizeof name && ckpt_ranks_find(model, name);
    }
    return is;
}

/* Collect the parameters; if some tensors are sharded, plain ones are buffers. */
static int rnm_params(rnm_finder *f)
{
    const ckpt_ranks_items *all = &f->out->model->item;
    bool parts = false;

    f->param = ckpt_arena_array(f->arena, all->n + 1, sizeof *f->param);
    if (!f->param)
        return ckpt_fail_memory(f->err);
    for (size_t i = 0; i < all->n; i++)
        parts |= all->at[i].kind != CKPT_RANKS_PLAIN;
    for (size_t i = 0; i < all->n; i++) {
        if ((!parts || all->at[i].kind != CKPT_RANKS_PLAIN) && !rnm_tied(f, &all->at[i]) &&
            !ckpt_ranks_is_buffer(f->out->model, &all->at[i]))
            f->param[f->n_params++] = &all->at[i];
    }
    return CKPT_OK;
}

/* ---- the caller's list ---- */

typedef struct rnm_lister {
    rnm_finder *f;
    const ckpt_ranks_item **param; /* in the order of the list */
    size_t n, rest;                /* rest: number of parameters before '*'; SIZE_MAX: no '*' */
} rnm_lister;

/* True if a line has named the parameter. */
static bool rnm_listed(const rnm_lister *l, const ckpt_ranks_item *item)
{
    for (size_t i = 0; i < l->n; i++) {
        if (l->param[i] == item)
            return true;
    }
    return false;
}

/* Take a line of the list. A name that no optimizer trains is passed over; the caller refuses
 * names that no tensor has. */
static int rnm_line(void *ctx, uint64_t number, const char *line, size_t n)
{
    rnm_lister *l = ctx;
    rnm_finder *f = l->f;

    if (n == 1 && *line == '*') {
        if (l->rest != SIZE_MAX)
            return ckpt_fail(f->err, CKPT_EUSAGE, CKPT_ORDER_STARS, number);
        l->rest = l->n;
    }
    for (size_t i = 0; i < f->n_params; i++) {
        const char *name = f->param[i]->name;
        if (strlen(name) == n && memcmp(name, line, n) == 0 && !rnm_listed(l, f->param[i]))
            l->param[l->n++] = f->param[i];
    }
    return CKPT_OK;
}

/* Put the parameters into the order of the caller's list; those that it does not name are frozen,
 * or stand where its '*' stands. */
static int rnm_relist(rnm_finder *f)
{
    rnm_lister l = {.f = f, .rest = SIZE_MAX};
    const ckpt_ranks_item **all;
    size_t n = 0;

    if (!f->out->order)
        return CKPT_OK;
    l.param = ckpt_arena_array(f->arena, f->n_params + 1, sizeof *l.param);
    all = ckpt_arena_array(f->arena, f->n_params + 1, sizeof *all);
    if (!l.param || !all)
        return ckpt_fail_memory(f->err);
    int rc = ckpt_order_lines(f->out->order, rnm_line, &l);
    for (size_t i = 0; i < l.n && i < l.rest; i++)
        all[n++] = l.param[i];
    for (size_t i = 0; l.rest != SIZE_MAX && i < f->n_params; i++) {
        if (!rnm_listed(&l, f->param[i]))
            all[n++] = f->param[i];
    }
    for (size_t i = l.rest; i < l.n; i++)
        all[n++] = l.param[i];
    f->param = all;
    f->n_params = n;
    return rc;
}

/* Count the numbers, with those that no group has, and make room for them. */
static int rnm_count(rnm_finder *f)
{
    ckpt_seq groups = ckpt_value_seq(f->out->groups);
    size_t n = 0, last = 0;

    for (uint64_t g = 0; g < groups.n; g++) {
        ckpt_seq params = ckpt_value_seq(ckpt_value_get(groups.at[g], "params"));
        int64_t number;
        n += params.n;
        for (uint64_t i = 0; i < params.n; i++) {
            if (ckpt_value_as_int(params.at[i], &number) && number >= 0 &&
                (uint64_t)number < f->n_params && (uint64_t)number >= last)
                last = (size_t)number + 1;
        }
    }
    n = n > last ? n : last;
    f->out->n = n;
    f->group = ckpt_arena_array(f->arena, n + 1, sizeof *f->group);
    f->name = ckpt_arena_array(f->arena, n + 1, sizeof *f->name);
    f->moment = ckpt_arena_array(f->arena, n + 1, sizeof *f->moment);
    f->at = ckpt_arena_array(f->arena, n + 1, sizeof *f->at);
    if (!f->group || !f->name || !f->moment || !f->at)
        return ckpt_fail_memory(f->err);
    for (size_t number = 0; number < n; number++)
        f->group[number] = RNM_ABSENT;
    return CKPT_OK;
}

/*
 * Read the groups.  torch numbers parameters 0, 1, 2 ... in the order of the groups; FSDP1's
 * rekey_optim_state_dict, which Lightning uses, in the order of the model, in any groups, and
 * without the numbers of frozen parameters.
 */
static int rnm_groups(rnm_finder *f)
{
    ckpt_seq groups = ckpt_value_seq(f->out->groups);
    int rc = rnm_count(f);

    for (uint64_t g = 0, n = 0; rc == CKPT_OK && g < groups.n; g++) {
        ckpt_seq params = ckpt_value_seq(ckpt_value_get(groups.at[g], "params")),
                 names = ckpt_value_seq(ckpt_value_get(groups.at[g], "param_names"));
        for (uint64_t i = 0; i < params.n; i++, n++) {
            int64_t number;
            if (!ckpt_value_as_int(params.at[i], &number) || number < 0 ||
                (uint64_t)number >= f->out->n || f->group[number] != RNM_ABSENT)
                return ckpt_fail(f->err, CKPT_EFORMAT,
                                 "%s: the numbers of parameters in the optimizer's groups are not "
                                 "those of the model's parameters, each once",
                                 f->path);
            f->group[number] = (uint32_t)g;
            f->by_model |= (uint64_t)number != n;
            if (names.n == params.n && names.at[i]->kind == CKPT_V_STR)
                f->name[number] = names.at[i]->as.text.at;
        }
    }
    return rc;
}

/* The number in the name of a state tensor, "<kind>/<number>"; f->out->n or more: none. */
static uint64_t rnm_number(const rnm_finder *f, const ckpt_ranks_item *item)
{
    uint64_t number = 0;

    for (const char *c = strrchr(item->name, '/') + 1; *c >= '0' && *c <= '9' && number < f->out->n;
         c++)
        number = number * 10 + (uint64_t)(*c - '0');
    return number;
}

/* True for a tensor with one element, whole, such as a step count of shape [1]. */
static bool rnm_has_one(const ckpt_ranks_item *item)
{
    return item->kind == CKPT_RANKS_PLAIN && item->ndim == 1 && item->shape[0] == 1;
}

/* The kind of a state tensor; NULL: it is none of the first RNM_KINDS. */
static const rnm_kind *rnm_kind_of(rnm_finder *f, const ckpt_ranks_item *item)
{
    const ckpt_ranks_items *all = &f->out->optim->item;
    const size_t n = (size_t)(strrchr(item->name, '/') + 1 - item->name);
    rnm_kind made = {.name = item->name, .n = n, .single = true};
    size_t at = 0;

    while (at < f->n_kinds && (f->kind[at].n != n || memcmp(f->kind[at].name, item->name, n) != 0))
        at++;
    if (at < f->n_kinds)
        return &f->kind[at];
    if (at == RNM_KINDS)
        return NULL;
    for (size_t i = 0; i < all->n; i++) {
        if (strncmp(all->at[i].name, item->name, n) != 0)
            continue;
        made.single = made.single && rnm_has_one(&all->at[i]);
        made.shaped = made.shaped || all->at[i].ndim > 0;
    }
    f->kind[f->n_kinds++] = made;
    return &f->kind[at];
}

/* Use state without axes for parameters without axes, which have no other. */
static void rnm_scalars(rnm_finder *f)
{
    const ckpt_ranks_items *all = &f->out->optim->item;

    for (size_t i = 0; i < all->n; i++) {
        const ckpt_ranks_item *item = &all->at[i];
        uint64_t number = rnm_number(f, item);
        if (item->ndim != 0 || number >= f->out->n || f->moment[number])
            continue;
        const rnm_kind *kind = rnm_kind_of(f, item);
        if (kind && kind->shaped) // exp_avg, but not step
            f->moment[number] = item;
    }
}

/* True if a parameter is larger than the number of ranks: its pieces have several elements. */
static bool rnm_any_large(const rnm_finder *f)
{
    uint64_t n;

    for (size_t i = 0; i < f->n_params; i++) {
        if (ckpt_shape_elems(f->param[i]->shape, f->param[i]->ndim, &n) && n > f->out->group)
            return true;
    }
    return false;
}

/*
 * True for a kind of state with one element for each parameter: pieces of flat parameters are
 * larger, unless all parameters are tiny.
 */
static bool rnm_is_single(rnm_finder *f, const ckpt_ranks_item *item)
{
    const rnm_kind *kind = rnm_has_one(item) ? rnm_kind_of(f, item) : NULL;

    return kind && kind->single;
}

/* Find a state tensor for each number, and the form of the state. */
static void rnm_moments(rnm_finder *f)
{
    const ckpt_ranks_items *all = &f->out->optim->item;
    const bool large = rnm_any_large(f);
    bool parts = false, flat = false, whole = false;

    for (size_t i = 0; i < f->n_params; i++)
        parts |= f->param[i]->kind != CKPT_RANKS_PLAIN;
    for (size_t i = 0; i < all->n; i++) {
        const ckpt_ranks_item *item = &all->at[i];
        uint64_t number = rnm_number(f, item);
        if (item->ndim == 0 || number >= f->out->n || (large && rnm_is_single(f, item)))
            continue;
        if (!f->moment[number])
            f->moment[number] = item;
        flat |= item->kind == CKPT_RANKS_PLAIN && item->ndim == 1;
        whole |= item->kind != CKPT_RANKS_PLAIN || item->ndim > 1;
    }
    f->out->form = flat && !whole && parts ? CKPT_RANKS_PIECES : CKPT_RANKS_WHOLE;
    if (f->out->form == CKPT_RANKS_WHOLE)
        rnm_scalars(f);
}

/* ---- unique assignments ---- */

/* True if the state of a number fits a parameter. */
static bool rnm_fits(const rnm_finder *f, size_t number, const ckpt_ranks_item *p)
{
    const ckpt_ranks_item *m = f->moment[number];
    uint64_t n;

    if (!m)
        return true;
    if (f->out->form == CKPT_RANKS_WHOLE)
        return m->ndim == p->ndim && !m->uneven &&
               memcmp(m->shape, p->shape, p->ndim * sizeof *p->shape) == 0;
    return ckpt_shape_elems(p->shape, p->ndim, &n) && n == ckpt_ranks_flat_n(m, f->out->group);
}

/* The caller's list has more parameters than the optimizer, and shapes do not show which it has. */
static void rnm_too_many(rnm_finder *f)
{
    const char *why = ckpt_arena_printf(f->arena,
                                        "the optimizer has %zu parameters, but the list names "
                                        "%zu: list only the parameters that the optimizer has",
                                        f->out->n, f->n_params);

    f->out->why = why ? why : "the list names more parameters than the optimizer has";
}

/* Assign the numbers in the order of the parameters; some parameters may have none. */
static bool rnm_in_order(rnm_finder *f)
{
    size_t i = 0, k = f->n_params, n = f->out->n;
    bool only = true;

    for (size_t number = 0; number < n; number++, i++) {
        while (i < f->n_params && !rnm_fits(f, number, f->param[i]))
            i++;
        if (i == f->n_params)
            return false;
        f->at[number] = i;
    }
    // also assign from the end: every valid assignment lies between both
    for (size_t number = n; number-- > 0;) {
        do
            k--; // k stays in bounds, because an assignment exists
        while (!rnm_fits(f, number, f->param[k]));
        only &= f->at[number] == k;
    }
    if (!only && f->out->order)
        rnm_too_many(f);
    else if (!only)
        f->out->why = "the optimizer names its parameters by number, and shapes do not show which "
                      "of the model's parameters it has" RNM_HELP;
    return true;
}

/*
 * True if each group has its parameters in the model's order. A program may sort a group in another
 * way, by name for example, and then the order of equal shapes in the group means nothing.
 */
static bool rnm_ascends(const rnm_finder *f)
{
    for (size_t number = 1; number < f->out->n; number++) {
        if (f->group[number] == f->group[number - 1] && f->at[number] <= f->at[number - 1])
            return false;
    }
    return true;
}

/*
 * Assign several groups by shape.  A shape must occur in one group only and as often as in the
 * model; order decides among equal shapes.
 */
static bool rnm_by_shape(rnm_finder *f)
{
    for (size_t number = 0; number < f->out->n; number++) {
        size_t before = 0, numbers = 0, params = 0, at = SIZE_MAX;
        if (!f->moment[number])
            return false;
        for (size_t other = 0; other < f->out->n; other++) {
            const ckpt_ranks_item *a = f->moment[number], *b = f->moment[other];
            bool same = b && a->ndim == b->ndim &&
                        memcmp(a->shape, b->shape, a->ndim * sizeof *a->shape) == 0;
            if (same && f->group[other] != f->group[number])
                return false;
            before += same && other < number;
            numbers += same;
        }
        for (size_t i = 0; i < f->n_params; i++) {
            if (!rnm_fits(f, number, f->param[i]))
                continue;
            if (params++ == before)
                at = i;
        }
        if (params != numbers)
            return false;
        f->at[number] = at;
    }
    return true;
}

/* ---- units of FSDP1 ---- */

/* True if two parameters are in the same unit, which is a layer. */
static bool rnm_same_unit(const ckpt_ranks_item *a, const ckpt_ranks_item *b)
{
    size_t n = ckpt_order_layer(a->name);

    return n == ckpt_order_layer(b->name) && strncmp(a->name, b->name, n) == 0;
}

/* Add the parameters of the unit that begins with param[first], from element 0 on. */
static int rnm_take_unit(rnm_finder *f, size_t first, size_t number, uint64_t *total)
{
    *total = 0;
    for (size_t i = first; i < f->n_params; i++) {
        const ckpt_ranks_item *p = f->param[i];
        ckpt_ranks_param *slot;
        uint64_t n;
        if (!rnm_same_unit(f->param[first], p))
            continue;
        slot = ckpt_vec_push(&f->out->param);
        if (!slot)
            return ckpt_fail_memory(f->err);
        *slot = (ckpt_ranks_param){p->name, p, number, f->group[number], *total};
        if (!ckpt_shape_elems(p->shape, p->ndim, &n) || !ckpt_add(*total, n, total))
            *total = UINT64_MAX;
    }
    return CKPT_OK;
}

/* True if a flat parameter fits: FSDP1 pads it to a multiple of the ranks. */
static bool rnm_padded(const rnm_finder *f, size_t number, uint64_t total)
{
    uint64_t have = f->moment[number] ? ckpt_ranks_flat_n(f->moment[number], f->out->group) : 0;

    return have >= total && have - total < f->out->group && have % f->out->group == 0;
}

/* Sort by the model's order, in which an optimizer without FSDP1 counts parameters. */
static int rnm_model_order(const void *pa, const void *pb)
{
    const ckpt_ranks_param *a = pa, *b = pb;

    return (a->model > b->model) - (a->model < b->model);
}

/* Assign units: first the root with all parameters outside of layers, then the layers. */
static int rnm_units(rnm_finder *f, bool *found)
{
    size_t number = 0;
    int rc = CKPT_OK;

    *found = true;
    for (int layers = 0; rc == CKPT_OK && layers < 2; layers++) {
        for (size_t i = 0; rc == CKPT_OK && *found && i < f->n_params; i++) {
            bool first = (ckpt_order_layer(f->param[i]->name) > 0) == (layers == 1);
            uint64_t total;
            for (size_t k = 0; first && k < i; k++)
                first = !rnm_same_unit(f->param[k], f->param[i]);
            if (!first)
                continue;
            if (number == f->out->n) {
                *found = false;
                continue;
            }
            rc = rnm_take_unit(f, i, number, &total);
            *found = rc == CKPT_OK && rnm_padded(f, number, total);
            number++;
        }
    }
    *found = *found && number == f->out->n;
    if (f->out->param.n > 1)
        qsort(f->out->param.at, f->out->param.n, sizeof *f->out->param.at, rnm_model_order);
    f->out->form = CKPT_RANKS_UNITS;
    return rc;
}

/* ---- all together ---- */

static int rnm_add(rnm_finder *f, const ckpt_ranks_item *p, size_t number)
{
    ckpt_ranks_param *slot = ckpt_vec_push(&f->out->param);

    if (!slot)
        return ckpt_fail_memory(f->err);
    *slot = (ckpt_ranks_param){p->name, p, number, f->group[number], 0};
    return CKPT_OK;
}

/* True if a parameter's name ends with the optimizer's name for it, both without wrappers. */
static bool rnm_is_called(const ckpt_ranks_item *p, const char *name, char *room)
{
    char *own = room + strlen(name) + 1;

    ckpt_wrapper_bare(room, name);
    ckpt_wrapper_bare(own, p->name);
    size_t n = strlen(room), n_own = strlen(own);
    return n <= n_own && strcmp(own + n_own - n, room) == 0 &&
           (n == n_own || own[n_own - n - 1] == '.');
}

/* Keep the assignment by shape, unless names that the optimizer has contradict it. */
static int rnm_keep(rnm_finder *f)
{
    int rc = CKPT_OK;

    for (size_t number = 0; rc == CKPT_OK && number < f->out->n; number++) {
        const ckpt_ranks_item *p = f->param[f->at[number]];
        const char *name = f->name[number];
        char *room = name ? ckpt_arena_alloc(f->arena, strlen(name) + strlen(p->name) + 2) : NULL;
        if (name && !room)
            return ckpt_fail_memory(f->err);
        if (name && !rnm_is_called(p, name, room)) {
            f->out->param.n = 0;
            f->out->why = "the optimizer has names for its parameters (param_names) that are not "
                          "those of the model";
            return CKPT_OK;
        }
        if (f->group[number] != RNM_ABSENT)
            rc = rnm_add(f, p, number);
    }
    return rc;
}

/* ---- names ---- */

static int rnm_compare(const void *pa, const void *pb)
{
    const rnm_bare *a = pa, *b = pb;

    return strcmp(a->name, b->name);
}

/* Sort the model's names, without wrappers. */
static int rnm_index(rnm_finder *f)
{
    const ckpt_ranks_items *all = &f->out->model->item;

    f->bare = ckpt_arena_array(f->arena, all->n + 1, sizeof *f->bare);
    if (!f->bare)
        return ckpt_fail_memory(f->err);
    for (size_t i = 0; i < all->n; i++) {
        char *name = ckpt_arena_alloc(f->arena, strlen(all->at[i].name) + 1);
        if (!name)
            return ckpt_fail_memory(f->err);
        ckpt_wrapper_bare(name, all->at[i].name);
        f->bare[i] = (rnm_bare){name, &all->at[i]};
    }
    if (all->n > 1)
        qsort(f->bare, all->n, sizeof *f->bare, rnm_compare);
    return CKPT_OK;
}

/* Find the one parameter whose name differs from `name` only by wrappers; *out is NULL for none. */
static int rnm_unwrapped(rnm_finder *f, const char *name, const ckpt_ranks_item **out)
{
    size_t n = f->out->model->item.n;
    char *bare = ckpt_arena_alloc(f->arena, strlen(name) + 1);
    int rc = !bare ? ckpt_fail_memory(f->err) : f->bare ? CKPT_OK : rnm_index(f);

    *out = NULL;
    if (rc != CKPT_OK)
        return rc;
    ckpt_wrapper_bare(bare, name);
    const rnm_bare key = {bare, NULL},
                   *is = bsearch(&key, f->bare, n, sizeof *f->bare, rnm_compare);
    bool twice = is && ((is > f->bare && rnm_compare(is - 1, is) == 0) ||
                        (is + 1 < f->bare + n && rnm_compare(is + 1, is) == 0));
    *out = is && !twice ? is->item : NULL;
    return CKPT_OK;
}

/*
 * Use `param_names` of the groups (torch 2.6 and later, if the optimizer was given names).  Each
 * must be in the model, with or without the parts that wrappers insert, and fit the state's shape.
 */
static int rnm_told(rnm_finder *f, bool *found)
{
    int rc = CKPT_OK;

    *found = f->out->n > 0;
    for (size_t number = 0; rc == CKPT_OK && *found && number < f->out->n; number++) {
        const char *name = f->name[number];
        const ckpt_ranks_item *p = name ? ckpt_ranks_find(f->out->model, name) : NULL;
        if (name && !p)
            rc = rnm_unwrapped(f, name, &p);
        *found = p && rnm_fits(f, number, p);
        if (rc == CKPT_OK && *found)
            rc = rnm_add(f, p, number);
    }
    if (!*found)
        f->out->param.n = 0;
    return rc;
}

/* True if the numbers from the last on fit parameters of the model in the model's order. */
static bool rnm_reversed(const rnm_finder *f)
{
    size_t i = 0;

    for (size_t number = f->out->n; number-- > 0; i++) {
        while (i < f->n_params && !rnm_fits(f, number, f->param[i]))
            i++;
        if (i == f->n_params)
            return false;
    }
    return true;
}

/* True if the model has a parameter for each number; the state tells its shape. */
static bool rnm_has_all(const rnm_finder *f)
{
    for (size_t number = 0; number < f->out->n; number++) {
        size_t numbers = 0, params = 0;

        for (size_t i = 0; i < f->n_params; i++) {
            // numbers of one shape fit the same parameters
            if (rnm_fits(f, number, f->param[i]) && params++ == 0) {
                for (size_t k = 0; k < f->out->n; k++)
                    numbers += f->moment[k] && rnm_fits(f, k, f->param[i]);
            }
        }
        if (params == 0 || (f->moment[number] && numbers > params))
            return false;
    }
    return true;
}

/* The reason why one group of numbers is not in the model's order. */
static const char *rnm_unordered(const rnm_finder *f)
{
    if (f->out->order)
        return "the optimizer names its parameters by number, and their shapes are not those of "
               "the parameters in the given order";
    if (rnm_reversed(f))
        return "the optimizer names its parameters by number, and their shapes are the model's in "
               "reverse order: the optimizer was given them in another order than the model "
               "has" RNM_HELP;
    if (rnm_has_all(f))
        return "the optimizer names its parameters by number, and their shapes are the model's, "
               "but in another order" RNM_HELP;
    return "the optimizer names its parameters by number, and their shapes differ from the model's";
}

/* True if some number has state with axes. */
static bool rnm_has_state(const rnm_finder *f)
{
    for (size_t number = 0; number < f->out->n; number++) {
        if (f->moment[number])
            return true;
    }
    return false;
}

static int rnm_find(rnm_finder *f)
{
    bool several = ckpt_value_seq(f->out->groups).n > 1 && !f->by_model, found = false;
    int rc = CKPT_OK;

    rnm_moments(f);
    if (!f->by_model)
        rc = rnm_told(f, &found);
    if (rc != CKPT_OK || found)
        return rc;
    rc = rnm_relist(f);
    if (rc != CKPT_OK)
        return rc;
    if (!several && rnm_in_order(f)) {
        f->out->assumed = !f->out->order && !f->by_model && f->out->n > 1 && !rnm_has_state(f);
        return f->out->why ? CKPT_OK : rnm_keep(f);
    }
    if (several) {
        bool fits = f->out->form == CKPT_RANKS_WHOLE && rnm_by_shape(f);
        if (fits && rnm_ascends(f))
            return rnm_keep(f);
        f->out->why = fits ? "the optimizer names its parameters by number, and the shapes in a "
                             "group are the model's, but in another order" RNM_HELP
                      : f->out->order
                          ? "the optimizer names its parameters by number, and shapes do not show "
                            "which parameters of the given order are in which group"
                          : "the optimizer names its parameters by number, and shapes do not show "
                            "which parameters are in which group" RNM_HELP;
        return CKPT_OK;
    }
    if (f->out->form == CKPT_RANKS_WHOLE) {
        f->out->why = rnm_unordered(f);
        return CKPT_OK;
    }
    rc = rnm_units(f, &found);
    if (rc == CKPT_OK && !found)
        f->out->why = "its optimizer has flat parameters (FSDP1) that were not wrapped as one unit "
                      "per layer and one for the rest";
    return rc;
}

int ckpt_ranks_number(ckpt_ranks_numbers *out, ckpt_arena *arena, const char *path, ckpt_err *err)
{
    assert(out->model && out->optim && out->group > 0 && out->param.n == 0);
    rnm_finder f = {.out = out, .arena = arena, .path = path, .err = err};
    int rc;

    if (!out->groups || out->groups->kind != CKPT_V_LIST)
        return ckpt_fail(err, CKPT_EFORMAT, "%s: the optimizer's param_groups are not a list",
                         path);
    for (uint64_t i = 0; i < out->groups->as.seq.n; i++) {
        if (!ckpt_value_get(out->groups->as.seq.at[i], "params"))
            return ckpt_fail(err, CKPT_EFORMAT,
                             "%s: entry %" PRIu64
                             " of the optimizer's param_groups is not a dict with params",
                             path, i);
    }
    rc = rnm_params(&f);
    if (rc == CKPT_OK)
        rc = rnm_groups(&f);
    if (rc == CKPT_OK)
        rc = rnm_find(&f);
    out->positions = !f.by_model && out->form != CKPT_RANKS_UNITS;
    return rc;
}
