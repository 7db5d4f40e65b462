/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sequence.c: decides the order of the parameters in an optimizer's groups.
 *
 * Up to three orders of a group are known: the optimizer's own, that of the model's dict in the
 * same files, and that of an architecture with these names. Two effects occur in torch's files:
 *
 *     FSDP1 with flattened units (use_orig_params=False) lists the optimizer's parameters by units,
 *     and first those outside of units: embed, norm, head, layers.0 ...
 *     get_state_dict rewrites names that wrappers of layers have changed (torch.compile,
 *     checkpoint_wrapper), and so moves them to the end of the model's dict
 *
 * Both put parameters outside of layers first and the layers after them. A program may also give
 * its optimizer parameters in any order (sorted by name, the head first), and then the optimizer's
 * order is the right one. So an order is replaced only if it is exactly the one that FSDP1 makes.
 */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "libckpt/map/map.h"
#include "libckpt/map/order.h"

/* The order that a group gets. */
typedef enum sq_choice {
    SQ_OWN,   /* the order in the optimizer's file */
    SQ_MODEL, /* the order of the model's dict */
    SQ_ASK,   /* the optimizer's and the model's differ, and nothing shows which one is right */
    SQ_KNOWN, /* the order of a known architecture */
    SQ_NONE   /* none of these orders can be right */
} sq_choice;

/* A parameter of a group, with its position in one of the orders. */
typedef struct sq_place {
    size_t at;
    ckpt_tensor *param;
} sq_place;

typedef struct sq_sorter {
    const ckpt_map *map;
    const ckpt_state *state;
    bool in_order;       /* the map's tensors have the order of the model's dict */
    ckpt_tensor **known; /* state->param in the order of an architecture; NULL: none is known */
    sq_place *place;     /* buffer for one group */
    ckpt_tensor **model, **named; /* a group's parameters in those orders */
    const char *odd;              /* a name that proves that no order is a model's */
    ckpt_err *err;
} sq_sorter;

/* ---- orders ---- */

static int sq_compare(const void *pa, const void *pb)
{
    const sq_place *a = pa, *b = pb;

    return (a->at > b->at) - (a->at < b->at);
}

static void sq_sort(sq_sorter *w, ckpt_tensor **out, size_t n)
{
    if (n > 1)
        qsort(w->place, n, sizeof *w->place, sq_compare);
    for (size_t i = 0; i < n; i++)
        out[i] = w->place[i].param;
}

/*
 * The group in the order of the model's dict; a tied parameter takes the position of its first
 * name.
 */
static void sq_by_model(sq_sorter *w, ckpt_tensor *const *own, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const ckpt_tensor *t = own[i]->owner ? own[i]->owner : own[i];
        w->place[i] = (sq_place){ckpt_map_index(w->map, t->name, strlen(t->name)), own[i]};
    }
    sq_sort(w, w->model, n);
}

/* Map each name to its position in w->known. */
static int sq_index_known(ckpt_map **out, const sq_sorter *w)
{
    int rc = ckpt_map_create(out, 0, w->err);

    for (size_t i = 0; rc == CKPT_OK && i < w->state->param.n; i++) {
        ckpt_tensor *t = w->known[i], *one;
        rc = ckpt_map_add(*out, t->name, strlen(t->name), t, &one, w->err);
    }
    return rc;
}

static void sq_by_name(sq_sorter *w, const ckpt_map *index, ckpt_tensor *const *own, size_t n)
{
    for (size_t i = 0; i < n; i++)
        w->place[i] = (sq_place){ckpt_map_index(index, own[i]->name, strlen(own[i]->name)), own[i]};
    sq_sort(w, w->named, n);
}

/* ---- choosing ---- */

static bool sq_same(ckpt_tensor *const *a, ckpt_tensor *const *b, size_t n)
{
    return n == 0 || memcmp(a, b, n * sizeof *a) == 0;
}

/* The number of parameters after the last one of a numbered layer. */
static size_t sq_tail(ckpt_tensor *const *list, size_t n)
{
    size_t tail = 0;

    while (tail < n && ckpt_order_layer(list[n - 1 - tail]->name) == 0)
        tail++;
    return tail;
}

/* True if FSDP1 lists a model's parameters in this order: those outside of layers, then layers. */
static bool sq_by_unit(ckpt_tensor *const *list, ckpt_tensor *const *model, size_t n)
{
    size_t k = 0;

    for (int layers = 0; layers < 2; layers++) {
        for (size_t i = 0; i < n; i++) {
            if ((ckpt_order_layer(model[i]->name) > 0) == (layers == 1) && list[k++] != model[i])
                return false;
        }
    }
    return true;
}

