/* SPDX-License-Identifier: Apache-2.0 */
/*
 * shm.c: implements the collective operations among the ranks of one node.
 *
 * All bytes go through the staging halves, in chunks: each rank puts its chunk into its half, all
 * ranks meet, and each takes from all halves.  The halves take turns, so one meeting per chunk is
 * enough: before a rank writes a half again, the others have arrived at the meeting for the chunk
 * in between, so they have taken the old bytes.
 *
 * The callers' buffers are not shared, because most kernels give huge pages to plain memory only,
 * and matrix products on 4 KiB pages lose more time than a copy through the cache costs.
 */
#include <assert.h>
#include <string.h>

#include "engine/comm/node.h"
#include "engine/comm/sum.h"

/* One chunk of an operation: elements at .. at + count of every part. */
typedef struct sy_chunk {
    zt_node *node;
    const zt_call *call;
    uint64_t at, count;
    unsigned half;
} sy_chunk;

/*
 * How one operation moves its bytes.
 *
 * parts    that a rank puts for others: 1 (the same for all), or 0 for one per rank
 * put      from the caller's memory into this rank's half
 * take     from all halves into the caller's memory
 */
typedef struct sy_way {
    uint64_t parts;
    void (*put)(const sy_chunk *k);
    void (*take)(const sy_chunk *k);
} sy_way;

static unsigned char *sy_half(const sy_chunk *k, int rank)
{
    return zt_node_half(k->node, rank, k->half);
}

static uint64_t sy_bytes(const sy_chunk *k)
{
    return k->count * k->call->size;
}

static const unsigned char *sy_from(const zt_call *call, int q, uint64_t at)
{
    return (const unsigned char *)call->from + ((uint64_t)q * call->n + at) * call->size;
}

static unsigned char *sy_to(const zt_call *call, int q, uint64_t at)
{
    return (unsigned char *)call->to + ((uint64_t)q * call->n + at) * call->size;
}

/* Count a chunk: sent to `readers` other ranks, or received from `writers`. */
static void sy_sent(const sy_chunk *k, int readers)
{
    zt_link_count(k->node->traffic, k->call, (uint64_t)readers * sy_bytes(k), 0);
}

static void sy_received(const sy_chunk *k, int writers)
{
    zt_link_count(k->node->traffic, k->call, 0, (uint64_t)writers * sy_bytes(k));
}

/* ---- the loop of all operations ---- */

static int sy_run(zt_node *node, const sy_way *way, const zt_call *call, ckpt_err *err)
{
    uint64_t parts = way->parts ? way->parts : (uint64_t)node->world;
    uint64_t room = ZT_NODE_HALF / parts / call->size;
    sy_chunk k = {.node = node, .call = call};
    int rc = CKPT_OK;

    assert(node->rank < node->world && room > 0);
    for (; k.at < call->n && rc == CKPT_OK; k.at += k.count) {
        k.count = call->n - k.at < room ? call->n - k.at : room;
        k.half = node->chunk++ & 1;
        way->put(&k);
        rc = k.at == 0 ? zt_node_meet(node, call, err) : zt_node_again(node, call, err);
        if (rc == CKPT_OK)
            way->take(&k);
    }
    return rc;
}

/* ---- reduce_scatter: from [world * n], to [n] ---- */

static void sy_put_parts(const sy_chunk *k)
{
    int me = k->node->rank;

    for (int q = 0; q < k->node->world; q++) {
        if (q != me) { // this rank's own part needs no staging
            memcpy(sy_half(k, me) + (uint64_t)q * sy_bytes(k), sy_from(k->call, q, k->at),
                   (size_t)sy_bytes(k));
            sy_sent(k, 1);
        }
    }
}

static void sy_take_sum(const sy_chunk *k)
{
    const void **from = k->node->pointers;
    int me = k->node->rank, world = k->node->world;

    for (int q = 0; q < world; q++)
        from[q] = sy_half(k, q) + (uint64_t)me * sy_bytes(k);
    from[me] = sy_from(k->call, me, k->at);
    sy_received(k, world - 1);
    zt_sum(sy_to(k->call, 0, k->at), from, world, k->count, k->call->dt, k->call->op);
}

static int sy_reduce_scatter(void *node, const zt_call *call, ckpt_err *err)
{
    static const sy_way way = {.put = sy_put_parts, .take = sy_take_sum};

    return sy_run(node, &way, call, err);
}

/* ---- all_gather: from [n], to [world * n]; this rank's own part is in place already ---- */

