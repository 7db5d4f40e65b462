/* SPDX-License-Identifier: Apache-2.0 */
/*
 * value.c: checks the optimizer's state other than flat tensors and step counts (ZeRO).
 *
 * A single value (a number, a tensor of one element) is valid for the whole group, or each rank has
 * its own; ranked.c records those.  ckpt reports state that it cannot split (lists, dicts,
 * objects).
 */
#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "formats/deepspeed/layout/bnb.h"
#include "libckpt/map/map.h"
#include "libckpt/map/state.h"

static const char DSV_8BIT[] = "holds 8-bit moments of bitsandbytes in blocks of 256: they are "
                               "listed as the F32 values that they encode";
static const char DSV_UNKNOWN[] = "has an unknown form and is left out of the tensors";

/* Add a note once for all ranks. */
static int dsv_note(const ckpt_ds_job *job, size_t group, const ckpt_value *key, const char *what,
                    ckpt_severity severity)
{
    return ckpt_map_note_once(job->map, severity, job->err,
                              "%s: optimizer state '%.100s' of group %zu %s", job->map->path,
                              key->as.text.at, group, what);
}

/* Note a group whose bitsandbytes state ckpt cannot list as tensors. */
static int dsv_not_read(const ckpt_ds_job *job, size_t group, const ckpt_value *key,
                        const char *why)
{
    const char *text = ckpt_arena_printf(
        job->map->arena, "belongs to bitsandbytes and is not listed as tensors: %s", why);

    return text ? dsv_note(job, group, key, text, CKPT_INFO) : ckpt_fail_memory(job->err);
}

/* True for a single value, and false for a slice that happens to have one element. */
static bool dsv_is_value(const ckpt_ds_head *head, const ckpt_ds_layout *layout,
                         const ckpt_ds_shard *s, size_t group, const ckpt_value *v)
{
    const ckpt_ds_group *g = &layout->group.at[group];
    uint64_t n = 1;

    if (v->kind != CKPT_V_TENSOR)
        return v->kind <= CKPT_V_BYTEARRAY;
    for (uint32_t i = 0; i < v->as.tensor->ndim; i++)
        n *= v->as.tensor->shape[i];
    return n == 1 && (v->as.tensor->ndim == 0 ||
                      layout->column.at[0].at[ckpt_ds_slot(g, head->world, 0, s->rank)].n > 1);
}

int ckpt_ds_value_same(const ckpt_ds_job *job, ckpt_ds_head *head, ckpt_ds_shard *s,
                       const ckpt_value *own, const ckpt_value *first, bool *same)
{
    assert(head && s && same);
    bool has[2] = {false, false};
    double n[2] = {0, 0};
    int rc = ckpt_ds_shard_step(job, s, own, &has[0], &n[0]);

    *same = false;
    if (!first)
        return rc;
    if (rc == CKPT_OK)
        rc = ckpt_ds_shard_step(job, &head->optim, first, &has[1], &n[1]);
    if (rc == CKPT_OK && has[0] && has[1])
        *same = n[0] == n[1] || (n[0] != n[0] && n[1] != n[1]);
    else if (rc == CKPT_OK && own->kind == first->kind)
        rc = ckpt_value_compare(same, own, first, 4096, job->err);
    return rc;
}

/* Record a value that differs from that of rank 0's first sub-group. */
static int dsv_differs(const ckpt_ds_job *job, ckpt_ds_head *head, ckpt_ds_shard *s, bool is_first,
                       const ckpt_ds_pair *p)
{
    return is_first ? ckpt_ds_ranked_note(job, head, s, p) : ckpt_ds_ranked_uneven(job, head, p);
}

/*
 * Report a tensor that is neither a single value nor one of the group's flat tensors: it has
 * several axes, or rank 0 lacks it.
 */
static int dsv_tensor(ckpt_ds_job *job, const ckpt_ds_layout *layout, const ckpt_ds_shard *s,
                      size_t group, const ckpt_pair *p)
{
    const char *key = p->key->as.text.at;

    if (p->value->as.tensor->ndim != 1)
        return dsv_note(job, layout->group.at[group].of, p->key, DSV_UNKNOWN, CKPT_WARNING);
    for (size_t c = 1; c < layout->column.n; c++) {
        if (strcmp(layout->column.at[c].name, key) == 0)
            return CKPT_OK;
    }
    return ckpt_ds_problem(job, CKPT_EMISMATCH,
                           "%s: rank %" PRIu32 " has optimizer state '%.100s' of group %zu, rank 0 "
                           "lacks it: the shards are from different runs",
                           s->path, s->rank, key, group);
}

