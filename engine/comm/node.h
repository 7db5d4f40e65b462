/* SPDX-License-Identifier: Apache-2.0 */
/*
 * node.h: where the ranks of one node meet, and the shared memory through which their bytes pass.
 *
 * The memory is one piece that all ranks have mapped (an MPI shared window, mpi.c): what the
 * meeting needs, then for each rank what it tells the others and two staging halves.
 *
 *     meeting (one page) | rank 0: record (one page) | half 0 | half 1 | rank 1: ...
 *
 * Meeting costs about a microsecond when all ranks are there.  Who waits spins for a moment, then
 * yields, then sleeps in the kernel, and looks once a second whether all others still run: a rank
 * that ended, whatever the cause, is named within about a second.  One that does not come though
 * it runs, or is stopped, is named after some seconds (patience.h).  MPI's own barrier does none of
 * this: it keeps its core busy, and waits for ever for a rank that has ended.
 */
#ifndef ZT_COMM_NODE_H
#define ZT_COMM_NODE_H

#include "engine/comm/link.h"
#include "engine/comm/process.h"

/* Bytes of a staging half: small enough to stay in a core's cache, large enough to hide meeting. */
#define ZT_NODE_HALF (1u << 20)

/* One rank's view of the node.  Its maker fills in what is above `memory`. */
typedef struct zt_node {
    int rank, world;
    const char *host;
    const zt_mate *mate;   /* world of them, by rank */
    const void **pointers; /* room for one per rank, for sums */
    zt_traffic *traffic;   /* what goes from rank to rank is counted here */
    unsigned char *memory; /* zt_node_bytes(world), on a page's border */
    uint32_t turn;         /* operations so far */
    uint32_t chunk;        /* chunks so far */
} zt_node;

/* Bytes of memory that `world` ranks need, wherever it begins. */
uint64_t zt_node_bytes(int world);

/*
 * Begin in this memory, which all ranks have mapped, at the same place in their pages.  Every rank
 * takes its own part of it now, so that nobody meets a full memory later.  No rank may meet before
 * all have begun.
 */
void zt_node_begin(zt_node *n, void *memory);

/*
 * Meet all ranks at the start of an operation, and check that all do the same.
 *
 * Errors  CKPT_EIO: the ranks' calls differ; a rank has ended (this and all later meetings fail)
 */
int zt_node_meet(zt_node *n, const zt_call *call, ckpt_err *err);

/* Meet in the course of an operation.  Errors: CKPT_EIO, a rank has ended. */
int zt_node_again(zt_node *n, const zt_call *call, ckpt_err *err);

/* A rank's staging half (0, 1): its owner writes it, all read it. */
unsigned char *zt_node_half(const zt_node *n, int rank, unsigned half);

/* True for the first rank only that asks, ever: who prints. */
bool zt_node_first(zt_node *n);

/* This rank takes part in nothing any more (an orderly end): who waits for it is told. */
void zt_node_leave(zt_node *n);

/* The operations of link.h on a zt_node (shm.c). */
extern const zt_link_ops zt_shm_ops;

#endif
