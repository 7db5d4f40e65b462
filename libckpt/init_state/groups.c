/* SPDX-License-Identifier: Apache-2.0 */
/*
 * groups.c: drops parameter groups without parameters from a run of another framework, because
 * DeepSpeed does not keep them.  The Trainer makes one with FSDP1 and use_orig_params=False.
 */
#include "libckpt/init_state/groups.h"

#include <inttypes.h>
#include <string.h>

/* EMP_DEPTH: schedulers inside of SequentialLR and ChainedScheduler.  EMP_NODES: values that are
 * compared. */
enum { EMP_DEPTH = 4, EMP_NODES = 1 << 12 };

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

/* Name the settings of empty groups that no other group has. */
static int emp_name_settings(ckpt_map *map, const ckpt_state *s, ckpt_err *err)
{
    int rc = CKPT_OK;

    for (size_t g = 0; g < s->group.n; g++) {
        ckpt_dict all = ckpt_value_map(s->group.at[g].n == 0 ? s->group.at[g].fields : NULL);
        for (uint64_t i = 0; rc == CKPT_OK && i < all.n; i++) {
            const ckpt_value *key = all.at[i].key;
            bool text = key->kind == CKPT_V_STR, usual = false;
            for (size_t k = 0; text && k < s->group.n && !usual; k++)
                usual = s->group.at[k].n > 0 &&
                        ckpt_value_get(s->group.at[k].fields, key->as.text.at) != NULL;
            if (!usual)
                rc = ckpt_map_note(map, CKPT_WARNING, err,
                                   "%s: param_groups/%zu/%.200s is left out with its group, which "
                                   "has no parameters",
                                   map->path, g, text ? key->as.text.at : "...");
        }
    }
    return rc;
}

/* Name an entry of a list of the schedule, or each member of the entry. */
static int emp_name_entry(ckpt_map *map, const ckpt_pair *list, uint64_t i, ckpt_err *err)
{
    static const char why[] = "left out with its parameter group, which has no parameters";
    const char *key = list->key->as.text.at;
    ckpt_dict all = ckpt_value_map(list->value->as.seq.at[i]);
    int rc = CKPT_OK;

    if (all.n == 0)
        return ckpt_map_note(map, CKPT_WARNING, err, "%s: lr_scheduler/%s/%" PRIu64 " is %s",
                             map->path, key, i, why);
    for (uint64_t k = 0; rc == CKPT_OK && k < all.n; k++) {
        const bool text = all.at[k].key->kind == CKPT_V_STR;
        rc = ckpt_map_note(map, CKPT_WARNING, err, "%s: lr_scheduler/%s/%" PRIu64 "/%.200s is %s",
                           map->path, key, i, text ? all.at[k].key->as.text.at : "...", why);
    }
    return rc;
}

/* Name the entries of empty groups in a list of the schedule that are no numbers and not usual. */
static int emp_name_list(ckpt_map *map, const ckpt_state *s, const ckpt_pair *list, ckpt_err *err)
{
    ckpt_seq all = ckpt_value_seq(list->value);
    int rc = CKPT_OK;

    for (uint64_t i = 0; rc == CKPT_OK && i < all.n; i++) {
        const ckpt_value *v = all.at[i];
        bool usual = s->group.at[i].n > 0 || v->kind == CKPT_V_NONE || v->kind == CKPT_V_INT ||
                     v->kind == CKPT_V_FLOAT;
        for (uint64_t k = 0; k < all.n && !usual; k++)
            usual = s->group.at[k].n > 0 && ckpt_value_equal(v, all.at[k], EMP_NODES);
        if (!usual)
            rc = emp_name_entry(map, list, i, err);
    }
    return rc;
}

static int emp_name_schedule(ckpt_map *map, const ckpt_state *s, const ckpt_value *schedule,
                             unsigned depth, ckpt_err *err)
{
    ckpt_dict all = ckpt_value_map(schedule);
    int rc = CKPT_OK;

    for (uint64_t i = 0; rc == CKPT_OK && i < all.n; i++) {
        ckpt_seq inner = ckpt_value_seq(all.at[i].value);
        if (emp_is_by_group(all.at[i].key) && inner.n == s->group.n)
            rc = emp_name_list(map, s, &all.at[i], err);
        for (uint64_t k = 0; rc == CKPT_OK && depth > 0 &&
                             ckpt_value_is(all.at[i].key, "_schedulers") && k < inner.n;
             k++)
            rc = emp_name_schedule(map, s, inner.at[k], depth - 1, err);
    }
    return rc;
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
    if (rc == CKPT_OK)
        rc = emp_name_settings(map, s, err);
    if (rc == CKPT_OK)
        rc = emp_name_schedule(map, s, ckpt_value_get(s->model, "lr_scheduler"), EMP_DEPTH, err);
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
