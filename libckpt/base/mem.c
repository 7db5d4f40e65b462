/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mem.c: wraps the heap (with the failure switch for tests) and implements the arena.
 */
#include <assert.h>

#include "libckpt/base/mem.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Allocations that may still succeed; MA_FOREVER: no failure is planned. */
#define MA_FOREVER UINT64_MAX
static _Atomic uint64_t ma_left = MA_FOREVER;

#define ARENA_ALIGN         16u
#define ARENA_ALIGN_LEAST   8u    /* for other sizes: a type of alignment 16 has a multiple of 16 */
#define ARENA_BLOCK_MIN     4096u /* bytes: enough for most files of a 1024-rank checkpoint */
#define ARENA_BLOCK_MAX     (1024u * 1024u) /* bytes */
#define ARENA_LIMIT_DEFAULT (1024ull * 1024u * 1024u)

/* A block: this header, then room bytes for the user.  The newest block is first in the list. */
typedef struct arena_block {
    _Alignas(ARENA_ALIGN) struct arena_block *next;
    uint64_t size; /* bytes, header included */
    uint64_t used; /* bytes, header included */
} arena_block;

/* The arena is at the start of its own first block, so that a small arena is one allocation. */
struct ckpt_arena {
    _Alignas(ARENA_ALIGN) arena_block *now; /* the block for small allocations */
    uint64_t next_size;                     /* bytes of the next ordinary block */
    uint64_t reserved;                      /* sum of the blocks */
    uint64_t handed;                        /* sum of the requested sizes */
    uint64_t limit;
};

/*
 * True unless the test's countdown has ended. It refuses impossible sizes, because checking
 * allocators would report them as errors of the program.
 */
static bool ma_allowed(size_t n)
{
    uint64_t left = atomic_load_explicit(&ma_left, memory_order_relaxed);

    if (n > PTRDIFF_MAX)
        return false;
    do {
        if (left == MA_FOREVER)
            return true;
        if (left == 0)
            return false;
    } while (!atomic_compare_exchange_weak_explicit(&ma_left, &left, left - 1, memory_order_relaxed,
                                                    memory_order_relaxed));
    return true;
}

void *ckpt_alloc(size_t n)
{
    if (!ma_allowed(n))
        return NULL;
    return calloc(1, n == 0 ? 1 : n);
}

void *ckpt_resize(void *p, size_t n)
{
    if (!ma_allowed(n))
        return NULL;
    return realloc(p, n == 0 ? 1 : n); // never call realloc(p, 0), because it may free p
}

void ckpt_free(void *p)
{
    free(p);
}

void ckpt_alloc_fail_at(uint64_t n)
{
    atomic_store_explicit(&ma_left, n, memory_order_relaxed);
}

/* A zeroed block of size bytes, or NULL. */
static arena_block *arena_block_new(uint64_t size)
{
    arena_block *b = size > SIZE_MAX ? NULL : ckpt_alloc((size_t)size);

    _Static_assert(sizeof(arena_block) % ARENA_ALIGN == 0, "what follows the header is aligned");
    _Static_assert(_Alignof(max_align_t) >= ARENA_ALIGN, "the heap aligns enough");
    if (b) {
        b->size = size;
        b->used = sizeof *b;
    }
    return b;
}

ckpt_arena *ckpt_arena_new(uint64_t limit)
{
    arena_block *b = arena_block_new(ARENA_BLOCK_MIN);
    ckpt_arena *a;

    if (!b)
        return NULL;
    a = (ckpt_arena *)(void *)((char *)b + b->used);
    b->used += sizeof *a;
    a->now = b;
    a->next_size = 2 * ARENA_BLOCK_MIN;
    a->reserved = b->size;
    a->limit = limit == 0 ? ARENA_LIMIT_DEFAULT : limit;
    return a;
}

void ckpt_arena_free(ckpt_arena *a)
{
    arena_block *b = !a ? NULL : a->now;

    while (b) {
        arena_block *next =
            // one of the blocks contains the arena itself, so a is invalid from here on
            b->next;

        ckpt_free(b);
        b = next;
    }
}

/*
 * Make a block with room for n bytes (already rounded up), within the limit.
 *
 * A large allocation gets its own block behind the current one, which stays in use. For a small one
 * a new ordinary block, twice the last one's size, becomes the current one.
 */
