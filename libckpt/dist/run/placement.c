/* SPDX-License-Identifier: Apache-2.0 */
/*
 * placement.c: assigns a target's ranks, and their files, to machines.
 */
#include "libckpt/dist/run/placement.h"

#include <assert.h>
#include <inttypes.h>

/* ---- ranks ---- */

/* Check that the number of named hosts fits the ranks; *inner: hosts per rank. */
static int spr_inner(const ckpt_team *t, const ckpt_map *to, size_t *inner, ckpt_err *err)
{
    *inner = to->ranks > 0 ? t->n_places / to->ranks : 1;
    if (to->ranks == 0 || (t->n_places > 0 && t->n_places % to->ranks == 0))
        return CKPT_OK;
    return ckpt_fail(err, CKPT_EUSAGE,
                     "%s: the output has %" PRIu32
                     " ranks, but the hosts have %zu: name a host for each rank",
                     to->path, to->ranks, t->n_places);
}

/* Find the machine of a rank by the named hosts. */
static int spr_named(const ckpt_team *t, const ckpt_map *to, uint32_t rank, uint32_t *node,
                     ckpt_err *err)
{
    size_t inner, first;
    int rc = spr_inner(t, to, &inner, err);

    if (rc != CKPT_OK)
        return rc;
    first = rank * inner;
    *node = t->place[first];
    for (size_t i = 1; i < inner; i++) {
        if (t->place[first + i] != *node)
            return ckpt_fail(err, CKPT_EUSAGE,
                             "%s: the %zu model-parallel ranks of data-parallel rank %" PRIu32
                             " share files, but are on %s and %s",
                             to->path, inner, rank, t->host[*node], t->host[t->place[first + i]]);
    }
    return CKPT_OK;
}

/* Find the machine of a rank if each process gets the same number of ranks. */
static int spr_counted(const ckpt_team *t, const ckpt_map *to, uint32_t rank, uint32_t *node,
                       ckpt_err *err)
{
    if (to->ranks % t->n != 0)
        return ckpt_fail(err, CKPT_EUSAGE,
                         "%s: the output has %" PRIu32
                         " ranks, which is not a multiple of %u processes: start another number of "
                         "processes, or name the ranks' hosts",
                         to->path, to->ranks, t->n);
    *node = t->node[rank / (to->ranks / t->n)];
    return CKPT_OK;
}

static int spr_node(const ckpt_team *t, const ckpt_map *to, uint32_t rank, uint32_t *node,
                    ckpt_err *err)
{
    return t->place ? spr_named(t, to, rank, node, err) : spr_counted(t, to, rank, node, err);
}

/* ---- machines ---- */

/* Mark the machines with a rank; all machines if the target has no ranks. */
static int spr_mark(const ckpt_team *t, const ckpt_map *to, uint8_t *has, ckpt_err *err)
{
    uint32_t node = 0;
    int rc = CKPT_OK;

    for (size_t i = 0; to->ranks == 0 && i < (t->place ? t->n_places : t->n); i++)
        has[t->place ? t->place[i] : t->node[i]] = 1;
    for (uint32_t r = 0; rc == CKPT_OK && r < to->ranks; r++) {
        rc = spr_node(t, to, r, &node, err);
        if (rc == CKPT_OK)
            has[node] = 1;
    }
    return rc;
}

static int spr_list(ckpt_spread *s, const ckpt_team *t, const ckpt_map *to, ckpt_err *err)
{
    uint8_t *has = ckpt_alloc(t->n_nodes);
    int rc = has ? spr_mark(t, to, has, err) : ckpt_fail_memory(err);

    for (uint32_t k = 0; rc == CKPT_OK && k < t->n_nodes; k++) {
        if (has[k])
            s->node[s->n_nodes++] = k;
    }
    ckpt_free(has);
    return rc;
}

/* ---- files ---- */

static bool spr_is_of_rank(const ckpt_map *to, size_t i)
{
    return to->ranks > 0 && to->files.at[i].rank < to->ranks;
}

/* Assign a file that all machines get to the machine with the fewest bytes to write so far. */
static void spr_deal(ckpt_spread *s, const ckpt_map *to, uint64_t *load)
{
    for (size_t i = 0; i < to->files.n; i++) {
        if (spr_is_of_rank(to, i))
            load[s->maker[i]] += to->files.at[i].size;
    }
    for (size_t i = 0; i < to->files.n; i++) {
        uint32_t best = s->node[0];

        if (spr_is_of_rank(to, i))
            continue;
        for (size_t k = 1; k < s->n_nodes; k++) {
            if (load[s->node[k]] < load[best])
                best = s->node[k];
        }
        s->maker[i] = best;
        s->copied[i] = s->n_nodes > 1;
        load[best] += to->files.at[i].size;
    }
}

int ckpt_spread_make(ckpt_spread *s, const ckpt_team *t, const ckpt_map *to, ckpt_err *err)
{
    assert(t && to);
    uint64_t *load = ckpt_alloc(t->n_nodes * sizeof *load);
    int rc = CKPT_OK;

    *s = (ckpt_spread){0};
    s->maker = ckpt_alloc((to->files.n + 1) * sizeof *s->maker);
    s->copied = ckpt_alloc(to->files.n + 1);
    s->node = ckpt_alloc(t->n_nodes * sizeof *s->node);
    if (!load || !s->maker || !s->copied || !s->node)
        rc = ckpt_fail_memory(err);
    if (rc == CKPT_OK)
        rc = spr_list(s, t, to, err);
    for (size_t i = 0; rc == CKPT_OK && i < to->files.n; i++) {
        if (spr_is_of_rank(to, i))
            rc = spr_node(t, to, to->files.at[i].rank, &s->maker[i], err);
    }
    if (rc == CKPT_OK)
        spr_deal(s, to, load);
    ckpt_free(load);
    return rc;
}

void ckpt_spread_free(ckpt_spread *s)
{
    ckpt_free(s->maker);
    ckpt_free(s->copied);
    ckpt_free(s->node);
    *s = (ckpt_spread){0};
}

int ckpt_spread_check(const ckpt_map *to, ckpt_err *err)
{
    const ckpt_team *t = ckpt_team_now();
    ckpt_spread s = {0};
    int rc = t && t->spread && to->files.n > 0 ? ckpt_spread_make(&s, t, to, err) : CKPT_OK;

    ckpt_spread_free(&s);
    return rc;
}

bool ckpt_spread_has(const ckpt_spread *s, unsigned node)
{
    for (size_t i = 0; i < s->n_nodes; i++) {
        if (s->node[i] == node)
            return true;
    }
    return false;
}

bool ckpt_spread_gets(const ckpt_spread *s, unsigned node, uint32_t file)
{
    return s->maker[file] == node || (s->copied[file] && ckpt_spread_has(s, node));
}
