/* SPDX-License-Identifier: Apache-2.0 */
/*
 * node.h: memory that the ranks of one node share, and where they meet.
 *
 * Each rank has one segment, an anonymous file (memfd) that the others map at the start: its head,
 * two staging halves, and a pool which is as large as the machine's memory but takes pages only for
 * what was allocated in it.  So allocating involves no other rank, any rank can read what lies in
 * any pool, a limit on /dev/shm does not matter, and nothing stays behind however a rank ends.
 *
 *     segment of rank r:  head (one page) | half 0 | half 1 | ... pool ...
 *
 * Meeting costs about a microsecond when all ranks are there.  Who waits spins for a moment, then
 * yields, then sleeps in the kernel, and looks once a second whether all others still run: a rank
 * that ended, whatever the cause, is named within about a second.  One that does not come though
 * it runs, or is stopped, is named after some seconds (patience.h).
 */
#ifndef ZT_COMM_NODE_H
#define ZT_COMM_NODE_H

#include "engine/comm/link.h"

/* Bytes of a staging half: small enough to stay in a core's cache, large enough to hide meeting. */
#define ZT_NODE_HALF (1u << 20)

typedef struct zt_node zt_node;

/*
 * How ranks learn of each other before they share memory: all [world * n_bytes] gets everybody's
 * mine [n_bytes] (all ranks call it alike).
 */
typedef int (*zt_node_tell)(void *ctx, const void *mine, void *all, uint64_t n_bytes,
                            ckpt_err *err);

/*
 * Every rank says whether it is well: the lowest rank that is not, -1: all are, ZT_NODE_LOST: the
 * ranks cannot be asked. Needs no memory, so that a rank without any can still answer.
 */
typedef int (*zt_node_poll)(void *ctx, bool well);
#define ZT_NODE_LOST (-2)

typedef struct zt_node_opts {
    int rank, world;
    const char *host;
    zt_node_tell tell;
    zt_node_poll poll;
    void *ctx;
} zt_node_opts;

/*
 * Errors  the same on all ranks.  CKPT_EUNSUPPORTED: some rank cannot share memory with all others
 *         (another container, limits); CKPT_EIO: tell or poll failed
 */
int zt_node_new(zt_node **out, const zt_node_opts *opts, ckpt_err *err);
void zt_node_free(zt_node *n); /* NULL is fine */

/* Of zt_node_opts. */
int zt_node_rank(const zt_node *n);
int zt_node_world(const zt_node *n);

/* Pages of the own pool, aligned to 64 and more; NULL when memory is exhausted.  Release: NULL is
 * fine. */
void *zt_node_alloc(zt_node *n, uint64_t n_bytes);
void zt_node_release(zt_node *n, void *p);

/* True if these bytes lie in the own pool. */
bool zt_node_holds(const zt_node *n, const void *p, uint64_t n_bytes);

/*
 * Meet all ranks at the start of an operation, tell them where this rank's bytes can be read
 * (`readable`, n_bytes; NULL: nowhere), and check that all do the same.
 *
 * Errors  CKPT_EIO: the ranks' calls differ; a rank has ended (this and all later meetings fail)
 */
int zt_node_meet(zt_node *n, const zt_call *call, const void *readable, uint64_t n_bytes,
                 ckpt_err *err);

/* Meet in the course of an operation. */
int zt_node_again(zt_node *n, const zt_call *call, ckpt_err *err);

/* What rank told at the latest zt_node_meet, readable here; NULL: its bytes are not in its pool. */
const void *zt_node_source(const zt_node *n, int rank);

/* A rank's staging half (0, 1): its owner writes it, all read it. */
unsigned char *zt_node_half(const zt_node *n, int rank, unsigned half);

/* The half for the next chunk: they alternate over all operations. */
unsigned zt_node_next_half(zt_node *n);

/* Room for one pointer per rank. */
const void **zt_node_pointers(zt_node *n);

/* True for the first rank only that asks, ever: who prints. */
bool zt_node_first(zt_node *n);

/* This rank takes part in nothing any more (an orderly end): who waits for it is told. */
void zt_node_leave(zt_node *n);

/* The operations of link.h on a zt_node (shm.c). */
extern const zt_link_ops zt_shm_ops;

#endif
