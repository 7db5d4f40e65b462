/* SPDX-License-Identifier: Apache-2.0 */
/*
 * link.h: declares the part that all communicators over host memory share, however they transport
 * bytes.
 *
 * link.c checks the arguments of comm.h's operations, handles the cases that need no other rank,
 * and composes the rest from seven primitives, implemented in shm.c (one node) and mpi.c (several).
 * all_reduce is a reduce_scatter and an all_gather in place, so the rank that owns a slice computes
 * its sums once, in rank order.
 */
#ifndef ZT_COMM_LINK_H
#define ZT_COMM_LINK_H

#include "engine/comm/comm.h"

/*
 * Up to this many bytes over all ranks, every rank sums all values itself, because one exchange is
 * faster than two.
 */
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
    zt_call_kind kind; /* the operation that the caller requested */
    uint32_t arg;      /* reduction or root: equal on all ranks */
    uint64_t n;
    ckpt_dtype dt;
    uint32_t size; /* bytes per element */
    void *to;
    const void *from;
    zt_reduce op;
    int root;
} zt_call;

/* The operations of a transport.  Callers have checked the arguments; world > 1, n > 0. */
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

/* A communicator over host memory; base is first, so a zt_comm * can be cast to it. */
typedef struct zt_link {
    zt_comm base;
    zt_traffic traffic;     /* base.traffic points to this */
    const zt_link_ops *ops; /* NULL: one rank, no transport */
    void *way;
    char host[256];
    const void **pointers;                  /* [world]: scratch for the pointers of a sum */
    zt_collective pending[ZT_COMM_PENDING]; /* ring of started operations, the oldest at `first` */
    unsigned first, n_pending;
} zt_link;

/* The operations of comm.h on a zt_link; alloc and release use plain memory. */
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

/* These operations in a zt_comm_ops. */
#define ZT_LINK_OPS                                                                                \
    .all_reduce = zt_link_all_reduce, .reduce_scatter = zt_link_reduce_scatter,                    \
    .all_gather = zt_link_all_gather, .reduce = zt_link_reduce, .broadcast = zt_link_broadcast,    \
    .all_to_all = zt_link_all_to_all, .barrier = zt_link_barrier, .start = zt_link_start,          \
    .wait = zt_link_wait, .alloc = zt_link_alloc, .release = zt_link_release

/*
 * Set call->size, and refuse sizes that overflow, types that cannot be summed (if `sum`), and NULL
 * buffers.
 */
int zt_link_check(const zt_comm *c, zt_call *call, bool sum, ckpt_err *err);

/* Add the bytes that an operation sent to and received from other ranks. */
void zt_link_count(zt_traffic *t, const zt_call *call, uint64_t sent, uint64_t received);

/* "reduce_scatter" */
const char *zt_call_name(zt_call_kind kind);

/* Set `host` and base.host to this machine's name. */
void zt_link_name_host(zt_link *l);

#endif
