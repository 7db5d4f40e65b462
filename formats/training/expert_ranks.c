/* SPDX-License-Identifier: Apache-2.0 */
/*
 * expert_ranks.c: joins experts of several expert-parallel ranks (lanes) for FSDP, and splits them
 * again.
 *
 * Each expert is a complete parameter on the ranks of its lane.  FSDP has no expert parallelism: a
 * group there has the parameters of all lanes, one lane after another.  The group keeps DeepSpeed's
 * name ("ep_size_2"), because on the way back it gives the number of lanes.
 */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "formats/training/expert_names.h"
#include "formats/training/expert_ranks.h"
#include "libckpt/base/mem.h"
#include "libckpt/base/number.h"

int ckpt_train_lanes_join(const ckpt_state **out, const ckpt_state *s, ckpt_arena *arena,
                          ckpt_err *err)
{
    assert(out && s && arena);
    ckpt_state *copy;
    bool any = false;

    *out = s;
    for (size_t g = 0; g < s->group.n; g++)
        any = any || s->group.at[g].n_lanes > 1;
    if (!any)
        return CKPT_OK;
    copy = ckpt_arena_copy(arena, s, sizeof *s);
    if (copy)
        copy->group.at = ckpt_arena_copy(arena, s->group.at, s->group.n * sizeof *s->group.at);
    if (!copy || !copy->group.at)
        return ckpt_fail_memory(err);
    for (size_t g = 0; g < copy->group.n; g++) {
        ckpt_group *group = &copy->group.at[g];
        group->n *= group->n_lanes ? group->n_lanes : 1;
        group->n_lanes = 1;
    }
    *out = copy;
    return CKPT_OK;
}

/* The number of lanes from the name of an expert group; 1 or 0 for other names. */
static uint32_t dln_named(const ckpt_group *g)
{
    static const char mark[] = "ep_size_";
    const ckpt_value *name = ckpt_value_get(g->fields, "name"),
                     *moe = ckpt_value_get(g->fields, "moe");
    const char *digits;
    uint64_t n = 1;

    if (!moe || moe->kind != CKPT_V_BOOL || !moe->as.i || !name || name->kind != CKPT_V_STR ||
        strncmp(name->as.text.at, mark, sizeof mark - 1) != 0)
        return 1;
    digits = name->as.text.at + sizeof mark - 1;
    return strlen(digits) <= 6 && ckpt_parse_u64(digits, &n) ? (uint32_t)n : 1;
}

/*
 * The difference of two names' expert numbers.  0 if the names differ elsewhere, or if the second
 * number is not larger.
 */
static uint64_t dln_apart(const char *a, const char *b, uint64_t *number)
{
    size_t at[2], n[2];
    uint64_t of[2];

    if (!ckpt_train_expert_number(a, &at[0], &n[0], &of[0]) ||
        !ckpt_train_expert_number(b, &at[1], &n[1], &of[1]) || at[0] != at[1] ||
        memcmp(a, b, at[0]) != 0 || strcmp(a + at[0] + n[0], b + at[1] + n[1]) != 0)
        return 0;
    *number = of[0];
    return of[1] > of[0] ? of[1] - of[0] : 0;
}

/* True if the group's parameters are those of this many lanes, each with its own expert numbers. */
static bool dln_fits(const ckpt_state *s, const ckpt_group *g, uint32_t lanes)
{
    size_t n = g->n / lanes;
    bool fits = g->n % lanes == 0;

    for (size_t i = 0; fits && i < n; i++) {
        const char *first = s->param.at[g->first + i]->name;
        uint64_t each = 0, number = 0;
        for (uint32_t e = 1; fits && e < lanes; e++) {
            uint64_t apart = dln_apart(first, s->param.at[g->first + e * n + i]->name, &number);
            each = e == 1 ? apart : each;
            fits = apart > 0 && apart == each * e && number < each;
        }
    }
    return fits;
}

/* A parameter of a group, and its lane. */
typedef struct dln_param {
    ckpt_tensor *t;
    size_t n_prefix, place; /* bytes of its name before the expert's number; index in the group */
    uint64_t number;
    uint64_t lane;
} dln_param;

static int dln_by_layer(const void *a, const void *b)
{
    const dln_param *x = a, *y = b;

    if (x->n_prefix != y->n_prefix)
        return x->n_prefix < y->n_prefix ? -1 : 1;
    int order = memcmp(x->t->name, y->t->name, x->n_prefix);
    return order ? order : (x->number > y->number) - (x->number < y->number);
}

static int dln_by_lane(const void *a, const void *b)
{
    const dln_param *x = a, *y = b;

    if (x->lane != y->lane)
        return x->lane < y->lane ? -1 : 1;
    return (x->place > y->place) - (x->place < y->place);
}

/* Compute the lane of each parameter from the expert numbers of its layer. */
static void dln_lanes(dln_param *p, size_t n, uint32_t lanes)
{
    for (size_t i = 0, end; i < n; i = end) {
        for (end = i + 1; end < n && p[end].n_prefix == p[i].n_prefix &&
                          memcmp(p[end].t->name, p[i].t->name, p[i].n_prefix) == 0;)
            end++;
        uint64_t each = (p[end - 1].number + 1) / lanes;
        for (size_t k = i; k < end; k++)
            p[k].lane = each > 0 ? p[k].number / each : 0;
    }
}

/*
 * Sort the parameters by lane, and keep their order within a lane.  Sorting is needed because an
 * optimizer that torch loaded lists them in the module's order.
 */
static int dln_sort(const ckpt_state *s, const ckpt_group *g, uint32_t lanes, ckpt_err *err)
{
    dln_param *p = ckpt_alloc(g->n * sizeof *p);

    if (!p)
        return ckpt_fail_memory(err);
    for (size_t i = 0; i < g->n; i++) {
        size_t digits;
        p[i] = (dln_param){.t = s->param.at[g->first + i], .place = i};
        if (!ckpt_train_expert_number(p[i].t->name, &p[i].n_prefix, &digits, &p[i].number))
            p[i].n_prefix = 0;
    }
    qsort(p, g->n, sizeof *p, dln_by_layer);
    dln_lanes(p, g->n, lanes);
    qsort(p, g->n, sizeof *p, dln_by_lane);
    for (size_t i = 0; i < g->n; i++)
        s->param.at[g->first + i] = p[i].t;
    ckpt_free(p);
    return CKPT_OK;
}

int ckpt_train_lanes_cut(ckpt_state *s, const char **odd, ckpt_err *err)
{
    assert(s && odd);
    *odd = NULL;
    for (size_t i = 0; i < s->group.n; i++) {
        ckpt_group *g = &s->group.at[i];
        uint32_t lanes = dln_named(g);
        if (lanes < 2 || g->n == 0)
            continue;
        if (dln_sort(s, g, lanes, err) != CKPT_OK)
            return CKPT_ELIMIT;
        if (!dln_fits(s, g, lanes)) {
            *odd = ckpt_value_get(g->fields, "name")->as.text.at;
            return CKPT_OK;
        }
        g->n /= lanes;
        g->n_lanes = lanes;
    }
    return CKPT_OK;
}