static void sy_put(const sy_chunk *k, int readers)
{
    memcpy(sy_half(k, k->node->rank), sy_from(k->call, 0, k->at), (size_t)sy_bytes(k));
    sy_sent(k, readers);
}

static void sy_put_one(const sy_chunk *k)
{
    sy_put(k, k->node->world - 1);
}

static void sy_take_all(const sy_chunk *k)
{
    int me = k->node->rank, world = k->node->world;

    // start at different ranks, so they do not all read the same half at once
    for (int d = 1; d < world; d++) {
        int q = (me + d) % world;

        memcpy(sy_to(k->call, q, k->at), sy_half(k, q), (size_t)sy_bytes(k));
        sy_received(k, 1);
    }
}

static int sy_all_gather(void *node, const zt_call *call, ckpt_err *err)
{
    static const sy_way way = {.parts = 1, .put = sy_put_one, .take = sy_take_all};
    void *own = sy_to(call, ((zt_node *)node)->rank, 0);

    if (own != call->from)
        memmove(own, call->from, (size_t)(call->n * call->size));
    return sy_run(node, &way, call, err);
}

/* ---- small sums: everything on every rank ---- */

static void sy_take_small(const sy_chunk *k)
{
    const void **from = k->node->pointers;
    int world = k->node->world;

    for (int q = 0; q < world; q++)
        from[q] = sy_half(k, q);
    sy_received(k, world - 1);
    zt_sum(k->call->to, from, world, k->count, k->call->dt, k->call->op);
}

static int sy_reduce_small(void *node, const zt_call *call, ckpt_err *err)
{
    static const sy_way way = {.parts = 1, .put = sy_put_one, .take = sy_take_small};

    return sy_run(node, &way, call, err);
}

/* ---- reduce ---- */

static void sy_put_addend(const sy_chunk *k)
{
    if (k->node->rank != k->call->root)
        sy_put(k, 1);
}

static void sy_take_reduced(const sy_chunk *k)
{
    const void **from = k->node->pointers;
    int root = k->call->root, world = k->node->world;

    if (k->node->rank != root)
        return;
    for (int q = 0; q < world; q++)
        from[q] = sy_half(k, q);
    from[root] = sy_from(k->call, 0, k->at);
    sy_received(k, world - 1);
    zt_sum(sy_to(k->call, 0, k->at), from, world, k->count, k->call->dt, k->call->op);
}

static int sy_reduce(void *node, const zt_call *call, ckpt_err *err)
{
    static const sy_way way = {.parts = 1, .put = sy_put_addend, .take = sy_take_reduced};

    return sy_run(node, &way, call, err);
}

/* ---- broadcast ---- */

static void sy_put_root(const sy_chunk *k)
{
    if (k->node->rank == k->call->root)
        sy_put_one(k);
}

static void sy_take_root(const sy_chunk *k)
{
    if (k->node->rank != k->call->root) {
        memcpy(sy_to(k->call, 0, k->at), sy_half(k, k->call->root), (size_t)sy_bytes(k));
        sy_received(k, 1);
    }
}

static int sy_broadcast(void *node, const zt_call *call, ckpt_err *err)
{
    static const sy_way way = {.parts = 1, .put = sy_put_root, .take = sy_take_root};

    return sy_run(node, &way, call, err);
}

/* ---- all_to_all: from [world * n], to [world * n] ---- */

static void sy_take_parts(const sy_chunk *k)
{
    int me = k->node->rank;

    for (int q = 0; q < k->node->world; q++) {
        const void *from =
            q == me ? sy_from(k->call, me, k->at) : sy_half(k, q) + (uint64_t)me * sy_bytes(k);

        memcpy(sy_to(k->call, q, k->at), from, (size_t)sy_bytes(k));
        if (q != me)
            sy_received(k, 1);
    }
}

static int sy_all_to_all(void *node, const zt_call *call, ckpt_err *err)
{
    static const sy_way way = {.put = sy_put_parts, .take = sy_take_parts};

    return sy_run(node, &way, call, err);
}

static int sy_barrier(void *node, const zt_call *call, ckpt_err *err)
{
    return zt_node_meet(node, call, err);
}

const zt_link_ops zt_shm_ops = {
    .reduce_scatter = sy_reduce_scatter,
    .all_gather = sy_all_gather,
    .reduce_small = sy_reduce_small,
    .reduce = sy_reduce,
    .broadcast = sy_broadcast,
    .all_to_all = sy_all_to_all,
    .barrier = sy_barrier,
};
