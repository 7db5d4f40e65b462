/* SPDX-License-Identifier: Apache-2.0 */
/*
 * block_cache.h: caches the results of jobs while they are in use, and after that as long as the
 * memory limit allows.
 *
 * It does not lock, because the view does. Every call takes constant time.
 */
#ifndef CKPT_IO_BLOCK_CACHE_H
#define CKPT_IO_BLOCK_CACHE_H

#include "libckpt/base/err.h"

#define CKPT_BLOCK_FREE UINT64_MAX

typedef struct ckpt_block {
    uint64_t job;   /* CKPT_BLOCK_FREE: the block is empty */
    uint8_t *bytes; /* n bytes; NULL: not allocated yet */
    uint64_t n;
    unsigned n_users;
    bool making;           /* its bytes are under construction */
    bool stale;            /* forgotten while in use: find does not return it any more */
    uint32_t older, newer; /* list of filled blocks without users; of free ones: the next */
} ckpt_block;

typedef struct ckpt_blocks {
    ckpt_block *at;
    uint32_t n;
    uint32_t *of_job; /* per job: 1 + the index of its block, or 0 */
    uint64_t n_kept;  /* bytes of all blocks */
    uint64_t room;    /* limit of n_kept, unless all blocks are in use */
    uint32_t free, oldest, newest;
} ckpt_blocks;

/*
 * For n_jobs jobs and at most n blocks. The caller zeroes b before, and frees it even if this
 * fails.
 *
 * Errors  CKPT_ELIMIT
 */
int ckpt_blocks_init(ckpt_blocks *b, uint32_t n, size_t n_jobs, uint64_t room, ckpt_err *err);
void ckpt_blocks_free(ckpt_blocks *b);

/* The block of a job, filled or under construction; or NULL. */
ckpt_block *ckpt_blocks_find(const ckpt_blocks *b, uint64_t job);

/*
 * Take a block for n bytes of a job that has none, with one user and making set; the least recently
 * used blocks are evicted for it. NULL: all are in use; try again after one is given back.
 *
 * bytes may be those of an evicted job of the same size, or NULL: the caller allocates them.
 */
ckpt_block *ckpt_blocks_take(ckpt_blocks *b, uint64_t job, uint64_t n);

/* Add and remove a user; a block without users stays until its memory is needed. */
void ckpt_blocks_use(ckpt_blocks *b, ckpt_block *one);
void ckpt_blocks_give_back(ckpt_blocks *b, ckpt_block *one);

/* Free a block after a failure to make its bytes; the caller must be its only user. */
void ckpt_blocks_drop(ckpt_blocks *b, ckpt_block *one);

/* Forget all blocks: find returns none of them, and those in use are freed when given back. */
void ckpt_blocks_forget(ckpt_blocks *b);

#endif
