/* SPDX-License-Identifier: Apache-2.0 */
/*
 * groups.c: drops parameter groups without parameters from a run of another framework, because
 * DeepSpeed does not keep them.  The Trainer makes one with FSDP1 and use_orig_params=False.
 */
#include "libckpt/init_state/groups.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "libckpt/base/index.h"
#include "libckpt/base/mem.h"

/* EMP_DEPTH: schedulers inside of SequentialLR and ChainedScheduler.  EMP_NODES: values that are
 * compared.  EMP_ALIKE: entries with one hash that are compared.  EMP_HASHED: elements of a list
 * that its hash depends on. */
enum { EMP_DEPTH = 4, EMP_NODES = 1 << 12, EMP_ALIKE = 32, EMP_HASHED = 512 };

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

/* For qsort and bsearch. */
static int emp_by_text(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* List the settings of groups with parameters, sorted; the caller frees the list. */
static const char **emp_settings(const ckpt_state *s, size_t *n)
{
    const char **key;
    uint64_t most = 1;

    *n = 0;
    for (size_t g = 0; g < s->group.n; g++)
        most += ckpt_value_map(s->group.at[g].fields).n;
    key = ckpt_alloc((size_t)most * sizeof *key);
    for (size_t g = 0; key && g < s->group.n; g++) {
        ckpt_dict all = ckpt_value_map(s->group.at[g].n > 0 ? s->group.at[g].fields : NULL);
        for (uint64_t i = 0; i < all.n; i++) {
            if (all.at[i].key->kind == CKPT_V_STR)
                key[(*n)++] = all.at[i].key->as.text.at;
        }
    }
    if (*n > 1)
        qsort(key, *n, sizeof *key, emp_by_text);
    return key;
}

/* Name the settings of empty groups that no other group has. */
static int emp_name_settings(ckpt_map *map, const ckpt_state *s, ckpt_err *err)
{
    size_t n;
    const char **usual = emp_settings(s, &n);
    int rc = usual ? CKPT_OK : ckpt_fail_memory(err);

    for (size_t g = 0; g < s->group.n; g++) {
        ckpt_dict all = ckpt_value_map(s->group.at[g].n == 0 ? s->group.at[g].fields : NULL);
        for (uint64_t i = 0; rc == CKPT_OK && i < all.n; i++) {
            const ckpt_value *key = all.at[i].key;
            bool text = key->kind == CKPT_V_STR;
            if (!text || !bsearch(&key->as.text.at, usual, n, sizeof *usual, emp_by_text))
                rc = ckpt_map_note(map, CKPT_WARNING, err,
                                   "%s: param_groups/%zu/%.200s is left out with its group, which "
                                   "has no parameters",
                                   map->path, g, text ? key->as.text.at : "...");
        }
    }
    ckpt_free((void *)usual);
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

/* An entry of a list of the schedule, and a hash that equal entries share. */
typedef struct emp_entry {
    uint32_t hash;
    const ckpt_value *value;
} emp_entry;

/* Hash a value; only numbers, texts and lists of them contribute more than their kind. */
static uint32_t emp_hash(const ckpt_value *v, unsigned depth)
{
    const ckpt_seq seq = ckpt_value_seq(v);
    uint32_t hash = ckpt_hash_u64(v->kind);
    int64_t number;

    if (v->kind == CKPT_V_STR)
        return ckpt_hash_bytes(v->as.text.at, v->as.text.n, hash);
    if (v->kind == CKPT_V_INT && ckpt_value_as_int(v, &number))
        return hash ^ ckpt_hash_u64((uint64_t)number);
    if (v->kind != CKPT_V_LIST && v->kind != CKPT_V_TUPLE)
        return hash;
    for (uint64_t i = 0; depth > 0 && i < seq.n && i < EMP_HASHED; i++)
        hash = hash * 31 + emp_hash(seq.at[i], depth - 1);
    return hash;
}

/* For qsort and bsearch. */
static int emp_by_hash(const void *pa, const void *pb)
{
    const emp_entry *a = pa, *b = pb;

    return (a->hash > b->hash) - (a->hash < b->hash);
}

/* True if a value is a number, or equals one of the n sorted entries. */
static bool emp_is_usual(const emp_entry *usual, size_t n, const ckpt_value *v)
{
    const emp_entry key = {.hash = emp_hash(v, 1)};
    const emp_entry *at = n > 0 ? bsearch(&key, usual, n, sizeof *usual, emp_by_hash) : NULL;

    while (at && at > usual && at[-1].hash == key.hash)
        at--;
    for (unsigned tried = 0; at && at < usual + n && at->hash == key.hash && tried < EMP_ALIKE;
         at++, tried++) {
        if (ckpt_value_equal(v, at->value, EMP_NODES))
            return true;
    }
    return v->kind == CKPT_V_NONE || v->kind == CKPT_V_INT || v->kind == CKPT_V_FLOAT;
}

/* Name the entries of empty groups in a list of the schedule that are no numbers and not usual. */
static int emp_name_list(ckpt_map *map, const ckpt_state *s, const ckpt_pair *list, ckpt_err *err)
{
    const ckpt_seq all = ckpt_value_seq(list->value);
    emp_entry *usual = ckpt_alloc((size_t)(all.n + 1) * sizeof *usual);
    size_t n = 0;
    int rc = usual ? CKPT_OK : ckpt_fail_memory(err);

    for (uint64_t i = 0; usual && i < all.n; i++) {
        if (s->group.at[i].n > 0)
            usual[n++] = (emp_entry){.hash = emp_hash(all.at[i], 1), .value = all.at[i]};
    }
    if (n > 1)
        qsort(usual, n, sizeof *usual, emp_by_hash);
    for (uint64_t i = 0; rc == CKPT_OK && i < all.n; i++) {
        if (s->group.at[i].n == 0 && !emp_is_usual(usual, n, all.at[i]))
            rc = emp_name_entry(map, list, i, err);
    }
    ckpt_free(usual);
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
