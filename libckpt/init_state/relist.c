/* SPDX-License-Identifier: Apache-2.0 */
/*
 * relist.c: parses a caller's list of parameters, and applies its order to a run.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "libckpt/init_state/relist.h"
#include "libckpt/map/order.h"

/* ---- a run ---- */

typedef struct rl_run {
    ckpt_map *map;
    size_t *place; /* per tensor of the map: its line; 0: none */
    size_t rest;   /* line of '*'; 0: none */
    ckpt_err *err;
} rl_run;

static int rl_line(void *ctx, uint64_t number, const char *line, size_t n)
{
    rl_run *r = ctx;
    size_t at;

    if (n == 0)
        return CKPT_OK;
    if (n == 1 && *line == '*') {
        if (r->rest)
            return ckpt_fail(r->err, CKPT_EUSAGE, CKPT_ORDER_STARS, number);
        r->rest = (size_t)number;
        return CKPT_OK;
    }
    at = ckpt_map_index(r->map, line, n);
    if (at == SIZE_MAX)
        return ckpt_fail(r->err, CKPT_EUSAGE, "order, line %" PRIu64 ": %s has no tensor %.*s",
                         number, r->map->path, (int)(n < 200 ? n : 200), line);
    if (r->place[at])
        return ckpt_fail(r->err, CKPT_EUSAGE, "order, line %" PRIu64 ": %.*s is named twice",
                         number, (int)(n < 200 ? n : 200), line);
    r->place[at] = (size_t)number;
    return CKPT_OK;
}

/* A parameter with its line and its old position. */
typedef struct rl_param {
    size_t line, was;
    ckpt_tensor *param;
} rl_param;

static int rl_compare(const void *pa, const void *pb)
{
    const rl_param *a = pa, *b = pb;

    if (a->line != b->line)
        return a->line < b->line ? -1 : 1;
    return (a->was > b->was) - (a->was < b->was);
}

/* Find the line of a parameter: that of its own name, otherwise the first line of a tied name. */
static size_t rl_place(const rl_run *r, const ckpt_tensor *param)
{
    const ckpt_tensor *owner = param->owner ? param->owner : param;
    size_t best = 0;

    for (size_t i = 0; i < r->map->tensors.n; i++) {
        const ckpt_tensor *t = r->map->tensors.at[i];
        bool is = t == param || t == owner || t->owner == owner;
        if (is && r->place[i] && (!best || r->place[i] < best))
            best = r->place[i];
    }
    return best ? best : r->rest;
}

/* Sort n parameters from `first` on. */
static int rl_sort(const rl_run *r, ckpt_state *s, size_t first, size_t n, rl_param *room)
{
    for (size_t i = 0; i < n; i++) {
        ckpt_tensor *p = s->param.at[first + i];
        size_t at = ckpt_map_index(r->map, p->name, strlen(p->name)), line;
        line = at != SIZE_MAX && r->place[at] ? r->place[at] : rl_place(r, p);
        if (line == 0)
            return ckpt_fail(r->err, CKPT_EUSAGE,
                             "order: %.200s is trained, but no line names it; a line '*' stands "
                             "for all others, in the file's order",
                             p->name);
        room[i] = (rl_param){line, i, p};
    }
    if (n > 1)
        qsort(room, n, sizeof *room, rl_compare);
    for (size_t i = 0; i < n; i++)
        s->param.at[first + i] = room[i].param;
    return CKPT_OK;
}

static int rl_groups(const rl_run *r, ckpt_state *s)
{
    rl_param *room = ckpt_alloc((s->param.n + 1) * sizeof *room);
    int rc = room ? CKPT_OK : ckpt_fail_memory(r->err);

    for (size_t g = 0; rc == CKPT_OK && g < s->group.n; g++) {
        const ckpt_group *group = &s->group.at[g];
        for (uint32_t e = 0; rc == CKPT_OK && e < group->n_lanes; e++)
            rc = rl_sort(r, s, group->first + e * group->n, group->n, room);
    }
    ckpt_free(room);
    return rc;
}

int ckpt_order_run(ckpt_map *map, const char *text, ckpt_err *err)
{
    ckpt_state *s = map->states.n == 1 ? map->states.at[0] : NULL;
    rl_run r = {.map = map, .err = err};
    int rc;

    if (!s || s->own || !(s->foreign || s->renamed))
        return ckpt_fail(err, CKPT_EUSAGE,
                         "%s: the checkpoint defines the order of its parameters, so that --order "
                         "cannot change it",
                         map->path);
    r.place = ckpt_alloc((map->tensors.n + 1) * sizeof *r.place);
    rc = r.place ? ckpt_order_lines(text, rl_line, &r) : ckpt_fail_memory(err);
    if (rc == CKPT_OK)
        rc = rl_groups(&r, s);
    ckpt_free(r.place);
    if (rc != CKPT_OK)
        return rc;
    s->listed = true;
    s->no_order = NULL;
    return ckpt_map_note(map, CKPT_INFO, err,
                         "the parameters of each group are in the order of the list");
}
