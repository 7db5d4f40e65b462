/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ranked.c: records the values of an optimizer's groups that differ by rank (ZeRO), while the
 * reader compares the ranks' files with rank 0's.
 */
#include <assert.h>

#include "formats/deepspeed/layout/layout.h"

/* Values of one group that differ by rank, kept here until the state has groups. */
struct ckpt_ds_ranked {
    struct ckpt_ds_ranked *next;
    size_t group;
    ckpt_ranked *list;
};

/* Find or make the list of a group; NULL: no memory. */
static struct ckpt_ds_ranked *drk_group(const ckpt_ds_job *job, ckpt_ds_head *head, size_t group)
{
    struct ckpt_ds_ranked **end = &head->ranked;

    while (*end && (*end)->group != group)
        end = &(*end)->next;
    if (!*end) {
        *end = ckpt_arena_alloc(job->map->arena, sizeof **end);
        if (*end)
            **end = (struct ckpt_ds_ranked){.group = group};
    }
    return *end;
}

static ckpt_ranked *drk_entry(const ckpt_ds_job *job, ckpt_ds_head *head, const ckpt_ds_pair *p)
{
    struct ckpt_ds_ranked *of = drk_group(job, head, p->group);

    return of ? ckpt_ranked_add(job->map->arena, &of->list, p->key, p->in_entry) : NULL;
}

int ckpt_ds_ranked_note(const ckpt_ds_job *job, ckpt_ds_head *head, ckpt_ds_shard *s,
                        const ckpt_ds_pair *p)
{
    assert(head && s && p && p->key);
    struct ckpt_ds_ranked *of;
    ckpt_value *first = NULL;
    ckpt_ranked *r;
    bool made = false;
    int rc = CKPT_OK;

    if (!job->opts->with_optimizer)
        return rc;
    of = drk_group(job, head, p->group);
    for (r = of ? of->list : NULL; r; r = r->next)
        made = made || (r->in_entry == p->in_entry && ckpt_value_is(p->key, r->key->as.text.at));
    r = of ? drk_entry(job, head, p) : NULL;
    if (!r)
        return ckpt_fail_memory(job->err);
    if (made && !r->at)
        return rc; // sub-groups differ
    if (!made) {
        r->at = ckpt_arena_array(job->map->arena, head->world, sizeof(ckpt_value *));
        rc = r->at ? ckpt_ds_value_copy(job, &head->optim, p->first, &first)
                   : ckpt_fail_memory(job->err);
        // ranks whose values are equal to rank 0's are not noted
        for (uint32_t i = 0; rc == CKPT_OK && i < head->world; i++)
            r->at[i] = first;
    }
    return rc == CKPT_OK && s->rank < head->world
               ? ckpt_ds_value_copy(job, s, p->own, &r->at[s->rank])
               : rc;
}

int ckpt_ds_ranked_uneven(const ckpt_ds_job *job, ckpt_ds_head *head, const ckpt_ds_pair *p)
{
    assert(head && p && p->key);
    ckpt_ranked *r = drk_entry(job, head, p);

    if (!r)
        return ckpt_fail_memory(job->err);
    r->at = NULL;
    return CKPT_OK;
}

int ckpt_ds_ranked_take(const ckpt_ds_job *job, const ckpt_ds_head *head, ckpt_state *state)
{
    assert(head && state);
    const char *text;

    state->client = head->client;
    for (const struct ckpt_ds_ranked *r = head->ranked; r; r = r->next) {
        if (r->group >= state->group.n)
            continue;
        ckpt_group *g = &state->group.at[r->group];
        g->ranked = r->list;
        g->cut = ckpt_ranked_cut(state, g);
    }
    text = ckpt_ranked_text(job->map->arena, state);
    if (!text)
        return ckpt_fail_memory(job->err);
    return *text ? ckpt_map_note(job->map, CKPT_INFO, job->err,
                                 "%s: each rank has its own value, because its optimizer computes "
                                 "it from the rank's partition",
                                 text)
                 : CKPT_OK;
}
