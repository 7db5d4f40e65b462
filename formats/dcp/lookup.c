/* SPDX-License-Identifier: Apache-2.0 */
/*
 * lookup.c: sorts the entries of storage_data by name, and those of one name by offset if needed.
 */
#include <assert.h>
#include <stdlib.h>

#include "formats/dcp/lookup.h"

#define DLK_SORTED  1u
#define DLK_CHECKED 2u

int ckpt_dcp_lookup_make(ckpt_dcp_lookup *out, const ckpt_dcp_entries *entry, size_t from,
                         size_t n_names, ckpt_err *err)
{
    assert(out && entry && from <= entry->n && entry->n < UINT32_MAX && n_names < UINT32_MAX);
    uint32_t at = 0;

    *out = (ckpt_dcp_lookup){.entry = entry, .n_names = (uint32_t)n_names};
    out->first = ckpt_alloc((n_names + 2) * sizeof *out->first);
    out->by_name = ckpt_alloc((entry->n - from + 1) * sizeof *out->by_name);
    out->state = ckpt_alloc(n_names + 1);
    if (!out->first || !out->by_name || !out->state)
        return ckpt_fail_memory(err);
    // counted one place later, so that placing them below leaves the firsts in their places
    for (size_t i = from; i < entry->n; i++)
        out->first[entry->at[i].listed ? entry->at[i].name + 2 : 0]++;
    out->first[0] = 0;
    for (size_t i = 2; i < n_names + 2; i++) {
        at += out->first[i];
        out->first[i] = at;
    }
    for (size_t i = from; i < entry->n; i++) {
        if (entry->at[i].listed)
            out->by_name[out->first[entry->at[i].name + 1]++] = (uint32_t)i;
    }
    return CKPT_OK;
}

void ckpt_dcp_lookup_free(ckpt_dcp_lookup *l)
{
    ckpt_free(l->first);
    ckpt_free(l->by_name);
    ckpt_free(l->state);
    *l = (ckpt_dcp_lookup){0};
}

/* An entry, with its offset for sorting. */
typedef struct dlk_pair {
    uint32_t offset, entry;
} dlk_pair;

static int dlk_compare(const void *pa, const void *pb)
{
    const dlk_pair *a = pa, *b = pb;

    if (a->offset != b->offset)
        return a->offset < b->offset ? -1 : 1;
    return (a->entry > b->entry) - (a->entry < b->entry);
}

/* Sort the entries of a name by offset. */
static int dlk_sort(ckpt_dcp_lookup *l, uint32_t name, ckpt_err *err)
{
    const uint32_t first = l->first[name], n = l->first[name + 1] - first;
    dlk_pair *pair;

    if (l->state[name] & DLK_SORTED)
        return CKPT_OK;
    pair = ckpt_alloc(((size_t)n + 1) * sizeof *pair);
    if (!pair)
        return ckpt_fail_memory(err);
    for (uint32_t i = 0; i < n; i++)
        pair[i] = (dlk_pair){l->entry->at[l->by_name[first + i]].offset, l->by_name[first + i]};
    qsort(pair, n, sizeof *pair, dlk_compare);
    for (uint32_t i = 0; i < n; i++)
        l->by_name[first + i] = pair[i].entry;
    ckpt_free(pair);
    l->state[name] |= DLK_SORTED;
    return CKPT_OK;
}

/* The position of the first entry of a sorted name that has at least this offset. */
static uint32_t dlk_search(const ckpt_dcp_lookup *l, uint32_t name, uint32_t offset)
{
    uint32_t from = l->first[name], to = l->first[name + 1];

    while (from < to) {
        const uint32_t mid = from + (to - from) / 2;
        if (l->entry->at[l->by_name[mid]].offset < offset)
            from = mid + 1;
        else
            to = mid;
    }
    return from;
}

/* True if the entry at a position of by_name has this name and offset. */
static bool dlk_is(const ckpt_dcp_lookup *l, uint32_t at, uint32_t name, uint32_t offset)
{
    return at >= l->first[name] && at < l->first[name + 1] &&
           l->entry->at[l->by_name[at]].offset == offset;
}

int ckpt_dcp_lookup_find(ckpt_dcp_lookup *l, uint32_t name, uint32_t offset, uint32_t *out,
                         ckpt_err *err)
{
    assert(l && out);
    uint32_t at = l->next;
    int rc;

    *out = CKPT_INDEX_NONE;
    if (name >= l->n_names)
        return CKPT_OK;
    if (!dlk_is(l, at, name, offset))
        at = l->first[name];
    if (!dlk_is(l, at, name, offset)) {
        rc = dlk_sort(l, name, err);
        if (rc != CKPT_OK)
            return rc;
        at = dlk_search(l, name, offset);
    }
    if (!dlk_is(l, at, name, offset))
        return CKPT_OK;
    *out = l->by_name[at];
    l->next = at + 1;
    return CKPT_OK;
}

int ckpt_dcp_lookup_repeats(ckpt_dcp_lookup *l, uint32_t name, bool *out, ckpt_err *err)
{
    assert(l && out && name < l->n_names);
    int rc;

    *out = false;
    if (l->state[name] & DLK_CHECKED)
        return CKPT_OK;
    rc = dlk_sort(l, name, err);
    for (uint32_t i = l->first[name] + 1; rc == CKPT_OK && i < l->first[name + 1]; i++)
        *out = *out || l->entry->at[l->by_name[i]].offset == l->entry->at[l->by_name[i - 1]].offset;
    l->state[name] |= DLK_CHECKED;
    return rc;
}