/* Choose if the optimizer and the model's dict have the same order. */
static sq_choice sq_agreed(const sq_sorter *w, ckpt_tensor *const *own, size_t n)
{
    // torch may have moved parameters in both: FSDP1 with units that were compiled
    if (!w->known || sq_tail(own, n) > 0 || sq_tail(w->named, n) == 0)
        return SQ_OWN;
    return sq_by_unit(own, w->named, n) ? SQ_KNOWN : SQ_ASK;
}

/* The names that show that the optimizer's order and the model's dict are no walks; or NULL. */
typedef struct sq_odd {
    const char *own, *model;
} sq_odd;

/* Choose between the optimizer's and the model's order if they differ. */
static sq_choice sq_between(const sq_sorter *w, ckpt_tensor *const *own, size_t n, sq_odd odd)
{
    if (w->known && sq_same(w->named, own, n))
        return SQ_OWN;
    if (w->known && sq_by_unit(own, w->named, n))
        return SQ_KNOWN;
    if (odd.own && odd.model)
        return SQ_NONE;
    if (!odd.model && sq_by_unit(own, w->model, n))
        return SQ_MODEL;
    // get_state_dict has moved layers, or parts of them, to the end of the dict
    if (!odd.own && (odd.model || sq_by_unit(w->model, own, n)))
        return SQ_OWN;
    return SQ_ASK;
}

static int sq_choose(sq_sorter *w, ckpt_tensor *const *own, size_t n, sq_choice *out)
{
    bool known = w->known != NULL, same = w->in_order && sq_same(w->model, own, n);
    sq_odd odd = {0};
    int rc = ckpt_order_twice(own, n, &odd.own, w->err);

    if (rc == CKPT_OK && w->in_order)
        rc = ckpt_order_twice(w->model, n, &odd.model, w->err);
    w->odd = odd.model ? odd.model : odd.own;
    if (!w->in_order || (same && odd.own))
        *out = known ? SQ_KNOWN : SQ_NONE;
    else
        *out = same ? sq_agreed(w, own, n) : sq_between(w, own, n, odd);
    return rc;
}

/* ---- groups ---- */

static int sq_begin(sq_sorter *w)
{
    size_t n = w->state->param.n;
    ckpt_tensor **all = ckpt_alloc((3 * n + 1) * sizeof(ckpt_tensor *));
    bool known = false;
    int rc;

    w->place = ckpt_alloc((n + 1) * sizeof *w->place);
    w->model = all;
    if (!all || !w->place)
        return ckpt_fail_memory(w->err);
    w->named = all + n;
    w->known = all + 2 * n;
    if (n > 0)
        memcpy(w->known, w->state->param.at, n * sizeof(ckpt_tensor *));
    rc = ckpt_order_named(w->map, w->known, n, &known, w->err);
    w->known = known ? w->known : NULL;
    return rc;
}

static void sq_end(sq_sorter *w)
{
    ckpt_free(w->place);
    ckpt_free(w->model);
}

/* Callback for one group: `choice` is the order that its parameters should have. */
typedef int sq_use(void *ctx, const sq_sorter *w, size_t first, size_t n, sq_choice choice);

/* Visit each group with several parameters, all on one expert-parallel rank. */
static int sq_groups(sq_sorter *w, sq_use *use, void *ctx)
{
    ckpt_map *index = NULL;
    int rc = sq_begin(w);

    if (rc == CKPT_OK && w->known)
        rc = sq_index_known(&index, w);
    for (size_t g = 0; rc == CKPT_OK && g < w->state->group.n; g++) {
        const ckpt_group *group = &w->state->group.at[g];
        ckpt_tensor *const *own = w->state->param.at + group->first;
        sq_choice choice = SQ_OWN;
        if (group->n < 2 || group->n_lanes > 1)
            continue;
        if (w->in_order)
            sq_by_model(w, own, group->n);
        if (w->known)
            sq_by_name(w, index, own, group->n);
        rc = sq_choose(w, own, group->n, &choice);
        if (rc == CKPT_OK)
            rc = use(ctx, w, group->first, group->n, choice);
    }
    ckpt_map_free(index);
    sq_end(w);
    return rc;
}

/* The parameters of a group in the order that was chosen. */
static ckpt_tensor *const *sq_chosen(const sq_sorter *w, size_t first, sq_choice choice)
{
    return choice == SQ_KNOWN   ? w->named
           : choice == SQ_MODEL ? w->model
                                : w->state->param.at + first;
}

/* ---- for readers: sort the groups of a new state ---- */

