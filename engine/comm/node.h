/* SPDX-License-Identifier: Apache-2.0 */
/*
 * node.h: declares the barrier ("meeting") of the ranks of one node, and the shared memory that
 * carries their bytes.
 *
 * All ranks map one piece of memory (an MPI shared window, mpi.c).  It holds the state of the
 * meeting, then for each rank a record for the others and two staging halves.
 *
 *     meeting (one page) | rank 0: record (one page) | half 0 | half 1 | rank 1: ...
 *
 * A meeting takes about a microsecond once all ranks have arrived.  A waiting rank spins for a
 * moment, then yields, then sleeps in the kernel, and checks once a second that all other ranks
 * still run.  It names a rank that ended within about a second, and a rank that runs but does not
 * arrive, or is stopped, after some seconds (patience.h).  MPI's own barrier cannot do this: it
 * keeps its core busy, and waits for ever for a rank that has ended.
 */
#ifndef ZT_COMM_NODE_H
#define ZT_COMM_NODE_H

#include "engine/comm/link.h"
#include "engine/comm/process.h"

/*
 * Bytes of a staging half: small enough to stay in a core's cache, large enough that meetings cost
 * little.
 */
#define ZT_NODE_HALF (1u << 20)

/* One rank's view of the node.  Its creator fills in the members above `memory`. */
typedef struct zt_node {
    int rank, world;
    const char *host;
    const zt_mate *mate;   /* [world], by rank */
    const void **pointers; /* [world]: scratch for the pointers of a sum */
    zt_traffic *traffic;   /* counts the bytes between ranks */
    unsigned char *memory; /* zt_node_bytes(world), page-aligned */
    uint32_t turn;         /* operations so far */
    uint32_t chunk;        /* chunks so far */
} zt_node;

/* Bytes of shared memory for `world` ranks, including the slack for alignment. */
uint64_t zt_node_bytes(int world);

/*
 * Begin in this memory, which all ranks have mapped, at the same offset within a page.  Every rank
 * writes to its own part now, so a lack of memory is detected here.  No rank may meet before all
 * ranks have called this.
 */
void zt_node_begin(zt_node *n, void *memory);

/*
 * Wait for all ranks at the start of an operation, and check that all ranks start the same one.
 *
 * Errors  CKPT_EIO: the ranks' calls differ; a rank has ended (this and all later meetings fail)
 */
int zt_node_meet(zt_node *n, const zt_call *call, ckpt_err *err);

/* Wait for all ranks in the middle of an operation.  Errors: CKPT_EIO, a rank has ended. */
int zt_node_again(zt_node *n, const zt_call *call, ckpt_err *err);

/* Staging half 0 or 1 of a rank, which only that rank writes. */
unsigned char *zt_node_half(const zt_node *n, int rank, unsigned half);

/* True for the first rank that calls it, and only for that one: the rank that prints. */
bool zt_node_first(zt_node *n);

/* Mark that this rank ended normally; ranks that wait for it then fail and name it. */
void zt_node_leave(zt_node *n);

/* The operations of link.h on a zt_node (shm.c). */
extern const zt_link_ops zt_shm_ops;

#endif
