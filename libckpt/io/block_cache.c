/* SPDX-License-Identifier: Apache-2.0 */
/*
 * block_cache.c: keeps an index by job, a list of blocks without users in the order of their last
 * use, and a list of free ones.
 */
#include <assert.h>

#include "libckpt/base/mem.h"
#include "libckpt/io/block_cache.h"

#define BK_NONE UINT32_MAX

int ckpt_blocks_init(ckpt_blocks *b, uint32_t n, size_t n_jobs, uint64_t room, ckpt_err *err)
{
    assert(b && n > 0 && n < BK_NONE);
    b->at = ckpt_alloc(n * sizeof *b->at);
    b->of_job = ckpt_alloc((n_jobs + 1) * sizeof *b->of_job);
    if (!b->at || !b->of_job)
        return ckpt_fail_memory(err);
    b->n = n;
    b->room = room;
    b->oldest = b->newest = BK_NONE;
    b->free = 0;
    for (uint32_t i = 0; i < n; i++)
        b->at[i] = (ckpt_block){.job = CKPT_BLOCK_FREE, .newer = i + 1 < n ? i + 1 : BK_NONE};
    return CKPT_OK;
}

void ckpt_blocks_free(ckpt_blocks *b)
{
    for (uint32_t i = 0; i < b->n; i++)
        ckpt_free(b->at[i].bytes);
    ckpt_free(b->at);
    ckpt_free(b->of_job);
    *b = (ckpt_blocks){0};
}

ckpt_block *ckpt_blocks_find(const ckpt_blocks *b, uint64_t job)
{
    uint32_t i = b->of_job[job];

    return i > 0 ? &b->at[i - 1] : NULL;
}

/* Remove a block from the list of those without users. */
static void bk_unlink(ckpt_blocks *b, const ckpt_block *one)
{
    if (one->older != BK_NONE)
        b->at[one->older].newer = one->newer;
    else
        b->oldest = one->newer;
    if (one->newer != BK_NONE)
        b->at[one->newer].older = one->older;
    else
        b->newest = one->older;
}

/* Free a block that is in no list. */
static void bk_release(ckpt_blocks *b, ckpt_block *one)
{
    if (!one->stale)
        b->of_job[one->job] = 0;
    b->n_kept -= one->n;
    ckpt_free(one->bytes);
    *one = (ckpt_block){.job = CKPT_BLOCK_FREE, .newer = b->free};
    b->free = (uint32_t)(one - b->at);
}

/* Find a block that is in no list; it may have n bytes already. NULL: all are in use. */
static ckpt_block *bk_room(ckpt_blocks *b, uint64_t n)
{
    for (;;) {
        ckpt_block *old = b->oldest != BK_NONE ? &b->at[b->oldest] : NULL;
        ckpt_block *free = b->free != BK_NONE ? &b->at[b->free] : NULL;

        // if all others are in use, exceed the limit by one block, because each user needs one
        if (free && (!old || (n <= b->room && b->n_kept <= b->room - n))) {
            b->free = free->newer;
            return free;
        }
        if (!old)
            return NULL;
        bk_unlink(b, old);
        if (old->n == n) {
            // reuse the memory if the size is the same: fresh memory would cost page faults
            b->of_job[old->job] = 0;
            b->n_kept -= n;
            return old;
        }
        bk_release(b, old);
    }
}

ckpt_block *ckpt_blocks_take(ckpt_blocks *b, uint64_t job, uint64_t n)
{
    assert(b->of_job[job] == 0);
    ckpt_block *one = bk_room(b, n);

    if (!one)
        return NULL;
    *one = (ckpt_block){.job = job, .bytes = one->bytes, .n = n, .n_users = 1, .making = true};
    b->of_job[job] = (uint32_t)(one - b->at) + 1;
    b->n_kept += n;
    return one;
}

void ckpt_blocks_use(ckpt_blocks *b, ckpt_block *one)
{
    if (one->n_users++ == 0)
        bk_unlink(b, one);
}

void ckpt_blocks_give_back(ckpt_blocks *b, ckpt_block *one)
{
    assert(one->n_users > 0 && !one->making);
    uint32_t i = (uint32_t)(one - b->at);

    if (--one->n_users > 0)
        return;
    if (one->stale) {
        bk_release(b, one);
        return;
    }
    one->older = b->newest;
    one->newer = BK_NONE;
    if (b->newest != BK_NONE)
        b->at[b->newest].newer = i;
    else
        b->oldest = i;
    b->newest = i;
}

void ckpt_blocks_drop(ckpt_blocks *b, ckpt_block *one)
{
    assert(one->n_users == 1);
    bk_release(b, one);
}

void ckpt_blocks_forget(ckpt_blocks *b)
{
    while (b->oldest != BK_NONE) {
        ckpt_block *old = &b->at[b->oldest];

        bk_unlink(b, old);
        bk_release(b, old);
    }
    for (uint32_t i = 0; i < b->n; i++) {
        ckpt_block *one = &b->at[i];

        if (one->job == CKPT_BLOCK_FREE || one->stale)
            continue;
        one->stale = true;
        b->of_job[one->job] = 0;
    }
}
