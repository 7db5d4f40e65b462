/* SPDX-License-Identifier: Apache-2.0 */
/*
 * entry.c: reads entries of the module and finds the optimizer's states by number (stage 0).
 */
#include <stdlib.h>
#include <string.h>

#include "formats/deepspeed/stage0/entry.h"

bool ckpt_dsu_same_shape(const ckpt_tensor_value *a, const ckpt_tensor_value *b)
{
    return a->ndim == b->ndim &&
           (a->ndim == 0 || memcmp(a->shape, b->shape, a->ndim * sizeof *a->shape) == 0);
}

uint64_t ckpt_dsu_elems(const ckpt_tensor_value *t)
{
    uint64_t n = 1;

    for (uint32_t i = 0; i < t->ndim; i++)
        n *= t->shape[i];
    return n;
}

bool ckpt_dsu_is_trained(const ckpt_dsu *u, const ckpt_dsu_entry *e)
{
    return e->group != CKPT_DSU_NONE && &u->entry.at[e->owner] == e;
}

/* ---- states by number ---- */

const ckpt_value *ckpt_dsu_base(const ckpt_value *optimizer)
{
    const ckpt_value *inner = ckpt_value_get(optimizer, "optimizer_state_dict");

    return inner ? inner : optimizer;
}

static int dsue_by_number(const void *a, const void *b)
{
    const ckpt_dsu_number *x = a, *y = b;

    return x->number == y->number ? 0 : x->number < y->number ? -1 : 1;
}

int ckpt_dsu_index(ckpt_dsu *u)
{
    const ckpt_value *base = ckpt_dsu_base(u->optimizer);

    u->param_groups = ckpt_value_seq(ckpt_value_get(base, "param_groups"));
    ckpt_state_look_mode(u->job->map, ckpt_value_get(base, "param_groups"));
    u->states = ckpt_value_map(ckpt_value_get(base, "state"));
    for (uint64_t i = 0; i < u->states.n; i++) {
        const ckpt_value *key = u->states.at[i].key;
        ckpt_dsu_number *slot = key->kind == CKPT_V_INT ? ckpt_vec_push(&u->number) : NULL;
        if (key->kind == CKPT_V_INT && !slot)
            return ckpt_fail_memory(u->job->err);
        if (slot)
            *slot = (ckpt_dsu_number){.number = key->as.i, .at = (size_t)i};
    }
    if (u->number.n)
        qsort(u->number.at, u->number.n, sizeof *u->number.at, dsue_by_number);
    return CKPT_OK;
}

size_t ckpt_dsu_state_at(ckpt_dsu *u, size_t group, uint64_t slot)
{
    ckpt_seq params = ckpt_value_seq(
        group < u->param_groups.n ? ckpt_value_get(u->param_groups.at[group], "params") : NULL);
    ckpt_dsu_number key = {0}, *found = NULL;

    if (slot >= params.n || !ckpt_value_as_int(params.at[slot], &key.number))
        return SIZE_MAX;
    if (u->number.n)
        found = bsearch(&key, u->number.at, u->number.n, sizeof key, dsue_by_number);
    if (!found)
        return SIZE_MAX;
    found->claimed = true;
    return found->at;
}