static arena_block *arena_grow(ckpt_arena *a, uint64_t n)
{
    uint64_t left = a->reserved < a->limit ? a->limit - a->reserved : 0;
    // no overflow: the caller checked that n <= limit and rounded it
    uint64_t need = n + sizeof(arena_block);
    bool alone = need > a->next_size / 4;
    uint64_t size = alone ? need : a->next_size;
    arena_block *b;

    if (need > left)
        return NULL;
    size = size > left ? left : size;
    b = arena_block_new(size);
    if (!b)
        return NULL;
    a->reserved += size;
    if (alone) {
        b->next = a->now->next;
        a->now->next = b;
        return b;
    }
    b->next = a->now;
    a->now = b;
    a->next_size = a->next_size < ARENA_BLOCK_MAX ? 2 * a->next_size : ARENA_BLOCK_MAX;
    return b;
}

void *ckpt_arena_alloc(ckpt_arena *a, uint64_t n)
{
    assert(a);
    arena_block *b = a->now;
    uint64_t align = n % ARENA_ALIGN == 0 ? ARENA_ALIGN : ARENA_ALIGN_LEAST;
    uint64_t step = n == 0 ? 1 : n, gap;
    void *p;

    // handed <= limit always holds, so this also bounds the rounding below
    if (n > a->limit - a->handed || !ckpt_add(step, ARENA_ALIGN_LEAST - 1, &step) ||
        step > UINT64_MAX / 2)
        return NULL;
    step -= step % ARENA_ALIGN_LEAST;
    gap = (0 - b->used) & (align - 1);
    if (b->size - b->used < gap || b->size - b->used - gap < step) {
        b = arena_grow(a, step);
        if (!b)
            return NULL;
        gap = (0 - b->used) & (align - 1);
    }
    p = (char *)b + b->used + gap;
    b->used += gap + step;
    a->handed += n;
    return p;
}

void *ckpt_arena_array(ckpt_arena *a, uint64_t count, uint64_t size)
{
    uint64_t n;

    return ckpt_mul(count, size, &n) ? ckpt_arena_alloc(a, n) : NULL;
}

void *ckpt_arena_copy(ckpt_arena *a, const void *p, uint64_t n)
{
    assert(a && (p || n == 0));
    void *out = ckpt_arena_alloc(a, n);

    if (out && n > 0)
        memcpy(out, p, (size_t)n);
    return out;
}

char *ckpt_arena_string(ckpt_arena *a, const char *s, uint64_t n)
{
    assert(a && (s || n == 0));
    uint64_t room;
    char *out = ckpt_add(n, 1, &room) ? ckpt_arena_alloc(a, room) : NULL;

    if (out && n > 0) {
        memcpy(out, s, (size_t)n); // the terminator is there, because arena memory is zeroed
    }
    return out;
}

char *ckpt_arena_printf(ckpt_arena *a, const char *fmt, ...)
{
    assert(a && fmt);
    va_list args, again;
    char *out = NULL;
    int n;

    va_start(args, fmt);
    va_copy(again, args);
    n = vsnprintf(NULL, 0, fmt, args);
    if (n >= 0)
        out = ckpt_arena_alloc(a, (uint64_t)n + 1);
    if (out)
        vsnprintf(out, (size_t)n + 1, fmt, again);
    va_end(again);
    va_end(args);
    return out;
}

const void *ckpt_arena_top(const ckpt_arena *a)
{
    assert(a);
    return (const char *)a->now + a->now->used;
}

/*
 * Offset of an address in a block, or UINT64_MAX, because pointers into different blocks do not
 * compare.
 */
static uint64_t arena_offset(const arena_block *b, const void *p)
{
    uintptr_t at = (uintptr_t)p, from = (uintptr_t)b;

    return at >= from + sizeof *b && at <= from + b->used ? at - from : UINT64_MAX;
}

bool ckpt_arena_rewind(ckpt_arena *a, void *p, const void *floor)
{
    assert(a && p);
    arena_block *b = a->now;
    uint64_t at = arena_offset(b, p), least = arena_offset(b, floor);

    // the first block contains the arena itself, before all allocations
    if (at == UINT64_MAX || (least != UINT64_MAX && least > at))
        return false;
    memset(p, 0, (size_t)(b->used - at));
    // `handed` does not count padding, so this subtracts a little too much
    a->handed -= b->used - at < a->handed ? b->used - at : a->handed;
    b->used = at;
    return true;
}

uint64_t ckpt_arena_used(const ckpt_arena *a)
{
    assert(a);
    return a->handed;
}
