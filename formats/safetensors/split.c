/* SPDX-License-Identifier: Apache-2.0 */
/*
 * split.c: divides tensors into shards by the rule of huggingface_hub.
 */
#include <assert.h>

#include "formats/safetensors/split.h"

#include "libckpt/base/mem.h"

#define SPLIT_NONE UINT32_MAX

/* The state of the walk: a shard gets an id when it is opened, and its number when it is closed. */
typedef struct split_walk {
    uint64_t limit;
    uint64_t open_bytes;
    uint32_t open;     /* id of the open shard, or SPLIT_NONE */
    uint32_t n_ids;    /* shards opened */
    uint32_t n_closed; /* shards closed */
    uint32_t *number;  /* by id: number of the shard */
} split_walk;

/* Choose the shard for a storage of n bytes; returns its id. */
static uint32_t split_take(split_walk *w, uint64_t n)
{
    uint64_t sum = 0;

    if (n > w->limit) {
        w->number[w->n_ids] = w->n_closed++;
        return w->n_ids++;
    }
    if (!ckpt_add(w->open_bytes, n, &sum) || sum > w->limit) {
        // the open shard is not empty here, because n alone is within the limit
        w->number[w->open] = w->n_closed++;
        w->open = SPLIT_NONE;
        sum = n;
    }
    if (w->open == SPLIT_NONE)
        w->open = w->n_ids++;
    w->open_bytes = sum;
    return w->open;
}

int ckpt_hf_split(const ckpt_hf_item *item, size_t n, uint64_t limit, uint32_t *shard,
                  ckpt_hf_sums *sums, ckpt_err *err)
{
    assert((item || n == 0) && (shard || n == 0) && sums);
    split_walk w = {.limit = limit ? limit : UINT64_MAX, .open = SPLIT_NONE};
    uint32_t *id = ckpt_alloc(n * sizeof *id); // by storage: id of its shard + 1, or 0
    int rc = CKPT_OK;

    *sums = (ckpt_hf_sums){.n_shards = 1};
    w.number = ckpt_alloc(n * sizeof *w.number); // there cannot be more shards than items
    if (!id || !w.number || n >= SPLIT_NONE)
        rc = ckpt_fail_memory(err);
    for (size_t i = 0; rc == CKPT_OK && i < n; i++) {
        size_t s = item[i].storage;
        if (id[s] != 0)
            continue;
        id[s] = split_take(&w, item[i].n_bytes) + 1;
        if (!ckpt_add(sums->total, item[i].n_bytes, &sums->total))
            rc = ckpt_fail(err, CKPT_ELIMIT, "the tensors have more than 2^64 bytes");
    }
    if (rc == CKPT_OK && w.open != SPLIT_NONE)
        w.number[w.open] = w.n_closed++;
    for (size_t i = 0; rc == CKPT_OK && i < n; i++)
        shard[i] = w.number[id[item[i].storage] - 1];
    if (rc == CKPT_OK && w.n_closed > 1)
        sums->n_shards = w.n_closed;
    ckpt_free(id);
    ckpt_free(w.number);
    return rc;
}
