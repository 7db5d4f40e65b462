/* SPDX-License-Identifier: Apache-2.0 */
/*
 * index.c: entries of a dict by name, and a module put together from several files.
 */
#include <stdlib.h>
#include <string.h>

#include "formats/deepspeed/deepspeed.h"

/* By bytes, shorter first: names may hold anything, NULs too. */
static int dsk_text_compare(const ckpt_text *a, const ckpt_text *b)
{
    uint64_t n = a->n < b->n ? a->n : b->n;
    int order = n ? memcmp(a->at, b->at, n) : 0;

    if (order)
        return order;
    return a->n == b->n ? 0 : a->n < b->n ? -1 : 1;
}

/* Order of an index. */
static int dsk_by_key(const void *a, const void *b)
{
    const ckpt_pair *const *x = a, *const *y = b;

    return dsk_text_compare(&(*x)->key->as.text, &(*y)->key->as.text);
}

int ckpt_ds_index_new(ckpt_ds_index *out, ckpt_dict dict, ckpt_err *err)
{
    out->n = 0;
    out->at = ckpt_alloc((dict.n + 1) * sizeof *out->at);
    if (!out->at)
        return ckpt_fail_memory(err);
    for (uint64_t i = 0; i < dict.n; i++) {
        if (dict.at[i].key->kind == CKPT_V_STR)
            out->at[out->n++] = &dict.at[i];
    }
    qsort(out->at, out->n, sizeof *out->at, dsk_by_key);
    return CKPT_OK;
}

void ckpt_ds_index_free(ckpt_ds_index *ix)
{
    ckpt_free(ix->at);
    ix->at = NULL;
    ix->n = 0;
}

const ckpt_pair *ckpt_ds_index_find(const ckpt_ds_index *ix, const char *name, uint64_t n)
{
    const ckpt_text key = {.at = name, .n = n};
    size_t low = 0, high = ix->n;

    while (low < high) {
        size_t mid = low + (high - low) / 2;
        int order = dsk_text_compare(&ix->at[mid]->key->as.text, &key);
        if (order == 0)
            return ix->at[mid];
        if (order < 0)
            low = mid + 1;
        else
            high = mid;
    }
    return NULL;
}

/* ---- a module of several files ---- */

/* No name may stand in two of the files that make up the module. */
static int dsk_twice(ckpt_ds_job *job, ckpt_dict dict)
{
    ckpt_ds_index names;
    int rc = ckpt_ds_index_new(&names, dict, job->err);

    for (size_t i = 1; rc == CKPT_OK && i < names.n; i++) {
        const ckpt_text *a = &names.at[i - 1]->key->as.text, *b = &names.at[i]->key->as.text;
        if (a->n == b->n && memcmp(a->at, b->at, a->n) == 0)
            rc = ckpt_ds_problem(job, CKPT_EMISMATCH,
                                 "%s: %.200s is in two of the files beside each other: one of them "
                                 "was left behind by another run",
                                 job->map->path, a->at);
    }
    ckpt_ds_index_free(&names);
    return rc;
}

int ckpt_ds_module_set(ckpt_ds_job *job, const ckpt_ds_head *head, const ckpt_ds_pairs *more,
                       bool keep)
{
    ckpt_arena *arena = head->model.map->arena;
    ckpt_dict root = ckpt_value_map(head->model.root);
    ckpt_value *made = ckpt_value_new(arena, CKPT_V_ODICT), *old = NULL;
    bool fits = made != NULL;

    for (uint64_t i = 0; fits && i < root.n; i++) {
        if (!ckpt_value_is(root.at[i].key, "module"))
            continue;
        old = root.at[i].value;
        root.at[i].value = made;
    }
    ckpt_dict before = keep ? ckpt_value_map(old) : (ckpt_dict){0};
    if (fits && keep && old)
        made->state = old->state;
    for (uint64_t i = 0; fits && i < before.n; i++)
        fits = ckpt_dict_add(arena, &made->as.map, before.at[i].key, before.at[i].value);
    for (size_t i = 0; fits && i < more->n; i++)
        fits = ckpt_dict_add(arena, &made->as.map, more->at[i].key, more->at[i].value);
    return fits ? dsk_twice(job, made->as.map) : ckpt_fail_memory(job->err);
}
