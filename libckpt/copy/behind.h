/* SPDX-License-Identifier: Apache-2.0 */
/*
 * behind.h: a run that is large beside the machine's memory leaves the page cache to others.
 *
 * What the run itself has brought in is let go behind it, a window of a file at a time; what was
 * there before it came stays.  A small run keeps all: its output is often read next.
 */
#ifndef CKPT_COPY_BEHIND_H
#define CKPT_COPY_BEHIND_H

#include "libckpt/base/err.h"

#define CKPT_BEHIND_BITS   23 /* a window: 8 MiB */
#define CKPT_BEHIND_WINDOW (UINT64_C(1) << CKPT_BEHIND_BITS)

/* True if a run that reads and writes so many bytes is to let go: more than half of the memory. */
bool ckpt_behind_due(ckpt_cache how, uint64_t n_bytes);

/* What is read of one file. */
typedef struct ckpt_behind ckpt_behind;

/*
 * See what of it is cached now.  NULL: out of memory; nothing is let go then, which is no failure.
 */
ckpt_behind *ckpt_behind_new(int fd, uint64_t size);

/* After a read of n bytes from offset at, inside the file.  Thread safe. */
void ckpt_behind_after(ckpt_behind *b, uint64_t n, uint64_t at);

/* Let go the rest, and free; while fd is open.  NULL is fine. */
void ckpt_behind_free(ckpt_behind *b);

#endif
