/* SPDX-License-Identifier: Apache-2.0 */
/*
 * page_cache.c: records which windows of a file were in the page cache, and drops the others after
 * use.
 */
#define _GNU_SOURCE // mincore
#include "libckpt/io/page_cache.h"

#include <assert.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <unistd.h>

#include "libckpt/base/mem.h"

typedef struct bh_window {
    _Atomic uint64_t n; /* bytes read so far */
    bool warm;          /* most of it was cached before */
} bh_window;

struct ckpt_behind {
    int fd;
    uint64_t size;
    long page;
    bh_window window[];
};

bool ckpt_behind_due(ckpt_cache how, uint64_t n_bytes)
{
    long pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);

    if (how != CKPT_CACHE_AUTO)
        return how == CKPT_CACHE_DROP;
    return pages > 0 && page > 0 && n_bytes / 2 > (uint64_t)pages / 4 * (uint64_t)page;
}

/* Bytes of window w. */
static uint64_t bh_size(const ckpt_behind *b, uint64_t w)
{
    uint64_t left = b->size - (w << CKPT_BEHIND_BITS);

    return left < CKPT_BEHIND_WINDOW ? left : CKPT_BEHIND_WINDOW;
}

/*
 * True if most of a window is in the page cache. Less than half may come from reading headers. If
 * the kernel does not report it, the window counts as cached, so it stays.
 */
static bool bh_is_warm(const ckpt_behind *b, uint64_t w)
{
    unsigned char seen[CKPT_BEHIND_WINDOW / 4096];
    uint64_t n = bh_size(b, w), pages, there = 0;
    void *at;
    bool known;

    if (b->page < 4096)
        return true;
    at = mmap(NULL, (size_t)n, PROT_READ, MAP_SHARED, b->fd, (off_t)(w << CKPT_BEHIND_BITS));
    if (at == MAP_FAILED)
        return true;
    pages = (n + (uint64_t)b->page - 1) / (uint64_t)b->page;
    known = mincore(at, (size_t)n, seen) == 0;
    (void)munmap(at, (size_t)n);
    for (uint64_t i = 0; known && i < pages; i++)
        there += seen[i] & 1;
    return !known || there * 2 >= pages;
}

/* Drop the pages of a window. It is only a hint: a page that stays does no harm. */
static void bh_let_go(const ckpt_behind *b, uint64_t w)
{
    (void)posix_fadvise(b->fd, (off_t)(w << CKPT_BEHIND_BITS), (off_t)bh_size(b, w),
                        POSIX_FADV_DONTNEED);
}

ckpt_behind *ckpt_behind_new(int fd, uint64_t size)
{
    uint64_t n = (size >> CKPT_BEHIND_BITS) + 1;
    ckpt_behind *b =
        n < SIZE_MAX / sizeof *b->window / 2 ? ckpt_alloc(sizeof *b + n * sizeof *b->window) : NULL;

    if (!b)
        return NULL;
    b->fd = fd;
    b->size = size;
    b->page = sysconf(_SC_PAGESIZE);
    for (uint64_t w = 0; w < n && bh_size(b, w) > 0; w++)
        b->window[w].warm = bh_is_warm(b, w);
    return b;
}

void ckpt_behind_after(ckpt_behind *b, uint64_t n, uint64_t at)
{
    assert(b && ckpt_within(at, n, b->size));
    while (n > 0) {
        uint64_t w = at >> CKPT_BEHIND_BITS, end = (w + 1) << CKPT_BEHIND_BITS;
        uint64_t some = end - at < n ? end - at : n, size = bh_size(b, w);
        uint64_t done = atomic_fetch_add(&b->window[w].n, some) + some;

        // Not all bytes are needed, because headers between records are not read again.
        if (done >= size - size / 8 && !b->window[w].warm)
            bh_let_go(b, w);
        at += some;
        n -= some;
    }
}

void ckpt_behind_free(ckpt_behind *b)
{
    // drop pages that read-ahead has cached, too
    for (uint64_t w = 0; b && w <= b->size >> CKPT_BEHIND_BITS; w++) {
        if (!b->window[w].warm && bh_size(b, w) > 0)
            bh_let_go(b, w);
    }
    ckpt_free(b);
}
