/* SPDX-License-Identifier: Apache-2.0 */
/*
 * count.c: counts the entries of a training state, without a comparison.
 */
#include <string.h>

#include "libckpt/base/err.h"
#include "libckpt/map/map.h"
#include "libckpt/map/state.h"
#include "libckpt/readback/readback.h"

bool ckpt_claim_is_moment(const ckpt_map *map, const ckpt_state *s, const ckpt_group *g,
                          const char *key)
{
    for (size_t i = 0; i < g->n * g->n_lanes; i++) {
        if (ckpt_state_moment(map, s, key, s->param.at[g->first + i]))
            return true;
    }
    return false;
}

/*
 * True if the entry of an optimizer's state is neither a moment of its parameters nor a single
 * number.
 */
static bool clc_is_strange(const ckpt_map *map, const ckpt_state *s, const ckpt_group *g,
                           const ckpt_pair *e)
{
    uint64_t n = 1;

    if (e->value->kind != CKPT_V_TENSOR)
        return false;
    for (uint32_t i = 0; i < e->value->as.tensor->ndim; i++)
        n = n && e->value->as.tensor->shape[i] <= UINT64_MAX / n ? n * e->value->as.tensor->shape[i]
                                                                 : 0;
    if (n > 1 && e->key->kind == CKPT_V_STR && ckpt_claim_is_moment(map, s, g, e->key->as.text.at))
        return false;
    return n > 1;
}

/*
 * Count a group's entries as carried. An entry that is neither a moment nor a single value was not
 * read; a note reports it, because no later check would.
 */
static int clc_group(const ckpt_map *map, ckpt_map *to, const ckpt_state *s, size_t at,
                     ckpt_err *err)
{
    const ckpt_group *g = &s->group.at[at];
    ckpt_dict entry = ckpt_value_map(g->entry), fields = ckpt_value_map(g->fields);
    int rc = CKPT_OK;

    for (uint64_t i = 0; i < fields.n; i++)
        to->claim.n_carried +=
            ckpt_value_is(fields.at[i].key, "params") ? 0 : ckpt_claim_leaves(fields.at[i].value);
    for (uint64_t i = 0; rc == CKPT_OK && i < entry.n; i++) {
        const ckpt_pair *e = &entry.at[i];
        if (!clc_is_strange(map, s, g, e)) {
            bool here =
                e->key->kind == CKPT_V_STR && ckpt_claim_is_moment(map, s, g, e->key->as.text.at);
            to->claim.n_carried += here || e->value->kind == CKPT_V_NONE ? 0 : 1;
            continue;
        }
        to->claim.n_left_out++;
        rc = ckpt_map_note(to, CKPT_WARNING, err,
                           "optimizer state '%.200s' of group %zu is not understood: it has "
                           "neither its parameters' shapes nor one value, and was not read",
                           e->key->kind == CKPT_V_STR ? e->key->as.text.at : "?", at);
    }
    return rc;
}

int ckpt_claim_count(const ckpt_map *map, ckpt_map *to, ckpt_err *err)
{
    int rc = CKPT_OK;

    for (size_t i = 0; i < map->tensors.n; i++)
        to->claim.n_carried += map->tensors.at[i]->role == CKPT_ROLE_STATE;
    for (size_t i = 0; rc == CKPT_OK && i < map->states.n; i++) {
        const ckpt_state *s = map->states.at[i];
        to->claim.n_carried += ckpt_claim_file_leaves(s);
        for (size_t g = 0; rc == CKPT_OK && g < s->group.n; g++)
            rc = clc_group(map, to, s, g, err);
    }
    return rc;
}

int ckpt_claim_tensors(const ckpt_map *from, ckpt_map *to, ckpt_err *err)
{
    uint64_t n = 0;
    int rc;

    for (size_t i = 0; i < to->tensors.n; i++)
        n += to->tensors.at[i]->role == CKPT_ROLE_STATE;
    if (from->states.n == 0 || n == 0)
        return CKPT_OK;
    rc = ckpt_claim_count(from, to, err);
    // Moments excluded by a filter count as left out.
    to->claim.n_left_out +=
        to->claim.n_carried - (to->claim.n_carried < n ? to->claim.n_carried : n);
    to->claim.n_carried = n;
    return rc == CKPT_OK ? ckpt_map_note(to, CKPT_INFO, err,
                                         "left out: hyper-parameters, scheduler, loss scale, "
                                         "counters: the output holds only tensors")
                         : rc;
}
