/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ranked.c: handles values that differ by rank.
 *
 * A group's value belongs to the rank's partition of the parameters. A target with the same
 * partitions keeps the values. Any other target has partitions without a value of their own, and
 * gives all ranks that of rank 0.  A value of the training program belongs to the rank itself, so
 * that a target with a file for each of as many ranks keeps it.
 */
#include <inttypes.h>
#include <string.h>

#include "libckpt/map/map.h"
#include "libckpt/map/state.h"

const ckpt_ranked *ckpt_ranked_find(const ckpt_ranked *list, const ckpt_value *key, bool in_entry)
{
    const ckpt_ranked *r = key->kind == CKPT_V_STR ? list : NULL;

    while (r && (r->in_entry != in_entry || !ckpt_value_is(key, r->key->as.text.at)))
        r = r->next;
    return r;
}

const ckpt_ranked *ckpt_ranked_get(const ckpt_group *g, const ckpt_value *key, bool in_entry)
{
    return ckpt_ranked_find(g->ranked, key, in_entry);
}

ckpt_ranked *ckpt_ranked_add(ckpt_arena *arena, ckpt_ranked **list, const ckpt_value *key,
                             bool in_entry)
{
    ckpt_ranked **end = list, *made;

    for (; *end; end = &(*end)->next) {
        if ((*end)->in_entry == in_entry && ckpt_value_is(key, (*end)->key->as.text.at))
            return *end;
    }
    made = ckpt_arena_alloc(arena, sizeof *made);
    if (!made)
        return NULL;
    *made = (ckpt_ranked){.key = ckpt_value_str(arena, key->as.text.at, key->as.text.n),
                          .in_entry = in_entry};
    *end = made->key ? made : NULL;
    return *end;
}

/* FNV-1a, by Fowler, Noll and Vo. */
static uint64_t rv_hash(uint64_t h, const void *bytes, size_t n)
{
    const unsigned char *at = bytes;

    for (size_t i = 0; i < n; i++)
        h = (h ^ at[i]) * UINT64_C(0x100000001b3);
    return h;
}

uint64_t ckpt_ranked_cut(const ckpt_state *state, const ckpt_group *g)
{
    uint64_t h = UINT64_C(0xcbf29ce484222325);

    for (size_t i = 0; i < g->n * g->n_lanes && g->first + i < state->param.n; i++) {
        const ckpt_tensor *t = state->param.at[g->first + i];
        const char *name = ckpt_state_name(state, t);

        h = rv_hash(h, name, strlen(name) + 1);
        h = rv_hash(h, &t->n_elems, sizeof t->n_elems);
    }
    return h ? h : 1;
}

bool ckpt_ranked_stay(const ckpt_state *state)
{
    bool stay = true;

    for (size_t g = 0; stay && g < state->group.n; g++) {
        const ckpt_group *group = &state->group.at[g];
        stay = !group->ranked || group->cut == ckpt_ranked_cut(state, group);
    }
    return stay;
}

/* Selects the per-rank values to list. */
typedef struct rv_choice {
    bool uneven; /* only those that also differ between the sub-groups of a rank */
    bool fields; /* only those in the groups' settings */
} rv_choice;

/* List the names of one group's per-rank values; NULL: no memory. */
static const char *rv_names(ckpt_arena *arena, const ckpt_state *state, const ckpt_group *g,
                            rv_choice only)
{
    const char *text = "";

    for (const ckpt_ranked *r = g->ranked; text && r; r = r->next) {
        // each model-parallel rank has a state with its own value, so none is lost
        if ((r->model && !state->joined) || (only.uneven && r->at) || (only.fields && r->in_entry))
            continue;
        text = ckpt_arena_printf(arena, "%s%s%.80s", text, *text ? ", " : "", r->key->as.text.at);
    }
    return text;
}

static const char *rv_text(ckpt_arena *arena, const ckpt_state *state, rv_choice only)
{
    const char *all = "", *names;

    for (size_t g = 0; all && g < state->group.n; g++) {
        names = rv_names(arena, state, &state->group.at[g], only);
        if (!names)
            return NULL;
        if (*names)
            all = ckpt_arena_printf(arena, "%s%s%s of parameter group %zu", all, *all ? "; " : "",
                                    names, g);
    }
    return all;
}

const char *ckpt_ranked_text(ckpt_arena *arena, const ckpt_state *state)
{
    return rv_text(arena, state, (rv_choice){0});
}

/* Warn about client state and buffers of which the output has only rank 0's. */
static int rv_lost_client(ckpt_map *to, const ckpt_state *state, ckpt_err *err)
{
    enum { MOST = 8 };
    const char *names = "";
    size_t n = 0;

    for (const ckpt_ranked *r = state->client; names && r; r = r->next) {
        if (to->claim.keeps_client && r->at)
            continue;
        if (n++ < MOST)
            names = ckpt_arena_printf(to->arena, "%s%s%.80s", names, *names ? ", " : "",
                                      r->key->as.text.n ? r->key->as.text.at : "''");
    }
    if (names && n > MOST)
        names = ckpt_arena_printf(to->arena, "%s and %zu more", names, n - MOST);
    if (!names)
        return ckpt_fail_memory(err);
    return *names
               ? ckpt_map_note(to, CKPT_WARNING, err,
                               "%s%s%s: the ranks have different values; the output has those of "
                               "rank 0",
                               state->prefix, *state->prefix ? ": " : "", names)
               : CKPT_OK;
}

int ckpt_ranked_lost(ckpt_map *to, const ckpt_map *from, ckpt_err *err)
{
    const bool keeps = to->claim.keeps_ranked, fresh = to->claim.fresh;
    int rc = CKPT_OK;

    for (size_t i = 0; rc == CKPT_OK && i < from->states.n; i++) {
        // a fresh optimizer state has no value of rank 0 either, so only the settings count
        const char *text =
            rv_text(to->arena, from->states.at[i], (rv_choice){.uneven = keeps, .fields = fresh});

        if (!text)
            return ckpt_fail_memory(err);
        if (*text)
            rc = ckpt_map_note(to, CKPT_WARNING, err,
                               "%s: each rank has its own value; the target gives all ranks that "
                               "of rank 0, because %s",
                               text,
                               keeps   ? "sub-groups of one rank differ, too"
                               : fresh ? "the state of the optimizer begins anew"
                                       : "their partitions are not those of the source");
        if (rc == CKPT_OK)
            rc = rv_lost_client(to, from->states.at[i], err);
    }
    return rc;
}
