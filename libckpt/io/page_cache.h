/* SPDX-License-Identifier: Apache-2.0 */
/*
 * page_cache.h: drops pages from the page cache during a run that is large compared to the
 * machine's memory.
 *
 * It drops only pages that the run itself has cached, a window of a file at a time; pages cached
 * before stay. A small run keeps all pages, because its output is often read next.
 */
#ifndef CKPT_IO_PAGE_CACHE_H
#define CKPT_IO_PAGE_CACHE_H

#include "libckpt/base/err.h"

#define CKPT_BEHIND_BITS   23 /* a window: 8 MiB */
#define CKPT_BEHIND_WINDOW (UINT64_C(1) << CKPT_BEHIND_BITS)

/* True if a run that reads and writes n_bytes should drop pages: more than half of the memory. */
bool ckpt_behind_due(ckpt_cache how, uint64_t n_bytes);

/* The state of one input file. */
typedef struct ckpt_behind ckpt_behind;

/*
 * Record which of its pages are cached now. NULL: out of memory; then nothing is dropped, which is
 * not a failure.
 */
ckpt_behind *ckpt_behind_new(int fd, uint64_t size);

/* Call after a read of n bytes from offset at, inside the file. Thread safe. */
void ckpt_behind_after(ckpt_behind *b, uint64_t n, uint64_t at);

/* Drop the rest, and free; fd must still be open. NULL is fine. */
void ckpt_behind_free(ckpt_behind *b);

#endif
