/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mem.h: the one door to the heap, and the arena.
 *
 * Every allocation of the library goes through ckpt_alloc, so that a test can fail the n-th call
 * and a tool can cap the total.  Small things that die together live in an arena.
 */
#ifndef CKPT_BASE_MEM_H
#define CKPT_BASE_MEM_H

#include "libckpt/base/err.h"

/* malloc/realloc/free semantics; ckpt_alloc zeroes.  NULL when memory, or the cap, is exhausted. */
void *ckpt_alloc(size_t n);
void *ckpt_resize(void *p, size_t n);
void ckpt_free(void *p);

/*
 * For tests: fail the n-th allocation from now (0 = the next one) and every one after it until
 * called again; UINT64_MAX switches this off.  Thread safe.
 */
void ckpt_alloc_fail_at(uint64_t n);

typedef struct ckpt_arena ckpt_arena;

/*
 * An arena: allocations are freed together.  limit caps the sum of its blocks in bytes; 0 stands
 * for the default of 1 GiB (reliability: what a hostile file can make us reserve is bounded).
 */
ckpt_arena *ckpt_arena_new(uint64_t limit);
void ckpt_arena_free(ckpt_arena *a);

/*
 * Zeroed, aligned to 16 (to 8 if n is no multiple of 16); NULL when memory or the limit is
 * exhausted.  n == 0 gives a valid pointer.
 */
void *ckpt_arena_alloc(ckpt_arena *a, uint64_t n);

/* count * size with the overflow check. */
void *ckpt_arena_array(ckpt_arena *a, uint64_t count, uint64_t size);

/* Copies of n bytes; the string one is terminated. */
void *ckpt_arena_copy(ckpt_arena *a, const void *p, uint64_t n);
char *ckpt_arena_string(ckpt_arena *a, const char *s, uint64_t n);
char *ckpt_arena_printf(ckpt_arena *a, const char *fmt, ...) CKPT_PRINTF(2, 3);

/* Where the next small thing goes: the end of all that was handed out before. */
const void *ckpt_arena_top(const ckpt_arena *a);

/*
 * Hand back p and all small things handed out since; true if that was done.  It is not where more
 * than the block in use would be concerned, or the top was `floor` after p was handed out.
 */
bool ckpt_arena_rewind(ckpt_arena *a, void *p, const void *floor);

/* Bytes handed out so far; a few less than that after a rewind. */
uint64_t ckpt_arena_used(const ckpt_arena *a);

#endif