/* Compare a group's entries with those of rank 0's first sub-group. */
static int dsv_group(ckpt_ds_job *job, ckpt_ds_head *head, const ckpt_ds_layout *layout,
                     ckpt_ds_shard *s, size_t group, size_t first)
{
    ckpt_dict own = ckpt_value_map(ckpt_ds_optim_state(head, s->optim, group, 0));
    const ckpt_value *other = ckpt_ds_optim_state(head, head->optim.optim, first, 0);
    ckpt_ds_bnb bnb = ckpt_ds_bnb_look(ckpt_ds_optim_state(head, s->optim, group, 0));
    uint32_t of = layout->group.at[group].of;
    ckpt_ds_pair p;
    bool same = true;
    int rc = CKPT_OK;

    for (uint64_t k = 0; rc == CKPT_OK && k < own.n; k++) {
        const ckpt_value *key = own.at[k].key, *v = own.at[k].value;
        if (key->kind != CKPT_V_STR || ckpt_value_is(key, "step"))
            continue;
        if (bnb.bits && (v == bnb.dict || v->kind == CKPT_V_TENSOR)) {
            rc = v == bnb.dict && bnb.bits == 8 ? dsv_note(job, of, key, DSV_8BIT, CKPT_INFO) : rc;
            continue;
        }
        if (v->kind > CKPT_V_BYTEARRAY && v->kind != CKPT_V_TENSOR)
            rc = v == bnb.dict ? dsv_not_read(job, of, key, bnb.why)
                               : dsv_note(job, of, key, DSV_UNKNOWN, CKPT_WARNING);
        bool value = dsv_is_value(head, layout, s, group, v);
        if (!value && v->kind == CKPT_V_TENSOR)
            rc = dsv_tensor(job, layout, s, group, &own.at[k]);
        if (!value)
            continue;
        p = (ckpt_ds_pair){of, key, true, ckpt_value_get(other, key->as.text.at), v};
        rc = ckpt_ds_value_same(job, head, s, v, p.first, &same);
        if (rc == CKPT_OK && !same)
            rc = dsv_differs(job, head, s, group == first, &p);
    }
    // also note values that rank 0 has and this rank lacks
    ckpt_dict all = ckpt_value_map(other);
    for (uint64_t k = 0; rc == CKPT_OK && k < all.n; k++) {
        const ckpt_value *key = all.at[k].key, *v = all.at[k].value;
        if (key->kind == CKPT_V_STR && !ckpt_value_is(key, "step") && own.n > 0 &&
            (v->kind <= CKPT_V_BYTEARRAY) &&
            !ckpt_value_get(ckpt_ds_optim_state(head, s->optim, group, 0), key->as.text.at))
            rc = dsv_differs(job, head, s, group == first, &(ckpt_ds_pair){of, key, true, v, NULL});
    }
    return rc;
}

/*
 * Warn about states under keys that are no number of a group: torch lets an optimizer keep values
 * for all parameters there.
 */
static int dsv_strays(const ckpt_ds_job *job, const ckpt_ds_head *head,
                      const ckpt_ds_layout *layout, const ckpt_ds_shard *s)
{
    ckpt_dict all = ckpt_value_map(ckpt_value_get(ckpt_ds_optim_base(head, s->optim), "state"));
    char number[24];
    int rc = CKPT_OK;

    for (uint64_t i = 0; rc == CKPT_OK && i < all.n; i++) {
        const ckpt_value *key = all.at[i].key;
        if (key->kind == CKPT_V_INT && key->as.i >= 0 && (uint64_t)key->as.i < layout->group.n)
            continue;
        (void)snprintf(number, sizeof number, "%" PRId64, key->kind == CKPT_V_INT ? key->as.i : 0);
        rc = ckpt_map_note_once(
            job->map, CKPT_WARNING, job->err,
            "%s: optimizer state '%.100s' belongs to no parameter group and is left out",
            job->map->path, key->kind == CKPT_V_STR ? key->as.text.at : number);
    }
    return rc;
}

int ckpt_ds_value_check(ckpt_ds_job *job, ckpt_ds_head *head, const ckpt_ds_layout *layout,
                        ckpt_ds_shard *s)
{
    size_t first = 0;
    int rc = CKPT_OK;

    for (size_t g = 0; rc == CKPT_OK && g < layout->group.n; g++) {
        if (layout->group.at[g].of != layout->group.at[first].of)
            first = g;
        rc = dsv_group(job, head, layout, s, g, first);
    }
    return rc == CKPT_OK ? dsv_strays(job, head, layout, s) : rc;
}
