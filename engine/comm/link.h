/* SPDX-License-Identifier: Apache-2.0 */
/*
 * link.h: what every communicator of host memory shares, above the way its bytes travel.
 *
 * link.c checks the arguments of comm.h's operations, does what needs no other rank, and composes
 * the rest from seven primitives that a way of travelling (shm.c: one node, mpi.c: several)
 * supplies.  All_reduce is reduce_scatter and all_gather in place, so that its sums, too, are
 * formed once, in rank order, by the rank that owns the slice.
 */
#ifndef ZT_COMM_LINK_H
#define ZT_COMM_LINK_H

#include "engine/comm/comm.h"

/* Up to this many bytes over all ranks every rank sums everything itself: one exchange, not two. */
#define ZT_LINK_SMALL (64u << 10)

typedef enum zt_call_kind {
    ZT_CALL_NONE,
    ZT_CALL_REDUCE_SCATTER,
    ZT_CALL_ALL_GATHER,
    ZT_CALL_ALL_REDUCE,
    ZT_CALL_REDUCE,
    ZT_CALL_BROADCAST,
    ZT_CALL_ALL_TO_ALL,
    ZT_CALL_BARRIER,
    ZT_CALL_FREE
} zt_call_kind;

/* One operation.  n counts elements of a rank's part (of x in all_reduce and broadcast). */
typedef struct zt_call {
    zt_call_kind kind; /* what the caller of comm.h asked for */
    uint32_t arg;      /* reduction or root: equal on all ranks */
    uint64_t n;
    ckpt_dtype dt;
    uint32_t size; /* bytes per element */
    void *to;
    const void *from;
    zt_reduce op;
    int root;
} zt_call;

/* Arguments are checked, world > 1, n > 0. */
typedef struct zt_link_ops {
    /* to [n] = from[rank * n ..) of all ranks; to may be from + rank * n. */
    int (*reduce_scatter)(void *way, const zt_call *call, ckpt_err *err);
    /* to [world * n]; from may be to + rank * n. */
    int (*all_gather)(void *way, const zt_call *call, ckpt_err *err);
    /* to [n] = from [n] of all ranks, on every rank; to may be from; at most ZT_LINK_SMALL bytes
     * over all ranks, or fewer elements than ranks. */
    int (*reduce_small)(void *way, const zt_call *call, ckpt_err *err);
    /* to [n] of root = from [n] of all ranks; to is from. */
    int (*reduce)(void *way, const zt_call *call, ckpt_err *err);
    int (*broadcast)(void *way, const zt_call *call, ckpt_err *err); /* `to` is also the source */
    int (*all_to_all)(void *way, const zt_call *call, ckpt_err *err);
    int (*barrier)(void *way, const zt_call *call, ckpt_err *err);
} zt_link_ops;

/* A communicator over host memory; base is first, so that a zt_comm * is one of these. */
typedef struct zt_link {
    zt_comm base;
    zt_traffic traffic;     /* base.traffic is this */
    const zt_link_ops *ops; /* NULL: one rank, nothing travels */
    void *way;
    char host[256];
    const void **pointers;                  /* room for one per rank, for sums */
    zt_collective pending[ZT_COMM_PENDING]; /* a ring: begun, the oldest at `first` */
    unsigned first, n_pending;
} zt_link;

/* The operations of comm.h on a zt_link; alloc and release are of plain memory. */
int zt_link_all_reduce(zt_comm *c, void *x, uint64_t n, ckpt_dtype dt, zt_reduce op, ckpt_err *err);
int zt_link_reduce_scatter(zt_comm *c, void *to, const void *from, uint64_t n, ckpt_dtype dt,
                           ckpt_err *err);
int zt_link_all_gather(zt_comm *c, void *to, const void *from, uint64_t n, ckpt_dtype dt,
                       ckpt_err *err);
int zt_link_reduce(zt_comm *c, void *x, uint64_t n, ckpt_dtype dt, int root, ckpt_err *err);
int zt_link_broadcast(zt_comm *c, void *x, uint64_t n_bytes, int root, ckpt_err *err);
int zt_link_all_to_all(zt_comm *c, void *to, const void *from, uint64_t n_bytes, ckpt_err *err);
int zt_link_barrier(zt_comm *c, ckpt_err *err);
int zt_link_start(zt_comm *c, const zt_collective *what, ckpt_err *err);
int zt_link_wait(zt_comm *c, ckpt_err *err);
void *zt_link_alloc(zt_comm *c, uint64_t n_bytes);
void zt_link_release(zt_comm *c, void *p);

/*
 * Fill in the size, and refuse what no memory can hold, `sum` cannot be formed of, or has no
 * buffer.
 */
int zt_link_check(const zt_comm *c, zt_call *call, bool sum, ckpt_err *err);

/* Bytes of an operation that left for other ranks, and that came from them. */
void zt_link_count(zt_traffic *t, const zt_call *call, uint64_t sent, uint64_t received);

/* "reduce_scatter" */
const char *zt_call_name(zt_call_kind kind);

/* Set `host` and base.host to this machine's name. */
void zt_link_name_host(zt_link *l);

#endif
