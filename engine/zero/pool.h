/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pool.h: declares a first-fit allocator in one block of memory of a fixed size.
 *
 * The order of takes and gives repeats from step to step and is equal on all ranks, so a dry run
 * with an unlimited pool gives the needed size, and later runs get the same offsets.
 */
#ifndef ZT_ZERO_POOL_H
#define ZT_ZERO_POOL_H

#include <stdbool.h>
#include <stdint.h>

#include "libckpt/base/err.h"

typedef struct zr_span {
    uint64_t at, n_bytes;
} zr_span;

typedef struct zr_pool {
    zr_span *span; /* taken spans, ascending */
    uint32_t n, room;
    uint64_t limit, peak; /* bytes; limit is UINT64_MAX in a dry run */
} zr_pool;

/*
 * Create a pool for at most `room` spans at a time, for a dry run; set `limit` to use it with
 * memory.
 */
int zr_pool_new(zr_pool *p, uint32_t room, ckpt_err *err);
void zr_pool_free(zr_pool *p);

/* Take n_bytes (rounded up to 64).  Returns their offset, or UINT64_MAX if the pool is full. */
uint64_t zr_pool_take(zr_pool *p, uint64_t n_bytes);
void zr_pool_give(zr_pool *p, uint64_t at);

#endif
