/* SPDX-License-Identifier: Apache-2.0 */
/*
 * index.c: finds entries of a dict by name.
 */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "formats/deepspeed/shard/index.h"

/* Sorts by bytes, a prefix first. strcmp() would stop at NUL, which a name may contain. */
static int dsk_text_compare(const ckpt_text *a, const ckpt_text *b)
{
    uint64_t n = a->n < b->n ? a->n : b->n;
    int order = n ? memcmp(a->at, b->at, n) : 0;

    if (order)
        return order;
    return a->n == b->n ? 0 : a->n < b->n ? -1 : 1;
}

/* Sort order of an index. */
static int dsk_by_key(const void *a, const void *b)
{
    const ckpt_pair *const *x = a, *const *y = b;

    return dsk_text_compare(&(*x)->key->as.text, &(*y)->key->as.text);
}

int ckpt_ds_index_new(ckpt_ds_index *out, ckpt_dict dict, ckpt_err *err)
{
    assert(out);
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
