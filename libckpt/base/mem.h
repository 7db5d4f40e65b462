/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mem.h: wraps the heap, and provides the arena.
 *
 * Every allocation of the library goes through ckpt_alloc, so that a test can fail the n-th call
 * and a tool can limit the total. Small allocations with the same lifetime go into an arena.
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
 * An arena: its allocations are freed together. limit bounds the sum of its blocks in bytes, so
 * that a hostile file cannot reserve all memory; 0 means 1 GiB.
 */
ckpt_arena *ckpt_arena_new(uint64_t limit);
void ckpt_arena_free(ckpt_arena *a);

/*
 * Allocate zeroed memory, aligned to 16 (to 8 if n is not a multiple of 16); NULL when memory or
 * the limit is exhausted. n == 0 gives a valid pointer.
 */
void *ckpt_arena_alloc(ckpt_arena *a, uint64_t n);

/* Allocate count * size bytes, after a check for overflow. */
void *ckpt_arena_array(ckpt_arena *a, uint64_t count, uint64_t size);

/* Copies of n bytes; the string one is terminated. */
void *ckpt_arena_copy(ckpt_arena *a, const void *p, uint64_t n);
char *ckpt_arena_string(ckpt_arena *a, const char *s, uint64_t n);
char *ckpt_arena_printf(ckpt_arena *a, const char *fmt, ...) CKPT_PRINTF(2, 3);

/* The address of the next small allocation: the end of all earlier ones. */
const void *ckpt_arena_top(const ckpt_arena *a);

/*
 * Free p and all small allocations after it; true if that was done. It is not done if p is not in
 * the newest block, or is before `floor`, a result of ckpt_arena_top.
 */
bool ckpt_arena_rewind(ckpt_arena *a, void *p, const void *floor);

/* Bytes allocated so far; slightly fewer after a rewind. */
uint64_t ckpt_arena_used(const ckpt_arena *a);

#endif
