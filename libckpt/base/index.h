/* SPDX-License-Identifier: Apache-2.0 */
/*
 * index.h: indexes by hash the items of an array that the caller keeps.
 *
 *     uint32_t at = ckpt_index_find(&ix, hash, same, ctx, key);     index of the equal item
 *     if (at == CKPT_INDEX_NONE && !ckpt_index_add(&ix, hash, n))   add item number n
 *         ... out of memory, or too many items collide
 *     ckpt_index_free(&ix);
 *
 * A zeroed struct is an empty index. A look-up is bounded: adding fails if it would pass more than
 * 1024 neighbours, so that colliding keys of a hostile file cannot cost quadratic time.
 */
#ifndef CKPT_BASE_INDEX_H
#define CKPT_BASE_INDEX_H

#include "libckpt/base/mem.h"

#define CKPT_INDEX_NONE UINT32_MAX

typedef struct ckpt_index_slot {
    uint32_t hash;
    uint32_t number; /* 1 + the item's number; 0 = free */
} ckpt_index_slot;

typedef struct ckpt_index {
    ckpt_index_slot *at;
    size_t n, room; /* room is a power of two, or 0 */
} ckpt_index;

/* True if item `number` of the array in ctx equals key. */
typedef bool (*ckpt_same_fn)(const void *ctx, uint32_t number, const void *key);

/* Number of the item equal to key, or CKPT_INDEX_NONE. */
uint32_t ckpt_index_find(const ckpt_index *ix, uint32_t hash, ckpt_same_fn same, const void *ctx,
                         const void *key);

/* Add item `number` (below 2^31); false: memory is exhausted, or too many hashes collide. */
bool ckpt_index_add(ckpt_index *ix, uint32_t hash, uint32_t number);

/* Release the table (not the items); the empty index can be used again. */
void ckpt_index_free(ckpt_index *ix);

/* Hashes: of n bytes continuing from seed, and of a number (or a pointer cast to one). */
uint32_t ckpt_hash_bytes(const void *p, size_t n, uint32_t seed);
uint32_t ckpt_hash_u64(uint64_t x);

#endif
