/* SPDX-License-Identifier: Apache-2.0 */
/*
 * blocks.h: the results of jobs, kept while somebody uses them and for as long as there is room.
 *
 * Nothing here locks: a view does.  Every call takes a time that does not depend on how many there
 * are.
 */
#ifndef CKPT_COPY_BLOCKS_H
#define CKPT_COPY_BLOCKS_H

#include "libckpt/base/err.h"

#define CKPT_BLOCK_FREE UINT64_MAX

typedef struct ckpt_block {
    uint64_t job;   /* CKPT_BLOCK_FREE: it holds nothing */
    uint8_t *bytes; /* n; NULL: nobody has made room yet */
    uint64_t n;
    unsigned n_users;
    bool making;           /* its bytes are not there yet */
    bool stale;            /* forgotten while in use: nobody finds it any more */
    uint32_t older, newer; /* of those that hold something and have no user; free ones: the next */
} ckpt_block;

typedef struct ckpt_blocks {
    ckpt_block *at;
    uint32_t n;
    uint32_t *of_job; /* per job: 1 + the number of its block, or 0 */
    uint64_t n_kept;  /* bytes of all blocks */
    uint64_t room;    /* how many they may be, unless all are in use */
    uint32_t free, oldest, newest;
} ckpt_blocks;

/*
 * For n_jobs jobs, at most n blocks at a time; zeroed before, and freed also when this fails.
 *
 * Errors  CKPT_ELIMIT
 */
int ckpt_blocks_init(ckpt_blocks *b, uint32_t n, size_t n_jobs, uint64_t room, ckpt_err *err);
void ckpt_blocks_free(ckpt_blocks *b);

/* The block of a job that is there or being made; or NULL. */
ckpt_block *ckpt_blocks_find(const ckpt_blocks *b, uint64_t job);

/*
 * A block for n bytes of a job that has none, with one user and making; the ones that were used
 * longest ago go for it.  NULL: all are in use; one given back makes another try worth while.
 *
 * bytes may be those of another job that had as many, or NULL: the caller's to make.
 */
ckpt_block *ckpt_blocks_take(ckpt_blocks *b, uint64_t job, uint64_t n);

/* One more user, and one less; a block without users stays until its room is needed. */
void ckpt_blocks_use(ckpt_blocks *b, ckpt_block *one);
void ckpt_blocks_give_back(ckpt_blocks *b, ckpt_block *one);

/* A block, nobody but the caller its user, whose bytes could not be made: it is free then. */
void ckpt_blocks_drop(ckpt_blocks *b, ckpt_block *one);

/* None of those there are is found again; those in use go when they are given back. */
void ckpt_blocks_forget(ckpt_blocks *b);

#endif
