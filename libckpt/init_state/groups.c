/* SPDX-License-Identifier: Apache-2.0 */
/*
 * groups.c: drops parameter groups without parameters from a run of another framework, because
 * DeepSpeed does not keep them.  The Trainer makes one with FSDP1 and use_orig_params=False.
 */
#include "libckpt/init_state/groups.h"

#include <inttypes.h>
#include <string.h>

enum { EMP_DEPTH = 4 }; /* schedulers inside of SequentialLR and ChainedScheduler */

/* Remove the entries of empty groups from a list with an entry for each group. */
static void emp_cut(const ckpt_state *s, ckpt_seq *list)
{
    uint64_t n = 0;

    for (uint64_t i = 0; i < list->n; i++) {
        if (s->group.at[i].n > 0)
            list->at[n++] = list->at[i];
    }
    list->n = n;
}

/* True for members of torch's schedulers that have an entry for each group. */
static bool emp_is_by_group(const ckpt_value *key)
{
    static const char *const names[] = {"base_lrs", "_last_lr",       "lr_lambdas",   "max_lrs",
                                        "min_lrs",  "base_momentums", "max_momentums"};

    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (ckpt_value_is(key, names[i]))
            return true;
    }
    return false;
}

static void emp_schedule(const ckpt_state *s, ckpt_value *schedule, unsigned depth)
{
    ckpt_dict all = ckpt_value_map(schedule);

    for (uint64_t i = 0; i < all.n; i++) {
        ckpt_value *v = all.at[i].value;
        ckpt_seq inner = ckpt_value_seq(v);

        if (emp_is_by_group(all.at[i].key) && inner.n == s->group.n)
            emp_cut(s, &v->as.seq);
        for (uint64_t k = 0;
             depth > 0 && ckpt_value_is(all.at[i].key, "_schedulers") && k < inner.n; k++)
            emp_schedule(s, inner.at[k], depth - 1);
    }
}

int ckpt_groups_drop_empty(ckpt_map *map, ckpt_err *err)
{
    ckpt_state *s = map->states.n == 1 ? map->states.at[0] : NULL;
    size_t n = 0, before;

    if (!s || !s->foreign)
        return CKPT_OK;
    before = s->group.n;
    for (size_t g = 0; g < before; g++)
        n += s->group.at[g].n > 0;
    if (n == before || n == 0)
        return CKPT_OK;
    int rc = ckpt_map_note(map, CKPT_INFO, err,
                           "%s: left out %zu of %zu parameter groups, and their entries in the "
                           "schedule: they have no parameters, and DeepSpeed drops such groups",
                           map->path, before - n, before);
    if (rc != CKPT_OK)
        return rc;
    // The schedule is changed in place, which no savepoint undoes, so nothing fails after this.
    emp_schedule(s, ckpt_value_get(s->model, "lr_scheduler"), EMP_DEPTH);
    n = 0;
    for (size_t g = 0; g < before; g++) {
        if (s->group.at[g].n > 0)
            s->group.at[n++] = s->group.at[g];
    }
    s->group.n = n;
    return CKPT_OK;
}
