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
 * Both move the parameters that follow the layers before them.
 */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "libckpt/map/order.h"

/* The order that a group gets. */
typedef enum sq_choice {
    SQ_OWN,   /* the order in the optimizer's file */
    SQ_MODEL, /* the order of the model's dict */
    SQ_GUESS, /* the model's order; the optimizer's differs, and nothing shows which one is right */
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
    int rc = ckpt_map_new(out, 0, w->err);

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

/* Choose between the optimizer's and the model's order if they differ and both are possible. */
static sq_choice sq_between(const sq_sorter *w, ckpt_tensor *const *own, size_t n, bool known)
{
    size_t before = sq_tail(own, n), model = sq_tail(w->model, n);

    if (known && sq_same(w->named, w->model, n))
        return SQ_MODEL;
    if (known && sq_same(w->named, own, n))
        return SQ_OWN;
    // both effects shorten the tail after the layers, so the longer tail is the original
    return before < model ? SQ_MODEL : before > model ? SQ_OWN : SQ_GUESS;
}

static int sq_choose(sq_sorter *w, ckpt_tensor *const *own, size_t n, sq_choice *out)
{
    bool known = w->known != NULL, same = w->in_order && sq_same(w->model, own, n);
    const char *odd_own = NULL, *odd_model = NULL;
    int rc = ckpt_order_twice(own, n, &odd_own, w->err);

    if (rc == CKPT_OK && w->in_order)
        rc = ckpt_order_twice(w->model, n, &odd_model, w->err);
    w->odd = odd_model ? odd_model : odd_own;
    if (!w->in_order)
        *out = known ? SQ_KNOWN : SQ_NONE;
    else if (odd_own && odd_model)
        *out = known ? SQ_KNOWN : SQ_NONE;
    else if (odd_own || odd_model)
        *out = odd_own ? SQ_MODEL : SQ_OWN;
    else if (!same)
        *out = sq_between(w, own, n, known);
    else // both orders agree, but torch may have moved parameters in both
        *out = known && sq_tail(own, n) == 0 && sq_tail(w->named, n) > 0 ? SQ_KNOWN : SQ_OWN;
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
    return choice == SQ_KNOWN                         ? w->named
           : choice == SQ_MODEL || choice == SQ_GUESS ? w->model
                                                      : w->state->param.at + first;
}

/* ---- for readers: sort the groups of a new state ---- */

typedef struct sq_reader {
    ckpt_map *map;
    ckpt_state *state;
    bool told;
} sq_reader;

static int sq_tell(sq_reader *r, const sq_sorter *w, sq_choice choice)
{
    if (r->told)
        return CKPT_OK;
    r->told = true;
    if (choice == SQ_GUESS)
        return ckpt_map_note(r->map, CKPT_WARNING, w->err,
                             "the optimizer lists its parameters in another order than the model's "
                             "dict, and either may be the model's: ckpt uses the dict's; to set "
                             "the order, list named_parameters() in --order FILE");
    return ckpt_map_note(r->map, CKPT_INFO, w->err,
                         "the optimizer lists its parameters by FSDP1 unit: ckpt puts its groups "
                         "into the model's order");
}

static int sq_put(void *ctx, const sq_sorter *w, size_t first, size_t n, sq_choice choice)
{
    sq_reader *r = ctx;
    ckpt_tensor *const *chosen = sq_chosen(w, first, choice);
    int rc = CKPT_OK;

    if (choice == SQ_NONE && !r->state->no_order) {
        r->state->no_order = "the files do not keep the order of the model";
        if (r->state->renamed)
            r->state->no_order = "a layout map made its parameters, and their names do not match a "
                                 "known architecture";
        if (w->in_order)
            r->state->no_order = ckpt_arena_printf(r->map->arena,
                                                   "neither the model's dict nor the optimizer "
                                                   "lists them in the order of a model (%.200s)",
                                                   w->odd);
        return r->state->no_order ? CKPT_OK : ckpt_fail_memory(w->err);
    }
    if (sq_same(chosen, r->state->param.at + first, n))
        return CKPT_OK;
    if (!r->state->given)
        r->state->given = ckpt_arena_copy(r->map->arena, r->state->param.at,
                                          r->state->param.n * sizeof(*r->state->given));
    if (!r->state->given)
        return ckpt_fail_memory(w->err);
    if (!r->state->renamed)
        rc = sq_tell(r, w, choice);
    memcpy(r->state->param.at + first, chosen, n * sizeof(ckpt_tensor *));
    return rc;
}

int ckpt_state_sequence(ckpt_map *map, ckpt_state *state, bool in_order, ckpt_err *err)
{
    assert(map && state && !state->own);
    sq_sorter w = {.map = map, .state = state, .in_order = in_order, .err = err};
    sq_reader r = {.map = map, .state = state};

    state->no_order = NULL;
    state->given = NULL;
    map->in_order = in_order;
    return sq_groups(&w, sq_put, &r);
}

/* ---- for writers: check the order of a state ---- */

static int sq_compare_group(void *ctx, const sq_sorter *w, size_t first, size_t n, sq_choice choice)
{
    const ckpt_tensor **out = ctx;
    ckpt_tensor *const *chosen = sq_chosen(w, first, choice);

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
    if (!state->foreign || state->listed || state->no_order)
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