typedef struct sq_reader {
    ckpt_map *map;
    ckpt_state *state;
} sq_reader;

/* The reason why no order can be chosen; NULL: no memory. */
static const char *sq_reason(const sq_reader *r, const sq_sorter *w, const ckpt_tensor *first,
                             sq_choice choice)
{
    if (choice == SQ_ASK)
        return ckpt_arena_printf(
            r->map->arena,
            "the optimizer lists its parameters in another order than the model (%.60s), and not "
            "as FSDP1 does (--order stored keeps the optimizer's order)",
            first->name);
    if (w->in_order)
        return ckpt_arena_printf(r->map->arena,
                                 "neither the model's dict nor the optimizer lists them in the "
                                 "order of a model (%.200s)",
                                 w->odd);
    return r->state->renamed ? "a layout map made its parameters, and their names do not match a "
                               "known architecture"
                             : "the files do not keep the order of the model";
}

static int sq_put(void *ctx, const sq_sorter *w, size_t first, size_t n, sq_choice choice)
{
    sq_reader *r = ctx;
    ckpt_tensor *const *own = r->state->param.at + first;
    ckpt_tensor *const *chosen = sq_chosen(w, first, choice);

    if ((choice == SQ_NONE || choice == SQ_ASK) && !r->state->no_order) {
        size_t i = 0;
        ckpt_tensor *const *other = w->in_order && !sq_same(w->model, own, n) ? w->model : w->named;
        while (choice == SQ_ASK && own[i] == other[i])
            i++;
        r->state->no_order = sq_reason(r, w, own[i], choice);
        return r->state->no_order ? CKPT_OK : ckpt_fail_memory(w->err);
    }
    if (sq_same(chosen, own, n))
        return CKPT_OK;
    if (!r->state->given)
        r->state->given = ckpt_arena_copy(r->map->arena, r->state->param.at,
                                          r->state->param.n * sizeof(*r->state->given));
    if (!r->state->given)
        return ckpt_fail_memory(w->err);
    memcpy(r->state->param.at + first, chosen, n * sizeof(ckpt_tensor *));
    return CKPT_OK;
}

int ckpt_state_sequence(ckpt_map *map, ckpt_state *state, bool in_order, ckpt_err *err)
{
    assert(map && state && !state->own);
    sq_sorter w = {.map = map, .state = state, .in_order = in_order, .err = err};
    sq_reader r = {.map = map, .state = state};
    int rc;

    state->no_order = NULL;
    state->given = NULL;
    map->in_order = in_order;
    rc = sq_groups(&w, sq_put, &r);
    if (rc != CKPT_OK || !state->given)
        return rc;
    if (state->no_order) {
        // one group that FSDP1 did not make shows that it made none
        memcpy(state->param.at, state->given, state->param.n * sizeof(*state->given));
        state->given = NULL;
        return CKPT_OK;
    }
    return state->renamed ? CKPT_OK
                          : ckpt_map_note(map, CKPT_INFO, err,
                                          "the optimizer lists its parameters by FSDP1 unit: ckpt "
                                          "puts its groups into the model's order");
}

/* ---- for writers: check the order of a state ---- */

static int sq_compare_group(void *ctx, const sq_sorter *w, size_t first, size_t n, sq_choice choice)
{
    const ckpt_tensor **out = ctx;
    // a reader would have given no_order, so parameters were moved later
    bool moved = choice == SQ_ASK && w->in_order;
    ckpt_tensor *const *chosen = moved ? w->model : sq_chosen(w, first, choice);

    for (size_t i = 0; !*out && i < n; i++) {
        if (chosen[i] != w->state->param.at[first + i])
            *out = w->state->param.at[first + i];
    }
    return CKPT_OK;
}

int ckpt_state_misplaced(const ckpt_map *map, const ckpt_state *state, const ckpt_tensor **out,
                         ckpt_err *err)
{
    assert(map && state && out);
    sq_sorter w = {.map = map, .state = state, .in_order = map->in_order, .err = err};

    *out = NULL;
    // DeepSpeed's own checkpoints find parameters by position, so their order is right
    if (!state->foreign || state->listed || state->numbered || state->no_order)
        return CKPT_OK;
    return sq_groups(&w, sq_compare_group, out);
}

int ckpt_state_ordered(const ckpt_map *map, const ckpt_state *state, ckpt_err *err)
{
    assert(map && state);
    if (!state->no_order)
        return CKPT_OK;
    return ckpt_fail(err, CKPT_EUSAGE,
                     "%.100s: parameters are found by position, and their order is not known: "
                     "%.200s" CKPT_ORDER_HELP,
                     map->path, state->no_order);
}
